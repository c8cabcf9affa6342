//! The clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// CLOCK_MONOTONIC in nanoseconds: the same in every namespace that meshtax makes.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| nanoseconds(&t))
}

/// Sleeps until CLOCK_MONOTONIC reaches this; returns at once if it has passed.
pub fn sleep_until_ns(instant_ns: u64) {
    let until = TimeSpec::from_duration(Duration::from_nanos(instant_ns));
    // Interrupted by a signal: go on until the instant, which is absolute.
    while clock_nanosleep(
        ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &until,
    ) == Err(nix::errno::Errno::EINTR)
    {}
}

/// Milliseconds since 1970.
#[must_use]
pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

pub(crate) fn nanoseconds(time: &TimeSpec) -> u64 {
    time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs()
}
