//! Time spent in eBPF programs.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};

/// The kernel's clock of all eBPF programs on the machine, regardless of who loaded them.
///
/// The kernel counts while someone holds a descriptor that requests it (Linux 5.8; this clock does), or
/// while `kernel.bpf_stats_enabled` is set. It takes the time around every run of every program,
/// which makes each run dearer by some tens of nanoseconds: hold one for all of a comparison or for
/// none of it. Both counting and reading need `CAP_SYS_ADMIN` in the machine's first user namespace:
/// a rootless lab has it nowhere.
#[derive(Debug)]
pub struct BpfClock {
    /// While it is open the kernel counts; `None` where it counts anyway.
    _counting: Option<OwnedFd>,
    /// The time of each program at the last reading, by its id, which the kernel does not reuse
    /// before all others were used.
    last: BTreeMap<u32, u64>,
    total_ns: u64,
}

impl BpfClock {
    /// Has the kernel count from now on; `None` if it does not support it or does not permit it.
    #[must_use]
    pub fn start() -> Option<Self> {
        let counting = enable_stats(Stats::RunTime).ok();
        if counting.is_none() && !counts_anyway() {
            return None;
        }
        Some(Self {
            _counting: counting,
            last: run_times()?,
            total_ns: 0,
        })
    }

    /// Time spent in eBPF programs since [`BpfClock::start`], in nanoseconds; `None` if the kernel
    /// does not report it. It never falls: an unloaded program keeps its time as of the last
    /// reading, and one loaded since counts whole.
    pub fn run_time_ns(&mut self) -> Option<u64> {
        let now = run_times()?;
        self.total_ns = self.total_ns.saturating_add(passed(&self.last, &now));
        self.last = now;
        Some(self.total_ns)
    }
}

fn counts_anyway() -> bool {
    fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").is_ok_and(|text| text.trim() == "1")
}

/// By program, in nanoseconds; `None` if we may not look.
fn run_times() -> Option<BTreeMap<u32, u64>> {
    let mut times = BTreeMap::new();
    let mut unreadable = false;
    for program in loaded_programs() {
        match program {
            Ok(program) => {
                let ns = u64::try_from(program.run_time().as_nanos()).unwrap_or(u64::MAX);
                times.insert(program.id(), ns);
            }
            // Unloaded while we looked, or nothing at all can be read.
            Err(_) => unreadable = true,
        }
    }
    (!times.is_empty() || !unreadable).then_some(times)
}

fn passed(before: &BTreeMap<u32, u64>, now: &BTreeMap<u32, u64>) -> u64 {
    let each = now.iter().map(|(id, now)| {
        let then = before.get(id).copied().unwrap_or(0);
        now.saturating_sub(then)
    });
    each.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_starts_or_is_unavailable() {
        let Some(mut clock) = BpfClock::start() else {
            let can = enable_stats(Stats::RunTime).is_ok() && run_times().is_some();
            assert!(!can);
            return;
        };
        let first = clock.run_time_ns().unwrap();
        let second = clock.run_time_ns().unwrap();
        assert!(second >= first);
        assert_eq!(clock.last.len(), run_times().unwrap().len());
    }

    #[test]
    fn loading_and_unloading_programs_never_decreases_the_clock() {
        let of = |times: &[(u32, u64)]| times.iter().copied().collect::<BTreeMap<_, _>>();
        let before = of(&[(1, 100), (2, 50)]);
        assert_eq!(passed(&before, &of(&[(1, 130), (2, 50), (3, 7)])), 37);
        assert_eq!(passed(&before, &of(&[(2, 60)])), 10);
        assert_eq!(passed(&before, &of(&[(1, 10)])), 0);
        assert_eq!(passed(&before, &of(&[])), 0);
    }
}
