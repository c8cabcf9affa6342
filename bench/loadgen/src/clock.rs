//! Time, and where a thread runs.

use rustix::thread::ClockId;
use rustix::time::{Timespec, clock_gettime};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * SECOND_NS + now.tv_nsec as u64
}

pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / SECOND_NS) as i64,
        tv_nsec: (ns % SECOND_NS) as i64,
    }
}

/// Pins this thread, and what it starts, to one core.
pub(crate) fn pin(core: Option<usize>) -> Result<(), String> {
    let Some(core) = core else { return Ok(()) };
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores)
        .map_err(|e| format!("cannot pin to core {core}: {e}"))
}
