//! A sentence for each caveat: what was seen, what it means for the figures, and what to do about it.

mod comparison;
mod cost;
mod load;
mod machine;
mod proxies;
mod run;
mod words;

use meshtax_model::analysis::Caveat;

use super::source::Loads;

pub(crate) use comparison::note;

/// A caveat for the reader.
pub(crate) fn sentence(caveat: &Caveat, loads: Loads<'_>) -> String {
    let text = match caveat {
        Caveat::Incomplete { .. }
        | Caveat::Resumed { .. }
        | Caveat::FewRounds { .. }
        | Caveat::FewBlocks { .. }
        | Caveat::FewBlocksForP99 { .. }
        | Caveat::FewPairedRounds { .. }
        | Caveat::InvalidTrials { .. }
        | Caveat::UnequalExclusion { .. }
        | Caveat::UnknownTrials { .. }
        | Caveat::NoResourceSample { .. } => run::sentence(caveat, loads),
        Caveat::Excluded { .. }
        | Caveat::FailedInRounds { .. }
        | Caveat::NoEvidence { .. }
        | Caveat::NotWarm { .. }
        | Caveat::GrowingProxies { .. }
        | Caveat::ClusterWarnings { .. } => proxies::sentence(caveat, loads),
        Caveat::Overloaded { .. }
        | Caveat::BeyondMachine { .. }
        | Caveat::ShortTrials { .. }
        | Caveat::GeneratorBoundBaselines { .. }
        | Caveat::GeneratorBoundCandidates { .. }
        | Caveat::BusyAtSteady { .. } => load::sentence(caveat, loads),
        Caveat::BaselinesDiffer { .. }
        | Caveat::CheaperThanNoMesh { .. }
        | Caveat::HigherLevelCheaper { .. }
        | Caveat::BelowFloor { .. }
        | Caveat::PublishedFigures { .. } => cost::sentence(caveat, loads),
        Caveat::Steal { .. }
        | Caveat::OtherPrograms { .. }
        | Caveat::Throttled { .. }
        | Caveat::MemoryPressure { .. }
        | Caveat::SpeedDrift { .. }
        | Caveat::SpeedSpread { .. }
        | Caveat::SlowClock { .. } => machine::sentence(caveat),
        Caveat::CpuAboveBusy { .. } | Caveat::Unattributed { .. } => {
            machine::unaccounted(caveat, loads)
        }
    };
    text.unwrap_or_default()
}
