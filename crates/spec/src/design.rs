//! The design of a spec: rounds, blocks, and the lengths of trials.

use meshtax_model::experiment::{Design, Experiment, Regime};

use crate::grammar::{in_range, precision, time_limit_ns, trial_ns, warmup_ns};
use crate::load_points::shortest_trial_ns;
use crate::saturation;
use crate::yaml::{Fields, Node, Problem, Span};

/// The key for the length of a trial.
pub(crate) const TRIAL: &str = "trial";

/// The key for a study's own lengths.
pub(crate) const FAITHFUL: &str = "faithful";
const FAITHFUL_EXAMPLE: &str = "`faithful: {trial: 5m}` or `faithful: {requests: 300000}`";

/// The longest trial of a fixed number of requests, in nanoseconds.
const MAX_TRIAL_BY_REQUESTS_NS: u64 = 3_600_000_000_000;

const ROUNDS: &str = "a number of rounds";

/// Which lengths trials have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// Those of the spec's `design`.
    Short,
    /// Those of the published study that the spec reproduces (`faithful`).
    Faithful,
}

/// The design with the lengths of a spec's `design` or of its `faithful`; `spec` is the location of the whole spec.
pub(crate) fn read(
    design: Option<&Node>,
    faithful: Option<&Node>,
    lengths: Lengths,
    spec: Span,
) -> Result<Design, Problem> {
    let short = match design {
        Some(node) => short(node)?,
        None => default_design(),
    };
    match (lengths, self::faithful(faithful, &short)?) {
        (Lengths::Short, _) => Ok(short),
        (Lengths::Faithful, Some(faithful)) => Ok(faithful),
        (Lengths::Faithful, None) => Err(Problem::new(
            spec,
            "the spec does not define the lengths of a study's own trials",
            format!("add {FAITHFUL_EXAMPLE}, or omit `--faithful`"),
        )),
    }
}

/// Where a spec has no length, trials at slow rates are as long as their requests need, up to this.
pub(crate) const LONGEST_DEFAULT_TRIAL_NS: u64 = 500_000_000;

/// The usual length, or what the slowest rate needs.
pub(crate) fn default_trials(experiment: &mut Experiment) {
    if experiment.design.requests_per_trial.is_none() {
        let usual_ns = default_design().trial_ns;
        experiment.design.trial_ns = usual_ns.max(slowest_needs_ns(experiment));
    }
}

/// The shortest trial with enough requests at every steady rate, and in every closed loop of an application that
/// saturates at a given rate.
fn slowest_needs_ns(experiment: &Experiment) -> u64 {
    /// Responses to each connection of a closed loop, once its queue is full.
    const TURNS: u64 = 2;
    let turns_ns = saturation::longest_wait_ns(experiment).saturating_mul(TURNS);
    let steady = experiment.load_points.iter().filter_map(|point| {
        let Regime::Steady { rate_per_s, .. } = point.load else {
            return None;
        };
        Some(shortest_trial_ns(rate_per_s))
    });
    steady.max().unwrap_or(0).max(turns_ns)
}

fn default_design() -> Design {
    Design {
        min_rounds: 6,
        blocks_per_round: 8,
        trial_ns: 350_000_000,
        requests_per_trial: None,
        warmup_ns: 100_000_000,
        time_limit_ns: 120_000_000_000,
        precision: None,
    }
}

fn short(node: &Node) -> Result<Design, Problem> {
    let fields = Fields::of(
        node,
        "`design`",
        &["rounds", "blocks", TRIAL, "warmup", "time", "precision"],
        "`design: {rounds: 6, blocks: 2, trial: 350ms, warmup: 100ms, time: 2m}`",
    )?;
    let default = default_design();
    Ok(Design {
        min_rounds: fields.or("rounds", default.min_rounds, in_range(ROUNDS, 1, 1000))?,
        blocks_per_round: fields.or(
            "blocks",
            default.blocks_per_round,
            in_range("a number of blocks", 1, 100),
        )?,
        trial_ns: fields.or(TRIAL, default.trial_ns, trial_ns)?,
        requests_per_trial: None,
        warmup_ns: fields.or("warmup", default.warmup_ns, warmup_ns)?,
        time_limit_ns: fields.or("time", default.time_limit_ns, time_limit_ns)?,
        precision: fields.optional("precision", precision)?,
    })
}

