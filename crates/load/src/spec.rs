//! What load to offer.

use std::net::SocketAddr;

use meshtax_model::experiment::Arrivals;
pub use meshtax_model::load::{Protocol, Rate};
use meshtax_tls::ClientTls;
use serde::{Deserialize, Serialize};

/// How requests are offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum LoadModel {
    /// Arrivals do not wait for responses; any free connection takes the next.
    Open {
        /// Offered rate.
        rate: Rate,
        /// How the intended send times are spread.
        arrivals: Arrivals,
    },
    /// As open, with intended send times that are given.
    Replay {
        /// From the load's start (the warm-up's), in nanoseconds, in order.
        times_ns: Vec<u64>,
    },
    /// Every connection is a user with a schedule of its own, who works through the list of
    /// requests in its order, again and again. A user whose response is late sends late, and the
    /// latency still counts from when it was to send.
    Users {
        /// Requests per second of each user.
        rate_per_s: f64,
        /// How each user's intended send times are spread.
        arrivals: Arrivals,
    },
    /// Every connection sends again as soon as it has its response.
    Closed {
        /// Pause between a response and the next request, in nanoseconds.
        think_ns: u64,
    },
}

impl LoadModel {
    /// An open loop with one rate.
    #[must_use]
    pub fn open(per_s: f64, arrivals: Arrivals) -> Self {
        Self::Open {
            rate: Rate::Constant { per_s },
            arrivals,
        }
    }

    /// A closed loop without pauses.
    #[must_use]
    pub fn closed() -> Self {
        Self::Closed { think_ns: 0 }
    }

    /// Whether latency waits for the responses: the mean is connections / throughput then.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// How often it is sent, in proportion to the other requests' weights.
    #[serde(default = "one")]
    pub weight: u32,
    /// Its method.
    pub method: String,
    /// The `host` header, or `:authority`.
    pub host: String,
    /// Its target (`/a?b=c`).
    pub path: String,
    /// Further headers.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Its body; empty for none. In JSON: base64.
    #[serde(default, with = "crate::bytes64")]
    pub body: Vec<u8>,
}

impl Request {
    /// `GET /` without a body; fields are public.
    #[must_use]
    pub fn get(host: String) -> Self {
        Self {
            weight: 1,
            method: "GET".into(),
            host,
            path: "/".into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }
}

/// Encryption of the connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Whose certificates are trusted, and our own.
    pub credentials: ClientTls,
    /// The server's name or address, as in its certificate and in SNI.
    pub server_name: String,
}

/// Which part of a load this process or thread offers: every `of`-th arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// From 0.
    pub index: u32,
    /// How many parts there are.
    pub of: u32,
}

impl Slice {
    /// The whole load.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// One of `of` parts of this part: of its arrivals every `of`-th. Parts of different parts never overlap, into
    /// however many each is divided.
    #[must_use]
    pub fn part(self, index: u32, of: u32) -> Self {
        Self {
            index: self.index + self.of * index,
            of: self.of * of,
        }
    }
}

/// Another place where requests of a load go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Where to connect.
    pub address: SocketAddr,
    /// The `host` header, or `:authority`, of requests that go there.
    pub host: String,
}

/// One load of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Where to connect.
    pub target: SocketAddr,
    /// Where else: each connection is to one of all targets, to one after the other in turn. What is asked there is the
    /// same. In an open loop requests go to the targets in turn, as far as each has a free connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_targets: Vec<Target>,
    /// The number among all of the load's connections that this process's first has: it says whose turn it is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_connection: u32,
    /// What is spoken there.
    #[serde(default)]
    pub protocol: Protocol,
    /// Encryption; `None` sends in plaintext.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// What is sent. Users work through it in order; otherwise each is drawn by its weight.
    pub requests: Vec<Request>,
    /// Connections of this process.
    pub connections: u32,
    /// Requests that a connection carries before it is closed and, when the next request is
    /// due, opened anew; `None`: connections are opened before the load and kept.
    #[serde(default)]
    pub requests_per_connection: Option<u32>,
    /// Threads that share the connections.
    #[serde(default = "one")]
    pub threads: u32,
    /// Which part of the schedule this process offers. Rates are of the whole.
    #[serde(default = "whole")]
    pub slice: Slice,
    /// Open or closed loop, and how much.
    pub model: LoadModel,
    /// The same seed gives the same intended send times and the same order of requests.
    #[serde(default)]
    pub seed: u64,
    /// Load before the window that is in no figure, in nanoseconds.
    pub warmup_ns: u64,
    /// The measured part, in nanoseconds.
    pub window_ns: u64,
    /// Load after the window that is in no figure, in nanoseconds.
    #[serde(default)]
    pub cooldown_ns: u64,
    /// The window ends after so many requests of this process, if it has not ended before.
    #[serde(default)]
    pub max_requests: Option<u64>,
    /// A request without its response after so long has failed, in nanoseconds; `None`: it is
    /// awaited until the drain is over. Seen up to a twentieth later.
    #[serde(default)]
    pub timeout_ns: Option<u64>,
    /// How long responses are awaited after the window, in nanoseconds.
    #[serde(default = "default_drain_ns")]
    pub drain_ns: u64,
    /// How long the opening of the connections may make no progress, in nanoseconds.
    #[serde(default = "default_connect_timeout_ns")]
    pub connect_timeout_ns: u64,
    /// Length of the intervals in the result, in nanoseconds; `None`: no intervals.
    #[serde(default)]
    pub interval_ns: Option<u64>,
    /// Cores that the threads are pinned to, in turn; empty: not pinned.
    #[serde(default)]
    pub cores: Vec<u32>,
    /// Spin for the last microseconds before an intended send time. Without it sends are
    /// late by a wake-up, and the core is free for others.
    #[serde(default = "default_true")]
    pub spin: bool,
    /// Carry a closed loop over connections in plaintext that stay open by io_uring, where the kernel
    /// gives it; otherwise, and everything else, by epoll.
    #[serde(default = "default_true")]
    pub io_uring: bool,
}

