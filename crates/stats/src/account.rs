//! The CPU account of one variant and load point.

use std::collections::BTreeMap;

use meshtax_model::analysis::{ComponentCpu, CpuAccount, LinkPerRequest};
use meshtax_model::trial::{ComponentRole, MachineUsage, ResourceSample, Throttled};

/// The roles whose CPU is the cost of a request: the processes in its path, without the
/// generator, and without processes that only the measurement needs.
pub const IN_PATH: [ComponentRole; 5] = [
    ComponentRole::App,
    ComponentRole::ClientProxy,
    ComponentRole::ServerProxy,
    ComponentRole::Waypoint,
    ComponentRole::Gateway,
];

/// CPU of the path per completed request in nanoseconds.
///
/// `None` without requests, or if the sample has no component of the path or none that used
/// any time: then it was not read, which is not the same as free.
#[must_use]
pub fn cpu_per_request_ns(sample: &ResourceSample, completed: u64) -> Option<f64> {
    let in_path = sample
        .components
        .iter()
        .filter(|component| IN_PATH.contains(&component.role));
    let cpu_ns: u64 = in_path.fold(0, |sum, c| sum.saturating_add(c.cpu_ns));
    (cpu_ns > 0 && completed > 0).then(|| cpu_ns as f64 / completed as f64)
}

/// An account, with its inconsistencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The reported figures.
    pub shown: CpuAccount,
    /// The components used more than the machine's busy time, by more than the kernel's
    /// step can explain: one of the two clocks is wrong.
    pub exceeded: bool,
    /// Cores × wall time in nanoseconds.
    pub capacity_ns: u64,
}

/// Sums over trials, each with its completed requests. `None` if there are none.
#[must_use]
pub fn account(trials: &[(&ResourceSample, u64)]) -> Option<Account> {
    if trials.is_empty() {
        return None;
    }
    let sum = |figure: &dyn Fn(&ResourceSample) -> u64| {
        trials
            .iter()
            .fold(0_u64, |sum, (sample, _)| sum.saturating_add(figure(sample)))
    };
    let busy_ns = trials.iter().fold(0_i64, |sum, (sample, _)| {
        sum.saturating_add(sample.busy_ns())
    });
    let attributed_ns = sum(&ResourceSample::attributed_ns);
    let requests = trials
        .iter()
        .fold(0_u64, |sum, (_, completed)| sum.saturating_add(*completed));
    let resolution_ns = resolution_ns(trials.iter().flat_map(|(sample, _)| &sample.machines));
    let rest = i128::from(busy_ns) - i128::from(attributed_ns);
    let resolved = rest.unsigned_abs() > u128::from(resolution_ns);
    Some(Account {
        shown: CpuAccount {
            busy_ns,
            attributed_ns,
            unattributed_ns: u64::try_from(rest).ok().filter(|_| resolved),
            resolution_ns,
            steal_ns: sum(&|sample| sample.over_machines(|machine| machine.steal_ns)),
            interrupts_ns: sum(&|sample| sample.over_machines(|machine| machine.interrupts_ns)),
            kernel_threads_ns: known(trials, |machine| machine.kernel_threads_ns),
            bpf_ns: known(trials, |machine| machine.bpf_ns),
            links: links(trials, requests),
            requests,
            components: components(trials, busy_ns, requests),
        },
        exceeded: resolved && rest < 0,
        capacity_ns: sum(&|sample| sample.over_machines(MachineUsage::capacity_ns)),
    })
}

/// A sum over the trials; `None` if one of them lacks the value.
fn known(
    trials: &[(&ResourceSample, u64)],
    figure: impl Fn(&MachineUsage) -> Option<u64>,
) -> Option<u64> {
    let figures = trials.iter();
    figures
        .map(|(sample, _)| sample.known_on_machines(&figure))
        .sum()
}

fn links(trials: &[(&ResourceSample, u64)], requests: u64) -> Vec<LinkPerRequest> {
    if requests == 0 {
        return Vec::new();
    }
    let mut sums: BTreeMap<ComponentRole, [f64; 2]> = BTreeMap::new();
    for link in trials.iter().flat_map(|(sample, _)| &sample.links) {
        let sum = sums.entry(link.role).or_default();
        sum[0] += link.received_bytes as f64;
        sum[1] += link.sent_bytes as f64;
    }
    let of_role = |(role, sum): (ComponentRole, [f64; 2])| LinkPerRequest {
        role,
        received_bytes: sum[0] / requests as f64,
        sent_bytes: sum[1] / requests as f64,
    };
    sums.into_iter().map(of_role).collect()
}

