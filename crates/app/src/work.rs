//! The configured cost of requests (work, delays) and which of them fail.

use std::hint::black_box;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use rustix::thread::ClockId;
use rustix::time::clock_gettime;

use crate::config::{AppConfig, MAX_WAIT_NS, Wait};
use crate::stats::Counters;

/// One thread's work. Each thread has its own random sequence.
#[derive(Debug)]
pub(crate) struct Work {
    delay_ns: u64,
    delay_share: f64,
    wait: Option<Wait>,
    burn: u64,
    /// Additional units of work, by page.
    page_burns: Vec<u64>,
    leak_bytes: u64,
    leaked: Vec<Vec<u8>>,
    cap: Option<Cap>,
    error_share: f64,
    random: Pcg64,
    /// False if requests cost nothing and never fail.
    any: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Its response is an error.
    pub(crate) fails: bool,
    /// Its response is not sent before this instant.
    pub(crate) not_before_ns: Option<u64>,
}

impl Work {
    pub(crate) fn new(config: &AppConfig, thread: usize) -> Self {
        Self {
            delay_ns: config.delay_ns,
            delay_share: config.delay_share,
            wait: config.wait,
            burn: config.burn,
            page_burns: config.pages.iter().map(|page| page.burn).collect(),
            leak_bytes: config.leak_bytes,
            leaked: Vec::new(),
            cap: config
                .cap_per_s
                .map(|per_s| Cap::new(per_s / f64::from(config.threads.max(1)))),
            error_share: config.error_share,
            random: Pcg64::seed_from_u64(config.seed.wrapping_add(thread as u64)),
            any: config.delay_ns > 0
                || config.wait.is_some()
                || config.burn > 0
                || config.pages.iter().any(|page| page.burn > 0)
                || config.leak_bytes > 0
                || config.cap_per_s.is_some()
                || config.error_share > 0.0,
        }
    }

    /// The configured delay before each response, in nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Whether responses may wait.
    pub(crate) fn waits(&self) -> bool {
        self.wait.is_some() || self.cap.is_some() || self.delay_share < 1.0
    }

    /// The current time, if anything depends on when requests were read; otherwise 0.
    pub(crate) fn read_ns(&self) -> u64 {
        if self.any { now_ns() } else { 0 }
    }

    /// Does a request's work, spins its delay and decides what becomes of it. `read_ns`: when it was
    /// read, or when the requests before it were done; it is advanced.
    pub(crate) fn request(
        &mut self,
        counters: &Counters,
        page: Option<usize>,
        read_ns: &mut u64,
    ) -> Decision {
        counters.request();
        if !self.any {
            return Decision::default();
        }
        let waited = self
            .wait
            .map(|wait| *read_ns + draw(wait, &mut self.random));
        let capped = self.cap.as_mut().map(|cap| cap.next(*read_ns));
        let not_before_ns = waited.max(capped).max(self.delay_of_some(*read_ns));
        let fails = self.error_share > 0.0 && uniform(&mut self.random) < self.error_share;
        if fails {
            counters.failure();
        }
        if self.leak_bytes > 0 {
            self.leaked.push(written(self.leak_bytes));
        }
        let of_page = page.and_then(|page| self.page_burns.get(page));
        let steps = self.burn.saturating_add(of_page.copied().unwrap_or(0));
        if steps > 0 {
            let before_ns = thread_cpu_ns();
            burn(steps);
            counters.burn(thread_cpu_ns().saturating_sub(before_ns));
        }
        if self.delay_ns > 0 && self.delay_share >= 1.0 {
            let end_ns = spin_until(*read_ns + self.delay_ns);
            counters.delay(end_ns - *read_ns);
            *read_ns = end_ns;
        }
        Decision {
            fails,
            not_before_ns,
        }
    }

    /// A delay of a share of the requests is a wait: spinning would also delay an unknown number of
    /// requests behind them.
    fn delay_of_some(&mut self, read_ns: u64) -> Option<u64> {
        let some = self.delay_ns > 0 && self.delay_share < 1.0;
        let hit = some && uniform(&mut self.random) < self.delay_share;
        hit.then(|| read_ns + self.delay_ns)
    }
}

/// A rate limit with even gaps; unused capacity is not accumulated.
#[derive(Debug)]
struct Cap {
    gap_ns: f64,
    /// When the next response may be sent.
    next_ns: f64,
}

impl Cap {
    fn new(per_s: f64) -> Self {
        Self {
            gap_ns: 1e9 / per_s,
            next_ns: 0.0,
        }
    }

    /// When the response to a request that was read now may be sent.
    fn next(&mut self, now_ns: u64) -> u64 {
        // Timers fire late: a little is caught up, so that the rate is the configured one.
        const CATCH_UP_NS: f64 = 20e6;
        let mine_ns = self.next_ns.max(now_ns as f64 - CATCH_UP_NS);
        self.next_ns = mine_ns + self.gap_ns;
        mine_ns as u64
    }
}

/// Memory with every page written, so that it is resident.
pub(crate) fn written(bytes: u64) -> Vec<u8> {
    let mut held = vec![0_u8; usize::try_from(bytes).unwrap_or(usize::MAX)];
    for (number, page) in held.chunks_mut(4096).enumerate() {
        page[0] = number as u8 | 1;
    }
    held
}

/// A number in [0, 1), from 53 random bits.
pub(crate) fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

