//! The server's side.

use std::sync::Arc;

use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use serde::{Deserialize, Serialize};

use crate::pem::{certificates, private_key, roots};
use crate::{TlsError, provider};

/// What a server shows and demands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerTls {
    /// Its certificate chain, PEM.
    pub chain_pem: String,
    /// The chain's private key, PEM.
    pub key_pem: String,
    /// The authorities that a client's certificate must come from, PEM: mutual TLS. `None`:
    /// clients show none.
    pub client_roots_pem: Option<String>,
    /// Protocols that it speaks, the first preferred: `h2`, `http/1.1`.
    pub alpn: Vec<String>,
}

/// A server for TLS 1.3 and 1.2.
///
/// # Errors
/// When a text is wrong.
pub fn server_config(tls: &ServerTls) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match &tls.client_roots_pem {
        None => builder.with_no_client_auth(),
        Some(text) => {
            let what = "clients' authority";
            let trusted = Arc::new(roots(what, text)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(trusted, provider);
            let verifier = verifier.build().map_err(|e| TlsError::Authority {
                what,
                problem: e.to_string(),
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates("server's certificate chain", &tls.chain_pem)?;
    let key = private_key(&tls.key_pem)?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|source| TlsError::Identity { source })?;
    config.alpn_protocols = tls.alpn.iter().map(|p| p.clone().into_bytes()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// A new key (P-256) and a certificate for it that vouches for itself, both PEM: the chain and
/// the key of [`ServerTls`]. A client can be configured to trust the certificate.
///
/// # Errors
/// When a name is neither a host nor an IP address.
pub fn self_signed(names: &[String]) -> Result<(String, String), TlsError> {
    let wrong = |e: rcgen::Error| TlsError::SelfSigned {
        names: names.join(", "),
        problem: e.to_string(),
    };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(wrong)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(wrong)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "meshtax serve");
    let certificate = params.self_signed(&key).map_err(wrong)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
