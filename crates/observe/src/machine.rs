//! The whole machine.

use meshtax_model::trial::MachineUsage;
use procfs::{CurrentSI as _, KernelStats};

use crate::ObserveError;
use crate::time::monotonic_ns;

/// One reading of `/proc/stat`.
#[derive(Clone, Copy, Debug)]
pub struct MachineReading {
    at_ns: u64,
    cores: u32,
    idle: u64,
    iowait: u64,
    steal: u64,
    tick_ns: u64,
}

impl MachineReading {
    /// Reads the machine's idle time now.
    ///
    /// It is the line of all cores together: the kernel sums nanoseconds there and rounds down
    /// to a tick once, where the lines per core are rounded one by one.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read.
    pub fn now() -> Result<Self, ObserveError> {
        let stat = KernelStats::current().map_err(|e| ObserveError::new("/proc/stat", e))?;
        Ok(Self {
            at_ns: monotonic_ns(),
            cores: stat.cpu_time.len() as u32,
            idle: stat.total.idle,
            iowait: stat.total.iowait.unwrap_or(0),
            steal: stat.total.steal.unwrap_or(0),
            tick_ns: 1_000_000_000 / procfs::ticks_per_second().max(1),
        })
    }

    /// What passed between an earlier reading and this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> MachineUsage {
        let passed = |now: u64, then: u64| now.saturating_sub(then) * self.tick_ns;
        MachineUsage {
            wall_ns: self.at_ns.saturating_sub(earlier.at_ns),
            cores: self.cores,
            idle_ns: passed(self.idle, earlier.idle),
            iowait_ns: passed(self.iowait, earlier.iowait),
            steal_ns: passed(self.steal, earlier.steal),
            resolution_ns: self.tick_ns,
        }
    }
}

/// A fixed amount of work (about 2 ms), timed: how fast the core is that runs it now.
/// In nanoseconds.
#[must_use]
pub fn speed_probe() -> u64 {
    let start = monotonic_ns();
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..1_000_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    std::hint::black_box(x);
    monotonic_ns() - start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_the_machine_adds_up() {
        let before = MachineReading::now().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(120));
        let usage = MachineReading::now().unwrap().since(&before);
        assert!(usage.wall_ns >= 120_000_000);
        assert!(usage.cores >= 1);
        let all = usage.wall_ns * u64::from(usage.cores);
        let step = usage.resolution_ns as i64;
        assert!(usage.busy_ns() <= all as i64 + step);
        assert!(usage.busy_ns() >= -3 * step, "{usage:?}");
    }

    #[test]
    fn the_speed_probe_takes_time() {
        assert!(speed_probe() > 100_000);
    }
}
