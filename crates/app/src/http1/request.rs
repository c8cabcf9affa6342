//! Parses HTTP/1.1 requests. No I/O: bytes in, heads and body lengths out.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Request, Status};

use crate::route::{ReceivedRequest, Route, route};

/// The longest head of a request, in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 32 * 1024;

/// The most headers of a request.
const MAX_HEADERS: usize = 100;

/// The longest line of a chunked body other than its data, in bytes.
const MAX_CHUNK_LINE_BYTES: usize = 4096;

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400 (Bad Request).
    Malformed,
    /// The first line has no HTTP/1 version: the peer speaks another protocol.
    NotHttp1,
    /// 431 (Request Header Fields Too Large).
    HeadTooLarge,
}

/// The unread rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    /// A chunk's size is next.
    ChunkSize,
    /// Bytes left of a chunk, with the line break after it.
    ChunkData(u64),
    /// Trailers, up to an empty line.
    Trailer,
}

/// The parts of a request's head that decide its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) route: Route,
    /// The requested page, counted from 0; it may not exist.
    pub(crate) page: Option<usize>,
    pub(crate) is_head: bool,
    pub(crate) http_1_0: bool,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) body: Body,
    /// Empty, and without an allocation, in nearly all requests.
    pub(crate) canary: Vec<u8>,
    /// Only for [`Route::Echo`].
    pub(crate) received: Option<Box<ReceivedRequest>>,
}

/// The head and its length; `None` if it is incomplete.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, Refusal> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut request = Request::new(&mut []);
    let status = ParserConfig::default()
        .parse_request_with_uninit_headers(&mut request, bytes, &mut headers)
        .map_err(|error| match error {
            httparse::Error::TooManyHeaders => Refusal::HeadTooLarge,
            httparse::Error::Version if !names_http1(bytes) => Refusal::NotHttp1,
            _ => Refusal::Malformed,
        })?;
    let length = match status {
        Status::Complete(length) => length,
        Status::Partial => bytes.len(),
    };
    if length > MAX_HEAD_BYTES {
        return Err(Refusal::HeadTooLarge);
    }
    if status.is_partial() {
        return Ok(None);
    }
    Ok(Some((interpret(&request)?, length)))
}

/// Whether the first line has an HTTP/1 version.
fn names_http1(bytes: &[u8]) -> bool {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    line.windows(7).any(|part| part == b"HTTP/1.")
}

fn interpret(request: &Request<'_, '_>) -> Result<RequestHead, Refusal> {
    let method = request.method.unwrap_or_default();
    let path = request.path.unwrap_or_default();
    let http_1_0 = request.version == Some(0);
    let mut head = RequestHead {
        route: route(path),
        page: page(path),
        is_head: method == "HEAD",
        http_1_0,
        keep_alive: !http_1_0,
        expects_continue: false,
        body: Body::Length(0),
        canary: Vec::new(),
        received: None,
    };
    let mut length = None;
    let mut chunked = false;
    for header in request.headers.iter() {
        let (name, value) = (header.name, header.value);
        // The length is compared first: most headers are none of these.
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") => {
                let found = content_length(value)?;
                if length.is_some_and(|known| known != found) {
                    return Err(Refusal::Malformed);
                }
                length = Some(found);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                // The end of any other coding is unknown to this server.
                if chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::Malformed);
                }
                chunked = true;
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                if has_token(value, b"close") {
                    head.keep_alive = false;
                } else if has_token(value, b"keep-alive") {
                    head.keep_alive = true;
                }
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                head.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
            }
            16 if name.eq_ignore_ascii_case(crate::CANARY_HEADER) => head.canary = value.to_vec(),
            _ => {}
        }
    }
    // Both together are how requests are smuggled past proxies.
    head.body = match (chunked, length) {
        (true, Some(_)) => return Err(Refusal::Malformed),
        (true, None) => Body::ChunkSize,
        (false, length) => Body::Length(length.unwrap_or(0)),
    };
    if head.route == Route::Echo {
        head.received = Some(Box::new(received(request)));
    }
    Ok(head)
}

/// The page of a path: `/page-3` at its end is the third page, whatever comes before.
fn page(path: &str) -> Option<usize> {
    let (_, number) = path.rsplit_once("/page-")?;
    number.parse::<usize>().ok()?.checked_sub(1)
}

fn received(request: &Request<'_, '_>) -> ReceivedRequest {
    ReceivedRequest {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().to_owned(),
        headers: request
            .headers
            .iter()
            .map(|h| {
                (
                    h.name.to_owned(),
                    String::from_utf8_lossy(h.value).into_owned(),
                )
            })
            .collect(),
    }
}

pub(crate) fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::Malformed);
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Refusal::Malformed)
}

pub(crate) fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|b| *b == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

