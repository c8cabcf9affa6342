//! Calls to other services before a response: the edges of a call graph.
//!
//! They go over HTTP/1.1, on pooled connections with one request at a time each, as is the default of
//! HTTP client libraries.

mod response;

use std::net::SocketAddr;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng as _;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::config::{AppConfig, Call, ServiceStep};
use crate::stats::Counters;
use crate::timers::{Timer, Timers};
use crate::work::{now_ns, uniform};
use response::{Outcome, ResponseParser};

/// The event data of a client connection: this, and its slot in the lower half. No other connection
/// and no listener has this upper half.
pub(crate) const OUTGOING: u64 = (u32::MAX as u64 - 1) << 32;

/// A request whose response is deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId {
    pub(crate) connection: u64,
    pub(crate) stream: u32,
}

/// How far the steps of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waiting,
    /// All steps are done, or a call failed and the remaining ones are skipped.
    Done {
        failed: bool,
    },
}

/// The steps of a request, in progress.
#[derive(Debug)]
struct StepRun {
    request: RequestId,
    /// The index of its plan.
    plan: usize,
    next_step: usize,
    /// Calls without a response so far.
    open: u32,
    failed: bool,
    canary: Vec<u8>,
    /// When its own wait began, if it has one.
    waits_since_ns: Option<u64>,
}

/// A connection to another service.
struct ClientConnection {
    socket: OwnedFd,
    target: usize,
    /// The run that its call belongs to.
    run: Option<u32>,
    request: Vec<u8>,
    sent: usize,
    response: ResponseParser,
    /// It has carried a call before: the peer may have closed it before this call.
    was_used: bool,
}

/// A step; calls are target indices, each with its share of the requests.
enum Planned {
    Calls(Vec<(usize, f64)>),
    SleepNs(u64),
}

/// The calls of a thread.
pub(crate) struct Calls {
    epoll: OwnedFd,
    /// The steps of requests without a page, then those of each page.
    plans: Vec<Vec<Planned>>,
    /// The distinct calls of all steps.
    targets: Vec<Call>,
    /// Idle connections, by target.
    idle: Vec<Vec<u32>>,
    outgoing: Slots<ClientConnection>,
    runs: Slots<StepRun>,
    random: Pcg64,
    /// Requests whose steps are done, and whether one failed.
    finished: Vec<(RequestId, bool)>,
}

impl Calls {
    /// `None` if there are no steps. `epoll` is that of the thread.
    pub(crate) fn new(config: &AppConfig, thread: usize, epoll: OwnedFd) -> Option<Self> {
        let pages = config.pages.iter().map(|page| &page.steps);
        let all: Vec<&Vec<ServiceStep>> = std::iter::once(&config.steps).chain(pages).collect();
        if all.iter().all(|steps| steps.is_empty()) {
            return None;
        }
        let mut targets: Vec<Call> = Vec::new();
        let mut number = |call: &Call| {
            let known = targets
                .iter()
                .position(|target| target.is_same_request(call));
            known.unwrap_or_else(|| {
                targets.push(call.clone());
                targets.len() - 1
            })
        };
        let mut plan = |step: &ServiceStep| match step {
            ServiceStep::SleepNs(ns) => Planned::SleepNs(*ns),
            ServiceStep::Calls(calls) => {
                let calls = calls.iter().map(|call| (number(call), call.share));
                Planned::Calls(calls.collect())
            }
        };
        let plans = all
            .into_iter()
            .map(|steps| steps.iter().map(&mut plan).collect())
            .collect();
        Some(Self {
            epoll,
            plans,
            idle: vec![Vec::new(); targets.len()],
            targets,
            outgoing: Slots::default(),
            runs: Slots::default(),
            // Another sequence than that of the work, so that calls and failures are independent.
            random: Pcg64::seed_from_u64(!config.seed.wrapping_add(thread as u64)),
            finished: Vec::new(),
        })
    }