fn draw(wait: Wait, random: &mut Pcg64) -> u64 {
    let ns = match wait {
        Wait::Exponential { mean_ns } => -(mean_ns as f64) * logarithm(random),
        Wait::Uniform { from_ns, to_ns } => {
            from_ns as f64 + uniform(random) * (to_ns - from_ns) as f64
        }
        Wait::LogNormal { median_ns, sigma } => {
            // A standard normal value by the Box-Muller transform.
            let radius = (-2.0 * logarithm(random)).sqrt();
            let angle = uniform(random) * std::f64::consts::TAU;
            median_ns as f64 * (sigma * radius * angle.cos()).exp()
        }
    };
    (ns as u64).min(MAX_WAIT_NS)
}

/// The logarithm of a number in (0, 1]: always finite.
fn logarithm(random: &mut Pcg64) -> f64 {
    (1.0 - uniform(random)).ln()
}

/// Each step depends on the previous one, so that the time is proportional to their number. Without
/// the shift, the compiler would merge the multiplications.
fn burn(steps: u64) {
    let mut value = black_box(1_u64);
    for _ in 0..steps {
        // Knuth's multiplier for a linear congruential generator.
        value = (value ^ (value >> 29)).wrapping_mul(6_364_136_223_846_793_005);
    }
    black_box(value);
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time of this thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// Spins until then; returns the time.
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

    /// Random waits in nanoseconds, ascending.
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
    fn waits_follow_their_distribution() {
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
    fn waits_are_limited_to_the_maximum() {
        let longest = drawn(Wait::LogNormal {
            median_ns: MAX_WAIT_NS,
            sigma: 5.0,
        });
        assert!(longest[19_999] <= MAX_WAIT_NS as f64);
    }

    #[test]
    fn failing_requests_depend_on_the_seed_alone() {
        let pattern = |seed: u64| -> Vec<bool> {
            let mut work = work(|config| {
                config.error_share = 0.1;
                config.seed = seed;
            });
            let counters = Counters::default();
            let decisions = (0..5000).map(|_| work.request(&counters, None, &mut 0).fails);
            decisions.collect()
        };
        let failed = pattern(3).iter().filter(|fails| **fails).count();
        assert!((400..600).contains(&failed), "{failed}");
        assert_eq!(pattern(3), pattern(3));
        assert_ne!(pattern(3), pattern(4));
    }

    #[test]
    fn an_idle_configuration_reads_no_clock() {
        let mut idle = work(|_| {});
        assert_eq!(idle.read_ns(), 0);
        let decision = idle.request(&Counters::default(), None, &mut 0);
        assert_eq!(decision, Decision::default());
    }

    #[test]
    fn a_delay_share_delays_that_share() {
        let counters = Counters::default();
        let mut work = work(|config| {
            config.delay_ns = 1_000;
            config.delay_share = 0.01;
        });
        let decisions = (0..20_000).map(|at| work.request(&counters, None, &mut (at * 10)));
        let later = decisions.filter(|decision| decision.not_before_ns.is_some());
        assert!((120..280).contains(&later.count()));
        let stats = Counters::sum(&[counters], 1_000);
        assert_eq!(stats.delayed, 0, "a delay is counted when it is over");
    }

    #[test]
    fn work_is_counted_by_the_thread_cpu_clock() {
        let counters = Counters::default();
        let mut work = work(|config| config.burn = 100_000);
        let before = thread_cpu_ns();
        for _ in 0..50 {
            work.request(&counters, None, &mut 0);
        }
        let all = thread_cpu_ns() - before;
        let stats = Counters::sum(&[counters], 0);
        assert_eq!(stats.burned, 50);
        assert!(
            stats.burned_ns <= all && stats.burned_ns > all / 2,
            "{stats:?}"
        );
    }

    #[test]
    fn a_cap_limits_the_rate_without_bursts() {
        let mut cap = Cap::new(1_000.0);
        let mut now_ns = 5_000_000_000_u64;
        let first = cap.next(now_ns);
        assert!(first <= now_ns);
        // A server that always has a request: each response is a little late.
        for _ in 0..1_000 {
            now_ns = now_ns.max(cap.next(now_ns)) + 50_000;
        }
        let took_ns = now_ns - 5_000_000_000;
        assert!(
            (960_000_000..=1_010_000_000).contains(&took_ns),
            "{took_ns}"
        );
        // A pause is not followed by a burst.
        now_ns += 10_000_000_000;
        let after: Vec<u64> = (0..40).map(|_| cap.next(now_ns)).collect();
        assert!(after.iter().filter(|at| **at <= now_ns).count() <= 21);
    }

    #[test]
    fn leaked_memory_is_never_freed() {
        let mut leaky = work(|config| config.leak_bytes = 10_000);
        for _ in 0..7 {
            leaky.request(&Counters::default(), None, &mut 0);
        }
        assert_eq!(leaky.leaked.iter().map(Vec::len).sum::<usize>(), 70_000);
        assert!(leaky.leaked.iter().all(|part| part[4096] != 0));
    }

    #[test]
    fn work_takes_at_least_its_minimum_time() {
        let mut busy = work(|config| config.burn = 4_000_000);
        let begin = now_ns();
        busy.request(&Counters::default(), None, &mut begin.clone());
        // A multiplication is never faster than a third of a nanosecond.
        assert!(now_ns() - begin > 1_300_000);
    }
}
