//! Before the load: all connections are opened, or it is said why that cannot be.

use rustix::event::epoll;
use rustix::io::Errno;

use super::{EVENTS_PER_LOOK, Engine, TICK_NS, hung_up, look, readable, token};
use crate::clock::now_ns;
use crate::connection::{OpenError, Phase};
use crate::error::LoadError;
use crate::pool::Handshake;

/// How long connections may be refused before the load is given up.
const REFUSED_PATIENCE_NS: u64 = 1_000_000_000;

impl Engine<'_> {
    /// Opens every connection, or says why that cannot be.
    pub(crate) fn open_all(&mut self) -> Result<(), LoadError> {
        if self.pool.opens_on_demand() {
            self.pool.all_free();
            return Ok(());
        }
        let mut events = Vec::with_capacity(EVENTS_PER_LOOK);
        // Connections that are open, and the most that were at a time: a server that takes each
        // and ends it again makes no progress.
        let (mut open, mut most_open) = (0, 0);
        let mut progress_ns = now_ns();
        let mut last_error = OpenError::Tcp(Errno::TIMEDOUT);
        // Whose error it was.
        let mut failed = 0;
        while !self.pool.all_open() && !self.aborted() {
            let now = now_ns();
            self.pool.open_due(now, &mut self.not_opened);
            while let Some((index, error)) = self.not_opened.pop() {
                self.pool.reopen(index, now, false);
                (last_error, failed) = (error, index);
            }
            let patience_ns = if last_error.is_refusal() {
                self.spec.connect_timeout_ns.min(REFUSED_PATIENCE_NS)
            } else {
                self.spec.connect_timeout_ns
            };
            let give_up_ns = progress_ns + patience_ns;
            if now >= give_up_ns || last_error.is_final() {
                return Err(self.cannot_connect(&last_error, failed));
            }
            let deadline_ns = self.pool.next_due_ns().min(give_up_ns).min(now + TICK_NS);
            look(&self.pool, &mut events, now, Some(deadline_ns))?;
            let now = now_ns();
            for event in &events {
                let (index, _) = token(event);
                let was_open = self.is_open(index);
                if let Err(error) = self.opening_event(event, now) {
                    (last_error, failed) = (error, index);
                }
                open += i64::from(self.is_open(index)) - i64::from(was_open);
                if open > most_open {
                    most_open = open;
                    progress_ns = now;
                }
            }
        }
        Ok(())
    }

    fn cannot_connect(&self, error: &OpenError, failed: u32) -> LoadError {
        let destination = self.pool.connections[failed as usize].destination;
        LoadError::Connect {
            target: self.pool.dial.destinations[destination].target,
            problem: error.problem(),
            cause: error.to_string(),
            opened: self.pool.open_count(),
            connections: self.spec.connections,
            fix: error.fix(),
        }
    }

    pub(super) fn is_open(&self, index: u32) -> bool {
        self.pool.connections[index as usize].phase == Phase::Open
    }

    /// An event before the load: why a connection ended, if it did.
    fn opening_event(&mut self, event: &epoll::Event, now: u64) -> Result<(), OpenError> {
        let (index, generation) = token(event);
        let flags = event.flags;
        let connection = &self.pool.connections[index as usize];
        if connection.generation != generation {
            return Ok(());
        }
        match connection.phase {
            Phase::Connecting | Phase::Securing => {
                match self.pool.handshake_event(index, &mut self.buffer, now) {
                    Handshake::UnderWay => return Ok(()),
                    Handshake::Failed(error) => {
                        self.pool.reopen(index, now, false);
                        return Err(error);
                    }
                    Handshake::Connected(took_ns) => {
                        self.recorder.connected(took_ns, now);
                        // Data that a peer sent before any request is reported only once.
                        return match readable(flags) {
                            true => self.opening_event(event, now),
                            false => Ok(()),
                        };
                    }
                    Handshake::Open(took_ns) => self.opened(took_ns, now),
                }
                if readable(flags) {
                    self.receive(index, hung_up(flags), now);
                }
            }
            Phase::Open => self.receive(index, hung_up(flags), now),
            Phase::Down => return Ok(()),
        }
        if self.is_open(index) {
            return Ok(());
        }
        // TLS 1.3 is open before the server has judged us: it may say only now what it misses.
        let tls_error = self.pool.connections[index as usize].tls_error.take();
        Err(tls_error.map_or(OpenError::Unusable, OpenError::Tls))
    }
}
