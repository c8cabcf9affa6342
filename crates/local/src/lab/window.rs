//! What a window costs: CPU, memory, switches and bytes, read at its edges and at steps between them.
//!
//! Reading takes time on the cores that are measured. CPU clocks are a microsecond each and are read at
//! the edges and at every step. Memory at a step is some microseconds, and read of the measured variant
//! only. Context switches, the kernel's part and links take tens to hundreds of microseconds: they are
//! read just before the window begins and just after it ends. What walks the whole kernel (connections,
//! pages) comes when the load is over.

use std::collections::BTreeMap;

use meshtax_load::Window;
use meshtax_model::experiment::VariantId;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{
    ComponentRole, ComponentSeries, ComponentUsage, IdleProxies, LinkUsage, LoadResult, Memory,
    ResourceSample, Series,
};
use meshtax_observe::{
    LinkReading, MachineReading, anonymous_bytes, context_switches, cpu_ns,
    established_connections, memory, monotonic_ns, sleep_until_ns, system_ns,
};

/// What is read just before the window is read this long before it.
const BEFORE_NS: u64 = 3_000_000;

/// Steps of a window, and how long they are at least and at most.
const STEPS: u64 = 8;
const STEP_NS: (u64, u64) = (25_000_000, 100_000_000);

/// More steps than this nobody looks at: those of a long window are longer.
const STEPS_MAX: u64 = 300;

/// Above so many processes of one variant, reading them all at each step would be seen in what is
/// measured.
const MOST_AT_STEPS: usize = 8;

/// A process that is watched.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) role: ComponentRole,
    /// On which of the servers' nodes it stands.
    pub(crate) server_node: u32,
    /// Of a proxy that idles: whose it is.
    pub(crate) idles_for: Option<VariantId>,
}

impl Process {
    /// Whether it belongs to the variant that is measured.
    fn is_measured(&self) -> bool {
        !matches!(self.role, ComponentRole::Idle | ComponentRole::Harness)
    }
}

/// All that is watched in a trial.
pub(crate) struct Watched {
    pub(crate) processes: Vec<Process>,
    /// A process in each server's pod.
    pub(crate) servers: Vec<u32>,
    /// The proxies' port for other proxies.
    pub(crate) proxy_port: Option<u16>,
}

impl Watched {
    /// Established connections between the proxies.
    pub(crate) fn connections(&self) -> Option<u32> {
        let port = self.proxy_port?;
        let counts = self.servers.iter();
        counts
            .map(|pid| established_connections(*pid, port).ok())
            .sum()
    }

    /// Of the measured variant's own processes, by process id.
    pub(crate) fn memories(&self) -> BTreeMap<u32, Memory> {
        self.measured()
            .filter_map(|process| Some((process.pid, memory(process.pid).ok()?)))
            .collect()
    }

