//! All connections of a load: opening them a few at a time, reopening, who is free.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::connection::{Connection, Phase};
use crate::error::LoadError;

/// Handshakes under way at a time. A burst of them would measure the server's accept
/// queue, and one at a time would make 10,000 connections slow to open.
const MAX_HANDSHAKES: usize = 8;

/// The first pause after a failed attempt, in nanoseconds; it doubles up to the last.
const FIRST_BACKOFF_NS: u64 = 10_000_000;
const LAST_BACKOFF_NS: u64 = 1_000_000_000;

/// A handshake that takes longer than this has failed, in nanoseconds.
const HANDSHAKE_TIMEOUT_NS: u64 = 5_000_000_000;

/// The connections.
#[derive(Debug)]
pub(crate) struct Pool {
    epoll: OwnedFd,
    target: SocketAddr,
    pub(crate) connections: Vec<Connection>,
    /// Idle ones, the longest idle first. An entry whose generation is past is skipped.
    free: VecDeque<(u32, u32)>,
    /// Those without a socket, by the time of the next attempt.
    down: BinaryHeap<Reverse<(u64, u32)>>,
    /// Handshakes under way: (begin, connection, generation), oldest first.
    handshakes: VecDeque<(u64, u32, u32)>,
    /// Sockets that were connected, since the beginning.
    pub(crate) opened: u64,
    /// Attempts that failed, not yet taken by the engine.
    pub(crate) failed: u64,
    /// What the last failed attempt met.
    pub(crate) last_failure: Option<Errno>,
}

impl Pool {
    pub(crate) fn new(target: SocketAddr, count: u32, method: &str) -> Result<Self, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(LoadError::system("epoll_create1"))?;
        Ok(Self {
            epoll,
            target,
            connections: (0..count).map(|_| Connection::new(method)).collect(),
            free: VecDeque::with_capacity(count as usize),
            down: (0..count).map(|index| Reverse((0, index))).collect(),
            handshakes: VecDeque::with_capacity(MAX_HANDSHAKES),
            opened: 0,
            failed: 0,
            last_failure: None,
        })
    }

    pub(crate) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether every connection is open.
    pub(crate) fn all_open(&self) -> bool {
        self.down.is_empty() && self.handshakes.is_empty()
    }

    /// How many connections are open.
    pub(crate) fn open_count(&self) -> u32 {
        (self.connections.len() - self.down.len() - self.handshakes.len()) as u32
    }

    /// Begins the handshakes that are due, gives up those that take too long. `true` if
    /// there was anything to do.
    pub(crate) fn open_due(&mut self, now_ns: u64) -> bool {
        let mut acted = false;
        while let Some(&(began_ns, index, _)) = self.handshakes.front() {
            if now_ns < began_ns + HANDSHAKE_TIMEOUT_NS {
                break;
            }
            self.handshake_failed(index, Errno::TIMEDOUT, now_ns);
            acted = true;
        }
        while self.handshakes.len() < MAX_HANDSHAKES {
            let Some(&Reverse((due_ns, index))) = self.down.peek() else {
                break;
            };
            if due_ns > now_ns {
                break;
            }
            self.down.pop();
            acted = true;
            let connection = &mut self.connections[index as usize];
            match connection.connect(&self.target, self.epoll.as_fd(), index) {
                Ok(()) => self
                    .handshakes
                    .push_back((now_ns, index, connection.generation)),
                Err(errno) => self.attempt_failed(index, errno, now_ns),
            }
        }
        acted
    }

    /// When [`Self::open_due`] has something to do next.
    pub(crate) fn next_due_ns(&self) -> u64 {
        let timeout_ns = self
            .handshakes
            .front()
            .map_or(u64::MAX, |(began_ns, ..)| began_ns + HANDSHAKE_TIMEOUT_NS);
        let attempt_ns = match self.down.peek() {
            Some(Reverse((due_ns, _))) if self.handshakes.len() < MAX_HANDSHAKES => *due_ns,
            _ => u64::MAX,
        };
        timeout_ns.min(attempt_ns)
    }

    /// An event came for a connecting socket. `true` if it is open now.
    pub(crate) fn handshake_event(&mut self, index: u32, now_ns: u64) -> bool {
        let connection = &mut self.connections[index as usize];
        if let Err(errno) = connection.finish_connect(now_ns) {
            self.handshake_failed(index, errno, now_ns);
            return false;
        }
        self.handshakes.retain(|(_, other, _)| *other != index);
        self.opened += 1;
        true
    }

    fn handshake_failed(&mut self, index: u32, errno: Errno, now_ns: u64) {
        self.handshakes.retain(|(_, other, _)| *other != index);
        self.attempt_failed(index, errno, now_ns);
    }

    fn attempt_failed(&mut self, index: u32, errno: Errno, now_ns: u64) {
        self.failed += 1;
        self.last_failure = Some(errno);
        self.reopen(index, now_ns, false);
    }

    /// Closes a connection and puts it down to be opened again: at once if it was good
    /// until now, after a pause that grows otherwise.
    pub(crate) fn reopen(&mut self, index: u32, now_ns: u64, was_good: bool) {
        let connection = &mut self.connections[index as usize];
        connection.close();
        connection.backoff_ns = if was_good {
            0
        } else {
            (connection.backoff_ns * 2).clamp(FIRST_BACKOFF_NS, LAST_BACKOFF_NS)
        };
        self.down
            .push(Reverse((now_ns + connection.backoff_ns, index)));
    }

    /// An idle connection waits for its next request, behind all others.
    pub(crate) fn push_free(&mut self, index: u32) {
        let generation = self.connections[index as usize].generation;
        self.free.push_back((index, generation));
    }

    /// The longest idle connection, so that all of them carry traffic in turn.
    pub(crate) fn pop_free(&mut self) -> Option<u32> {
        self.skip_stale();
        self.free.pop_front().map(|(index, _)| index)
    }

    /// Whether a connection is free.
    pub(crate) fn has_free(&mut self) -> bool {
        self.skip_stale();
        !self.free.is_empty()
    }

    fn skip_stale(&mut self) {
        while let Some(&(index, generation)) = self.free.front() {
            let connection = &self.connections[index as usize];
            if connection.generation == generation && connection.phase == Phase::Idle {
                return;
            }
            self.free.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(count: u32) -> Pool {
        Pool::new("127.0.0.1:9".parse().unwrap(), count, "GET").unwrap()
    }

    #[test]
    fn a_free_entry_of_an_earlier_socket_is_skipped() {
        let mut pool = pool(2);
        for index in 0..2 {
            pool.connections[index as usize].phase = Phase::Idle;
            pool.push_free(index);
        }
        pool.connections[0].generation += 1;
        pool.push_free(0);
        let order: Vec<_> = std::iter::from_fn(|| pool.pop_free()).collect();
        assert_eq!(order, [1, 0]);
        assert!(!pool.has_free());
    }

    #[test]
    fn the_pause_doubles_up_to_a_second() {
        let mut pool = pool(1);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pool.down.clear();
            pool.reopen(0, 0, false);
            pauses.push(pool.next_due_ns() / 1_000_000);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        pool.down.clear();
        pool.reopen(0, 5, true);
        assert_eq!(pool.next_due_ns(), 5);
    }
}
