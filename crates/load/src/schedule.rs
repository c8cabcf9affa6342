//! Intended send times, fixed by rate, kind and seed before the load begins.

use meshtax_model::experiment::Arrivals;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::spec::{LoadModel, LoadSpec, Rate, Slice};

/// An arrival schedule: nanoseconds from the begin of the load, never decreasing.
///
/// It is a generator, not a list: arrivals that wait for a free connection are simply
/// those that have not been taken yet, so that a queue of any length needs no memory.
#[derive(Clone, Debug)]
pub struct Schedule {
    source: Source,
    next_ns: Option<u64>,
}

#[derive(Clone, Debug)]
enum Source {
    Paced(Paced),
    Replay {
        times_ns: Vec<u64>,
        next: usize,
        step: usize,
    },
}

/// Arrivals of a unit process (one per unit of "expected arrivals"), carried over to time by
/// the inverse of how many arrivals the rate makes one expect: so every kind of arrivals goes
/// with every course of the rate.
#[derive(Clone, Debug)]
struct Paced {
    arrivals: Arrivals,
    random: Pcg64,
    curve: Curve,
    /// Between two arrivals of this slice, in units of arrivals of the whole.
    stride: f64,
    /// Where the first constant arrival stands: a random phase, and the slice's own offset.
    offset: f64,
    taken: u64,
    /// Poisson: the exact place of the next arrival, whose fraction would otherwise be lost a
    /// million times.
    place: f64,
}

impl Schedule {
    /// The schedule of a constant rate (above zero) and seed.
    #[must_use]
    pub fn new(rate_per_s: f64, arrivals: Arrivals, seed: u64) -> Self {
        Self::paced(Curve::constant(rate_per_s), arrivals, seed, Slice::WHOLE)
    }

    /// A load's one schedule; `None` where every connection has its own pace.
    pub(crate) fn of(spec: &LoadSpec) -> Option<Self> {
        match &spec.model {
            LoadModel::Open { rate, arrivals } => {
                let curve = Curve::new(*rate, spec.warmup_ns, spec.window_ns);
                Some(Self::paced(curve, *arrivals, spec.seed, spec.slice))
            }
            LoadModel::Replay { times_ns } => Some(Self::prepared(Source::Replay {
                times_ns: times_ns.clone(),
                next: spec.slice.index as usize,
                step: spec.slice.of as usize,
            })),
            LoadModel::Users { .. } | LoadModel::Closed { .. } => None,
        }
    }

    /// The schedule of one user among those of all slices.
    pub(crate) fn of_user(
        rate_per_s: f64,
        arrivals: Arrivals,
        seed: u64,
        slice: Slice,
        user: u32,
    ) -> Self {
        let number = u64::from(user) * u64::from(slice.of) + u64::from(slice.index);
        Self::new(rate_per_s, arrivals, mixed(seed, number + 1))
    }

    fn paced(curve: Curve, arrivals: Arrivals, seed: u64, slice: Slice) -> Self {
        // Constant arrivals are one grid that the slices share, so that their phase is one;
        // Poisson slices must be independent.
        let seed = match arrivals {
            Arrivals::Constant => seed,
            Arrivals::Poisson => mixed(seed, u64::from(slice.index)),
        };
        let mut random = Pcg64::seed_from_u64(seed);
        // A random phase keeps several trials from sending in step.
        let offset = uniform(&mut random) + f64::from(slice.index);
        Self::prepared(Source::Paced(Paced {
            arrivals,
            random,
            curve,
            stride: f64::from(slice.of),
            offset,
            taken: 0,
            place: 0.0,
        }))
    }

    fn prepared(source: Source) -> Self {
        let mut schedule = Self {
            source,
            next_ns: None,
        };
        schedule.prepare();
        schedule
    }

    /// The next arrival, without taking it; `None` when there are no more.
    #[must_use]
    pub fn peek_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes the next arrival.
    pub fn take_ns(&mut self) -> Option<u64> {
        let taken = self.next_ns;
        self.prepare();
        taken
    }

    fn prepare(&mut self) {
        self.next_ns = match &mut self.source {
            Source::Paced(paced) => Some(paced.next_ns()),
            Source::Replay {
                times_ns,
                next,
                step,
            } => {
                let time_ns = times_ns.get(*next).copied();
                *next = next.saturating_add(*step);
                time_ns
            }
        };
    }
}

