//! Calls of other services, which an answer waits for: the edges of a call graph.
//!
//! Over HTTP/1.1, on connections that are kept and used again, one request on each at a time, as
//! applications' client libraries do it by default.

mod answer;

use std::net::SocketAddr;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng as _;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::config::{AppConfig, Call, Step};
use crate::stats::Counters;
use crate::timers::{Timer, Timers};
use crate::work::{now_ns, uniform};
use answer::Answer;

/// Marks a connection to another service among the events: its number is in the lower half. No
/// connection of a client has such an upper half, nor has a listener.
pub(crate) const OUTGOING: u64 = (u32::MAX as u64 - 1) << 32;

/// Whose answer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) connection: u64,
    pub(crate) stream: u32,
}

/// What a request is waiting for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waits,
    /// All steps are done; `true`: a call failed, and those behind it were not made.
    Done(bool),
}

/// A request's steps that are under way.
#[derive(Debug)]
struct Run {
    owner: Owner,
    /// Which of the plans it goes by.
    plan: usize,
    next_step: usize,
    /// Calls that are not answered.
    open: u32,
    failed: bool,
    canary: Vec<u8>,
    /// The request was to wait first, since then.
    waits_since_ns: Option<u64>,
}

/// A connection to another service.
struct Outgoing {
    socket: OwnedFd,
    target: usize,
    /// Whose call it carries.
    run: Option<u32>,
    request: Vec<u8>,
    sent: usize,
    answer: Answer,
    /// It has carried a call before: its end may be older than this call.
    was_used: bool,
}

/// A step, with its targets by number and for which share of the requests each is called.
enum Planned {
    Calls(Vec<(usize, f64)>),
    SleepNs(u64),
}

/// All calls of a thread.
pub(crate) struct Calls {
    epoll: OwnedFd,
    /// Steps of requests for no page, then those of each page.
    plans: Vec<Vec<Planned>>,
    /// What the steps call, each once.
    targets: Vec<Call>,
    /// Connections without a call, by target.
    idle: Vec<Vec<u32>>,
    outgoing: Slots<Outgoing>,
    runs: Slots<Run>,
    random: Pcg64,
    /// Steps that are done since this was looked at.
    finished: Vec<(Owner, bool)>,
}

impl Calls {
    /// `None` if nothing is called and nothing is waited for. The epoll is the thread's own.
    pub(crate) fn new(config: &AppConfig, thread: usize, epoll: OwnedFd) -> Option<Self> {
        let pages = config.pages.iter().map(|page| &page.steps);
        let all: Vec<&Vec<Step>> = std::iter::once(&config.steps).chain(pages).collect();
        if all.iter().all(|steps| steps.is_empty()) {
            return None;
        }
        let mut targets: Vec<Call> = Vec::new();
        let mut number = |call: &Call| {
            let known = targets.iter().position(|target| target.is_alike(call));
            known.unwrap_or_else(|| {
                targets.push(call.clone());
                targets.len() - 1
            })
        };
        let mut plan = |step: &Step| match step {
            Step::SleepNs(ns) => Planned::SleepNs(*ns),
            Step::Calls(calls) => {
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
            // Other draws than those of the work: which calls are made is not which requests fail.
            random: Pcg64::seed_from_u64(!config.seed.wrapping_add(thread as u64)),
            finished: Vec::new(),
        })
    }

    /// Begins a request's steps, after its own wait, if it has one (since, until).
    pub(crate) fn begin(
        &mut self,
        timers: &mut Timers,
        counters: &Counters,
        (owner, page): (Owner, Option<usize>),
        wait: Option<(u64, u64)>,
        canary: &[u8],
    ) -> Progress {
        let plan = page.map_or(0, |page| page.saturating_add(1));
        let run = self.runs.insert(Run {
            owner,
            // A page that there is not is no page.
            plan: if plan < self.plans.len() { plan } else { 0 },
            next_step: 0,
            open: 0,
            failed: false,
            canary: canary.to_vec(),
            waits_since_ns: wait.map(|(since_ns, _)| since_ns),
        });
        if let Some((_, at_ns)) = wait {
            timers.add(wake_up(run, at_ns));
            return Progress::Waits;
        }
        self.go_on(timers, counters, run)
    }

