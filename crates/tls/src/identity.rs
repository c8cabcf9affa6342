//! The workload's identity in a certificate.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The SPIFFE identity in a certificate: its only URI that begins with `spiffe://`.
#[must_use]
pub fn spiffe_identity(certificate: &CertificateDer<'_>) -> Option<String> {
    only(names(certificate), |name| name.starts_with("spiffe://"))
}

/// The workload identity in a certificate: a SPIFFE identity, or else its only DNS name (Linkerd).
#[must_use]
pub fn workload_identity(certificate: &CertificateDer<'_>) -> Option<String> {
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
