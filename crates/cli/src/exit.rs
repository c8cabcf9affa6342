//! The exit codes: public, and the same for all commands.

/// Success.
pub(crate) const SUCCESS: u8 = 0;
/// Unexpected error: a bug.
pub(crate) const UNEXPECTED: u8 = 1;
/// The command line is wrong. clap uses the same.
pub(crate) const USAGE: u8 = 2;
/// The spec is invalid.
pub(crate) const SPEC_INVALID: u8 = 10;
/// Something is missing on this machine; it is named, with the fix.
pub(crate) const MISSING: u8 = 11;
/// An environment never became ready, or its evidence failed, and nothing could be measured.
pub(crate) const NOTHING_MEASURED: u8 = 12;
/// Finished, with too few valid trials to answer.
pub(crate) const TOO_FEW: u8 = 13;
/// A store is unreadable or of an unknown version.
pub(crate) const UNREADABLE: u8 = 14;
/// Teardown was incomplete; what is left is listed.
pub(crate) const LEFTOVERS: u8 = 15;

/// A gate failed: a whole interval is beyond its limit.
pub(crate) const GATE_FAILED: u8 = 20;
/// A gate cannot tell: too little data for its limit.
pub(crate) const GATE_CANNOT_TELL: u8 = 21;

/// A command's failure: what to say, and the code to end with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    pub(crate) fn with_fix(code: u8, message: impl ToString, fix: &str) -> Self {
        Self::new(code, format!("{}\n  fix: {fix}", message.to_string()))
    }
}

/// What a command comes to: the code, if it said all there is to say itself.
pub(crate) type Outcome = Result<u8, Failure>;
