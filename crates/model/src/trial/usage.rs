//! Resource usage of a trial.

use serde::{Deserialize, Serialize};

use crate::experiment::VariantId;
use crate::plan::TrialId;
use crate::pods::ProxyRole;

/// The role of a component in the traffic under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentRole {
    /// The load generator.
    Generator,
    /// The test application.
    App,
    /// The proxy on the client's side.
    ClientProxy,
    /// The proxy on the server's side.
    ServerProxy,
    /// A proxy of the whole service, between the two.
    Waypoint,
    /// The ingress gateway for clients outside the mesh.
    Gateway,
    /// A mesh's control plane, its CNI agent, and whatever else runs for it outside the path of requests.
    ControlPlane,
    /// A process of a variant that runs and is not currently measured.
    Idle,
    /// meshtax itself: the lab's init and its observers.
    Harness,
}

impl ComponentRole {
    /// Whether it is a proxy of the variant, and so what the variant is measured for. The gateway is the same for all.
    #[must_use]
    pub fn is_proxy(self) -> bool {
        matches!(self, Self::ClientProxy | Self::ServerProxy | Self::Waypoint)
    }

    /// The place of a proxy that limits apply to; `None`: none do.
    #[must_use]
    pub fn limited(self) -> Option<ProxyRole> {
        match self {
            Self::ClientProxy => Some(ProxyRole::ClientProxy),
            Self::ServerProxy => Some(ProxyRole::ServerProxy),
            Self::Waypoint => Some(ProxyRole::Waypoint),
            _ => None,
        }
    }
}

/// The usage of one process in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentUsage {
    /// `envoy-sidecar-l7/server-proxy`; idle processes of all variants are one, `idle`.
    pub name: String,
    /// Its role in the traffic.
    pub role: ComponentRole,
    /// Index of its node in [`crate::environment::Environment::nodes`].
    pub node: u32,
    /// CPU in the window, user and system together, in nanoseconds.
    pub cpu_ns: u64,
    /// The kernel's part of it, in nanoseconds: *sampled* by the clock tick on many kernels
    /// ([`crate::environment::Host::cpu_split`]); `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ns: Option<u64>,
    /// Context switches of its threads, voluntary or not; `None` where they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Memory just after the load, with its connections still open; `None` where the kernel does not show it.
    pub memory: Option<Memory>,
    /// How its own CPU limit throttled it; `None`: it has none, or the kernel does not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Throttled>,
}

/// How a CPU limit throttled a component, from just before the window to just after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttled {
    /// Periods of the limit (100 ms each) in which it had something to run.
    pub periods: u64,
    /// Of them, those in which it used up its quota and had to wait.
    pub throttled_periods: u64,
    /// The time that it waited, in nanoseconds. The kernel adds up over cores, so it can exceed the window, and counts a wait
    /// when it ends.
    pub throttled_ns: u64,
}

impl Throttled {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            periods: self.periods.saturating_add(other.periods),
            throttled_periods: self
                .throttled_periods
                .saturating_add(other.throttled_periods),
            throttled_ns: self.throttled_ns.saturating_add(other.throttled_ns),
        }
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled_periods: self
                .throttled_periods
                .saturating_sub(earlier.throttled_periods),
            throttled_ns: self.throttled_ns.saturating_sub(earlier.throttled_ns),
        }
    }
}

impl ComponentUsage {
    /// A component without usage and without other readings; fields are public.
    #[must_use]
    pub fn new(name: impl Into<String>, role: ComponentRole) -> Self {
        Self {
            name: name.into(),
            role,
            node: 0,
            cpu_ns: 0,
            system_ns: None,
            context_switches: None,
            memory: None,
            throttled: None,
        }
    }
}

/// A process's memory, from `/proc/PID/smaps_rollup`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident anonymous pages: what it allocated.
    pub anonymous_bytes: u64,
    /// Resident pages of files: mostly its binary, shared between copies on one node.
    pub file_bytes: u64,
    /// Proportional set size: shared pages divided by the number of sharers. Secondary,
    /// since on one machine "nodes" share a page cache that separate nodes would not share.
    pub pss_bytes: u64,
    /// The peak of resident memory since the process started, file pages included.
    #[serde(default)]
    pub peak_bytes: u64,
}

/// A machine in a trial's window: the cores that the run uses, from `/proc/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineUsage {
    /// Time between the two readings, in nanoseconds.
    pub wall_ns: u64,
    /// Cores that the run uses.
    pub cores: u32,
    /// Idle time of these cores.
    pub idle_ns: u64,
    /// Idle time with outstanding I/O.
    pub iowait_ns: u64,
    /// Steal time of the hypervisor.
    pub steal_ns: u64,
    /// The kernel's step for each of these three: one tick of `/proc/stat`.
    pub resolution_ns: u64,
    /// How many lines each of the three is the sum of: the kernel rounds each down to whole steps.
    pub lines: u32,
    /// Interrupts, hard and soft, of all cores: *sampled* by the clock tick on many kernels. On those
    /// they are included in the account of the interrupted process as well.
    #[serde(default)]
    pub interrupts_ns: u64,
    /// CPU time of kernel threads (deferred soft interrupts, encryption between nodes,
    /// timers), warm-up and drain included; `None` where they are not visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_threads_ns: Option<u64>,
    /// Time spent in eBPF programs, warm-up and drain included; `None` where the kernel does not
    /// report it. Also included in the account of the process that ran them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpf_ns: Option<u64>,
    /// Time for which a CPU limit (cgroup) throttled the run's processes, warm-up and drain included;
    /// `None`: no such limit is visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// Time in which a task on the machine waited for memory (`/proc/pressure/memory`); `None`
    /// where the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure_ns: Option<u64>,
    /// Frequency of the core of the system under test just after the window, in kHz; `None` where it
    /// is not available, as in most virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_khz: Option<u64>,
    /// Fixed work of a few milliseconds, timed just before and just after the trial on a
    /// core of the system under test, in nanoseconds: how fast the machine was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_probe_ns: Option<[u64; 2]>,
    /// Processes outside the run that used its cores, the busiest first; `None` where they
    /// are not visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<Vec<OtherProcess>>,
    /// The time from the reading before the trial to the one after it, in nanoseconds: the interval
    /// in which other processes are observed.
    #[serde(default)]
    pub looked_ns: u64,
}

