//! A sentence for each caveat: what was seen, what it means for the figures, and what to do about it.

mod comparison;
mod cost;
mod load;
mod machine;
mod proxies;
mod run;

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

fn percent(share: f64) -> String {
    format!("{:.0} %", share.abs() * 100.0)
}

fn signed(change: f64) -> String {
    format!("{:+.1} %", change * 100.0)
}

fn all<T>(things: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<String> = things.iter().map(text).collect();
    texts.join(", ")
}

/// `1 trial`, `12 trials`.
fn trials(count: u32) -> String {
    let named = crate::format::plural(count as usize, "trial", "trials");
    format!("{count} {named}")
}
