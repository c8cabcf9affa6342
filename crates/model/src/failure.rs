//! What failed while an engine ran: processes, variants, trials and the run itself.
//!
//! Each has a stable id in JSON (`"id": "exited"`). Text that a program wrote is kept as `detail`; nothing decides by it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, FailedProbe};
use crate::experiment::VariantId;
use crate::trial::ComponentRole;

/// How a process stopped being what was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ComponentEnding {
    /// It exited.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended it.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// It exceeded its memory limit, and the kernel killed it.
    OutOfMemory,
    /// It ended, and the system does not report how.
    Ended,
    /// Its listening sockets are new: it was restarted.
    Restarted,
    /// The system does not report whether it runs.
    Unknown {
        /// The system's error.
        detail: String,
    },
}

/// A process that ended or was restarted while it was needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentFailure {
    /// Its name, as in [`crate::trial::ComponentUsage::name`].
    pub component: String,
    /// Its role in the traffic; `None`: it has none, or the system does not report which process it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<ComponentRole>,
    /// How it ended.
    pub ending: ComponentEnding,
    /// The last lines that it wrote to stderr.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_output: Vec<String>,
}

impl fmt::Display for ComponentFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.component)?;
        match &self.ending {
            ComponentEnding::Exited { code } => write!(f, " exited with {code}")?,
            ComponentEnding::Killed { signal } => write!(f, " was killed by signal {signal}")?,
            ComponentEnding::OutOfMemory => {
                f.write_str(" exceeded its memory limit, and was killed")?;
            }
            ComponentEnding::Ended => f.write_str(" ended")?,
            ComponentEnding::Restarted => f.write_str(" was restarted")?,
            ComponentEnding::Unknown { detail } => write!(f, ": its state is unknown: {detail}")?,
        }
        match self.last_output.as_slice() {
            [] => {}
            lines => write!(f, "; last output: {}", lines.join(" | "))?,
        }
        match fix(&self.last_output) {
            Some(fix) => write!(f, "; fix: {fix}"),
            None => Ok(()),
        }
    }
}

/// What a user can do about what a program wrote last, where that is known.
fn fix(last_output: &[String]) -> Option<&'static str> {
    // Envoy names an extension that its configuration has and its build does not.
    let lacks_extension = "Didn't find a registered implementation for";
    let is_it = |line: &String| line.contains(lacks_extension);
    last_output.iter().any(is_it).then_some(
        "run a build of Envoy that has it; Istio's filters are in Istio's own (`meshtax dataplanes get istio-proxy`, or \
         --istio-proxy PATH)",
    )
}

/// What a proxy counts of the traffic that it forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficUnit {
    /// HTTP responses with a status of 200 to 299.
    Responses,
    /// Bytes of responses.
    Bytes,
}

/// A fact from the evidence that a trial's own readings contradict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum LostEvidence {
    /// Proxies used less CPU than forwarding the requests takes.
    IdleProxy {
        /// Which proxies.
        role: ComponentRole,
    },
    /// There is no connection between the proxies.
    NoProxyConnection,
    /// With the load's connections open, the first proxy held fewer of them: others bypassed it.
    BypassedConnections {
        /// Connections that it held.
        held: u32,
        /// Connections that the load had open.
        open: u32,
        /// The pod of the client whose connections they are; `None`: there is one client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<String>,
    },
    /// The connections that the first proxy holds could not be counted.
    UncountedConnections,
    /// The proxies of a workload counted less than the load's requests: others bypassed them.
    BypassedRequests {
        /// The proxies' side of the traffic.
        role: ComponentRole,
        /// The workload: a service, or where requests enter the mesh.
        workload: String,
        /// What is counted.
        unit: TrafficUnit,
        /// What the proxies counted.
        counted: u64,
        /// What they should have counted at least.
        expected: u64,
    },
    /// The counters of the proxies or of the applications could not be read.
    UnreadableCounters {
        /// The cause.
        detail: String,
    },
    /// Fewer endpoints were replaced than the variant is configured for.
    FewEndpointChanges {
        /// Changes expected from the configured rate.
        expected: f64,
        /// Changes that were sent to a proxy.
        sent: u64,
        /// Changes that the proxy acknowledged.
        acknowledged: u64,
    },
}

/// Why a variant cannot be measured in a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum VariantFailureReason {
    /// The engine reported nothing about it.
    NotStarted,
    /// It could not be started.
    StartFailed {
        /// The cause.
        detail: String,
    },
    /// It was started, and is not what its policy level promises.
    NotProven {
        /// Processes that had ended by then.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<ComponentFailure>,
        /// Sides of the path that should have a proxy and have none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing_proxies: Vec<ComponentRole>,
        /// Probes that failed, the most telling first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        probes: Vec<FailedProbe>,
    },
    /// There is no evidence, or no probe ran.
    NoEvidence,
    /// Probes that passed at the round's start failed at its end.
    LostByRoundEnd {
        /// Those that failed.
        probes: Vec<FailedProbe>,
    },
}

