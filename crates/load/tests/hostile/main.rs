//! The load generator against servers that do what no server should. Whatever they do: no
//! panic, no hang, every request that was offered ends once, and its error is of the right kind.

mod any;
mod harness;
mod http1;
mod http2;
#[path = "../quiet/mod.rs"]
mod quiet;
mod tls;