    /// Begins a request's steps, after its own wait (since, until) if it has one.
    pub(crate) fn begin(
        &mut self,
        timers: &mut Timers,
        counters: &Counters,
        (request, page): (RequestId, Option<usize>),
        wait: Option<(u64, u64)>,
        canary: &[u8],
    ) -> Progress {
        let plan = page.map_or(0, |page| page.saturating_add(1));
        let run = self.runs.insert(StepRun {
            request,
            // A page that does not exist counts as none.
            plan: if plan < self.plans.len() { plan } else { 0 },
            next_step: 0,
            open: 0,
            failed: false,
            canary: canary.to_vec(),
            waits_since_ns: wait.map(|(since_ns, _)| since_ns),
        });
        if let Some((_, at_ns)) = wait {
            timers.add(wake_up(run, at_ns));
            return Progress::Waiting;
        }
        self.go_on(timers, counters, run)
    }

    /// Takes a request whose steps are done, and whether one failed.
    pub(crate) fn finished(&mut self) -> Option<(RequestId, bool)> {
        self.finished.pop()
    }

    /// A timer of a run has fired.
    pub(crate) fn wake(&mut self, timers: &mut Timers, counters: &Counters, run: u32) {
        if let Some(since_ns) = self.runs.get(run).and_then(|r| r.waits_since_ns.take()) {
            counters.delay(now_ns() - since_ns);
        }
        self.proceed(timers, counters, run);
    }

    /// Handles an event of a client connection.
    pub(crate) fn event(
        &mut self,
        timers: &mut Timers,
        counters: &Counters,
        number: u32,
        buffer: &mut [u8],
    ) {
        let Some(outgoing) = self.outgoing.get(number) else {
            return;
        };
        match outgoing.advance(buffer) {
            Advance::Stay => {}
            Advance::Responded(outcome) => {
                let (run, target) = (outgoing.run.take(), outgoing.target);
                match outcome.keep_alive {
                    true => self.idle[target].push(number),
                    false => drop(self.outgoing.remove(number)),
                }
                self.call_ended(timers, counters, run, outcome.is_good);
            }
            Advance::Ended => self.ended(timers, counters, number),
        }
    }

    fn ended(&mut self, timers: &mut Timers, counters: &Counters, number: u32) {
        let Some(outgoing) = self.outgoing.remove(number) else {
            return;
        };
        let target = outgoing.target;
        let Some(run) = outgoing.run else {
            self.idle[target].retain(|idle| *idle != number);
            return;
        };
        // The peer closed it while it was idle, before it received this call.
        let unseen = outgoing.was_used && outgoing.response.is_empty();
        if unseen && self.send_on_new(target, run, outgoing.request).is_ok() {
            return;
        }
        self.call_ended(timers, counters, Some(run), false);
    }

    fn call_ended(
        &mut self,
        timers: &mut Timers,
        counters: &Counters,
        run: Option<u32>,
        is_good: bool,
    ) {
        let Some(number) = run else {
            return;
        };
        counters.called(is_good);
        if let Some(run) = self.runs.get(number) {
            run.open = run.open.saturating_sub(1);
            run.failed |= !is_good;
        }
        self.proceed(timers, counters, number);
    }

    fn proceed(&mut self, timers: &mut Timers, counters: &Counters, run: u32) {
        let request = self.runs.get(run).map(|run| run.request);
        let progress = self.go_on(timers, counters, run);
        if let (Some(request), Progress::Done { failed }) = (request, progress) {
            self.finished.push((request, failed));
        }
    }

    /// Does a run's steps as far as possible now.
    fn go_on(&mut self, timers: &mut Timers, counters: &Counters, number: u32) -> Progress {
        loop {
            let Some(run) = self.runs.get(number) else {
                return Progress::Waiting;
            };
            if run.open > 0 {
                return Progress::Waiting;
            }
            let plan = run.plan;
            if run.failed || run.next_step == self.plans[plan].len() {
                let failed = run.failed;
                drop(self.runs.remove(number));
                return Progress::Done { failed };
            }
            let step = run.next_step;
            run.next_step += 1;
            match &self.plans[plan][step] {
                Planned::SleepNs(ns) => {
                    timers.add(wake_up(number, now_ns() + ns));
                    return Progress::Waiting;
                }
                Planned::Calls(calls) => {
                    for at in 0..calls.len() {
                        self.call_some(counters, number, (plan, step, at));
                    }
                }
            }
        }
    }

