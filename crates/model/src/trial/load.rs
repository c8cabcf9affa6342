//! The load generator's measurements.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{HistogramSnapshot, LatencyHistogram};

/// Failed requests by kind. A status code is not an error: see [`LoadResult::status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// No connection could be made.
    pub connect: u64,
    /// The peer closed or reset a connection during a request.
    pub reset: u64,
    /// No response in time.
    pub timeout: u64,
    /// A connection was made, and its TLS handshake failed.
    #[serde(default)]
    pub tls: u64,
    /// The response was invalid in the protocol.
    pub protocol: u64,
}

/// A kind of error of a request or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A connection could not be opened.
    Connect,
    /// A connection was closed before the response.
    Reset,
    /// No response in time.
    Timeout,
    /// The TLS handshake failed.
    Tls,
    /// The response was invalid.
    Protocol,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::Protocol => "protocol",
        })
    }
}

impl ErrorCounts {
    /// All kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_kind().iter().map(|(_, count)| count).sum()
    }

    /// The count of each kind.
    #[must_use]
    pub fn by_kind(&self) -> [(ErrorKind, u64); 5] {
        [
            (ErrorKind::Connect, self.connect),
            (ErrorKind::Reset, self.reset),
            (ErrorKind::Timeout, self.timeout),
            (ErrorKind::Tls, self.tls),
            (ErrorKind::Protocol, self.protocol),
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

/// The generator's self-monitoring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorAudit {
    /// CPU that the generator's process used in the window, spinning included, in nanoseconds.
    pub cpu_ns: u64,
    /// The part of the window in which it neither slept nor spun for the next send (0 to 1).
    pub busy_share: f64,
    /// The longest time between two polls of its sockets while it had work, in nanoseconds.
    pub longest_loop_ns: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Steal time of the hypervisor, on all cores, from the start of the load to its end
    /// (`/proc/stat`, in steps of a clock tick), in nanoseconds.
    #[serde(default)]
    pub steal_ns: u64,
    /// `None`: fine. Otherwise why the generator, not the system under test, was the limit.
    pub generator_bound: Option<GeneratorBound>,
}

/// The generator, not the system under test, was the limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeneratorBound {
    /// The worker concerned; `None`: there is one generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Why.
    pub limit: GeneratorLimit,
}

/// The limiting factor of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum GeneratorLimit {
    /// It worked for too large a part of the window.
    Busy {
        /// The part of the window in which it neither slept nor spun, 0 to 1.
        busy_share: f64,
        /// The largest part that is accepted.
        max_share: f64,
        /// Whether the loop is closed: then only the throughput is in doubt.
        closed_loop: bool,
    },
    /// It sent requests late although a connection was free.
    LateSends {
        /// The quantile of the send lag that is above its limit.
        quantile: f64,
        /// That quantile, in nanoseconds.
        lag_ns: u64,
        /// Its limit, in nanoseconds.
        max_lag_ns: u64,
    },
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
    /// Its start, relative to the start of the window, in nanoseconds.
    pub start_ns: u64,
    /// Its length, in nanoseconds. Responses after the window are in the last one.
    pub length_ns: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Responses of any status that arrived in it.
    pub responses: u64,
    /// Requests that ended in it without a response, and connection attempts that failed.
    pub errors: u64,
    /// Response latency of the responses in it.
    pub response: HistogramSnapshot,
    /// Send lag of the same requests.
    pub send_lag: HistogramSnapshot,
}

impl LoadInterval {
    /// Adds the figures of other threads in the same interval.
    pub fn merge(&mut self, other: &Self) {
        self.length_ns = self.length_ns.max(other.length_ns);
        self.sent += other.sent;
        self.responses += other.responses;
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
    /// Requests whose intended send time was in the window. In a closed loop: sent in it.
    pub offered: u64,
    /// Responses of any status whose last byte arrived in the window.
    pub completed: u64,
    /// Responses with status 200-399 whose last byte arrived in the window: goodput.
    pub succeeded: u64,
    /// Errors of requests offered in the window, and of connection attempts in it.
    pub errors: ErrorCounts,
    /// The errors that belong to no request: a connection was to be kept open and could not be
    /// opened. The other errors, the responses and `unanswered` add up to `offered`.
    #[serde(default)]
    pub failed_attempts: u64,
    /// Requests offered in the window that still had no response when waiting ended.
    pub unanswered: u64,
    /// Responses to requests offered in the window, by HTTP status.
    #[serde(deserialize_with = "status_counts")]
    pub status: BTreeMap<u16, u64>,
    /// gRPC status codes of the same responses; empty without gRPC.
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
    /// From the actual send time to the first byte of the response, of the same requests.
    #[serde(default)]
    pub first_byte: LatencyHistogram,
    /// TCP handshakes, of connections opened before the load or in its window.
    #[serde(default)]
    pub connect: LatencyHistogram,
    /// TLS handshakes of the same connections, from the end of the TCP handshake.
    #[serde(default)]
    pub tls_handshake: LatencyHistogram,
    /// The window in parts, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<LoadInterval>,
    /// The congestion control of the generator's sockets (`bbr`, `cubic`).
    pub congestion_control: String,
    /// The I/O interface of the generator: `io_uring` or `epoll`; empty in older results.
    #[serde(default)]
    pub socket_io: String,
    /// The generator's self-monitoring.
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

    /// Adds the figures of another thread, or machine, for its share of the same load. Percentiles of
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

/// JSON's keys are text. Inside [`super::TrialOutcome`], whose tag makes serde buffer the content,
/// they are not converted to numbers automatically.
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
