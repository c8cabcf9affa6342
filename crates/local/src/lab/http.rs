//! A few requests, one at a time, by which the probes look at a path. Not the load generator.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use meshtax_app::{CANARY_HEADER, FAIL_HEADER};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::netns::NetNs;

/// Longer than any answer on one machine takes; a refusal comes at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest body that a workload may have, and a head.
const LARGEST_ANSWER: usize = (64 << 20) + (64 << 10);

/// What came of a request.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    /// An HTTP answer.
    Answer {
        status: u16,
        body: Vec<u8>,
        echoed_canary: Option<String>,
    },
    /// The connection was refused, closed, reset, or ended by a TLS alert.
    Refused(String),
    /// Nothing came in time, which proves neither.
    Silence(String),
}

impl Heard {
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, Self::Answer { status: 200, .. })
    }

    /// For a person.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Answer { status, .. } => format!("HTTP {status}"),
            Self::Refused(why) => why.clone(),
            Self::Silence(why) => format!("no answer ({why})"),
        }
    }
}

/// A request of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    /// The service that it is for.
    pub(crate) host: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) canary: Option<&'a str>,
    /// Whether the application is to answer with an error.
    pub(crate) fails: bool,
}

impl<'a> Ask<'a> {
    /// A GET without more, for the first service that clients call.
    pub(crate) fn get(path: &'a str) -> Self {
        Self {
            host: "server",
            method: "GET",
            path,
            canary: None,
            fails: false,
        }
    }
}

impl Ask<'_> {
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

/// A connection from a pod, in clear.
pub(crate) fn connect(from: &NetNs, to: (Ipv4Addr, u16)) -> Result<TcpStream, Heard> {
    let address = SocketAddr::from(to);
    from.run(|| {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
    .map_err(|e| failed("connecting", &e))
}

/// A TLS connection over `stream`, and whose certificate the server showed.
pub(crate) fn handshake(
    stream: TcpStream,
    config: ClientConfig,
    server_name: Option<&str>,
) -> Result<
    (
        StreamOwned<ClientConnection, TcpStream>,
        Option<CertificateDer<'static>>,
    ),
    Heard,
> {
    let name = match server_name {
        Some(name) => ServerName::try_from(name.to_owned())
            .map_err(|e| Heard::Silence(format!("{name} names no server: {e}")))?,
        None => ServerName::IpAddress(Ipv4Addr::LOCALHOST.into()),
    };
    let connection = ClientConnection::new(Arc::new(config), name)
        .map_err(|e| Heard::Silence(format!("cannot begin a TLS handshake: {e}")))?;
    let mut tls = StreamOwned::new(connection, stream);
    while tls.conn.is_handshaking() {
        tls.conn
            .complete_io(&mut tls.sock)
            .map_err(|e| failed("the TLS handshake", &e))?;
    }
    let certificate = tls
        .conn
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|c| c.clone().into_owned());
    Ok((tls, certificate))
}

/// One request and its answer.
pub(crate) fn ask(stream: &mut (impl Read + Write), ask: &Ask<'_>) -> Heard {
    match exchange(stream, ask) {
        Ok(heard) => heard,
        Err(e) => failed("the request", &e),
    }
}

fn exchange(stream: &mut (impl Read + Write), ask: &Ask<'_>) -> io::Result<Heard> {
    stream.write_all(&ask.bytes())?;
    stream.flush()?;
    let mut received = Vec::new();
    let mut chunk = [0_u8; 16 << 10];
    loop {
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(Heard::Refused(
                "the connection was closed without a whole answer".into(),
            ));
        }
        received.extend_from_slice(&chunk[..length]);
        if let Some(heard) = parse(&received)? {
            return Ok(heard);
        }
        if received.len() > LARGEST_ANSWER {
            return Err(io::Error::other("the answer never ends"));
        }
    }
}

/// A whole answer, if `received` holds one, with a length or in chunks.
fn parse(received: &[u8]) -> io::Result<Option<Heard>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let invalid = |e: String| io::Error::new(ErrorKind::InvalidData, e);
    let head = match response.parse(received) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(invalid(format!("not HTTP: {e}"))),
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
        true => unchunked(&received[head..]).map_err(invalid)?,
        false => received[head..].get(..length).map(<[u8]>::to_vec),
    };
    let Some(body) = body else {
        return Ok(None);
    };
    Ok(Some(Heard::Answer {
        status: response.code.unwrap_or(0),
        body,
        echoed_canary: header(CANARY_HEADER),
    }))
}

/// A body in chunks, if all of them are there. Trailers are of no interest.
fn unchunked(mut rest: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let (begin, length) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete((begin, length))) => (begin, length as usize),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("not a chunk".into()),
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
        // The line's end behind it.
        rest = rest.get(begin + length + 2..).unwrap_or_default();
    }
}

pub(crate) fn failed(what: &str, error: &io::Error) -> Heard {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Heard::Silence(format!("{what} took longer than {} s", PATIENCE.as_secs()))
        }
        ErrorKind::ConnectionRefused => Heard::Refused("connection refused".into()),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
            Heard::Refused(format!("connection reset during {what}"))
        }
        ErrorKind::UnexpectedEof => Heard::Refused(format!("connection closed during {what}")),
        _ => Heard::Refused(format!("{what} failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(received: &[u8]) -> Option<Vec<u8>> {
        match parse(received).unwrap()? {
            Heard::Answer { body, .. } => Some(body),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_body_in_chunks_is_whole_only_with_the_last() {
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n";
        assert_eq!(body(answer).unwrap(), b"abcd");
        for end in 0..answer.len() - 2 {
            let cut = body(&answer[..end]);
            assert!(cut.is_none_or(|body| body == b"abcd"), "{end}");
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n").is_err());
        let huge = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n";
        assert!(body(huge).is_none());
    }
}
