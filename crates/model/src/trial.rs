//! What was measured: one [`TrialRecord`] and one [`ResourceSample`] per trial.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::LatencyHistogram;
use crate::plan::{PlannedTrial, TrialId};

/// Failed requests by kind. A status code is not an error: see [`LoadResult::status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// No connection could be made.
    pub connect: u64,
    /// The peer closed or reset a connection with a request on it.
    pub reset: u64,
    /// No answer came in time.
    pub timeout: u64,
    /// The answer was not HTTP.
    pub protocol: u64,
}

impl ErrorCounts {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.connect + self.reset + self.timeout + self.protocol
    }

    /// The kinds with their names, for output.
    #[must_use]
    pub fn by_kind(&self) -> [(&'static str, u64); 4] {
        [
            ("connect", self.connect),
            ("reset", self.reset),
            ("timeout", self.timeout),
            ("protocol", self.protocol),
        ]
    }
}

/// What the generator says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorAudit {
    /// CPU that the generator's process used in the window, spinning included, in nanoseconds.
    pub cpu_ns: u64,
    /// The part of the window in which it neither slept nor spun for the next send (0 to 1).
    pub busy_share: f64,
    /// The longest time between two looks at its sockets while it had work, in nanoseconds.
    pub longest_loop_ns: u64,
    /// Times that the kernel took the core away from it.
    pub involuntary_switches: u64,
    /// `None`: fine. Otherwise why the generator, not the system under test, was the limit.
    pub generator_bound: Option<String>,
}

/// The load generator's figures for the measured window of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// The window's length in nanoseconds.
    pub window_ns: u64,
    /// Requests whose intended send time lay in the window. In a closed loop: sent in it.
    pub offered: u64,
    /// Answers of any status whose last byte came in the window.
    pub completed: u64,
    /// Answers with status 200-399 whose last byte came in the window: goodput.
    pub succeeded: u64,
    /// Errors of requests offered in the window.
    pub errors: ErrorCounts,
    /// Requests offered in the window that were still without an answer when waiting ended.
    pub unanswered: u64,
    /// Answers to requests offered in the window, by HTTP status.
    #[serde(deserialize_with = "status_counts")]
    pub status: BTreeMap<u16, u64>,
    /// Bytes received in the window, headers included.
    pub bytes_received: u64,
    /// Connections opened, before and in the window.
    pub connections_opened: u64,
    /// From the intended send time to the last byte, of requests offered in the window.
    pub response: LatencyHistogram,
    /// From the actual send time to the last byte, of the same requests.
    pub service: LatencyHistogram,
    /// Actual minus intended send time, of the same requests.
    pub send_lag: LatencyHistogram,
    /// The congestion control of the generator's sockets (`bbr`, `cubic`).
    pub congestion_control: String,
    /// What the generator says of itself.
    pub audit: GeneratorAudit,
}

impl LoadResult {
    /// Completed requests per second.
    #[must_use]
    pub fn achieved_per_s(&self) -> f64 {
        per_second(self.completed, self.window_ns)
    }

    /// Successful requests per second.
    #[must_use]
    pub fn goodput_per_s(&self) -> f64 {
        per_second(self.succeeded, self.window_ns)
    }
}

/// JSON's keys are text. Inside [`TrialOutcome`], whose tag makes serde buffer the content,
/// they are not turned into numbers by themselves.
fn status_counts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u16, u64>, D::Error> {
    BTreeMap::<String, u64>::deserialize(deserializer)?
        .into_iter()
        .map(|(status, count)| match status.parse() {
            Ok(status) => Ok((status, count)),
            Err(_) => Err(de::Error::custom(format!(
                "`{status}` is not an HTTP status"
            ))),
        })
        .collect()
}

fn per_second(count: u64, window_ns: u64) -> f64 {
    if window_ns == 0 {
        return 0.0;
    }
    count as f64 * 1e9 / window_ns as f64
}

