//! A server that is fast, answers the same to everyone, and notes when each request arrived.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::time::SystemTime;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{self, Errno};
use rustix::net::{self, SendFlags, SocketFlags};

use crate::args::Args;
use crate::clock::{now_ns, pin, timespec};

const LISTENER: u64 = u64::MAX;
const SIGNAL: u64 = u64::MAX - 1;
const INPUT: u64 = u64::MAX - 2;

/// One read's size. Requests of the benchmark have a few hundred bytes.
const READ_BYTES: usize = 16 * 1024;

struct Recorder {
    keep: Vec<u8>,
    close: Vec<u8>,
    /// Never grows: what comes beyond its capacity is counted and not recorded.
    arrivals: Vec<u64>,
    requests: u64,
}

struct Connection {
    socket: OwnedFd,
    /// A request that came in pieces.
    pending: Vec<u8>,
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let args = Args::parse(words, &["--spin"])?;
    let listen: SocketAddr = args.or("--listen", SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let body: usize = args.or("--body", 64)?;
    let capacity: usize = args.or("--capacity", 0)?;
    let out: Option<String> = args.get("--out")?;
    pin(args.get("--core")?)?;

    let listener = TcpListener::bind(listen).map_err(|e| format!("{listen}: {e}"))?;
    // Again, for a longer queue: many connections may come at once.
    net::listen(&listener, 4096).map_err(|e| format!("listen: {e}"))?;
    listener.set_nonblocking(true).map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let signals = signals()?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
    let watch = |fd, token| {
        epoll::add(&set, fd, epoll::EventData::new_u64(token), EventFlags::IN)
            .map_err(|e| format!("epoll: {e}"))
    };
    watch(listener.as_fd(), LISTENER)?;
    watch(signals.as_fd(), SIGNAL)?;
    let input = std::io::stdin();
    // A file or /dev/null cannot be watched: then only signals end it.
    let _ = watch(input.as_fd(), INPUT);

    let mut recorder = Recorder::new(body, capacity);
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut vacant = Vec::new();
    let mut accepted = 0_u64;
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(64);
    let wait = args.has("--spin").then(|| timespec(0));
    println!("{{\"listening\":\"{address}\"}}");
    loop {
        events.clear();
        match epoll::wait(&set, spare_capacity(&mut events), wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("epoll: {e}")),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => {
                    while let Some(socket) = accept(&listener)? {
                        let index = vacant.pop().unwrap_or(connections.len());
                        let data = epoll::EventData::new_u64(index as u64);
                        epoll::add(&set, &socket, data, EventFlags::IN | EventFlags::ET)
                            .map_err(|e| format!("epoll: {e}"))?;
                        let connection = Connection {
                            socket,
                            pending: Vec::new(),
                        };
                        if index == connections.len() {
                            connections.push(Some(connection));
                        } else {
                            connections[index] = Some(connection);
                        }
                        accepted += 1;
                    }
                }
                SIGNAL | INPUT => return recorder.finish(out.as_deref(), accepted),
                token => {
                    let index = token as usize;
                    let Some(connection) = connections[index].as_mut() else {
                        continue;
                    };
                    if !recorder.serve(connection, &mut buffer) {
                        connections[index] = None;
                        vacant.push(index);
                    }
                }
            }
        }
    }
}

fn signals() -> Result<SignalFd, String> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTERM);
    mask.add(Signal::SIGINT);
    mask.thread_block()
        .and_then(|()| SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC))
        .map_err(|e| format!("signals: {e}"))
}

fn accept(listener: &TcpListener) -> Result<Option<OwnedFd>, String> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        match net::accept_with(listener, flags) {
            Ok(socket) => {
                let _ = net::sockopt::set_tcp_nodelay(&socket, true);
                return Ok(Some(socket));
            }
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(e) => return Err(format!("accept: {e}")),
        }
    }
}

