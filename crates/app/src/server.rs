//! The threads of the application: accept, wait, hand events to connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use crate::answer::Answers;
use crate::connection::{Connection, Next, Shared};
use crate::stats::Counters;

/// Events taken in one wait.
const EVENTS_PER_WAIT: usize = 128;

/// Connections accepted before others get their turn.
const ACCEPTS_PER_TURN: usize = 64;

/// The accept queue: far more than a load generator opens at once.
const BACKLOG: i32 = 4096;

/// One read's size. Bodies are dropped, so that all connections share it.
const READ_BYTES: usize = 64 * 1024;

/// How soon the stop flag is seen, and accepting is tried again without descriptors.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Marks the listener among the events.
const LISTENER: u64 = u64::MAX;

/// How the application runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Size of each answer's body in bytes.
    pub response_bytes: u32,
    /// Spin this long before each answer, from when the request was read, in nanoseconds.
    pub delay_ns: u64,
    /// Cores of the threads, in turn.
    pub cores: Option<Vec<u32>>,
    /// Threads, each with a listener of its own on the same port.
    pub threads: u32,
}

impl AppConfig {
    /// One thread, answers of 1,024 bytes, no delay; fields are public.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            response_bytes: 1024,
            delay_ns: 0,
            cores: None,
            threads: 1,
        }
    }

    fn validate(&self) -> Result<(), AppError> {
        let invalid = |field, value: String, fix| Err(AppError::Invalid { field, value, fix });
        if !(1..=1024).contains(&self.threads) {
            return invalid("threads", self.threads.to_string(), "use 1 to 1024");
        }
        if self.delay_ns > 10_000_000_000 {
            return invalid(
                "delay_ns",
                self.delay_ns.to_string(),
                "use at most ten seconds",
            );
        }
        match &self.cores {
            Some(cores) if cores.is_empty() => {
                invalid("cores", "empty".into(), "name a core, or leave it out")
            }
            Some(cores) if cores.iter().any(|core| *core as usize >= CpuSet::MAX_CPU) => {
                invalid("cores", format!("{cores:?}"), "name cores of this machine")
            }
            _ => Ok(()),
        }
    }
}

/// Why the application does not run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration asks for something that cannot be.
    #[error("{field} is {value}: {fix}")]
    Invalid {
        /// The configuration's field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What it should be.
        fix: &'static str,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: Errno,
    },
    /// A thread could not be pinned.
    #[error(
        "cannot pin the application to core {core}: {source}; choose a core this process may use"
    )]
    Pin {
        /// The core.
        core: u32,
        /// The kernel's answer.
        source: Errno,
    },
    /// A system call failed that never should.
    #[error("{call} failed: {source}")]
    System {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
}

