//! What the machine did to the run.

use meshtax_model::analysis::{Caveat, ProgramShare};

use super::words::{all, percent};
use crate::view::source::Loads;

pub(super) fn sentence(caveat: &Caveat) -> Option<String> {
    Some(match caveat {
        Caveat::Steal { share } => format!(
            "The hypervisor took {:.1} % of the time of the run's cores (steal): expect wide intervals, and latencies \
             that are not the mesh's.",
            share * 100.0
        ),
        Caveat::OtherPrograms { programs } => {
            let programs = all(programs, |used: &ProgramShare| {
                format!("{} {}", used.program, percent(used.share))
            });
            format!(
                "Other programs used the run's cores ({programs} of one core): stop them, or expect wide intervals."
            )
        }
        Caveat::Throttled { share } => format!(
            "A CPU limit throttled processes for {:.1} % of the time: raise the limit of this container or service.",
            share * 100.0
        ),
        Caveat::MemoryPressure { share } => format!(
            "Memory was short: processes waited for it for {} of the time. Free some, or measure fewer variants.",
            percent(*share)
        ),
        Caveat::SpeedDrift { drift } => {
            let how = if *drift > 0.0 { "slower" } else { "faster" };
            format!(
                "The machine became {} {how} over the run: differences hold, as pairs are close in time, but levels \
                 describe no particular moment.",
                percent(*drift)
            )
        }
        Caveat::SpeedSpread { spread } => format!(
            "The machine's speed varied by {} from moment to moment: expect wide intervals.",
            percent(*spread)
        ),
        Caveat::SlowClock { clock } => format!(
            "The kernel's clock source is {clock}, which is slow to read, and each request is timed several times."
        ),
        _ => return None,
    })
}

/// CPU time that the components and the machine do not agree on.
pub(super) fn unaccounted(caveat: &Caveat, loads: Loads<'_>) -> Option<String> {
    Some(match caveat {
        Caveat::CpuAboveBusy {
            variant,
            load_point,
            by_steal: true,
        } => format!(
            "{variant} {}: the kernel charges time that the hypervisor took to the components, so their CPU figures are \
             upper bounds.",
            loads.at(load_point)
        ),
        Caveat::CpuAboveBusy {
            variant,
            load_point,
            by_steal: false,
        } => format!(
            "{variant} {}: the components' CPU time exceeds the machine's busy time by more than the kernel's resolution \
             explains, so its CPU figures may be too high.",
            loads.at(load_point)
        ),
        Caveat::Unattributed {
            variant,
            load_point,
            share,
        } => format!(
            "{variant} {}: {} of the machine's busy time belongs to no component (interrupts, kernel work outside any \
             process, other programs). CPU per request does not include it.",
            loads.at(load_point),
            percent(*share)
        ),
        _ => return None,
    })
}
