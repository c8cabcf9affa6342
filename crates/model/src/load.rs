//! One load: what was offered, without secrets and long values, and its result.
//!
//! Reports and exported files are written from this. The configuration of the load generator
//! is `meshtax_load::LoadSpec`.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::experiment::Arrivals;
use crate::trial::{GeneratorBound, LoadInterval, LoadResult};

/// The offered rate of an open loop over the window. Before the window the first rate applies, after it the last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Rate {
    /// Constant.
    Constant {
        /// Requests per second.
        per_s: f64,
    },
    /// A linear ramp.
    Linear {
        /// Requests per second at the start of the window.
        from_per_s: f64,
        /// Requests per second at its end.
        to_per_s: f64,
    },
    /// Steps of equal length and equal height.
    Steps {
        /// Requests per second in the first step.
        from_per_s: f64,
        /// Requests per second in the last.
        to_per_s: f64,
        /// How many steps; at least two.
        steps: u32,
    },
}

/// The protocol on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Protocol {
    /// HTTP/1.1, one request on a connection at a time.
    #[default]
    Http1,
    /// HTTP/2: by ALPN over TLS, by prior knowledge in plaintext.
    Http2 {
        /// Concurrent requests on one connection.
        streams: u32,
    },
    /// gRPC over HTTP/2, unary calls. The request's body is the message, its path the method.
    Grpc {
        /// Concurrent calls on one connection.
        streams: u32,
    },
    /// Plain TCP: the body is sent, and as many bytes are expected back.
    Tcp,
}

impl Protocol {
    /// Concurrent requests on one connection.
    #[must_use]
    pub fn streams(self) -> u32 {
        match self {
            Self::Http1 | Self::Tcp => 1,
            Self::Http2 { streams } | Self::Grpc { streams } => streams,
        }
    }
}

/// The workload model: open or closed loop, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum OfferedLoad {
    /// Arrivals do not wait for responses; any free connection takes the next.
    Open {
        /// Offered rate.
        rate: Rate,
        /// Distribution of the intended send times.
        arrivals: Arrivals,
    },
    /// As open, with given send times.
    Replay {
        /// How many send times.
        times: u64,
    },
    /// Every connection is a user with its own schedule.
    Users {
        /// Requests per second of each user.
        rate_per_s: f64,
        /// Distribution of each user's intended send times.
        arrivals: Arrivals,
    },
    /// Every connection sends again as soon as it has its response.
    Closed {
        /// Pause between a response and the next request, in nanoseconds.
        think_ns: u64,
    },
}

impl OfferedLoad {
    /// Whether requests wait for responses: mean latency is connections / throughput then.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// The constant rate of an open loop, in requests per second.
    #[must_use]
    pub fn constant_rate_per_s(&self) -> Option<f64> {
        match self {
            Self::Open {
                rate: Rate::Constant { per_s },
                ..
            } => Some(*per_s),
            _ => None,
        }
    }
}

/// One kind of request, without its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSettings {
    /// Its weight relative to the other requests.
    pub weight: u32,
    /// Its method.
    pub method: String,
    /// The `host` header, or `:authority`.
    pub host: String,
    /// Its target (`/a?b=c`).
    pub path: String,
    /// Further headers; credentials are hidden.
    pub headers: Vec<(String, String)>,
    /// Size of the body.
    pub body_bytes: u64,
}

/// Encryption of the connections, without certificates and keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// The server's name or address, as in its certificate and in SNI.
    pub server_name: String,
    /// Any certificate was accepted.
    pub insecure: bool,
    /// Certificate authorities were given instead of those of the system.
    pub custom_authorities: bool,
    /// A client certificate was presented.
    pub client_certificate: bool,
}

/// What was offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSettings {
    /// Address and port.
    pub target: SocketAddr,
    /// The protocol on the connections.
    pub protocol: Protocol,
    /// Encryption; `None`: plaintext.
    pub tls: Option<TlsSettings>,
    /// What was sent.
    pub requests: Vec<RequestSettings>,
    /// Connections, or users.
    pub connections: u32,
    /// Requests that a connection carried before it was replaced; `None`: connections were kept.
    pub requests_per_connection: Option<u32>,
    /// Threads that shared the connections.
    pub threads: u32,
    /// Open or closed loop, and how much.
    pub model: OfferedLoad,
    /// The same seed gives the same intended send times and the same order of requests.
    pub seed: u64,
    /// Load before the window that no figure includes, in nanoseconds.
    pub warmup_ns: u64,
    /// The measured part, in nanoseconds.
    pub window_ns: u64,
    /// Load after the window that no figure includes, in nanoseconds.
    pub cooldown_ns: u64,
    /// The window ended after so many requests, if it had not ended before.
    pub max_requests: Option<u64>,
    /// A request without a response after so long failed, in nanoseconds.
    pub timeout_ns: Option<u64>,
    /// How long responses were awaited after the window, in nanoseconds.
    pub drain_ns: u64,
    /// How long opening connections could make no progress, in nanoseconds.
    pub connect_timeout_ns: u64,
    /// Length of the intervals in the result, in nanoseconds; `None`: no intervals.
    pub interval_ns: Option<u64>,
    /// Cores that the threads were pinned to; empty: not pinned.
    pub cores: Vec<u32>,
    /// Whether threads busy-waited for the last microseconds before a send.
    pub spin: bool,
    /// Whether io_uring was allowed.
    pub io_uring: bool,
}