/// What a component is to the traffic under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentRole {
    /// The load generator.
    Generator,
    /// The test application.
    App,
    /// The proxy on the client's side.
    ClientProxy,
    /// The proxy on the server's side.
    ServerProxy,
    /// A process of a variant that is up and not measured now.
    Idle,
    /// meshtax itself: the lab's init and its observers.
    Harness,
}

/// One process's part in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentUsage {
    /// `envoy-sidecar-l7/server-proxy`; idle processes of all variants are one, `idle`.
    pub name: String,
    /// What it is to the traffic.
    pub role: ComponentRole,
    /// CPU in the window, user and system together, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory just after the load, its connections still open; `None` where the kernel would not say.
    pub memory: Option<Memory>,
}

/// A process's memory, from `/proc/PID/smaps_rollup`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident anonymous pages: what it allocated.
    pub anonymous_bytes: u64,
    /// Resident pages of files: mostly its binary, shared between copies on one node.
    pub file_bytes: u64,
    /// Proportional set size: shared pages divided by the number of sharers. Secondary,
    /// since on one machine "nodes" share a page cache that in life they do not share.
    pub pss_bytes: u64,
}

/// The whole machine in a trial's window, from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineUsage {
    /// Time between the two readings, in nanoseconds.
    pub wall_ns: u64,
    /// Cores online.
    pub cores: u32,
    /// Idle time of all cores.
    pub idle_ns: u64,
    /// Idle time with I/O under way.
    pub iowait_ns: u64,
    /// Time that the hypervisor gave to others.
    pub steal_ns: u64,
    /// The kernel's step for each of these three: one tick of `/proc/stat`, whose line of all cores
    /// is rounded down once.
    pub resolution_ns: u64,
}

impl MachineUsage {
    /// Busy time: cores × wall − idle − iowait − steal, in nanoseconds. The user, system and
    /// softirq columns are sampled by tick on many kernels and are not used.
    ///
    /// Signed: on an idle machine the kernel's step can exceed what was busy.
    #[must_use]
    pub fn busy_ns(&self) -> i64 {
        let total = self.wall_ns.saturating_mul(u64::from(self.cores));
        total as i64 - self.idle_ns as i64 - self.iowait_ns as i64 - self.steal_ns as i64
    }
}

/// One line of `samples.jsonl`: what a trial cost the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceSample {
    /// Of which trial.
    pub trial: TrialId,
    /// Every component, idle ones and meshtax itself included.
    pub components: Vec<ComponentUsage>,
    /// The whole machine.
    pub machine: MachineUsage,
    /// Fixed work of a few milliseconds, timed just before and just after the trial on the
    /// core of the system under test, in nanoseconds: how fast the machine was.
    pub speed_probe_ns: Option<[u64; 2]>,
}

/// A known delay as the server's own clock saw it in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InjectedDelay {
    /// What was asked for, in nanoseconds.
    pub asked_ns: u64,
    /// Requests that were delayed.
    pub count: u64,
    /// Mean of what was spun, in nanoseconds.
    pub mean_ns: f64,
}

/// What a trial came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrialOutcome {
    /// The load ran. Whether it is valid is for the analysis to say.
    Measured {
        /// The generator's figures.
        load: Box<LoadResult>,
        /// Established connections between the two proxies just after the window; `None`
        /// where there are no proxies.
        proxy_connections: Option<u32>,
        /// Of a variant with an injected delay.
        injected: Option<InjectedDelay>,
        /// Components that died or were restarted, with the cause; empty is good.
        component_failures: Vec<String>,
    },
    /// There is no figure.
    Failed {
        /// What failed, where.
        reason: String,
    },
}

/// One line of `trials.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// What was to be measured.
    pub trial: PlannedTrial,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// What came of it.
    pub outcome: TrialOutcome,
}

#[cfg(test)]
mod tests {
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
            component_failures: Vec::new(),
        };
        let text = serde_json::to_string(&outcome).unwrap();
        let back: TrialOutcome = serde_json::from_str(&text).unwrap();
        assert_eq!(back, outcome);
    }
}
