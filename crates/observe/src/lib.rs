//! Reads the kernel's accounts: CPU of processes in nanoseconds, their memory, the machine's idle time and current
//! speed, other processes on the same cores, kernel threads, eBPF programs, CPU limits and links.
//!
//! CPU is read from each process's CPU clock (`clock_getcpuclockid`). It is the scheduler's
//! nanosecond account `sum_exec_runtime`, the figure that `/proc/PID/task/*/schedstat` shows, summed
//! by the kernel over all threads *including those that ended*, which a walk over `task/*` would
//! lose. It is not the sampled 10 ms ticks of `utime` and `stime`. A thread that runs on another
//! core at the moment of reading is accounted up to its last scheduler tick (at most 10 ms, 4 ms at
//! 250 Hz). Without `CONFIG_IRQ_TIME_ACCOUNTING` softirq time is in the account of the thread that
//! it interrupts: see [`softirq_is_charged_to_the_interrupted`].

#![forbid(unsafe_code)]

mod bpf;
mod cgroup;
mod cpus;
mod hierarchy;
mod host;
mod limited;
mod machine;
mod network;
mod others;
mod process;
mod sock_diag;
mod text;
mod throttling;
mod time;

pub use bpf::BpfClock;
pub use cgroup::{Cgroup, container_cpus};
pub use cpus::{LogicalCpu, SYSFS_CPUS, cpus};
pub use hierarchy::{Controller, OwnCgroup};
pub use host::{allowed_cores, cpu_split, host, softirq_is_charged_to_the_interrupted};
pub use limited::Limited;
pub use machine::{MachineReading, frequency_khz, speed_probe};
pub use network::{
    LinkReading, established_connections, established_connections_here, listening_sockets,
};
pub use others::{Look, Others, Ours};
pub use process::{anonymous_bytes, context_switches, cpu_ns, memory, system_ns};
pub use throttling::{Throttling, cpu_quota};
pub use time::{monotonic_ns, sleep_until_ns, unix_ms};

/// What could not be read, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what}: {cause}")]
pub struct ObserveError {
    /// Which figure of what.
    pub what: String,
    /// The kernel's error.
    pub cause: String,
}

impl ObserveError {
    fn new(what: impl Into<String>, cause: impl ToString) -> Self {
        Self {
            what: what.into(),
            cause: cause.to_string(),
        }
    }
}
