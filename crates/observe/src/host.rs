//! What machine this is.

use std::fs;

use meshtax_model::environment::Host;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use procfs::Current as _;

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
        .unwrap_or("unknown");
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
    }
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
        .unwrap_or_else(|| "unknown".into())
}
