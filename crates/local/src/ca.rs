//! The run's certificate authority. Its key never leaves the lab's memory; leaf keys go only to the
//! lab's private file system, which disappears with it.

use std::collections::BTreeMap;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};

/// A certificate chain and its private key, PEM.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) chain_pem: String,
    pub(crate) key_pem: String,
}

/// A certificate authority for SPIFFE identities.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaves: BTreeMap<String, Leaf>,
}

impl Authority {
    /// A new authority with a key of its own. P-256 for all: one key type for every data plane.
    pub(crate) fn new(name: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::OrganizationName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, key)?;
        Ok(Self {
            issuer,
            leaves: BTreeMap::new(),
        })
    }

    /// The authority's own certificate, PEM.
    pub(crate) fn root_pem(&self) -> String {
        self.issuer.as_ref().pem()
    }

    /// The identity's certificate; the same one each time it is asked for.
    pub(crate) fn leaf(&mut self, identity: &str) -> Result<Leaf, rcgen::Error> {
        if let Some(leaf) = self.leaves.get(identity) {
            return Ok(leaf.clone());
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(identity.try_into()?)];
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let leaf = Leaf {
            chain_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        };
        self.leaves.insert(identity.to_owned(), leaf.clone());
        Ok(leaf)
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::tls::spiffe_identity;

    #[test]
    fn a_leaf_carries_its_identity_and_is_made_once() {
        let mut authority = Authority::new("test").unwrap();
        let identity = "spiffe://cluster.local/ns/default/sa/client";
        let leaf = authority.leaf(identity).unwrap();
        let certificate = CertificateDer::from_pem_slice(leaf.chain_pem.as_bytes()).unwrap();
        assert_eq!(spiffe_identity(&certificate).as_deref(), Some(identity));
        assert_eq!(authority.leaf(identity).unwrap().key_pem, leaf.key_pem);
        let other = authority
            .leaf("spiffe://cluster.local/ns/default/sa/server")
            .unwrap();
        assert_ne!(other.key_pem, leaf.key_pem);
        let root = CertificateDer::from_pem_slice(authority.root_pem().as_bytes()).unwrap();
        assert_eq!(spiffe_identity(&root), None);
    }
}
