//! The event loop of one thread: send what is due, poll the sockets, process responses, repeat.

mod batch;
mod opening;
mod receiving;
mod ring_io;

use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_model::trial::GeneratorAudit;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use crate::audit::{Audit, Stall, Turn};
use crate::clock::{now_ns, timespec};
use crate::connection::{InFlight, OpenError, Phase};
use crate::dial::Dial;
use crate::error::LoadError;
use crate::pace::{Choice, Pace};
use crate::pool::{Handshake, Pool};
use crate::spec::LoadSpec;
use crate::tally::{Counter, Recorder, Tally};
use crate::wire::{Event, Failure};

use batch::Batch;

/// Spinning begins so long before an intended send time: a wake-up takes up to 40 µs in a
/// virtual machine.
const SPIN_NS: u64 = 50_000;

/// Events per poll: responses that are read between two chances to send.
const EVENTS_PER_LOOK: usize = 64;

/// Sends between two looks at the sockets, so that catching up does not starve reading.
const SENDS_PER_LOOK: u32 = 16;

/// The longest sleep: how soon an abort is seen.
const TICK_NS: u64 = 100_000_000;

/// How often totals are shown to whoever displays them.
const SHOW_NS: u64 = 200_000_000;

/// How long responses are awaited at most after an abort: the user is waiting.
const ABORT_DRAIN_NS: u64 = 500_000_000;

/// The size of a read. Responses are skipped, not stored, so that all connections share the buffer.
const READ_BYTES: usize = 64 * 1024;

/// The result of one thread of a load.
#[derive(Debug)]
pub(crate) struct ThreadResult {
    /// What was not handed over before.
    pub(crate) tally: Tally,
    pub(crate) window_ns: u64,
    pub(crate) audit: GeneratorAudit,
    pub(crate) connections_opened: u64,
    pub(crate) congestion_control: String,
    pub(crate) socket_io: &'static str,
    /// Connections that are still open, and close when this is dropped.
    pub(crate) still_open: Pool,
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

/// Which connection and socket an event is for.
fn token(event: &epoll::Event) -> (u32, u32) {
    let data = event.data.u64();
    (data as u32, (data >> 32) as u32)
}

fn hung_up(flags: EventFlags) -> bool {
    flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}

/// Whether a read finds something: bytes, or the end.
fn readable(flags: EventFlags) -> bool {
    hung_up(flags) || flags.contains(EventFlags::IN)
}

/// One thread of a load.
pub(crate) struct Engine<'a> {
    spec: &'a LoadSpec,
    abort: &'a AtomicBool,
    pool: Pool,
    pace: Pace,
    choice: Choice,
    recorder: Recorder<'a>,
    audit: Audit,
    buffer: Vec<u8>,
    /// The decrypted content of the buffer.
    plain: Vec<u8>,
    news: Vec<Event>,
    not_opened: Vec<(u32, OpenError)>,
    /// Requests on connections.
    in_flight: u32,
    /// Requests of the window that may still be sent.
    left: Option<u64>,
    begin_ns: u64,
    start_ns: u64,
    /// The window's end.
    end_ns: u64,
    /// Nothing that was intended later is sent.
    stop_ns: u64,
    drained_ns: u64,
    last_done_ns: u64,
    next_show_ns: u64,
    next_scan_ns: u64,
    /// The earliest instant at which the events in hand could have been there unseen.
    unseen_since_ns: u64,
    /// The generator's last stall that began with a connection free.
    stall: Stall,
    /// Where io_uring carries the connections once they are open.
    batch: Option<Box<Batch>>,
}

/// The instants of a load.
fn instants(spec: &LoadSpec, begin_ns: u64) -> (u64, u64, u64) {
    let start_ns = begin_ns + spec.warmup_ns;
    let end_ns = start_ns + spec.window_ns;
    (start_ns, end_ns, end_ns + spec.cooldown_ns)
}

