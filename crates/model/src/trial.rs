//! What was measured: one [`TrialRecord`] and one [`ResourceSample`] per trial.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::experiment::VariantId;
use crate::plan::{PlannedTrial, TrialId};
use crate::{HistogramSnapshot, LatencyHistogram};

/// Failed requests by kind. A status code is not an error: see [`LoadResult::status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// No connection could be made.
    pub connect: u64,
    /// The peer closed or reset a connection with a request on it.
    pub reset: u64,
    /// No answer came in time.
    pub timeout: u64,
    /// A connection was made, and its TLS handshake failed.
    #[serde(default)]
    pub tls: u64,
    /// What came was no answer in the protocol spoken.
    pub protocol: u64,
}

impl ErrorCounts {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, count)| count).sum()
    }

    /// The kinds with their names, for output.
    #[must_use]
    pub fn by_kind(&self) -> [(&'static str, u64); 5] {
        [
            ("connect", self.connect),
            ("reset", self.reset),
            ("timeout", self.timeout),
            ("tls", self.tls),
            ("protocol", self.protocol),
        ]
    }

    /// Adds another one's counts.
    pub fn add(&mut self, other: &Self) {
        self.connect += other.connect;
        self.reset += other.reset;
        self.timeout += other.timeout;
        self.tls += other.tls;
        self.protocol += other.protocol;
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
    /// Time that the hypervisor gave to others, of all cores, from the load's begin to its end
    /// (`/proc/stat`, in steps of a clock tick), in nanoseconds.
    #[serde(default)]
    pub steal_ns: u64,
    /// `None`: fine. Otherwise why the generator, not the system under test, was the limit.
    pub generator_bound: Option<String>,
}

impl GeneratorAudit {
    /// Threads, or machines, that offered one load together: the worst of them counts.
    fn merge(&mut self, other: &Self) {
        self.cpu_ns += other.cpu_ns;
        self.busy_share = self.busy_share.max(other.busy_share);
        self.longest_loop_ns = self.longest_loop_ns.max(other.longest_loop_ns);
        self.involuntary_switches += other.involuntary_switches;
        // Threads of one machine see the same steal.
        self.steal_ns = self.steal_ns.max(other.steal_ns);
        if self.generator_bound.is_none() {
            self.generator_bound.clone_from(&other.generator_bound);
        }
    }
}

/// A part of the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadInterval {
    /// Where it begins, counted from the window's begin, in nanoseconds.
    pub start_ns: u64,
    /// How long it is, in nanoseconds. Answers that came after the window are in the last one.
    pub length_ns: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Answers of any status that came in it.
    pub answered: u64,
    /// Requests that ended in it without an answer, and connections that could not be made.
    pub errors: u64,
    /// Response latency of what was answered in it.
    pub response: HistogramSnapshot,
    /// Send lag of the same requests.
    pub send_lag: HistogramSnapshot,
}

