//! How a client verifies servers other than by names: by SPIFFE identity, or not at all.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::identity::spiffe_identity;

/// Which server identity a client accepts.
#[derive(Clone, Debug)]
pub enum Expect {
    /// Exactly this SPIFFE identity.
    Exactly(String),
    /// Any identity that the trust anchor issued: the prober reads it afterwards.
    Anyone,
}

/// Which certificates are accepted.
#[derive(Debug)]
pub(crate) enum Trust {
    /// Any, whoever issued it.
    Any,
    /// Those that these roots issued, for the expected identity.
    Spiffe {
        roots: RootCertStore,
        expect: Expect,
    },
}

/// The server must hold its certificate's key in any case.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) trust: Trust,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Trust::Spiffe { roots, expect } = &self.trust {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
            if let Expect::Exactly(identity) = expect
                && spiffe_identity(end_entity).as_ref() != Some(identity)
            {
                return Err(Error::InvalidCertificate(CertificateError::NotValidForName));
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
