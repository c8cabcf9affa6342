//! Whether each variant did what its name says.

use meshtax_model::analysis::{Analysis, VariantAnalysis};
use meshtax_model::evidence::{Balances, Evidence, Features, Handshake, probe};
use meshtax_model::experiment::{PolicyLevel, Variant};

use super::{EvidenceLine, Probe, Proof, Source};

/// What a line of evidence lists.
const WHAT: &str = "on the wire, identities, policy probes, connections between proxies";

/// Probes that show a policy holding.
const POLICY_PROBES: [&str; 5] = [
    probe::FORBIDDEN_IDENTITY,
    probe::FOREIGN_CA,
    probe::FORBIDDEN_METHOD,
    probe::FORBIDDEN_PATH,
    probe::PLAINTEXT_OUTSIDER,
];

/// Says in how many rounds, when that is the same for all that were measured.
pub(crate) fn title(analysis: &Analysis) -> String {
    let mut measured = analysis.variants.iter().filter(|v| v.left_out.is_none());
    let in_all = measured.all(|v| v.rounds_proven == v.rounds_tried && v.rounds_tried > 0);
    if in_all && !analysis.variants.is_empty() {
        format!("Evidence in every round ({WHAT})")
    } else {
        format!("Evidence ({WHAT})")
    }
}

/// One line per variant; variants of which the same is to be said share one.
pub(crate) fn lines(source: Source<'_>) -> Vec<EvidenceLine> {
    let mut lines: Vec<EvidenceLine> = Vec::new();
    for (asked, found) in source.variants() {
        let line = line(asked, found);
        let same = lines
            .iter_mut()
            .find(|l| l.text == line.text && l.proof == line.proof && asked.level.is_none());
        match same {
            Some(same) => same.variants.extend(line.variants),
            None => lines.push(line),
        }
    }
    lines
}

fn line(asked: &Variant, found: &VariantAnalysis) -> EvidenceLine {
    let evidence = found.evidence.as_ref();
    let (proof, text) = match (&found.left_out, evidence) {
        (Some(reason), _) => (Proof::Failed, left_out(reason, evidence)),
        (None, None) => (Proof::Unknown, "no evidence recorded".to_owned()),
        (None, Some(e)) => match e.failure() {
            Some(failed) => (
                Proof::Failed,
                format!("{} failed: {}", failed.probe, failed.seen),
            ),
            None if e.probes.is_empty() => (Proof::Unknown, "no probe ran".to_owned()),
            None => (Proof::Proven, proven(asked, found, e)),
        },
    };
    let text = match rounds(found) {
        Some(rounds) => format!("{text}; {rounds}"),
        None => text,
    };
    EvidenceLine {
        variants: vec![asked.id.0.clone()],
        proof,
        text,
        probes: evidence.map(probes).unwrap_or_default(),
    }
}

fn probes(evidence: &Evidence) -> Vec<Probe> {
    let probes = evidence.probes.iter();
    probes
        .map(|p| Probe {
            name: p.probe.clone(),
            passed: Some(p.passed),
            seen: p.seen.clone(),
        })
        .chain(evidence.features.iter().flat_map(features))
        .collect()
}

/// What is had besides, among the probes: it is told, and cannot fail.
fn features(features: &Features) -> Vec<Probe> {
    let told = |name: &str, seen: String| Probe {
        name: name.to_owned(),
        passed: None,
        seen,
    };
    let http = match features.added_headers.as_slice() {
        [] => "left as it was: the application received no header that nobody had sent".to_owned(),
        added => format!("parsed: the application also received {}", added.join(", ")),
    };
    let address = if features.keeps_client_address {
        "kept: the application sees its client's own"
    } else {
        "not kept: the application sees a proxy's"
    };
    let mut all = vec![
        told("feature: HTTP", http),
        told("feature: client's address", address.to_owned()),
    ];
    all.extend(features.counts_requests.map(|counts| {
        let seen = match counts {
            true => "counted by status, in the metrics of the server's side",
            false => "not counted: there are metrics of connections only",
        };
        told("feature: HTTP metrics", seen.to_owned())
    }));
    all.extend(features.tries_again.map(|again| {
        let seen = match again {
            true => "an answer of 503 is tried again by a proxy",
            false => "none of an answer of 503: it goes back to the client",
        };
        told("feature: retries", seen.to_owned())
    }));
    all.extend(features.balances.map(|balances| {
        let seen = match balances {
            Balances::Connections => "connections: all requests of one went to one replica",
            Balances::Requests => "requests: those of one connection went to several replicas",
        };
        told("feature: balances", seen.to_owned())
    }));
    all
}

