//! TLS 1.3 records after the handshake (RFC 8446, section 5), sealed and opened where they are: no copy is made.

use std::io;
use std::ops::Range;

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, MAX_TAG_LEN,
    NONCE_LEN, Nonce, UnboundKey,
};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};

/// The length of a record's header.
pub(crate) const HEADER: usize = 5;
/// The most plaintext in a record.
pub(crate) const MAX_PLAIN: usize = 1 << 14;
/// What follows the plaintext: its content type, and the tag.
pub(crate) const TRAILER: usize = 1 + MAX_TAG_LEN;

const VERSION: [u8; 2] = [3, 3];
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const NEW_SESSION_TICKET: u8 = 4;
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// AES-GCM may protect 2^24.5 records with one key, and this proxy does not renew keys.
const RECORDS_MAX: u64 = 1 << 24;

/// Protection of both directions of a connection.
pub(crate) struct Records {
    outgoing: Direction,
    incoming: Direction,
}

struct Direction {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

/// What a record contained.
pub(crate) enum Content {
    /// Plaintext, at these places of the record.
    Data(Range<usize>),
    /// Data of no length.
    Marker,
    /// The peer sends nothing more.
    Close,
    /// Nothing for this proxy.
    Ignored,
}

impl Records {
    pub(crate) fn new(secrets: &ExtractedSecrets) -> io::Result<Self> {
        Ok(Self {
            outgoing: Direction::new(&secrets.tx)?,
            incoming: Direction::new(&secrets.rx)?,
        })
    }

    /// Makes a record of `record[HEADER..HEADER + length]`; [`TRAILER`] more bytes follow it.
    pub(crate) fn seal(&mut self, record: &mut [u8], length: usize) -> io::Result<usize> {
        self.outgoing.seal(record, length, DATA)
    }

    /// A record of data of no length.
    pub(crate) fn marker(&mut self) -> io::Result<Vec<u8>> {
        let mut record = vec![0; HEADER + TRAILER];
        self.outgoing.seal(&mut record, 0, DATA)?;
        Ok(record)
    }

    /// The alert that nothing more is sent.
    pub(crate) fn close(&mut self) -> io::Result<Vec<u8>> {
        let mut record = vec![0; HEADER + CLOSE_NOTIFY.len() + TRAILER];
        record[HEADER..HEADER + CLOSE_NOTIFY.len()].copy_from_slice(&CLOSE_NOTIFY);
        self.outgoing.seal(&mut record, CLOSE_NOTIFY.len(), ALERT)?;
        Ok(record)
    }

    /// Opens a whole record.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> io::Result<Content> {
        let (header, body) = record.split_at_mut(HEADER);
        if header[0] != DATA {
            return Err(refused("a record is not protected"));
        }
        let nonce = self.incoming.nonce()?;
        let plain = self
            .incoming
            .key
            .open_in_place(nonce, Aad::from(&*header), body)
            .map_err(|_| refused("a record is not authentic"))?;
        // Zeros may follow the content type.
        let Some(end) = plain.iter().rposition(|byte| *byte != 0) else {
            return Err(refused("a record has no content type"));
        };
        match (plain[end], &plain[..end]) {
            (DATA, []) => Ok(Content::Marker),
            (DATA, _) => Ok(Content::Data(HEADER..HEADER + end)),
            (ALERT, alert) if alert.get(1) == Some(&CLOSE_NOTIFY[1]) => Ok(Content::Close),
            (HANDSHAKE, [NEW_SESSION_TICKET, ..]) => Ok(Content::Ignored),
            _ => Err(refused("the peer sent an alert, or renews its keys")),
        }
    }
}

impl Direction {
    fn new((sequence, secrets): &(u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(refused("the cipher is unknown")),
        };
        Self::with(*sequence, algorithm, key.as_ref(), iv.as_ref())
    }

    fn with(
        sequence: u64,
        algorithm: &'static Algorithm,
        key: &[u8],
        iv: &[u8],
    ) -> io::Result<Self> {
        let key =
            UnboundKey::new(algorithm, key).map_err(|_| refused("a key has another length"))?;
        let iv = iv.try_into();
        Ok(Self {
            key: LessSafeKey::new(key),
            iv: iv.map_err(|_| refused("an IV has another length"))?,
            sequence,
        })
    }

