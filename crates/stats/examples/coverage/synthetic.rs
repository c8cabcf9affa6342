//! A made-up machine with the vices of shared ones, and whole experiments on it, whose true
//! effects are known.
//!
//! - Latencies have a log-normal body and, one in ten, a Pareto tail.
//! - The machine stalls for some milliseconds, at random times, regardless of the variant.
//! - It changes its speed by 15 to 30 % for 10 to 60 seconds: several blocks are within one such
//!   state, and its ends are inside of blocks and trials.
//! - Processes are made anew in each round, and differ by 1 %; trials differ by 2 %, or as a setting says.
//! - In some settings the hypervisor takes a share of the time in which a core is wanted. Half of the share is that of the
//!   block, half that of the trial.
//! - A speed probe reads the speed before and after each trial, with an error of 2 %.

use meshtax_stats::pairing::BlockKey;

use crate::noise::Noise;
use crate::records::{Figures, Records, SATURATED, STEADY};

const WINDOW_S: f64 = 0.5;
/// Warm-up, connecting, and the speed probes.
const AROUND_S: f64 = 0.15;
/// Bringing up a round's processes.
const SETUP_S: f64 = 0.5;

const LATENCY_NS: f64 = 200_000.0;
const CPU_NS: f64 = 100_000.0;
const PROBE_NS: f64 = 1_700_000.0;
const PROCESS_SD: f64 = 0.01;
/// Of a trial, where a setting says nothing else.
pub(crate) const TRIAL_SD: f64 = 0.02;
const PROBE_SD: f64 = 0.02;
const TAIL_SHARE: f64 = 0.1;
const TAIL_EXPONENT: f64 = 2.0;
const STALLS_PER_S: f64 = 0.4;

/// What a candidate truly does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    /// Factor on every latency.
    pub(crate) latency: f64,
    /// Added to every latency, however fast the machine is.
    pub(crate) delay_ns: f64,
    /// Factor on the CPU of every request; a saturated core does so many fewer.
    pub(crate) cpu: f64,
    /// The share of its steady trials in which requests are lost.
    pub(crate) lossy: f64,
}

impl Cost {
    pub(crate) const fn none(name: &'static str) -> Self {
        Self {
            name,
            latency: 1.0,
            delay_ns: 0.0,
            cpu: 1.0,
            lossy: 0.0,
        }
    }
}

/// Latencies and CPU of one instance of a variant: the processes of one round.
#[derive(Clone, Copy)]
struct Instance {
    latency: f64,
    cpu: f64,
}

/// The state of the machine over time, the same for all variants.
struct Course {
    now_s: f64,
    /// (until, factor on all durations), the next ones to come first.
    states: Vec<(f64, f64)>,
    /// The next stall: from, to.
    stall: (f64, f64),
    nominal: bool,
}

impl Course {
    fn new(noise: &mut Noise) -> Self {
        let mut course = Self {
            now_s: 0.0,
            states: Vec::new(),
            stall: (0.0, 0.0),
            nominal: noise.uniform() < 0.5,
        };
        // It begins somewhere in a state.
        course.add_state(noise);
        course.states[0].0 *= noise.uniform();
        course.next_stall(noise);
        course
    }

    fn add_state(&mut self, noise: &mut Noise) {
        let from = self.states.last().map_or(self.now_s, |(until, _)| *until);
        let change = 1.0 + noise.between(0.15, 0.30);
        let factor = match (self.nominal, noise.uniform() < 0.5) {
            (true, _) => 1.0,
            (false, true) => change,
            (false, false) => 1.0 / change,
        };
        self.nominal = !self.nominal;
        self.states.push((from + noise.between(10.0, 60.0), factor));
    }

    fn next_stall(&mut self, noise: &mut Noise) {
        let from = self.stall.1.max(self.now_s) - noise.uniform().ln() / STALLS_PER_S;
        self.stall = (from, from + noise.between(0.002, 0.008));
    }

    /// Lets time pass; what is over is forgotten.
    fn advance(&mut self, seconds: f64, noise: &mut Noise) {
        self.now_s += seconds;
        // One look ahead covers any trial.
        while self
            .states
            .last()
            .is_none_or(|(until, _)| *until < self.now_s + 5.0)
        {
            self.add_state(noise);
        }
        self.states.retain(|(until, _)| *until > self.now_s);
        while self.stall.1 < self.now_s {
            self.next_stall(noise);
        }
    }

    /// The factor on all durations at a time that is not over.
    fn slowness(&self, at_s: f64) -> f64 {
        let state = self.states.iter().find(|(until, _)| *until > at_s);
        state.map_or(1.0, |(_, factor)| *factor)
    }

    /// What is left of a stall.
    fn stalled_s(&self, at_s: f64) -> f64 {
        let (from, to) = self.stall;
        if (from..to).contains(&at_s) {
            to - at_s
        } else {
            0.0
        }
    }

    /// The speed probe of now.
    fn probe_ns(&self, noise: &mut Noise) -> u64 {
        (PROBE_NS * self.slowness(self.now_s) * (PROBE_SD * noise.normal()).exp()) as u64
    }
}

/// A run under way on the made-up machine.
pub(crate) struct Simulation<'a> {
    noise: Noise,
    course: Course,
    /// The two baselines, and the candidates.
    costs: Vec<Cost>,
    points: &'a [usize],
    requests: usize,
    trial_sd: f64,
    /// Mean of the share that the hypervisor takes.
    steal: f64,
    /// Of this block.
    block_steal: f64,
    instances: Vec<Instance>,
    round: u32,
    latencies_ns: Vec<u64>,
}

