//! The threads of the application: they accept connections and dispatch events to them.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_tls::{ServerTls, TlsError, self_signed, server_config};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use rustix::time::Timespec;
use rustls::ServerConfig;

use crate::calls::{Calls, OUTGOING};
use crate::config::{AppConfig, Identity, Listener, Protocol};
use crate::connection::{Connection, Next};
use crate::content::Content;
use crate::context::{Context, Responses};
use crate::error::AppError;
use crate::http1::response::Http1Responses;
use crate::http2::response::Http2Responses;
use crate::stats::Counters;
use crate::timers::Timers;
use crate::transport::Transport;
use crate::work::{Work, now_ns};

/// Events per wait.
const EVENTS_PER_WAIT: usize = 128;

/// Connections accepted before other events are handled.
const ACCEPTS_PER_TURN: usize = 64;

/// The accept queue: far more than a load generator opens at once.
const BACKLOG: i32 = 4096;

/// The size of a read. Bodies are discarded, so that all connections share the buffer.
const READ_BYTES: usize = 64 * 1024;

/// How soon the stop flag is noticed, and accepting is retried after file descriptors ran out.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: TICK_NS as i64,
};
const TICK_NS: u64 = 100_000_000;

/// The event data of a listener: this, and its index in the lower half. No connection has this upper
/// half.
const LISTENER: u64 = (u32::MAX as u64) << 32;

/// [`serve_all`] for a single listener: `ready` gets its address.
///
/// # Errors
/// When the configuration is invalid, or an address or a core is not available.
pub fn serve(
    config: &AppConfig,
    ready: impl FnOnce(SocketAddr),
    stop: &AtomicBool,
) -> Result<(), AppError> {
    serve_all(config, |listeners| ready(listeners[0].address), stop)
}

/// Serves until `stop` becomes true (noticed within 100 ms). `ready` is called once, with the listeners
/// at their actual addresses, when connections are accepted. The calling thread serves, and stays
/// pinned if cores are configured. A thread that fails sets `stop` for the others.
///
/// # Errors
/// When the configuration is invalid, or an address or a core is not available.
pub fn serve_all(
    config: &AppConfig,
    ready: impl FnOnce(&[Listener]),
    stop: &AtomicBool,
) -> Result<(), AppError> {
    config.validate()?;
    raise_open_files();
    // All of them, so that an unavailable core is an error before anyone connects.
    for core in config.cores.iter().flatten() {
        pin(Some(*core))?;
    }
    let tls = Sessions::new(config)?;
    let held = crate::work::written(config.hold_bytes);
    let (listeners, sockets) = listen_all(config)?;
    let responses = responses(config);
    let counters: Vec<Counters> = (0..config.threads).map(|_| Counters::default()).collect();
    let thread = |number: usize, sockets: Vec<Accepting>| {
        let context = Context {
            responses: &responses,
            all_counters: &counters,
            thread: number,
            work: Work::new(config, number),
            timers: Timers::default(),
            calls: None,
            connection: 0,
        };
        let cores = config.cores.as_ref();
        let core = cores.map(|cores| cores[number % cores.len()]);
        let run = || Worker::new(config, sockets, context, tls.clone())?.run(stop);
        let outcome = pin(core).and_then(|()| run());
        if outcome.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        outcome
    };
    ready(&listeners);
    let outcome = on_threads(sockets, thread);
    // Memory that is held on purpose is freed only now.
    drop(held);
    outcome
}

/// What all threads send.
fn responses(config: &AppConfig) -> Responses {
    let content = Content::new(Vec::new(), u64::from(config.response_bytes));
    Responses {
        http1: Http1Responses::new(&content, &config.pages),
        http2: Http2Responses::new(&content, config.response_bytes),
        content,
        grpc_echo: config.grpc_echo,
    }
}

