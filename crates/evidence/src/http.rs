//! A probe's HTTP/1.1 requests, one at a time. Not the load generator.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use meshtax_app::{CANARY_HEADER, FAIL_HEADER};

/// Longer than any response of a working path takes; a refusal comes at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The largest body that a workload may have, and a head.
const LARGEST_RESPONSE: usize = (64 << 20) + (64 << 10);

/// What came of a request.
#[derive(Clone, Debug)]
pub(crate) enum HttpOutcome {
    /// An HTTP response.
    Response {
        status: u16,
        body: Vec<u8>,
        echoed_canary: Option<String>,
    },
    /// The connection was refused, closed, reset, or ended by a TLS alert.
    Refused(String),
    /// No response in time, which proves neither acceptance nor refusal.
    Silence(String),
}

impl HttpOutcome {
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, Self::Response { status: 200, .. })
    }

    /// The body of a response with status 200.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Response {
                status: 200, body, ..
            } => Some(body),
            _ => None,
        }
    }
}

impl fmt::Display for HttpOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response { status, .. } => write!(f, "HTTP {status}"),
            Self::Refused(cause) => f.write_str(cause),
            Self::Silence(cause) => write!(f, "no response ({cause})"),
        }
    }
}

/// A request of a probe.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest<'a> {
    /// The service that it is for.
    pub(crate) host: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) canary: Option<&'a str>,
    /// Whether the application is to respond with an error.
    pub(crate) fails: bool,
}

impl<'a> HttpRequest<'a> {
    /// A GET without options.
    pub(crate) fn get(host: &'a str, path: &'a str) -> Self {
        Self {
            host,
            method: "GET",
            path,
            canary: None,
            fails: false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let canary = self
            .canary
            .map(|c| format!("{CANARY_HEADER}: {c}\r\n"))
            .unwrap_or_default();
        let fails = match self.fails {
            true => format!("{FAIL_HEADER}: 1\r\n"),
            false => String::new(),
        };
        let (host, method, path) = (self.host, self.method, self.path);
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}:8080\r\ncontent-length: 0\r\n{canary}{fails}\r\n"
        )
        .into_bytes()
    }
}

/// Sends a request and reads its response.
pub(crate) fn send(
    stream: &mut (impl Read + Write + ?Sized),
    request: &HttpRequest<'_>,
) -> HttpOutcome {
    exchange(stream, request).unwrap_or_else(|e| failed("the request", &e))
}

fn exchange(
    stream: &mut (impl Read + Write + ?Sized),
    request: &HttpRequest<'_>,
) -> io::Result<HttpOutcome> {
    stream.write_all(&request.bytes())?;
    stream.flush()?;
    let mut received = Vec::new();
    let mut chunk = [0_u8; 16 << 10];
    loop {
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(HttpOutcome::Refused(
                "the connection was closed before the whole response".into(),
            ));
        }
        received.extend_from_slice(&chunk[..length]);
        if let Some(outcome) = parse(&received)? {
            return Ok(outcome);
        }
        if received.len() > LARGEST_RESPONSE {
            return Err(io::Error::other("the response never ends"));
        }
    }
}

/// The response, once `received` contains all of it: with a length or in chunks.
fn parse(received: &[u8]) -> io::Result<Option<HttpOutcome>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(received) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => {
            let cause = format!("not HTTP: {e}");
            return Err(io::Error::new(ErrorKind::InvalidData, cause));
        }
    };
    let header = |name: &str| {
        response
            .headers
            .iter()
            .find(|h| h.name.eq_ignore_ascii_case(name))
            .map(|h| String::from_utf8_lossy(h.value).into_owned())
    };
    let chunked = header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
    let length: usize = header("content-length")
        .and_then(|v| v.parse().ok())
        .unwrap_or(0);
    let body = match chunked {
        true => unchunked(&received[head..])?,
        false => received[head..].get(..length).map(<[u8]>::to_vec),
    };
    let Some(body) = body else {
        return Ok(None);
    };
    Ok(Some(HttpOutcome::Response {
        status: response.code.unwrap_or(0),
        body,
        echoed_canary: header(CANARY_HEADER),
    }))
}

/// The body of a chunked response, once all chunks are there. Trailers are ignored.
fn unchunked(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let (begin, length) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete((begin, length))) => (begin, length as usize),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        if length == 0 {
            return Ok(Some(body));
        }
        let Some(chunk) = begin
            .checked_add(length)
            .and_then(|end| rest.get(begin..end))
        else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        // Skips the line end after the chunk.
        rest = rest.get(begin + length + 2..).unwrap_or_default();
    }
}

/// The outcome of a request whose connection failed.
pub(crate) fn failed(what: &str, error: &io::Error) -> HttpOutcome {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            HttpOutcome::Silence(format!("{what} took longer than {} s", PATIENCE.as_secs()))
        }
        ErrorKind::ConnectionRefused => HttpOutcome::Refused("connection refused".into()),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            HttpOutcome::Refused(format!("connection reset during {what}"))
        }
        ErrorKind::UnexpectedEof => {
            HttpOutcome::Refused(format!("connection closed during {what}"))
        }
        _ => HttpOutcome::Refused(format!("{what} failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(received: &[u8]) -> Option<Vec<u8>> {
        match parse(received).unwrap()? {
            HttpOutcome::Response { body, .. } => Some(body),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn chunked_body_is_complete_only_with_the_last_chunk() {
        let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n";
        assert_eq!(body(response).unwrap(), b"abcd");
        for end in 0..response.len() - 2 {
            let cut = body(&response[..end]);
            assert!(cut.is_none_or(|body| body == b"abcd"), "{end}");
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n").is_err());
        let huge = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n";
        assert!(body(huge).is_none());
    }
}
