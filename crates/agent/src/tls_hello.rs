//! Reads the negotiated parameters from a TLS ServerHello.

use meshtax_model::evidence::Handshake;
use rustls::{CipherSuite, NamedGroup};

/// In TLS 1.3 a HelloRetryRequest is a ServerHello with this random (RFC 8446, 4.1.3).
const HELLO_RETRY_REQUEST: [u8; 32] = [
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91,
    0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
];

const HANDSHAKE_RECORD: u8 = 22;
const SERVER_HELLO: u8 = 2;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;

/// Bytes that are read from the front, as TLS has them: big-endian, with lengths before vectors.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of up to four bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        let taken = self.take(bytes)?.iter();
        Some(taken.fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn u16(&mut self) -> Option<u16> {
        self.number(2).map(|number| number as u16)
    }

    /// A vector with a length of this many bytes before it.
    fn vector(&mut self, length_bytes: usize) -> Option<Self> {
        let length = self.number(length_bytes)?;
        self.take(length).map(Self)
    }
}

/// The first ServerHello in the bytes that a server sent on a connection.
pub(crate) fn server_hello(stream: &[u8]) -> Option<Handshake> {
    let mut stream = Bytes(stream);
    // It is in one of the first records; the rest is ciphertext.
    for _ in 0..4 {
        let kind = stream.number(1)?;
        stream.u16()?;
        let mut record = stream.vector(2)?;
        while kind == usize::from(HANDSHAKE_RECORD) {
            let Some(message) = record.number(1) else {
                break;
            };
            let body = record.vector(3)?;
            if message == usize::from(SERVER_HELLO)
                && let Some(handshake) = handshake(body)
            {
                return Some(handshake);
            }
        }
    }
    None
}

/// Of a ServerHello (RFC 8446, 4.1.3); `None` for a HelloRetryRequest.
fn handshake(mut hello: Bytes<'_>) -> Option<Handshake> {
    // In TLS 1.3 the header states 1.2; the real version is in an extension.
    let mut version = hello.u16()?;
    if hello.take(32)? == HELLO_RETRY_REQUEST {
        return None;
    }
    hello.vector(1)?;
    let cipher = hello.u16()?;
    hello.take(1)?;
    let mut group = None;
    // TLS 1.2 may have no extensions at all.
    let mut extensions = hello.vector(2).unwrap_or(Bytes(&[]));
    while let Some(kind) = extensions.u16() {
        let mut content = extensions.vector(2)?;
        match kind {
            SUPPORTED_VERSIONS => version = content.u16()?,
            KEY_SHARE => group = content.u16(),
            _ => {}
        }
    }
    Some(Handshake {
        version: version_name(version),
        cipher: cipher_name(cipher),
        key_exchange_group: group.map_or_else(|| "unknown".into(), group_name),
    })
}

fn version_name(version: u16) -> String {
    match version {
        0x0304 => "TLS 1.3".into(),
        0x0303 => "TLS 1.2".into(),
        0x0302 => "TLS 1.1".into(),
        0x0301 => "TLS 1.0".into(),
        other => format!("{other:#06x}"),
    }
}

/// IANA's name: rustls marks those of TLS 1.3 in its own way.
fn cipher_name(id: u16) -> String {
    match CipherSuite::from(id).as_str() {
        Some(name) => name.replacen("TLS13_", "TLS_", 1),
        None => format!("{id:#06x}"),
    }
}

fn group_name(id: u16) -> String {
    match NamedGroup::from(id) {
        NamedGroup::secp256r1 => "P-256".into(),
        NamedGroup::secp384r1 => "P-384".into(),
        group => group
            .as_str()
            .map_or_else(|| format!("{id:#06x}"), str::to_owned),
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
    fn server_hello_yields_version_cipher_and_group() {
        let seen = server_hello(&hello([7; 32], 0x001D)).unwrap();
        assert_eq!(seen.version, "TLS 1.3");
        assert_eq!(seen.cipher, "TLS_AES_128_GCM_SHA256");
        assert_eq!(seen.key_exchange_group, "X25519");
    }

    #[test]
    fn hello_retry_request_is_skipped() {
        let mut stream = hello(HELLO_RETRY_REQUEST, 0x0017);
        stream.extend(hello([7; 32], 0x11EC));
        assert_eq!(
            server_hello(&stream).unwrap().key_exchange_group,
            "X25519MLKEM768"
        );
    }

    #[test]
    fn plaintext_and_truncated_input_yield_no_handshake() {
        assert_eq!(
            server_hello(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            None
        );
        assert_eq!(server_hello(b""), None);
        assert_eq!(server_hello(&hello([7; 32], 0x001D)[..20]), None);
    }
}
