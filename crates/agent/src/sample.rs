//! From a window's readings to the trial's [`ResourceSample`].

use std::collections::BTreeMap;

use meshtax_model::experiment::VariantId;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{
    ComponentRole, ComponentSeries, ComponentUsage, IdleProxies, MachineUsage, Memory,
    ResourceSample, UsageSeries,
};

use crate::window::Readings;

impl Readings {
    /// CPU of a process over the whole window, in nanoseconds.
    fn used(&self, index: usize) -> Option<u64> {
        let (first, last) = (self.cpu.first()?[index]?, self.cpu.last()?[index]?);
        Some(last.saturating_sub(first))
    }

    /// What the trial cost. `memories`: by the index of the process; `generators`: the load generators' processes and
    /// their CPU in nanoseconds.
    pub(crate) fn sample(
        &self,
        trial: &TrialId,
        memories: &BTreeMap<usize, Memory>,
        generators: &[(u32, u64)],
        speed_probe_ns: [u64; 2],
    ) -> ResourceSample {
        let mut components = self.components(memories);
        components.extend(generators.iter().map(|(pid, cpu_ns)| ComponentUsage {
            cpu_ns: *cpu_ns,
            ..ComponentUsage::new(format!("generator {pid}"), ComponentRole::Generator)
        }));
        let (idle, idle_proxies) = self.idle();
        components.push(idle);
        let [slow_before, slow_after] = &self.slow;
        let machine = MachineUsage {
            speed_probe_ns: Some(speed_probe_ns),
            ..self.machine()
        };
        ResourceSample {
            components,
            machines: vec![machine],
            links: slow_after.links_since(slow_before),
            series: self.series(),
            idle_proxies,
            ..ResourceSample::new(trial.clone())
        }
    }

    /// The machine over the whole window.
    pub(crate) fn machine(&self) -> MachineUsage {
        let [before, after] = &self.machine;
        after.since(before)
    }

    /// The usage of each process that is not idle. `memories`: by the index of the process.
    pub(crate) fn components(&self, memories: &BTreeMap<usize, Memory>) -> Vec<ComponentUsage> {
        let [before, after] = &self.slow;
        let passed = |now: &BTreeMap<usize, u64>, then: &BTreeMap<usize, u64>, index: usize| {
            Some(now.get(&index)?.saturating_sub(*then.get(&index)?))
        };
        let all = self.processes.iter().enumerate();
        let busy = all.filter(|(_, process)| process.role != ComponentRole::Idle);
        let usage = busy.filter_map(|(index, process)| {
            Some(ComponentUsage {
                name: process.name.clone(),
                role: process.role,
                node: process.node,
                cpu_ns: self.used(index)?,
                system_ns: passed(&after.system, &before.system, index),
                context_switches: passed(&after.switches, &before.switches, index),
                memory: memories.get(&index).copied(),
                throttled: after
                    .throttled
                    .get(&index)
                    .zip(before.throttled.get(&index))
                    .map(|(now, then)| now.since(*then)),
            })
        });
        usage.collect()
    }

    /// The usage of all idle processes together, and that of each variant's proxies among them.
    pub(crate) fn idle(&self) -> (ComponentUsage, Vec<IdleProxies>) {
        let mut idle = ComponentUsage::new("idle", ComponentRole::Idle);
        let mut proxies: BTreeMap<&VariantId, u64> = BTreeMap::new();
        for (index, process) in self.processes.iter().enumerate() {
            let used = self.used(index).unwrap_or_default();
            if process.role == ComponentRole::Idle {
                idle.cpu_ns += used;
                if let Some(variant) = &process.idles_for {
                    *proxies.entry(variant).or_default() += used;
                }
            }
        }
        let of_variant = |(variant, cpu_ns): (&VariantId, u64)| IdleProxies {
            variant: variant.clone(),
            cpu_ns,
        };
        (idle, proxies.into_iter().map(of_variant).collect())
    }

    pub(crate) fn series(&self) -> UsageSeries {
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
        UsageSeries {
            ends_ns: self.ends_ns.clone(),
            components: roles.into_values().collect(),
        }
    }
}