/// A load that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedLoad {
    /// The target, as typed.
    pub url: String,
    /// When its window began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// What was offered.
    pub settings: LoadSettings,
    /// What was measured.
    pub result: LoadResult,
}

impl FinishedLoad {
    /// Requests of the window with a successful response: status 200-399, of gRPC `OK`.
    #[must_use]
    pub fn successful(&self) -> u64 {
        let result = &self.result;
        if !result.grpc_status.is_empty() {
            return result.grpc_status.get(&0).copied().unwrap_or(0);
        }
        let statuses = result.status.iter();
        let successful = statuses.filter(|(status, _)| (200..400).contains(*status));
        successful.map(|(_, count)| count).sum()
    }

    /// Requests of the window without a response.
    #[must_use]
    pub fn without_response(&self) -> u64 {
        let result = &self.result;
        let errors = result.errors.total().saturating_sub(result.failed_attempts);
        errors + result.unanswered
    }

    /// The successful ones as a share of all requests of the window.
    #[must_use]
    pub fn success_share(&self) -> f64 {
        self.successful() as f64 / self.result.offered.max(1) as f64
    }

    /// The window in seconds; never zero.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.result.window_ns as f64 / 1e9).max(1e-9)
    }

    /// Whether the system kept up with the offered rate. A single response after the end of the window is no
    /// shortfall, however few there are.
    #[must_use]
    pub fn kept_up(&self) -> bool {
        const SHARE: f64 = 0.98;
        let missing = self.result.offered.saturating_sub(self.result.completed);
        missing <= 1 || self.result.completed as f64 >= SHARE * self.result.offered as f64
    }
}

/// A load that is running.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress<'a> {
    /// Time since the load began, in nanoseconds.
    pub elapsed_ns: u64,
    /// Responses of any status.
    pub responses: u64,
    /// Errors of any kind.
    pub errors: u64,
    /// Open connections.
    pub connections: u32,
    /// The last complete interval of the window, if the load has any.
    pub last: Option<&'a LoadInterval>,
}

/// Loads at several levels, in sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadLevels {
    /// The target, as typed.
    pub url: String,
    /// One load per level, in the order of measurement.
    pub levels: Vec<FinishedLoad>,
    /// What they show together.
    pub finding: LevelsFinding,
}

/// What loads at several levels show together.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LevelsFinding {
    /// Of given rates.
    Rates {
        /// The highest rate that was kept up with.
        kept_up_to_per_s: Option<f64>,
    },
    /// Of closed loops with given numbers of connections.
    Connections {
        /// Whether throughput stopped growing.
        verdict: SaturationVerdict,
        /// The first number of connections to which the verdict applies.
        from_connections: Option<u32>,
        /// The highest throughput, in responses per second.
        peak_per_s: Option<f64>,
        /// At this many connections.
        peak_connections: Option<u32>,
    },
    /// Of a search for the knee.
    Knee(KneeFinding),
}

/// Whether throughput stopped growing with the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaturationVerdict {
    /// Too few levels for a verdict.
    TooFewLevels,
    /// It grew up to the last level.
    Rising,
    /// It stopped growing.
    Saturated,
    /// The generator was the limit.
    GeneratorBound,
}

/// The result of a search for the knee: the highest rate at which a percentile stays within its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KneeFinding {
    /// The objective, as in `p99 < 5ms`.
    pub goal: String,
    /// Its quantile.
    pub quantile: f64,
    /// Its limit, in nanoseconds.
    pub limit_ns: u64,
    /// The relative width of the interval at which the search ends.
    pub precision: f64,
    /// The highest rate that met the objective; 0: none did. `None`: the search did not end.
    pub low_per_s: Option<f64>,
    /// The lowest rate that missed it.
    pub high_per_s: Option<f64>,
    /// What limits the rate.
    pub limited_by: Option<KneeLimit>,
    /// Why the generator was the limit.
    pub reason: Option<GeneratorBound>,
    /// The verdict on each rate that has one.
    #[serde(skip)]
    pub verdicts: Vec<(f64, RateVerdict)>,
}

/// What keeps a knee from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KneeLimit {
    /// The percentile exceeds its limit.
    Latency,
    /// Too small a share of the offered rate is served.
    Throughput,
    /// Too many requests fail.
    Errors,
    /// The load generator can offer no more.
    Generator,
    /// No higher rate may be offered.
    MaxRate,
    /// The search ran out of steps.
    Steps,
}

/// Whether a rate meets an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// It does.
    Met,
    /// It does not.
    Missed,
    /// The data does not decide.
    Inconclusive,
}