/// Runs every thread, with its sockets, until all have ended. The first runs on this thread, so that a single one needs
/// no further thread.
fn on_threads(
    sockets: Vec<Vec<Accepting>>,
    run: impl Fn(usize, Vec<Accepting>) -> Result<(), AppError> + Sync,
) -> Result<(), AppError> {
    let run = &run;
    std::thread::scope(|scope| {
        let mut sockets = sockets.into_iter().enumerate();
        let first = sockets.next();
        let others: Vec<_> = sockets
            .map(|(number, sockets)| scope.spawn(move || run(number, sockets)))
            .collect();
        let mut outcome = first.map_or(Ok(()), |(number, sockets)| run(number, sockets));
        for other in others {
            match other.join() {
                Ok(result) => outcome = outcome.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    })
}

/// The TLS configurations, by the protocol inside.
#[derive(Clone, Default)]
struct Sessions {
    https: Option<Arc<ServerConfig>>,
    echo: Option<Arc<ServerConfig>>,
}

impl Sessions {
    fn new(config: &AppConfig) -> Result<Self, AppError> {
        if !config.listeners.iter().any(|l| l.protocol.is_tls()) {
            return Ok(Self::default());
        }
        let identity = match &config.identity {
            Some(identity) => identity.clone(),
            None => own_identity(config)?,
        };
        let with = |alpn: &[&str]| -> Result<_, TlsError> {
            let config = server_config(&ServerTls {
                chain_pem: identity.chain_pem.clone(),
                key_pem: identity.key_pem.clone(),
                client_roots_pem: config.client_roots_pem.clone(),
                alpn: alpn.iter().map(|p| (*p).to_owned()).collect(),
            })?;
            Ok(Some(Arc::new(config)))
        };
        Ok(Self {
            https: with(&["h2", "http/1.1"])?,
            echo: with(&[])?,
        })
    }

    fn of(&self, protocol: Protocol) -> Option<&Arc<ServerConfig>> {
        match protocol {
            Protocol::Https => self.https.as_ref(),
            Protocol::TlsEcho => self.echo.as_ref(),
            Protocol::Http | Protocol::TcpEcho => None,
        }
    }
}

/// A self-signed certificate for this machine and the listeners' addresses.
fn own_identity(config: &AppConfig) -> Result<Identity, TlsError> {
    let mut names = ["localhost", "127.0.0.1", "::1"]
        .map(str::to_owned)
        .to_vec();
    for listener in &config.listeners {
        let name = listener.address.ip().to_string();
        if !listener.address.ip().is_unspecified() && !names.contains(&name) {
            names.push(name);
        }
    }
    let (chain_pem, key_pem) = self_signed(&names)?;
    Ok(Identity { chain_pem, key_pem })
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

/// Raises the limit on open files as far as possible. A failure shows when they run out.
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

/// A listening socket.
struct Accepting {
    socket: OwnedFd,
    protocol: Protocol,
    /// It is registered with epoll.
    registered: bool,
}

/// The listeners at their actual addresses, and each thread's sockets.
fn listen_all(config: &AppConfig) -> Result<(Vec<Listener>, Vec<Vec<Accepting>>), AppError> {
    let shared = config.threads > 1;
    let mut listeners = Vec::new();
    let mut sockets: Vec<Vec<Accepting>> = (0..config.threads).map(|_| Vec::new()).collect();
    for listener in &config.listeners {
        let mut address = listener.address;
        for of_thread in &mut sockets {
            let failed = |source| AppError::Listen { address, source };
            let socket = listen(address, shared).map_err(failed)?;
            // All threads use the first one's port.
            let real = net::getsockname(&socket).and_then(SocketAddr::try_from);
            address = real.map_err(failed)?;
            of_thread.push(Accepting {
                socket,
                protocol: listener.protocol,
                registered: false,
            });
        }
        listeners.push(Listener {
            address,
            protocol: listener.protocol,
        });
    }
    Ok((listeners, sockets))
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
        // With a single thread, a second server on the port must be an error.
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// One thread: its listeners, its connections, one epoll.
struct Worker<'a> {
    epoll: OwnedFd,
    accepting: Vec<Accepting>,
    context: Context<'a>,
    tls: Sessions,
    /// By slot, with a generation: events of an earlier connection in the slot are ignored.
    connections: Vec<(Option<Connection>, u32)>,
    vacant: Vec<u32>,
}

impl<'a> Worker<'a> {
    fn new(
        config: &AppConfig,
        accepting: Vec<Accepting>,
        mut context: Context<'a>,
        tls: Sessions,
    ) -> Result<Self, AppError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create1"))?;
        let same = rustix::io::fcntl_dupfd_cloexec(&epoll, 0).map_err(system("fcntl"))?;
        context.calls = Calls::new(config, context.thread, same);
        if context.work.waits() || context.calls.is_some() {
            // By default the kernel rounds sleeps up by 50 us. A failure only costs precision.
            let _ = set_current_timer_slack(NonZeroU64::new(1));
        }
        let mut worker = Self {
            epoll,
            accepting,
            context,
            tls,
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
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(system("epoll_pwait2")(errno)),
            }
            if events.is_empty() {
                self.listen_again()?;
            }
            for event in &events {
                let (data, flags) = (event.data.u64(), event.flags);
                if data >= LISTENER {
                    self.accept((data - LISTENER) as usize);
                } else if data >= OUTGOING {
                    self.called((data - OUTGOING) as u32, &mut buffer);
                } else {
                    let gone = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                    self.advance(data, None, flags.intersects(gone), &mut buffer);
                }
            }
            self.respond_to_due(&mut buffer);
            self.respond_to_finished(&mut buffer);
        }
        Ok(())
    }

    /// How long to wait for events: until the next timer, at most a tick.
    fn timeout(&self) -> Timespec {
        let Some(next_ns) = self.context.timers.next_ns() else {
            return TICK;
        };
        Timespec {
            tv_sec: 0,
            tv_nsec: next_ns.saturating_sub(now_ns()).min(TICK_NS) as i64,
        }
    }

    /// Sends the deferred responses that are due.
    fn respond_to_due(&mut self, buffer: &mut [u8]) {
        if self.context.timers.next_ns().is_none() {
            return;
        }
        let now_ns = now_ns();
        while let Some(timer) = self.context.timers.due(now_ns) {
            if timer.connection == OUTGOING {
                let context = &mut self.context;
                if let Some(calls) = &mut context.calls {
                    let counters = &context.all_counters[context.thread];
                    calls.wake(&mut context.timers, counters, timer.stream);
                }
                continue;
            }
            // Events of input that arrived meanwhile are lost: the socket is read until it is empty.
            self.advance(timer.connection, Some((timer.stream, false)), true, buffer);
        }
    }

    /// A response of another service, or the end of its connection.
    fn called(&mut self, number: u32, buffer: &mut [u8]) {
        let context = &mut self.context;
        if let Some(calls) = &mut context.calls {
            let counters = &context.all_counters[context.thread];
            calls.event(&mut context.timers, counters, number, buffer);
        }
    }

    /// Responds to requests whose calls are done; the next requests on their connections may be done at
    /// once, too.
    fn respond_to_finished(&mut self, buffer: &mut [u8]) {
        while let Some((request, failed)) = self.context.calls.as_mut().and_then(Calls::finished) {
            self.advance(
                request.connection,
                Some((request.stream, failed)),
                true,
                buffer,
            );
        }
    }

    fn listen_again(&mut self) -> Result<(), AppError> {
        for (number, accepting) in self.accepting.iter_mut().enumerate() {
            if !accepting.registered {
                let data = EventData::new_u64(LISTENER + number as u64);
                epoll::add(&self.epoll, &accepting.socket, data, EventFlags::IN)
                    .map_err(system("epoll_ctl"))?;
                accepting.registered = true;
            }
        }
        Ok(())
    }

    fn accept(&mut self, number: usize) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let protocol = self.accepting[number].protocol;
        for _ in 0..ACCEPTS_PER_TURN {
            match net::accept_with(&self.accepting[number].socket, flags) {
                Ok(socket) => self.admit(socket, protocol),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Asking again at once would burn the core that is measured.
                    let _ = epoll::delete(&self.epoll, &self.accepting[number].socket);
                    self.accepting[number].registered = false;
                    return;
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd, protocol: Protocol) {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.connections.push((None, 0));
            (self.connections.len() - 1) as u32
        });
        let (slot, generation) = &mut self.connections[number as usize];
        // Never the two largest, which mark listeners and client connections.
        *generation = (*generation + 1) % (u32::MAX - 1);
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
        let transport = Transport::new(socket, self.tls.of(protocol));
        let (Ok(()), Ok(transport)) = (ready, transport) else {
            // The peer is gone already, or the kernel is out of memory: the connection is closed.
            self.vacant.push(number);
            return;
        };
        *slot = Some(Connection::new(transport, protocol));
        self.context.counters().opened();
    }

    /// Advances a connection, for an event or for a deferred response: `due` is its stream, and whether
    /// a call failed.
    fn advance(&mut self, data: u64, due: Option<(u32, bool)>, hang_up: bool, buffer: &mut [u8]) {
        let number = data as u32;
        let (slot, generation) = &mut self.connections[number as usize];
        let Some(connection) = slot.as_mut().filter(|_| *generation == (data >> 32) as u32) else {
            return;
        };
        self.context.connection = data;
        if let Some((stream, failed)) = due {
            connection.fire(&mut self.context, stream, failed);
        }
        if connection.advance(&mut self.context, buffer, hang_up) == Next::Close {
            *slot = None;
            self.vacant.push(number);
            self.context.counters().closed();
        }
    }
}