/// The reason, and the failing probe unless the reason quotes it already.
fn left_out(reason: &str, evidence: Option<&Evidence>) -> String {
    match evidence.and_then(Evidence::failure) {
        Some(failed) if !reason.contains(&failed.seen) => {
            format!("left out: {reason}; {}: {}", failed.probe, failed.seen)
        }
        _ => format!("left out: {reason}"),
    }
}

fn rounds(found: &VariantAnalysis) -> Option<String> {
    let (proven, tried) = (found.rounds_proven, found.rounds_tried);
    (proven != tried).then(|| format!("proven in {proven} of {tried} rounds"))
}

fn proven(asked: &Variant, found: &VariantAnalysis, evidence: &Evidence) -> String {
    let mut parts = vec![on_the_wire(asked, evidence)];
    parts.extend(identities(evidence));
    parts.extend(policy(evidence));
    parts.extend(connections(found));
    parts.join(", ")
}

fn on_the_wire(asked: &Variant, evidence: &Evidence) -> String {
    let wire = &evidence.wire;
    let readable = wire.canary_to_server || wire.canary_to_client;
    if matches!(asked.level, None | Some(PolicyLevel::Plaintext)) {
        return if readable {
            "plaintext, read on the wire".to_owned()
        } else {
            "plaintext".to_owned()
        };
    }
    let handshakes: Vec<String> = wire.handshakes.iter().map(handshake).collect();
    match (readable, handshakes.is_empty()) {
        (true, _) => "readable on the wire".to_owned(),
        (false, true) => "no handshake recorded".to_owned(),
        (false, false) => handshakes.join(" and "),
    }
}

/// `TLS 1.3 AES-128-GCM X25519`.
fn handshake(handshake: &Handshake) -> String {
    let cipher = handshake.cipher.as_str();
    let cipher = cipher.strip_prefix("TLS_").unwrap_or(cipher);
    // In TLS 1.3 the hash says nothing about what the traffic costs.
    let cipher = ["_SHA256", "_SHA384"]
        .iter()
        .find_map(|hash| cipher.strip_suffix(hash))
        .unwrap_or(cipher)
        .replace('_', "-");
    format!(
        "{} {cipher} {}",
        handshake.version, handshake.key_exchange_group
    )
}

fn identities(evidence: &Evidence) -> Option<String> {
    let has = |name: &str| evidence.probes.iter().any(|p| p.probe == name && p.passed);
    match (has(probe::SERVER_IDENTITY), has(probe::CLIENT_IDENTITY)) {
        (true, true) => Some("identities ✓".to_owned()),
        (true, false) => Some("server identity ✓".to_owned()),
        (false, true) => Some("client identity ✓".to_owned()),
        (false, false) => None,
    }
}

fn policy(evidence: &Evidence) -> Option<String> {
    let ran: Vec<bool> = evidence
        .probes
        .iter()
        .filter(|p| POLICY_PROBES.contains(&p.probe.as_str()))
        .map(|p| p.passed)
        .collect();
    let passed = ran.iter().filter(|p| **p).count();
    (!ran.is_empty()).then(|| format!("policy {passed} of {}", ran.len()))
}

fn connections(found: &VariantAnalysis) -> Option<String> {
    let seen = || found.points.iter().filter_map(|p| p.proxy_connections);
    let (low, high) = (seen().min()?, seen().max()?);
    Some(match (low, high) {
        (1, 1) => "1 connection".to_owned(),
        (low, high) if low == high => format!("{low} connections"),
        (low, high) => format!("{low}-{high} connections"),
    })
}
