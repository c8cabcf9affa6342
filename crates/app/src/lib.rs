//! meshtax's test application: an HTTP/1.1 server that is never the bottleneck.
//!
//! It answers any request with a body of a fixed size, one read and one write per request,
//! from prebuilt bytes. On request it spins for a known time before each answer: a known
//! cost, verified by its own clock, that the measuring must find again.
//!
//! Two paths are its own and are neither delayed nor counted: `/_meshtax/echo` says what
//! arrived, `/_meshtax/stats` says what was done. A request's `x-meshtax-canary` header
//! comes back in the answer on any path, so that it crosses the wire both ways.
#![forbid(unsafe_code)]

mod answer;
mod connection;
mod request;
mod server;
mod stats;

pub use server::{AppConfig, AppError, serve};
pub use stats::{AppStats, Echo};

/// Answers what arrived: an [`Echo`].
pub const ECHO_PATH: &str = "/_meshtax/echo";

/// Answers what was done: an [`AppStats`].
pub const STATS_PATH: &str = "/_meshtax/stats";

/// The header that every answer returns.
pub const CANARY_HEADER: &str = "x-meshtax-canary";