impl VariantFailureReason {
    /// Why evidence proves nothing; `None`: it does.
    #[must_use]
    pub fn of_evidence(evidence: Option<&Evidence>) -> Option<Self> {
        match evidence {
            Some(evidence) if evidence.passed() => None,
            Some(evidence) if !evidence.probes.is_empty() => Some(Self::NotProven {
                ended: Vec::new(),
                missing_proxies: Vec::new(),
                probes: evidence.failed_probes(),
            }),
            _ => Some(Self::NoEvidence),
        }
    }
}

impl fmt::Display for VariantFailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the engine did not start it"),
            Self::StartFailed { detail } => f.write_str(detail),
            Self::NoEvidence => f.write_str("no probe ran"),
            Self::NotProven {
                ended,
                missing_proxies,
                probes,
            } => {
                let ended = ended.iter().map(ToString::to_string);
                let missing = missing_proxy(missing_proxies).map(str::to_owned);
                let probes = probes.iter().map(ToString::to_string);
                let all: Vec<String> = ended.chain(missing).chain(probes).collect();
                f.write_str(&all.join("; "))
            }
            Self::LostByRoundEnd { probes } => {
                let probes: Vec<String> = probes.iter().map(ToString::to_string).collect();
                write!(f, "failed at the round's end: {}", probes.join("; "))
            }
        }
    }
}

fn missing_proxy(roles: &[ComponentRole]) -> Option<&'static str> {
    let has = |role| roles.contains(&role);
    let (client, server) = (
        has(ComponentRole::ClientProxy),
        has(ComponentRole::ServerProxy),
    );
    match (client, server) {
        (true, true) => Some("no proxy was started"),
        (true, false) => Some("no proxy was started on the client's side"),
        (false, true) => Some("no proxy was started on the server's side"),
        (false, false) => None,
    }
}

/// A variant that could not be measured in a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariantFailure {
    /// Which.
    pub variant: VariantId,
    /// In which round (counts from 1).
    pub round: u32,
    /// Why.
    pub reason: VariantFailureReason,
}

/// Why a trial has no figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum TrialFailure {
    /// Its variant was not running.
    VariantNotRunning,
    /// Processes of its variant had ended.
    ComponentsEnded {
        /// Which, and how.
        components: Vec<ComponentFailure>,
    },
    /// The load's connections could not be opened: what accepts them did not.
    NotConnected {
        /// The cause.
        detail: String,
    },
    /// The load could not be offered, or its result could not be read.
    LoadFailed {
        /// The cause.
        detail: String,
    },
    /// The load generators of several clients did not start at the same instant.
    NotTogether {
        /// How far apart they started.
        detail: String,
    },
    /// Its figures cannot be written as JSON, which is a bug.
    NotStorable {
        /// The cause.
        detail: String,
    },
}

impl fmt::Display for TrialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VariantNotRunning => f.write_str("its variant is not running"),
            Self::ComponentsEnded { components } => {
                let all: Vec<String> = components.iter().map(ToString::to_string).collect();
                f.write_str(&all.join("; "))
            }
            Self::NotConnected { detail }
            | Self::LoadFailed { detail }
            | Self::NotTogether { detail } => f.write_str(detail),
            Self::NotStorable { detail } => {
                write!(f, "its figures cannot be stored, which is a bug: {detail}")
            }
        }
    }
}

/// What kind of failure ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunFailure {
    /// The machine or cluster lacks something that the engine needs.
    EngineMissing,
    /// The environment broke while it was in use.
    EngineLost,
    /// A result could not be stored.
    NotStored,
    /// The size of an injected delay, or the application's work, could not be determined.
    Pilot,
    /// A baseline or every candidate is missing.
    NothingToCompare,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_that_a_build_lacks_is_named_with_the_fix() {
        let failure = |line: &str| ComponentFailure {
            component: "istio-sidecar-mtls/client-proxy".into(),
            role: Some(ComponentRole::ServerProxy),
            ending: ComponentEnding::Exited { code: 1 },
            last_output: vec![line.into()],
        };
        let lacks = "Didn't find a registered implementation for 'istio.stats' with type URL: 'stats.PluginConfig'";
        let text = failure(lacks).to_string();
        assert!(text.contains("'istio.stats'"), "{text}");
        assert!(
            text.contains("fix: ") && text.contains("--istio-proxy PATH"),
            "{text}"
        );
        assert!(!failure("another error").to_string().contains("fix: "));
    }
}
