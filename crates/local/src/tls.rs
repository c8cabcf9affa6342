//! Mutual TLS with SPIFFE identities, shared by the minimal proxy and by the probes.
//!
//! A SPIFFE certificate has no DNS name: who the peer is stands in a URI. So the chain is verified
//! as usual and the name by rules of our own. TLS 1.3 only, as all data planes negotiate.

use std::sync::Arc;

use meshtax_tls::{Credentials, TlsError, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How a client judges the server's identity.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// This SPIFFE identity, exactly.
    Exactly(String),
    /// Any identity that the trust anchor vouches for: the prober reads it afterwards.
    Anyone,
}

/// A client that proves its own identity.
pub(crate) fn client_config(
    credentials: &Credentials,
    expect: Expect,
    alpn: &[String],
    names_server: bool,
) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = SpiffeVerifier {
        roots: credentials.roots()?,
        expect,
        provider: provider.clone(),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(credentials.chain()?, credentials.key()?)?;
    config.alpn_protocols = alpn.iter().map(|p| p.clone().into_bytes()).collect();
    config.enable_sni = names_server;
    // Each connection pays its own handshake, as between Istio's sidecars.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// A server that demands a certificate of its clients. Who they are is for the caller to check.
pub(crate) fn server_config(credentials: &Credentials) -> Result<ServerConfig, TlsError> {
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

/// The SPIFFE identity in a certificate: its only URI that begins with `spiffe://`.
pub(crate) fn spiffe_identity(certificate: &CertificateDer<'_>) -> Option<String> {
    only(names(certificate), |name| name.starts_with("spiffe://"))
}

/// A workload's identity in a certificate: a SPIFFE identity, or else its only DNS name, as Linkerd
/// forms them.
pub(crate) fn workload_identity(certificate: &CertificateDer<'_>) -> Option<String> {
    spiffe_identity(certificate).or_else(|| only(names(certificate), |_| true))
}

fn only(names: Vec<String>, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let mut found = names.into_iter().filter(|name| wanted(name));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// URIs and DNS names.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::URI(name) | GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect()
}

#[derive(Debug)]
struct SpiffeVerifier {
    roots: RootCertStore,
    expect: Expect,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SpiffeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        match &self.expect {
            Expect::Exactly(identity) if spiffe_identity(end_entity).as_ref() != Some(identity) => {
                Err(Error::InvalidCertificate(CertificateError::NotValidForName))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
