//! The loop: due sends, a look at the sockets, answers, and again.

use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_model::LatencyHistogram;
use meshtax_model::trial::LoadResult;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::audit::{Audit, Turn};
use crate::clock::{now_ns, timespec};
use crate::connection::{InFlight, Phase, Received};
use crate::error::LoadError;
use crate::http1;
use crate::limits;
use crate::pool::Pool;
use crate::recorder::{Failure, Recorder};
use crate::schedule::Schedule;
use crate::spec::{LoadModel, LoadSpec};

/// Spinning begins so long before an intended send time: a wake-up takes up to 40 µs in a
/// virtual machine.
const SPIN_NS: u64 = 50_000;

/// Events taken in one look: answers read between two chances to send.
const EVENTS_PER_LOOK: usize = 64;

/// Sends between two looks at the sockets, so that catching up does not starve reading.
const SENDS_PER_LOOK: u32 = 16;

/// The longest sleep: how soon an abort is seen.
const TICK_NS: u64 = 100_000_000;

/// How often a live display is called.
const PROGRESS_NS: u64 = 250_000_000;

/// Between the announcement of the window and the first send.
const LEAD_NS: u64 = 2_000_000;

/// How long answers are awaited at most after an abort: a person is waiting.
const ABORT_DRAIN_NS: u64 = 500_000_000;

/// One read's size. Answers are skipped, not stored, so that all connections share it.
const READ_BYTES: usize = 64 * 1024;

/// When the measured part begins and ends, on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The first instant of the window.
    pub start_monotonic_ns: u64,
    /// The first instant after it.
    pub end_monotonic_ns: u64,
}

/// Counts since the begin of the load, warm-up included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the load began, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests sent.
    pub sent: u64,
    /// Answers of any status.
    pub answered: u64,
    /// Errors of any kind.
    pub failed: u64,
    /// Connections that are open.
    pub connections: u32,
}

/// What the caller wants to hear of a running load.
pub struct Hooks<'a> {
    /// All connections are open; the warm-up is about to begin.
    pub on_window: &'a mut dyn FnMut(Window),
    /// Called every 250 ms from the loop: it must be quick, since its time is send lag.
    pub on_progress: Option<&'a mut dyn FnMut(Progress)>,
    /// When this becomes true the window ends, and the result is of what was measured.
    pub abort: Option<&'a AtomicBool>,
    /// The figures are there and the connections still open: they close when this returns.
    pub on_result: Option<&'a mut dyn FnMut(&Outcome)>,
}

/// A load's result with what only the generator can tell.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures.
    pub result: LoadResult,
    /// Requests of the window that found no connection free when they were due.
    pub queued: u64,
    /// Actual minus intended send time, from when a connection was free: the generator's
    /// own part of the send lag.
    pub generator_lag: LatencyHistogram,
}

/// How long connections may be refused before the load is given up.
const REFUSED_PATIENCE_NS: u64 = 1_000_000_000;

/// Offers the load and waits for its end.
///
/// # Errors
/// When the spec is invalid, or the connections cannot be opened.
pub fn run(spec: &LoadSpec, on_window: &mut dyn FnMut(Window)) -> Result<LoadResult, LoadError> {
    let hooks = Hooks {
        on_window,
        on_progress: None,
        abort: None,
        on_result: None,
    };
    run_with(spec, hooks).map(|outcome| outcome.result)
}

/// As [`run`], with a live display and a way to end it early.
///
/// # Errors
/// As [`run`].
pub fn run_with(spec: &LoadSpec, mut hooks: Hooks<'_>) -> Result<Outcome, LoadError> {
    spec.validate()?;
    limits::allow_connections(spec.connections)?;
    prepare_thread(spec)?;
    let mut pool = Pool::new(spec.target, spec.connections, &spec.method)?;
    let mut events = Vec::with_capacity(EVENTS_PER_LOOK);
    open_all(spec, &mut pool, &mut events, hooks.abort)?;
    let mut engine = Engine::new(spec, pool);
    (hooks.on_window)(Window {
        start_monotonic_ns: engine.start_ns,
        end_monotonic_ns: engine.end_ns,
    });
    engine.drive(&mut events, &mut hooks)?;
    let (outcome, _still_open) = engine.finish();
    if let Some(on_result) = hooks.on_result {
        on_result(&outcome);
    }
    Ok(outcome)
}

