//! Parses the HTTP/1.1 responses of called services. No I/O.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

use crate::http1::request::{Body, MAX_HEAD_BYTES, content_length, has_token, skip_body};

/// The most headers of a response.
const MAX_HEADERS: usize = 100;

/// The bytes are not an HTTP/1.1 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Its status was 2xx.
    pub(crate) is_good: bool,
    /// Its connection may be reused.
    pub(crate) keep_alive: bool,
}

/// Parses one response, incrementally.
#[derive(Debug, Default)]
pub(crate) struct ResponseParser {
    /// Bytes of an incomplete head or chunk size.
    pending: Vec<u8>,
    /// The outcome by the head, and the rest of the body.
    parsed_head: Option<(Outcome, Rest)>,
}

/// The unread rest of a response behind its head.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Of(Body),
    /// The body ends with the connection.
    UntilClose,
}

impl ResponseParser {
    /// Nothing has arrived yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.parsed_head.is_none()
    }

    /// Takes further bytes; `None`: the response is incomplete.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Option<Outcome>, Malformed> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let rest = &pending[at..];
            let Some((outcome, body)) = self.parsed_head else {
                let Some((head, used)) = head(rest)? else {
                    self.pending = pending.split_off(at);
                    return Ok(None);
                };
                at += used;
                // An informational response is followed by the final one.
                self.parsed_head = head;
                continue;
            };
            let Rest::Of(body) = body else {
                return Ok(None);
            };
            let (used, left) = skip_body(body, rest).map_err(|_| Malformed)?;
            at += used;
            let Some(left) = left else {
                self.parsed_head = None;
                // There is one request on a connection at a time: more bytes belong to none.
                let keep_alive = outcome.keep_alive && at == pending.len();
                return Ok(Some(Outcome {
                    keep_alive,
                    ..outcome
                }));
            };
            self.parsed_head = Some((outcome, Rest::Of(left)));
            self.pending = pending.split_off(at);
            return Ok(None);
        }
    }

    /// The connection has ended: the outcome, if the response is complete by that.
    pub(crate) fn end(&mut self) -> Option<Outcome> {
        match self.parsed_head.take() {
            Some((outcome, Rest::UntilClose)) => Some(outcome),
            _ => None,
        }
    }
}

/// A head and its length; the head is `None` if the response is informational.
type Head = (Option<(Outcome, Rest)>, usize);

fn head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut response = Response::new(&mut []);
    let status = ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, bytes, &mut headers)
        .map_err(|_| Malformed)?;
    let Status::Complete(length) = status else {
        return match bytes.len() > MAX_HEAD_BYTES {
            true => Err(Malformed),
            false => Ok(None),
        };
    };
    let code = response.code.unwrap_or(0);
    if (100..200).contains(&code) {
        return Ok(Some((None, length)));
    }
    Ok(Some((Some(interpret(&response, code)?), length)))
}

fn interpret(response: &Response<'_, '_>, code: u16) -> Result<(Outcome, Rest), Malformed> {
    let mut outcome = Outcome {
        is_good: (200..300).contains(&code),
        keep_alive: response.version == Some(1),
    };
    let mut rest = Rest::UntilClose;
    for header in response.headers.iter() {
        let (name, value) = (header.name, header.value);
        if name.eq_ignore_ascii_case("content-length") && !matches!(rest, Rest::Of(_)) {
            rest = Rest::Of(Body::Length(content_length(value).map_err(|_| Malformed)?));
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed);
            }
            rest = Rest::Of(Body::ChunkSize);
        } else if name.eq_ignore_ascii_case("connection") && has_token(value, b"close") {
            outcome.keep_alive = false;
        }
    }
    // These have no body (RFC 9110, sections 15.3.5 and 15.4.5).
    if matches!(code, 204 | 304) {
        rest = Rest::Of(Body::Length(0));
    }
    if matches!(rest, Rest::UntilClose) {
        outcome.keep_alive = false;
    }
    Ok((outcome, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a response in pieces of a size.
    fn take(text: &str, piece: usize) -> Result<Option<Outcome>, Malformed> {
        let mut parser = ResponseParser::default();
        for part in text.as_bytes().chunks(piece) {
            if let Some(outcome) = parser.take(part)? {
                return Ok(Some(outcome));
            }
        }
        Ok(parser.end())
    }

    #[test]
    fn responses_are_parsed_in_any_split() {
        let good = Some(Outcome {
            is_good: true,
            keep_alive: true,
        });
        let last = Some(Outcome {
            is_good: true,
            keep_alive: false,
        });
        let bad = Some(Outcome {
            is_good: false,
            keep_alive: true,
        });
        for (text, outcome) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", good),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                good,
            ),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", good),
            ("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", bad),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\na",
                last,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nto the end", last),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", None),
        ] {
            for piece in [1, 2, 7, 1000] {
                assert_eq!(take(text, piece), Ok(outcome), "{text:?} by {piece}");
            }
        }
        assert_eq!(take("GET / HTTP/1.1\r\n\r\n", 99), Err(Malformed));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), piece in 1_usize..50) {
            let mut parser = ResponseParser::default();
            for part in bytes.chunks(piece) {
                if parser.take(part) != Ok(None) {
                    break;
                }
            }
        }
    }
}
