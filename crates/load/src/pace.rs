//! Who is to send when.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::schedule::{Deck, Schedule};
use crate::spec::{LoadModel, LoadSpec};

/// The course of a load, for one thread. Times count from the load's start.
#[derive(Debug)]
pub(crate) enum Pace {
    /// One schedule; any free connection takes the next arrival.
    Shared(Schedule),
    /// Every connection has a time of its own at which it sends next.
    PerConnection(PerConnection),
    /// A free connection sends at once.
    Closed,
}

impl Pace {
    pub(crate) fn new(spec: &LoadSpec) -> Self {
        match &spec.model {
            LoadModel::Closed { think_ns: 0 } => Self::Closed,
            LoadModel::Closed { think_ns } => {
                Self::PerConnection(PerConnection::thinking(spec, *think_ns))
            }
            LoadModel::Users {
                rate_per_s,
                arrivals,
            } => Self::PerConnection(PerConnection::users(
                (0..spec.connections)
                    .map(|user| {
                        Schedule::of_user(*rate_per_s, *arrivals, spec.seed, spec.slice, user)
                    })
                    .collect(),
            )),
            LoadModel::Open { .. } | LoadModel::Replay { .. } => {
                Schedule::of(spec).map_or(Self::Closed, Self::Shared)
            }
        }
    }

    /// When the connection, which can send now, was to send and could not.
    pub(crate) fn catch_up(&mut self, index: u32) -> Option<u64> {
        match self {
            Self::PerConnection(own) => own.catch_up(index),
            Self::Shared(_) | Self::Closed => None,
        }
    }

    /// Whether a user has missed a time.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self, Self::PerConnection(own) if !own.schedules.is_empty() && own.missed > 0)
    }
}

/// Connections that keep their own time.
#[derive(Debug)]
pub(crate) struct PerConnection {
    /// (When, which connection), the earliest first.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// What was due while its connection was down, by connection.
    overdue: Vec<VecDeque<u64>>,
    /// How many those are.
    missed: u32,
    /// Users' schedules; empty: they think instead.
    schedules: Vec<Schedule>,
    think_ns: u64,
}

impl PerConnection {
    fn users(mut schedules: Vec<Schedule>) -> Self {
        let due = (0..)
            .zip(&mut schedules)
            .filter_map(|(user, schedule)| Some(Reverse((schedule.take_ns()?, user))))
            .collect();
        Self {
            due,
            overdue: vec![VecDeque::new(); schedules.len()],
            missed: 0,
            schedules,
            think_ns: 0,
        }
    }

    fn thinking(spec: &LoadSpec, think_ns: u64) -> Self {
        let streams = spec.protocol.streams();
        let all = spec.connections * streams;
        // Spread over one pause, so that they do not begin, and go on, in step.
        let due = (0..all).map(|number| {
            let at_ns = u128::from(think_ns) * u128::from(number) / u128::from(all);
            Reverse((at_ns as u64, number % spec.connections))
        });
        Self {
            due: due.collect(),
            overdue: vec![VecDeque::new(); spec.connections as usize],
            missed: 0,
            schedules: Vec::new(),
            think_ns,
        }
    }

    /// When the next one is due.
    pub(crate) fn peek_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, u32)> {
        self.due.pop().map(|Reverse(entry)| entry)
    }

    /// Its connection cannot send now.
    pub(crate) fn put_off(&mut self, due_ns: u64, index: u32) {
        self.overdue[index as usize].push_back(due_ns);
        self.missed += 1;
    }

    /// What its connection has missed.
    fn catch_up(&mut self, index: u32) -> Option<u64> {
        let due_ns = self.overdue[index as usize].pop_front()?;
        self.missed -= 1;
        Some(due_ns)
    }

    /// A request of this connection ended: when is the next?
    pub(crate) fn ended(&mut self, index: u32, now_ns: u64) {
        let next_ns = match self.schedules.get_mut(index as usize) {
            Some(schedule) => schedule.take_ns(),
            None => Some(now_ns + self.think_ns),
        };
        if let Some(next_ns) = next_ns {
            self.due.push(Reverse((next_ns, index)));
        }
    }

    /// What was due before that time and has not been sent.
    pub(crate) fn unsent(mut self, end_ns: u64) -> Vec<u64> {
        let mut unsent: Vec<u64> = self.overdue.into_iter().flatten().collect();
        unsent.extend(self.due.into_iter().map(|Reverse((due_ns, _))| due_ns));
        unsent.retain(|due_ns| *due_ns < end_ns);
        for schedule in &mut self.schedules {
            while let Some(due_ns) = schedule.take_ns().filter(|due_ns| *due_ns < end_ns) {
                unsent.push(due_ns);
            }
        }
        unsent
    }
}