/// Skips a body's bytes: how many were used, and the rest of the body (`None`: it is complete).
pub(crate) fn skip_body(body: Body, bytes: &[u8]) -> Result<(usize, Option<Body>), Refusal> {
    let (mut body, mut at) = (body, 0);
    loop {
        let rest = &bytes[at..];
        match body {
            Body::Length(left) | Body::ChunkData(left) => {
                let used = left.min(rest.len() as u64);
                at += used as usize;
                let left = left - used;
                body = match body {
                    Body::Length(_) if left == 0 => return Ok((at, None)),
                    Body::Length(_) => return Ok((at, Some(Body::Length(left)))),
                    _ if left > 0 => return Ok((at, Some(Body::ChunkData(left)))),
                    _ => Body::ChunkSize,
                };
            }
            Body::ChunkSize => match httparse::parse_chunk_size(rest) {
                Ok(Status::Complete((used, size))) => {
                    at += used;
                    body = match size {
                        0 => Body::Trailer,
                        _ => Body::ChunkData(size.checked_add(2).ok_or(Refusal::Malformed)?),
                    };
                }
                Ok(Status::Partial) if rest.len() <= MAX_CHUNK_LINE_BYTES => {
                    return Ok((at, Some(body)));
                }
                _ => return Err(Refusal::Malformed),
            },
            Body::Trailer => match rest.iter().position(|b| *b == b'\n') {
                Some(0) => return Ok((at + 1, None)),
                Some(1) if rest[0] == b'\r' => return Ok((at + 2, None)),
                Some(end) => at += end + 1,
                None if rest.len() <= MAX_CHUNK_LINE_BYTES => return Ok((at, Some(body))),
                None => return Err(Refusal::Malformed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(text: &str) -> RequestHead {
        parse_head(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn keep_alive_follows_the_version_and_the_connection_header() {
        assert!(head("GET / HTTP/1.1\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(head("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
        assert!(!head("GET / HTTP/1.1\r\nconnection: te, close\r\n\r\n").keep_alive);
    }

    #[test]
    fn page_numbers_in_paths_start_at_one() {
        let page = |path: &str| head(&format!("GET {path} HTTP/1.1\r\n\r\n")).page;
        assert_eq!(page("/allowed/page-1"), Some(0));
        assert_eq!(page("/page-12"), Some(11));
        for none in ["/", "/page-0", "/page-", "/page-1/", "/page-x", "/a-page-1"] {
            assert_eq!(page(none), None, "{none}");
        }
    }

    #[test]
    fn malformed_and_oversized_heads_are_rejected() {
        for bad in [
            "GET /\r\n\r\n",
            "\x16\x03\x01\x02",
            "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
        ] {
            assert_eq!(
                parse_head(bad.as_bytes()),
                Err(Refusal::Malformed),
                "{bad:?}"
            );
        }
        for other in [
            "INVALID CONNECTION PREFACE\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSx",
        ] {
            assert_eq!(
                parse_head(other.as_bytes()),
                Err(Refusal::NotHttp1),
                "{other:?}"
            );
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
        assert_eq!(parse_head(many.as_bytes()), Err(Refusal::HeadTooLarge));
        let long = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(MAX_HEAD_BYTES));
        assert_eq!(parse_head(long.as_bytes()), Err(Refusal::HeadTooLarge));
    }

    /// Skips a body in pieces as a connection does: unused bytes are passed again.
    fn skip(mut body: Body, bytes: &[u8], piece: usize) -> Result<Option<usize>, Refusal> {
        let (mut at, mut end) = (0, 0);
        while end < bytes.len() {
            end = (end + piece).min(bytes.len());
            let (used, left) = skip_body(body, &bytes[at..end])?;
            at += used;
            match left {
                None => return Ok(Some(at)),
                Some(left) => body = left,
            }
        }
        Ok(None)
    }

    #[test]
    fn the_end_of_a_body_is_found_in_any_split() {
        let text = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nt: v\r\n\r\nGET";
        for piece in 1..=text.len() {
            assert_eq!(skip(Body::ChunkSize, text, piece), Ok(Some(text.len() - 3)));
        }
        assert_eq!(skip(Body::ChunkSize, b"zz\r\n", 9), Err(Refusal::Malformed));
        assert_eq!(skip(Body::Length(3), b"abcd", 1), Ok(Some(3)));
        let endless = vec![b'a'; MAX_CHUNK_LINE_BYTES + 2];
        assert_eq!(skip(Body::Trailer, &endless, 100), Err(Refusal::Malformed));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            piece in 1_usize..50,
        ) {
            let _ = parse_head(&bytes);
            let _ = skip(Body::ChunkSize, &bytes, piece);
            let _ = skip(Body::Trailer, &bytes, piece);
        }
    }
}
