//! The run's certificate authority. Its key never leaves the lab's memory; leaf keys go only to the
//! lab's private file system, which disappears with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use meshtax_dataplane::Content;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use time::{Duration, OffsetDateTime};

/// Validity of a certificate: longer than any run, so that proxies do not renew theirs during one.
const VALID_FOR: Duration = Duration::hours(24);
/// Some verifiers reject a certificate whose validity starts in the current second, so it is backdated.
const VALID_BEFORE: Duration = Duration::hours(1);

/// Why no certificate could be issued.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The requested certificate cannot be issued.
    #[error("no certificate: {0}")]
    Refused(#[from] rcgen::Error),
}

/// A certificate chain and its private key.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The certificate, PEM.
    pub chain_pem: String,
    /// The private key, PEM (PKCS #8).
    pub key_pem: String,
    /// The private key, DER (PKCS #8).
    pub key_der: Vec<u8>,
    /// A certificate signing request for that key and identity, DER (PKCS #10).
    pub request_der: Vec<u8>,
}

/// A certificate issued for a signing request.
#[derive(Clone, Debug)]
pub struct Signed {
    /// PEM.
    pub pem: String,
    /// DER.
    pub der: Vec<u8>,
    /// End of its validity, in seconds since 1970.
    pub valid_until_unix_s: i64,
}

/// A certificate authority that several servers and their owner share.
pub type SharedAuthority = Arc<Mutex<Authority>>;

/// Why a file has no content.
#[derive(Debug, thiserror::Error)]
#[error("no certificate for {identity}: {source}")]
pub struct ContentError {
    /// For which identity.
    pub identity: String,
    /// The authority's error.
    pub source: AuthorityError,
}

/// A certificate authority for the identities of workloads.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaves: BTreeMap<String, Leaf>,
}

/// A certificate authority of an installed mesh: its own trust anchor, and the key that issues workloads' certificates.
#[derive(Clone)]
pub struct Issuer {
    /// Self-signed, PEM.
    pub certificate_pem: String,
    /// Its private key, PEM (PKCS #8).
    pub key_pem: String,
}

/// Without the key.
impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let certificate_pem = &self.certificate_pem;
        f.debug_struct("Issuer")
            .field("certificate_pem", certificate_pem)
            .finish_non_exhaustive()
    }
}

impl Issuer {
    /// Validity of an installed mesh's authority: what `linkerd install` gives it.
    const VALID_FOR: Duration = Duration::days(365);

    /// With a new key (P-256), for a DNS name.
    ///
    /// # Errors
    /// If the key or the certificate cannot be made.
    pub fn new(name: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        as_authority(&mut params);
        let now = OffsetDateTime::now_utc();
        params.not_before = now - VALID_BEFORE;
        params.not_after = now + Self::VALID_FOR;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn as_authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
}

impl Authority {
    /// The bytes of a file or of an environment variable.
    ///
    /// # Errors
    /// If a certificate cannot be issued.
    pub fn content(&mut self, content: &Content) -> Result<Vec<u8>, ContentError> {
        let mut leaf = |identity: &str| {
            self.leaf(identity).map_err(|source| ContentError {
                identity: identity.to_owned(),
                source,
            })
        };
        Ok(match content {
            Content::Text(text) => text.clone().into_bytes(),
            Content::CertificateChain(identity) => leaf(identity)?.chain_pem.into_bytes(),
            Content::PrivateKey(identity) => leaf(identity)?.key_pem.into_bytes(),
            Content::PrivateKeyDer(identity) => leaf(identity)?.key_der,
            Content::SigningRequest(identity) => leaf(identity)?.request_der,
            Content::TrustAnchor => self.root_pem().into_bytes(),
        })
    }

    /// Creates an authority with a new key. P-256 throughout: one key type for every data plane.
    ///
    /// # Errors
    /// If the key or the certificate cannot be made.
    pub fn new(name: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::OrganizationName, name);
        as_authority(&mut params);
        let issuer = CertifiedIssuer::self_signed(params, key)?;
        Ok(Self {
            issuer,
            leaves: BTreeMap::new(),
        })
    }

    /// The authority's own certificate, PEM.
    #[must_use]
    pub fn root_pem(&self) -> String {
        self.issuer.as_ref().pem()
    }