impl Paced {
    fn next_ns(&mut self) -> u64 {
        self.place = match self.arrivals {
            // Multiplied, not added: the millionth gap is as exact as the first.
            Arrivals::Constant => self.offset + self.taken as f64 * self.stride,
            Arrivals::Poisson => {
                // 1 - u is in (0, 1]: its logarithm is finite.
                self.place - (1.0 - uniform(&mut self.random)).ln() * self.stride
            }
        };
        self.taken += 1;
        self.curve.time_ns(self.place) as u64
    }
}

/// A stretch of time in which the rate is constant or a straight line.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start_ns: f64,
    /// Arrivals expected before it.
    before: f64,
    /// Arrivals per nanosecond at its begin.
    rate: f64,
    /// Change of that per nanosecond.
    slope: f64,
}

/// When how many arrivals are expected.
#[derive(Clone, Debug)]
struct Curve {
    /// In order; the first begins at zero and the last never ends.
    pieces: Vec<Piece>,
    /// The piece of the last arrival: time only goes on.
    at: usize,
}

impl Curve {
    fn constant(per_s: f64) -> Self {
        Self::of(&[(per_s, per_s, f64::INFINITY)])
    }

    fn new(rate: Rate, warmup_ns: u64, window_ns: u64) -> Self {
        let (warmup_ns, window_ns) = (warmup_ns as f64, window_ns as f64);
        match rate {
            Rate::Constant { per_s } => Self::constant(per_s),
            Rate::Linear {
                from_per_s: from,
                to_per_s: to,
            } => Self::of(&[
                (from, from, warmup_ns),
                (from, to, window_ns),
                (to, to, f64::INFINITY),
            ]),
            Rate::Steps {
                from_per_s: from,
                to_per_s: to,
                steps,
            } => {
                let step = |k: u32| from + (to - from) * f64::from(k) / f64::from(steps - 1);
                let length_ns = window_ns / f64::from(steps);
                let mut stretches = vec![(from, from, warmup_ns)];
                stretches.extend((0..steps).map(|k| (step(k), step(k), length_ns)));
                stretches.push((to, to, f64::INFINITY));
                Self::of(&stretches)
            }
        }
    }

    /// Of stretches: requests per second at both ends, and length in nanoseconds.
    fn of(stretches: &[(f64, f64, f64)]) -> Self {
        let (mut start_ns, mut before) = (0.0, 0.0);
        let mut pieces = Vec::with_capacity(stretches.len());
        for &(from_per_s, to_per_s, length_ns) in stretches {
            let (from, to) = (from_per_s / 1e9, to_per_s / 1e9);
            let endless = length_ns.is_infinite();
            pieces.push(Piece {
                start_ns,
                before,
                rate: from,
                slope: if endless || length_ns == 0.0 {
                    0.0
                } else {
                    (to - from) / length_ns
                },
            });
            start_ns += length_ns;
            before += (from + to) / 2.0 * length_ns;
        }
        Self { pieces, at: 0 }
    }

    /// When so many arrivals are expected. Must be asked in order.
    fn time_ns(&mut self, arrivals: f64) -> f64 {
        while self
            .pieces
            .get(self.at + 1)
            .is_some_and(|next| next.before <= arrivals)
        {
            self.at += 1;
        }
        let piece = self.pieces[self.at];
        let more = arrivals - piece.before;
        if piece.slope == 0.0 {
            return piece.start_ns + more / piece.rate;
        }
        // rate·t + slope·t²/2 = more, in the form that does not subtract two near numbers.
        let root = (piece.rate * piece.rate + 2.0 * piece.slope * more)
            .max(0.0)
            .sqrt();
        piece.start_ns + 2.0 * more / (piece.rate + root)
    }
}

/// Which request comes next: drawn by weight, from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Deck {
    /// Sums of the weights up to each request.
    sums: Vec<u64>,
    random: Pcg64,
}

impl Deck {
    pub(crate) fn new(spec: &LoadSpec) -> Self {
        let mut sum = 0;
        let sums = spec.requests.iter().map(|request| {
            sum += u64::from(request.weight);
            sum
        });
        Self {
            sums: sums.collect(),
            // Other numbers than the schedule's.
            random: Pcg64::seed_from_u64(mixed(!spec.seed, u64::from(spec.slice.index) + 1)),
        }
    }

    pub(crate) fn draw(&mut self) -> u32 {
        let [.., whole] = self.sums[..] else {
            return 0;
        };
        if self.sums.len() == 1 {
            return 0;
        }
        let drawn = (uniform(&mut self.random) * whole as f64) as u64;
        self.sums.partition_point(|sum| *sum <= drawn) as u32
    }
}