impl<'a> Engine<'a> {
    /// With nothing open yet. The load begins at an instant that is known later.
    pub(crate) fn new(
        spec: &'a LoadSpec,
        dial: Dial,
        counter: &'a Counter,
        abort: &'a AtomicBool,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            spec,
            abort,
            pool: Pool::new(dial, spec.connections)?,
            pace: Pace::new(spec),
            choice: Choice::new(spec),
            recorder: Recorder::new(0, u64::MAX, None, counter),
            audit: Audit::default(),
            buffer: vec![0; READ_BYTES],
            plain: vec![0; if spec.tls.is_some() { READ_BYTES } else { 0 }],
            news: Vec::with_capacity(EVENTS_PER_LOOK),
            not_opened: Vec::new(),
            in_flight: 0,
            left: spec.max_requests,
            begin_ns: u64::MAX,
            start_ns: u64::MAX,
            end_ns: u64::MAX,
            stop_ns: u64::MAX,
            drained_ns: u64::MAX,
            last_done_ns: 0,
            next_show_ns: 0,
            next_scan_ns: u64::MAX,
            unseen_since_ns: 0,
            stall: Stall::default(),
            batch: Batch::of(spec),
        })
    }

    fn aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    fn opened(&mut self, took_ns: u64, now_ns: u64) {
        if self.spec.tls.is_some() {
            self.recorder.secured(took_ns, now_ns);
        } else {
            self.recorder.connected(took_ns, now_ns);
        }
    }

    /// Offers the load from that instant on, to its end.
    pub(crate) fn run(mut self, begin_ns: u64) -> Result<ThreadResult, LoadError> {
        self.begin(begin_ns);
        let mut events = Vec::with_capacity(EVENTS_PER_LOOK);
        let mut looked_ns = now_ns();
        let (mut worked, mut had_free) = (false, true);
        loop {
            self.audit.at(looked_ns, self.start_ns, self.end_ns);
            self.tend(looked_ns);
            if self.is_over(looked_ns) {
                break;
            }
            worked |= self.open_due(looked_ns);
            worked |= self.send_due();
            self.hand_over()?;
            let wait_ns = now_ns();
            let deadline_ns = self.wait_until_ns(wait_ns);
            let received = self.look(&mut events, wait_ns, deadline_ns)?;
            let turn = Turn {
                looked_ns,
                wait_ns,
                woke_ns: now_ns(),
                deadline_ns,
                worked,
                found: received || !events.is_empty(),
            };
            self.audit.turn(&turn);
            if let Some(stall) = turn.stall().filter(|_| had_free) {
                self.stall = self.stall.then(stall, self.next_intended_ns());
            }
            had_free = self.pool.has_free();
            self.unseen_since_ns = turn.unseen_since_ns();
            self.take_batch(turn.woke_ns);
            for event in &events {
                self.handle(event, turn.woke_ns);
            }
            worked = turn.found;
            looked_ns = turn.woke_ns;
        }
        Ok(self.finish())
    }

    fn begin(&mut self, begin_ns: u64) {
        let (start_ns, end_ns, stop_ns) = instants(self.spec, begin_ns);
        self.begin_ns = begin_ns;
        self.start_ns = start_ns;
        self.end_ns = end_ns;
        self.stop_ns = stop_ns;
        self.drained_ns = stop_ns + self.spec.drain_ns;
        self.unseen_since_ns = begin_ns;
        self.recorder.begin(start_ns, end_ns, self.spec.interval_ns);
        for index in 0..self.spec.connections {
            self.put_in_batch(index);
            self.pool.offer(index);
        }
        if self.spec.timeout_ns.is_some() {
            self.next_scan_ns = begin_ns;
        }
    }

    /// What is not load: an abort, intervals, totals, responses that are overdue.
    fn tend(&mut self, now_ns: u64) {
        if now_ns < self.end_ns && self.aborted() {
            self.end_ns = now_ns;
            self.stop_ns = now_ns;
            self.drained_ns = now_ns + self.spec.drain_ns.min(ABORT_DRAIN_NS);
            self.recorder.cut(now_ns);
            self.audit.at(now_ns, self.start_ns, self.end_ns);
        }
        self.recorder.turn_over(now_ns);
        if now_ns >= self.next_show_ns {
            self.next_show_ns = now_ns + SHOW_NS;
            self.recorder.show(self.pool.open_count());
        }
        if now_ns >= self.next_scan_ns {
            self.give_up_overdue(now_ns);
        }
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.drained_ns {
            self.end_early();
            return true;
        }
        let is_due =
            self.next_intended_ns().is_some() || (self.left != Some(0) && self.pace.is_behind());
        if self.in_flight > 0 || is_due {
            return false;
        }
        if now_ns >= self.stop_ns || self.is_replayed() {
            self.end_early();
            return true;
        }
        false
    }

    /// Whether a replay has no more to send.
    fn is_replayed(&self) -> bool {
        matches!(&self.pace, Pace::Shared(schedule) if schedule.peek_ns().is_none())
    }

    /// With nothing left to send, the window ends with the last response.
    fn end_early(&mut self) {
        if self.left == Some(0) || self.is_replayed() {
            self.end_ns = self.end_ns.min(self.last_done_ns.max(self.start_ns) + 1);
            self.recorder.cut(self.end_ns);
            self.audit.at(now_ns(), self.start_ns, self.end_ns);
        }
    }

    /// When the next request is due that is to be sent at all.
    fn next_intended_ns(&self) -> Option<u64> {
        if self.left == Some(0) {
            return None;
        }
        let due_ns = match &self.pace {
            Pace::Shared(schedule) => schedule.peek_ns(),
            Pace::PerConnection(own) => own.peek_ns(),
            Pace::Closed => None,
        };
        due_ns
            .map(|due_ns| self.begin_ns.saturating_add(due_ns))
            .filter(|intended_ns| *intended_ns < self.stop_ns)
    }

    fn open_due(&mut self, now_ns: u64) -> bool {
        let acted = self.pool.open_due(now_ns, &mut self.not_opened);
        while let Some((index, error)) = self.not_opened.pop() {
            self.not_open(index, &error, now_ns);
        }
        while let Some(index) = self.pool.rested.pop() {
            self.go_on(index, now_ns);
        }
        acted
    }

    /// Sends what is due and has a free connection; `true` if anything was sent.
    fn send_due(&mut self) -> bool {
        let mut sent = 0;
        let mut now = now_ns();
        let most = match self.batch {
            Some(_) => batch::SENDS_PER_TURN,
            None => SENDS_PER_LOOK,
        };
        while sent < most {
            let Some((index, intended_ns)) = self.take_due(now) else {
                break;
            };
            // What goes together in one batch is sent at one instant.
            now = match self.batch {
                Some(_) => self.send_at(index, now, now),
                None => self.send(index, intended_ns),
            };
            self.flush(index, now);
            sent += 1;
        }
        sent > 0
    }

    /// A connection that can send, and when it was to.
    fn take_due(&mut self, now_ns: u64) -> Option<(u32, u64)> {
        if matches!(self.pace, Pace::Closed) {
            if !self.load_is_on(now_ns) {
                return None;
            }
            let index = self.pool.pop_free()?;
            let free_since_ns = self.pool.connections[index as usize].free_since_ns;
            return Some((index, free_since_ns.max(self.begin_ns)));
        }
        loop {
            let intended_ns = self.next_intended_ns().filter(|due_ns| *due_ns <= now_ns)?;
            match &mut self.pace {
                Pace::Shared(schedule) => {
                    let index = self.pool.pop_free()?;
                    schedule.take_ns();
                    return Some((index, intended_ns));
                }
                Pace::PerConnection(own) => {
                    let (due_ns, index) = own.pop()?;
                    let connection = &self.pool.connections[index as usize];
                    if connection.has_room(&self.pool.dial) {
                        return Some((index, intended_ns));
                    }
                    own.put_off(due_ns, index);
                }
                Pace::Closed => return None,
            }
        }
    }

    /// Puts a request on a connection with room; it is on its way when that is flushed.
    /// Returns when.
    fn send(&mut self, index: u32, intended_ns: u64) -> u64 {
        self.send_at(index, intended_ns, now_ns())
    }

    /// The same, with the clock just read.
    fn send_at(&mut self, index: u32, intended_ns: u64, sent_ns: u64) -> u64 {
        let is_closed = self.spec.model.is_closed();
        let belongs_at_ns = if is_closed { sent_ns } else { intended_ns };
        let request = InFlight {
            intended_ns,
            sent_ns,
            first_byte_ns: 0,
            in_window: self.recorder.in_window(belongs_at_ns),
            request: self.choice.pick(index),
        };
        let available_since_ns = if self.stall.delayed(intended_ns) {
            intended_ns
        } else {
            self.pool.connections[index as usize].available_since_ns
        };
        self.recorder.taken(&request, sent_ns, available_since_ns);
        self.in_flight += 1;
        if let Some(left) = self.left.as_mut().filter(|_| request.in_window) {
            *left -= 1;
            if *left == 0 {
                self.stop_ns = self.stop_ns.min(sent_ns);
                self.drained_ns = self.stop_ns + self.spec.drain_ns;
            }
        }
        match self.pool.start(index, request) {
            Ok(()) => self.pool.offer(index),
            Err(error) => self.not_open(index, &error, sent_ns),
        }
        sent_ns
    }

    /// Hands over to the kernel what was written on a connection.
    fn flush(&mut self, index: u32, now_ns: u64) {
        let connection = &mut self.pool.connections[index as usize];
        if connection.phase != Phase::Open {
            return;
        }
        if connection.ring.is_some() {
            return self.list_for_batch(index);
        }
        let flushed = connection.flush();
        let written = std::mem::take(&mut connection.written);
        self.recorder.sent(written, now_ns);
        if flushed.is_err() {
            self.connection_failed(index, Failure::Reset, now_ns);
        }
    }

    /// When the next look must end; `None`: at once, since a send is due or nearly so.
    fn wait_until_ns(&mut self, now_ns: u64) -> Option<u64> {
        let mut until_ns = (now_ns + TICK_NS)
            .min(self.pool.next_due_ns())
            .min(self.recorder.next_interval_ns())
            .min(self.next_scan_ns);
        for boundary_ns in [
            self.begin_ns,
            self.start_ns,
            self.end_ns,
            self.stop_ns,
            self.drained_ns,
        ] {
            if boundary_ns > now_ns {
                until_ns = until_ns.min(boundary_ns);
            }
        }
        let send_ns = match &self.pace {
            Pace::Closed => {
                let due = now_ns < self.stop_ns && self.pool.has_free();
                due.then_some(self.begin_ns)
            }
            Pace::Shared(_) if !self.pool.has_free() => None,
            Pace::Shared(_) | Pace::PerConnection(_) => self.next_intended_ns(),
        };
        if let Some(send_ns) = send_ns {
            let early_ns = if self.spec.spin { SPIN_NS } else { 0 };
            until_ns = until_ns.min(send_ns.saturating_sub(early_ns));
        }
        (until_ns > now_ns).then_some(until_ns)
    }

    fn handle(&mut self, event: &epoll::Event, looked_ns: u64) {
        let (index, generation) = token(event);
        let connection = &mut self.pool.connections[index as usize];
        if connection.generation != generation {
            return;
        }
        // Copied: the kernel's struct is packed.
        let flags = event.flags;
        match connection.phase {
            Phase::Down => return,
            before @ (Phase::Connecting | Phase::Securing) => {
                if !self.handshake_event(index, looked_ns) {
                    let after = self.pool.connections[index as usize].phase;
                    if before == Phase::Connecting && after == Phase::Securing && readable(flags) {
                        // Data that a peer sent before any request is reported only once.
                        self.handle(event, looked_ns);
                    }
                    return;
                }
            }
            Phase::Open if !connection.is_flushed() => self.flush(index, looked_ns),
            Phase::Open => {}
        }
        let is_epolls = self.pool.connections[index as usize].ring.is_none();
        if readable(flags) && is_epolls {
            self.receive(index, hung_up(flags), looked_ns);
        }
    }

    /// `true`: the connection is open now.
    fn handshake_event(&mut self, index: u32, now_ns: u64) -> bool {
        match self.pool.handshake_event(index, &mut self.buffer, now_ns) {
            Handshake::UnderWay => false,
            Handshake::Connected(took_ns) => {
                self.recorder.connected(took_ns, now_ns);
                false
            }
            Handshake::Failed(error) => {
                self.not_open(index, &error, now_ns);
                false
            }
            Handshake::Open(took_ns) => {
                self.opened(took_ns, now_ns);
                let connection = &mut self.pool.connections[index as usize];
                connection.start_waiting(&self.pool.dial, now_ns);
                self.put_in_batch(index);
                self.go_on(index, now_ns);
                true
            }
        }
    }

    /// Gives up the requests that have waited for their response too long.
    fn give_up_overdue(&mut self, now_ns: u64) {
        let Some(timeout_ns) = self.spec.timeout_ns else {
            return;
        };
        self.next_scan_ns = now_ns + (timeout_ns / 20).clamp(1_000_000, TICK_NS);
        let sent_before_ns = now_ns.saturating_sub(timeout_ns);
        for index in 0..self.spec.connections {
            while let Some(slot) = self.pool.connections[index as usize].overdue(sent_before_ns) {
                let connection = &mut self.pool.connections[index as usize];
                let goes_on = connection.give_up(slot);
                if let Some(request) = connection.take(slot) {
                    self.recorder.failed(&request, Failure::Timeout);
                    self.ended(index, now_ns);
                }
                if goes_on {
                    self.go_on(index, now_ns);
                } else {
                    self.connection_failed(index, Failure::Timeout, now_ns);
                }
            }
        }
    }

    fn finish(mut self) -> ThreadResult {
        if let Some(batch) = &mut self.batch {
            batch.end();
        }
        // Arrivals that never found a connection were offered all the same.
        if self.left != Some(0) {
            let mut unsent = 0;
            while let Some(intended_ns) = self.next_intended_ns()
                && let Pace::Shared(schedule) = &mut self.pace
            {
                unsent += u64::from(self.recorder.in_window(intended_ns));
                schedule.take_ns();
            }
            if let Pace::PerConnection(own) = std::mem::replace(&mut self.pace, Pace::Closed)
                && !self.spec.model.is_closed()
            {
                let stop_ns = self.stop_ns - self.begin_ns;
                let missed = own.unsent(stop_ns).into_iter();
                unsent += missed
                    .filter(|due_ns| self.recorder.in_window(self.begin_ns + due_ns))
                    .count() as u64;
            }
            self.recorder.never_sent(unsent);
        }
        let window_ns = self.recorder.window_ns();
        let congestion_control = self
            .pool
            .connections
            .iter()
            .find_map(crate::connection::Connection::congestion_control)
            .unwrap_or_default();
        self.recorder.show(self.pool.open_count());
        ThreadResult {
            window_ns,
            audit: self.audit.finish(window_ns),
            connections_opened: self.pool.opened,
            congestion_control,
            socket_io: match self.batch {
                Some(_) => "io_uring",
                None => "epoll",
            },
            tally: self.recorder.finish(),
            still_open: self.pool,
        }
    }
}
