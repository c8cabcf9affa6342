//! Errors of the application.

use std::net::SocketAddr;

use meshtax_tls::TlsError;
use rustix::io::Errno;

/// Why the application cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration is invalid.
    #[error("{field} is {value}: {fix}")]
    Invalid {
        /// The configuration's field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What to use instead.
        fix: &'static str,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: Errno,
    },
    /// The certificate, its key or the clients' authority is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A thread cannot be pinned.
    #[error(
        "cannot pin the application to core {core}: {source}; choose a core this process may use"
    )]
    Pin {
        /// The core.
        core: u32,
        /// The kernel's error.
        source: Errno,
    },
    /// A system call failed unexpectedly.
    #[error("{call} failed: {source}")]
    System {
        /// The system call.
        call: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}
