//! All connections of a thread: opening them a few at a time, reopening, who is free.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::connection::{Connection, InFlight, OpenError, Phase};
use crate::dial::Dial;
use crate::error::LoadError;

/// Handshakes under way at a time. A burst of them would measure the server's accept
/// queue, and one at a time would make 10,000 connections slow to open.
const MAX_HANDSHAKES: usize = 8;

/// The first pause after a failed attempt, in nanoseconds; it doubles up to the last.
const FIRST_BACKOFF_NS: u64 = 10_000_000;
const LAST_BACKOFF_NS: u64 = 1_000_000_000;

/// A handshake that takes longer than this has failed, in nanoseconds.
const HANDSHAKE_TIMEOUT_NS: u64 = 5_000_000_000;

/// What opening a connection came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Handshake {
    /// It goes on.
    UnderWay,
    /// TCP's part is over, after so many nanoseconds; TLS's goes on.
    Connected(u64),
    /// It is open; so long took TCP's part, or TLS's if there was one.
    Open(u64),
    /// It failed, and will be tried again after a pause.
    Failed(OpenError),
}

/// The connections.
#[derive(Debug)]
pub(crate) struct Pool {
    epoll: OwnedFd,
    pub(crate) dial: Dial,
    pub(crate) connections: Vec<Connection>,
    /// Those with room for a request by destination, the longest free first. One that has none any more is
    /// passed over when its turn comes.
    free: Vec<VecDeque<u32>>,
    /// The destination whose turn it is.
    turn: usize,
    /// Those without a socket that are to be opened, or may be used again, by that time.
    down: BinaryHeap<Reverse<(u64, u32)>>,
    /// Handshakes under way: (begin, connection, generation), oldest first.
    handshakes: VecDeque<(u64, u32, u32)>,
    /// Those whose pause is over and that are opened on demand.
    pub(crate) rested: Vec<u32>,
    /// Sockets that were connected, since the beginning.
    pub(crate) opened: u64,
}

