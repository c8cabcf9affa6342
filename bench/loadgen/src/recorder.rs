//! A server that is fast, responses the same to everyone, and notes when each request arrived.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
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
use crate::ring::{self, NO_BUFFER, Ring, SENT, Socket};

const LISTENER: u64 = u64::MAX - 1;
const SIGNAL: u64 = u64::MAX - 2;
const INPUT: u64 = u64::MAX - 3;

/// One read's size. Requests of the benchmark have a few hundred bytes.
const READ_BYTES: usize = 16 * 1024;

struct Recorder {
    keep: Vec<u8>,
    close: Vec<u8>,
    /// Never grows: what comes beyond its capacity is counted and not recorded.
    arrivals: Vec<u64>,
    requests: u64,
    accepted: u64,
}

struct Connection {
    socket: OwnedFd,
    /// A request that came in pieces.
    pending: Vec<u8>,
    /// Its last response is on its way.
    closing: bool,
}

/// Connections by their place, which is used again.
#[derive(Default)]
struct Slab {
    places: Vec<Option<Connection>>,
    vacant: Vec<usize>,
}

impl Slab {
    fn insert(&mut self, socket: OwnedFd) -> usize {
        let connection = Some(Connection {
            socket,
            pending: Vec::new(),
            closing: false,
        });
        match self.vacant.pop() {
            Some(place) => {
                self.places[place] = connection;
                place
            }
            None => {
                self.places.push(connection);
                self.places.len() - 1
            }
        }
    }

    fn get(&mut self, place: usize) -> Option<&mut Connection> {
        self.places.get_mut(place)?.as_mut()
    }

