//! The runner with the fake engine: order, stopping, failures, interruption, continuing, the pilots.
#![forbid(unsafe_code)]

mod pilots;
mod resumption;
mod rounds;
mod setup;