    /// Makes a call of a step, unless its share excludes this request.
    fn call_some(
        &mut self,
        counters: &Counters,
        number: u32,
        (plan, step, at): (usize, usize, usize),
    ) {
        let Planned::Calls(calls) = &self.plans[plan][step] else {
            return;
        };
        let (target, share) = calls[at];
        if share >= 1.0 || uniform(&mut self.random) < share {
            self.call(counters, number, target);
        }
    }

    fn call(&mut self, counters: &Counters, number: u32, target: usize) {
        let Some(run) = self.runs.get(number) else {
            return;
        };
        let request = self.targets[target].request(&run.canary);
        match self.send(target, number, request) {
            Ok(()) => {
                if let Some(run) = self.runs.get(number) {
                    run.open += 1;
                }
            }
            Err(_) => {
                counters.called(false);
                if let Some(run) = self.runs.get(number) {
                    run.failed = true;
                }
            }
        }
    }

    fn send(&mut self, target: usize, run: u32, request: Vec<u8>) -> Result<(), Errno> {
        while let Some(number) = self.idle[target].pop() {
            let Some(outgoing) = self.outgoing.get(number) else {
                continue;
            };
            outgoing.begin(run, request);
            // An error occurs again as an event, and is handled there.
            let _ = outgoing.flush();
            return Ok(());
        }
        self.send_on_new(target, run, request)
    }

    /// Sends on a new connection.
    fn send_on_new(&mut self, target: usize, run: u32, request: Vec<u8>) -> Result<(), Errno> {
        let socket = connect(self.targets[target].address)?;
        let number = self.outgoing.insert(ClientConnection {
            socket,
            target,
            run: Some(run),
            request,
            sent: 0,
            response: ResponseParser::default(),
            was_used: false,
        });
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let Some(outgoing) = self.outgoing.get(number) else {
            return Ok(());
        };
        let data = EventData::new_u64(OUTGOING | u64::from(number));
        let added = epoll::add(&self.epoll, &outgoing.socket, data, interest);
        if added.is_err() {
            drop(self.outgoing.remove(number));
        }
        added
    }
}

fn wake_up(run: u32, at_ns: u64) -> Timer {
    Timer {
        at_ns,
        connection: OUTGOING,
        stream: run,
    }
}

fn connect(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// The outcome of an event.
enum Advance {
    Stay,
    Responded(Outcome),
    Ended,
}

impl ClientConnection {
    fn begin(&mut self, run: u32, request: Vec<u8>) {
        (self.run, self.request, self.sent) = (Some(run), request, 0);
        (self.response, self.was_used) = (ResponseParser::default(), true);
    }

    fn flush(&mut self) -> Result<(), Errno> {
        while self.sent < self.request.len() {
            match net::send(
                &self.socket,
                &self.request[self.sent..],
                SendFlags::NOSIGNAL,
            ) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Writes and reads as far as possible: the socket is edge-triggered.
    fn advance(&mut self, buffer: &mut [u8]) -> Advance {
        if self.flush().is_err() {
            return Advance::Ended;
        }
        loop {
            match rustix::io::read(&self.socket, &mut *buffer) {
                Ok(0) => {
                    return match self.response.end() {
                        Some(outcome) if self.run.is_some() => Advance::Responded(outcome),
                        _ => Advance::Ended,
                    };
                }
                // Bytes without a request.
                Ok(_) if self.run.is_none() => return Advance::Ended,
                Ok(count) => match self.response.take(&buffer[..count]) {
                    Ok(None) => {}
                    Ok(Some(outcome)) => return Advance::Responded(outcome),
                    Err(_) => return Advance::Ended,
                },
                Err(Errno::AGAIN) => return Advance::Stay,
                Err(Errno::INTR) => {}
                Err(_) => return Advance::Ended,
            }
        }
    }
}

/// Values by slot; slots are reused.
struct Slots<T> {
    all: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    fn insert(&mut self, one: T) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.all.push(None);
            (self.all.len() - 1) as u32
        });
        self.all[number as usize] = Some(one);
        number
    }

    fn get(&mut self, number: u32) -> Option<&mut T> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    fn remove(&mut self, number: u32) -> Option<T> {
        let one = self.all.get_mut(number as usize)?.take()?;
        self.vacant.push(number);
        Some(one)
    }
}
