//! The vocabulary of a meshtax experiment, as plain data.
//!
//! Everything here is pure: no I/O, no clock, no randomness. The words are those of
//! `docs/glossary.md`. Units stand last in a field's name (`_ns`, `_bytes`, `_per_s`).

#![forbid(unsafe_code)]

pub mod advice;
pub mod analysis;
pub mod comparison;
pub mod environment;
pub mod event;
pub mod evidence;
pub mod experiment;
pub mod graph;
pub mod histogram;
pub mod plan;
pub mod scaling;
pub mod trial;

pub use histogram::{HistogramSnapshot, LatencyHistogram};

/// The version of everything that meshtax writes: run directories and `--json` documents.
///
/// A reader refuses a larger number than its own.
pub const FORMAT_VERSION: u32 = 1;
