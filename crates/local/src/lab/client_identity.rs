//! Whose identity the client's proxy proved to the server's side: in a header that the application
//! received, in the server proxy's log, or in its metrics.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_dataplane::{ClientIdentityFrom, Place};
use meshtax_model::evidence::{ProbeResult, probe as names};
use meshtax_model::trial::ComponentRole;

use super::http::{Ask, Heard};
use super::netns::NetNs;
use super::probes::{Subject, echo, one_request, result};

/// Whether it is the expected one.
pub(crate) fn client_identity(
    subject: &mut Subject<'_>,
    expected: &str,
    from: &ClientIdentityFrom,
) -> ProbeResult {
    let seen = match from {
        ClientIdentityFrom::ForwardedClientCert => forwarded_identity(subject),
        ClientIdentityFrom::Header(name) => received_header(subject, name).and_then(|value| {
            value.ok_or_else(|| {
                format!("the application received no {name}: no client identity was verified")
            })
        }),
        ClientIdentityFrom::Metrics {
            place,
            port,
            series,
            with,
            label,
        } => measured_identity(
            &match place {
                Place::Node => subject.server_nodes.clone(),
                Place::Pod => subject.servers.clone(),
            },
            *port,
            &Series {
                series,
                with,
                label,
            },
            expected,
        ),
        ClientIdentityFrom::ProxyLog => logged_identity(subject, expected),
    };
    match seen {
        Ok(identity) => result(
            names::CLIENT_IDENTITY,
            identity == expected,
            if identity == expected {
                identity
            } else {
                format!("the server's side saw {identity}, expected {expected}")
            },
        ),
        Err(why) => result(names::CLIENT_IDENTITY, false, why),
    }
}

/// A header of a request through the whole path, as the application received it.
fn received_header(subject: &Subject<'_>, wanted: &str) -> Result<Option<String>, String> {
    let headers = echo(subject)?.headers;
    Ok(headers
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        .map(|(_, value)| value))
}

/// The URI in the header that the server's proxy added to what the application received.
fn forwarded_identity(subject: &Subject<'_>) -> Result<String, String> {
    let certificate = received_header(subject, "x-forwarded-client-cert")?.ok_or(
        "the application received no x-forwarded-client-cert: no client certificate was verified",
    )?;
    certificate
        .split([';', ','])
        .find_map(|part| part.strip_prefix("URI="))
        .map(|uri| uri.trim_matches('"').to_owned())
        .ok_or_else(|| format!("no URI in x-forwarded-client-cert: {certificate}"))
}

/// Where in a proxy's metrics a client's identity stands.
struct Series<'a> {
    series: &'a str,
    with: &'a [String],
    label: &'a str,
}

impl Series<'_> {
    /// The identities in a text in Prometheus' format.
    fn identities(&self, metrics: &str) -> BTreeSet<String> {
        let opening = format!("{}=\"", self.label);
        metrics
            .lines()
            .filter(|line| line.starts_with(self.series))
            .filter(|line| self.with.iter().all(|part| line.contains(part)))
            .filter_map(|line| line.split_once(&opening)?.1.split('"').next())
            .map(str::to_owned)
            .collect()
    }
}

/// The proxy counts connections by whom they came from. The prober itself came as the client once, so
/// every identity that was counted must be the expected one.
fn measured_identity(
    at: &[&NetNs],
    port: u16,
    series: &Series<'_>,
    expected: &str,
) -> Result<String, String> {
    let request = Ask::get("/metrics");
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let mut seen = BTreeSet::new();
        for namespace in at {
            let heard = one_request(namespace, (Ipv4Addr::LOCALHOST, port), &request);
            let Heard::Answer {
                status: 200, body, ..
            } = &heard
            else {
                return Err(format!("its metrics: {}", heard.describe()));
            };
            seen.extend(series.identities(&String::from_utf8_lossy(body)));
        }
        let other = seen.iter().find(|identity| *identity != expected);
        match (other, seen.is_empty()) {
            (Some(other), _) => return Ok(other.clone()),
            (None, false) => return Ok(expected.to_owned()),
            (None, true) if Instant::now() > deadline => {
                return Err(format!(
                    "the server's proxy counted no client identity, expected {expected}"
                ));
            }
            (None, true) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The minimal proxy says in its log whom it talked to. The prober itself came as the client once,
/// so every identity that it saw must be the expected one.
fn logged_identity(subject: &Subject<'_>, expected: &str) -> Result<String, String> {
    let judge = match subject.blueprint.waypoint {
        Some(_) => ComponentRole::Waypoint,
        None => ComponentRole::ServerProxy,
    };
    // Which replica had the connection is the mesh's choice.
    let judges: Vec<_> = subject
        .components
        .iter()
        .filter(|c| c.role == judge)
        .collect();
    if judges.is_empty() {
        return Err("there is no proxy that could have seen it".into());
    }
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let source = subject.site.caller().address.to_string();
        let line = judges.iter().find_map(|judge| {
            judge.find_logged(|line| {
                let rest = line.strip_prefix("peer ")?;
                let (identity, from) = rest.split_once(" from ")?;
                (from == source).then(|| identity.to_owned())
            })
        });
        match line {
            Some(identity) => return Ok(identity),
            None if Instant::now() > deadline => {
                return Err(format!(
                    "the server's proxy saw no client identity, expected {expected}"
                ));
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}