impl<'a> Simulation<'a> {
    /// `requests` per steady trial; `points` that are measured; `trial_sd`: the standard deviation of a trial.
    pub(crate) fn new(
        mut noise: Noise,
        candidates: &[Cost],
        points: &'a [usize],
        requests: usize,
        trial_sd: f64,
        steal: f64,
    ) -> Self {
        let course = Course::new(&mut noise);
        let mut costs = vec![Cost::none("none"), Cost::none("none-again")];
        costs.extend_from_slice(candidates);
        Self {
            noise,
            course,
            costs,
            points,
            requests,
            trial_sd,
            steal,
            block_steal: 0.0,
            instances: Vec::new(),
            round: 0,
            latencies_ns: Vec::new(),
        }
    }

    /// Measures a block: every variant at every point once, in random order.
    pub(crate) fn block(&mut self, key: BlockKey, into: &mut Records) {
        if key.round != self.round {
            self.round = key.round;
            self.course.advance(SETUP_S, &mut self.noise);
            let noise = &mut self.noise;
            let mut effect = || (PROCESS_SD * noise.normal()).exp();
            self.instances = self
                .costs
                .iter()
                .map(|_| Instance {
                    latency: effect(),
                    cpu: effect(),
                })
                .collect();
        }
        let variants = 0..self.costs.len();
        let mut order: Vec<(usize, usize)> = variants
            .flat_map(|variant| self.points.iter().map(move |point| (variant, *point)))
            .collect();
        self.noise.shuffle(&mut order);
        self.block_steal = self.draw_steal();
        for ((variant, point), position) in order.into_iter().zip(1..) {
            self.trial(key, position, variant, point, into);
        }
    }

    fn trial(
        &mut self,
        key: BlockKey,
        position: u32,
        variant: usize,
        point: usize,
        into: &mut Records,
    ) {
        let before = self.course.probe_ns(&mut self.noise);
        self.course.advance(AROUND_S, &mut self.noise);
        let (cost, instance) = (self.costs[variant], self.instances[variant]);
        let trial_sd = self.trial_sd;
        let mut trial = || (trial_sd * self.noise.normal()).exp();
        let latency = cost.latency * instance.latency * trial();
        let cpu = cost.cpu * instance.cpu * trial();
        let slowness = self.mean_slowness();
        let stolen = f64::midpoint(self.block_steal, self.draw_steal());
        let lost = point == STEADY && cost.lossy > 0.0 && self.noise.uniform() < cost.lossy;
        let completed = if point == STEADY {
            self.steady(latency / (1.0 - stolen), cost.delay_ns);
            self.requests as u64
        } else {
            self.latencies_ns.clear();
            self.latencies_ns.push(1_000_000);
            let rate = 1e9 / (CPU_NS * cpu * slowness * (trial_sd * self.noise.normal()).exp());
            (rate * (1.0 - stolen) * (WINDOW_S - self.stalled_in_window_s())) as u64
        };
        let cpu_ns = CPU_NS * cpu * slowness * completed as f64;
        self.course.advance(WINDOW_S, &mut self.noise);
        into.push(&Figures {
            key,
            position,
            variant,
            point,
            window_ns: (WINDOW_S * 1e9) as u64,
            completed,
            unanswered: if lost { completed / 20 } else { 0 },
            cpu_ns: cpu_ns as u64,
            steal_ns: (cpu_ns * stolen / (1.0 - stolen)) as u64,
            latencies_ns: &self.latencies_ns,
            speed_probe_ns: [before, self.course.probe_ns(&mut self.noise)],
        });
    }

    fn steady(&mut self, factor: f64, delay_ns: f64) {
        let Self {
            noise,
            course,
            latencies_ns,
            requests,
            ..
        } = self;
        latencies_ns.clear();
        for _ in 0..*requests {
            let at_s = course.now_s + WINDOW_S * noise.uniform();
            let mut shape = (0.15 * noise.normal()).exp();
            if noise.uniform() < TAIL_SHARE {
                shape *= noise.uniform().powf(-1.0 / TAIL_EXPONENT);
            }
            let path_ns = LATENCY_NS * course.slowness(at_s) * factor * shape;
            let stalled_ns = course.stalled_s(at_s) * 1e9;
            latencies_ns.push((path_ns + delay_ns + stalled_ns) as u64);
        }
    }

    /// Mostly little, sometimes much; never all. Without steal nothing is drawn, so that other settings stay the same.
    fn draw_steal(&mut self) -> f64 {
        if self.steal == 0.0 {
            return 0.0;
        }
        (-self.noise.uniform().ln() * self.steal).min(0.8)
    }

    fn mean_slowness(&self) -> f64 {
        const SLICES: u32 = 10;
        let at = |slice: u32| (f64::from(slice) + 0.5) / f64::from(SLICES) * WINDOW_S;
        let sum: f64 = (0..SLICES)
            .map(|slice| self.course.slowness(self.course.now_s + at(slice)))
            .sum();
        sum / f64::from(SLICES)
    }

    fn stalled_in_window_s(&self) -> f64 {
        let (from, to) = self.course.stall;
        let (begin, end) = (self.course.now_s, self.course.now_s + WINDOW_S);
        (to.min(end) - from.max(begin)).max(0.0)
    }
}

/// The points in their usual order.
pub(crate) const BOTH_POINTS: [usize; 2] = [STEADY, SATURATED];
