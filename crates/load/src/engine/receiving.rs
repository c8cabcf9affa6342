//! What comes on a connection, and what follows from it.

use super::Engine;
use crate::clock::now_ns;
use crate::connection::{Arrival, OpenError};
use crate::pace::Pace;
use crate::wire::{Event, Failure};

/// Reads of one connection in a row: a peer that sends without end must not keep the others, and
/// the clock, from their turn.
const READS_PER_TURN: u32 = 4;

impl Engine<'_> {
    /// Reads what has come on a connection.
    pub(super) fn receive(&mut self, index: u32, hang_up: bool, looked_ns: u64) {
        let mut at_ns = looked_ns;
        for _ in 0..READS_PER_TURN {
            let connection = &mut self.pool.connections[index as usize];
            match connection.read(&mut self.buffer) {
                Arrival::Bytes(count) => {
                    at_ns = now_ns();
                    let fed = connection.feed(
                        &self.pool.dial,
                        &self.buffer[..count],
                        &mut self.plain,
                        &mut self.news,
                    );
                    if !self.fed(index, count, fed, at_ns) {
                        return;
                    }
                    if count < self.buffer.len() && !hang_up {
                        // A short read emptied the socket; the next byte makes a new event.
                        return;
                    }
                }
                Arrival::Empty => return,
                Arrival::Closed => return self.peer_closed(index, at_ns),
                Arrival::Reset => return self.connection_failed(index, Failure::Reset, at_ns),
            }
        }
        if self.pool.tell_again(index).is_err() {
            self.connection_failed(index, Failure::Reset, at_ns);
        }
    }

    /// So many bytes were fed to a connection at that instant. `false`: it is not what it was any
    /// more.
    pub(super) fn fed(
        &mut self,
        index: u32,
        count: usize,
        fed: Result<(), Failure>,
        at_ns: u64,
    ) -> bool {
        self.recorder.received(count as u64, at_ns);
        self.hear(index, at_ns);
        if let Err(failure) = fed {
            self.connection_failed(index, failure, at_ns);
            return false;
        }
        self.go_on(index, at_ns)
    }

    /// The peer ended a connection in good order.
    pub(super) fn peer_closed(&mut self, index: u32, at_ns: u64) {
        self.pool.connections[index as usize].end(&mut self.news);
        self.hear(index, at_ns);
        self.connection_failed(index, Failure::Reset, at_ns);
    }

    /// Handles what a connection received.
    fn hear(&mut self, index: u32, at_ns: u64) {
        let unseen_since_ns = self.unseen_since_ns;
        for at in 0..self.news.len() {
            let connection = &mut self.pool.connections[index as usize];
            match self.news[at] {
                Event::FirstByte { slot } => connection.first_byte(slot, at_ns),
                Event::Response { slot, status } => {
                    if let Some(request) = connection.take(slot) {
                        connection.proven = true;
                        connection.backoff_ns = 0;
                        connection.free_since_ns = at_ns;
                        connection.available_since_ns = unseen_since_ns;
                        self.recorder.responded(&request, status, at_ns);
                        self.ended(index, at_ns);
                    }
                }
                Event::Failed { slot, failure } => {
                    if let Some(request) = connection.take(slot) {
                        self.recorder.failed(&request, failure);
                        self.ended(index, at_ns);
                    }
                }
            }
        }
        self.news.clear();
    }

    /// A request is not under way any more.
    pub(super) fn ended(&mut self, index: u32, at_ns: u64) {
        self.in_flight -= 1;
        self.last_done_ns = self.last_done_ns.max(at_ns);
        if let Pace::PerConnection(own) = &mut self.pace {
            own.ended(index, at_ns.saturating_sub(self.begin_ns));
        }
    }

    /// A connection that may have room: it carries on, or is closed if it cannot. `false`: it is
    /// not what it was any more.
    pub(super) fn go_on(&mut self, index: u32, at_ns: u64) -> bool {
        let connection = &self.pool.connections[index as usize];
        let (spent, was_good) = (connection.is_spent(&self.pool.dial), connection.proven);
        if spent {
            self.pool.reopen(index, at_ns, was_good);
        }
        match &self.pace {
            Pace::Closed if self.batch.is_none() && self.load_is_on(at_ns) => {
                while self.load_is_on(at_ns) && self.has_room(index) {
                    self.send_at(index, at_ns, at_ns);
                }
            }
            Pace::PerConnection(_) => {
                // Also after the load's end: what was due before is sent, however late.
                while self.left != Some(0)
                    && self.has_room(index)
                    && let Some(due_ns) = self.pace.catch_up(index)
                {
                    self.send(index, self.begin_ns + due_ns);
                }
                self.pool.offer(index);
            }
            Pace::Closed | Pace::Shared(_) => self.pool.offer(index),
        }
        self.flush(index, at_ns);
        !spent
    }

    /// Whether requests may still be sent.
    pub(super) fn load_is_on(&self, now_ns: u64) -> bool {
        self.left != Some(0) && (self.begin_ns..self.stop_ns).contains(&now_ns)
    }

    pub(super) fn has_room(&self, index: u32) -> bool {
        self.pool.connections[index as usize].has_room(&self.pool.dial)
    }

    /// A connection is of no use any more: what it carried has failed.
    pub(super) fn connection_failed(&mut self, index: u32, failure: Failure, now_ns: u64) {
        let mut carried = 0;
        while let Some(request) = self.pool.connections[index as usize].take_any() {
            self.recorder.failed(&request, failure);
            self.ended(index, now_ns);
            carried += 1;
        }
        let was_good = self.pool.connections[index as usize].proven;
        // Without a request on it the peer may close it: that is no error. But over TLS 1.3 it is
        // open before the server has judged us, and that it never was of use is then one.
        if carried == 0 && !was_good && failure == Failure::Tls {
            self.recorder.attempt_failed(failure, now_ns);
        }
        self.pool.reopen(index, now_ns, was_good);
    }

    /// A connection could not be opened.
    pub(super) fn not_open(&mut self, index: u32, error: &OpenError, now_ns: u64) {
        let waiting = self.pool.connections[index as usize].take_any();
        match waiting {
            Some(request) => {
                self.recorder.failed(&request, error.failure());
                self.ended(index, now_ns);
            }
            None => self.recorder.attempt_failed(error.failure(), now_ns),
        }
        self.pool.reopen(index, now_ns, false);
    }
}
