//! One process.

use std::fs;
use std::path::PathBuf;

use meshtax_model::trial::Memory;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::process::Process;

use crate::ObserveError;
use crate::text::{ProcessStat, number_after, read_once, tick_ns};
use crate::time::nanoseconds;

/// CPU that a process has used since it started, user and system, all threads, in nanoseconds.
///
/// # Errors
/// If there is no such process.
pub fn cpu_ns(pid: u32) -> Result<u64, ObserveError> {
    clock_getcpuclockid(Pid::from_raw(pid.cast_signed()))
        .and_then(clock_gettime)
        .map(|t| nanoseconds(&t))
        .map_err(|e| ObserveError::new(format!("the CPU clock of process {pid}"), e))
}

/// A process's resident memory, and the most that was ever resident (`VmHWM`, pages of files
/// included), in bytes. From `/proc/PID/status` and `smaps_rollup`, which walks all page tables:
/// not for within a window. The kernel keeps the peak by counts per core that it does not sum up
/// each time: it can be some 128 KiB per core too low, and fall by as much.
///
/// # Errors
/// If there is no such process, or the kernel does not let us see it.
pub fn memory(pid: u32) -> Result<Memory, ObserveError> {
    let failed =
        |e: procfs::ProcError| ObserveError::new(format!("the memory of process {pid}"), e);
    let process = Process::new(pid.cast_signed()).map_err(failed)?;
    let status = process.status().map_err(failed)?;
    let rollup = process.smaps_rollup().map_err(failed)?;
    let pss_bytes = rollup
        .memory_map_rollup
        .0
        .first()
        .and_then(|map| map.extension.map.get("Pss").copied())
        .unwrap_or(0);
    Ok(Memory {
        anonymous_bytes: status.rssanon.unwrap_or(0) * 1024,
        file_bytes: status.rssfile.unwrap_or(0) * 1024,
        pss_bytes,
        peak_bytes: status.vmhwm.unwrap_or(0) * 1024,
    })
}

/// Resident anonymous pages of a process, in bytes: what [`memory`] calls so, for sampling.
///
/// From `/proc/PID/statm`, resident less shared: less than 10 µs, where `smaps_rollup` walks all
/// page tables. Pages of files and of shared memory are not in it. Kernels that keep this count per
/// core and do not sum it up for a reader show it some 32 pages (128 KiB) off for each core.
///
/// # Errors
/// If there is no such process.
pub fn anonymous_bytes(pid: u32) -> Result<u64, ObserveError> {
    let what = || format!("the memory of process {pid}");
    let text = read_once(&of(pid, "statm")).map_err(|e| ObserveError::new(what(), e))?;
    anonymous_pages(&text)
        .map(|pages| pages.saturating_mul(procfs::page_size()))
        .ok_or_else(|| ObserveError::new(what(), "an unknown form of statm"))
}

/// Of `/proc/PID/statm`: the second number less the third.
fn anonymous_pages(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_ascii_whitespace().skip(1);
    let resident: u64 = numbers.next()?.parse().ok()?;
    let shared: u64 = numbers.next()?.parse().ok()?;
    Some(resident.saturating_sub(shared))
}

/// The kernel's part of the CPU that a process has used since it started, all threads, those that
/// ended included, in nanoseconds.
///
/// From `/proc/PID/stat`, in ticks of [`crate::MachineReading`]'s resolution (10 ms). Where the
/// split is [`CpuSplit::Sampled`](meshtax_model::environment::CpuSplit) the kernel divides its exact
/// account of the process in the ratio of its samples at the clock ticks, over the process's whole
/// life: over a short window it is a rough figure, and at most as good as the number of ticks in it.
///
/// # Errors
/// If there is no such process.
pub fn system_ns(pid: u32) -> Result<u64, ObserveError> {
    let what = || format!("the system time of process {pid}");
    let text = read_once(&of(pid, "stat")).map_err(|e| ObserveError::new(what(), e))?;
    ProcessStat::parse(&text)
        .map(|stat| stat.system_ticks.saturating_mul(tick_ns()))
        .ok_or_else(|| ObserveError::new(what(), "an unknown form of stat"))
}

/// Context switches of a process's threads, voluntary or not.
///
/// The sum over `/proc/PID/task/*/status`, some 20 µs per thread: read it after what must be read at an
/// instant. The counts of threads that ended
/// are lost: the sum can fall.
///
/// # Errors
/// If there is no such process.
pub fn context_switches(pid: u32) -> Result<u64, ObserveError> {
    let failed =
        |e: std::io::Error| ObserveError::new(format!("the context switches of process {pid}"), e);
    let mut sum = 0_u64;
    for thread in fs::read_dir(of(pid, "task")).map_err(failed)? {
        // One that ended meanwhile is no error.
        let path = thread.map_err(failed)?.path().join("status");
        let switches = read_once(&path).map_or(0, |text| switches(&text));
        sum = sum.saturating_add(switches);
    }
    Ok(sum)
}

