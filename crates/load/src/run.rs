//! A load of several threads: begun together, added up while they go on, ended together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};

use meshtax_model::trial::{LoadInterval, LoadResult};
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

use crate::audit::steal_ns;
use crate::clock::now_ns;
use crate::dial::{Destination, Dial, Secure};
use crate::engine::{Engine, ThreadResult};
use crate::error::LoadError;
use crate::limits;
use crate::spec::{LoadSpec, Protocol};
use crate::sum::{Sum, Tick, collect};
use crate::tally::Counter;

/// Between the announcement of the window and the first send.
const LEAD_NS: u64 = 2_000_000;

/// When the measured part begins and ends, on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The first instant of the window.
    pub start_monotonic_ns: u64,
    /// The first instant after it.
    pub end_monotonic_ns: u64,
}

/// Counts since the begin of the load, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress<'a> {
    /// Time since the load began, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests sent.
    pub sent: u64,
    /// Responses of any status.
    pub responses: u64,
    /// Errors of any kind.
    pub failed: u64,
    /// Connections that are open.
    pub connections: u32,
    /// The last interval of the window that is complete, if the load has any.
    pub last: Option<&'a LoadInterval>,
}

/// Takes the result of a load, and the number of its connections that are still open.
type OnResult<'a> = dyn FnMut(&LoadResult, u32) + 'a;

/// Callbacks and controls of a running load.
pub struct Hooks<'a> {
    /// All connections are open; the warm-up is about to begin.
    pub on_window: &'a mut dyn FnMut(Window),
    /// Called every 250 ms, not from a thread that offers load.
    pub on_progress: Option<&'a mut dyn FnMut(Progress<'_>)>,
    /// When this becomes true the window ends, and the result is of what was measured.
    pub abort: Option<&'a AtomicBool>,
    /// Called with the result and the number of connections that are still open; they close when it returns.
    pub on_result: Option<&'a mut OnResult<'a>>,
    /// Returns the instant on `CLOCK_MONOTONIC` at which the load begins, if that has not passed when
    /// all connections are open; `None`: at once.
    pub begin_at: Option<&'a mut dyn FnMut() -> Option<u64>>,
}

impl<'a> Hooks<'a> {
    /// Only the window callback.
    pub fn new(on_window: &'a mut dyn FnMut(Window)) -> Self {
        Self {
            on_window,
            on_progress: None,
            abort: None,
            on_result: None,
            begin_at: None,
        }
    }
}

/// Offers the load and waits for its end.
///
/// # Errors
/// When the spec is invalid, or the connections cannot be opened.
pub fn run(spec: &LoadSpec, on_window: &mut dyn FnMut(Window)) -> Result<LoadResult, LoadError> {
    run_with(spec, Hooks::new(on_window))
}

/// As [`run`], with a live display and a way to end it early.
///
/// # Errors
/// As [`run`].
pub fn run_with(spec: &LoadSpec, hooks: Hooks<'_>) -> Result<LoadResult, LoadError> {
    spec.validate()?;
    limits::allow_connections(spec.connections)?;
    let dials = Dials::new(spec)?;
    let never = AtomicBool::new(false);
    let abort = hooks.abort.unwrap_or(&never);
    let parts: Vec<_> = (0..spec.threads).map(|i| spec.of_thread(i)).collect();
    let counters: Vec<_> = parts
        .iter()
        .map(|part| Counter::new(part.interval_ns.is_some()))
        .collect();
    let (event_sender, events) = channel();
    std::thread::scope(|scope| {
        let mut starts = Vec::new();
        for (part, counter) in parts.iter().zip(&counters) {
            let (start_sender, start) = channel();
            starts.push(start_sender);
            let handle = ThreadHandle {
                events: event_sender.clone(),
                start,
            };
            let dial = dials.dial(part);
            scope.spawn(move || handle.work(part, dial, counter, abort));
        }
        Conductor {
            spec,
            hooks,
            counters: &counters,
            events,
            ticks: event_sender,
            starts,
            begin_ns: 0,
        }
        .conduct()
    })
}

