//! Intended send times, fixed by rate, kind and seed before the load begins.

use meshtax_model::experiment::Arrivals;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// An endless arrival schedule: nanoseconds from the begin of the load, never decreasing.
///
/// It is a generator, not a list: arrivals that wait for a free connection are simply
/// those that have not been taken yet, so that a queue of any length needs no memory.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    random: Pcg64,
    gap_ns: f64,
    phase_ns: f64,
    taken: u64,
    /// Constant: unused. Poisson: the exact time of `next_ns`, whose fraction would
    /// otherwise be lost a million times.
    exact_ns: f64,
    next_ns: u64,
}

impl Schedule {
    /// The schedule of this rate (above zero) and seed.
    #[must_use]
    pub fn new(rate_per_s: f64, arrivals: Arrivals, seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let gap_ns = 1e9 / rate_per_s;
        // A random phase keeps several threads, and trials, from sending in step.
        let phase_ns = uniform(&mut random) * gap_ns;
        let mut schedule = Self {
            arrivals,
            random,
            gap_ns,
            phase_ns,
            taken: 0,
            exact_ns: 0.0,
            next_ns: 0,
        };
        schedule.prepare();
        schedule
    }

    /// The next arrival, without taking it.
    #[must_use]
    pub fn peek_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes the next arrival.
    pub fn take_ns(&mut self) -> u64 {
        let taken = self.next_ns;
        self.taken += 1;
        self.prepare();
        taken
    }

    fn prepare(&mut self) {
        self.exact_ns = match self.arrivals {
            // Multiplied, not added: the millionth gap is as exact as the first.
            Arrivals::Constant => self.phase_ns + self.taken as f64 * self.gap_ns,
            Arrivals::Poisson => {
                // 1 - u is in (0, 1]: its logarithm is finite.
                self.exact_ns - (1.0 - uniform(&mut self.random)).ln() * self.gap_ns
            }
        };
        self.next_ns = self.exact_ns as u64;
    }
}

/// A number in [0, 1) with 53 random bits.
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rate: f64, arrivals: Arrivals, seed: u64, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(rate, arrivals, seed);
        (0..count).map(|_| schedule.take_ns()).collect()
    }

    #[test]
    fn the_seed_is_the_schedule() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let one = times(1000.0, arrivals, 7, 1000);
            assert_eq!(one, times(1000.0, arrivals, 7, 1000));
            assert_ne!(one, times(1000.0, arrivals, 8, 1000));
            assert!(one.is_sorted());
        }
    }

    #[test]
    fn peeking_takes_nothing() {
        let mut schedule = Schedule::new(10.0, Arrivals::Poisson, 1);
        let seen = schedule.peek_ns();
        assert_eq!(schedule.take_ns(), seen);
        assert_ne!(schedule.peek_ns(), seen);
    }

    #[test]
    fn constant_gaps_do_not_drift() {
        // A third of a nanosecond per gap would be lost if gaps were added as integers.
        let all = times(3_000_000.0, Arrivals::Constant, 3, 3_000_001);
        assert_eq!(all[3_000_000] - all[0], 1_000_000_000);
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
}