    fn nonce(&mut self) -> io::Result<Nonce> {
        if self.sequence >= RECORDS_MAX {
            return Err(refused("a key has protected too many records"));
        }
        let mut nonce = self.iv;
        let sequence = self.sequence.to_be_bytes();
        for (byte, number) in nonce[NONCE_LEN - sequence.len()..].iter_mut().zip(sequence) {
            *byte ^= number;
        }
        self.sequence += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    fn seal(&mut self, record: &mut [u8], length: usize, content: u8) -> io::Result<usize> {
        let whole = HEADER + length + TRAILER;
        let (header, body) = record[..whole].split_at_mut(HEADER);
        let (plain, tag_place) = body.split_at_mut(length + 1);
        header[0] = DATA;
        header[1..3].copy_from_slice(&VERSION);
        header[3..].copy_from_slice(&((length + TRAILER) as u16).to_be_bytes());
        plain[length] = content;
        let nonce = self.nonce()?;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*header), plain)
            .map_err(|_| refused("a record is too long"))?;
        tag_place.copy_from_slice(tag.as_ref());
        Ok(whole)
    }
}

/// The length of the record at the beginning of `bytes`; `None`: it is not complete.
///
/// # Errors
/// If it is no record, such as plain HTTP.
pub(crate) fn complete(bytes: &[u8]) -> io::Result<Option<usize>> {
    const CHANGE_CIPHER_SPEC: u8 = 20;
    /// RFC 8446, section 5.2: what protection may add.
    const EXPANSION: usize = 256;
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let is_record = (CHANGE_CIPHER_SPEC..=DATA).contains(&header[0]) && header[1] == VERSION[0];
    if !is_record || length > MAX_PLAIN + EXPANSION {
        return Err(refused("this is not TLS"));
    }
    Ok((bytes.len() >= HEADER + length).then_some(HEADER + length))
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8448, section 3: the client's application traffic keys.
    const KEY: [u8; 16] = [
        0x17, 0x42, 0x2d, 0xda, 0x59, 0x6e, 0xd5, 0xd9, 0xac, 0xd8, 0x90, 0xe3, 0xc6, 0x3f, 0x50,
        0x51,
    ];
    const IV: [u8; NONCE_LEN] = [
        0x5b, 0x78, 0x92, 0x3d, 0xee, 0x08, 0x57, 0x90, 0x33, 0xe5, 0x23, 0xd9,
    ];
    /// There: the client's first record, of the bytes 0 to 49.
    const SEALED: [u8; 72] = [
        0x17, 0x03, 0x03, 0x00, 0x43, 0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa,
        0xfe, 0x82, 0x28, 0xba, 0x55, 0xcb, 0xef, 0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc,
        0xab, 0x3f, 0x2b, 0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b, 0x39, 0x5b, 0xd5, 0x4a, 0x9a, 0x20,
        0x44, 0x1e, 0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2, 0x97, 0x70, 0x14, 0xbd,
        0x1e, 0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4,
    ];

    fn records() -> Records {
        let direction = || Direction::with(0, &AES_128_GCM, &KEY, &IV).unwrap();
        Records {
            outgoing: direction(),
            incoming: direction(),
        }
    }

    #[test]
    fn records_are_those_of_the_published_trace() {
        let mut record = [0; SEALED.len()];
        for (place, byte) in record[HEADER..].iter_mut().zip(0..50) {
            *place = byte;
        }
        let mut ends = records();
        assert_eq!(ends.seal(&mut record, 50).unwrap(), SEALED.len());
        assert_eq!(record, SEALED);
        assert_eq!(complete(&record).unwrap(), Some(SEALED.len()));
        assert_eq!(complete(&record[..SEALED.len() - 1]).unwrap(), None);
        assert!(complete(b"GET / HTTP/1.1").is_err());
        let Content::Data(plain) = ends.open(&mut record).unwrap() else {
            panic!("no data");
        };
        assert!(record[plain].iter().copied().eq(0..50));
    }

    #[test]
    fn changed_and_repeated_records_are_refused() {
        for place in [0, HEADER, SEALED.len() - 1] {
            let mut record = SEALED;
            record[place] ^= 1;
            assert!(records().open(&mut record).is_err(), "{place}");
        }
        let mut ends = records();
        assert!(ends.open(&mut SEALED.clone()).is_ok());
        assert!(ends.open(&mut SEALED.clone()).is_err());
    }

    #[test]
    fn markers_and_the_end_are_told_apart() {
        let mut ends = records();
        let (mut marker, mut close) = (ends.marker().unwrap(), ends.close().unwrap());
        assert!(matches!(ends.open(&mut marker), Ok(Content::Marker)));
        assert!(matches!(ends.open(&mut close), Ok(Content::Close)));
    }

    #[test]
    fn key_is_not_used_beyond_its_limit() {
        let mut worn = Direction::with(RECORDS_MAX - 1, &AES_128_GCM, &KEY, &IV).unwrap();
        assert!(worn.nonce().is_ok() && worn.nonce().is_err());
    }
}
