//! Why no load could be offered.

use std::net::SocketAddr;

use meshtax_tls::TlsError;
use rustix::io::Errno;
use rustls::pki_types::InvalidDnsNameError;

/// What kept a connection from being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectProblem {
    /// This machine lacks what a connection needs: a port, memory, a file descriptor.
    Local,
    /// TCP.
    Tcp,
    /// The server's certificate is not trusted.
    Certificate,
    /// The rest of the TLS handshake.
    Tls,
    /// What the server sent, or did, afterwards.
    Protocol,
}

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
        /// The kind of the last attempt's error.
        problem: ConnectProblem,
        /// The last attempt's error.
        cause: String,
        /// Connections that were open by then.
        opened: u32,
        /// Connections asked for.
        connections: u32,
        /// What can be done about it.
        fix: &'static str,
    },
    /// The certificates or keys for TLS are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server's name for TLS is neither a DNS name nor an address.
    #[error("{name}: {source}")]
    ServerName {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: InvalidDnsNameError,
    },
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
        /// The kernel's response.
        source: Errno,
    },
    /// The kernel lacks a call.
    #[error(
        "this kernel has no epoll_pwait2 or forbids it ({source}): Linux 5.11 or later is needed"
    )]
    Kernel {
        /// The kernel's response.
        source: Errno,
    },
    /// The kernel gave an io_uring and then could not go on with it.
    #[error("io_uring failed: {source}; offer the load without it (`--no-io-uring`)")]
    Ring {
        /// The kernel's response.
        source: std::io::Error,
    },
    /// A system call failed that never should.
    #[error("{call} failed: {source}")]
    System {
        /// The system call.
        call: &'static str,
        /// The kernel's response.
        source: Errno,
    },
}

impl LoadError {
    /// For `map_err` around a system call.
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::System { call, source }
    }
}
