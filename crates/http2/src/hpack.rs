//! Header compression (RFC 7541): what blocks of headers say.
//!
//! The decoder knows all of it. The encoder is for ends that write the same headers over and
//! over: it makes blocks that depend on nothing, so that they are built once and sent often.

use std::collections::VecDeque;

use crate::huffman;

/// The table that both ends begin with, in bytes, whatever SETTINGS say later.
const DEFAULT_TABLE_BYTES: usize = 4096;

/// What an entry counts beyond its name and value, in bytes (RFC 7541, section 4.1).
const ENTRY_BYTES: usize = 32;

/// The headers that one block may stand for, in bytes: a few bytes can name large entries of the
/// table, again and again.
pub const MAX_LIST_BYTES: usize = 256 * 1024;

/// A block that is none. The tables of both ends no longer agree: the connection ends with
/// COMPRESSION_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends within a header.
    #[error("a block of headers ends within a header")]
    Truncated,
    /// A number that no honest peer sends.
    #[error("a number in a block of headers is too large")]
    Integer,
    /// A string that is not in the Huffman code.
    #[error("a header's string is not in the Huffman code")]
    Huffman,
    /// An entry that neither table has.
    #[error("a block of headers names entry {index}, and the tables have {entries}")]
    Index {
        /// Its number.
        index: usize,
        /// How many there are, of both tables.
        entries: usize,
    },
    /// A larger table than was agreed, or a change of it after the first header.
    #[error("a block of headers asks for a table of {bytes} bytes, which it may not")]
    TableSize {
        /// What is asked for, in bytes.
        bytes: usize,
    },
    /// The block stands for more than [`MAX_LIST_BYTES`].
    #[error("a block stands for more than {MAX_LIST_BYTES} bytes of headers")]
    ListTooLarge,
}

