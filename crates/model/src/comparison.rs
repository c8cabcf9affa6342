//! Two runs, or two sides of one run, against each other; and limits that a change must keep to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis::{Estimate, Metric, RunFacts, Verdict};
use crate::experiment::{LoadPointId, VariantId};

/// A run that was compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// How it went.
    pub run: RunFacts,
    /// Rounds with at least one valid trial.
    pub rounds: u32,
    /// Blocks with at least one valid trial.
    pub blocks: u32,
}

/// Something that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differing {
    /// What (`kernel`, `load steady`).
    pub what: String,
    /// As it was in BASE; with several runs, what they have between them.
    pub base: String,
    /// As it was in NEW.
    pub new: String,
}

/// How much runs of the same thing differ beyond what the rounds of each explain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Between {
    /// Standard deviation of a run's log ratio, relative (0.015 is 1.5 %).
    pub value: f64,
    /// Where it is from.
    pub source: BetweenSource,
}

/// Where a between-run component is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetweenSource {
    /// Measured by meshtax's makers: one run a side cannot show it.
    Default,
    /// Given by the user.
    Given,
    /// From the several runs of a side, the default counting as one more look.
    Runs,
}

/// What changed from BASE to NEW in one metric of one variant at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What the variant is called here.
    pub variant: String,
    /// Its id in BASE; the baseline's, where that stands against NEW's variant.
    pub base_variant: VariantId,
    /// Its id in NEW.
    pub new_variant: VariantId,
    /// At which load point.
    pub load_point: LoadPointId,
    /// Of what.
    pub metric: Metric,
    /// Overhead against BASE's own baselines, relative; of several runs the geometric mean, with no interval.
    pub base: Option<Estimate>,
    /// Overhead against NEW's own baselines, relative.
    pub new: Option<Estimate>,
    /// NEW to BASE, relative: 0.05 is 5 % more, beyond what the baselines did. `None` if not estimable.
    pub relative: Option<Estimate>,
    /// What runs differ by; `None`: both sides were measured in one run.
    pub between: Option<Between>,
    /// Runs of BASE that the figure is from.
    pub base_runs: u32,
    /// Runs of NEW that the figure is from.
    pub new_runs: u32,
    /// Two-sided p-value of "nothing changed", adjusted over all primary changes where it is one of them (Holm).
    pub p_value: Option<f64>,
    /// Whether it belongs to the primary metrics, over which p-values are adjusted.
    pub primary: bool,
    /// [`Verdict::Different`]: the p-value is below 0.05.
    pub verdict: Verdict,
}

/// What `meshtax compare` finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// What is compared with.
    pub base: Vec<ComparedRun>,
    /// What is compared.
    pub new: Vec<ComparedRun>,
    /// Of every interval (0.95).
    pub confidence: f64,
    /// What is not the same in plans, machines and programs.
    pub differing: Vec<Differing>,
    /// What a reader must know besides: what only one side has, runs that are not whole.
    pub notes: Vec<String>,
    /// Every common variant, load point and metric.
    pub changes: Vec<Change>,
}

/// How much worse something may get.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Allowed {
    /// As a share of what it was: 0.05 is 5 % more, -0.05 is 5 % less.
    Relative(f64),
    /// In the metric's unit, at the level that it had in BASE.
    Absolute(f64),
}

/// What a change must keep to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// As it was typed.
    pub text: String,
    /// Of which variant; `None`: of each.
    pub variant: Option<String>,
    /// Of what.
    pub metric: Metric,
    /// How much.
    pub allowed: Allowed,
    /// At which load point; `None`: at each that has the metric.
    pub load_point: Option<String>,
}

/// What a gate, or one check of it, comes to. Ordered: the worst of several is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// The whole interval keeps to the limit.
    Pass,
    /// Neither is shown.
    CannotTell,
    /// The whole interval, adjusted for the number of checks, is beyond the limit.
    Fail,
}

impl fmt::Display for GateVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "passed",
            Self::CannotTell => "cannot tell",
            Self::Fail => "failed",
        })
    }
}

/// One limit on one variant at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateCheck {
    /// As it was typed.
    pub limit: String,
    /// The limit as a relative change; `None`: an absolute one, and there is no level to hold it against.
    pub allowed: Option<f64>,
    /// What was found.
    pub change: Change,
    /// One-sided p-value of "it keeps to the limit", adjusted over the gate's checks (Holm).
    pub p_beyond: Option<f64>,
    /// What it comes to.
    pub verdict: GateVerdict,
    /// Why it cannot be told; empty otherwise.
    pub reason: String,
    /// How many times as long a run would tell, if estimate and spread stay; `None`: no guess.
    pub longer_to_tell: Option<f64>,
}

/// What `meshtax gate` finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// The worst of all checks.
    pub verdict: GateVerdict,
    /// Whether both sides were measured in one interleaved run.
    pub interleaved: bool,
    /// What is compared with; of an interleaved run, the run.
    pub base: Vec<ComparedRun>,
    /// What is compared; of an interleaved run, the run.
    pub new: Vec<ComparedRun>,
    /// Of every interval (0.95).
    pub confidence: f64,
    /// What is not the same in plans, machines and programs.
    pub differing: Vec<Differing>,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// At least one.
    pub checks: Vec<GateCheck>,
}

impl GateReport {
    /// How many checks came to this.
    #[must_use]
    pub fn count(&self, verdict: GateVerdict) -> usize {
        self.checks.iter().filter(|c| c.verdict == verdict).count()
    }
}
