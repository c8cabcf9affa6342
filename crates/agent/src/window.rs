//! Reads CPU, memory, context switches and bytes at the edges of a window and at steps within it.
//!
//! Reading takes time on the measured cores. A CPU clock takes a microsecond and is read at the edges and
//! at every step. Memory at a step takes some microseconds, and is read of the measured variant only.
//! Context switches, system time and links take tens to hundreds of microseconds: they are read just before
//! the window begins and just after it ends. What walks kernel tables (connections, pages) is read after the load.

use meshtax_load::Window;
use meshtax_model::trial::ComponentRole;
use meshtax_observe::{MachineReading, ObserveError, monotonic_ns, sleep_until_ns};

use crate::watched::{Process, Slow, Watched};

/// How long before the window the slow readings are taken.
const BEFORE_NS: u64 = 3_000_000;

/// Steps of a window, and their shortest and longest length.
const STEPS: u64 = 8;
const STEP_NS: (u64, u64) = (25_000_000, 100_000_000);

/// A long window has at most this many steps, unless they would be longer than [`LONGEST_STEP_NS`].
const STEPS_MAX: u64 = 300;

/// What a study shows over time is sampled every second.
const LONGEST_STEP_NS: u64 = 1_000_000_000;

/// All readings of a window.
pub(crate) struct Readings {
    pub(crate) processes: Vec<Process>,
    /// At the beginning of the window, and at the end of each step.
    pub(crate) cpu: Vec<Vec<Option<u64>>>,
    /// At the end of each step.
    pub(crate) held: Vec<Vec<(ComponentRole, u64)>>,
    /// The ends of the steps, counted from the beginning of the window.
    pub(crate) ends_ns: Vec<u64>,
    pub(crate) machine: [MachineReading; 2],
    pub(crate) slow: [Slow; 2],
}

/// Waits for a step of a window that never ends early.
pub(crate) fn full_window(until_ns: u64) -> bool {
    sleep_until_ns(until_ns);
    false
}

/// Takes all readings of a window while it passes. `ends_before` waits until an instant and returns `false`, or
/// returns `true` as soon as the load is over: the window ends there.
pub(crate) fn observe(
    watched: &Watched,
    window: &Window,
    generators: &[u32],
    ends_before: &mut dyn FnMut(u64) -> bool,
) -> Result<Readings, ObserveError> {
    let (begin_ns, end_ns) = (window.start_monotonic_ns, window.end_monotonic_ns);
    sleep_until_ns(begin_ns.saturating_sub(BEFORE_NS));
    let slow_before = watched.slow(generators);
    sleep_until_ns(begin_ns);
    let machine_before = MachineReading::of(&watched.cores)?;
    let mut cpu = vec![watched.cpu()];
    let mut held = Vec::new();
    let mut ends_ns = step_ends(end_ns.saturating_sub(begin_ns));
    let steps = ends_ns.len();
    for step in 0..steps {
        if ends_before(begin_ns + ends_ns[step]) {
            ends_ns.truncate(step);
            ends_ns.push(monotonic_ns().saturating_sub(begin_ns));
            break;
        }
        if step + 1 < steps {
            cpu.push(watched.cpu());
            held.push(watched.held());
        }
    }
    let machine_after = MachineReading::of(&watched.cores)?;
    cpu.push(watched.cpu());
    held.push(watched.held());
    Ok(Readings {
        processes: watched.processes.clone(),
        cpu,
        held,
        ends_ns,
        machine: [machine_before, machine_after],
        slow: [slow_before, watched.slow(generators)],
    })
}

/// The ends of equal steps, the last at the window's end; at least one.
fn step_ends(window_ns: u64) -> Vec<u64> {
    let wanted_ns = (window_ns / STEPS).clamp(STEP_NS.0, STEP_NS.1);
    let wanted_ns = wanted_ns.max((window_ns / STEPS_MAX).min(LONGEST_STEP_NS));
    let count = (window_ns / wanted_ns).max(1);
    (1..=count).map(|step| window_ns * step / count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_the_window() {
        const MS: u64 = 1_000_000;
        assert_eq!(step_ends(10 * MS), [10 * MS]);
        assert_eq!(step_ends(200 * MS).len(), 8);
        assert_eq!(step_ends(500 * MS).last(), Some(&(500 * MS)));
        let long = step_ends(30_000 * MS);
        assert_eq!((long.len(), long[0]), (300, 100 * MS));
        let faithful = step_ends(1_800_000 * MS);
        assert_eq!((faithful.len(), faithful[0]), (1800, 1000 * MS));
    }
}