impl Recorder {
    fn new(body: usize, capacity: usize) -> Self {
        // What servers usually send, so that parsing costs what it usually does.
        let date = http_date(SystemTime::now());
        let answer = |extra: &str| {
            let mut bytes = format!(
                "HTTP/1.1 200 OK\r\nserver: recorder\r\ndate: {date}\r\n\
                 content-type: text/plain\r\ncontent-length: {body}\r\n{extra}\r\n"
            )
            .into_bytes();
            bytes.extend((0..body).map(|i| b'0' + (i % 10) as u8));
            bytes
        };
        // Written once, so that no page is missing later.
        let mut arrivals = vec![1; capacity];
        arrivals.clear();
        Self {
            keep: answer(""),
            close: answer("connection: close\r\n"),
            arrivals,
            requests: 0,
        }
    }

    /// Reads what is there and answers; `false` when the connection is over.
    fn serve(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> bool {
        loop {
            let count = match io::read(&connection.socket, &mut *buffer) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            };
            let stays = if connection.pending.is_empty() {
                let used = self.answer_all(&connection.socket, &buffer[..count]);
                used.map(|used| connection.pending.extend_from_slice(&buffer[used..count]))
            } else {
                connection.pending.extend_from_slice(&buffer[..count]);
                let used = self.answer_all(&connection.socket, &connection.pending);
                used.map(|used| drop(connection.pending.drain(..used)))
            };
            if stays.is_none() {
                return false;
            }
            if count < buffer.len() {
                return true;
            }
        }
    }

    /// Answers the complete requests; how many bytes they had, or `None` to close.
    fn answer_all(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Option<usize> {
        let mut used = 0;
        while let Some((length, close)) = request(&bytes[used..]) {
            used += length;
            self.requests += 1;
            if self.arrivals.len() < self.arrivals.capacity() {
                self.arrivals.push(now_ns());
            }
            let answer = if close { &self.close } else { &self.keep };
            // Answers are small, and clients wait for each: a full buffer is a broken client.
            match net::send(socket, answer, SendFlags::NOSIGNAL) {
                Ok(sent) if sent == answer.len() && !close => {}
                _ => return None,
            }
        }
        Some(used)
    }

    fn finish(&self, out: Option<&str>, accepted: u64) -> Result<(), String> {
        if let Some(path) = out {
            let bytes: Vec<u8> = self
                .arrivals
                .iter()
                .flat_map(|at| at.to_le_bytes())
                .collect();
            std::fs::write(path, bytes).map_err(|e| format!("{path}: {e}"))?;
        }
        // Whoever started it may be gone already.
        let _ = writeln!(
            std::io::stdout(),
            "{{\"requests\":{},\"recorded\":{},\"connections\":{accepted}}}",
            self.requests,
            self.arrivals.len()
        );
        Ok(())
    }
}

/// The length of a complete request without a body, and whether it is the connection's last.
fn request(bytes: &[u8]) -> Option<(usize, bool)> {
    const CLOSE: &[u8] = b"connection: close";
    let mut at = 0;
    let mut close = false;
    while let Some(line) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        let text = &bytes[at..at + line];
        at += line + 1;
        if text.len() <= 1 {
            return Some((at, close));
        }
        close |= text.len() >= CLOSE.len() && text[..CLOSE.len()].eq_ignore_ascii_case(CLOSE);
    }
    None
}

/// As in `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(at: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
    ];
    let seconds = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the leap day: a month's first day is then linear.
    let from_march_of_0 = day + 719_468;
    let era = from_march_of_0 / 146_097;
    let in_era = from_march_of_0 % 146_097;
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    format!(
        "{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
        DAYS[(day % 7) as usize],
        in_year - (153 * month + 2) / 5 + 1,
        MONTHS[month as usize],
        era * 400 + year + u64::from(month >= 10),
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let date = |s| http_date(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(s));
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
        assert_eq!(date(1_798_761_599), "Thu, 31 Dec 2026 23:59:59 GMT");
    }

    #[test]
    fn requests_end_with_an_empty_line() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET";
        assert_eq!(request(bytes), Some((bytes.len() - 3, true)));
        assert_eq!(request(&bytes[..bytes.len() - 4]), None);
        assert_eq!(
            request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
            Some((27, false))
        );
    }
}
