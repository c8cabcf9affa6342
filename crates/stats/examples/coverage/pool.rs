//! Real trials of identical servers: from a run directory into a compact text, and back.
//!
//! A line is a trial: `round,block,variant,point,completed,window_us,cpu_us,probe_us,probe_us`, and of
//! steady ones how many latencies there are and then, in ascending order, every fifth and the
//! slowest twelve, in steps of 0.1 µs from one to the next. What lies between two of them is
//! spread evenly, which leaves the slowest, and so the p99, as they were.

use std::fmt::Write as _;
use std::path::Path;

use meshtax_model::trial::{ResourceSample, TrialOutcome, TrialRecord};
use meshtax_stats::account::cpu_per_request_ns;

use crate::records::{SATURATED, STEADY};

/// In the order of their numbers.
const VARIANTS: [&str; 4] = ["none", "none-again", "aa-3", "aa-4"];

/// One real trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolTrial {
    pub(crate) round: u32,
    pub(crate) block: u32,
    pub(crate) variant: usize,
    pub(crate) point: usize,
    pub(crate) completed: u64,
    pub(crate) window_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) speed_probe_ns: [u64; 2],
    pub(crate) latencies_ns: Vec<u64>,
}

/// The text of a run directory's trials.
pub(crate) fn from_run(run: &Path) -> Result<String, String> {
    let read = |name: &str| {
        std::fs::read_to_string(run.join(name)).map_err(|why| format!("{name}: {why}"))
    };
    let samples = read("samples.jsonl")?;
    let mut samples = samples.lines();
    let mut text = String::new();
    for line in read("trials.jsonl")?.lines() {
        let record: TrialRecord = serde_json::from_str(line).map_err(|why| why.to_string())?;
        let TrialOutcome::Measured { load, .. } = &record.outcome else {
            continue;
        };
        let sample: ResourceSample = loop {
            let line = samples.next().ok_or("a trial without a sample")?;
            let sample: ResourceSample =
                serde_json::from_str(line).map_err(|why| why.to_string())?;
            if sample.trial == record.trial.id {
                break sample;
            }
        };
        let variant = VARIANTS.iter().position(|v| *v == record.trial.variant.0);
        let per_request = cpu_per_request_ns(&sample, load.completed);
        let probe = sample.machines.first().and_then(|m| m.speed_probe_ns);
        let (Some(variant), Some(per_request), Some(probe)) = (variant, per_request, probe) else {
            return Err(format!("{}: not a trial of such a pool", record.trial.id));
        };
        let steady = record.trial.load_point.0 == "steady";
        let _ = write!(
            text,
            "{},{},{variant},{},{},{},{:.0},{},{},",
            record.trial.round,
            record.trial.block,
            if steady { STEADY } else { SATURATED },
            load.completed,
            load.window_ns / 1000,
            per_request * load.completed as f64 / 1e3,
            probe[0] / 1000,
            probe[1] / 1000,
        );
        if steady {
            let latencies: Vec<u64> = load
                .response
                .buckets()
                .flat_map(|(value, count)| std::iter::repeat_n(value, count as usize))
                .collect();
            text.push_str(&steps(&latencies));
        }
        text.push('\n');
    }
    Ok(text)
}

/// Which of so many latencies are kept.
fn kept(count: usize) -> Vec<usize> {
    let slowest = count.saturating_sub(12);
    (0..slowest).step_by(5).chain(slowest..count).collect()
}

fn steps(latencies_ns: &[u64]) -> String {
    let mut text = latencies_ns.len().to_string();
    let mut last = 0;
    for index in kept(latencies_ns.len()) {
        let here = latencies_ns[index] / 100;
        let _ = write!(text, " {}", here - last);
        last = here;
    }
    text
}

/// Reads the text. `None`: not what [`from_run`] wrote.
pub(crate) fn parse(text: &str) -> Option<Vec<PoolTrial>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<PoolTrial> {
    let mut fields = line.splitn(10, ',');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let [round, block, variant, point] = [number()?, number()?, number()?, number()?];
    let [completed, window_us, cpu_us] = [number()?, number()?, number()?];
    let speed_probe_ns = [number()? * 1000, number()? * 1000];
    Some(PoolTrial {
        round: u32::try_from(round).ok()?,
        block: u32::try_from(block).ok()?,
        variant: usize::try_from(variant).ok()?,
        point: usize::try_from(point).ok()?,
        completed,
        window_ns: window_us * 1000,
        cpu_ns: cpu_us * 1000,
        speed_probe_ns,
        latencies_ns: latencies(fields.next()?)?,
    })
}

fn latencies(steps: &str) -> Option<Vec<u64>> {
    let mut numbers = steps
        .split_whitespace()
        .map(|step| step.parse::<u64>().ok());
    let Some(count) = numbers.next() else {
        return Some(Vec::new());
    };
    let count = usize::try_from(count?).ok()?;
    let mut all = Vec::with_capacity(count);
    let mut last: Option<(usize, u64)> = None;
    for index in kept(count) {
        let (from, below) = last.unwrap_or((index, 0));
        let here = below + numbers.next()?? * 100;
        for between in from + 1..index {
            let share = (between - from) as u64;
            all.push(below + (here - below) * share / (index - from) as u64);
        }
        all.push(here);
        last = Some((index, here));
    }
    (all.len() == count).then_some(all)
}
