//! The proxies run with the variant's runtime switches: what they report is compared with what was asked for.

use std::collections::BTreeMap;

use meshtax_dataplane::Pod;
use meshtax_model::experiment::is_runtime_key;
use meshtax_model::trial::ComponentRole;
use serde::Deserialize;

use crate::finding::{Finding, ProbeError};
use crate::requests::local_page;
use crate::subject::Subject;
use crate::vantage::Vantage;

/// Every proxy that reads a switch has it with this value.
pub(crate) fn switches(
    subject: &Subject<'_>,
    switches: &BTreeMap<String, String>,
    admin_port: u16,
) -> Finding {
    let mut seen = Vec::new();
    for (switch, value) in switches {
        let found = match is_runtime_key(switch) {
            true => in_runtime(subject, admin_port, switch, value),
            false => in_environment(subject, switch, value),
        };
        match found {
            Ok(proxies) => seen.push(format!("{switch}={value} in {proxies} proxies")),
            Err(error) => return Finding::failed(error.to_string()),
        }
    }
    Finding::passed(seen.join("; "))
}

/// Envoy's page `/runtime?format=json`: each key with the value of each layer, and the one that counts.
#[derive(Deserialize)]
struct RuntimePage {
    entries: BTreeMap<String, RuntimeEntry>,
}

#[derive(Deserialize)]
struct RuntimeEntry {
    final_value: String,
}

/// The number of Envoys whose runtime has this value.
fn in_runtime(
    subject: &Subject<'_>,
    admin_port: u16,
    key: &str,
    value: &str,
) -> Result<usize, ProbeError> {
    let site = subject.site;
    let pods: Vec<&Pod> = match subject.contract.waypoint {
        true => vec![&site.waypoint],
        false => site
            .clients
            .iter()
            .chain(&site.entry_point().pods)
            .collect(),
    };
    for pod in &pods {
        let seen = runtime_value(subject.at(pod), admin_port, key)?;
        expect(key, value, seen)?;
    }
    Ok(pods.len())
}

fn runtime_value(at: &dyn Vantage, port: u16, key: &str) -> Result<Option<String>, ProbeError> {
    let page: RuntimePage = serde_json::from_str(&local_page(at, port, "/runtime?format=json")?)?;
    let mut entries = page.entries;
    Ok(entries.remove(key).map(|entry| entry.final_value))
}

/// The number of processes whose environment has this value. A program that does not know the variable ignores it: that
/// it took effect is not proven.
fn in_environment(subject: &Subject<'_>, name: &str, value: &str) -> Result<usize, ProbeError> {
    let mut count = 0;
    for role in [ComponentRole::ClientProxy, ComponentRole::ServerProxy] {
        for mut environment in subject.deployment.environments(role) {
            expect(name, value, environment.remove(name))?;
            count += 1;
        }
    }
    match count {
        0 => Err(ProbeError::NoVerifier),
        count => Ok(count),
    }
}

fn expect(switch: &str, value: &str, seen: Option<String>) -> Result<(), ProbeError> {
    match seen {
        Some(seen) if seen == value => Ok(()),
        seen => Err(ProbeError::Switch {
            switch: switch.to_owned(),
            expected: value.to_owned(),
            seen,
        }),
    }
}
