//! The identity that the client's proxy proved to the server's side: in a header that the application received, in the
//! server proxy's log, or in its metrics.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_dataplane::{ClientIdentityFrom, ProcessScope};
use meshtax_model::trial::ComponentRole;

use crate::finding::{Finding, ProbeError};
use crate::requests::{echo, local_page};
use crate::subject::{Client, Subject};
use crate::vantage::Vantage;

/// How long a proxy may take to log or count a connection.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

/// Whether the server's side saw exactly the expected identity of each client.
pub(crate) fn client_identity(
    subject: &Subject<'_>,
    expected: &str,
    from: &ClientIdentityFrom,
) -> Finding {
    subject.for_each_client(|client| identity_of(subject, client, expected, from))
}

fn identity_of(
    subject: &Subject<'_>,
    client: Client<'_>,
    expected: &str,
    from: &ClientIdentityFrom,
) -> Finding {
    let seen = match from {
        ClientIdentityFrom::ForwardedClientCert => forwarded_identity(subject, client),
        ClientIdentityFrom::Header(name) => received_header(subject, client, name),
        ClientIdentityFrom::ProxyLog => logged_identity(subject, client, expected),
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
            let series = ConnectionMetric {
                series,
                with,
                label,
            };
            measured_identity((subject, client), &at, (*port, &series), expected)
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
fn received_header(
    subject: &Subject<'_>,
    client: Client<'_>,
    wanted: &str,
) -> Result<String, ProbeError> {
    let mut headers = echo(subject, client)?.headers.into_iter();
    headers
        .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        .map(|(_, value)| value)
        .ok_or_else(|| ProbeError::NoHeader(wanted.to_owned()))
}

/// The URI in the header that the server's proxy added.
fn forwarded_identity(subject: &Subject<'_>, client: Client<'_>) -> Result<String, ProbeError> {
    let certificate = received_header(subject, client, "x-forwarded-client-cert")?;
    let mut fields = certificate.split([';', ',']);
    fields
        .find_map(|field| field.strip_prefix("URI="))
        .map(|uri| uri.trim_matches('"').to_owned())
        .ok_or_else(|| ProbeError::NoUri(certificate.clone()))
}

/// A series of a proxy's metrics with the client's identity in a label.
struct ConnectionMetric<'a> {
    series: &'a str,
    /// Parts that its lines must contain.
    with: &'a [String],
    label: &'a str,
}

/// Connections by client identity.
type Counts = BTreeMap<String, f64>;

impl ConnectionMetric<'_> {
    /// The sums over the lines of each identity.
    fn counts(&self, metrics: &str) -> Counts {
        let opening = format!("{}=\"", self.label);
        let counted = metrics
            .lines()
            .filter(|line| line.starts_with(self.series))
            .filter(|line| self.with.iter().all(|part| line.contains(part)))
            .filter_map(|line| {
                let identity = line.split_once(&opening)?.1.split('"').next()?;
                let count: f64 = line.rsplit_once("} ")?.1.split(' ').next()?.parse().ok()?;
                Some((identity.to_owned(), count))
            });
        let mut counts = Counts::new();
        for (identity, count) in counted {
            *counts.entry(identity).or_default() += count;
        }
        counts
    }

    /// The sums over all proxies.
    fn read(&self, at: &[&dyn Vantage], port: u16) -> Result<Counts, ProbeError> {
        let mut all = Counts::new();
        for at in at {
            for (identity, count) in self.counts(&local_page(*at, port, "/metrics")?) {
                *all.entry(identity).or_default() += count;
            }
        }
        Ok(all)
    }
}

/// The identities that have more connections than before.
fn grown<'a>(before: &Counts, after: &'a Counts) -> impl Iterator<Item = &'a String> {
    let before = before.clone();
    let more = move |(identity, count): &(&'a String, &f64)| {
        **count > before.get(*identity).copied().unwrap_or(0.0)
    };
    after.iter().filter(more).map(|(identity, _)| identity)
}

