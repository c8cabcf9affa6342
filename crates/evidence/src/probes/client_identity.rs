//! The identity that the client's proxy proved to the server's side: in a header that the application received, in the
//! server proxy's log, or in its metrics.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_dataplane::{ClientIdentityFrom, ProcessScope};
use meshtax_model::trial::ComponentRole;

use crate::finding::{Finding, ProbeError};
use crate::requests::{echo, local_page};
use crate::subject::Subject;
use crate::vantage::Vantage;

/// How long a proxy may take to log or count a connection.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

/// Whether the server's side saw exactly the expected identity.
pub(crate) fn client_identity(
    subject: &Subject<'_>,
    expected: &str,
    from: &ClientIdentityFrom,
) -> Finding {
    let seen = match from {
        ClientIdentityFrom::ForwardedClientCert => forwarded_identity(subject),
        ClientIdentityFrom::Header(name) => received_header(subject, name),
        ClientIdentityFrom::ProxyLog => logged_identity(subject, expected),
        ClientIdentityFrom::Metrics {
            scope,
            port,
            series,
            with,
            label,
        } => {
            let at = match scope {
                ProcessScope::Node => subject.at_server_nodes(),
                ProcessScope::Pod => subject.at_all(&subject.site.entry_point().pods),
            };
            let series = Series {
                series,
                with,
                label,
            };
            measured_identity(&at, *port, &series, expected)
        }
    };
    match seen {
        Ok(identity) if identity == expected => Finding::passed(identity),
        Ok(other) => Finding::failed(format!(
            "the server's side saw {other}, expected {expected}"
        )),
        Err(error) => Finding::failed(error.to_string()),
    }
}

/// A header of a request through the whole path, as the application received it.
fn received_header(subject: &Subject<'_>, wanted: &str) -> Result<String, ProbeError> {
    let mut headers = echo(subject)?.headers.into_iter();
    headers
        .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        .map(|(_, value)| value)
        .ok_or_else(|| ProbeError::NoHeader(wanted.to_owned()))
}

/// The URI in the header that the server's proxy added.
fn forwarded_identity(subject: &Subject<'_>) -> Result<String, ProbeError> {
    let certificate = received_header(subject, "x-forwarded-client-cert")?;
    let mut fields = certificate.split([';', ',']);
    fields
        .find_map(|field| field.strip_prefix("URI="))
        .map(|uri| uri.trim_matches('"').to_owned())
        .ok_or_else(|| ProbeError::NoUri(certificate.clone()))
}

/// A series of a proxy's metrics with the client's identity in a label.
struct Series<'a> {
    series: &'a str,
    /// Parts that its lines must contain.
    with: &'a [String],
    label: &'a str,
}

impl Series<'_> {
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

/// The proxy counts connections by client identity. The prober itself connected as the client once, so every counted
/// identity must be the expected one.
fn measured_identity(
    at: &[&dyn Vantage],
    port: u16,
    series: &Series<'_>,
    expected: &str,
) -> Result<String, ProbeError> {
    let deadline = Instant::now() + REPORTED_WITHIN;
    loop {
        let mut seen = BTreeSet::new();
        for at in at {
            seen.extend(series.identities(&local_page(*at, port, "/metrics")?));
        }
        match seen.iter().find(|identity| *identity != expected) {
            Some(other) => return Ok(other.clone()),
            None if !seen.is_empty() => return Ok(expected.to_owned()),
            None if Instant::now() > deadline => {
                return Err(ProbeError::NoIdentity(expected.to_owned()));
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The minimal proxy logs its peers: `peer IDENTITY from ADDRESS`.
fn logged_identity(subject: &Subject<'_>, expected: &str) -> Result<String, ProbeError> {
    let verifier = match subject.contract.waypoint {
        true => ComponentRole::Waypoint,
        false => ComponentRole::ServerProxy,
    };
    if !subject.deployment.has(verifier) {
        return Err(ProbeError::NoVerifier);
    }
    let source = subject.site.caller().address.to_string();
    let peer = |line: &String| {
        let (identity, from) = line.strip_prefix("peer ")?.split_once(" from ")?;
        (from == source).then(|| identity.to_owned())
    };
    let deadline = Instant::now() + REPORTED_WITHIN;
    loop {
        // Which replica had the connection is the mesh's choice.
        let log = subject.deployment.log(verifier);
        match log.iter().find_map(peer) {
            Some(identity) => return Ok(identity),
            None if Instant::now() > deadline => {
                return Err(ProbeError::NoIdentity(expected.to_owned()));
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}
