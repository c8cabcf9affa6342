//! Digests: what a registry calls content by.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of some content, written `sha256:` and 64 lower-case hexadecimal digits
/// (OCI image specification, *Content Descriptors*, Digests).
///
/// Registries may name content by SHA-512 too. None of the images that meshtax is for does, so such a name is an
/// error and not a second code path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a file's content.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let mut hasher = Hasher::default();
        hasher.read_all(&mut File::open(path)?)?;
        Ok(hasher.digest())
    }

    /// The 64 hexadecimal digits, without the algorithm.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no digest\n  fix: write `sha256:` and 64 lower-case hexadecimal digits")]
pub struct DigestError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = text.strip_prefix("sha256:").map(str::as_bytes);
        digits
            .and_then(bytes_of_hex)
            .map(Self)
            .ok_or_else(|| DigestError {
                text: text.to_owned(),
            })
    }
}

fn bytes_of_hex(digits: &[u8]) -> Option<[u8; 32]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The digest of content that arrives in pieces.
#[derive(Clone, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Takes in everything up to the reader's end, and returns the number of bytes.
    pub(crate) fn read_all(&mut self, reader: &mut impl Read) -> io::Result<u64> {
        let mut buffer = vec![0; 1 << 18];
        let mut total = 0;
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(total),
                Ok(length) => {
                    self.update(&buffer[..length]);
                    total += length as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    pub(crate) fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_written_as_it_is_read() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of(b"")));
    }

    #[test]
    fn other_texts_are_rejected_with_a_fix() {
        let upper = format!("sha256:{}", "A".repeat(64));
        let long = format!("sha256:{}", "a".repeat(65));
        let sha512 = format!("sha512:{}", "a".repeat(128));
        for text in ["", "sha256:", "e3b0", &upper, &long, &sha512] {
            let error = text.parse::<Digest>().unwrap_err().to_string();
            assert!(error.contains("fix:") && error.contains(text), "{error}");
        }
    }
}