/// The protocol to negotiate by ALPN; `None` over plain TCP.
fn alpn(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Http1 => Some("http/1.1"),
        Protocol::Http2 { .. } | Protocol::Grpc { .. } => Some("h2"),
        Protocol::Tcp => None,
    }
}

/// What connections are opened with, made once for all threads.
struct Dials {
    secure: Option<Secure>,
    destinations: Arc<[Destination]>,
}

impl Dials {
    fn new(spec: &LoadSpec) -> Result<Self, LoadError> {
        let secure = spec.tls.as_ref().map(|tls| {
            let mut credentials = tls.credentials.clone();
            let alpn = alpn(spec.protocol).into_iter();
            credentials.alpn = alpn.map(str::to_owned).collect();
            let config = meshtax_tls::client_config(&credentials)?;
            let name = ServerName::try_from(tls.server_name.clone()).map_err(|source| {
                LoadError::ServerName {
                    name: tls.server_name.clone(),
                    source,
                }
            })?;
            Ok::<_, LoadError>(Secure {
                config: Arc::new(config),
                name,
                wants_http2: matches!(
                    spec.protocol,
                    Protocol::Http2 { .. } | Protocol::Grpc { .. }
                ),
            })
        });
        Ok(Self {
            secure: secure.transpose()?,
            destinations: spec.by_target().iter().map(Destination::new).collect(),
        })
    }

    /// For the thread that does this part.
    fn dial(&self, part: &LoadSpec) -> Dial {
        Dial {
            destinations: Arc::clone(&self.destinations),
            first: part.first_connection as usize,
            secure: self.secure.clone(),
            streams: part.protocol.streams(),
            lifetime: part.requests_per_connection,
        }
    }
}

/// A message of a thread to the conductor.
enum ThreadEvent {
    /// Its connections are open.
    Ready,
    /// It has finished; its connections stay open until this is dropped.
    Done(Box<ThreadResult>),
    /// It has failed.
    Failed(LoadError),
    /// The progress of all threads.
    Tick(Box<Tick>),
}

/// A thread's channels to and from the conductor.
struct ThreadHandle {
    events: Sender<ThreadEvent>,
    /// When to begin.
    start: Receiver<u64>,
}

impl Drop for ThreadHandle {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.events.send(ThreadEvent::Failed(LoadError::Thread));
        }
    }
}

impl ThreadHandle {
    fn work(self, spec: &LoadSpec, dial: Dial, counter: &Counter, abort: &AtomicBool) {
        let outcome = self.try_work(spec, dial, counter, abort);
        let event = match outcome {
            Ok(Some(part)) => ThreadEvent::Done(Box::new(part)),
            // The conductor has given up, and has the reason.
            Ok(None) => return,
            Err(error) => ThreadEvent::Failed(error),
        };
        let _ = self.events.send(event);
    }

    fn try_work(
        &self,
        spec: &LoadSpec,
        dial: Dial,
        counter: &Counter,
        abort: &AtomicBool,
    ) -> Result<Option<ThreadResult>, LoadError> {
        prepare_thread(spec)?;
        let mut engine = Engine::new(spec, dial, counter, abort)?;
        engine.open_all()?;
        let _ = self.events.send(ThreadEvent::Ready);
        match self.start.recv() {
            Ok(begin_ns) => engine.run(begin_ns).map(Some),
            Err(_) => Ok(None),
        }
    }
}

