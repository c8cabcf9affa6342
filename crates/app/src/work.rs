//! What a request costs and comes to: work, delays, errors.

use std::hint::black_box;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use rustix::thread::ClockId;
use rustix::time::clock_gettime;

use crate::config::{AppConfig, MAX_WAIT_NS, Wait};
use crate::stats::Counters;

/// One thread's requests. Each thread draws from a sequence of its own.
#[derive(Debug)]
pub(crate) struct Work {
    delay_ns: u64,
    wait: Option<Wait>,
    burn: u64,
    error_share: f64,
    random: Pcg64,
    /// There is anything to be done at all.
    any: bool,
}

/// What a request comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// It is answered with an error.
    pub(crate) fails: bool,
    /// It is answered not before this instant.
    pub(crate) not_before_ns: Option<u64>,
}

impl Work {
    pub(crate) fn new(config: &AppConfig, thread: usize) -> Self {
        Self {
            delay_ns: config.delay_ns,
            wait: config.wait,
            burn: config.burn,
            error_share: config.error_share,
            random: Pcg64::seed_from_u64(config.seed.wrapping_add(thread as u64)),
            any: config.delay_ns > 0
                || config.wait.is_some()
                || config.burn > 0
                || config.error_share > 0.0,
        }
    }

    /// The delay that is spun before each answer, in nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Whether answers may wait.
    pub(crate) fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// When requests were read: now, if anything goes by it.
    pub(crate) fn read_ns(&self) -> u64 {
        if self.any { now_ns() } else { 0 }
    }

    /// Does a request's work and spins its delay, and says what it comes to. `read_ns`: when it
    /// was read or, behind others, when they were done with; moved on.
    pub(crate) fn request(&mut self, counters: &Counters, read_ns: &mut u64) -> Verdict {
        counters.request();
        if !self.any {
            return Verdict::default();
        }
        let not_before_ns = self
            .wait
            .map(|wait| *read_ns + draw(wait, &mut self.random));
        let fails = self.error_share > 0.0 && uniform(&mut self.random) < self.error_share;
        if fails {
            counters.failure();
        }
        if self.burn > 0 {
            burn(self.burn);
        }
        if self.delay_ns > 0 {
            let end_ns = spin_until(*read_ns + self.delay_ns);
            counters.delay(end_ns - *read_ns);
            *read_ns = end_ns;
        }
        Verdict {
            fails,
            not_before_ns,
        }
    }
}

/// Any number from 0 to 1, without 1: the 53 bits that a fraction has.
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

fn draw(wait: Wait, random: &mut Pcg64) -> u64 {
    let ns = match wait {
        Wait::Exponential { mean_ns } => -(mean_ns as f64) * logarithm(random),
        Wait::Uniform { from_ns, to_ns } => {
            from_ns as f64 + uniform(random) * (to_ns - from_ns) as f64
        }
        Wait::LogNormal { median_ns, sigma } => {
            // A standard normal value, after Box and Muller.
            let radius = (-2.0 * logarithm(random)).sqrt();
            let angle = uniform(random) * std::f64::consts::TAU;
            median_ns as f64 * (sigma * radius * angle.cos()).exp()
        }
    };
    (ns as u64).min(MAX_WAIT_NS)
}

/// The logarithm of such a number, without the one that has none: finite.
fn logarithm(random: &mut Pcg64) -> f64 {
    (1.0 - uniform(random)).ln()
}

/// Each step needs the one before it, so that the number of steps is the time.
fn burn(steps: u64) {
    let mut value = black_box(1_u64);
    for _ in 0..steps {
        // Knuth's multiplier for a linear congruential generator.
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
    }
    black_box(value);
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Burns the core until then; returns when it was over.
fn spin_until(until_ns: u64) -> u64 {
    loop {
        let now = now_ns();
        if now >= until_ns {
            return now;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(change: impl FnOnce(&mut AppConfig)) -> Work {
        let mut config = AppConfig::new("127.0.0.1:0".parse().unwrap());
        change(&mut config);
        Work::new(&config, 0)
    }

    /// Draws of a wait in nanoseconds, ascending.
    fn drawn(wait: Wait) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(7);
        let mut all: Vec<f64> = (0..20_000)
            .map(|_| draw(wait, &mut random) as f64)
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 0.05, "{value}, {expected}");
    }

    #[test]
    fn waits_are_distributed_as_asked() {
        let exponential = drawn(Wait::Exponential { mean_ns: 2_000_000 });
        near(exponential.iter().sum::<f64>() / 20_000.0, 2e6);
        near(exponential[19_800], 2e6 * 100_f64.ln());
        let uniform = drawn(Wait::Uniform {
            from_ns: 1_000_000,
            to_ns: 5_000_000,
        });
        near(uniform[0], 1e6);
        near(uniform[10_000], 3e6);
        near(uniform[19_999], 5e6);
        let log_normal = drawn(Wait::LogNormal {
            median_ns: 1_000_000,
            sigma: 0.5,
        });
        near(log_normal[10_000], 1e6);
        // The quantile of one standard deviation.
        near(log_normal[16_827], 1e6 * 0.5_f64.exp());
    }

    #[test]
    fn no_wait_is_endless() {
        let longest = drawn(Wait::LogNormal {
            median_ns: MAX_WAIT_NS,
            sigma: 5.0,
        });
        assert!(longest[19_999] <= MAX_WAIT_NS as f64);
    }

    #[test]
    fn the_seed_decides_which_requests_fail() {
        let pattern = |seed: u64| -> Vec<bool> {
            let mut work = work(|config| {
                config.error_share = 0.1;
                config.seed = seed;
            });
            let counters = Counters::default();
            let verdicts = (0..5000).map(|_| work.request(&counters, &mut 0).fails);
            verdicts.collect()
        };
        let failed = pattern(3).iter().filter(|fails| **fails).count();
        assert!((400..600).contains(&failed), "{failed}");
        assert_eq!(pattern(3), pattern(3));
        assert_ne!(pattern(3), pattern(4));
    }

    #[test]
    fn nothing_to_do_needs_no_clock() {
        let mut idle = work(|_| {});
        assert_eq!(idle.read_ns(), 0);
        let verdict = idle.request(&Counters::default(), &mut 0);
        assert_eq!(verdict, Verdict::default());
    }

    #[test]
    fn work_takes_its_time() {
        let mut busy = work(|config| config.burn = 4_000_000);
        let begin = now_ns();
        busy.request(&Counters::default(), &mut begin.clone());
        // A multiplication is never faster than a third of a nanosecond.
        assert!(now_ns() - begin > 1_300_000);
    }
}
