//! The vocabulary of a meshtax experiment, as plain data.
//!
//! Everything here is pure: no I/O, no clock, no randomness. The words are those of
//! `docs/glossary.md`. Units are suffixes of field names (`_ns`, `_bytes`, `_per_s`).

#![forbid(unsafe_code)]

pub mod advice;
pub mod analysis;
pub mod catalogue;
pub mod cluster;
pub mod comparison;
pub mod environment;
pub mod event;
pub mod evidence;
pub mod exit_code;
pub mod experiment;
pub mod failure;
mod goal;
pub mod histogram;
pub mod load;
pub mod margins;
pub mod monitoring;
pub mod plan;
pub mod pods;
pub mod program;
pub mod requirement;
pub mod saturation;
pub mod scaling;
pub mod topology;
pub mod trial;

pub use goal::LatencyGoal;
pub use histogram::{HistogramSnapshot, LatencyHistogram};

/// The version of everything that meshtax writes: run directories and `--json` documents.
///
/// A reader refuses a larger number than its own.
pub const FORMAT_VERSION: u32 = 2;