fn prepare_thread(spec: &LoadSpec) -> Result<(), LoadError> {
    if let Some(&core) = spec.cores.first() {
        let mut cores = rustix::thread::CpuSet::new();
        cores.set(core as usize);
        rustix::thread::sched_setaffinity(None, &cores)
            .map_err(|source| LoadError::Pin { core, source })?;
    }
    // The default lets the kernel wake us 50 µs late. A refusal only costs precision,
    // and the send lag shows it.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}

/// Starts the threads together and sums up their counts.
struct Conductor<'a, 'h> {
    spec: &'a LoadSpec,
    hooks: Hooks<'h>,
    counters: &'a [Counter],
    events: Receiver<ThreadEvent>,
    ticks: Sender<ThreadEvent>,
    starts: Vec<Sender<u64>>,
    begin_ns: u64,
}

impl Conductor<'_, '_> {
    fn conduct(mut self) -> Result<LoadResult, LoadError> {
        self.all_ready()?;
        let asked = self.hooks.begin_at.as_mut().and_then(|ask| ask());
        let soonest_ns = now_ns() + LEAD_NS;
        self.begin_ns = asked.unwrap_or(0).max(soonest_ns);
        let start_ns = self.begin_ns + self.spec.warmup_ns;
        (self.hooks.on_window)(Window {
            start_monotonic_ns: start_ns,
            end_monotonic_ns: start_ns + self.spec.window_ns,
        });
        let stolen_ns = steal_ns();
        for start in &self.starts {
            // A thread that is gone has said why.
            let _ = start.send(self.begin_ns);
        }
        let (parts, sum) = self.until_done()?;
        let mut result = sum.finish(self.spec, &parts);
        result.audit.steal_ns = steal_ns().saturating_sub(stolen_ns);
        if let Some(on_result) = &mut self.hooks.on_result {
            let open = parts.iter().map(|part| part.still_open.open_count()).sum();
            on_result(&result, open);
        }
        drop(parts);
        Ok(result)
    }

    fn all_ready(&mut self) -> Result<(), LoadError> {
        for _ in 0..self.starts.len() {
            match self.events.recv() {
                Ok(ThreadEvent::Failed(error)) => return Err(error),
                Ok(ThreadEvent::Ready | ThreadEvent::Done(_) | ThreadEvent::Tick(_)) => {}
                Err(_) => return Err(LoadError::Thread),
            }
        }
        Ok(())
    }

    /// Waits for the end, with someone adding up meanwhile if that is to be seen.
    fn until_done(&mut self) -> Result<(Vec<ThreadResult>, Sum), LoadError> {
        let is_watched = self.hooks.on_progress.is_some();
        if !is_watched && self.spec.interval_ns.is_none() {
            return Ok((self.all_done()?, Sum::new(self.spec)));
        }
        let (counters, spec, ticks) = (self.counters, self.spec, self.ticks.clone());
        let (end, ended) = channel();
        std::thread::scope(|scope| {
            let adding = scope.spawn(move || {
                let on_tick = is_watched.then_some(|tick| {
                    // When nobody listens any more, the end comes too.
                    let _ = ticks.send(ThreadEvent::Tick(Box::new(tick)));
                });
                collect(counters, spec, &ended, on_tick)
            });
            let parts = self.all_done();
            drop(end);
            let sum = adding.join().map_err(|_| LoadError::Thread)?;
            Ok((parts?, sum))
        })
    }

    fn all_done(&mut self) -> Result<Vec<ThreadResult>, LoadError> {
        let mut parts = Vec::new();
        while parts.len() < self.starts.len() {
            match self.events.recv() {
                Ok(ThreadEvent::Done(part)) => parts.push(*part),
                Ok(ThreadEvent::Failed(error)) => return Err(error),
                Ok(ThreadEvent::Ready) => {}
                Ok(ThreadEvent::Tick(tick)) => self.show(&tick),
                Err(_) => return Err(LoadError::Thread),
            }
        }
        Ok(parts)
    }

    fn show(&mut self, tick: &Tick) {
        let elapsed_ns = now_ns().saturating_sub(self.begin_ns);
        if let Some(on_progress) = &mut self.hooks.on_progress {
            on_progress(Progress {
                elapsed_ns,
                sent: tick.totals.sent,
                responses: tick.totals.responses,
                failed: tick.totals.failed,
                connections: tick.totals.connections,
                last: tick.last.as_ref(),
            });
        }
    }
}
