//! Header blocks against an implementation that shares nothing with this one.

use httlib_hpack::{Decoder as TheirDecoder, Encoder as TheirEncoder};
use meshtax_http2::hpack::{Decoder, encode_literal};
use proptest::prelude::*;

type Header = (Vec<u8>, Vec<u8>);

/// Few names and values, so that tables are found in and fill up, and all bytes in some values.
fn headers() -> impl Strategy<Value = Vec<(Header, u8)>> {
    let name = prop_oneof![
        "[a-z-]{1,4}",
        Just(":path".to_owned()),
        Just("content-length".to_owned()),
    ];
    let value = prop_oneof![
        "[a-c]{0,2}".prop_map(String::into_bytes),
        "[ -~]{0,90}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..30),
        (100_usize..900).prop_map(|length| vec![b'v'; length]),
    ];
    let header = name.prop_map(String::into_bytes);
    proptest::collection::vec(((header, value), flags()), 0..12)
}

/// How they encode: Huffman's code for either string, remembered, never to be remembered, found.
fn flags() -> impl Strategy<Value = u8> {
    let huffman = 0_u8..4;
    let kept = prop_oneof![
        Just(0),
        Just(TheirEncoder::WITH_INDEXING),
        Just(TheirEncoder::NEVER_INDEXED)
    ];
    let found = prop_oneof![Just(0), Just(TheirEncoder::BEST_FORMAT)];
    (huffman, kept, found).prop_map(|(a, b, c)| a | b | c)
}

fn ours(decoder: &mut Decoder, block: &[u8]) -> Vec<Header> {
    let mut found = Vec::new();
    let outcome = decoder.decode(block, &mut |name, value| {
        found.push((name.to_vec(), value.to_vec()));
    });
    assert_eq!(outcome, Ok(()));
    found
}

proptest! {
    #[test]
    fn blocks_of_another_encoder_are_decoded(
        blocks in proptest::collection::vec((headers(), prop::option::weighted(0.2, 0_u32..4097)), 1..12),
    ) {
        let mut theirs = TheirEncoder::default();
        let mut decoder = Decoder::new(4096);
        for (headers, table_bytes) in blocks {
            let mut block = Vec::new();
            if let Some(bytes) = table_bytes {
                theirs.update_max_dynamic_size(bytes, &mut block).unwrap();
            }
            for ((name, value), flags) in &headers {
                theirs.encode((name.clone(), value.clone(), *flags), &mut block).unwrap();
            }
            let expected: Vec<Header> = headers.into_iter().map(|(header, _)| header).collect();
            prop_assert_eq!(ours(&mut decoder, &block), expected);
        }
    }

    #[test]
    fn our_blocks_are_decoded_by_another_decoder(headers in headers()) {
        let mut block = Vec::new();
        for ((name, value), _) in &headers {
            encode_literal(&mut block, name, value);
        }
        let mut found = Vec::new();
        TheirDecoder::default().decode(&mut block, &mut found).unwrap();
        let found: Vec<Header> = found.into_iter().map(|(name, value, _)| (name, value)).collect();
        let expected: Vec<Header> = headers.into_iter().map(|(header, _)| header).collect();
        prop_assert_eq!(found, expected);
    }
}
