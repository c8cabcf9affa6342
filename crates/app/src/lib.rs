//! meshtax's test application: a server that is never the bottleneck.
//!
//! It speaks HTTP/1.1, HTTP/2 with prior knowledge, and gRPC's unary calls within it, in clear
//! and within TLS, on one port each; and it echoes TCP. Any request is answered with a body of a
//! fixed size, or a gRPC message of it, from prebuilt bytes; long bodies come from a short
//! pattern, so that no connection holds one. On request it spins for a known time before each
//! answer: a known cost, verified by its own clock, that the measuring must find again. It can
//! also wait, work, fail by shares, and call others of its kind: many of them make a call graph.
//!
//! Two paths are its own and are neither delayed nor counted: `/_meshtax/echo` says what
//! arrived, `/_meshtax/stats` says what was done. A request's `x-meshtax-canary` header
//! comes back in the answer on any path, so that it crosses the wire both ways.
#![forbid(unsafe_code)]

mod answer;
mod calls;
mod config;
mod connection;
mod content;
mod http1;
mod http2;
mod link;
mod request;
mod server;
mod stats;
mod timers;
mod transport;
mod work;

pub use config::{AppConfig, Call, Identity, Listener, Page, Protocol, Step, Wait};
pub use server::{AppError, serve, serve_all};
pub use stats::{AppStats, Echo};

/// Answers what arrived: an [`Echo`].
pub const ECHO_PATH: &str = "/_meshtax/echo";

/// Answers what was done: an [`AppStats`].
pub const STATS_PATH: &str = "/_meshtax/stats";

/// Over HTTP/1.1, a request for [`ECHO_PATH`] with this header is answered with 503, and counted: who
/// sends such a request once and finds it counted more often has seen a proxy try again.
pub const FAIL_HEADER: &str = "x-meshtax-fail";

/// The header that every answer returns.
pub const CANARY_HEADER: &str = "x-meshtax-canary";