/// The study's own lengths, which are validated whether or not they are used.
fn faithful(node: Option<&Node>, short: &Design) -> Result<Option<Design>, Problem> {
    let Some(node) = node else {
        return Ok(None);
    };
    let keys = ["rounds", TRIAL, "warmup", "requests"];
    let fields = Fields::of(node, "`faithful`", &keys, FAITHFUL_EXAMPLE)?;
    let requests = fields.optional("requests", in_range("a number of requests", 1, 100_000_000))?;
    let rounds = fields.or("rounds", 1, in_range(ROUNDS, 1, 1000))?;
    if requests.is_none() && fields.get(TRIAL).is_none() {
        return Err(Problem::new(
            node.at,
            "`faithful` does not define the length of a trial",
            format!("write it as {FAITHFUL_EXAMPLE}"),
        ));
    }
    // The duration of such a trial is known after the first round only; a further one could not be planned.
    if let (Some(_), true, Some(node)) = (requests, rounds > 1, fields.get("rounds")) {
        return Err(Problem::new(
            node.at,
            "trials of a fixed number of requests are measured in one round",
            "omit `rounds`, or use `trial:` with a duration instead of `requests`",
        ));
    }
    Ok(Some(Design {
        min_rounds: rounds,
        blocks_per_round: 1,
        trial_ns: fields.or(TRIAL, MAX_TRIAL_BY_REQUESTS_NS, trial_ns)?,
        requests_per_trial: requests.map(u64::from),
        warmup_ns: fields.or("warmup", short.warmup_ns, warmup_ns)?,
        time_limit_ns: short.time_limit_ns,
        precision: None,
    }))
}

/// Shortens the trials, down to 150 ms, and then their warm-up, down to 50 ms (a round's first burst has warmed the
/// proxies), as far as the planned rounds, and one more, need it to fit into the time limit.
/// Trials of a fixed number of requests, and trials that are shorter already, stay as they are.
pub fn fit_trials_to_time(experiment: &mut Experiment) {
    /// Shorter trials are mostly connecting and warming up.
    const SHORTEST_NS: u64 = 150_000_000;
    /// Enough for the generator's own connections.
    const SHORTEST_WARMUP_NS: u64 = 50_000_000;
    /// Building the environment.
    const START_NS: u64 = 1_500_000_000;
    /// Starting a round's processes, verifying and stopping them.
    const ROUND_NS: u64 = 700_000_000;
    /// Of a trial, beyond its warm-up and its window.
    const AROUND_TRIAL_NS: u64 = 60_000_000;
    let design = &experiment.design;
    if design.requests_per_trial.is_some() {
        return;
    }
    let rounds = u64::from(design.min_rounds) + 1;
    let round_ns = design.time_limit_ns.saturating_sub(START_NS) / rounds;
    let each_ns = round_ns.saturating_sub(ROUND_NS) / experiment.block_trials().max(1);
    let fitting_ns = each_ns.saturating_sub(AROUND_TRIAL_NS);
    let wait_ns = saturation::longest_wait_ns(experiment);
    let shortest_ns = SHORTEST_NS.max(slowest_needs_ns(experiment));
    let design = &mut experiment.design;
    let beside_warmup_ns = fitting_ns.saturating_sub(design.warmup_ns);
    design.trial_ns = design.trial_ns.min(beside_warmup_ns.max(shortest_ns));
    let beside_trial_ns = fitting_ns.saturating_sub(design.trial_ns);
    design.warmup_ns = design
        .warmup_ns
        .min(beside_trial_ns.max(SHORTEST_WARMUP_NS.max(wait_ns)));
}

/// Sets the time limit to the planned number of rounds, without room for another.
pub(crate) fn limit_to_planned_rounds(mut experiment: Experiment) -> Experiment {
    /// For a slow set-up of a round.
    const SETUP_NS: u64 = 60_000_000_000;
    let block_ns = experiment.block_ns();
    let design = &mut experiment.design;
    let rounds = u64::from(design.min_rounds);
    design.time_limit_ns = match (rounds, design.requests_per_trial) {
        // One block is measured regardless of the time.
        (1, _) | (_, Some(_)) => 1_000_000_000,
        _ => rounds.saturating_mul(block_ns + SETUP_NS.min(block_ns / rounds / 2)),
    };
    experiment
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn trial_ns(spec: &str) -> u64 {
        let parsed = crate::parse("spec", spec).unwrap_or_else(|e| panic!("{e}"));
        parsed.design.trial_ns
    }

    /// Of the default variants and load points: fourteen trials in a block.
    #[test]
    fn trials_shrink_to_150_ms_with_the_time_where_the_spec_has_no_length() {
        assert_eq!(trial_ns("design: {time: 2m}\n"), 350 * MS);
        let half_a_minute = trial_ns("design: {time: 30s}\n");
        assert!(
            (150 * MS..250 * MS).contains(&half_a_minute),
            "{half_a_minute}"
        );
        assert_eq!(trial_ns("design: {time: 5s}\n"), 150 * MS);
        assert_eq!(trial_ns("design: {time: 5s, trial: 400ms}\n"), 400 * MS);
    }

    #[test]
    fn slow_rates_keep_twenty_requests_in_a_trial() {
        let spec = "load: [{steady: {rate: 50}}]\ndesign: {time: 2s}\n";
        assert_eq!(trial_ns(spec), 400 * MS);
    }

    #[test]
    fn six_rounds_fit_into_half_a_minute() {
        let mut quick = crate::parse("quick", crate::preset("quick").unwrap().yaml).unwrap();
        quick.design.time_limit_ns = 30_000 * MS;
        fit_trials_to_time(&mut quick);
        let block_ns = quick.block_ns() + quick.block_trials() * 60 * MS;
        assert!(6 * (block_ns + 700 * MS) <= 28_500 * MS, "{block_ns}");
        assert!(quick.design.trial_ns >= 150 * MS);
    }
}
