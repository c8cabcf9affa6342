//! Why the proxy cannot run.

use std::io;

use meshtax_tls::TlsError;

/// Why the proxy cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The configuration, or a file that it names, cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// What failed.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A listener or an epoll failed.
    #[error("the proxy's sockets: {0}")]
    Sockets(#[from] io::Error),
}