/// Serves until `stop` becomes true (seen within 100 ms). `ready` is called once, with the
/// real address, when connections are accepted. The calling thread serves, and stays
/// pinned if cores are named. A thread that fails sets `stop` for the others.
///
/// # Errors
/// When the configuration is invalid, or the address or a core cannot be had.
pub fn serve(
    config: &AppConfig,
    ready: impl FnOnce(SocketAddr),
    stop: &AtomicBool,
) -> Result<(), AppError> {
    config.validate()?;
    raise_open_files();
    // All of them, so that a core that cannot be had is an error before anyone connects.
    for core in config.cores.iter().flatten() {
        pin(Some(*core))?;
    }
    let (address, listeners) = listen_all(config)?;
    let answers = Answers::new(config.response_bytes);
    let counters: Vec<Counters> = (0..config.threads).map(|_| Counters::default()).collect();
    let thread = |number: usize, listener: OwnedFd| {
        let shared = Shared {
            answers: &answers,
            counters: &counters,
            thread: number,
            delay_ns: config.delay_ns,
        };
        let core = config
            .cores
            .as_ref()
            .map(|cores| cores[number % cores.len()]);
        let outcome = pin(core).and_then(|()| Worker::new(listener, shared)?.run(stop));
        if outcome.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        outcome
    };
    ready(address);
    std::thread::scope(|scope| {
        let mut listeners = listeners.into_iter().enumerate();
        let first = listeners.next();
        let others: Vec<_> = listeners
            .map(|(number, listener)| scope.spawn(move || thread(number, listener)))
            .collect();
        // The first runs here, so that one thread costs no other.
        let mut outcome = first.map_or(Ok(()), |(number, listener)| thread(number, listener));
        for other in others {
            match other.join() {
                Ok(result) => outcome = outcome.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    })
}

fn system(call: &'static str) -> impl FnOnce(Errno) -> AppError {
    move |source| AppError::System { call, source }
}

fn pin(core: Option<u32>) -> Result<(), AppError> {
    let Some(core) = core else {
        return Ok(());
    };
    let mut cores = CpuSet::new();
    cores.set(core as usize);
    sched_setaffinity(None, &cores).map_err(|source| AppError::Pin { core, source })
}

/// As many connections as this process may have. A refusal shows when they run out.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

fn listen_all(config: &AppConfig) -> Result<(SocketAddr, Vec<OwnedFd>), AppError> {
    let shared = config.threads > 1;
    let failed = |source| AppError::Listen {
        address: config.listen,
        source,
    };
    let first = listen(config.listen, shared).map_err(failed)?;
    let address = net::getsockname(&first)
        .and_then(SocketAddr::try_from)
        .map_err(failed)?;
    let mut listeners = vec![first];
    for _ in 1..config.threads {
        listeners.push(listen(address, shared).map_err(failed)?);
    }
    Ok((address, listeners))
}

fn listen(address: SocketAddr, shared: bool) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        // Only then: with one thread a second server on the port must be an error.
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// One thread: a listener, its connections, one epoll.
struct Worker<'a> {
    epoll: OwnedFd,
    listener: OwnedFd,
    listening: bool,
    shared: Shared<'a>,
    /// By number; the second value tells an earlier connection of the same number apart.
    connections: Vec<(Option<Connection>, u32)>,
    vacant: Vec<u32>,
}

impl<'a> Worker<'a> {
    fn new(listener: OwnedFd, shared: Shared<'a>) -> Result<Self, AppError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create1"))?;
        let mut worker = Self {
            epoll,
            listener,
            listening: false,
            shared,
            connections: Vec::new(),
            vacant: Vec::new(),
        };
        worker.listen_again()?;
        Ok(worker)
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<(), AppError> {
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let mut buffer = vec![0; READ_BYTES];
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(system("epoll_pwait2")(errno)),
            }
            if events.is_empty() && !self.listening {
                self.listen_again()?;
            }
            for event in &events {
                let (data, flags) = (event.data.u64(), event.flags);
                if data == LISTENER {
                    self.accept();
                } else {
                    self.advance(data, flags, &mut buffer);
                }
            }
        }
        Ok(())
    }

    fn listen_again(&mut self) -> Result<(), AppError> {
        let data = EventData::new_u64(LISTENER);
        epoll::add(&self.epoll, &self.listener, data, EventFlags::IN)
            .map_err(system("epoll_ctl"))?;
        self.listening = true;
        Ok(())
    }

    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..ACCEPTS_PER_TURN {
            match net::accept_with(&self.listener, flags) {
                Ok(socket) => self.admit(socket),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Asking again at once would burn the core that is measured.
                    let _ = epoll::delete(&self.epoll, &self.listener);
                    self.listening = false;
                    return;
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.connections.push((None, 0));
            (self.connections.len() - 1) as u32
        });
        let (slot, generation) = &mut self.connections[number as usize];
        *generation = generation.wrapping_add(1);
        let data = u64::from(*generation) << 32 | u64::from(number);
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let ready = sockopt::set_tcp_nodelay(&socket, true).and_then(|()| {
            epoll::add(
                self.epoll.as_fd(),
                &socket,
                EventData::new_u64(data),
                interest,
            )
        });
        if ready.is_err() {
            // The peer was gone already, or the kernel is out of memory: it sees a close.
            self.vacant.push(number);
            return;
        }
        *slot = Some(Connection::new(socket));
        self.shared.counters[self.shared.thread].opened();
    }

    fn advance(&mut self, data: u64, flags: EventFlags, buffer: &mut [u8]) {
        let number = data as u32;
        let (slot, generation) = &mut self.connections[number as usize];
        let Some(connection) = slot.as_mut().filter(|_| *generation == (data >> 32) as u32) else {
            return;
        };
        let hang_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if connection.advance(&self.shared, buffer, hang_up) == Next::Close {
            *slot = None;
            self.vacant.push(number);
            self.shared.counters[self.shared.thread].closed();
        }
    }
}