fn prepare_thread(spec: &LoadSpec) -> Result<(), LoadError> {
    if let Some(core) = spec.core {
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

/// Waits for events until the deadline; `None` does not wait at all.
fn look(
    pool: &Pool,
    events: &mut Vec<epoll::Event>,
    now_ns: u64,
    deadline_ns: Option<u64>,
) -> Result<(), LoadError> {
    events.clear();
    let timeout = timespec(deadline_ns.map_or(0, |deadline_ns| deadline_ns.saturating_sub(now_ns)));
    match epoll::wait(pool.epoll(), spare_capacity(events), Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(source @ (Errno::NOSYS | Errno::PERM)) => Err(LoadError::Kernel { source }),
        Err(source) => Err(LoadError::system("epoll_pwait2")(source)),
    }
}

fn aborted(abort: Option<&AtomicBool>) -> bool {
    abort.is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Which connection and socket an event is for.
fn token(event: &epoll::Event) -> (u32, u32) {
    let data = event.data.u64();
    (data as u32, (data >> 32) as u32)
}

fn hung_up(flags: EventFlags) -> bool {
    flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}

/// Opens every connection, or says why that cannot be.
fn open_all(
    spec: &LoadSpec,
    pool: &mut Pool,
    events: &mut Vec<epoll::Event>,
    abort: Option<&AtomicBool>,
) -> Result<(), LoadError> {
    let mut progress_ns = now_ns();
    while !pool.all_open() && !aborted(abort) {
        let now = now_ns();
        pool.open_due(now);
        // Nobody listens there: that may be a server about to start, but not for long. The whole
        // timeout is for what gets no answer.
        let patience_ns = match pool.last_failure {
            Some(Errno::CONNREFUSED) => spec.connect_timeout_ns.min(REFUSED_PATIENCE_NS),
            _ => spec.connect_timeout_ns,
        };
        let give_up_ns = progress_ns + patience_ns;
        if now >= give_up_ns {
            let cause = pool.last_failure.unwrap_or(Errno::TIMEDOUT);
            return Err(LoadError::Connect {
                target: spec.target,
                cause: std::io::Error::from(cause).to_string(),
                opened: pool.open_count(),
                connections: spec.connections,
            });
        }
        let deadline_ns = pool.next_due_ns().min(give_up_ns).min(now + TICK_NS);
        look(pool, events, now, Some(deadline_ns))?;
        let now = now_ns();
        for event in events.iter() {
            let (index, generation) = token(event);
            let connection = &mut pool.connections[index as usize];
            if connection.generation != generation {
                continue;
            }
            if connection.phase == Phase::Connecting {
                if pool.handshake_event(index, now) {
                    progress_ns = now;
                }
            } else if hung_up(event.flags) && connection.phase == Phase::Idle {
                pool.reopen(index, now, false);
                pool.last_failure = Some(Errno::CONNRESET);
            }
        }
    }
    Ok(())
}

struct Engine<'a> {
    spec: &'a LoadSpec,
    request: Vec<u8>,
    pool: Pool,
    /// `None` in a closed loop.
    schedule: Option<Schedule>,
    recorder: Recorder,
    audit: Audit,
    buffer: Vec<u8>,
    /// Requests on connections.
    in_flight: u32,
    begin_ns: u64,
    start_ns: u64,
    /// The window's end: nothing that was intended later is sent.
    end_ns: u64,
    drained_ns: u64,
    next_progress_ns: u64,
    /// The earliest instant at which the events in hand could have been there unseen.
    unseen_since_ns: u64,
    /// The generator's last stall that began with a connection free.
    stall: (u64, u64),
}

impl<'a> Engine<'a> {
    fn new(spec: &'a LoadSpec, mut pool: Pool) -> Self {
        for index in 0..spec.connections {
            if pool.connections[index as usize].phase == Phase::Idle {
                pool.push_free(index);
            }
        }
        // Attempts before the load are no errors of it.
        pool.failed = 0;
        let schedule = match spec.model {
            LoadModel::Open {
                rate_per_s,
                arrivals,
                seed,
            } => Some(Schedule::new(rate_per_s, arrivals, seed)),
            LoadModel::Closed => None,
        };
        let begin_ns = now_ns() + LEAD_NS;
        let start_ns = begin_ns + spec.warmup_ns;
        let end_ns = start_ns + spec.window_ns;
        Self {
            spec,
            request: http1::encode_request(spec),
            pool,
            schedule,
            recorder: Recorder::new(start_ns, end_ns),
            audit: Audit::default(),
            buffer: vec![0; READ_BYTES],
            in_flight: 0,
            begin_ns,
            start_ns,
            end_ns,
            drained_ns: end_ns + spec.drain_ns,
            next_progress_ns: begin_ns + PROGRESS_NS,
            unseen_since_ns: begin_ns,
            stall: (0, 0),
        }
    }

    fn drive(
        &mut self,
        events: &mut Vec<epoll::Event>,
        hooks: &mut Hooks<'_>,
    ) -> Result<(), LoadError> {
        let mut looked_ns = now_ns();
        let (mut worked, mut had_free) = (false, true);
        loop {
            self.audit.at(looked_ns, self.start_ns, self.end_ns);
            self.tend(looked_ns, hooks);
            if self.is_over(looked_ns) {
                return Ok(());
            }
            worked |= self.pool.open_due(looked_ns);
            worked |= self.send_due();
            self.count_failed_attempts(looked_ns);
            let wait_ns = now_ns();
            let deadline_ns = self.wait_until_ns(wait_ns);
            look(&self.pool, events, wait_ns, deadline_ns)?;
            let turn = Turn {
                looked_ns,
                wait_ns,
                woke_ns: now_ns(),
                deadline_ns,
                worked,
                found: !events.is_empty(),
            };
            self.audit.turn(&turn);
            if let Some(stall) = turn.stall().filter(|_| had_free) {
                self.stall = stall;
            }
            had_free = self.pool.has_free();
            self.unseen_since_ns = turn.unseen_since_ns();
            for event in events.iter() {
                self.handle(event, turn.woke_ns);
            }
            worked = turn.found;
            looked_ns = turn.woke_ns;
        }
    }

    /// What is not load: an abort, the live display.
    fn tend(&mut self, now_ns: u64, hooks: &mut Hooks<'_>) {
        if now_ns < self.end_ns && aborted(hooks.abort) {
            self.end_ns = now_ns;
            self.drained_ns = now_ns + self.spec.drain_ns.min(ABORT_DRAIN_NS);
            self.recorder.cut(now_ns);
            self.audit.at(now_ns, self.start_ns, self.end_ns);
        }
        if now_ns < self.next_progress_ns {
            return;
        }
        self.next_progress_ns = now_ns + PROGRESS_NS;
        if let Some(on_progress) = hooks.on_progress.as_mut() {
            let totals = self.recorder.totals;
            on_progress(Progress {
                elapsed_ns: now_ns.saturating_sub(self.begin_ns),
                sent: totals.sent,
                answered: totals.answered,
                failed: totals.failed,
                connections: self.pool.open_count(),
            });
        }
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let all_ended = self.in_flight == 0 && self.next_intended_ns().is_none();
        now_ns >= self.drained_ns || (now_ns >= self.end_ns && all_ended)
    }

    /// The next arrival of an open loop that is to be sent at all.
    fn next_intended_ns(&self) -> Option<u64> {
        let schedule = self.schedule.as_ref()?;
        let intended_ns = self.begin_ns + schedule.peek_ns();
        (intended_ns < self.end_ns).then_some(intended_ns)
    }

    /// Sends what is due and has a free connection; `true` if anything was sent.
    fn send_due(&mut self) -> bool {
        let mut sent = 0;
        let mut now = now_ns();
        while sent < SENDS_PER_LOOK {
            let intended_ns = if self.schedule.is_some() {
                self.next_intended_ns()
            } else {
                (now < self.end_ns).then_some(self.begin_ns)
            };
            let Some(mut intended_ns) = intended_ns.filter(|due_ns| *due_ns <= now) else {
                break;
            };
            let Some(index) = self.pool.pop_free() else {
                break;
            };
            match &mut self.schedule {
                Some(schedule) => {
                    schedule.take_ns();
                }
                None => {
                    let free_since_ns = self.pool.connections[index as usize].free_since_ns;
                    intended_ns = intended_ns.max(free_since_ns);
                }
            }
            now = self.send(index, intended_ns);
            sent += 1;
        }
        sent > 0
    }

    /// Sends on a free connection; returns when.
    fn send(&mut self, index: u32, intended_ns: u64) -> u64 {
        let sent_ns = now_ns();
        let belongs_at_ns = if self.schedule.is_some() {
            intended_ns
        } else {
            sent_ns
        };
        let request = InFlight {
            intended_ns,
            sent_ns,
            in_window: self.recorder.in_window(belongs_at_ns),
        };
        let connection = &mut self.pool.connections[index as usize];
        let (stall_begin_ns, stall_end_ns) = self.stall;
        let own_fault = stall_begin_ns < intended_ns && intended_ns <= stall_end_ns;
        let available_since_ns = if own_fault {
            intended_ns
        } else {
            connection.available_since_ns
        };
        self.recorder.sent(&request, available_since_ns);
        self.in_flight += 1;
        if connection.start(request, &self.request).is_err() {
            self.request_failed(index, Failure::Reset, sent_ns);
        }
        sent_ns
    }

    /// When the next look must end; `None`: at once, since a send is due or nearly so.
    fn wait_until_ns(&mut self, now_ns: u64) -> Option<u64> {
        let mut until_ns = (now_ns + TICK_NS).min(self.pool.next_due_ns());
        for boundary_ns in [self.begin_ns, self.start_ns, self.end_ns, self.drained_ns] {
            if boundary_ns > now_ns {
                until_ns = until_ns.min(boundary_ns);
            }
        }
        if self.pool.has_free() {
            let send_ns = if self.schedule.is_some() {
                self.next_intended_ns()
            } else {
                (now_ns < self.end_ns).then_some(self.begin_ns)
            };
            if let Some(send_ns) = send_ns {
                let early_ns = if self.spec.spin { SPIN_NS } else { 0 };
                until_ns = until_ns.min(send_ns.saturating_sub(early_ns));
            }
        }
        (until_ns > now_ns).then_some(until_ns)
    }

    fn handle(&mut self, event: &epoll::Event, looked_ns: u64) {
        let (index, generation) = token(event);
        let connection = &mut self.pool.connections[index as usize];
        if connection.generation != generation || connection.phase == Phase::Down {
            return;
        }
        // Copied: the kernel's struct is packed.
        let flags = event.flags;
        let hang_up = hung_up(flags);
        if connection.phase == Phase::Connecting {
            if self.pool.handshake_event(index, looked_ns) {
                self.pool.push_free(index);
            }
            if !hang_up || self.pool.connections[index as usize].phase != Phase::Idle {
                return;
            }
        } else if connection.phase == Phase::Busy && connection.write_on(&self.request).is_err() {
            self.request_failed(index, Failure::Reset, looked_ns);
            return;
        }
        if hang_up || flags.contains(EventFlags::IN) {
            self.receive(index, hang_up, looked_ns);
        }
    }

    fn receive(&mut self, index: u32, hang_up: bool, looked_ns: u64) {
        let connection = &mut self.pool.connections[index as usize];
        let (bytes, received) = connection.read(&mut self.buffer, self.request.len(), hang_up);
        match received {
            Received::Nothing => self.recorder.received(bytes, looked_ns),
            Received::Answer(answer) => {
                let done_ns = now_ns();
                connection.proven = true;
                self.in_flight -= 1;
                self.recorder.received(bytes, done_ns);
                self.recorder
                    .answered(&connection.request, answer.status, done_ns);
                if answer.keep_alive {
                    connection.phase = Phase::Idle;
                    connection.backoff_ns = 0;
                    connection.free_since_ns = done_ns;
                    connection.available_since_ns = self.unseen_since_ns;
                    self.go_on(index, done_ns);
                } else {
                    self.pool.reopen(index, done_ns, true);
                }
            }
            Received::Closed if connection.phase == Phase::Idle => {
                // The peer may close what is idle: that is no error.
                let was_good = connection.proven;
                self.pool.reopen(index, looked_ns, was_good);
            }
            Received::Closed => self.request_failed(index, Failure::Reset, looked_ns),
            Received::Protocol => self.request_failed(index, Failure::Protocol, looked_ns),
        }
    }

    /// A connection got its answer and may carry the next request.
    fn go_on(&mut self, index: u32, done_ns: u64) {
        if self.schedule.is_none() && done_ns < self.end_ns {
            self.send(index, done_ns);
        } else {
            self.pool.push_free(index);
        }
    }

    fn request_failed(&mut self, index: u32, failure: Failure, now_ns: u64) {
        let connection = &mut self.pool.connections[index as usize];
        self.in_flight -= 1;
        self.recorder.failed(&connection.request, failure);
        let was_good = connection.proven;
        self.pool.reopen(index, now_ns, was_good);
    }

    fn count_failed_attempts(&mut self, now_ns: u64) {
        if self.pool.failed > 0 {
            self.recorder.connect_failed(self.pool.failed, now_ns);
            self.pool.failed = 0;
        }
    }

    fn finish(mut self) -> (Outcome, Pool) {
        // Arrivals that never found a connection were offered all the same.
        let mut never_sent = 0;
        while let Some(intended_ns) = self.next_intended_ns() {
            never_sent += u64::from(self.recorder.in_window(intended_ns));
            if let Some(schedule) = &mut self.schedule {
                schedule.take_ns();
            }
        }
        self.recorder.never_sent(never_sent);
        self.recorder.finish();
        let Recorder {
            mut result,
            generator_lag,
            queued,
            ..
        } = self.recorder;
        let lag = self.schedule.is_some().then_some(&generator_lag);
        result.audit = self.audit.finish(result.window_ns, lag);
        result.connections_opened = self.pool.opened;
        result.congestion_control = self
            .pool
            .connections
            .iter()
            .find_map(crate::connection::Connection::congestion_control)
            .unwrap_or_default();
        let outcome = Outcome {
            result,
            queued,
            generator_lag,
        };
        (outcome, self.pool)
    }
}
