//! meshtax's test application: a server designed never to be the bottleneck.
//!
//! Every listener serves HTTP/1.1, HTTP/2 with prior knowledge and unary gRPC calls, in plaintext or
//! over TLS, or it echoes TCP. Every response has a body of a fixed size, or a gRPC message of that
//! size, from prebuilt bytes; long bodies come from a short pattern, so that no connection buffers one.
//! The application can spin for a known time before each response: a known cost, verified by its own
//! clock, that a measurement has to recover. It can also wait, do work, fail a share of the requests,
//! and call other instances of itself: several of them make up a call graph.
//!
//! Two paths are neither delayed nor counted: `/_meshtax/echo` returns the request as it arrived,
//! `/_meshtax/stats` returns the counters. A request's `x-meshtax-canary` header is returned in the
//! response on any path, so that it crosses the wire in both directions.
#![forbid(unsafe_code)]

mod calls;
mod config;
mod connection;
mod content;
mod context;
mod error;
mod http1;
mod http2;
mod link;
mod route;
mod server;
mod stats;
mod timers;
mod transport;
mod work;

pub use config::{AppConfig, Call, Identity, Listener, Page, Protocol, ServiceStep, Wait};
pub use error::AppError;
pub use server::{serve, serve_all};
pub use stats::{AppStats, Echo};

/// Returns the request as it arrived: an [`Echo`].
pub const ECHO_PATH: &str = "/_meshtax/echo";

/// Returns the counters: an [`AppStats`].
pub const STATS_PATH: &str = "/_meshtax/stats";

/// Over HTTP/1.1, a request for [`ECHO_PATH`] with this header fails with 503 and is counted: if a
/// client sends one and several are counted, a proxy has retried it.
pub const FAIL_HEADER: &str = "x-meshtax-fail";

/// The header that every response returns.
pub const CANARY_HEADER: &str = "x-meshtax-canary";
