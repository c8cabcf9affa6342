//! Memory of the path: levels, steady state and growth.

use std::collections::BTreeMap;

use meshtax_model::analysis::{ComponentMemory, NodeMemory, RoleSeries};
use meshtax_model::environment::NodeRole;
use meshtax_model::experiment::VariantId;
use meshtax_model::trial::{ComponentRole, ComponentSeries, Memory, ResourceSample, UsageSeries};

use crate::account::{IN_PATH, median};
use crate::growth::Growth;
use crate::interval;
use crate::trials::{Trial, Trials};

/// Anonymous memory of the path in bytes; `None` if that of a process is unknown.
pub(crate) fn anonymous_bytes(sample: &ResourceSample) -> Option<f64> {
    let mut sum = None;
    for component in &sample.components {
        if IN_PATH.contains(&component.role) {
            let bytes = component.memory?.anonymous_bytes as f64;
            sum = Some(sum.unwrap_or(0.0) + bytes);
        }
    }
    sum
}

/// The median over the trials of each role's memory in the path, summed over the processes of a
/// role.
pub(crate) fn by_role(trials: &Trials<'_>, variant: &VariantId) -> Vec<ComponentMemory> {
    let mut valid: Vec<&Trial<'_>> = trials.valid_of(variant).collect();
    valid.sort_by_key(|trial| trial.order);
    let samples: Vec<&ResourceSample> = valid.iter().filter_map(|t| t.sample).collect();
    let of_role = |role: &ComponentRole| {
        let held: Vec<Memory> = samples.iter().filter_map(|s| held(s, *role)).collect();
        let middle = |field: fn(&Memory) -> u64| median(held.iter().map(field).collect());
        let anonymous_bytes = middle(|memory| memory.anonymous_bytes)?;
        Some(ComponentMemory {
            role: *role,
            anonymous_bytes,
            file_bytes: middle(|memory| memory.file_bytes)?,
            pss_bytes: middle(|memory| memory.pss_bytes)?,
            peak_bytes: middle(|memory| memory.peak_bytes)?,
            settled_bytes: settled(&valid, *role).unwrap_or(anonymous_bytes),
            growth_bytes_per_s: growth(&samples, *role),
        })
    };
    IN_PATH.iter().filter_map(of_role).collect()
}