/// Which request a connection sends next.
#[derive(Debug)]
pub(crate) enum Choice {
    /// Drawn by weight.
    Drawn(Deck),
    /// In the order of the list, for each connection.
    InOrder {
        /// How many there are.
        requests: u32,
        /// Next of each connection.
        next: Vec<u32>,
    },
}

impl Choice {
    pub(crate) fn new(spec: &LoadSpec) -> Self {
        match spec.model {
            LoadModel::Users { .. } => Self::InOrder {
                requests: spec.requests.len() as u32,
                // Users begin at different places, or all would ask for the same at a time.
                next: (0..spec.connections)
                    .map(|user| user % spec.requests.len() as u32)
                    .collect(),
            },
            _ => Self::Drawn(Deck::new(spec)),
        }
    }

    pub(crate) fn pick(&mut self, connection: u32) -> u32 {
        match self {
            Self::Drawn(deck) => deck.draw(),
            Self::InOrder { requests, next } => {
                let next = &mut next[connection as usize];
                let picked = *next;
                *next = (picked + 1) % *requests;
                picked
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use meshtax_model::experiment::Arrivals;

    use super::*;

    fn own(connections: u32, model: LoadModel) -> PerConnection {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.connections = connections;
        spec.model = model;
        match Pace::new(&spec) {
            Pace::PerConnection(own) => own,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn users_keep_their_own_schedules() {
        let model = LoadModel::Users {
            rate_per_s: 10.0,
            arrivals: Arrivals::Constant,
        };
        let mut users = own(3, model);
        let (first_ns, user) = users.pop().unwrap();
        users.ended(user, first_ns + 1);
        let mut dues = Vec::new();
        while let Some((due_ns, who)) = users.pop() {
            dues.push(who);
            if who == user {
                // A tenth of a second after the last one, however long the response took.
                assert!(due_ns.abs_diff(first_ns + 100_000_000) <= 1);
            }
        }
        dues.sort_unstable();
        assert_eq!(dues, [0, 1, 2]);
    }

    #[test]
    fn requests_that_users_never_sent_count_as_offered() {
        let model = LoadModel::Users {
            rate_per_s: 10.0,
            arrivals: Arrivals::Constant,
        };
        let mut users = own(2, model);
        let (due_ns, user) = users.pop().unwrap();
        users.put_off(due_ns, user);
        let unsent = users.unsent(1_000_000_000);
        assert_eq!(unsent.len(), 20);
    }

    #[test]
    fn think_times_are_not_synchronized() {
        let mut thinkers = own(4, LoadModel::Closed { think_ns: 400 });
        let first: Vec<_> = std::iter::from_fn(|| thinkers.pop()).collect();
        assert_eq!(first, [(0, 0), (100, 1), (200, 2), (300, 3)]);
        thinkers.ended(2, 1000);
        assert_eq!(thinkers.peek_ns(), Some(1400));
    }

    #[test]
    fn users_work_through_the_list_in_order() {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.connections = 2;
        spec.requests = vec![spec.requests[0].clone(); 3];
        spec.model = LoadModel::Users {
            rate_per_s: 1.0,
            arrivals: Arrivals::Poisson,
        };
        let mut choice = Choice::new(&spec);
        let picked: Vec<_> = [0, 0, 1, 0, 0, 1].map(|c| choice.pick(c)).to_vec();
        assert_eq!(picked, [0, 1, 1, 2, 0, 2]);
    }
}