/// The error of the busy time: two standard deviations of the sum over the trials.
///
/// The kernel keeps the idle time exactly and prints each line in whole steps: a reading of one is short by
/// something between zero and one step, uniformly distributed, with variance step²/12. A trial has two readings of
/// each line, and as many columns as changed (an unchanged one is short by the same in both). The errors are
/// independent, so variances add up over lines, columns, machines and trials.
fn resolution_ns<'a>(machines: impl Iterator<Item = &'a MachineUsage>) -> u64 {
    let variance: f64 = machines
        .map(|machine| {
            let others = [machine.iowait_ns, machine.steal_ns];
            let columns = 1 + others.iter().filter(|ns| **ns > 0).count();
            let readings = 2.0 * columns as f64 * f64::from(machine.lines.max(1));
            readings * (machine.resolution_ns as f64).powi(2) / 12.0
        })
        .sum();
    // The cast saturates.
    (2.0 * variance.sqrt()).round() as u64
}

/// The usage of a role, over processes and trials. A value that is `None` for one is `None` for all.
struct RoleSum {
    cpu_ns: u64,
    system_ns: Option<u64>,
    switches: Option<u64>,
    /// Of those that have a limit.
    throttled: Option<Throttled>,
}

fn components(trials: &[(&ResourceSample, u64)], busy_ns: i64, requests: u64) -> Vec<ComponentCpu> {
    if requests == 0 {
        return Vec::new();
    }
    let mut by_role: BTreeMap<ComponentRole, RoleSum> = BTreeMap::new();
    for component in trials.iter().flat_map(|(sample, _)| &sample.components) {
        let sum = by_role.entry(component.role).or_insert(RoleSum {
            cpu_ns: 0,
            system_ns: Some(0),
            switches: Some(0),
            throttled: None,
        });
        let plus = |sum: Option<u64>, more: Option<u64>| Some(sum?.saturating_add(more?));
        sum.cpu_ns = sum.cpu_ns.saturating_add(component.cpu_ns);
        sum.system_ns = plus(sum.system_ns, component.system_ns);
        sum.switches = plus(sum.switches, component.context_switches);
        sum.throttled = match (sum.throttled, component.throttled) {
            (Some(so_far), Some(more)) => Some(so_far.plus(more)),
            (so_far, more) => so_far.or(more),
        };
    }
    let each = |count: u64| count as f64 / requests as f64;
    let of_role = |(role, sum): (ComponentRole, RoleSum)| ComponentCpu {
        role,
        cpu_per_request_ns: each(sum.cpu_ns),
        // Sampled by another clock, it can exceed the total.
        system_per_request_ns: sum.system_ns.map(|ns| each(ns.min(sum.cpu_ns))),
        switches_per_request: sum.switches.map(each),
        share_of_busy: (busy_ns > 0).then(|| sum.cpu_ns as f64 / busy_ns as f64),
        throttled: sum.throttled,
    };
    by_role.into_iter().map(of_role).collect()
}

/// The lower median; `None` if there is nothing.
#[must_use]
pub fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    let middle = values.len().checked_sub(1)? / 2;
    values.get(middle).copied()
}

#[cfg(test)]
mod tests {
    use meshtax_model::plan::TrialId;
    use meshtax_model::trial::{ComponentUsage, LinkUsage};

    use super::*;

    const MS: u64 = 1_000_000;

    fn component(role: ComponentRole, cpu_ms: u64) -> ComponentUsage {
        ComponentUsage {
            cpu_ns: cpu_ms * MS,
            system_ns: Some(cpu_ms * MS / 4),
            ..ComponentUsage::new("", role)
        }
    }

    fn sample(idle_ms: u64, components: Vec<ComponentUsage>) -> ResourceSample {
        ResourceSample {
            components,
            machines: vec![MachineUsage {
                wall_ns: 500 * MS,
                cores: 2,
                idle_ns: idle_ms * MS,
                resolution_ns: 10 * MS,
                ..MachineUsage::default()
            }],
            ..ResourceSample::new(TrialId::new(1, 1, 1))
        }
    }

    #[test]
    fn cpu_per_request_counts_app_and_proxies_only() {
        let s = sample(
            0,
            vec![
                component(ComponentRole::Generator, 400),
                component(ComponentRole::App, 100),
                component(ComponentRole::ClientProxy, 20),
                component(ComponentRole::ServerProxy, 30),
                component(ComponentRole::Idle, 7),
                component(ComponentRole::Harness, 3),
            ],
        );
        assert_eq!(cpu_per_request_ns(&s, 1000), Some(150_000.0));
        assert_eq!(cpu_per_request_ns(&s, 0), None);
        assert_eq!(cpu_per_request_ns(&sample(0, Vec::new()), 10), None);
    }

