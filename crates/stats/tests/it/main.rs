//! The crate from outside: whole runs, coverage, and bad input.

mod analysis;
mod common;
mod coverage;
mod robust;
