//! The client's side.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore, WantsVerifier};
use serde::{Deserialize, Serialize};

use crate::pem::{certificates, private_key, roots};
use crate::verifier::{Trust, Verifier};
use crate::{TlsError, provider};

/// What a client trusts and shows. By default: the system's roots, no certificate of its own, no
/// ALPN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTls {
    /// Authorities to trust, PEM; `None`: those of the system.
    pub roots_pem: Option<String>,
    /// The client's own certificate chain, PEM, for mutual TLS. Needs `key_pem`.
    pub chain_pem: Option<String>,
    /// The chain's private key, PEM. Needs `chain_pem`.
    pub key_pem: Option<String>,
    /// Take any certificate of the server, whoever issued it and for whom. All is encrypted, and
    /// the server must hold the certificate's key, but it may be anyone.
    pub insecure: bool,
    /// Protocols to offer, the first preferred: `h2`, `http/1.1`.
    pub alpn: Vec<String>,
}

/// A client for TLS 1.3 and 1.2.
///
/// # Errors
/// When a text is wrong or missing, or the system has no roots.
pub fn client_config(tls: &ClientTls) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = trusting(builder, tls, provider)?;
    let mut config = match (&tls.chain_pem, &tls.key_pem) {
        (None, None) => builder.with_no_client_auth(),
        (Some(chain), Some(key)) => {
            let chain = certificates("client's certificate chain", chain)?;
            let key = private_key(key)?;
            let identity = builder.with_client_auth_cert(chain, key);
            identity.map_err(|source| TlsError::Identity { source })?
        }
        (chain, _) => {
            let missing = match chain {
                None => "client's certificate chain",
                Some(_) => "client's private key",
            };
            return Err(TlsError::Unpaired { missing });
        }
    };
    config.alpn_protocols = tls.alpn.iter().map(|p| p.clone().into_bytes()).collect();
    config.resumption = Resumption::disabled();
    Ok(config)
}

type Builder<State> = rustls::ConfigBuilder<ClientConfig, State>;

fn trusting(
    builder: Builder<WantsVerifier>,
    tls: &ClientTls,
    provider: Arc<CryptoProvider>,
) -> Result<Builder<rustls::client::WantsClientCert>, TlsError> {
    if tls.insecure {
        let trust = Trust::Any;
        let verifier = Arc::new(Verifier { trust, provider });
        return Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(verifier));
    }
    let trusted = match &tls.roots_pem {
        Some(text) => roots("trusted authorities", text)?,
        None => system_roots()?,
    };
    Ok(builder.with_root_certificates(trusted))
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some stores hold old certificates that cannot be parsed: they are as if not there.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let problem = match found.errors.first() {
        Some(error) => error.to_string(),
        None => "its store is empty".to_owned(),
    };
    Err(TlsError::NoSystemRoots { problem })
}
