//! The processes of a trial, and the readings that are taken of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshtax_model::experiment::VariantId;
use meshtax_model::trial::{ComponentRole, LinkUsage, Memory, Throttled};
use meshtax_observe::{
    Cgroup, Limited, LinkReading, anonymous_bytes, context_switches, cpu_ns,
    established_connections, memory, system_ns,
};

/// With more processes of one variant than this, reading their memory at each step would disturb the
/// measurement.
const MOST_AT_STEPS: usize = 8;

/// Where a component's usage is read.
#[derive(Clone, Debug)]
pub enum Meter {
    /// A process in the PID namespace of the agent.
    Process(u32),
    /// Everything in a container.
    Container(Arc<Cgroup>),
}

impl Meter {
    /// CPU since its start, in nanoseconds; `None` if it has ended.
    fn cpu_ns(&self) -> Option<u64> {
        match self {
            Self::Process(pid) => cpu_ns(*pid).ok(),
            Self::Container(cgroup) => cgroup.cpu_ns().ok(),
        }
    }

    /// The kernel's part of it.
    fn system_ns(&self) -> Option<u64> {
        match self {
            Self::Process(pid) => system_ns(*pid).ok(),
            Self::Container(cgroup) => cgroup.system_ns(),
        }
    }

    fn processes(&self) -> Vec<u32> {
        match self {
            Self::Process(pid) => vec![*pid],
            Self::Container(cgroup) => cgroup.processes(),
        }
    }

    /// The sum over its processes; `None` if it has none, or one cannot be read.
    fn sum<T>(&self, read: impl Fn(u32) -> Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
        let all: Option<Vec<T>> = self.processes().into_iter().map(read).collect();
        all?.into_iter().reduce(add)
    }

    fn context_switches(&self) -> Option<u64> {
        self.sum(|pid| context_switches(pid).ok(), |a, b| a + b)
    }

    fn anonymous_bytes(&self) -> Option<u64> {
        self.sum(|pid| anonymous_bytes(pid).ok(), |a, b| a + b)
    }

    /// What its CPU limit did to it; `None`: it has none of its own.
    fn throttled(&self, limited: &Limited) -> Option<Throttled> {
        match self {
            Self::Process(_) => limited.throttled(),
            Self::Container(cgroup) => cgroup.throttled(),
        }
    }

    fn memory(&self) -> Option<Memory> {
        let add = |a: Memory, b: Memory| Memory {
            anonymous_bytes: a.anonymous_bytes + b.anonymous_bytes,
            file_bytes: a.file_bytes + b.file_bytes,
            pss_bytes: a.pss_bytes + b.pss_bytes,
            peak_bytes: a.peak_bytes + b.peak_bytes,
        };
        self.sum(|pid| memory(pid).ok(), add)
    }
}

/// A component whose usage is read.
#[derive(Clone, Debug)]
pub struct Process {
    /// Where it is read.
    pub meter: Meter,
    /// As it is reported (`envoy-sidecar-l7/server-proxy`).
    pub name: String,
    /// Its part in the trial.
    pub role: ComponentRole,
    /// Index of its node in the run's environment.
    pub node: u32,
    /// The variant of an idle proxy.
    pub idles_for: Option<VariantId>,
    /// The cgroup with the limits of a process; that of a container is its own.
    pub limited: Limited,
}

impl Process {
    /// Whether it belongs to the measured variant and is in use.
    fn is_measured(&self) -> bool {
        !matches!(self.role, ComponentRole::Idle | ComponentRole::Harness)
    }
}

/// The port of the first proxy of a load.
#[derive(Clone, Copy, Debug)]
pub struct Entrance {
    /// A process in its pod; `None`: it is in the generator's own pod, where the generator's connections are redirected.
    pub pid: Option<u32>,
    /// The port.
    pub port: u16,
}

/// Everything that is read in a trial.
pub struct Watched {
    /// The cores that the run uses on this machine.
    pub cores: Vec<u32>,
    /// All that are up, those of idle variants and the harness included.
    pub processes: Vec<Process>,
    /// One process in each server pod: through it the pod's sockets and links are read.
    pub servers: Vec<u32>,
    /// The port at which the server's proxies accept connections from other proxies.
    pub proxy_port: Option<u16>,
    /// What accepts the load's connections.
    pub entrance: Option<Entrance>,
}

