//! Certificates and keys from PEM texts.

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;

/// A chain, its key and whom it trusts, PEM.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The end's own certificate first, then those that vouch for it.
    pub chain_pem: String,
    /// The private key of the first certificate.
    pub key_pem: String,
    /// The authorities that peers' certificates must come from.
    pub root_pem: String,
}

impl Credentials {
    /// The certificates of the chain.
    ///
    /// # Errors
    /// When the text is no PEM, or has no certificate.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates("certificate chain", &self.chain_pem)
    }

    /// The private key.
    ///
    /// # Errors
    /// When the text is no PEM, or has no key.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        private_key(&self.key_pem)
    }

    /// The trust anchors.
    ///
    /// # Errors
    /// When the text is no PEM, or has no certificate that can be one.
    pub fn roots(&self) -> Result<RootCertStore, TlsError> {
        roots("trust anchor", &self.root_pem)
    }
}

/// All certificates of a text; at least one.
pub(crate) fn certificates(
    what: &'static str,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |e: pem::Error| TlsError::Pem {
        what,
        problem: e.to_string(),
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    if found.is_empty() {
        let label = "CERTIFICATE";
        return Err(TlsError::Empty { what, label });
    }
    Ok(found)
}

/// The first key of a text.
pub(crate) fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "private key";
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| match e {
        pem::Error::NoItemsFound => TlsError::Empty {
            what,
            label: "PRIVATE KEY",
        },
        e => TlsError::Pem {
            what,
            problem: e.to_string(),
        },
    })
}

/// Trust anchors from a text; at least one.
pub(crate) fn roots(what: &'static str, text: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, text)? {
        roots.add(certificate).map_err(|e| TlsError::Authority {
            what,
            problem: e.to_string(),
        })?;
    }
    Ok(roots)
}
