//! The properties of this machine.

use std::fs;

use meshtax_model::environment::{CpuSplit, Host};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use procfs::Current as _;

/// What the machine hides.
const UNKNOWN: &str = "unknown";

/// The cores that this process may use, ascending.
#[must_use]
pub fn allowed_cores() -> Vec<u32> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    let cores: Vec<u32> = (0..CpuSet::count())
        .filter(|core| set.is_set(*core).unwrap_or(false))
        .map(|core| core as u32)
        .collect();
    if cores.is_empty() { vec![0] } else { cores }
}

/// The machine, as far as it shows itself; what it hides is `unknown`.
#[must_use]
pub fn host() -> Host {
    let cpu = procfs::CpuInfo::current().ok();
    let model = cpu
        .as_ref()
        .and_then(|c| c.model_name(0))
        .unwrap_or(UNKNOWN);
    let flags = cpu.as_ref().and_then(|c| c.flags(0)).unwrap_or_default();
    Host {
        kernel: first_line("/proc/sys/kernel/osrelease"),
        cpu_model: model.to_owned(),
        cores: allowed_cores().len() as u32,
        memory_bytes: procfs::Meminfo::current().map_or(0, |m| m.mem_total),
        clock_source: first_line(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        virtual_machine: flags.contains(&"hypervisor"),
        cpu_split: cpu_split(),
        boot_id: Some(first_line("/proc/sys/kernel/random/boot_id")).filter(|id| id != UNKNOWN),
    }
}

/// How this kernel divides user from system time on the cores that this process may use; `Unknown` if
/// it does not show its configuration.
///
/// `Exact` only if it is sure: `CONFIG_VIRT_CPU_ACCOUNTING_NATIVE`, or `CONFIG_VIRT_CPU_ACCOUNTING_GEN`
/// with the tracking of entries and exits in use, which is either forced in the configuration or on
/// for every one of these cores (`nohz_full=`). A kernel merely built with the latter samples.
#[must_use]
pub fn cpu_split() -> CpuSplit {
    let Ok(config) = procfs::kernel_config() else {
        return CpuSplit::Unknown;
    };
    let is_set = |name: &str| matches!(config.get(name), Some(procfs::ConfigSetting::Yes));
    let tracked = fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    split(is_set, &cpu_list(&tracked), &allowed_cores())
}

fn split(is_set: impl Fn(&str) -> bool, tracked: &[u32], cores: &[u32]) -> CpuSplit {
    // The second is the name of the first before Linux 6.0.
    let forced =
        is_set("CONFIG_CONTEXT_TRACKING_USER_FORCE") || is_set("CONFIG_CONTEXT_TRACKING_FORCE");
    let in_use = forced || cores.iter().all(|core| tracked.contains(core));
    let exact = is_set("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE")
        || (is_set("CONFIG_VIRT_CPU_ACCOUNTING_GEN") && in_use);
    if exact {
        CpuSplit::Exact
    } else {
        CpuSplit::Sampled
    }
}

/// `1-3,6`; what is of another form, as `(null)`, is no core.
pub(crate) fn cpu_list(text: &str) -> Vec<u32> {
    let mut cores = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            // More than any kernel's: a broken line must not cost memory.
            cores.extend((first..=last).take(1 << 16));
        }
    }
    cores
}

/// Whether softirq time is in the account of the process that it interrupts; `None` if the
/// kernel does not show its configuration.
#[must_use]
pub fn softirq_is_charged_to_the_interrupted() -> Option<bool> {
    let config = procfs::kernel_config().ok()?;
    let separate = matches!(
        config.get("CONFIG_IRQ_TIME_ACCOUNTING"),
        Some(procfs::ConfigSetting::Yes)
    );
    Some(!separate)
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path)
        .ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_else(|| UNKNOWN.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_split_is_exact_only_if_tracking_is_in_use() {
        const GEN: &str = "CONFIG_VIRT_CPU_ACCOUNTING_GEN";
        let of = |set: &[&str], tracked: &[u32]| split(|n| set.contains(&n), tracked, &[2, 3]);
        assert_eq!(of(&[], &[]), CpuSplit::Sampled);
        assert_eq!(of(&[GEN], &[]), CpuSplit::Sampled);
        assert_eq!(of(&[GEN], &[1, 2]), CpuSplit::Sampled);
        assert_eq!(of(&[GEN], &[1, 2, 3]), CpuSplit::Exact);
        assert_eq!(of(&[], &[1, 2, 3]), CpuSplit::Sampled);
        for forced in [
            "CONFIG_CONTEXT_TRACKING_USER_FORCE",
            "CONFIG_CONTEXT_TRACKING_FORCE",
        ] {
            assert_eq!(of(&[GEN, forced], &[]), CpuSplit::Exact);
            assert_eq!(of(&[forced], &[]), CpuSplit::Sampled);
        }
        assert_eq!(
            of(&["CONFIG_VIRT_CPU_ACCOUNTING_NATIVE"], &[]),
            CpuSplit::Exact
        );
    }

    #[test]
    fn core_lists_are_parsed() {
        assert_eq!(cpu_list("1-3,6\n"), [1, 2, 3, 6]);
        assert_eq!(cpu_list("5"), [5]);
        for none in ["", "\n", " (null)\n", "3-1", "-", "a-b"] {
            assert_eq!(cpu_list(none), Vec::<u32>::new(), "{none}");
        }
        assert!(cpu_list("0-4294967295").len() <= 1 << 16);
    }

    #[test]
    fn this_host_is_read() {
        let host = host();
        assert!(host.cores >= 1 && host.memory_bytes > 0);
        assert_eq!(host.cpu_split, cpu_split());
        let shows_config = procfs::kernel_config().is_ok();
        assert_eq!(host.cpu_split == CpuSplit::Unknown, !shows_config);
    }
}
