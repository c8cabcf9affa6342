//! Responses of HTTP/1.1: however the bytes are split, they are the same responses.
//!
//! Input: a byte whose first bit says that the requests are `HEAD`, a byte for how the bytes are
//! split, then the bytes of the connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use meshtax_load::http1::{Progress, ProtocolError, Response, ResponseParser};

/// From this length on, a head without an end is looked at line by line only.
const EAGER_HEAD_BYTES: usize = 4096;

#[derive(Debug, PartialEq)]
struct Read {
    /// With where each ends.
    responses: Vec<(Response, usize)>,
    error: Option<ProtocolError>,
    /// What the connection's end completes.
    at_end: Option<Response>,
}

fn read(bytes: &[u8], piece: usize, is_head: bool) -> Read {
    let mut parser = ResponseParser::new();
    let mut read = Read {
        responses: Vec::new(),
        error: None,
        at_end: None,
    };
    parser.expect_head(is_head);
    let mut at = 0;
    for piece in bytes.chunks(piece) {
        let mut rest = piece;
        // A response's last byte may be a piece's last: what follows it is another call.
        while !rest.is_empty() {
            match parser.feed(rest) {
                Ok(Progress::More) => {
                    at += rest.len();
                    rest = &[];
                }
                Ok(Progress::Complete { response, consumed }) => {
                    assert!(consumed <= rest.len());
                    at += consumed;
                    rest = &rest[consumed..];
                    read.responses.push((response, at));
                }
                Err(error) => {
                    read.error = Some(error);
                    return read;
                }
            }
        }
    }
    read.at_end = parser.end();
    read
}

fuzz_target!(|data: &[u8]| {
    let [first, split, bytes @ ..] = data else {
        return;
    };
    let is_head = first & 1 == 1;
    let whole = read(bytes, bytes.len().max(1), is_head);
    for piece in [1, usize::from(*split) + 2] {
        let pieces = read(bytes, piece, is_head);
        if bytes.len() < EAGER_HEAD_BYTES {
            assert_eq!(pieces, whole, "in pieces of {piece}");
        } else {
            // An error may be seen a line later.
            assert_eq!(pieces.responses, whole.responses, "in pieces of {piece}");
        }
    }
});
