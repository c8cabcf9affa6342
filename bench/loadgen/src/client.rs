//! What both floors share: connections, the parsing of a response, and the latencies.

use std::net::{SocketAddr, TcpStream};

use hdrhistogram::Histogram;
use rustix::event::epoll;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{self, SendFlags};

/// One read's size: a response of the benchmark's servers fits, so that a short read ends it.
pub(crate) const READ_BYTES: usize = 16 * 1024;

/// A connection, and how much of its response is still to come.
pub(crate) struct Connection {
    socket: OwnedFd,
    /// Bytes of the body that have not been read; meaningless while `head` is not empty.
    body_left: usize,
    /// The begin of a head that came in pieces.
    head: Vec<u8>,
    /// What the response's latency is counted from.
    pub(crate) since_ns: u64,
}

/// What a read brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    More,
    Answer,
}

impl Connection {
    /// Sends the prebuilt request. It is far smaller than the socket's buffer, and the buffer empty.
    pub(crate) fn send(&mut self, request: &[u8], since_ns: u64) -> Result<(), String> {
        self.since_ns = since_ns;
        match net::send(&self.socket, request, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == request.len() => Ok(()),
            Ok(_) => Err("the socket took a part of a request only".into()),
            Err(e) => Err(format!("send: {e}")),
        }
    }

    /// Reads once: a response, or a part of it.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Got, String> {
        loop {
            let count = match io::read(&self.socket, &mut *buffer) {
                Ok(0) => return Err("the server closed a connection".into()),
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(Got::More),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(format!("read: {e}")),
            };
            if self.take(&buffer[..count])? {
                return Ok(Got::Answer);
            }
            if count < buffer.len() {
                return Ok(Got::More);
            }
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the response is complete with these bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<bool, String> {
        if self.body_left > 0 {
            self.body_left = self.body_left.saturating_sub(bytes.len());
            return Ok(self.body_left == 0);
        }
        if !self.head.is_empty() {
            self.head.extend_from_slice(bytes);
            let whole = std::mem::take(&mut self.head);
            return self.take(&whole);
        }
        let Some(length) = answer_length(bytes)? else {
            self.head.extend_from_slice(bytes);
            return Ok(false);
        };
        self.body_left = length.saturating_sub(bytes.len());
        Ok(self.body_left == 0)
    }
}

/// The length of head and body; `None` when the head is not complete.
fn answer_length(bytes: &[u8]) -> Result<Option<usize>, String> {
    const LENGTH: &[u8] = b"content-length:";
    let mut at = 0;
    let mut body = 0;
    while let Some(line) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        let text = &bytes[at..at + line];
        if at == 0 && !text.starts_with(b"HTTP/1.1 2") {
            return Err(format!(
                "not a good answer: {}",
                String::from_utf8_lossy(text)
            ));
        }
        at += line + 1;
        if text.len() <= 1 {
            return Ok(Some(at + body));
        }
        if text.len() > LENGTH.len() && text[..LENGTH.len()].eq_ignore_ascii_case(LENGTH) {
            body = text[LENGTH.len()..]
                .iter()
                .filter(|byte| byte.is_ascii_digit())
                .fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
        }
    }
    Ok(None)
}

/// Opens the connections, one after the other, and puts them into an epoll set.
pub(crate) fn connect(
    target: SocketAddr,
    connections: usize,
) -> Result<(OwnedFd, Vec<Connection>), String> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
    let mut all = Vec::with_capacity(connections);
    for index in 0..connections {
        let stream = TcpStream::connect(target).map_err(|e| format!("connect: {e}"))?;
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(true))
            .map_err(|e| format!("connect: {e}"))?;
        let data = epoll::EventData::new_u64(index as u64);
        let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &stream, data, interest).map_err(|e| format!("epoll: {e}"))?;
        all.push(Connection {
            socket: stream.into(),
            body_left: 0,
            head: Vec::new(),
            since_ns: 0,
        });
    }
    Ok((set, all))
}

pub(crate) fn request(target: SocketAddr) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nhost: {target}\r\n\r\n").into_bytes()
}

/// Latencies from 1 ns to a minute, three digits.
pub(crate) fn histogram() -> Result<Histogram<u64>, String> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|e| e.to_string())
}

pub(crate) fn report(completed: u64, seconds: f64, latencies: &Histogram<u64>) {
    let at = |quantile| latencies.value_at_quantile(quantile);
    println!(
        "{{\"completed\":{completed},\"seconds\":{seconds},\"p50_ns\":{},\"p98_ns\":{},\
         \"p99_ns\":{},\"p999_ns\":{},\"max_ns\":{}}}",
        at(0.5),
        at(0.98),
        at(0.99),
        at(0.999),
        latencies.max()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_answer() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nx: y\r\n\r\nhello world!";
        for end in 0..answer.len() - 12 {
            assert_eq!(answer_length(&answer[..end]), Ok(None), "{end}");
        }
        assert_eq!(answer_length(answer), Ok(Some(answer.len())));
        assert!(answer_length(b"HTTP/1.1 500 No\r\n\r\n").is_err());
    }
}
