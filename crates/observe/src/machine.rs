//! The whole machine.

use std::fs;

use meshtax_model::trial::MachineUsage;
use procfs::{CpuTime, Current as _, CurrentSI as _, KernelStats, MemoryPressure};

use crate::ObserveError;
use crate::host::cpu_list;
use crate::text::tick_ns;
use crate::time::monotonic_ns;

/// One reading of `/proc/stat` and `/proc/pressure/memory`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineReading {
    at_ns: u64,
    cores: u32,
    /// How many lines of `/proc/stat` were added up.
    lines: u32,
    idle: u64,
    iowait: u64,
    steal: u64,
    interrupts: u64,
    tick_ns: u64,
    /// In microseconds.
    memory_pressure: Option<u64>,
}

impl MachineReading {
    /// Reads idle time, steal and interrupts of these cores now, and for how long anything on the machine waited
    /// for memory.
    ///
    /// If these are all cores, it is the line of all together: the kernel sums nanoseconds there and rounds
    /// down to a tick once, where the lines per core are rounded one by one. Idle time is exact
    /// before that; interrupts (hard and soft) are sampled by the clock tick on kernels without
    /// `CONFIG_IRQ_TIME_ACCOUNTING`. The pressure is in microseconds and wall time, not summed
    /// over what waited.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read, or lacks one of the cores.
    pub fn of(cores: &[u32]) -> Result<Self, ObserveError> {
        let stat = KernelStats::current().map_err(|e| ObserveError::new("/proc/stat", e))?;
        let at_ns = monotonic_ns();
        let mut reading = Self::sum(&stat, cores)?;
        reading.at_ns = at_ns;
        // Last, since it belongs to no account that must fit the time.
        reading.memory_pressure = MemoryPressure::current().ok().map(|p| p.some.total);
        Ok(reading)
    }

    fn sum(stat: &KernelStats, cores: &[u32]) -> Result<Self, ObserveError> {
        let online = online(stat.cpu_time.len());
        let lines: Vec<&CpuTime> = if cores.len() >= online.len() {
            vec![&stat.total]
        } else {
            let line = |core: &u32| {
                let at = online.iter().position(|other| other == core);
                at.and_then(|at| stat.cpu_time.get(at))
                    .ok_or_else(|| ObserveError::new("/proc/stat", format!("no core {core}")))
            };
            cores.iter().map(line).collect::<Result<_, _>>()?
        };
        let mut reading = Self {
            cores: cores.len().min(online.len()) as u32,
            lines: lines.len() as u32,
            tick_ns: tick_ns(),
            ..Self::default()
        };
        for line in lines {
            reading.idle += line.idle;
            reading.iowait += line.iowait.unwrap_or(0);
            reading.steal += line.steal.unwrap_or(0);
            reading.interrupts += interrupts(line);
        }
        Ok(reading)
    }

    /// What passed between an earlier reading and this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> MachineUsage {
        let passed = |now: u64, then: u64| now.saturating_sub(then) * self.tick_ns;
        let pressure = self.memory_pressure.zip(earlier.memory_pressure);
        MachineUsage {
            wall_ns: self.at_ns.saturating_sub(earlier.at_ns),
            cores: self.cores,
            idle_ns: passed(self.idle, earlier.idle),
            iowait_ns: passed(self.iowait, earlier.iowait),
            steal_ns: passed(self.steal, earlier.steal),
            resolution_ns: self.tick_ns,
            lines: self.lines,
            interrupts_ns: passed(self.interrupts, earlier.interrupts),
            memory_pressure_ns: pressure.map(|(now, then)| now.saturating_sub(then) * 1000),
            ..MachineUsage::default()
        }
    }
}

/// The numbers of the cores that `/proc/stat` has lines for: those online, in order.
fn online(count: usize) -> Vec<u32> {
    let shown = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = cpu_list(&shown);
    match online.len() == count {
        true => online,
        false => (0..count as u32).collect(),
    }
}

/// In ticks, of both kinds.
fn interrupts(time: &CpuTime) -> u64 {
    time.irq.unwrap_or(0) + time.softirq.unwrap_or(0)
}

/// The frequency of a core now, in kHz, from `cpufreq`; `None` where the kernel does not show it, as
/// in most virtual machines.
///
/// Depending on the driver it is the mean over the last milliseconds or the frequency last requested.
#[must_use]
pub fn frequency_khz(core: u32) -> Option<u64> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
    frequency(&fs::read_to_string(path).ok()?)
}

/// Some drivers report 0 or `<unknown>`.
fn frequency(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|khz| *khz > 0)
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
    use crate::allowed_cores;

    #[test]
    fn one_core_of_several_is_read_by_its_own_line() {
        let cores = allowed_cores();
        let one = MachineReading::of(&cores[..1]).unwrap();
        assert_eq!((one.cores, one.lines), (1, 1));
        let all = MachineReading::of(&cores).unwrap();
        assert!(one.idle <= all.idle);
        let online = online(KernelStats::current().unwrap().cpu_time.len());
        if online.len() > 1 {
            assert!(MachineReading::of(&[u32::MAX]).is_err());
        }
    }

    #[test]
    fn busy_time_fits_the_window() {
        let used = || {
            let before = MachineReading::of(&allowed_cores()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(120));
            MachineReading::of(&allowed_cores()).unwrap().since(&before)
        };
        let fits = |usage: &MachineUsage| {
            assert!(usage.wall_ns >= 120_000_000);
            assert!(usage.cores >= 1);
            let all = usage.wall_ns * u64::from(usage.cores);
            let step = usage.resolution_ns as i64;
            (-3 * step..=all as i64 + step).contains(&usage.busy_ns())
        };
        // A stall between the clock and the counters of one reading moves time into the window, or out of it.
        let mut usages = (0..5).map(|_| used());
        assert!(usages.any(|usage| fits(&usage)));
    }

    #[test]
    fn pressure_missing_before_is_not_reported() {
        let mut before = MachineReading::of(&allowed_cores()).unwrap();
        let mut after = before;
        (before.interrupts, after.interrupts) = (7, 10);
        (before.memory_pressure, after.memory_pressure) = (Some(40), Some(90));
        let usage = after.since(&before);
        assert_eq!(usage.interrupts_ns, 3 * usage.resolution_ns);
        assert_eq!(usage.memory_pressure_ns, Some(50_000));
        before.memory_pressure = None;
        assert_eq!(after.since(&before).memory_pressure_ns, None);
        // The reading of before is the later one: no time passed, and nothing wraps.
        assert_eq!(before.since(&after).interrupts_ns, 0);
    }

    #[test]
    fn memory_pressure_is_read_where_the_kernel_provides_it() {
        let shown = fs::read_to_string("/proc/pressure/memory").is_ok();
        let read = MachineReading::of(&allowed_cores())
            .unwrap()
            .memory_pressure;
        assert_eq!(read.is_some(), shown);
    }

    #[test]
    fn unknown_frequency_is_none() {
        assert_eq!(frequency("2400000\n"), Some(2_400_000));
        for odd in ["", "0\n", "<unknown>\n", "-1"] {
            assert_eq!(frequency(odd), None, "{odd}");
        }
        assert_eq!(frequency_khz(u32::MAX), None);
    }

    #[test]
    fn speed_probe_takes_time() {
        assert!(speed_probe() > 100_000);
    }
}