/// The seed itself for number zero; unrelated ones for others.
fn mixed(seed: u64, number: u64) -> u64 {
    seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A number in [0, 1) with 53 random bits.
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(mut schedule: Schedule, count: usize) -> Vec<u64> {
        std::iter::from_fn(|| schedule.take_ns())
            .take(count)
            .collect()
    }

    fn times(rate: f64, arrivals: Arrivals, seed: u64, count: usize) -> Vec<u64> {
        take(Schedule::new(rate, arrivals, seed), count)
    }

    fn until(mut schedule: Schedule, end_ns: u64) -> Vec<u64> {
        std::iter::from_fn(|| schedule.take_ns())
            .take_while(|t| *t < end_ns)
            .collect()
    }

    fn ramp(rate: Rate, arrivals: Arrivals, slice: Slice) -> Schedule {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.model = LoadModel::Open { rate, arrivals };
        spec.warmup_ns = 1_000_000_000;
        spec.window_ns = 10_000_000_000;
        spec.slice = slice;
        Schedule::of(&spec).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let one = times(1000.0, arrivals, 7, 1000);
            assert_eq!(one, times(1000.0, arrivals, 7, 1000));
            assert_ne!(one, times(1000.0, arrivals, 8, 1000));
            assert!(one.is_sorted());
        }
    }

    #[test]
    fn peeking_consumes_nothing() {
        let mut schedule = Schedule::new(10.0, Arrivals::Poisson, 1);
        let seen = schedule.peek_ns();
        assert_eq!(schedule.take_ns(), seen);
        assert_ne!(schedule.peek_ns(), seen);
    }

    #[test]
    fn constant_gaps_do_not_drift() {
        // A third of a nanosecond per gap would be lost if gaps were added as integers.
        let all = times(3_000_000.0, Arrivals::Constant, 3, 3_000_001);
        let length = all[3_000_000] - all[0];
        assert!(length.abs_diff(1_000_000_000) <= 1, "{length}");
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let all = times(1000.0, Arrivals::Poisson, 5, 200_001);
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "mean {mean}");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.02,
            "deviation {variance}"
        );
    }

    #[test]
    fn slices_of_constant_arrivals_form_one_grid() {
        let constant = Rate::Constant { per_s: 1000.0 };
        let whole = ramp(constant, Arrivals::Constant, Slice::WHOLE);
        let whole = until(whole, 1_000_000_000);
        let mut parts: Vec<u64> = (0..4)
            .flat_map(|index| {
                let slice = Slice { index, of: 4 };
                until(ramp(constant, Arrivals::Constant, slice), 1_000_000_000)
            })
            .collect();
        parts.sort_unstable();
        assert_eq!(parts, whole);
    }

    #[test]
    fn slices_of_poisson_arrivals_are_independent_and_add_up() {
        let constant = Rate::Constant { per_s: 10_000.0 };
        let counts = (0..4).map(|index| {
            let slice = Slice { index, of: 4 };
            let all = until(ramp(constant, Arrivals::Poisson, slice), 10_000_000_000);
            (all.len(), all[0])
        });
        let counts: Vec<_> = counts.collect();
        // 25,000 each; five standard deviations are 790.
        assert!(
            counts.iter().all(|(n, _)| n.abs_diff(25_000) < 790),
            "{counts:?}"
        );
        let firsts: std::collections::BTreeSet<_> = counts.iter().map(|(_, first)| first).collect();
        assert_eq!(firsts.len(), 4);
    }

    /// The load of four clients, as their parts of the spec have it; two threads each, where that many connections are.
    fn four_clients(rate: f64, arrivals: Arrivals, connections: u32, end_ns: u64) -> Vec<u64> {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.model = LoadModel::open(rate, arrivals);
        spec.connections = connections;
        spec.threads = 2;
        let clients = (0..4).map(|client| spec.part(client, 4));
        let threads = clients.flat_map(|client| {
            let threads = client.threads;
            (0..threads).map(move |thread| client.of_thread(thread))
        });
        let mut all: Vec<u64> = threads
            .flat_map(|part| until(Schedule::of(&part).unwrap(), end_ns))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn constant_arrivals_of_four_clients_are_exactly_those_of_one() {
        let one = until(Schedule::new(1000.0, Arrivals::Constant, 0), 10_000_000_000);
        // With five connections, the first client has two threads and the others one.
        for connections in [4, 5, 32] {
            let four = four_clients(1000.0, Arrivals::Constant, connections, 10_000_000_000);
            assert_eq!(four, one, "{connections} connections");
        }
    }

    #[test]
    fn poisson_arrivals_of_four_clients_make_one_poisson_stream() {
        const SECONDS: u64 = 100;
        let all = four_clients(400.0, Arrivals::Poisson, 5, SECONDS * 1_000_000_000);
        assert_poisson(&all, 400.0);
        // The numbers in disjoint stretches have the variance of their mean: the clients do not send in step.
        let mut counts = vec![0_u32; 10 * SECONDS as usize];
        for time in &all {
            counts[(time / 100_000_000) as usize] += 1;
        }
        let mean = all.len() as f64 / counts.len() as f64;
        let squares = counts.iter().map(|n| (f64::from(*n) - mean).powi(2));
        let dispersion = squares.sum::<f64>() / (counts.len() - 1) as f64 / mean;
        // Of 1,000 stretches: five standard deviations of the index are 5 sqrt(2 / 999).
        assert!((dispersion - 1.0).abs() < 0.224, "{dispersion}");
    }

    /// Kolmogorov and Smirnov's test of the gaps against the exponential distribution of this rate.
    fn assert_poisson(times_ns: &[u64], rate_per_s: f64) {
        let mut gaps: Vec<f64> = times_ns
            .windows(2)
            .map(|w| (w[1] - w[0]) as f64 / 1e9)
            .collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let count = gaps.len() as f64;
        let distance = (0..)
            .zip(&gaps)
            .map(|(rank, gap)| {
                let expected = 1.0 - (-gap * rate_per_s).exp();
                let (below, above) = (f64::from(rank) / count, f64::from(rank + 1) / count);
                (expected - below).abs().max((above - expected).abs())
            })
            .fold(0.0, f64::max);
        // Critical at one in a thousand: 1.95 / sqrt(n).
        assert!(distance < 1.95 / count.sqrt(), "{distance} of {count}");
    }

    #[test]
    fn a_ramp_has_its_rate_at_every_time() {
        let linear = Rate::Linear {
            from_per_s: 100.0,
            to_per_s: 1100.0,
        };
        let steps = Rate::Steps {
            from_per_s: 100.0,
            to_per_s: 1100.0,
            steps: 5,
        };
        // The warm-up, then seconds 2 to 3 and 9 to 10 of the window, then after it.
        for (rate, expected) in [
            (linear, [100, 350, 1050, 1100]),
            (steps, [100, 350, 1100, 1100]),
        ] {
            let all = until(ramp(rate, Arrivals::Constant, Slice::WHOLE), 13_000_000_000);
            assert!(all.is_sorted());
            for (second, wanted) in [0, 3, 10, 12].into_iter().zip(expected) {
                let from = second * 1_000_000_000;
                let found = all
                    .iter()
                    .filter(|t| (from..from + 1_000_000_000).contains(*t))
                    .count() as u64;
                assert!(found.abs_diff(wanted) <= 1, "{rate:?} {second}: {found}");
            }
            let poisson = until(ramp(rate, Arrivals::Poisson, Slice::WHOLE), 11_000_000_000);
            // 6,100 are expected; five standard deviations are 390.
            assert!(poisson.len().abs_diff(6100) < 390, "{}", poisson.len());
        }
    }

    #[test]
    fn a_replay_ends_and_is_divided_among_slices() {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.model = LoadModel::Replay {
            times_ns: (0..10).collect(),
        };
        spec.slice = Slice { index: 1, of: 3 };
        let schedule = Schedule::of(&spec).unwrap();
        assert_eq!(take(schedule, 99), [1, 4, 7]);
    }

    #[test]
    fn requests_are_drawn_by_their_weights() {
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        let request = spec.requests[0].clone();
        spec.requests = [1, 0, 3]
            .map(|weight| crate::spec::Request {
                weight,
                ..request.clone()
            })
            .to_vec();
        let mut deck = Deck::new(&spec);
        let mut counts = [0_u32; 3];
        for _ in 0..40_000 {
            counts[deck.draw() as usize] += 1;
        }
        // 10,000 and 30,000; five standard deviations are 433.
        assert_eq!(counts[1], 0);
        assert!(counts[0].abs_diff(10_000) < 433, "{counts:?}");
    }
}
