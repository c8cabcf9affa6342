//! The exit codes of a load's errors.

use meshtax_load::{ConnectProblem, LoadError};

use crate::exit::{Failure, MISSING, NOTHING_MEASURED, USAGE};

/// A load's error with its exit code, and the options that may fix it.
pub(crate) fn failure(error: LoadError) -> Failure {
    let code = match &error {
        LoadError::Invalid { .. } => USAGE,
        LoadError::Connect { .. } => NOTHING_MEASURED,
        _ => MISSING,
    };
    let fix = match &error {
        LoadError::Connect {
            problem: ConnectProblem::Certificate,
            ..
        } => "--cacert FILE trusts its authority, --insecure any, --server-name another name",
        LoadError::Connect {
            problem: ConnectProblem::Tls,
            ..
        } => {
            "use http:// for a port without TLS; --cert and --key if the server requires a certificate"
        }
        _ => return Failure::new(code, error),
    };
    Failure::with_fix(code, error, fix)
}