/// Decodes the blocks of one direction of a connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The largest table that the peer may ask for, in bytes.
    max_table_bytes: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// `max_table_bytes`: what this end's SETTINGS_HEADER_TABLE_SIZE says, 4,096 when it says
    /// nothing. The table begins with 4,096 bytes in any case, until the peer changes it
    /// (RFC 7541, section 4.2).
    #[must_use]
    pub fn new(max_table_bytes: usize) -> Self {
        Self {
            table: Table {
                entries: VecDeque::new(),
                spare: Vec::new(),
                bytes: 0,
                max_bytes: DEFAULT_TABLE_BYTES,
            },
            max_table_bytes: max_table_bytes.max(DEFAULT_TABLE_BYTES),
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Decodes a whole block; `each` gets name and value of every header in turn.
    ///
    /// # Errors
    /// When the block is none. Headers before the fault were handed out already.
    pub fn decode(
        &mut self,
        block: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let mut rest = block;
        let (mut list_bytes, mut size_may_change) = (0, true);
        while let Some(first) = rest.first().copied() {
            // RFC 7541, section 6: what the highest bits say, from the most to the fewest.
            let handed_out = if first & 0x80 != 0 {
                self.indexed(&mut rest, each)?
            } else if first & 0xc0 == 0x40 {
                self.remembered(&mut rest, each)?
            } else if first & 0xe0 == 0x20 {
                self.resize(&mut rest, size_may_change)?;
                continue;
            } else {
                self.literal(&mut rest, each)?
            };
            size_may_change = false;
            list_bytes += handed_out + ENTRY_BYTES;
            if list_bytes > MAX_LIST_BYTES {
                return Err(HpackError::ListTooLarge);
            }
        }
        Ok(())
    }

    /// Section 6.1: name and value are those of an entry.
    fn indexed(
        &self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, HpackError> {
        let (name, value) = self.table.get(integer(rest, 7)?)?;
        each(name, value);
        Ok(name.len() + value.len())
    }

    /// Section 6.2.1: a header, and from now on an entry.
    fn remembered(
        &mut self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, HpackError> {
        let index = integer(rest, 6)?;
        // The name's entry may be the one that has to go, so it is copied first.
        let mut entry = self.table.spare.pop().unwrap_or_default();
        match index {
            0 => {
                let name = string(rest, &mut self.name)?;
                entry.bytes.extend_from_slice(name);
            }
            _ => entry.bytes.extend_from_slice(self.table.get(index)?.0),
        }
        entry.name_bytes = entry.bytes.len();
        entry
            .bytes
            .extend_from_slice(string(rest, &mut self.value)?);
        let (name, value) = entry.parts();
        each(name, value);
        let bytes = entry.bytes.len();
        self.table.insert(entry);
        Ok(bytes)
    }

    /// Sections 6.2.2 and 6.2.3: a header that leaves no trace.
    fn literal(
        &mut self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, HpackError> {
        let name = match integer(rest, 4)? {
            0 => string(rest, &mut self.name)?,
            index => self.table.get(index)?.0,
        };
        let value = string(rest, &mut self.value)?;
        each(name, value);
        Ok(name.len() + value.len())
    }

    /// Section 6.3, and where section 4.2 allows it.
    fn resize(&mut self, rest: &mut &[u8], may_change: bool) -> Result<(), HpackError> {
        let bytes = integer(rest, 5)?;
        if !may_change || bytes > self.max_table_bytes {
            return Err(HpackError::TableSize { bytes });
        }
        self.table.max_bytes = bytes;
        self.table.make_room(0);
        Ok(())
    }
}

/// The static table, and behind it the dynamic one with the newest entry first.
#[derive(Debug)]
struct Table {
    entries: VecDeque<Entry>,
    /// Entries that had to go: their memory is used again.
    spare: Vec<Entry>,
    bytes: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Entry {
    /// The name, and behind it the value.
    bytes: Vec<u8>,
    name_bytes: usize,
}

impl Entry {
    fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.name_bytes)
    }
}

/// Entries that are kept for use again. What is evicted beyond them is freed.
const MAX_SPARE: usize = 16;

impl Table {
    fn get(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|i| STATIC.get(i)) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let dynamic = index.checked_sub(STATIC.len() + 1);
        let entry = dynamic.and_then(|i| self.entries.get(i));
        entry.map(Entry::parts).ok_or(HpackError::Index {
            index,
            entries: STATIC.len() + self.entries.len(),
        })
    }

    fn insert(&mut self, entry: Entry) {
        let bytes = entry.bytes.len() + ENTRY_BYTES;
        self.make_room(bytes);
        // Larger than the whole table: it was emptied, and that is no error (section 4.4).
        if bytes <= self.max_bytes {
            self.bytes += bytes;
            self.entries.push_front(entry);
        }
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.max_bytes {
            let Some(mut oldest) = self.entries.pop_back() else {
                return;
            };
            self.bytes -= oldest.bytes.len() + ENTRY_BYTES;
            if self.spare.len() < MAX_SPARE {
                oldest.bytes.clear();
                self.spare.push(oldest);
            }
        }
    }
}

/// A number whose beginning is in the lowest `bits` bits (RFC 7541, section 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, HpackError> {
    let (first, others) = rest.split_first().ok_or(HpackError::Truncated)?;
    *rest = others;
    let most = (1_u8 << bits) - 1;
    let mut value = u32::from(first & most);
    if value < u32::from(most) {
        return Ok(value as usize);
    }
    // Four bytes more are 28 bits: beyond all that can be sent.
    for shift in [0, 7, 14, 21] {
        let (next, others) = rest.split_first().ok_or(HpackError::Truncated)?;
        *rest = others;
        value += u32::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(value as usize);
        }
    }
    Err(HpackError::Integer)
}

/// A string (RFC 7541, section 5.2): as it stands in the block, or decoded into `scratch`.
fn string<'s, 'i: 's>(
    rest: &mut &'i [u8],
    scratch: &'s mut Vec<u8>,
) -> Result<&'s [u8], HpackError> {
    let huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(rest, 7)?;
    let (bytes, others) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *rest = others;
    if !huffman {
        return Ok(bytes);
    }
    scratch.clear();
    huffman::decode(bytes, scratch)?;
    Ok(scratch)
}

/// Appends a header to a block: by its number if the static table has it, otherwise as it is,
/// without a trace in the peer's table and without Huffman's code. `name` is to be in lower case
/// (RFC 9113, section 8.2).
pub fn encode_literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut of_name = 0;
    for (at, (known, known_value)) in STATIC.iter().enumerate() {
        if known.as_bytes() == name {
            if known_value.as_bytes() == value {
                return encode_integer(out, 0x80, 7, at + 1);
            }
            if of_name == 0 {
                of_name = at + 1;
            }
        }
    }
    encode_integer(out, 0, 4, of_name);
    if of_name == 0 {
        encode_string(out, name);
    }
    encode_string(out, value);
}