/// The median over the later half of each round's trials: the steady state of its processes.
fn settled(in_order: &[&Trial<'_>], role: ComponentRole) -> Option<u64> {
    let mut rounds: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for trial in in_order {
        if let Some(memory) = trial.sample.and_then(|sample| held(sample, role)) {
            let round = rounds.entry(trial.key.round).or_default();
            round.push(memory.anonymous_bytes);
        }
    }
    let later = rounds.into_values().flat_map(|mut round| {
        let half = round.len() / 2;
        round.split_off(half)
    });
    median(later.collect())
}

fn growth(samples: &[&ResourceSample], role: ComponentRole) -> Option<f64> {
    let rates = samples.iter().filter_map(|sample| {
        let of_role = sample.series.components.iter().find(|c| c.role == role)?;
        Growth::of(&sample.series, of_role).map(|growth| growth.bytes_per_s)
    });
    interval::median(rates.collect())
}

/// The total memory of the processes of a role; `None` if there is none, or one cannot be read.
pub(crate) fn held(sample: &ResourceSample, role: ComponentRole) -> Option<Memory> {
    let mut of_role = sample.components.iter().filter(|c| c.role == role);
    // A role with a process of unknown memory has no sum.
    let first = of_role.next()?.memory?;
    of_role.try_fold(first, |sum, component| {
        let more = component.memory?;
        Some(Memory {
            anonymous_bytes: sum.anonymous_bytes.saturating_add(more.anonymous_bytes),
            file_bytes: sum.file_bytes.saturating_add(more.file_bytes),
            pss_bytes: sum.pss_bytes.saturating_add(more.pss_bytes),
            peak_bytes: sum.peak_bytes.saturating_add(more.peak_bytes),
        })
    })
}

/// All nodes with processes of the variant: medians over the trials. On a real node there is one copy of a
/// program's pages, regardless of the number of pods that run it; each node has its own.
pub(crate) fn by_node(trials: &Trials<'_>, variant: &VariantId) -> Vec<NodeMemory> {
    let samples: Vec<&ResourceSample> = trials.valid_of(variant).filter_map(|t| t.sample).collect();
    let nodes = (0..).zip(&trials.data.environment.nodes);
    nodes
        .filter_map(|(index, node)| of_node(&samples, index, node.role))
        .collect()
}

fn of_node(samples: &[&ResourceSample], node: u32, role: NodeRole) -> Option<NodeMemory> {
    let held = |roles: &[ComponentRole]| -> Vec<(u64, u64)> {
        let sums = samples.iter();
        sums.filter_map(|s| resident(s, roles, Some(node)))
            .collect()
    };
    let proxies = IN_PATH
        .into_iter()
        .filter(|role| *role != ComponentRole::App);
    let all = held(&IN_PATH);
    let of_proxies = held(&proxies.collect::<Vec<_>>());
    Some(NodeMemory {
        node,
        role,
        anonymous_bytes: median(all.iter().map(|sum| sum.0).collect())?,
        file_bytes: median(all.iter().map(|sum| sum.1).collect())?,
        proxy_file_bytes: median(of_proxies.iter().map(|sum| sum.1).collect()),
    })
}

/// Anonymous pages of all processes, and file pages of the largest of each role on each node; `None` if there is none,
/// or one is unknown. `on`: only on one node.
pub(crate) fn resident(
    sample: &ResourceSample,
    roles: &[ComponentRole],
    on: Option<u32>,
) -> Option<(u64, u64)> {
    let mut anonymous = 0_u64;
    let mut files: BTreeMap<(ComponentRole, u32), u64> = BTreeMap::new();
    for component in &sample.components {
        let is_there = on.is_none_or(|node| component.node == node);
        if roles.contains(&component.role) && is_there {
            let memory = component.memory?;
            anonymous = anonymous.saturating_add(memory.anonymous_bytes);
            let copy = (component.role, component.node);
            let largest = files.entry(copy).or_default();
            *largest = memory.file_bytes.max(*largest);
        }
    }
    (!files.is_empty()).then(|| (anonymous, files.values().sum()))
}

/// The series of some trials, step by step: mean CPU as a share of a core, median memory. Trials whose
/// steps differ from those of the first one are excluded.
pub(crate) fn series(samples: &[&ResourceSample]) -> (Vec<u64>, Vec<RoleSeries>) {
    let Some(first) = samples.iter().find(|s| !s.series.ends_ns.is_empty()) else {
        return Default::default();
    };
    let steps = first.series.ends_ns.len();
    let mut roles: BTreeMap<ComponentRole, Vec<(&UsageSeries, &ComponentSeries)>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.series.ends_ns.len() == steps) {
        for component in &sample.series.components {
            let of_role = roles.entry(component.role).or_default();
            of_role.push((&sample.series, component));
        }
    }
    let all = roles.into_iter();
    let of_role =
        |(role, seen): (ComponentRole, Vec<(&UsageSeries, &ComponentSeries)>)| RoleSeries {
            role,
            cores: (0..steps).map(|step| cores_in(&seen, step)).collect(),
            anonymous_bytes: (0..steps)
                .map_while(|step| {
                    let held = seen.iter();
                    median(
                        held.filter_map(|(_, c)| c.anonymous_bytes.get(step).copied())
                            .collect(),
                    )
                })
                .collect(),
        };
    (first.series.ends_ns.clone(), all.map(of_role).collect())
}