impl Watched {
    /// Established connections between the proxies; `None` if there are no proxies, or a count cannot be read.
    ///
    /// The kernel walks its whole connection table for this, which takes milliseconds: not within a window.
    #[must_use]
    pub fn connections(&self) -> Option<u32> {
        let port = self.proxy_port?;
        let counts = self.servers.iter();
        counts
            .map(|pid| established_connections(*pid, port).ok())
            .sum()
    }

    /// Established connections at the first proxy of each generator's load; `None` if there is none, or a count cannot
    /// be read.
    pub(crate) fn entered(&self, generators: &[u32]) -> Vec<Option<u32>> {
        let of = |generator: &u32| {
            let entrance = self.entrance?;
            let pid = entrance.pid.unwrap_or(*generator);
            established_connections(pid, entrance.port).ok()
        };
        generators.iter().map(of).collect()
    }

    /// Memory of the measured variant's processes, by their index. Walks page tables: not within a window.
    #[must_use]
    pub fn memories(&self) -> BTreeMap<usize, Memory> {
        self.of_measured(&Meter::memory)
    }

    fn measured(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|p| p.is_measured())
    }

    /// A figure of each of the measured variant's processes, by their index.
    fn of_measured<T>(&self, read: &dyn Fn(&Meter) -> Option<T>) -> BTreeMap<usize, T> {
        let all = self.processes.iter().enumerate();
        all.filter(|(_, process)| process.is_measured())
            .filter_map(|(index, process)| Some((index, read(&process.meter)?)))
            .collect()
    }

    /// CPU clocks of all processes, in their order; `None` for one that has ended.
    pub(crate) fn cpu(&self) -> Vec<Option<u64>> {
        let all = self.processes.iter();
        all.map(|process| process.meter.cpu_ns()).collect()
    }

    /// The measured variant's memory by role; empty if there are too many processes to read at each step.
    pub(crate) fn held(&self) -> Vec<(ComponentRole, u64)> {
        if self.measured().count() > MOST_AT_STEPS {
            return Vec::new();
        }
        self.measured()
            .filter_map(|process| Some((process.role, process.meter.anonymous_bytes()?)))
            .collect()
    }

    /// The readings that take too long for the window's edges.
    pub(crate) fn slow(&self, generators: &[u32]) -> Slow {
        let with_role = |role: ComponentRole| -> Vec<u32> {
            let measured = self.measured();
            let of_role = measured.filter(|process| process.role == role);
            let processes = of_role.filter_map(|process| match process.meter {
                Meter::Process(pid) => Some(pid),
                Meter::Container(_) => None,
            });
            processes.collect()
        };
        let sides = [
            (ComponentRole::Generator, generators.to_vec()),
            (ComponentRole::App, self.servers.clone()),
            (ComponentRole::Waypoint, with_role(ComponentRole::Waypoint)),
            (ComponentRole::Gateway, with_role(ComponentRole::Gateway)),
        ];
        let links = sides.into_iter().filter_map(|(role, pids)| {
            let readings: Option<Vec<LinkReading>> =
                pids.iter().map(|pid| LinkReading::of(*pid).ok()).collect();
            Some((role, readings.filter(|all| !all.is_empty())?))
        });
        let all = self.processes.iter().enumerate();
        let measured = all.filter(|(_, process)| process.is_measured());
        let throttled = measured.filter_map(|(index, process)| {
            Some((index, process.meter.throttled(&process.limited)?))
        });
        Slow {
            throttled: throttled.collect(),
            switches: self.of_measured(&Meter::context_switches),
            system: self.of_measured(&Meter::system_ns),
            links: links.collect(),
        }
    }
}

/// The readings that are taken just before and just after a window.
pub(crate) struct Slow {
    /// By the index of the process.
    pub(crate) switches: BTreeMap<usize, u64>,
    pub(crate) system: BTreeMap<usize, u64>,
    pub(crate) throttled: BTreeMap<usize, Throttled>,
    links: Vec<(ComponentRole, Vec<LinkReading>)>,
}

impl Slow {
    pub(crate) fn links_since(&self, earlier: &Self) -> Vec<LinkUsage> {
        let pairs = self.links.iter().zip(&earlier.links);
        let same =
            pairs.filter(|((role, now), (other, then))| role == other && now.len() == then.len());
        let usage = same.map(|((role, now), (_, then))| {
            let passed = now.iter().zip(then).map(|(now, then)| now.since(then));
            let (mut received_bytes, mut sent_bytes) = (0, 0);
            for reading in passed {
                received_bytes += reading.received_bytes;
                sent_bytes += reading.sent_bytes;
            }
            LinkUsage {
                role: *role,
                received_bytes,
                sent_bytes,
            }
        });
        usage.collect()
    }
}
