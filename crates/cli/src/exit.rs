//! How a command ends: an exit code, or a failure with one.

use std::fmt;

pub(crate) use meshtax_model::exit_code::{
    GATE_FAILED, GATE_INCONCLUSIVE, LEFTOVERS, MISSING, NOTHING_MEASURED, REFUSED, SPEC_INVALID,
    SUCCESS, TOO_FEW, UNEXPECTED, UNREADABLE, USAGE,
};
use meshtax_spec::ValueError;

/// The failure of a command: what is wrong, how to fix it, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
    fix: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
            fix: None,
        }
    }

    pub(crate) fn with_fix(code: u8, message: impl fmt::Display, fix: impl fmt::Display) -> Self {
        Self {
            fix: Some(fix.to_string()),
            ..Self::new(code, message)
        }
    }

    /// The value of an option is invalid.
    pub(crate) fn option(option: &str, error: &ValueError) -> Self {
        let message = format!("{option}: {}", error.problem);
        Self::with_fix(USAGE, message, &error.fix)
    }

    /// There is no `what` (`preset`) of this name.
    pub(crate) fn unknown_name(what: &str, name: &str, known: &[&str]) -> Self {
        let list = format!("use one of: {}", known.join(", "));
        let fix = match meshtax_spec::nearest(name, known.iter().copied()) {
            Some(meant) => format!("did you mean {meant}? {list}"),
            None => list,
        };
        Self::with_fix(USAGE, format!("no {what} is called {name:?}"), fix)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

/// The result of a command: the exit code, after everything was printed.
pub(crate) type Outcome = Result<u8, Failure>;
