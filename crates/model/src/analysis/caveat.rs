//! Caveats on the figures: ids and data. The report formats them.

use serde::{Deserialize, Serialize};

use super::estimate::Metric;
use super::outcome::{Overload, Shortfall};
use super::reason::{ExclusionReason, InvalidReason};
use crate::event::{Ending, Resumption};
use crate::experiment::{LoadPointId, VariantId};
use crate::failure::VariantFailureReason;

/// One caveat. Shares are 0 to 1; changes are relative (0.15 is 15 % more).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Caveat {
    /// The run was interrupted or failed, or its end is not on record.
    Incomplete {
        /// `None`: not on record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ending: Option<Ending>,
    },
    /// The run was interrupted and continued.
    Resumed {
        /// Each time, the first one first.
        resumptions: Vec<Resumption>,
    },
    /// Too few rounds: intervals do not include what a restart of the processes changes.
    FewRounds {
        /// Rounds.
        rounds: u32,
    },
    /// Too few blocks for any interval.
    FewBlocks {
        /// Blocks.
        blocks: u32,
    },
    /// Too few blocks for a p99.
    FewBlocksForP99 {
        /// Blocks.
        blocks: u32,
    },
    /// A variant has valid pairs in too few of the run's rounds.
    FewPairedRounds {
        /// Which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// Rounds with a valid pair.
        rounds: u32,
        /// Rounds of the run.
        of: u32,
    },
    /// A variant was excluded from the whole run.
    Excluded {
        /// Which.
        variant: VariantId,
        /// Why.
        reason: ExclusionReason,
    },
    /// A variant could not be measured in some rounds.
    FailedInRounds {
        /// Which.
        variant: VariantId,
        /// In how many rounds.
        rounds: u32,
        /// Rounds in which it was to be measured.
        of: u32,
        /// The last failure.
        last: VariantFailureReason,
    },
    /// There is no evidence for rounds in which a variant was measured.
    NoEvidence {
        /// Which variant.
        variant: VariantId,
        /// Rounds without evidence.
        rounds: u32,
    },
    /// Some trials are invalid.
    InvalidTrials {
        /// Of which variant.
        variant: VariantId,
        /// Invalid trials.
        invalid: u32,
        /// All its trials.
        of: u32,
        /// Why, without repeats.
        reasons: Vec<InvalidReason>,
    },
    /// Trials of a variant were excluded more or less often than those of the baselines, beyond chance: what is left may
    /// not be comparable.
    UnequalExclusion {
        /// Which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// Its invalid trials.
        invalid: u32,
        /// All its trials.
        of: u32,
        /// Invalid trials of the baselines.
        baselines_invalid: u32,
        /// All their trials.
        baselines_of: u32,
    },
    /// A variant did not carry the load that the baselines carried.
    Overloaded {
        /// Which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// What it did of the load.
        overload: Overload,
    },
    /// The baselines did not carry the load: it is beyond this machine.
    BeyondMachine {
        /// Which load point.
        load_point: LoadPointId,
        /// Trials of the baselines that did not carry it.
        trials: u32,
        /// All their valid trials.
        of: u32,
    },
    /// Some valid trials did not carry the load. They count.
    ShortTrials {
        /// Of which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// Trials that did not carry the load.
        trials: u32,
        /// All its valid trials.
        of: u32,
        /// What they lacked, without repeats.
        shortfalls: Vec<Shortfall>,
    },
    /// Records of no variant or load point of the experiment.
    UnknownTrials {
        /// How many.
        trials: u32,
    },
    /// Valid trials without a resource sample.
    NoResourceSample {
        /// How many.
        trials: u32,
    },
    /// The baseline differs from its control.
    BaselinesDiffer {
        /// In what.
        metric: Metric,
        /// At which load point.
        load_point: LoadPointId,
        /// By how much.
        change: f64,
    },
    /// A mesh costs less than no mesh.
    CheaperThanNoMesh {
        /// Which variant.
        variant: VariantId,
        /// In what.
        metric: Metric,
        /// At which load point.
        load_point: LoadPointId,
        /// By how much.
        change: f64,
    },
    /// A higher policy level costs less than a lower one of the same data plane.
    HigherLevelCheaper {
        /// The variant of the higher level.
        higher: VariantId,
        /// The variant of the lower level.
        lower: VariantId,
        /// In what.
        metric: Metric,
        /// At which load point.
        load_point: LoadPointId,
        /// The higher relative to the lower.
        change: f64,
    },
    /// A proxy that does more than the minimal one costs less: here, the minimal one is a reference and not a floor.
    BelowFloor {
        /// The variant of the minimal proxy.
        floor: VariantId,
        /// The variant that costs less.
        variant: VariantId,
        /// In what.
        metric: Metric,
        /// At which load point.
        load_point: LoadPointId,
        /// The variant relative to the minimal proxy.
        change: f64,
    },
    /// Closed loop: the generator was the limit with the baselines, so that their throughput is a lower bound.
    GeneratorBoundBaselines {
        /// At which load point.
        load_point: LoadPointId,
        /// In how many trials.
        trials: u32,
    },
    /// Closed loop: the generator was the limit with these candidates.
    GeneratorBoundCandidates {
        /// At which load point.
        load_point: LoadPointId,
        /// Which, and in how many trials.
        variants: Vec<VariantTrials>,
        /// Whether it was with the baselines, too: then the cost has no bound on either side.
        baselines_too: bool,
    },
    /// The proxies opened connections to each other within windows: they were not warm, and handshakes are part of the
    /// figures. Such trials count: a slow moment is what opens connections, so excluding them would select fast ones.
    NotWarm {
        /// Which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// In how many valid trials.
        trials: u32,
        /// All of them in which connections were counted at both ends of the window.
        of: u32,
        /// The most connections that were opened in one of them.
        most: u32,
    },
    /// The memory of a variant's proxies grew throughout more than one trial in ten: a leak, or a store that was still
    /// filling. The variant's memory is that of a moment.
    GrowingProxies {
        /// Which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// In how many valid trials that carried their load.
        trials: u32,
        /// All of them in which memory was read.
        of: u32,
    },
    /// A variant kept its cores busy at a steady load: part of its latency is queueing.
    BusyAtSteady {
        /// Which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// Of the cores of both ends.
        busy_share: f64,
    },
    /// The hypervisor gave time of the machine to others.
    Steal {
        /// Of the machine's time.
        share: f64,
    },
    /// Other programs used the cores of the run.
    OtherPrograms {
        /// Which.
        programs: Vec<ProgramShare>,
    },
    /// A CPU limit throttled processes.
    Throttled {
        /// Of the trials' time.
        share: f64,
    },
    /// Something waited for memory.
    MemoryPressure {
        /// Of the windows.
        share: f64,
    },
    /// The machine became slower or faster over the run.
    SpeedDrift {
        /// 0.05: 5 % slower.
        drift: f64,
    },
    /// The machine's speed varied.
    SpeedSpread {
        /// From the 5th to the 95th percentile, relative to the median.
        spread: f64,
    },
    /// The kernel's clock is slow to read.
    SlowClock {
        /// Its name.
        clock: String,
    },
    /// The components used more CPU than the machine was busy.
    CpuAboveBusy {
        /// Of which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// Whether time that the hypervisor took explains it.
        by_steal: bool,
    },
    /// The cluster reported that something went wrong with the run's pods.
    ClusterWarnings {
        /// The reasons that it gave, without repeats.
        reasons: Vec<String>,
        /// How many events that were.
        events: u32,
    },
    /// Figures that others published are to be shown beside the measured ones.
    PublishedFigures {
        /// The published result set, by its name in `meshtax published`.
        study: String,
    },
    /// Busy time of the machine that no component accounts for.
    Unattributed {
        /// Of which variant.
        variant: VariantId,
        /// At which load point.
        load_point: LoadPointId,
        /// Of the busy time.
        share: f64,
    },
}

/// A number of trials of a variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariantTrials {
    /// Which.
    pub variant: VariantId,
    /// How many.
    pub trials: u32,
}

/// What a program used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramShare {
    /// Its name, as the kernel reports it.
    pub program: String,
    /// Of one core.
    pub share: f64,
}
