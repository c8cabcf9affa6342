//! Two peers that share a secret and trust nobody else.
//!
//! The secret is turned into the key of an authority that exists only in the memory of peers that have
//! it. Each end issues itself a certificate and accepts only those of the same authority, so the
//! handshake itself proves the secret without showing it.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ED25519,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use sha2::{Digest as _, Sha256};

use crate::{ClientTls, ServerTls, TlsError};

/// The name in both ends' certificates.
pub const SECRET_NAME: &str = "meshtax-worker";

/// The prefix of an Ed25519 key's 32 bytes in PKCS #8 (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The settings of both ends for a shared secret. The client asks for [`SECRET_NAME`].
///
/// # Errors
/// When a certificate cannot be made.
pub fn secret_tls(secret: &str) -> Result<(ClientTls, ServerTls), TlsError> {
    let made = issue(secret).map_err(|error| TlsError::SelfSigned {
        names: SECRET_NAME.to_owned(),
        problem: error.to_string(),
    })?;
    let client = ClientTls {
        roots_pem: Some(made.authority_pem.clone()),
        chain_pem: Some(made.chain_pem.clone()),
        key_pem: Some(made.key_pem.clone()),
        insecure: false,
        alpn: Vec::new(),
    };
    let server = ServerTls {
        chain_pem: made.chain_pem,
        key_pem: made.key_pem,
        client_roots_pem: Some(made.authority_pem),
        alpn: Vec::new(),
    };
    Ok((client, server))
}

struct Made {
    authority_pem: String,
    chain_pem: String,
    key_pem: String,
}

fn issue(secret: &str) -> Result<Made, rcgen::Error> {
    let mut hash = Sha256::new();
    hash.update(b"meshtax worker secret 1\0");
    hash.update(secret.as_bytes());
    let mut pkcs8 = PKCS8_PREFIX.to_vec();
    pkcs8.extend_from_slice(&hash.finalize());
    let key =
        KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ED25519)?;
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // The same on both ends: an authority is its name and its key.
    authority
        .distinguished_name
        .push(DnType::CommonName, "meshtax shared secret");
    let authority_pem = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);
    let leaf_key = KeyPair::generate()?;
    let mut leaf = CertificateParams::new(vec![SECRET_NAME.to_owned()])?;
    leaf.distinguished_name
        .push(DnType::CommonName, SECRET_NAME);
    let chain_pem = leaf.signed_by(&leaf_key, &issuer)?.pem();
    Ok(Made {
        authority_pem,
        chain_pem,
        key_pem: leaf_key.serialize_pem(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use super::*;
    use crate::{client_config, server_config};

    /// Whether a client with one secret and a server with another come together.
    fn meet(ours: &str, theirs: &str) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = server_config(&secret_tls(theirs).unwrap().1).unwrap();
        let served = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let tls = rustls::ServerConnection::new(Arc::new(server)).unwrap();
            let mut stream = rustls::StreamOwned::new(tls, socket);
            let mut byte = [0];
            stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok()
        });
        let client = client_config(&secret_tls(ours).unwrap().0).unwrap();
        let name = SECRET_NAME.try_into().unwrap();
        let tls = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, TcpStream::connect(address).unwrap());
        let mut byte = [7];
        let heard = stream.write_all(&byte).is_ok() && stream.read_exact(&mut byte).is_ok();
        drop(stream);
        heard && served.join().unwrap()
    }

    #[test]
    fn only_peers_with_the_secret_are_admitted() {
        assert!(meet("open sesame", "open sesame"));
        assert!(!meet("open sesame", "open, sesame"));
        assert!(!meet("", "open sesame"));
    }
}