fn one() -> u32 {
    1
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn whole() -> Slice {
    Slice::WHOLE
}

/// Two seconds: longer than any stall that a valid trial may have.
fn default_drain_ns() -> u64 {
    2_000_000_000
}

/// Five seconds: longer than the kernel takes to send a lost SYN twice more.
fn default_connect_timeout_ns() -> u64 {
    5_000_000_000
}

fn default_true() -> bool {
    true
}

impl LoadSpec {
    /// `GET /` over one connection in a closed loop for one second; fields are public.
    #[must_use]
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            more_targets: Vec::new(),
            first_connection: 0,
            protocol: Protocol::Http1,
            tls: None,
            requests: vec![Request::get(target.to_string())],
            connections: 1,
            requests_per_connection: None,
            threads: 1,
            slice: Slice::WHOLE,
            model: LoadModel::closed(),
            seed: 0,
            warmup_ns: 0,
            window_ns: 1_000_000_000,
            cooldown_ns: 0,
            max_requests: None,
            timeout_ns: None,
            drain_ns: default_drain_ns(),
            connect_timeout_ns: default_connect_timeout_ns(),
            interval_ns: None,
            cores: Vec::new(),
            spin: true,
            io_uring: true,
        }
    }

    /// How many targets there are.
    #[must_use]
    pub fn targets(&self) -> usize {
        1 + self.more_targets.len()
    }

    /// The same with the requests as they are sent to the other targets, one load for each target.
    pub(crate) fn by_target(&self) -> Vec<Self> {
        let to = |target: &Target| Self {
            target: target.address,
            requests: self
                .requests
                .iter()
                .map(|request| Request {
                    host: target.host.clone(),
                    ..request.clone()
                })
                .collect(),
            ..self.clone()
        };
        let others = self.more_targets.iter().map(to);
        std::iter::once(self.clone()).chain(others).collect()
    }

    /// What one of its threads does: its share of connections and requests, and every
    /// `threads`-th arrival.
    pub(crate) fn of_thread(&self, index: u32) -> Self {
        let core = self.cores.get(index as usize % self.cores.len().max(1));
        Self {
            threads: 1,
            cores: core.map(|core| vec![*core]).unwrap_or_default(),
            ..self.part(index, self.threads)
        }
    }

    /// What one of several machines, pods, processes or threads does: every `of`-th arrival, and its share of the
    /// connections and of the requests. The parts add up to the whole.
    #[must_use]
    pub fn part(&self, index: u32, of: u32) -> Self {
        let share = |whole: u64| {
            let of = u64::from(of);
            whole / of + u64::from(u64::from(index) < whole % of)
        };
        let connections = share(u64::from(self.connections)) as u32;
        let before = self.connections / of * index + index.min(self.connections % of);
        Self {
            connections,
            first_connection: self.first_connection + before,
            threads: self.threads.min(connections),
            max_requests: self.max_requests.map(share),
            slice: self.slice.part(index, of),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_round_trip_through_json() {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.model = LoadModel::open(1000.5, Arrivals::Constant);
        spec.seed = u64::MAX;
        spec.protocol = Protocol::Http2 { streams: 7 };
        spec.requests[0].body = vec![0, 255, 10];
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.contains(r#""model":{"loop":"open","#), "{text}");
        assert!(text.contains(r#""body":"AP8K""#), "{text}");
        assert_eq!(serde_json::from_str::<LoadSpec>(&text).unwrap(), spec);
    }

    #[test]
    fn threads_divide_the_load() {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.threads = 3;
        spec.connections = 10;
        spec.max_requests = Some(100);
        spec.cores = vec![4, 5];
        spec.slice = Slice { index: 1, of: 2 };
        let parts: Vec<_> = (0..3).map(|index| spec.of_thread(index)).collect();
        let of = |pick: fn(&LoadSpec) -> u64| parts.iter().map(pick).collect::<Vec<_>>();
        assert_eq!(of(|p| u64::from(p.connections)), [4, 3, 3]);
        assert_eq!(of(|p| u64::from(p.first_connection)), [0, 4, 7]);
        assert_eq!(of(|p| p.max_requests.unwrap()), [34, 33, 33]);
        assert_eq!(of(|p| u64::from(p.cores[0])), [4, 5, 4]);
        assert_eq!(of(|p| u64::from(p.slice.index)), [1, 3, 5]);
        assert_eq!(parts[0].slice.of, 6);
    }
}