    fn measured(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|p| p.is_measured())
    }

    fn cpu(&self) -> Vec<Option<u64>> {
        let all = self.processes.iter();
        all.map(|process| cpu_ns(process.pid).ok()).collect()
    }

    /// The measured variant's memory by role, if reading it is quick.
    fn held(&self) -> Vec<(ComponentRole, u64)> {
        if self.measured().count() > MOST_AT_STEPS {
            return Vec::new();
        }
        self.measured()
            .filter_map(|process| Some((process.role, anonymous_bytes(process.pid).ok()?)))
            .collect()
    }

    /// What takes too long for the window's edges.
    fn slow(&self, generator: u32) -> Slow {
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

struct Slow {
    switches: BTreeMap<u32, u64>,
    system: BTreeMap<u32, u64>,
    links: Vec<(ComponentRole, Vec<LinkReading>)>,
}

impl Slow {
    fn links_since(&self, earlier: &Self) -> Vec<LinkUsage> {
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

/// All readings of a window.
pub(crate) struct Edges {
    processes: Vec<Process>,
    /// At the window's begin, at the end of each step, and so at its end.
    cpu: Vec<Vec<Option<u64>>>,
    held: Vec<Vec<(ComponentRole, u64)>>,
    ends_ns: Vec<u64>,
    machine: [MachineReading; 2],
    slow: [Slow; 2],
    generator: u32,
}

/// Waits until an instant of a window whose end is known.
pub(crate) fn asleep(until_ns: u64) -> bool {
    sleep_until_ns(until_ns);
    false
}

/// Reads all of a window, as it goes by. `over` waits until an instant, or says that the load is over before: then the
/// window ends there and then.
pub(crate) fn observe(
    watched: &Watched,
    window: &Window,
    generator: u32,
    over: &mut dyn FnMut(u64) -> bool,
) -> Result<Edges, String> {
    let machine = || MachineReading::now().map_err(|e| e.to_string());
    let (begin_ns, end_ns) = (window.start_monotonic_ns, window.end_monotonic_ns);
    sleep_until_ns(begin_ns.saturating_sub(BEFORE_NS));
    let slow_before = watched.slow(generator);
    sleep_until_ns(begin_ns);
    let machine_before = machine()?;
    let mut cpu = vec![watched.cpu()];
    let mut held = Vec::new();
    let mut ends_ns = step_ends(end_ns.saturating_sub(begin_ns));
    let steps = ends_ns.len();
    for step in 0..steps {
        if over(begin_ns + ends_ns[step]) {
            ends_ns.truncate(step);
            ends_ns.push(monotonic_ns().saturating_sub(begin_ns));
            break;
        }
        if step + 1 < steps {
            cpu.push(watched.cpu());
            held.push(watched.held());
        }
    }
    let machine_after = machine()?;
    cpu.push(watched.cpu());
    held.push(watched.held());
    Ok(Edges {
        processes: watched.processes.clone(),
        cpu,
        held,
        ends_ns,
        machine: [machine_before, machine_after],
        slow: [slow_before, watched.slow(generator)],
        generator,
    })
}

/// The ends of equal steps, the last at the window's end; at least one.
fn step_ends(window_ns: u64) -> Vec<u64> {
    let wanted_ns = (window_ns / STEPS).clamp(STEP_NS.0, STEP_NS.1);
    let wanted_ns = wanted_ns.max(window_ns / STEPS_MAX);
    let count = (window_ns / wanted_ns).max(1);
    (1..=count).map(|step| window_ns * step / count).collect()
}

impl Edges {
    /// CPU of a process over the whole window.
    fn used(&self, index: usize) -> Option<u64> {
        let (first, last) = (self.cpu.first()?[index]?, self.cpu.last()?[index]?);
        Some(last.saturating_sub(first))
    }

    pub(crate) fn sample(
        &self,
        trial: &TrialId,
        memories: &BTreeMap<u32, Memory>,
        load: &LoadResult,
        probes: [u64; 2],
    ) -> ResourceSample {
        let mut components = Vec::new();
        let mut idle = ComponentUsage::new("idle", ComponentRole::Idle);
        let [before, after] = &self.slow;
        let passed = |now: &BTreeMap<u32, u64>, then: &BTreeMap<u32, u64>, pid: u32| {
            Some(now.get(&pid)?.saturating_sub(*then.get(&pid)?))
        };
        let mut idle_proxies: BTreeMap<&VariantId, u64> = BTreeMap::new();
        for (index, process) in self.processes.iter().enumerate() {
            let Process {
                pid, name, role, ..
            } = process;
            let Some(used) = self.used(index) else {
                continue;
            };
            if *role == ComponentRole::Idle {
                idle.cpu_ns += used;
                if let Some(variant) = &process.idles_for {
                    *idle_proxies.entry(variant).or_default() += used;
                }
                continue;
            }
            components.push(ComponentUsage {
                name: name.clone(),
                role: *role,
                server_node: process.server_node,
                cpu_ns: used,
                system_ns: passed(&after.system, &before.system, *pid),
                context_switches: passed(&after.switches, &before.switches, *pid),
                memory: memories.get(pid).copied(),
            });
        }
        components.push(ComponentUsage {
            cpu_ns: load.audit.cpu_ns,
            ..ComponentUsage::new(
                format!("generator {}", self.generator),
                ComponentRole::Generator,
            )
        });
        components.push(idle);
        let [machine_before, machine_after] = &self.machine;
        ResourceSample {
            components,
            machine: machine_after.since(machine_before),
            speed_probe_ns: Some(probes),
            links: after.links_since(before),
            series: self.series(),
            idle_proxies: idle_proxies
                .into_iter()
                .map(|(variant, cpu_ns)| IdleProxies {
                    variant: variant.clone(),
                    cpu_ns,
                })
                .collect(),
            ..ResourceSample::new(trial.clone())
        }
    }

    fn series(&self) -> Series {
        let mut roles: BTreeMap<ComponentRole, ComponentSeries> = BTreeMap::new();
        for (index, process) in self.processes.iter().enumerate() {
            let Some(readings) = self
                .cpu
                .iter()
                .map(|at| at[index])
                .collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            let series = roles
                .entry(process.role)
                .or_insert_with(|| ComponentSeries {
                    role: process.role,
                    cpu_ns: vec![0; self.ends_ns.len()],
                    anonymous_bytes: Vec::new(),
                });
            for (sum, pair) in series.cpu_ns.iter_mut().zip(readings.windows(2)) {
                *sum += pair[1].saturating_sub(pair[0]);
            }
        }
        for (role, series) in &mut roles {
            let at = |held: &Vec<(ComponentRole, u64)>| {
                let of_role = held.iter().filter(|(of, _)| of == role);
                of_role.map(|(_, bytes)| *bytes).sum::<u64>()
            };
            let is_read = |held: &Vec<_>| held.iter().any(|(of, _)| of == role);
            if self.held.iter().all(is_read) {
                series.anonymous_bytes = self.held.iter().map(at).collect();
            }
        }
        Series {
            ends_ns: self.ends_ns.clone(),
            components: roles.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_where_the_window_does() {
        const MS: u64 = 1_000_000;
        assert_eq!(step_ends(10 * MS), [10 * MS]);
        assert_eq!(step_ends(200 * MS).len(), 8);
        assert_eq!(step_ends(500 * MS).last(), Some(&(500 * MS)));
        let long = step_ends(30_000 * MS);
        assert_eq!((long.len(), long[0]), (300, 100 * MS));
    }
}