    /// Steps that were done meanwhile, of one request.
    pub(crate) fn finished(&mut self) -> Option<(Owner, bool)> {
        self.finished.pop()
    }

    /// A request has slept.
    pub(crate) fn wake(&mut self, timers: &mut Timers, counters: &Counters, run: u32) {
        if let Some(since_ns) = self.runs.get(run).and_then(|r| r.waits_since_ns.take()) {
            counters.delay(now_ns() - since_ns);
        }
        self.proceed(timers, counters, run);
    }

    /// Something happened on a connection to another service.
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
            Advance::Answered(outcome) => {
                let (run, target) = (outgoing.run.take(), outgoing.target);
                match outcome.keep_alive {
                    true => self.idle[target].push(number),
                    false => drop(self.outgoing.remove(number)),
                }
                self.answered(timers, counters, run, outcome.is_good);
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
        // It was closed while it was idle, and before this call was seen there.
        let unseen = outgoing.was_used && outgoing.answer.is_untouched();
        if unseen && self.send_anew(target, run, outgoing.request).is_ok() {
            return;
        }
        self.answered(timers, counters, Some(run), false);
    }

    fn answered(
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
        let owner = self.runs.get(run).map(|run| run.owner);
        if let (Some(owner), Progress::Done(failed)) = (owner, self.go_on(timers, counters, run)) {
            self.finished.push((owner, failed));
        }
    }

    /// Does what can be done now of a request's steps.
    fn go_on(&mut self, timers: &mut Timers, counters: &Counters, number: u32) -> Progress {
        loop {
            let Some(run) = self.runs.get(number) else {
                return Progress::Waits;
            };
            if run.open > 0 {
                return Progress::Waits;
            }
            let plan = run.plan;
            if run.failed || run.next_step == self.plans[plan].len() {
                let failed = run.failed;
                drop(self.runs.remove(number));
                return Progress::Done(failed);
            }
            let step = run.next_step;
            run.next_step += 1;
            match &self.plans[plan][step] {
                Planned::SleepNs(ns) => {
                    timers.add(wake_up(number, now_ns() + ns));
                    return Progress::Waits;
                }
                Planned::Calls(calls) => {
                    for at in 0..calls.len() {
                        self.call_some(counters, number, (plan, step, at));
                    }
                }
            }
        }
    }

    /// One call of a step, if this request is to make it.
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
            // A failure shows again as an event, and is met there.
            let _ = outgoing.flush();
            return Ok(());
        }
        self.send_anew(target, run, request)
    }

    /// Over a connection of its own.
    fn send_anew(&mut self, target: usize, run: u32, request: Vec<u8>) -> Result<(), Errno> {
        let socket = connect(self.targets[target].address)?;
        let number = self.outgoing.insert(Outgoing {
            socket,
            target,
            run: Some(run),
            request,
            sent: 0,
            answer: Answer::default(),
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

/// What became of a connection.
enum Advance {
    Stay,
    Answered(answer::Outcome),
    Ended,
}

impl Outgoing {
    fn begin(&mut self, run: u32, request: Vec<u8>) {
        (self.run, self.request, self.sent) = (Some(run), request, 0);
        (self.answer, self.was_used) = (Answer::default(), true);
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

    /// Does all that can be done now: the socket is edge-triggered.
    fn advance(&mut self, buffer: &mut [u8]) -> Advance {
        if self.flush().is_err() {
            return Advance::Ended;
        }
        loop {
            match rustix::io::read(&self.socket, &mut *buffer) {
                Ok(0) => {
                    return match self.answer.end() {
                        Some(outcome) if self.run.is_some() => Advance::Answered(outcome),
                        _ => Advance::Ended,
                    };
                }
                // Bytes that nobody asked for.
                Ok(_) if self.run.is_none() => return Advance::Ended,
                Ok(count) => match self.answer.take(&buffer[..count]) {
                    Ok(None) => {}
                    Ok(Some(outcome)) => return Advance::Answered(outcome),
                    Err(_) => return Advance::Ended,
                },
                Err(Errno::AGAIN) => return Advance::Stay,
                Err(Errno::INTR) => {}
                Err(_) => return Advance::Ended,
            }
        }
    }
}

/// Things by number; numbers are used again.
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