fn encode_string(out: &mut Vec<u8>, text: &[u8]) {
    encode_integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// A number behind the bits of `pattern` (RFC 7541, section 5.1).
fn encode_integer(out: &mut Vec<u8>, pattern: u8, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// RFC 7541, appendix A. The first entry has the number 1.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Headers = Vec<(String, String)>;

    /// A block in hexadecimal, its headers, and the table's bytes after it.
    type Example<'a> = (&'a str, &'a [(&'a str, &'a str)], usize);

    fn try_decode(decoder: &mut Decoder, block: &[u8]) -> Result<Headers, HpackError> {
        let mut headers = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        decoder.decode(block, &mut |name, value| {
            headers.push((text(name), text(value)));
        })?;
        Ok(headers)
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<_> = hex.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| {
            let text: String = pair.iter().collect();
            u8::from_str_radix(&text, 16).unwrap()
        };
        digits.chunks(2).map(byte).collect()
    }

    /// Blocks in their order, each with the headers and the table's size that the RFC gives.
    fn example(table_bytes: usize, blocks: &[Example<'_>]) {
        let mut decoder = Decoder::new(4096);
        decoder.table.max_bytes = table_bytes;
        for (block, headers, size) in blocks {
            let expected: Headers = headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            assert_eq!(try_decode(&mut decoder, &bytes(block)).unwrap(), expected);
            assert_eq!(decoder.table.bytes, *size, "after {block}");
        }
    }

    #[test]
    fn numbers_of_the_rfc() {
        // Appendix C.1.
        for (value, expected) in [(10, &[10][..]), (1337, &[31, 154, 10])] {
            let mut out = Vec::new();
            encode_integer(&mut out, 0, 5, value);
            assert_eq!(out, expected);
            assert_eq!(integer(&mut &out[..], 5), Ok(value));
        }
        assert_eq!(integer(&mut &[31, 154][..], 5), Err(HpackError::Truncated));
        let endless = [0xff; 9];
        assert_eq!(integer(&mut &endless[..], 5), Err(HpackError::Integer));
    }

    const FIRST: &[(&str, &str)] = &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
    ];
    const SECOND: &[(&str, &str)] = &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ];
    const THIRD: &[(&str, &str)] = &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ];

    #[test]
    fn single_headers_of_the_rfc() {
        // Appendix C.2: remembered, not remembered, never to be, from the static table.
        let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
        example(4096, &[(custom, &[("custom-key", "custom-header")], 55)]);
        let path = "040c 2f73 616d 706c 652f 7061 7468";
        example(4096, &[(path, &[(":path", "/sample/path")], 0)]);
        let password = "1008 7061 7373 776f 7264 0673 6563 7265 74";
        example(4096, &[(password, &[("password", "secret")], 0)]);
        example(4096, &[("82", &[(":method", "GET")], 0)]);
    }

    #[test]
    fn requests_of_the_rfc() {
        // Appendix C.3, as it is.
        example(
            4096,
            &[
                (
                    "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                    FIRST,
                    57,
                ),
                ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND, 110),
                (
                    "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                    THIRD,
                    164,
                ),
            ],
        );
        // Appendix C.4, with Huffman's code.
        example(
            4096,
            &[
                ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST, 57),
                ("8286 84be 5886 a8eb 1064 9cbf", SECOND, 110),
                (
                    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                    THIRD,
                    164,
                ),
            ],
        );
    }

    #[test]
    fn answers_of_the_rfc() {
        let headers = |status, date| {
            [
                (":status", status),
                ("cache-control", "private"),
                ("date", date),
                ("location", "https://www.example.com"),
            ]
        };
        let (early, late) = (
            "Mon, 21 Oct 2013 20:13:21 GMT",
            "Mon, 21 Oct 2013 20:13:22 GMT",
        );
        let (first, second) = (headers("302", early), headers("307", early));
        let mut third = headers("200", late).to_vec();
        third.push(("content-encoding", "gzip"));
        let cookie = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        third.push(("set-cookie", cookie));
        // Appendix C.5: a table of 256 bytes, so that entries have to go.
        let date = "4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32";
        let text = "6874 7470 733a 2f2f 7777 772e 6578 616d 706c 652e 636f 6d";
        let one = format!("4803 3330 3258 0770 7269 7661 7465 611d {date}31 2047 4d54 6e17 {text}");
        let three = format!(
            "88c1 611d {date}32 2047 4d54 c05a 0467 7a69 7077 38
             666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b
             206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31"
        );
        example(
            256,
            &[
                (&one, &first, 222),
                ("4803 3330 37c1 c0bf", &second, 222),
                (&three, &third, 215),
            ],
        );
        // Appendix C.6: the same with Huffman's code.
        example(
            256,
            &[
                (
                    "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81
                     66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                    &first,
                    222,
                ),
                ("4883 640e ffc1 c0bf", &second, 222),
                (
                    "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a
                     839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36
                     72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                    &third,
                    215,
                ),
            ],
        );
    }

    #[test]
    fn what_is_no_block() {
        let decode = |block: &[u8]| try_decode(&mut Decoder::new(0), block);
        assert_eq!(decode(&[]), Ok(Vec::new()));
        let missing = |index| HpackError::Index { index, entries: 61 };
        assert_eq!(decode(&[0x80]), Err(missing(0)));
        assert_eq!(decode(&[0x80 | 62]), Err(missing(62)));
        assert_eq!(decode(&[0x04, 5, b'a']), Err(HpackError::Truncated));
        assert_eq!(decode(&[0x04, 0x81, 0]), Err(HpackError::Huffman));
        // A table beyond what was agreed, and one that changes after a header.
        let larger = decode(&[0x3f, 0xe2, 0x1f]);
        assert_eq!(larger, Err(HpackError::TableSize { bytes: 4097 }));
        let late = decode(&[0x82, 0x20]);
        assert_eq!(late, Err(HpackError::TableSize { bytes: 0 }));
        assert_eq!(decode(&[0x20, 0x3f, 0xe1, 0x1f, 0x82]).unwrap().len(), 1);
    }

    #[test]
    fn a_few_bytes_cannot_stand_for_endless_headers() {
        let mut decoder = Decoder::new(4096);
        let mut block = vec![0x40, 1, b'a'];
        encode_string(&mut block, &[b'b'; 3000]);
        block.extend([0x80 | 62; 200]);
        let mut count = 0;
        let outcome = decoder.decode(&block, &mut |_, _| count += 1);
        assert_eq!((outcome, count), (Err(HpackError::ListTooLarge), 87));
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut decoder = Decoder::new(4096);
        let mut block = vec![0x40, 1, b'a', 1, b'b', 0x40, 1, b'a'];
        encode_string(&mut block, &[b'b'; 5000]);
        assert_eq!(try_decode(&mut decoder, &block).unwrap().len(), 2);
        assert_eq!((decoder.table.bytes, decoder.table.entries.len()), (0, 0));
    }

    #[test]
    fn an_entrys_name_survives_its_end() {
        // The only entry is named, and has to go for the one that is named after it.
        let mut decoder = Decoder::new(4096);
        let mut block = vec![
            0x20 | 31,
            9,
            0x40,
            1,
            b'n',
            1,
            b'v',
            0x40 | 62,
            2,
            b'w',
            b'w',
        ];
        block.push(0x80 | 62);
        let headers = try_decode(&mut decoder, &block).unwrap();
        assert_eq!(headers[1], ("n".to_owned(), "ww".to_owned()));
        assert_eq!(headers[2], headers[1]);
        assert_eq!(decoder.table.entries.len(), 1);
    }

    proptest! {
        #[test]
        fn literals_come_back(
            headers in proptest::collection::vec(("[a-z:-]{0,12}", "[ -~]{0,300}"), 0..20),
            known in proptest::sample::subsequence(&STATIC[..], 0..10),
        ) {
            let known = known.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            let headers: Headers = known.chain(headers).collect();
            let mut block = Vec::new();
            for (name, value) in &headers {
                encode_literal(&mut block, name.as_bytes(), value.as_bytes());
            }
            let mut decoder = Decoder::new(0);
            prop_assert_eq!(try_decode(&mut decoder, &block).unwrap(), headers);
            prop_assert_eq!(decoder.table.bytes, 0);
        }

        #[test]
        fn garbage_never_panics_and_never_fills_memory(
            blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..8),
        ) {
            let mut decoder = Decoder::new(4096);
            for block in blocks {
                let mut total = 0;
                let _ = decoder.decode(&block, &mut |n, v| total += n.len() + v.len());
                prop_assert!(total <= 2 * MAX_LIST_BYTES);
                let held = decoder.table.entries.iter().map(|e| e.bytes.len() + ENTRY_BYTES);
                prop_assert_eq!(held.sum::<usize>(), decoder.table.bytes);
                prop_assert!(decoder.table.bytes <= 4096);
            }
        }
    }
}