    /// The identity's certificate, cached after the first call. A `spiffe://` identity
    /// becomes a URI, any other a DNS name.
    ///
    /// # Errors
    /// If the identity is not ASCII, or the key cannot be made.
    pub fn leaf(&mut self, identity: &str) -> Result<Leaf, AuthorityError> {
        if let Some(leaf) = self.leaves.get(identity) {
            return Ok(leaf.clone());
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = vec![alternative_name(identity)?];
        let request_der = params.serialize_request(&key)?.der().to_vec();
        for_a_workload(&mut params);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let leaf = Leaf {
            chain_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            key_der: key.serialize_der(),
            request_der,
        };
        self.leaves.insert(identity.to_owned(), leaf.clone());
        Ok(leaf)
    }

    /// Issues a certificate for the names in a signing request (DER). The requester is not authenticated: only
    /// the run's proxies can reach this authority.
    ///
    /// # Errors
    /// If the request is malformed or its signature is invalid.
    pub fn sign(&self, request_der: &[u8]) -> Result<Signed, AuthorityError> {
        self.certify(CertificateSigningRequestParams::from_der(
            &request_der.into(),
        )?)
    }

    /// As [`Self::sign`], with PEM input.
    ///
    /// # Errors
    /// As [`Self::sign`].
    pub fn sign_pem(&self, request_pem: &str) -> Result<Signed, AuthorityError> {
        self.certify(CertificateSigningRequestParams::from_pem(request_pem)?)
    }

    fn certify(
        &self,
        mut request: CertificateSigningRequestParams,
    ) -> Result<Signed, AuthorityError> {
        let now = OffsetDateTime::now_utc();
        request.params.distinguished_name = rcgen::DistinguishedName::new();
        request.params.not_before = now - VALID_BEFORE;
        request.params.not_after = now + VALID_FOR;
        for_a_workload(&mut request.params);
        let certificate = request.signed_by(&self.issuer)?;
        Ok(Signed {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            valid_until_unix_s: request.params.not_after.unix_timestamp(),
        })
    }
}

fn alternative_name(identity: &str) -> Result<SanType, rcgen::Error> {
    Ok(if identity.starts_with("spiffe://") {
        SanType::URI(identity.try_into()?)
    } else {
        SanType::DnsName(identity.try_into()?)
    })
}

fn for_a_workload(params: &mut CertificateParams) {
    params.is_ca = IsCa::NoCa;
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
}

#[cfg(test)]
pub(crate) mod tests {
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::*;

    use super::*;

    /// The identities in a certificate (PEM).
    pub(crate) fn names(pem: &str) -> Vec<String> {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        let names = certificate.subject_alternative_name().unwrap();
        let names = names.map(|extension| extension.value.general_names.clone());
        names
            .unwrap_or_default()
            .iter()
            .map(|name| match name {
                GeneralName::URI(name) | GeneralName::DNSName(name) => (*name).to_owned(),
                other => format!("{other:?}"),
            })
            .collect()
    }

    const SPIFFE: &str = "spiffe://cluster.local/ns/default/sa/client";
    const DNS: &str = "client.default.serviceaccount.identity.linkerd.cluster.local";

    #[test]
    fn leaf_has_its_identity_and_is_cached() {
        let mut authority = Authority::new("test").unwrap();
        for identity in [SPIFFE, DNS] {
            let leaf = authority.leaf(identity).unwrap();
            assert_eq!(names(&leaf.chain_pem), [identity]);
            assert_eq!(authority.leaf(identity).unwrap().key_pem, leaf.key_pem);
        }
        let other = authority.leaf("spiffe://cluster.local/ns/default/sa/server");
        let first = authority.leaf(SPIFFE).unwrap();
        assert_ne!(other.unwrap().key_pem, first.key_pem);
        assert_eq!(names(&authority.root_pem()), [""; 0]);
    }

    #[test]
    fn signing_request_is_certified_for_its_names_for_one_day() {
        let mut authority = Authority::new("test").unwrap();
        for identity in [SPIFFE, DNS] {
            let request = authority.leaf(identity).unwrap().request_der;
            let signed = authority.sign(&request).unwrap();
            assert_eq!(names(&signed.pem), [identity]);
            let left_s = signed.valid_until_unix_s - OffsetDateTime::now_utc().unix_timestamp();
            assert!((86_390..=86_400).contains(&left_s), "{left_s}");
        }
    }

    #[test]
    fn invalid_signing_request_is_rejected() {
        let mut authority = Authority::new("test").unwrap();
        let mut request = authority.leaf(SPIFFE).unwrap().request_der;
        let last = request.len() - 1;
        request[last] ^= 1;
        // Its signature no longer matches.
        assert!(authority.sign(&request).is_err());
        assert!(authority.sign(b"").is_err());
        assert!(authority.sign_pem("hello").is_err());
        assert!(authority.leaf("n\u{e4}me").is_err());
    }
}
