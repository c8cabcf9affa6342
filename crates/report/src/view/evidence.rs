//! The evidence of each variant.

use crate::view::document::{EvidenceLine, Probe, Proof};
use crate::view::reasons::{exclusion, probe};
use crate::view::source::Source;
use meshtax_model::analysis::{Analysis, ExclusionReason, VariantAnalysis};
use meshtax_model::evidence::{Balances, Evidence, Features, Handshake, ProbeId};
use meshtax_model::experiment::{PolicyLevel, Variant};
use meshtax_model::failure::VariantFailureReason;

/// What a line of evidence lists.
const WHAT: &str = "wire capture, identities, policy probes, connections between proxies";

/// Probes that show a policy holding.
const POLICY_PROBES: [ProbeId; 5] = [
    ProbeId::ForbiddenIdentity,
    ProbeId::ForeignCa,
    ProbeId::ForbiddenMethod,
    ProbeId::ForbiddenPath,
    ProbeId::PlaintextOutsider,
];

/// Adds the number of rounds, if it is the same for all measured variants.
pub(crate) fn title(analysis: &Analysis) -> String {
    let mut measured = analysis.variants.iter().filter(|v| v.excluded.is_none());
    let in_all = measured.all(|v| v.rounds_proven == v.rounds_tried && v.rounds_tried > 0);
    if in_all && !analysis.variants.is_empty() {
        format!("Evidence in every round ({WHAT})")
    } else {
        format!("Evidence ({WHAT})")
    }
}

/// One line per variant; variants with the same result share one.
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
    let (proof, text) = match (&found.excluded, evidence) {
        (Some(reason), _) => (Proof::Failed, excluded(reason, evidence)),
        (None, None) => (Proof::Unknown, "no evidence recorded".to_owned()),
        (None, Some(e)) => match e.failure() {
            Some(failed) => (
                Proof::Failed,
                format!("{} failed: {}", probe(failed.probe), failed.seen),
            ),
            None if e.probes.is_empty() => (Proof::Unknown, "no probes ran".to_owned()),
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
            name: probe(p.probe),
            passed: Some(p.passed),
            seen: p.seen.clone(),
        })
        .chain(evidence.features.iter().flat_map(features))
        .collect()
}

/// The detected features, listed among the probes: informational, they cannot fail.
fn features(features: &Features) -> Vec<Probe> {
    let feature = |name: &str, seen: String| Probe {
        name: name.to_owned(),
        passed: None,
        seen,
    };
    let http = match features.added_headers.as_slice() {
        [] => "passed through: the application received no added headers".to_owned(),
        added => format!("parsed: the application also received {}", added.join(", ")),
    };
    let address = if features.keeps_client_address {
        "preserved: the application sees the client address"
    } else {
        "not preserved: the application sees the address of a proxy"
    };
    let mut all = vec![
        feature("feature: HTTP", http),
        feature("feature: client address", address.to_owned()),
    ];
    all.extend(features.counts_requests.map(|counts| {
        let seen = match counts {
            true => "counted by status in the metrics of the server side",
            false => "not counted: metrics of connections only",
        };
        feature("feature: HTTP metrics", seen.to_owned())
    }));
    all.extend(features.tries_again.map(|again| {
        let seen = match again {
            true => "a proxy retries a response of 503",
            false => "no retry of a response of 503: it is returned to the client",
        };
        feature("feature: retries", seen.to_owned())
    }));
    all.extend(features.balances.map(|balances| {
        let seen = match balances {
            Balances::Connections => {
                "per connection: all requests of a connection went to one replica"
            }
            Balances::Requests => {
                "per request: requests of one connection went to several replicas"
            }
        };
        feature("feature: balances", seen.to_owned())
    }));
    all
}

/// The reason, and the failing probe unless the reason is about probes.
fn excluded(reason: &ExclusionReason, evidence: Option<&Evidence>) -> String {
    let why = exclusion(reason);
    let has_probes = matches!(
        reason,
        ExclusionReason::Failed { failure: VariantFailureReason::NotProven { probes, .. }, .. }
            if !probes.is_empty()
    );
    match evidence.and_then(Evidence::failure) {
        Some(failed) if !has_probes => {
            format!("excluded: {why}; {}: {}", probe(failed.probe), failed.seen)
        }
        _ => format!("excluded: {why}"),
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
            "plaintext on the wire".to_owned()
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
    // In TLS 1.3 the cipher suite's hash does not affect the cost of the traffic.
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
    let has = |probe| evidence.probes.iter().any(|p| p.probe == probe && p.passed);
    match (has(ProbeId::ServerIdentity), has(ProbeId::ClientIdentity)) {
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
        .filter(|p| POLICY_PROBES.contains(&p.probe))
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