/// The proxy counts connections by client identity: every count that a client's request through the whole path raises must be the expected
/// identity's. A proxy that outlives rounds, as those of a cluster's nodes do, has counted refused connections before.
fn measured_identity(
    (subject, client): (&Subject<'_>, Client<'_>),
    at: &[&dyn Vantage],
    (port, series): (u16, &ConnectionMetric<'_>),
    expected: &str,
) -> Result<String, ProbeError> {
    let before = series.read(at, port)?;
    echo(subject, client)?;
    let deadline = Instant::now() + REPORTED_WITHIN;
    loop {
        let after = series.read(at, port)?;
        let seen: Vec<&String> = grown(&before, &after).collect();
        match seen.iter().find(|identity| **identity != expected) {
            Some(other) => return Ok((*other).clone()),
            None if !seen.is_empty() => return Ok(expected.to_owned()),
            None if Instant::now() > deadline => {
                let may_be_pooled = subject.site.has_outside_clients_only();
                return without_growth(&after, expected, may_be_pooled);
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A gateway may send the request over a connection that it already has (`may_be_pooled`). Then all that was ever counted must be
/// the expected identity's. Clients open a new one for each request: what was counted before shows nothing of them.
fn without_growth(
    counts: &Counts,
    expected: &str,
    may_be_pooled: bool,
) -> Result<String, ProbeError> {
    let mut others = counts.keys().filter(|identity| *identity != expected);
    match others.next() {
        _ if counts.is_empty() || !may_be_pooled => {
            Err(ProbeError::NoIdentity(expected.to_owned()))
        }
        Some(other) => Ok(other.clone()),
        None => Ok(expected.to_owned()),
    }
}

/// The minimal proxy logs its peers: `peer IDENTITY from ADDRESS`.
fn logged_identity(
    subject: &Subject<'_>,
    client: Client<'_>,
    expected: &str,
) -> Result<String, ProbeError> {
    let verifier = match subject.contract.waypoint {
        true => ComponentRole::Waypoint,
        false => ComponentRole::ServerProxy,
    };
    if !subject.deployment.has(verifier) {
        return Err(ProbeError::NoVerifier);
    }
    let source = client.enters.address.to_string();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(client: u32, unknown: u32) -> String {
        let line = |reporter: &str, source: &str, count: u32| {
            format!(
                "istio_tcp_connections_opened_total{{reporter=\"{reporter}\",source_principal=\"{source}\",\
                 destination_principal=\"spiffe://server\"}} {count}\n"
            )
        };
        let client_line = line("destination", "spiffe://client", client);
        let split = line("destination", "spiffe://client", 1);
        let refused = line("destination", "unknown", unknown);
        let of_the_source = line("source", "spiffe://other", client + unknown);
        format!("# TYPE x counter\n{client_line}{split}{refused}{of_the_source}")
    }

    fn counts(of: &[&str]) -> Counts {
        of.iter().map(|id| ((*id).to_owned(), 1.0)).collect()
    }

    fn identities_that_grow(before: &str, after: &str) -> Vec<String> {
        let with = ["reporter=\"destination\"".to_owned()];
        let series = ConnectionMetric {
            series: "istio_tcp_connections_opened_total",
            with: &with,
            label: "source_principal",
        };
        let (before, after) = (series.counts(before), series.counts(after));
        grown(&before, &after).cloned().collect()
    }

    #[test]
    fn refused_connection_of_an_earlier_round_is_not_the_client() {
        let grown = identities_that_grow(&metrics(3, 1), &metrics(4, 1));
        assert_eq!(grown, ["spiffe://client"]);
    }

    #[test]
    fn first_connection_that_a_proxy_counts_is_the_client() {
        assert_eq!(
            identities_that_grow("", &metrics(1, 0)),
            ["spiffe://client"]
        );
    }

    #[test]
    fn without_a_new_connection_every_one_of_a_gateway_must_be_the_client() {
        let client = "spiffe://client";
        let of_gateway = |ids: &[&str]| without_growth(&counts(ids), client, true);
        assert_eq!(of_gateway(&[client]).unwrap(), client);
        assert_eq!(of_gateway(&[client, "unknown"]).unwrap(), "unknown");
        assert!(of_gateway(&[]).is_err());
    }

    #[test]
    fn connections_of_an_earlier_round_do_not_prove_a_client() {
        let client = "spiffe://client";
        let found = without_growth(&counts(&[client]), client, false);
        assert!(matches!(found, Err(ProbeError::NoIdentity(_))));
    }

    #[test]
    fn other_identity_of_the_same_request_is_seen() {
        let grown = identities_that_grow(&metrics(3, 1), &metrics(3, 2));
        assert_eq!(grown, ["unknown"]);
    }
}
