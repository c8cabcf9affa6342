use proptest::prelude::*;

use super::*;
use crate::spec::Request;

/// All responses in the bytes, fed in pieces of these sizes (cyclically).
fn parse(
    bytes: &[u8],
    pieces: &[usize],
) -> Result<(Vec<Response>, Option<Response>), ProtocolError> {
    let mut parser = ResponseParser::new();
    let (mut responses, mut at, mut turn) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let piece = pieces[turn % pieces.len()].max(1);
        turn += 1;
        let end = (at + piece).min(bytes.len());
        while at < end {
            match parser.feed(&bytes[at..end])? {
                Progress::More => at = end,
                Progress::Complete { response, consumed } => {
                    at += consumed;
                    responses.push(response);
                }
            }
        }
    }
    Ok((responses, parser.end()))
}

fn one(text: &str) -> Response {
    let (responses, rest) = parse(text.as_bytes(), &[usize::MAX >> 1]).unwrap();
    assert_eq!((responses.len(), rest), (1, None), "{text}");
    responses[0]
}

fn response(status: u16, keep_alive: bool) -> Response {
    Response { status, keep_alive }
}

#[test]
fn content_length_and_connection_are_interpreted() {
    assert_eq!(
        one("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        response(200, true)
    );
    assert_eq!(
        one("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok"),
        response(200, true)
    );
    assert_eq!(one("HTTP/1.1 204 No Content\r\n\r\n"), response(204, true));
    assert_eq!(
        one("HTTP/1.1 304 N\r\ncontent-length: 9\r\n\r\n"),
        response(304, true)
    );
    assert_eq!(
        one("HTTP/1.1 500 E\r\nconnection: Foo, Close\r\ncontent-length: 0\r\n\r\n"),
        response(500, false)
    );
    assert_eq!(
        one("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx"),
        response(200, false)
    );
    assert_eq!(
        one("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx"),
        response(200, true)
    );
}

#[test]
fn chunked_bodies_with_extensions_and_trailers_are_skipped() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n";
    assert_eq!(one(&format!("{head}0\r\n\r\n")), response(200, true));
    assert_eq!(
        one(&format!(
            "{head}3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nx: y\r\n\r\n"
        )),
        response(200, true)
    );
    for bad in [
        "\r\n",
        "g\r\n",
        "3\r\nabcd\r\n",
        "3\nabc",
        "1000000000000000\r\n",
        "0\r\n\rx",
    ] {
        let text = format!("{head}{bad}");
        assert_eq!(
            parse(text.as_bytes(), &[1]),
            Err(ProtocolError::Chunk),
            "{bad:?}"
        );
    }
}

#[test]
fn interim_responses_are_skipped() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\n\
                HTTP/1.1 201 Made\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(one(text), response(201, true));
    let upgrade = b"HTTP/1.1 101 Switching\r\n\r\n";
    assert_eq!(parse(upgrade, &[5]), Err(ProtocolError::Upgrade));
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    let (responses, rest) = parse(b"HTTP/1.1 200 OK\r\n\r\nbody", &[3]).unwrap();
    assert_eq!((responses.len(), rest), (0, Some(response(200, false))));
    let cut = parse(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody", &[3]).unwrap();
    assert_eq!(cut, (vec![], None));
}

#[test]
fn a_response_to_head_has_no_body() {
    let mut parser = ResponseParser::new();
    parser.expect_head(true);
    let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n";
    let complete = Progress::Complete {
        response: response(200, true),
        consumed: bytes.len(),
    };
    assert_eq!(parser.feed(bytes), Ok(complete));
}

#[test]
fn malformed_responses_are_rejected() {
    for bad in ["SSH-2.0-x\r\n", "HTTP/1.1 20x\r\n\r\n"] {
        assert!(parse(bad.as_bytes(), &[4]).is_err(), "{bad}");
    }
    for length in ["x", "-1", "1, 2", "99999999999999999999999"] {
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        assert_eq!(
            parse(text.as_bytes(), &[7]),
            Err(ProtocolError::ContentLength)
        );
    }
    let long = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MAX_HEAD_BYTES));
    assert_eq!(
        parse(long.as_bytes(), &[4096]),
        Err(ProtocolError::HeadTooLong)
    );
}

#[test]
fn requests_with_a_body_have_a_content_length() {
    let mut request = Request::get("127.0.0.1:80".into());
    request.headers.push(("x-a".into(), "b".into()));
    let text =
        |request: &Request, close| String::from_utf8(encode_request(request, close)).unwrap();
    assert_eq!(
        text(&request, false),
        "GET / HTTP/1.1\r\nhost: 127.0.0.1:80\r\nx-a: b\r\n\r\n"
    );
    request.method = "POST".into();
    request.body = "é".into();
    let text = text(&request, true);
    assert!(
        text.ends_with("connection: close\r\ncontent-length: 2\r\n\r\né"),
        "{text}"
    );
}

#[test]
fn a_different_head_is_parsed_afresh() {
    let mut parser = ResponseParser::new();
    let long = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let short = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
    let head = &long[..long.len() - 2];
    for (bytes, is_head) in [
        (&long[..], false),
        (long, false),
        (short, false),
        (head, true),
        (long, false),
    ] {
        parser.expect_head(is_head);
        let complete = Progress::Complete {
            response: response(200, true),
            consumed: bytes.len(),
        };
        assert_eq!(parser.feed(bytes), Ok(complete));
    }
}

#[test]
fn a_long_head_byte_by_byte_is_parsed() {
    let text = format!(
        "HTTP/1.1 200 OK\r\na: {}\r\ncontent-length: 1\r\n\r\nx",
        "y".repeat(60_000)
    );
    let (responses, _) = parse(text.as_bytes(), &[1]).unwrap();
    assert_eq!(responses, [response(200, true)]);
}

/// One well-formed response: (status, how its body is framed, the body).
fn encoded() -> impl Strategy<Value = Vec<u8>> {
    let body = proptest::collection::vec(any::<u8>(), 0..300);
    (200_u16..600, 0..3_u8, body, 1..50_usize).prop_map(|(status, kind, body, chunk)| {
        let mut bytes = format!("HTTP/1.1 {status} Some Reason\r\nserver: x\r\n").into_bytes();
        if kind == 2 {
            bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            if status != 204 && status != 304 {
                for piece in body.chunks(chunk) {
                    bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    bytes.extend_from_slice(piece);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\nt: v\r\n\r\n");
            }
            return bytes;
        }
        let body = if status == 204 || status == 304 {
            &[][..]
        } else {
            &body
        };
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        bytes
    })
}

proptest! {
    #[test]
    fn any_split_gives_the_same_responses(
        responses in proptest::collection::vec(encoded(), 1..5),
        pieces in proptest::collection::vec(1_usize..80, 1..8),
    ) {
        let bytes = responses.concat();
        let whole = parse(&bytes, &[bytes.len()]);
        prop_assert_eq!(whole.as_ref().unwrap().0.len(), responses.len());
        prop_assert_eq!(&whole, &parse(&bytes, &pieces));
        prop_assert_eq!(&whole, &parse(&bytes, &[1]));
    }

    #[test]
    fn garbage_never_panics(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
        pieces in proptest::collection::vec(1_usize..80, 1..8),
    ) {
        let _ = parse(&bytes, &pieces);
    }

    #[test]
    fn damaged_responses_never_panic(
        mut bytes in encoded(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = value;
        let whole = parse(&bytes, &[bytes.len()]);
        prop_assert_eq!(whole, parse(&bytes, &[1]));
    }
}
