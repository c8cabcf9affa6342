//! What a TLS handshake says of itself on the wire.

use meshtax_model::evidence::Handshake;
use tls_parser::{
    NamedGroup, TlsCipherSuite, TlsExtension, TlsMessage, TlsMessageHandshake,
    parse_tls_extensions, parse_tls_plaintext,
};

/// In TLS 1.3 a request to try again has the form of a ServerHello with this random (RFC 8446, 4.1.3).
const HELLO_RETRY_REQUEST: [u8; 32] = [
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91,
    0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
];

/// The first ServerHello in what a server sent on a connection.
pub(crate) fn server_hello(mut stream: &[u8]) -> Option<Handshake> {
    // Only the first few records can hold it; the rest is ciphertext.
    for _ in 0..4 {
        let (rest, record) = parse_tls_plaintext(stream).ok()?;
        for message in &record.msg {
            if let TlsMessage::Handshake(TlsMessageHandshake::ServerHello(hello)) = message
                && hello.random != HELLO_RETRY_REQUEST
            {
                let extensions = hello
                    .ext
                    .and_then(|bytes| parse_tls_extensions(bytes).ok())
                    .map(|(_, extensions)| extensions)
                    .unwrap_or_default();
                return Some(Handshake {
                    version: version(hello.version.0, &extensions),
                    cipher: cipher(hello.cipher.0),
                    key_exchange_group: group(&extensions),
                });
            }
        }
        stream = rest;
    }
    None
}

/// TLS 1.3 calls itself 1.2 in the header and tells the truth in an extension.
fn version(header: u16, extensions: &[TlsExtension<'_>]) -> String {
    let selected = extensions.iter().find_map(|extension| match extension {
        TlsExtension::SupportedVersions(versions) => versions.first().map(|v| v.0),
        _ => None,
    });
    match selected.unwrap_or(header) {
        0x0304 => "TLS 1.3".into(),
        0x0303 => "TLS 1.2".into(),
        0x0302 => "TLS 1.1".into(),
        0x0301 => "TLS 1.0".into(),
        other => format!("{other:#06x}"),
    }
}

fn cipher(id: u16) -> String {
    TlsCipherSuite::from_id(id).map_or_else(|| format!("{id:#06x}"), |suite| suite.name.to_owned())
}

fn group(extensions: &[TlsExtension<'_>]) -> String {
    let share = extensions.iter().find_map(|extension| match extension {
        TlsExtension::KeyShare(bytes) => bytes.first_chunk::<2>().map(|id| u16::from_be_bytes(*id)),
        _ => None,
    });
    match share {
        None => "unknown".into(),
        // RFC 9863 / draft-ietf-tls-ecdhe-mlkem: not in the parser's table.
        Some(0x11EC) => "X25519MLKEM768".into(),
        Some(0x001D) => "X25519".into(),
        Some(0x0017) => "P-256".into(),
        Some(0x0018) => "P-384".into(),
        Some(id) => format!("{:?}", NamedGroup(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Record, handshake header and body of a ServerHello as TLS 1.3 servers send it.
    fn hello(random: [u8; 32], group: u16) -> Vec<u8> {
        let mut body = vec![0x03, 0x03];
        body.extend(random);
        body.extend([0, 0x13, 0x01, 0]); // no session id, TLS_AES_128_GCM_SHA256, no compression
        let mut extensions = vec![0x00, 0x2B, 0, 2, 0x03, 0x04];
        extensions.extend([0x00, 0x33, 0, 8]);
        extensions.extend(group.to_be_bytes());
        extensions.extend([0, 4, 1, 2, 3, 4]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut record = vec![0x16, 0x03, 0x03];
        record.extend((body.len() as u16 + 4).to_be_bytes());
        record.extend([2, 0, 0, body.len() as u8]);
        record.extend(body);
        record
    }

    #[test]
    fn reads_version_cipher_and_group() {
        let seen = server_hello(&hello([7; 32], 0x001D)).unwrap();
        assert_eq!(seen.version, "TLS 1.3");
        assert_eq!(seen.cipher, "TLS_AES_128_GCM_SHA256");
        assert_eq!(seen.key_exchange_group, "X25519");
    }

    #[test]
    fn skips_a_request_to_try_again() {
        let mut stream = hello(HELLO_RETRY_REQUEST, 0x0017);
        stream.extend(hello([7; 32], 0x11EC));
        assert_eq!(
            server_hello(&stream).unwrap().key_exchange_group,
            "X25519MLKEM768"
        );
    }

    #[test]
    fn plain_http_is_no_handshake() {
        assert_eq!(
            server_hello(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            None
        );
        assert_eq!(server_hello(b""), None);
        assert_eq!(server_hello(&hello([7; 32], 0x001D)[..20]), None);
    }
}
