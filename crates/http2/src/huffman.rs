//! The Huffman code of header strings (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: among the codes of a length, the symbols ascend, and each length
//! begins where the one before it ended. So the lengths of appendix B are the whole code.

use crate::error::HpackError;

/// Symbols: all bytes, and the end of string.
const SYMBOLS: usize = 257;

/// The end of string: never to be seen whole, its first bits are the padding.
const EOS: u16 = 256;

/// The longest code, in bits.
const LONGEST: usize = 30;

/// Codes up to this length, and nearly all that occurs, are found in one look.
const SHORT: usize = 9;

/// Appendix B's lengths in bits, as runs of symbols: (symbols, length).
const RUNS: &[(u8, u8)] = &[
    (1, 13),
    (1, 23),
    (7, 28),
    (1, 24),
    (1, 30),
    (2, 28),
    (1, 30),
    (8, 28),
    (1, 30),
    (9, 28),
    // From here printable ASCII: space to slash, digits, colon to at.
    (1, 6),
    (2, 10),
    (1, 12),
    (1, 13),
    (1, 6),
    (1, 8),
    (1, 11),
    (2, 10),
    (1, 8),
    (1, 11),
    (1, 8),
    (3, 6),
    (3, 5),
    (7, 6),
    (1, 7),
    (1, 8),
    (1, 15),
    (1, 6),
    (1, 12),
    (1, 10),
    (1, 13),
    // Upper case and what follows it.
    (1, 6),
    (22, 7),
    (1, 8),
    (1, 7),
    (1, 8),
    (1, 13),
    (1, 19),
    (1, 13),
    (1, 14),
    (1, 6),
    (1, 15),
    // Lower case and what follows it.
    (1, 5),
    (1, 6),
    (1, 5),
    (1, 6),
    (1, 5),
    (3, 6),
    (1, 5),
    (2, 7),
    (3, 6),
    (1, 5),
    (1, 6),
    (1, 7),
    (1, 6),
    (2, 5),
    (1, 6),
    (5, 7),
    (1, 15),
    (1, 11),
    (1, 14),
    (1, 13),
    (1, 28),
    // Beyond ASCII, 128 to 159.
    (1, 20),
    (1, 22),
    (2, 20),
    (3, 22),
    (1, 23),
    (1, 22),
    (5, 23),
    (1, 24),
    (1, 23),
    (2, 24),
    (1, 22),
    (1, 23),
    (1, 24),
    (4, 23),
    (1, 21),
    (1, 22),
    (1, 23),
    (1, 22),
    (2, 23),
    (1, 24),
    // 160 to 191.
    (1, 22),
    (1, 21),
    (1, 20),
    (2, 22),
    (2, 23),
    (1, 21),
    (1, 23),
    (2, 22),
    (1, 24),
    (1, 21),
    (1, 22),
    (2, 23),
    (2, 21),
    (1, 22),
    (1, 21),
    (1, 23),
    (1, 22),
    (2, 23),
    (1, 20),
    (3, 22),
    (1, 23),
    (2, 22),
    (1, 23),
    // 192 to 223.
    (2, 26),
    (1, 20),
    (1, 19),
    (1, 22),
    (1, 23),
    (1, 22),
    (1, 25),
    (3, 26),
    (2, 27),
    (1, 26),
    (1, 24),
    (1, 25),
    (1, 19),
    (1, 21),
    (1, 26),
    (2, 27),
    (1, 26),
    (1, 27),
    (1, 24),
    (2, 21),
    (2, 26),
    (1, 28),
    (3, 27),
    // 224 to 255, and the end of string.
    (1, 20),
    (1, 24),
    (1, 20),
    (1, 21),
    (1, 22),
    (2, 21),
    (1, 23),
    (2, 22),
    (2, 25),
    (2, 24),
    (1, 26),
    (1, 23),
    (1, 26),
    (1, 27),
    (2, 26),
    (5, 27),
    (1, 28),
    (5, 27),
    (1, 26),
    (1, 30),
];

/// The code, worked out by the compiler.
struct Code {
    /// Symbols by length, ascending within a length.
    symbols: [u16; SYMBOLS],
    /// By length: the first code; how many there are; where they begin in `symbols`.
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    offset: [u32; LONGEST + 1],
    /// By the next [`SHORT`] bits: symbol and length, length 0 where the code is longer.
    short: [(u8, u8); 1 << SHORT],
}

static CODE: Code = code();

const fn lengths() -> [u8; SYMBOLS] {
    let mut lengths = [0; SYMBOLS];
    let (mut run, mut symbol) = (0, 0);
    while run < RUNS.len() {
        let (mut left, length) = RUNS[run];
        while left > 0 {
            lengths[symbol] = length;
            symbol += 1;
            left -= 1;
        }
        run += 1;
    }
    assert!(symbol == SYMBOLS, "appendix B has 257 symbols");
    lengths
}

