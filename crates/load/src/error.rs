//! Why no load could be offered.

use std::net::SocketAddr;

use rustix::io::Errno;

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The spec asks for something that cannot be.
    #[error("{field} is {value}: {fix}")]
    Invalid {
        /// The spec's field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What it should be.
        fix: String,
    },
    /// The process may not open that many sockets.
    #[error(
        "{connections} connections need {needed} open files, and the limit is {hard} (soft {soft}): \
         raise it (`ulimit -n {needed}`, or LimitNOFILE={needed} in a systemd unit) \
         or use at most {most} connections"
    )]
    OpenFiles {
        /// Connections asked for.
        connections: u32,
        /// Descriptors needed in all.
        needed: u64,
        /// `RLIMIT_NOFILE`, soft.
        soft: u64,
        /// `RLIMIT_NOFILE`, hard.
        hard: u64,
        /// Connections that the hard limit allows.
        most: u64,
    },
    /// The connections could not be opened before the load began.
    #[error(
        "cannot connect to {target}: {cause} ({opened} of {connections} connections open); {fix}"
    )]
    Connect {
        /// The address.
        target: SocketAddr,
        /// What the last attempt met.
        cause: String,
        /// Connections that were open by then.
        opened: u32,
        /// Connections asked for.
        connections: u32,
        /// What can be done about it.
        fix: &'static str,
    },
    /// The certificates for TLS are of no use.
    #[error("{0}")]
    Tls(String),
    /// A thread ended without a word, which a panic alone can do.
    #[error("a thread of the load generator ended: this is a bug; the lines above say where")]
    Thread,
    /// The thread could not be pinned.
    #[error(
        "cannot pin the load generator to core {core}: {source}; choose a core this process may use"
    )]
    Pin {
        /// The core.
        core: u32,
        /// The kernel's answer.
        source: Errno,
    },
    /// The kernel lacks a call.
    #[error(
        "this kernel has no epoll_pwait2 or forbids it ({source}): Linux 5.11 or later is needed"
    )]
    Kernel {
        /// The kernel's answer.
        source: Errno,
    },
    /// The kernel gave an io_uring and then could not go on with it.
    #[error("io_uring failed: {source}; offer the load without it (`--no-io-uring`)")]
    Ring {
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A system call failed that never should.
    #[error("{call} failed: {source}")]
    System {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
}

impl LoadError {
    /// For `map_err` around a system call.
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::System { call, source }
    }
}
