//! The measurements: one [`TrialRecord`] and one [`ResourceSample`] per trial.

mod load;
mod usage;

use serde::{Deserialize, Serialize};

use crate::failure::{ComponentFailure, LostEvidence, TrialFailure};
use crate::plan::PlannedTrial;

pub use load::{
    ErrorCounts, ErrorKind, GeneratorAudit, GeneratorBound, GeneratorLimit, LoadInterval,
    LoadResult,
};
pub use usage::{
    Changes, ComponentRole, ComponentSeries, ComponentUsage, IdleProxies, LinkUsage, MachineUsage,
    Memory, OtherProcess, ResourceSample, Throttled, UsageSeries,
};

/// An injected delay or injected work, measured by the server's own clocks in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InjectedTime {
    /// The requested delay, in nanoseconds; 0 for work, which is requested in steps.
    pub asked_ns: u64,
    /// Requests with the delay or the work.
    pub count: u64,
    /// Mean of the measured delay or of the CPU time of the work, over these requests, in nanoseconds.
    pub mean_ns: f64,
}

/// Established connections between the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyConnections {
    /// Just before the window; `None`: there was no warm-up in which they could be counted.
    pub before: Option<u32>,
    /// Just after it.
    pub after: u32,
}

impl ProxyConnections {
    /// How many more there were after the window; `None`: not known.
    #[must_use]
    pub fn opened(self) -> Option<u32> {
        Some(self.after.saturating_sub(self.before?))
    }
}

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// The load ran. The analysis decides whether it is valid.
    Measured {
        /// The generator's figures.
        load: Box<LoadResult>,
        /// `None` where there are no proxies.
        proxy_connections: Option<ProxyConnections>,
        /// Of a variant with an injected delay or injected work.
        injected: Option<InjectedTime>,
        /// Requests, or connections over TCP, that each replica of the service received in the trial,
        /// warm-up included; empty where there is one only.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        replicas: Vec<u64>,
        /// Components that ended or were restarted; empty is good.
        component_failures: Vec<ComponentFailure>,
        /// What contradicts the evidence of the round; empty is good.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lost_evidence: Vec<LostEvidence>,
    },
    /// There are no figures.
    Failed {
        /// Why.
        failure: TrialFailure,
    },
}

/// One line of `trials.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The planned trial.
    pub trial: PlannedTrial,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The outcome.
    pub outcome: TrialOutcome,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn status_codes_survive_json_inside_a_tagged_outcome() {
        let outcome = TrialOutcome::Measured {
            load: Box::new(LoadResult {
                status: BTreeMap::from([(200, 7), (503, 1)]),
                ..LoadResult::default()
            }),
            proxy_connections: None,
            injected: None,
            replicas: Vec::new(),
            component_failures: Vec::new(),
            lost_evidence: Vec::new(),
        };
        let text = serde_json::to_string(&outcome).unwrap();
        let back: TrialOutcome = serde_json::from_str(&text).unwrap();
        assert_eq!(back, outcome);
    }
}
