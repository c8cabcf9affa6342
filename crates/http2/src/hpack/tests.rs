use proptest::prelude::*;

use super::table::{ENTRY_BYTES, STATIC};
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
fn integers_match_the_rfc() {
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
fn single_headers_match_the_rfc() {
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
fn requests_match_the_rfc() {
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
fn responses_match_the_rfc() {
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
fn malformed_blocks_are_rejected() {
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
fn a_small_block_cannot_expand_without_limit() {
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
fn a_name_survives_the_eviction_of_its_entry() {
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
    fn literals_round_trip(
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
    fn garbage_never_panics_and_memory_is_bounded(
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