impl Pool {
    pub(crate) fn new(dial: Dial, count: u32) -> Result<Self, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(LoadError::system("epoll_create1"))?;
        Ok(Self {
            epoll,
            connections: (0..count)
                .map(|index| Connection::new(&dial, index))
                .collect(),
            free: vec![VecDeque::new(); dial.destinations.len()],
            turn: dial.destination_of(0),
            down: (0..count).map(|index| Reverse((0, index))).collect(),
            handshakes: VecDeque::with_capacity(MAX_HANDSHAKES),
            dial,
            rested: Vec::new(),
            opened: 0,
        })
    }

    pub(crate) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether connections are opened when a request is due, not before.
    pub(crate) fn opens_on_demand(&self) -> bool {
        self.dial.lifetime.is_some()
    }

    /// Whether every connection is open.
    pub(crate) fn all_open(&self) -> bool {
        self.down.is_empty() && self.handshakes.is_empty()
    }

    /// How many connections are open.
    pub(crate) fn open_count(&self) -> u32 {
        self.connections
            .iter()
            .filter(|c| c.phase == Phase::Open)
            .count() as u32
    }

    /// Before a load whose connections are opened on demand: all are free as they are.
    pub(crate) fn all_free(&mut self) {
        self.down.clear();
        for index in 0..self.connections.len() as u32 {
            self.offer(index);
        }
    }

    /// Begins what is due: handshakes, or the use of a connection after a pause. `true` if there
    /// was anything to do. `failed` gets the attempts
    /// that ended at once, or took too long.
    pub(crate) fn open_due(&mut self, now_ns: u64, failed: &mut Vec<(u32, OpenError)>) -> bool {
        let mut acted = false;
        while let Some(&(began_ns, index, generation)) = self.handshakes.front() {
            let connection = &self.connections[index as usize];
            let over = connection.generation != generation
                || !matches!(connection.phase, Phase::Connecting | Phase::Securing);
            if over {
                self.handshakes.pop_front();
                continue;
            }
            if now_ns < began_ns + HANDSHAKE_TIMEOUT_NS {
                break;
            }
            self.handshakes.pop_front();
            failed.push((index, OpenError::Tcp(Errno::TIMEDOUT)));
            acted = true;
        }
        while self.opens_on_demand() || self.handshakes.len() < MAX_HANDSHAKES {
            let Some(&Reverse((due_ns, index))) = self.down.peek() else {
                break;
            };
            if due_ns > now_ns {
                break;
            }
            self.down.pop();
            acted = true;
            self.connections[index as usize].resting = false;
            if self.opens_on_demand() {
                self.offer(index);
                self.rested.push(index);
            } else if let Err(errno) = self.connect(index, now_ns) {
                failed.push((index, OpenError::Tcp(errno)));
            }
        }
        acted
    }

    /// Begins a handshake.
    fn connect(&mut self, index: u32, now_ns: u64) -> Result<(), Errno> {
        let connection = &mut self.connections[index as usize];
        connection.connect(&self.dial, self.epoll.as_fd(), index, now_ns)?;
        self.handshakes
            .push_back((now_ns, index, connection.generation));
        Ok(())
    }

    /// Has epoll tell once more that there is something to read on a connection.
    pub(crate) fn tell_again(&self, index: u32) -> Result<(), Errno> {
        self.connections[index as usize].tell_again(self.epoll(), index)
    }

    /// A connection's socket is io_uring's from now on.
    pub(crate) fn leave_epoll(&mut self, index: u32) -> Result<(), Errno> {
        self.connections[index as usize].leave_epoll(self.epoll.as_fd())
    }

    /// When [`Self::open_due`] has something to do next.
    pub(crate) fn next_due_ns(&self) -> u64 {
        let timeout_ns = self
            .handshakes
            .front()
            .map_or(u64::MAX, |(began_ns, ..)| began_ns + HANDSHAKE_TIMEOUT_NS);
        let may_open = self.opens_on_demand() || self.handshakes.len() < MAX_HANDSHAKES;
        let attempt_ns = match self.down.peek() {
            Some(Reverse((due_ns, _))) if may_open => *due_ns,
            _ => u64::MAX,
        };
        timeout_ns.min(attempt_ns)
    }

    /// An event came for a connection that is being opened.
    pub(crate) fn handshake_event(
        &mut self,
        index: u32,
        buffer: &mut [u8],
        now_ns: u64,
    ) -> Handshake {
        let connection = &mut self.connections[index as usize];
        let took_ns = now_ns.saturating_sub(connection.handshake_ns);
        let before = connection.phase;
        let result = if before == Phase::Connecting {
            connection.connected(&self.dial, now_ns)
        } else {
            connection.secure(&self.dial, buffer, now_ns)
        };
        let after = connection.phase;
        match result {
            Err(error) => Handshake::Failed(error),
            Ok(()) if after == Phase::Open => {
                self.forget_handshake(index);
                self.opened += 1;
                Handshake::Open(took_ns)
            }
            Ok(()) if before != after => Handshake::Connected(took_ns),
            Ok(()) => Handshake::UnderWay,
        }
    }

    /// Without this the oldest entries would keep others from being opened.
    fn forget_handshake(&mut self, index: u32) {
        if let Some(at) = self.handshakes.iter().position(|(_, i, _)| *i == index) {
            self.handshakes.remove(at);
        }
    }

    /// Closes a connection and puts it down to be opened again: at once if it was good
    /// until now, after a pause that grows otherwise.
    pub(crate) fn reopen(&mut self, index: u32, now_ns: u64, was_good: bool) {
        self.forget_handshake(index);
        let on_demand = self.opens_on_demand();
        let connection = &mut self.connections[index as usize];
        connection.close();
        connection.backoff_ns = if was_good {
            0
        } else {
            (connection.backoff_ns * 2).clamp(FIRST_BACKOFF_NS, LAST_BACKOFF_NS)
        };
        if was_good && on_demand {
            connection.free_since_ns = now_ns;
            connection.available_since_ns = now_ns;
            self.offer(index);
            return;
        }
        connection.resting = true;
        let due_ns = now_ns + connection.backoff_ns;
        self.down.push(Reverse((due_ns, index)));
    }

    /// Puts a connection behind all others that are free, if it has room.
    pub(crate) fn offer(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !connection.listed && connection.has_room(&self.dial) {
            connection.listed = true;
            self.free[connection.destination].push_back(index);
        }
    }

    /// The longest free connection, so that all of them carry traffic in turn. It stays free if
    /// it has room for more. Of several destinations it is that whose turn it is, or the next with a free one: slow
    /// responses of one of them do not keep it from being asked as often as the others.
    pub(crate) fn pop_free(&mut self) -> Option<u32> {
        let destination = self.next_with_free()?;
        let index = self.free[destination].pop_front()?;
        self.turn = (destination + 1) % self.free.len();
        self.connections[index as usize].listed = false;
        Some(index)
    }

    /// Whether a connection is free.
    pub(crate) fn has_free(&mut self) -> bool {
        self.next_with_free().is_some()
    }

    fn next_with_free(&mut self) -> Option<usize> {
        let all = self.free.len();
        let mut in_turn = (self.turn..all).chain(0..self.turn);
        in_turn.find(|destination| {
            self.skip_stale(*destination);
            !self.free[*destination].is_empty()
        })
    }

    fn skip_stale(&mut self, destination: usize) {
        let free = &mut self.free[destination];
        while let Some(&index) = free.front() {
            let connection = &mut self.connections[index as usize];
            if connection.has_room(&self.dial) {
                return;
            }
            connection.listed = false;
            free.pop_front();
        }
    }

    /// Puts a request on a connection that has room, and begins to open it if need be. It is on
    /// its way when the connection is flushed.
    pub(crate) fn start(&mut self, index: u32, request: InFlight) -> Result<(), OpenError> {
        let connection = &mut self.connections[index as usize];
        if connection.phase == Phase::Open {
            connection.start(&self.dial, request);
            return Ok(());
        }
        connection.start(&self.dial, request);
        self.connect(index, request.sent_ns).map_err(OpenError::Tcp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::Destination;
    use crate::spec::{LoadSpec, Target};

    fn pool(count: u32, lifetime: Option<u32>) -> Pool {
        pool_to(1, count, lifetime)
    }

    fn pool_to(targets: usize, count: u32, lifetime: Option<u32>) -> Pool {
        let mut spec = LoadSpec::new("127.0.0.1:9".parse().unwrap());
        spec.more_targets = vec![
            Target {
                address: spec.target,
                host: "another".into(),
            };
            targets - 1
        ];
        let dial = Dial {
            destinations: spec.by_target().iter().map(Destination::new).collect(),
            first: 0,
            secure: None,
            streams: 1,
            lifetime,
        };
        Pool::new(dial, count).unwrap()
    }

    #[test]
    fn connections_without_room_are_skipped() {
        let mut pool = pool(2, None);
        for index in 0..2 {
            pool.connections[index as usize].phase = Phase::Open;
            pool.offer(index);
            pool.offer(index);
        }
        pool.connections[0].phase = Phase::Down;
        let order: Vec<_> = std::iter::from_fn(|| pool.pop_free()).collect();
        assert_eq!(order, [1]);
        assert!(!pool.has_free());
    }

    /// One of the first destination's connections is busy all the time, and one of the second's.
    #[test]
    fn destinations_are_used_round_robin() {
        let mut pool = pool_to(3, 6, None);
        let to: Vec<usize> = pool.connections.iter().map(|c| c.destination).collect();
        assert_eq!(to, [0, 1, 2, 0, 1, 2]);
        for index in [2, 5, 0, 1] {
            pool.connections[index as usize].phase = Phase::Open;
            pool.offer(index);
        }
        let mut order = Vec::new();
        for _ in 0..6 {
            let index = pool.pop_free().unwrap();
            pool.offer(index);
            order.push(index);
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 5]);
        // Where none is free, the turn passes on.
        pool.connections[0].phase = Phase::Down;
        let rest: Vec<_> = std::iter::from_fn(|| pool.pop_free()).collect();
        assert_eq!(rest, [1, 2, 5]);
        assert!(!pool.has_free());
    }

    #[test]
    fn the_backoff_doubles_up_to_a_second() {
        let mut pool = pool(1, None);
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

    #[test]
    fn an_on_demand_connection_is_free_except_during_backoff() {
        let mut pool = pool(1, Some(1));
        pool.all_free();
        assert_eq!(pool.pop_free(), Some(0));
        pool.reopen(0, 0, true);
        assert!(pool.has_free());
        assert_eq!(pool.pop_free(), Some(0));
        pool.reopen(0, 0, false);
        assert!(!pool.has_free());
        pool.open_due(10_000_000, &mut Vec::new());
        assert!(pool.has_free());
    }
}
