//! Frames and header blocks of HTTP/2: however the bytes are split, they are the same.
//!
//! Input: a byte for how the bytes are split, then the bytes of the connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use meshtax_http2::frame::{FrameError, FrameHeader, kind, settings_values, strip_padding};
use meshtax_http2::hpack::{Decoder, HpackError};
use meshtax_http2::reader::{FrameReader, Piece};

/// Headers of one block, together with their overhead, are never more than this.
const MOST_HEADER_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq)]
enum Found {
    Frame(FrameHeader, Vec<u8>),
    Data(FrameHeader, Vec<u8>, bool),
    Headers(Vec<(Vec<u8>, Vec<u8>)>, Option<HpackError>),
}

fn read(bytes: &[u8], piece: usize) -> (Vec<Found>, Option<FrameError>) {
    let mut reader = FrameReader::new(16_384);
    let mut decoder = Decoder::new(4096);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        loop {
            match reader.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(piece)) => add(&mut found, &mut decoder, &piece),
                Err(error) => return (found, Some(error)),
            }
            if let Some(Found::Headers(_, Some(_))) = found.last() {
                // The table is not the peer's any more: a client ends here.
                return (found, None);
            }
        }
        assert!(rest.is_empty(), "all is used before more is asked for");
    }
    (found, None)
}

fn add(found: &mut Vec<Found>, decoder: &mut Decoder, piece: &Piece<'_>) {
    match *piece {
        Piece::Frame { header, payload } => {
            if header.kind == kind::HEADERS {
                let block = strip_padding(&header, payload).expect("bare already");
                let mut headers = Vec::new();
                let mut bytes = 0;
                let decoded = decoder.decode(block, &mut |name, value| {
                    bytes += name.len() + value.len();
                    headers.push((name.to_vec(), value.to_vec()));
                });
                assert!(bytes <= MOST_HEADER_BYTES, "{bytes}");
                found.push(Found::Headers(headers, decoded.err()));
                return;
            }
            if header.kind == kind::SETTINGS {
                assert!(settings_values(payload).is_ok(), "looked at already");
            }
            found.push(Found::Frame(header, payload.to_vec()));
        }
        Piece::Data {
            header,
            bytes,
            first: true,
            last,
        } => found.push(Found::Data(header, bytes.to_vec(), last)),
        Piece::Data { bytes, last, .. } => match found.last_mut() {
            Some(Found::Data(_, body, done)) if !*done => {
                body.extend_from_slice(bytes);
                *done = last;
            }
            other => panic!("a piece of DATA behind {other:?}"),
        },
    }
}

fuzz_target!(|data: &[u8]| {
    let [split, bytes @ ..] = data else {
        return;
    };
    let whole = read(bytes, bytes.len().max(1));
    for piece in [1, usize::from(*split) + 2] {
        assert_eq!(read(bytes, piece), whole, "in pieces of {piece}");
    }
});