fn cores_in(seen: &[(&UsageSeries, &ComponentSeries)], step: usize) -> f64 {
    let (mut cpu_ns, mut wall_ns) = (0.0, 0.0);
    for (series, component) in seen {
        let begin = step
            .checked_sub(1)
            .and_then(|before| series.ends_ns.get(before));
        let end = series.ends_ns.get(step).copied().unwrap_or(0);
        wall_ns += end.saturating_sub(begin.copied().unwrap_or(0)) as f64;
        cpu_ns += component.cpu_ns.get(step).copied().unwrap_or(0) as f64;
    }
    if wall_ns > 0.0 { cpu_ns / wall_ns } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use meshtax_model::plan::TrialId;
    use meshtax_model::trial::ComponentUsage;

    use super::*;

    fn series(read: &[u64]) -> (UsageSeries, ComponentSeries) {
        let ends_ns = (1..=read.len() as u64).map(|n| n * 100_000_000).collect();
        let series = UsageSeries {
            ends_ns,
            components: Vec::new(),
        };
        let component = ComponentSeries {
            role: ComponentRole::App,
            cpu_ns: Vec::new(),
            anonymous_bytes: read.to_vec(),
        };
        (series, component)
    }

    #[test]
    fn growth_is_measured_from_the_first_to_the_last_reading() {
        let (steps, app) = series(&[100, 200, 300, 400, 500]);
        let growth = Growth::of(&steps, &app).unwrap();
        assert_eq!((growth.bytes, growth.bytes_per_s), (400.0, 1000.0));
        assert_eq!((growth.from_bytes, growth.growing_share), (100.0, 1.0));
        let (steps, app) = series(&[100, 200, 200, 200, 200]);
        assert_eq!(Growth::of(&steps, &app).unwrap().growing_share, 0.25);
        let (steps, app) = series(&[100, 200, 300]);
        assert_eq!(Growth::of(&steps, &app), None);
    }

    fn proxies(each: &[u64]) -> ResourceSample {
        let proxy = |anonymous_bytes: &u64| ComponentUsage {
            // Zero represents a process of unknown memory.
            memory: (*anonymous_bytes > 0).then_some(Memory {
                anonymous_bytes: *anonymous_bytes,
                file_bytes: 10,
                ..Memory::default()
            }),
            ..ComponentUsage::new("", ComponentRole::ServerProxy)
        };
        ResourceSample {
            components: each.iter().map(proxy).collect(),
            ..ResourceSample::new(TrialId::new(1, 1, 1))
        }
    }

    #[test]
    fn role_sums_its_processes_and_shares_one_program_copy_per_node() {
        let two = proxies(&[100, 1]);
        let sum = held(&two, ComponentRole::ServerProxy).unwrap();
        assert_eq!((sum.anonymous_bytes, sum.file_bytes), (101, 20));
        assert_eq!(
            resident(&two, &[ComponentRole::ServerProxy], None),
            Some((101, 10))
        );
        assert_eq!(anonymous_bytes(&two), Some(101.0));
        assert_eq!(resident(&two, &[ComponentRole::ClientProxy], None), None);
    }

    /// Three pods on two nodes: each node has its own copy of the program, and its own pods' pages.
    #[test]
    fn file_pages_are_counted_once_per_node() {
        let mut sample = proxies(&[100, 200, 300]);
        for (component, node) in sample.components.iter_mut().zip([0, 1, 0]) {
            component.node = node;
        }
        sample.components.push(ComponentUsage {
            memory: Some(Memory {
                anonymous_bytes: 7,
                file_bytes: 3,
                ..Memory::default()
            }),
            ..ComponentUsage::new("", ComponentRole::App)
        });
        let all = resident(&sample, &[ComponentRole::ServerProxy], None);
        assert_eq!(all, Some((600, 20)), "a copy for each node");
        let on = |node| of_node(&[&sample], node, NodeRole::Server).unwrap();
        let (first, second) = (on(0), on(1));
        assert_eq!((first.anonymous_bytes, first.file_bytes), (407, 13));
        assert_eq!((second.anonymous_bytes, second.file_bytes), (200, 10));
        assert_eq!(first.proxy_file_bytes, Some(10));
        assert_eq!(of_node(&[&sample], 2, NodeRole::Server), None);
    }

    #[test]
    fn unknown_memory_of_one_process_makes_the_sum_unknown() {
        let unknown = proxies(&[1, 0]);
        assert_eq!(held(&unknown, ComponentRole::ServerProxy), None);
        assert_eq!(
            resident(&unknown, &[ComponentRole::ServerProxy], None),
            None
        );
        assert_eq!(anonymous_bytes(&unknown), None);
    }
}
