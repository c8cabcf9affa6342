//! Timers of deferred responses and of steps that sleep.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that is due at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    pub(crate) at_ns: u64,
    /// The connection that waits for it.
    pub(crate) connection: u64,
    /// Its HTTP/2 stream, 0 for HTTP/1.1.
    pub(crate) stream: u32,
}

/// All timers of a thread. Those of cancelled requests stay until they are due.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
}

impl Timers {
    pub(crate) fn add(&mut self, timer: Timer) {
        self.heap.push(Reverse(timer));
    }

    /// When the next timer is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(timer)| timer.at_ns)
    }

    /// Takes a timer that is due, the earliest first.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<Timer> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(timer)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_never_early() {
        let mut timers = Timers::default();
        for at_ns in [5, 1, 3] {
            timers.add(Timer {
                at_ns,
                connection: 0,
                stream: 0,
            });
        }
        assert_eq!(timers.next_ns(), Some(1));
        let mut due = |now| timers.due(now).map(|timer| timer.at_ns);
        assert_eq!(
            (due(0), due(4), due(4), due(4)),
            (None, Some(1), Some(3), None)
        );
    }
}
