//! One setting of the bench: how an experiment is simulated, when it ends, and its result.

use meshtax_model::event::Ending;
use meshtax_stats::pairing::BlockKey;
use meshtax_stats::{analyse, precision_reached};

use crate::noise::Noise;
use crate::records::{Records, experiment};
use crate::replay::{Pool, Replay};
use crate::score::Score;
use crate::synthetic::{Cost, Simulation};

/// In every so many experiments, widths are held against Student's.
const WIDTHS_EVERY: u32 = 4;

/// How an experiment is made, and when it ends.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) candidates: &'static [Cost],
    pub(crate) points: &'static [usize],
    pub(crate) requests: usize,
    /// The most rounds, or all of them.
    pub(crate) rounds: u32,
    pub(crate) blocks: u32,
    /// The standard deviation of a made-up trial.
    pub(crate) trial_sd: f64,
    /// The half width at which it ends.
    pub(crate) precision: Option<f64>,
    /// Mean share that the hypervisor takes of the time in which a core is wanted.
    pub(crate) steal: f64,
}

/// Measures one experiment, until its end or until it is precise enough.
fn measure(
    setting: &Setting,
    records: &mut Records,
    mut block: impl FnMut(BlockKey, &mut Records),
) {
    records.clear();
    for round in 1..=setting.rounds {
        for number in 1..=setting.blocks {
            let key = BlockKey {
                round,
                block: number,
            };
            block(key, records);
            let enough = |half_width| precision_reached(&records.data(), half_width);
            if setting.precision.is_some_and(enough) {
                records.ending = Ending::PrecisionReached;
                return;
            }
        }
    }
}

/// Some experiments of a setting, made up or, with a pool, of real trials.
pub(crate) fn score_part(
    setting: &Setting,
    number: u64,
    pool: Option<&Pool>,
    indices: impl Iterator<Item = u32>,
) -> Score {
    let names: Vec<&str> = setting.candidates.iter().map(|cost| cost.name).collect();
    let mut asked = experiment(&names);
    asked.load_points = setting
        .points
        .iter()
        .map(|point| asked.load_points[*point].clone())
        .collect();
    let mut records = Records::new(asked);
    let mut score = Score::default();
    for index in indices {
        let noise = Noise::of_experiment(number, index);
        if let Some(pool) = pool {
            let mut replay = Replay::new(pool, noise, setting.rounds);
            measure(setting, &mut records, |key, into| replay.block(key, into));
        } else {
            let (candidates, points) = (setting.candidates, setting.points);
            let [trial_sd, steal] = [setting.trial_sd, setting.steal];
            let requests = setting.requests;
            let mut machine = Simulation::new(noise, candidates, points, requests, trial_sd, steal);
            measure(setting, &mut records, |key, into| machine.block(key, into));
        }
        let analysis = analyse(&records.data());
        score.stopped += u32::from(records.ending == Ending::PrecisionReached);
        let widths = index.is_multiple_of(WIDTHS_EVERY);
        score.take(&analysis, setting.candidates, &records, widths);
    }
    score
}
