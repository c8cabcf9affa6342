//! The clocks, as integer nanoseconds.

use rustix::thread::ClockId;
use rustix::time::{Timespec, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of every instant in this crate.
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Which `CLOCK_MONOTONIC` this is: processes with the same name share it. It begins with the
/// machine, and a time namespace may set it back.
pub(crate) fn clock_name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    // Without a boot id, no worker is assumed to share the clock.
    if boot.is_empty() {
        return format!("process {}", std::process::id());
    }
    format!("{} {}", boot.trim(), namespace.display())
}

/// CPU that the calling thread has used.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// A duration for a system call's timeout.
pub(crate) fn timespec(duration_ns: u64) -> Timespec {
    Timespec {
        tv_sec: (duration_ns / 1_000_000_000) as i64,
        tv_nsec: (duration_ns % 1_000_000_000) as _,
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    // These clocks start at zero at boot or at the thread's start: never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
