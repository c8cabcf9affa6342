//! TLS as all parts of meshtax use it: one provider of ciphers, certificates from PEM texts, and
//! errors that name the text and what to do.
//!
//! Connections are not resumed, on either side: each pays its own handshake, so that a new
//! connection costs the same whenever it is made.
#![forbid(unsafe_code)]

mod client;
mod duplex;
mod identity;
mod pem;
mod secret;
mod server;
pub mod spiffe;
mod verifier;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

pub use client::{ClientTls, client_config};
pub use duplex::{DuplexReader, DuplexWriter, split};
pub use pem::Credentials;
pub use secret::{SECRET_NAME, secret_tls};
pub use server::{ServerTls, self_signed, server_config};

/// The one provider, with AES-128-GCM of TLS 1.3 first, as Envoy and linkerd2-proxy have it:
/// equal work means the same cipher.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|s| s.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

/// Why TLS cannot be set up: which text is wrong, and how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A text that is no PEM.
    #[error(
        "the {what} cannot be read as PEM: {problem}; give the file as the authority issued it"
    )]
    Pem {
        /// Which text: "certificate chain", "private key" and so on.
        what: &'static str,
        /// The parser's message.
        problem: String,
    },
    /// PEM without what is looked for.
    #[error("the {what} has no -----BEGIN {label}----- in it; give a PEM file, not DER")]
    Empty {
        /// Which text.
        what: &'static str,
        /// The label that it should have.
        label: &'static str,
    },
    /// One of a pair is missing.
    #[error("the {missing} is missing: certificate chain and private key go together")]
    Unpaired {
        /// What is missing.
        missing: &'static str,
    },
    /// The key is not the certificate's, or neither can be used.
    #[error(
        "certificate chain and private key cannot be used together: {source}; give the key that the first certificate of the chain was made for"
    )]
    Identity {
        /// rustls's message.
        source: rustls::Error,
    },
    /// A certificate that cannot be an authority's.
    #[error("the {what} cannot be used: {problem}; give the authority's own certificate")]
    Authority {
        /// Which text.
        what: &'static str,
        /// rustls's message.
        problem: String,
    },
    /// No roots of the system.
    #[error(
        "this system has no trusted certificates ({problem}); give the authority's certificate, or accept any"
    )]
    NoSystemRoots {
        /// What was tried.
        problem: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate for {names}: {problem}; name hosts or IP addresses")]
    SelfSigned {
        /// For whom.
        names: String,
        /// rcgen's message.
        problem: String,
    },
    /// The versions or ciphers do not go together.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}