/// Of `/proc/PID/task/TID/status`.
fn switches(status: &str) -> u64 {
    ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"]
        .iter()
        .filter_map(|key| number_after(status, key))
        .fold(0, u64::saturating_add)
}

fn of(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

#[cfg(test)]
mod tests {
    use nix::time::ClockId;

    use super::*;

    /// CPU that this thread has used, however often others had its core.
    fn own_cpu_ns() -> u64 {
        nanoseconds(&clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap())
    }

    #[test]
    fn cpu_of_this_process_grows_with_work_and_counts_threads_that_ended() {
        const WORK_NS: u64 = 30_000_000;
        let pid = std::process::id();
        let before = cpu_ns(pid).unwrap();
        let spun = std::thread::spawn(|| {
            let mut x = 1_u64;
            while own_cpu_ns() < WORK_NS {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            x
        });
        assert_ne!(spun.join().unwrap(), 0);
        // The thread has ended: a walk over task/* would find nothing of it any more.
        let used = cpu_ns(pid).unwrap() - before;
        assert!(used >= WORK_NS, "{used} ns");
    }

    #[test]
    fn memory_of_this_process_is_plausible() {
        let before = memory(std::process::id()).unwrap();
        let held = vec![7_u8; 32 << 20];
        let after = memory(std::process::id()).unwrap();
        assert_eq!(held[31 << 20], 7);
        let grown = after.anonymous_bytes.saturating_sub(before.anonymous_bytes);
        assert!(grown > 30 << 20, "{grown}");
        assert!(after.file_bytes > 0 && after.pss_bytes > 0);
        assert!(after.peak_bytes >= before.peak_bytes && after.peak_bytes > 32 << 20);
        drop(held);
        let peak = memory(std::process::id()).unwrap().peak_bytes;
        assert!(peak + (4 << 20) >= after.peak_bytes, "it stays: {peak}");
    }

    #[test]
    fn cheap_and_exact_anonymous_memory_agree() {
        let _held = vec![7_u8; 24 << 20];
        let exact = memory(std::process::id()).unwrap().anonymous_bytes;
        let cheap = anonymous_bytes(std::process::id()).unwrap();
        // Other tests of this process come and go, and the count may be kept per core.
        assert!(cheap > 20 << 20, "{cheap}");
        assert!(exact.abs_diff(cheap) < 64 << 20, "{exact} {cheap}");
        assert_eq!(anonymous_pages("765 432 404 5 0 123 0"), Some(28));
        assert_eq!(anonymous_pages("765 4 5 5 0 123 0"), Some(0));
        assert_eq!(anonymous_pages("765 432"), None);
        assert_eq!(anonymous_pages("a b c"), None);
    }

    #[test]
    fn system_time_counts_kernel_work() {
        let pid = std::process::id();
        let before = system_ns(pid).unwrap();
        let until_ns = own_cpu_ns() + 200_000_000;
        // Nearly all of this is the kernel's.
        while own_cpu_ns() < until_ns {
            let _ = fs::read("/proc/self/smaps");
        }
        let (system, all) = (system_ns(pid).unwrap(), cpu_ns(pid).unwrap());
        assert!(system - before >= 20_000_000, "{before} {system}");
        assert!(system <= all, "{system} {all}");
    }

    #[test]
    fn sleeping_thread_switches_voluntarily() {
        let pid = std::process::id();
        let before = context_switches(pid).unwrap();
        let own = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            switches(&status)
        };
        let own_before = own();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(own() >= own_before + 20, "{own_before}");
        // Other tests' threads that ended took theirs with them.
        assert!(before > 0 && context_switches(pid).unwrap() >= 20);
    }

    #[test]
    fn switches_of_both_kinds_are_summed() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status), 15);
        assert_eq!(switches("Name:\tx\n"), 0);
    }

    #[test]
    fn missing_process_is_an_error() {
        // Above every kernel's largest pid_max.
        assert!(cpu_ns(4_194_305).is_err());
        assert!(memory(4_194_305).is_err());
        assert!(anonymous_bytes(4_194_305).is_err());
        assert!(system_ns(4_194_305).is_err());
        assert!(context_switches(4_194_305).is_err());
    }
}
