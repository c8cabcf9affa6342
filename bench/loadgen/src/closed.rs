//! The floors of a closed loop: what the kernel takes, and as little as possible besides.

use std::net::SocketAddr;

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::args::Args;
use crate::client::{Connection, Got, READ_BYTES, connect, histogram, report, request};
use crate::clock::{SECOND_NS, now_ns, pin, timespec};
use crate::ring::{NO_BUFFER, Ring, SENT, Socket};

/// So long a response may take.
const PATIENCE_NS: u64 = 5 * SECOND_NS;

struct Load {
    request: Vec<u8>,
    all: Vec<Connection>,
    end_ns: u64,
    requests: u64,
    sent: u64,
    completed: u64,
    latencies: Histogram<u64>,
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let args = Args::parse(words, &["--uring"])?;
    let target: SocketAddr = args.first("the server's ADDRESS:PORT")?;
    let connections = args.or("-c", 64)?;
    let seconds: f64 = args.or("-z", 86_400.0)?;
    pin(args.get("--core")?)?;

    let (set, all) = connect(target, connections)?;
    let begin_ns = now_ns();
    let mut load = Load {
        request: request(target),
        all,
        end_ns: begin_ns + (seconds * SECOND_NS as f64) as u64,
        requests: args.or("-n", u64::MAX)?,
        sent: 0,
        completed: 0,
        latencies: histogram()?,
    };
    if args.has("--uring") {
        load.over_uring()?;
    } else {
        load.over_epoll(&set)?;
    }
    let took_s = (now_ns() - begin_ns) as f64 / 1e9;
    report(load.completed, took_s, &load.latencies);
    Ok(())
}

impl Load {
    /// How many connections begin with a request.
    fn first(&self) -> usize {
        usize::try_from(self.requests).map_or(self.all.len(), |most| most.min(self.all.len()))
    }

    /// Counts a response; the instant, when another request is to be sent.
    fn answered(&mut self, index: usize) -> Option<u64> {
        let now_ns = now_ns();
        let latency_ns = now_ns - self.all[index].since_ns;
        self.latencies.saturating_record(latency_ns);
        self.completed += 1;
        let more = now_ns < self.end_ns && self.sent < self.requests;
        self.sent += u64::from(more);
        more.then_some(now_ns)
    }

    fn over_epoll(&mut self, set: &OwnedFd) -> Result<(), String> {
        let mut buffer = vec![0; READ_BYTES];
        let mut events = Vec::with_capacity(64);
        for index in 0..self.first() {
            self.all[index].send(&self.request, now_ns())?;
            self.sent += 1;
        }
        let patience = timespec(PATIENCE_NS);
        while self.completed < self.sent {
            events.clear();
            match epoll::wait(set, spare_capacity(&mut events), Some(&patience)) {
                Ok(0) => return Err("answers never came".into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(format!("epoll: {e}")),
            }
            for event in &events {
                let index = event.data.u64() as usize;
                if self.all[index].read(&mut buffer)? == Got::More {
                    continue;
                }
                if let Some(now_ns) = self.answered(index) {
                    self.all[index].send(&self.request, now_ns)?;
                }
            }
        }
        Ok(())
    }

    fn over_uring(&mut self) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("io_uring: {e}");
        let mut ring = Ring::new(vec![self.request.clone()]).map_err(failed)?;
        let sockets: Vec<_> = self.all.iter().map(Connection::socket).collect();
        ring.register(&sockets).map_err(failed)?;
        let place = |index: usize| Socket::Registered(index as u32);
        for index in 0..self.first() {
            ring.receive(place(index), index as u64).map_err(failed)?;
            self.all[index].since_ns = now_ns();
            ring.send(place(index), 0, None).map_err(failed)?;
            self.sent += 1;
        }
        let mut done = Vec::new();
        while self.completed < self.sent {
            ring.turn(&mut done).map_err(failed)?;
            for completion in &done {
                let index = completion.token as usize;
                if completion.token == SENT {
                    return Err("a send failed".into());
                }
                if completion.result <= 0 && completion.result != NO_BUFFER {
                    return Err("the server closed a connection".into());
                }
                if !completion.armed {
                    ring.receive(place(index), completion.token)
                        .map_err(failed)?;
                }
                if completion.result == NO_BUFFER || !self.all[index].take(ring.take(completion))? {
                    continue;
                }
                if let Some(now_ns) = self.answered(index) {
                    self.all[index].since_ns = now_ns;
                    ring.send(place(index), 0, None).map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}
