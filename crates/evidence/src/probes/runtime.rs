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

/// Begin the names of Envoy's guards, which are on or off (`hasRuntimePrefix` in its `runtime_features.cc`).
const GUARDS: [&str; 2] = ["envoy.reloadable_features.", "envoy.restart_features."];

/// What Envoy logs at its start before the name of a guard that it does not have (its `runtime_impl.cc`). The admin
/// interface shows the value all the same.
const UNKNOWN_GUARD: &str = "Using a removed guard ";

/// Every proxy that reads a switch has it with this value.
pub(crate) fn switches(
    subject: &Subject<'_>,
    switches: &BTreeMap<String, String>,
    admin_port: u16,
) -> Finding {
    let mut seen = Vec::new();
    for (switch, value) in switches {
        if let Some(problem) = ignored(subject, switch, value) {
            return Finding::failed(problem);
        }
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

/// Why Envoy ignores a switch, though it shows the value.
fn ignored(subject: &Subject<'_>, switch: &str, value: &str) -> Option<String> {
    if !GUARDS.iter().any(|guards| switch.starts_with(guards)) {
        return None;
    }
    if !is_on_or_off(value) {
        return Some(format!(
            "{switch} is a guard, and `{value}` is neither true nor false"
        ));
    }
    let roles = [
        ComponentRole::ClientProxy,
        ComponentRole::ServerProxy,
        ComponentRole::Waypoint,
    ];
    let mut logs = roles.iter().flat_map(|role| subject.deployment.log(*role));
    let is_unknown = logs.any(|line| unknown_guard(&line) == Some(switch));
    is_unknown.then(|| format!("{switch}: this Envoy has no such guard and ignores it"))
}

/// Whether Envoy takes a value for on or off. Of any other it keeps only the text (`createEntry` in its `runtime_impl.cc`).
fn is_on_or_off(value: &str) -> bool {
    matches!(value, "true" | "false") || value.parse::<i32>().is_ok()
}

/// The guard that a line of Envoy's log is about.
fn unknown_guard(line: &str) -> Option<&str> {
    let (_, after) = line.split_once(UNKNOWN_GUARD)?;
    let name = after.split_whitespace().next()?;
    Some(name.trim_end_matches('.'))
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
        expect(key, value, seen, same_value)?;
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
            expect(name, value, environment.remove(name), |one, other| {
                one == other
            })?;
            count += 1;
        }
    }
    match count {
        0 => Err(ProbeError::NoVerifier),
        count => Ok(count),
    }
}

/// Whether a value that Envoy shows is the one that it was given. It shows numbers with six significant digits (`1e+07`).
fn same_value(given: &str, shown: &str) -> bool {
    /// Half a unit of the sixth digit, at most, with the error of the comparison itself.
    const ROUNDING: f64 = 5.1e-6;
    let number = |text: &str| {
        let number = text.parse::<f64>().ok();
        number.filter(|number| number.is_finite())
    };
    let is_same_number = match (number(given), number(shown)) {
        (Some(given), Some(shown)) => (given - shown).abs() <= ROUNDING * given.abs(),
        _ => false,
    };
    given == shown || is_same_number
}

fn expect(
    switch: &str,
    value: &str,
    seen: Option<String>,
    is_same: impl Fn(&str, &str) -> bool,
) -> Result<(), ProbeError> {
    match seen {
        Some(seen) if is_same(value, &seen) => Ok(()),
        seen => Err(ProbeError::Switch {
            switch: switch.to_owned(),
            expected: value.to_owned(),
            seen,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_recognized_as_envoy_shows_it() {
        for (given, shown) in [
            ("10000000", "1e+07"),
            ("12345678", "1.23457e+07"),
            ("0.50", "0.5"),
            ("1.0", "1"),
            ("-0.00001", "-1e-05"),
            ("0", "0"),
            ("true", "true"),
            ("text", "text"),
        ] {
            assert!(same_value(given, shown), "{given} {shown}");
        }
        for (given, shown) in [
            ("10000000", "1.00001e+07"),
            ("100000", "100001"),
            ("0", "1e-05"),
            ("true", "false"),
            ("1", "true"),
            ("text", "Text"),
            ("0.5", ""),
            ("inf", "infinity"),
        ] {
            assert!(!same_value(given, shown), "{given} {shown}");
        }
    }

    #[test]
    fn guard_is_on_or_off() {
        assert!(["true", "false", "0", "1"].into_iter().all(is_on_or_off));
        assert!(!["False", "off", "0.5", ""].into_iter().any(is_on_or_off));
    }

    #[test]
    fn guard_that_envoy_does_not_have_is_read_from_its_log() {
        let line = "[error][envoy_bug] [source/common/runtime/runtime_impl.cc:466] envoy bug failure: false. Details: \
                    Using a removed guard envoy.reloadable_features.a_b. In future version of Envoy this will be \
                    treated as invalid configuration";
        assert_eq!(unknown_guard(line), Some("envoy.reloadable_features.a_b"));
        assert_eq!(unknown_guard("[warning] no limit is configured"), None);
    }
}
