//! The processes of a trial, and the readings that are taken of them.

use std::collections::BTreeMap;

use meshtax_model::experiment::VariantId;
use meshtax_model::trial::{ComponentRole, LinkUsage, Memory};
use meshtax_observe::{
    LinkReading, anonymous_bytes, context_switches, cpu_ns, established_connections, memory,
    system_ns,
};

/// With more processes of one variant than this, reading their memory at each step would disturb the
/// measurement.
const MOST_AT_STEPS: usize = 8;

/// A process whose usage is read.
#[derive(Clone, Debug)]
pub struct Process {
    /// In the PID namespace of the agent.
    pub pid: u32,
    /// As it is reported (`envoy-sidecar-l7/server-proxy`).
    pub name: String,
    /// Its part in the trial.
    pub role: ComponentRole,
    /// Index of its node in the run's environment.
    pub node: u32,
    /// The variant of an idle proxy.
    pub idles_for: Option<VariantId>,
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

    /// Established connections at the load's first proxy; `None` if there is none, or a count cannot be read.
    pub(crate) fn entered(&self, generator: u32) -> Option<u32> {
        let entrance = self.entrance?;
        let pid = entrance.pid.unwrap_or(generator);
        established_connections(pid, entrance.port).ok()
    }

    /// Memory of the measured variant's processes, by process id. Walks page tables: not within a window.
    #[must_use]
    pub fn memories(&self) -> BTreeMap<u32, Memory> {
        self.measured()
            .filter_map(|process| Some((process.pid, memory(process.pid).ok()?)))
            .collect()
    }

    fn measured(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|p| p.is_measured())
    }

    /// CPU clocks of all processes, in their order; `None` for one that has ended.
    pub(crate) fn cpu(&self) -> Vec<Option<u64>> {
        let all = self.processes.iter();
        all.map(|process| cpu_ns(process.pid).ok()).collect()
    }

    /// The measured variant's memory by role; empty if there are too many processes to read at each step.
    pub(crate) fn held(&self) -> Vec<(ComponentRole, u64)> {
        if self.measured().count() > MOST_AT_STEPS {
            return Vec::new();
        }
        self.measured()
            .filter_map(|process| Some((process.role, anonymous_bytes(process.pid).ok()?)))
            .collect()
    }

    /// The readings that take too long for the window's edges.
    pub(crate) fn slow(&self, generator: u32) -> Slow {
        let of = |read: &dyn Fn(u32) -> Option<u64>| -> BTreeMap<u32, u64> {
            let measured = self.measured();
            measured
                .filter_map(|process| Some((process.pid, read(process.pid)?)))
                .collect()
        };
        let with_role = |role: ComponentRole| -> Vec<u32> {
            let measured = self.measured();
            let of_role = measured.filter(|process| process.role == role);
            of_role.map(|process| process.pid).collect()
        };
        let sides = [
            (ComponentRole::Generator, vec![generator]),
            (ComponentRole::App, self.servers.clone()),
            (ComponentRole::Waypoint, with_role(ComponentRole::Waypoint)),
            (ComponentRole::Gateway, with_role(ComponentRole::Gateway)),
        ];
        let links = sides.into_iter().filter_map(|(role, pids)| {
            let readings: Option<Vec<LinkReading>> =
                pids.iter().map(|pid| LinkReading::of(*pid).ok()).collect();
            Some((role, readings.filter(|all| !all.is_empty())?))
        });
        Slow {
            switches: of(&|pid| context_switches(pid).ok()),
            system: of(&|pid| system_ns(pid).ok()),
            links: links.collect(),
        }
    }
}

/// The readings that are taken just before and just after a window.
pub(crate) struct Slow {
    pub(crate) switches: BTreeMap<u32, u64>,
    pub(crate) system: BTreeMap<u32, u64>,
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