impl LoadInterval {
    /// Adds what other threads did in the same interval.
    pub fn merge(&mut self, other: &Self) {
        self.length_ns = self.length_ns.max(other.length_ns);
        self.sent += other.sent;
        self.answered += other.answered;
        self.errors += other.errors;
        self.response.merge(&other.response);
        self.send_lag.merge(&other.send_lag);
    }
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
    /// Errors of requests offered in the window, and of attempts to connect made in it.
    pub errors: ErrorCounts,
    /// The errors that belong to no request: a connection was to be kept open and could not be
    /// made. The other errors, the answers and `unanswered` are `offered`.
    #[serde(default)]
    pub failed_attempts: u64,
    /// Requests offered in the window that were still without an answer when waiting ended.
    pub unanswered: u64,
    /// Answers to requests offered in the window, by HTTP status.
    #[serde(deserialize_with = "status_counts")]
    pub status: BTreeMap<u16, u64>,
    /// gRPC status codes of the same answers; empty where gRPC was not spoken.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "status_counts"
    )]
    pub grpc_status: BTreeMap<u16, u64>,
    /// Requests of the window that found no connection free when they were due.
    #[serde(default)]
    pub queued: u64,
    /// Bytes received in the window, headers included; over TLS, encrypted.
    pub bytes_received: u64,
    /// Bytes sent in the window, counted likewise.
    #[serde(default)]
    pub bytes_sent: u64,
    /// Connections opened, before and in the window.
    pub connections_opened: u64,
    /// From the intended send time to the last byte, of requests offered in the window.
    pub response: LatencyHistogram,
    /// From the actual send time to the last byte, of the same requests.
    pub service: LatencyHistogram,
    /// Actual minus intended send time, of the same requests.
    pub send_lag: LatencyHistogram,
    /// The part of the send lag from when a connection was free: the generator's own.
    #[serde(default)]
    pub generator_lag: LatencyHistogram,
    /// From the actual send time to the first byte of the answer, of the same requests.
    #[serde(default)]
    pub first_byte: LatencyHistogram,
    /// TCP handshakes, of connections opened before the load or in its window.
    #[serde(default)]
    pub connect: LatencyHistogram,
    /// TLS handshakes of the same connections, from when TCP's was over.
    #[serde(default)]
    pub tls_handshake: LatencyHistogram,
    /// The window in parts, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<LoadInterval>,
    /// The congestion control of the generator's sockets (`bbr`, `cubic`).
    pub congestion_control: String,
    /// By what the generator sent and received: `io_uring` or `epoll`; empty in older results.
    #[serde(default)]
    pub socket_io: String,
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

    /// Adds what another thread, or machine, did as its part of the same load. Percentiles of
    /// the whole come from the merged histograms, never from averages.
    pub fn merge(&mut self, other: &Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        self.offered += other.offered;
        self.completed += other.completed;
        self.succeeded += other.succeeded;
        self.errors.add(&other.errors);
        self.failed_attempts += other.failed_attempts;
        self.unanswered += other.unanswered;
        add_counts(&mut self.status, &other.status);
        add_counts(&mut self.grpc_status, &other.grpc_status);
        self.queued += other.queued;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.connections_opened += other.connections_opened;
        for (mine, theirs) in [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.send_lag, &other.send_lag),
            (&mut self.generator_lag, &other.generator_lag),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.connect, &other.connect),
            (&mut self.tls_handshake, &other.tls_handshake),
        ] {
            mine.merge(theirs);
        }
        self.merge_intervals(&other.intervals);
        for (mine, theirs) in [
            (&mut self.congestion_control, &other.congestion_control),
            (&mut self.socket_io, &other.socket_io),
        ] {
            if mine.is_empty() {
                mine.clone_from(theirs);
            }
        }
        self.audit.merge(&other.audit);
    }

    fn merge_intervals(&mut self, others: &[LoadInterval]) {
        for other in others {
            let at = self
                .intervals
                .binary_search_by_key(&other.start_ns, |i| i.start_ns);
            match at {
                Ok(at) => self.intervals[at].merge(other),
                Err(at) => self.intervals.insert(at, other.clone()),
            }
        }
    }
}

