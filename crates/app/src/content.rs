//! The content of bodies of any size, generated from a short pattern.

/// Bodies are prebuilt up to this size, in bytes; the rest of longer ones comes from [`Content`].
pub(crate) const PREBUILT_BODY_BYTES: u64 = 256 * 1024;

/// The longest piece, in bytes.
const PIECE_BYTES: u64 = 256 * 1024;

/// A body: a prefix, then digits. Digits are easy to recognize on the wire, and no proxy transforms
/// them.
#[derive(Debug)]
pub(crate) struct Content {
    first: Vec<u8>,
    digits: Vec<u8>,
    bytes: u64,
}

impl Content {
    /// A body of `bytes` in all, `first` included.
    pub(crate) fn new(first: Vec<u8>, bytes: u64) -> Self {
        // Ten more, so that a piece may begin with any digit.
        let digits = bytes.min(PIECE_BYTES) + 10;
        Self {
            first,
            digits: (0..digits).map(|i| b'0' + (i % 10) as u8).collect(),
            bytes,
        }
    }

    /// A message of gRPC (the protocol's specification: a byte for compression, four for the
    /// length) that is a message of protocol buffers of so many bytes: a string, field 1.
    pub(crate) fn grpc(bytes: u32) -> Self {
        let mut first = vec![0];
        first.extend_from_slice(&bytes.to_be_bytes());
        first.extend_from_slice(&string_field(bytes));
        Self::new(first, 5 + u64::from(bytes))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Up to `left` bytes from an offset on; at least one if any is left.
    pub(crate) fn slice(&self, at: u64, left: u64) -> &[u8] {
        if let Some(first) = self.first.get(at as usize..)
            && !first.is_empty()
        {
            return &first[..first.len().min(left as usize)];
        }
        let begin = (at - self.first.len() as u64) as usize % 10;
        let end = begin + left.min(PIECE_BYTES).min(self.digits.len() as u64 - 10) as usize;
        &self.digits[begin..end]
    }

    /// Appends `count` bytes, from an offset on.
    pub(crate) fn append(&self, out: &mut Vec<u8>, at: u64, count: u64) {
        let (mut at, mut left) = (at, count);
        while left > 0 {
            let piece = self.slice(at, left);
            out.extend_from_slice(piece);
            at += piece.len() as u64;
            left -= piece.len() as u64;
        }
    }
}

/// Tag and length of a string, field 1, so that all is so many bytes. Lengths may have more
/// bytes than they need, so that there is one for any size but 1.
fn string_field(bytes: u32) -> Vec<u8> {
    const TAG: u8 = 1 << 3 | 2;
    for length_bytes in 1..=5_u32 {
        let Some(length) = bytes.checked_sub(1 + length_bytes) else {
            break;
        };
        if length_bytes < 5 && length >> (7 * length_bytes) != 0 {
            continue;
        }
        let mut field = vec![TAG];
        field.extend((0..length_bytes).map(|i| {
            let more = if i + 1 < length_bytes { 0x80 } else { 0 };
            ((u64::from(length) >> (7 * i)) as u8 & 0x7f) | more
        }));
        return field;
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(content: &Content) -> Vec<u8> {
        let mut out = Vec::new();
        content.append(&mut out, 0, content.bytes());
        out
    }

    #[test]
    fn digits_repeat_at_any_length() {
        let content = Content::new(Vec::new(), 1_000_003);
        let body = all(&content);
        assert_eq!(body.len(), 1_000_003);
        let right = |(i, byte): (usize, &u8)| *byte == b'0' + (i % 10) as u8;
        assert!(body.iter().enumerate().all(right));
        assert!(content.slice(999_999, 4).starts_with(b"9"));
        assert_eq!(all(&Content::new(Vec::new(), 0)), b"");
    }

    #[test]
    fn large_bodies_use_constant_memory() {
        let content = Content::new(Vec::new(), u64::from(u32::MAX));
        assert!(content.digits.len() < 300_000);
    }

    proptest! {
        #[test]
        fn grpc_messages_are_valid_protocol_buffers(bytes in prop_oneof![2_u32..400, 16_000_u32..17_000]) {
            let message = all(&Content::grpc(bytes));
            prop_assert_eq!(message.len(), 5 + bytes as usize);
            prop_assert_eq!(&message[1..5], bytes.to_be_bytes());
            let (mut length, mut at) = (0_usize, 6);
            loop {
                length |= usize::from(message[at] & 0x7f) << (7 * (at - 6));
                at += 1;
                if message[at - 1] & 0x80 == 0 {
                    break;
                }
            }
            prop_assert_eq!((message[5], at + length), (10, message.len()));
            prop_assert!(message[at..].iter().all(u8::is_ascii_digit));
        }

        #[test]
        fn pieces_add_up_to_the_whole_body(at in 0_u64..40, bytes in 2_u32..200) {
            let content = Content::grpc(bytes);
            let whole = all(&content);
            let at = at.min(content.bytes());
            let mut part = Vec::new();
            content.append(&mut part, at, content.bytes() - at);
            prop_assert_eq!(&part[..], &whole[at as usize..]);
        }
    }
}