const fn code() -> Code {
    let lengths = lengths();
    let mut code = Code {
        symbols: [0; SYMBOLS],
        first: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        offset: [0; LONGEST + 1],
        short: [(0, 0); 1 << SHORT],
    };
    let (mut length, mut next, mut at) = (1, 0, 0);
    while length <= LONGEST {
        next <<= 1;
        code.first[length] = next;
        code.offset[length] = at as u32;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if lengths[symbol] as usize == length {
                code.symbols[at] = symbol as u16;
                if length <= SHORT {
                    fill(&mut code.short, next, length, symbol as u8);
                }
                at += 1;
                next += 1;
            }
            symbol += 1;
        }
        code.count[length] = next - code.first[length];
        length += 1;
    }
    assert!(next == 1 << LONGEST, "a complete code uses all bits up");
    code
}

/// All looks that begin with this code find its symbol.
const fn fill(short: &mut [(u8, u8); 1 << SHORT], code: u32, length: usize, symbol: u8) {
    let spare = SHORT - length;
    let begin = (code as usize) << spare;
    let mut i = 0;
    while i < 1 << spare {
        short[begin + i] = (symbol, length as u8);
        i += 1;
    }
}

/// Appends the decoded string.
///
/// # Errors
/// When the end of string is in it, or padding that is not the beginning of one.
pub(crate) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    // The next bits are the highest of `bits`; `have` counts those that are of the string.
    let (mut bits, mut have) = (0_u64, 0_usize);
    let mut rest = bytes.iter();
    // The shortest code has five bits.
    out.reserve(bytes.len() * 8 / 5);
    loop {
        while have <= 56 {
            let Some(byte) = rest.next() else {
                break;
            };
            bits |= u64::from(*byte) << (56 - have);
            have += 8;
        }
        let (symbol, length) = CODE.short[(bits >> (64 - SHORT)) as usize];
        let length = usize::from(length);
        if length > 0 && length <= have {
            out.push(symbol);
            bits <<= length;
            have -= length;
            continue;
        }
        if have <= 7 && is_padding(bits, have) {
            return Ok(());
        }
        let (symbol, length) = long(bits).ok_or(HpackError::Huffman)?;
        if length > have || symbol == EOS {
            return Err(HpackError::Huffman);
        }
        out.push(symbol as u8);
        bits <<= length;
        have -= length;
    }
}

/// What is left at the end: the highest bits of the end of string, which are all ones.
fn is_padding(bits: u64, have: usize) -> bool {
    have == 0 || bits >> (64 - have) == (1 << have) - 1
}

/// A code longer than [`SHORT`], by the places of the lengths.
fn long(bits: u64) -> Option<(u16, usize)> {
    (SHORT + 1..=LONGEST).find_map(|length| {
        let code = (bits >> (64 - length)) as u32;
        let place = code.checked_sub(CODE.first[length])?;
        let found = place < CODE.count[length];
        found.then(|| {
            let at = CODE.offset[length] + place;
            (CODE.symbols[at as usize], length)
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The other direction, only to test this one.
    fn encode(text: &[u8]) -> Vec<u8> {
        let lengths = lengths();
        let code = |symbol: usize| {
            let length = usize::from(lengths[symbol]);
            let before = (0..symbol).filter(|s| usize::from(lengths[*s]) == length);
            (CODE.first[length] as usize + before.count(), length)
        };
        let mut bits: Vec<bool> = Vec::new();
        for byte in text {
            let (code, length) = code(usize::from(*byte));
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        }
        let padded = bits.len().next_multiple_of(8);
        bits.resize(padded, true);
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        bits.chunks(8).map(byte).collect()
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    #[test]
    fn strings_of_the_rfc() {
        // Appendix C.4.1 and C.6.1.
        let www = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_eq!(decoded(&www).unwrap(), b"www.example.com");
        assert_eq!(
            decoded(&[0xae, 0xc3, 0x77, 0x1a, 0x4b]).unwrap(),
            b"private"
        );
        // Appendix B: the codes of symbols at the ends of the table.
        assert_eq!(decoded(&[0xff, 0xc7]).unwrap(), b"\0");
        assert_eq!(decoded(&[0xff, 0xff, 0xfb, 0xbf]).unwrap(), [255]);
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xf3]).unwrap(), b"\n");
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        assert_eq!(decoded(&[]).unwrap(), b"");
        // "0" is five zeros: padded with three ones, with zeros, with a byte more.
        assert_eq!(decoded(&[0b0000_0111]).unwrap(), b"0");
        assert!(decoded(&[0b0000_0110]).is_err());
        assert!(decoded(&[0b0000_0111, 0xff]).is_err());
        // The end of string itself.
        assert!(decoded(&[0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(decoded(&[0xff]).is_err());
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decoded(&encode(&text)).unwrap(), text);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(text) = decoded(&bytes) {
                // Only what has one form is taken.
                prop_assert_eq!(encode(&text), bytes);
            }
        }
    }
}