    fn remove(&mut self, place: usize) {
        if self.places[place].take().is_some() {
            self.vacant.push(place);
        }
    }
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let args = Args::parse(words, &["--spin", "--uring"])?;
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
    let mut recorder = Recorder::new(body, capacity);
    println!("{{\"listening\":\"{address}\"}}");
    if args.has("--uring") {
        recorder
            .over_uring(&listener, &signals)
            .map_err(|e| format!("io_uring: {e}"))?;
    } else {
        recorder.over_epoll(&listener, &signals, args.has("--spin"))?;
    }
    recorder.finish(out.as_deref())
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
            accepted: 0,
        }
    }

    fn over_epoll(
        &mut self,
        listener: &TcpListener,
        signals: &SignalFd,
        spin: bool,
    ) -> Result<(), String> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
        let watch = |fd: BorrowedFd<'_>, token: u64, flags: EventFlags| {
            epoll::add(&set, fd, epoll::EventData::new_u64(token), flags)
                .map_err(|e| format!("epoll: {e}"))
        };
        watch(listener.as_fd(), LISTENER, EventFlags::IN)?;
        watch(signals.as_fd(), SIGNAL, EventFlags::IN)?;
        // A file or /dev/null cannot be watched: then only signals end it.
        let _ = watch(std::io::stdin().as_fd(), INPUT, EventFlags::IN);
        let mut connections = Slab::default();
        let mut buffer = vec![0; READ_BYTES];
        let mut events = Vec::with_capacity(64);
        let wait = spin.then(|| timespec(0));
        loop {
            events.clear();
            match epoll::wait(&set, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(format!("epoll: {e}")),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => {
                        while let Some(socket) = accept(listener)? {
                            self.accepted += 1;
                            let place = connections.insert(socket);
                            if let Some(connection) = connections.get(place) {
                                let flags = EventFlags::IN | EventFlags::ET;
                                watch(connection.socket.as_fd(), place as u64, flags)?;
                            }
                        }
                    }
                    SIGNAL | INPUT => return Ok(()),
                    token => {
                        let place = token as usize;
                        let stays = connections
                            .get(place)
                            .is_none_or(|connection| self.serve(connection, &mut buffer));
                        if !stays {
                            connections.remove(place);
                        }
                    }
                }
            }
        }
    }

    /// Reads what is there and responses; `false` when the connection is over.
    fn serve(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> bool {
        loop {
            let count = match io::read(&connection.socket, &mut *buffer) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            };
            let (answers, close) = self.take(&mut connection.pending, &buffer[..count]);
            for answer in 1..=answers {
                let last = close && answer == answers;
                let bytes = if last { &self.close } else { &self.keep };
                // Responses are small, and clients wait for each: a full buffer is a broken client.
                match net::send(&connection.socket, bytes, SendFlags::NOSIGNAL) {
                    Ok(sent) if sent == bytes.len() && !last => {}
                    _ => return false,
                }
            }
            if count < buffer.len() {
                return true;
            }
        }
    }

    fn over_uring(&mut self, listener: &TcpListener, signals: &SignalFd) -> std::io::Result<()> {
        // Added to a place: that its last response is out.
        const LAST: u64 = 1 << 32;
        let mut ring = Ring::new(vec![self.keep.clone(), self.close.clone()])?;
        ring.accept(listener.as_fd(), LISTENER)?;
        ring.watch(signals.as_fd(), SIGNAL)?;
        let input = std::io::stdin();
        if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&input)?.st_mode).is_fifo() {
            ring.watch(input.as_fd(), INPUT)?;
        }
        let mut connections = Slab::default();
        let mut done = Vec::new();
        loop {
            ring.turn(&mut done)?;
            for completion in &done {
                let place = completion.token as u32 as usize;
                match completion.token {
                    SENT => continue,
                    SIGNAL | INPUT => return Ok(()),
                    LISTENER => {
                        let socket = ring::accepted(completion)?;
                        let _ = net::sockopt::set_tcp_nodelay(&socket, true);
                        self.accepted += 1;
                        let plain = Socket::Plain(socket.as_raw_fd());
                        ring.receive(plain, connections.insert(socket) as u64)?;
                        continue;
                    }
                    _ => {}
                }
                let Some(connection) = connections.get(place) else {
                    continue;
                };
                let plain = Socket::Plain(connection.socket.as_raw_fd());
                if completion.token >= LAST {
                    if connection.closing {
                        let _ = net::shutdown(&connection.socket, net::Shutdown::Both);
                    }
                    continue;
                }
                if completion.result <= 0 && completion.result != NO_BUFFER {
                    connections.remove(place);
                    continue;
                }
                let (answers, close) = self.take(&mut connection.pending, ring.take(completion));
                connection.closing |= close;
                for answer in 1..=answers {
                    if close && answer == answers {
                        ring.send(plain, 1, Some(LAST | completion.token))?;
                    } else {
                        ring.send(plain, 0, None)?;
                    }
                }
                if !completion.armed {
                    ring.receive(plain, completion.token)?;
                }
            }
        }
    }

    /// Counts the complete requests in what came, and whether the last one ends the connection.
    fn take(&mut self, pending: &mut Vec<u8>, bytes: &[u8]) -> (u32, bool) {
        if pending.is_empty() {
            let (used, answers, close) = self.count(bytes);
            pending.extend_from_slice(&bytes[used..]);
            return (answers, close);
        }
        pending.extend_from_slice(bytes);
        let (used, answers, close) = self.count(pending);
        pending.drain(..used);
        (answers, close)
    }

    fn count(&mut self, bytes: &[u8]) -> (usize, u32, bool) {
        let (mut used, mut answers) = (0, 0);
        while let Some((length, close)) = request(&bytes[used..]) {
            used += length;
            answers += 1;
            self.requests += 1;
            if self.arrivals.len() < self.arrivals.capacity() {
                self.arrivals.push(now_ns());
            }
            if close {
                return (bytes.len(), answers, true);
            }
        }
        (used, answers, false)
    }

    fn finish(&self, out: Option<&str>) -> Result<(), String> {
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
            "{{\"requests\":{},\"recorded\":{},\"connections\":{}}}",
            self.requests,
            self.arrivals.len(),
            self.accepted
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