impl MachineUsage {
    /// Cores × wall, in nanoseconds.
    #[must_use]
    pub fn capacity_ns(&self) -> u64 {
        self.wall_ns.saturating_mul(u64::from(self.cores))
    }

    /// Busy time: cores × wall − idle − iowait − steal, in nanoseconds. The user, system and
    /// softirq columns are sampled by tick on many kernels and are not used.
    ///
    /// Signed: on an idle machine the kernel's step can exceed the busy time.
    #[must_use]
    pub fn busy_ns(&self) -> i64 {
        let total = i128::from(self.wall_ns) * i128::from(self.cores);
        let free = [self.idle_ns, self.iowait_ns, self.steal_ns];
        let busy = total - free.iter().map(|ns| i128::from(*ns)).sum::<i128>();
        busy.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

/// A process outside the run that used the cores that the run measures on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherProcess {
    /// The kernel's name of it, at most 15 bytes.
    pub name: String,
    /// CPU from just before the trial to just after it, in nanoseconds.
    pub cpu_ns: u64,
}

/// Traffic on a pod's link in the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUsage {
    /// The side: all its pods together.
    pub role: ComponentRole,
    /// Received bytes.
    pub received_bytes: u64,
    /// Sent bytes.
    pub sent_bytes: u64,
}

/// A component's CPU and memory over the window, in equal steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentSeries {
    /// The role; all processes of a role are combined.
    pub role: ComponentRole,
    /// CPU in each step, in nanoseconds.
    pub cpu_ns: Vec<u64>,
    /// Anonymous resident memory (not of files) at the end of each step, in bytes; empty where it was
    /// not read.
    pub anonymous_bytes: Vec<u64>,
}

/// CPU and memory over the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSeries {
    /// The ends of the steps, relative to the start of the window, in nanoseconds.
    pub ends_ns: Vec<u64>,
    /// By role.
    pub components: Vec<ComponentSeries>,
}

/// One line of `samples.jsonl`: the resource usage of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceSample {
    /// The trial.
    pub trial: TrialId,
    /// Every component, idle ones and meshtax itself included.
    pub components: Vec<ComponentUsage>,
    /// The machines, in the order of [`crate::environment::Environment::machines`].
    pub machines: Vec<MachineUsage>,
    /// Traffic on the pods' links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkUsage>,
    /// The window of a node may be off by this much, since its clock is compared over the network; `None`: all was read on
    /// one clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
    /// CPU and memory over the window.
    #[serde(default)]
    pub series: UsageSeries,
    /// CPU of the proxies of each variant that ran and was not measured: part of the component
    /// [`ComponentRole::Idle`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_proxies: Vec<IdleProxies>,
    /// Endpoint changes that all proxies acknowledged, from the start of the load to its end; `None`: none were
    /// requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

/// CPU of the proxies of a variant in a window in which another variant was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleProxies {
    /// The variant.
    pub variant: VariantId,
    /// CPU of all its proxies in the window, in nanoseconds.
    pub cpu_ns: u64,
}

/// Endpoint changes during a trial, warm-up and drain included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The time during which changes were made, in nanoseconds.
    pub during_ns: u64,
    /// Sent to a proxy: the minimum over all proxies.
    pub sent: u64,
    /// Of them, those that the proxy acknowledged: the minimum over all proxies.
    pub held: u64,
}

impl ResourceSample {
    /// A sample without readings; fields are public.
    #[must_use]
    pub fn new(trial: TrialId) -> Self {
        Self {
            trial,
            components: Vec::new(),
            machines: Vec::new(),
            links: Vec::new(),
            clock_error_ns: None,
            series: UsageSeries::default(),
            idle_proxies: Vec::new(),
            changes: None,
        }
    }

    /// The length of the window: that of the machine that was read for the longest.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        let machines = self.machines.iter();
        machines.map(|machine| machine.wall_ns).max().unwrap_or(0)
    }

    /// Busy time of all machines, in nanoseconds.
    #[must_use]
    pub fn busy_ns(&self) -> i64 {
        let machines = self.machines.iter();
        machines.fold(0, |sum, machine| sum.saturating_add(machine.busy_ns()))
    }

    /// A figure, summed over the machines.
    pub fn over_machines(&self, figure: impl Fn(&MachineUsage) -> u64) -> u64 {
        let machines = self.machines.iter();
        machines.fold(0, |sum, machine| sum.saturating_add(figure(machine)))
    }

    /// A figure, summed over the machines; `None` if one of them lacks it.
    pub fn known_on_machines(&self, figure: impl Fn(&MachineUsage) -> Option<u64>) -> Option<u64> {
        self.machines.iter().try_fold(0_u64, |sum, machine| {
            Some(sum.saturating_add(figure(machine)?))
        })
    }

    /// CPU of all components, in nanoseconds.
    #[must_use]
    pub fn attributed_ns(&self) -> u64 {
        let components = self.components.iter();
        components.fold(0, |sum, component| sum.saturating_add(component.cpu_ns))
    }
}
