//! The exit codes of every command. They are stable: scripts and pipelines can rely on them.
//!
//! A command that a signal ended returns 128 plus the signal's number, as a shell does.

/// Success.
pub const SUCCESS: u8 = 0;
/// An unexpected error: a bug in meshtax.
pub const UNEXPECTED: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// The spec or the topology is invalid.
pub const SPEC_INVALID: u8 = 10;
/// A requirement is not met on this machine; the message names it and the fix.
pub const MISSING: u8 = 11;
/// Nothing could be measured: the environment never became ready, or its evidence failed.
pub const NOTHING_MEASURED: u8 = 12;
/// The command finished, with too few valid trials for a result.
pub const TOO_FEW: u8 = 13;
/// A stored run is unreadable, or has an unsupported format version.
pub const UNREADABLE: u8 = 14;
/// Teardown was incomplete; the message lists what is left.
pub const LEFTOVERS: u8 = 15;
/// A gate failed: a whole interval is beyond its limit.
pub const GATE_FAILED: u8 = 20;
/// A gate is inconclusive: there is too little data for its limit.
pub const GATE_INCONCLUSIVE: u8 = 21;
/// Refused: a gate on runs that were measured under conditions that are not comparable, or continuing a run whose
/// conditions have changed.
pub const REFUSED: u8 = 22;
