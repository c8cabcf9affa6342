//! Where CPU time went.

use serde::{Deserialize, Serialize};

use crate::trial::{ComponentRole, Throttled};

/// CPU per request of one component, mean over the valid trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentCpu {
    /// What it is to the traffic.
    pub role: ComponentRole,
    /// In nanoseconds per completed request.
    pub cpu_per_request_ns: f64,
    /// The kernel's part of it, in nanoseconds per completed request: *sampled* on many kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_per_request_ns: Option<f64>,
    /// Times per completed request that its threads left a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches_per_request: Option<f64>,
    /// As a share of the machine's busy time.
    pub share_of_busy: Option<f64>,
    /// How the CPU limits of its proxies throttled them, summed over the valid trials; `None`: they have no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Throttled>,
}

/// The whole machine's time at one variant and load point, summed over the valid trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuAccount {
    /// Busy time of the machine in nanoseconds.
    pub busy_ns: i64,
    /// Of it, what components used.
    pub attributed_ns: u64,
    /// The rest: interrupts, softirq outside any component, other processes.
    /// `None`: smaller than what the kernel's clock tick can resolve.
    pub unattributed_ns: Option<u64>,
    /// Steps of the kernel's tick, summed: what `busy_ns` can be wrong by (two standard deviations).
    pub resolution_ns: u64,
    /// Steal time of the hypervisor, in nanoseconds.
    pub steal_ns: u64,
    /// Interrupts, hard and soft, of the whole machine: *sampled* by the clock tick on many kernels, and
    /// also included in the account of the interrupted process.
    #[serde(default)]
    pub interrupts_ns: u64,
    /// CPU of kernel threads; `None` where they are not visible. Part of `unattributed_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_threads_ns: Option<u64>,
    /// Time in eBPF programs; `None` where the kernel does not report it. Also in the account of the process that
    /// ran them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpf_ns: Option<u64>,
    /// Traffic on the pods' links, per completed request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkPerRequest>,
    /// Completed requests.
    pub requests: u64,
    /// By component, generator and meshtax itself included.
    pub components: Vec<ComponentCpu>,
}

/// Bytes per completed request on the links of one side's pods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkPerRequest {
    /// The side.
    pub role: ComponentRole,
    /// Received bytes.
    pub received_bytes: f64,
    /// Sent bytes.
    pub sent_bytes: f64,
}