    #[test]
    fn unattributed_time_is_shown_only_above_the_clock_resolution() {
        let parts = || vec![component(ComponentRole::App, 600)];
        // 1000 ms of capacity, 300 idle: 700 busy, 100 not attributed. Two readings:
        // 2 sqrt(2 x 100 / 12) = 8.2 ms.
        let s = sample(300, parts());
        let account = account(&[(&s, 500)]).unwrap();
        assert_eq!(account.shown.busy_ns, 700 * MS as i64);
        assert_eq!(account.shown.resolution_ns, 8_164_966);
        assert_eq!(account.shown.unattributed_ns, Some(100 * MS));
        assert_eq!(account.shown.components[0].cpu_per_request_ns, 1_200_000.0);
        let share = account.shown.components[0].share_of_busy.unwrap();
        assert!((share - 6.0 / 7.0).abs() < 1e-12);
        assert!(!account.exceeded);

        let near = sample(395, parts());
        let near = super::account(&[(&near, 500)]).unwrap();
        assert_eq!((near.shown.unattributed_ns, near.exceeded), (None, false));
        let below = sample(405, parts());
        let below = super::account(&[(&below, 500)]).unwrap();
        assert_eq!((below.shown.unattributed_ns, below.exceeded), (None, false));
        let wrong = sample(450, parts());
        let wrong = super::account(&[(&wrong, 500)]).unwrap();
        assert_eq!((wrong.shown.unattributed_ns, wrong.exceeded), (None, true));
    }

    #[test]
    fn sum_is_absent_if_one_trial_lacks_the_figure() {
        let mut known = sample(300, vec![component(ComponentRole::App, 100)]);
        known.machines[0].bpf_ns = Some(5);
        known.components[0].context_switches = Some(50);
        known.links.push(LinkUsage {
            role: ComponentRole::App,
            received_bytes: 1_000,
            sent_bytes: 20_000,
        });
        let shown = account(&[(&known, 10), (&known, 10)]).unwrap().shown;
        assert_eq!(shown.bpf_ns, Some(10));
        let app = &shown.components[0];
        assert_eq!(app.system_per_request_ns, Some(2_500_000.0));
        assert_eq!(app.switches_per_request, Some(5.0));
        assert_eq!(shown.links[0].sent_bytes, 2_000.0);
        let unknown = sample(300, vec![component(ComponentRole::App, 100)]);
        let shown = account(&[(&known, 10), (&unknown, 10)]).unwrap().shown;
        assert_eq!(
            (shown.bpf_ns, shown.components[0].switches_per_request),
            (None, None)
        );
    }

    #[test]
    fn throttling_is_summed_over_the_components_with_a_limit() {
        let limited = |waited: u64| ComponentUsage {
            throttled: Some(Throttled {
                periods: 5,
                throttled_periods: 2,
                throttled_ns: waited,
            }),
            ..component(ComponentRole::ServerProxy, 10)
        };
        let without = component(ComponentRole::ServerProxy, 10);
        let app = component(ComponentRole::App, 10);
        let first = sample(300, vec![limited(30), limited(10), app.clone()]);
        let second = sample(300, vec![limited(2), without, app]);
        let account = account(&[(&first, 10), (&second, 10)]).unwrap();
        let of = |role| {
            let mut all = account.shown.components.iter();
            all.find(|c| c.role == role).unwrap().throttled
        };
        let expected = Throttled {
            periods: 15,
            throttled_periods: 6,
            throttled_ns: 42,
        };
        assert_eq!(of(ComponentRole::ServerProxy), Some(expected));
        assert_eq!(of(ComponentRole::App), None);
    }

    #[test]
    fn resolution_grows_with_the_square_root_of_the_trials() {
        let s = sample(300, Vec::new());
        let one = account(&[(&s, 1)]).unwrap().shown.resolution_ns as f64;
        let many = account(&[(&s, 1); 100]).unwrap().shown.resolution_ns as f64;
        assert!((many / one - 10.0).abs() < 1e-6);
    }

    #[test]
    fn out_of_range_figures_saturate() {
        let mut s = sample(0, vec![component(ComponentRole::App, 1)]);
        s.machines[0].wall_ns = u64::MAX;
        s.machines[0].cores = u32::MAX;
        s.machines[0].resolution_ns = u64::MAX;
        s.components[0].cpu_ns = u64::MAX;
        let account = account(&[(&s, u64::MAX), (&s, u64::MAX)]).unwrap();
        assert_eq!(account.shown.busy_ns, i64::MAX);
        assert_eq!(super::account(&[]), None);
    }
}