fn add_counts(mine: &mut BTreeMap<u16, u64>, theirs: &BTreeMap<u16, u64>) {
    for (status, count) in theirs {
        *mine.entry(*status).or_insert(0) += count;
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
    /// A proxy of the whole service's, between the two.
    Waypoint,
    /// Where clients outside the mesh come in.
    Gateway,
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
    /// On which of the servers' nodes it stands, counted from 0; 0 as well for what stands elsewhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub server_node: u32,
    /// CPU in the window, user and system together, in nanoseconds.
    pub cpu_ns: u64,
    /// The kernel's part of it, in nanoseconds: *sampled* by the clock tick on many kernels
    /// ([`crate::environment::Host::cpu_split`]); `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ns: Option<u64>,
    /// Times that its threads left a core, of their own will or not; `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Memory just after the load, its connections still open; `None` where the kernel would not say.
    pub memory: Option<Memory>,
}

impl ComponentUsage {
    /// One that used nothing, and of which nothing else is known; fields are public.
    #[must_use]
    pub fn new(name: impl Into<String>, role: ComponentRole) -> Self {
        Self {
            name: name.into(),
            role,
            server_node: 0,
            cpu_ns: 0,
            system_ns: None,
            context_switches: None,
            memory: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
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
    /// The most that was ever resident since the process began, file pages included.
    #[serde(default)]
    pub peak_bytes: u64,
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
    /// Interrupts, hard and soft, of all cores: *sampled* by the clock tick on many kernels. On those
    /// they are in the account of whom they interrupted as well.
    #[serde(default)]
    pub interrupts_ns: u64,
    /// Time that the kernel's own threads used (soft interrupts put off, encryption between nodes,
    /// timers), warm-up and drain included; `None` where they cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_threads_ns: Option<u64>,
    /// Time spent in eBPF programs, warm-up and drain included; `None` where the kernel does not tell
    /// us. It is in the account of whoever ran them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpf_ns: Option<u64>,
    /// Time for which a limit on CPU kept our processes waiting (cgroup), warm-up and drain included;
    /// `None`: no such limit can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// Time in which something on the machine waited for memory (`/proc/pressure/memory`); `None`
    /// where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure_ns: Option<u64>,
    /// Frequency of the core of the system under test just after the window, in kHz; `None` where it
    /// does not show, as in most virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_khz: Option<u64>,
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

/// A process that has no part in the run, and used the cores that the run measures on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherProcess {
    /// As the kernel calls it, at most 15 bytes.
    pub name: String,
    /// CPU from just before the trial to just after it, in nanoseconds.
    pub cpu_ns: u64,
}

/// What passed a pod's link in the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUsage {
    /// Whose: all pods of this side together.
    pub role: ComponentRole,
    /// Bytes that came in.
    pub received_bytes: u64,
    /// Bytes that went out.
    pub sent_bytes: u64,
}

/// A component's CPU and memory over the window, in equal steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentSeries {
    /// What it is to the traffic; all processes of a role are one.
    pub role: ComponentRole,
    /// CPU in each step, in nanoseconds.
    pub cpu_ns: Vec<u64>,
    /// Resident memory of its own (not of files) at the end of each step, in bytes; empty where it was
    /// not read.
    pub anonymous_bytes: Vec<u64>,
}

/// How CPU and memory went over the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The ends of the steps, counted from the window's begin, in nanoseconds.
    pub ends_ns: Vec<u64>,
    /// By role.
    pub components: Vec<ComponentSeries>,
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
    /// Processes that have no part in the run and used its cores, the busiest first; `None` where they
    /// cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<Vec<OtherProcess>>,
    /// The time from the look before the trial to the one after it, in nanoseconds: what others used,
    /// they used in it.
    #[serde(default)]
    pub looked_ns: u64,
    /// What passed the pods' links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkUsage>,
    /// How it went over the window.
    #[serde(default)]
    pub series: Series,
    /// What the proxies of each variant used that was up and not measured: part of the component
    /// [`ComponentRole::Idle`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_proxies: Vec<IdleProxies>,
    /// Changes of endpoints that all proxies said to hold, from the load's begin to its end; `None`: none were
    /// asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

/// What the proxies of a variant used in a window in which another one was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleProxies {
    /// Whose.
    pub variant: VariantId,
    /// CPU of all its proxies in the window, in nanoseconds.
    pub cpu_ns: u64,
}

/// Changes of endpoints while a trial ran, warm-up and drain included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// For how long there were any, in nanoseconds.
    pub during_ns: u64,
    /// Said to a proxy: the fewest, where there are several.
    pub said: u64,
    /// Of them, those that the proxy said to hold: the fewest, where there are several.
    pub held: u64,
}

impl ResourceSample {
    /// One in which nothing was seen; fields are public.
    #[must_use]
    pub fn new(trial: TrialId) -> Self {
        Self {
            trial,
            components: Vec::new(),
            machine: MachineUsage::default(),
            speed_probe_ns: None,
            others: None,
            looked_ns: 0,
            links: Vec::new(),
            series: Series::default(),
            idle_proxies: Vec::new(),
            changes: None,
        }
    }
}

/// A known delay, or known work, as the server's own clocks saw it in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InjectedTime {
    /// What was asked for, in nanoseconds; 0 for work, which is asked for in steps.
    pub asked_ns: u64,
    /// Requests that had it.
    pub count: u64,
    /// Mean of what was spun (a delay) or of the CPU that was used (work), over these, in nanoseconds.
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
        /// Of a variant with an injected delay or injected work.
        injected: Option<InjectedTime>,
        /// Requests, or connections over TCP, that each replica of the service got in the trial,
        /// warm-up included; empty where there is one only.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        replicas: Vec<u64>,
        /// Components that died or were restarted, with the cause; empty is good.
        component_failures: Vec<String>,
        /// What was no longer as the probes had seen it when the trial was over; empty is good.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lost_evidence: Vec<String>,
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
            replicas: Vec::new(),
            component_failures: Vec::new(),
            lost_evidence: Vec::new(),
        };
        let text = serde_json::to_string(&outcome).unwrap();
        let back: TrialOutcome = serde_json::from_str(&text).unwrap();
        assert_eq!(back, outcome);
    }
}
