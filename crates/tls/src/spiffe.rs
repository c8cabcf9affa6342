//! Mutual TLS with SPIFFE identities, for the minimal proxy and for the probes.
//!
//! A SPIFFE certificate has no DNS name: the identity is a URI. The chain is verified as usual, the
//! identity by rules of our own. TLS 1.3 only, as all data planes negotiate.

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, Error, ServerConfig};

pub use crate::identity::{spiffe_identity, workload_identity};
pub use crate::verifier::Expect;
use crate::verifier::{Trust, Verifier};
use crate::{Credentials, TlsError, provider};

/// A client with a certificate. `send_sni`: whether it names the server in its ClientHello.
///
/// # Errors
/// If the credentials cannot be used.
pub fn client_config(
    credentials: &Credentials,
    expect: Expect,
    alpn: &[String],
    send_sni: bool,
) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = Verifier {
        trust: Trust::Spiffe {
            roots: credentials.roots()?,
            expect,
        },
        provider: provider.clone(),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(credentials.chain()?, credentials.key()?)?;
    config.alpn_protocols = alpn.iter().map(|p| p.clone().into_bytes()).collect();
    config.enable_sni = send_sni;
    // Each connection pays its own handshake, as between Istio's sidecars.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// A server that requires client certificates. The caller checks the clients' identities.
///
/// # Errors
/// If the credentials cannot be used.
pub fn server_config(credentials: &Credentials) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(credentials.roots()?),
        provider.clone(),
    )
    .build()
    .map_err(|e| Error::General(e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(credentials.chain()?, credentials.key()?)?;
    config.send_tls13_tickets = 0;
    Ok(config)
}
