//! Limits on the CPU and memory of proxies, and what they did.

use meshtax_model::analysis::{CpuAccount, VariantAnalysis};
use meshtax_model::pods::{ProxyRole, Quantities};
use meshtax_model::trial::{ComponentRole, Throttled};

use crate::format::{bytes, duration, grouped, trimmed};
use crate::view::labels::{ROLES, role_cpu};
use crate::view::source::{Source, at_load, point_of};

/// What *throttled* means in a table.
pub(crate) const THROTTLED: &str = "throttled: the share of the periods of 100 ms in which a proxy used up its CPU limit and had to wait";

/// Limits on the proxies' CPU and memory, and what they did at each load point.
pub(crate) fn notes(source: Source<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    for (asked, found) in source.measured() {
        let limited: Vec<String> = asked.limits.iter().map(limit).collect();
        if limited.is_empty() {
            continue;
        }
        let mut text = format!("{}: limited to {}", asked.id, limited.join("; "));
        for point in source.points() {
            let of_point = point_of(found, &point.id).and_then(|of| of.cpu.as_ref());
            let waits: Vec<String> = of_point.into_iter().flat_map(waits).collect();
            if !waits.is_empty() {
                let at = at_load(point);
                text.push_str(&format!(". Throttled {at}: {}", waits.join(", ")));
            }
        }
        texts.push(text + ".");
    }
    texts
}

/// `2 CPU and 1.0 GiB for each waypoint`.
fn limit((role, quantities): (&ProxyRole, &Quantities)) -> String {
    let mut roles = ROLES.iter();
    let name = roles.find(|(of, _)| of.limited() == Some(*role));
    let name = name.map_or("", |(_, name)| name);
    format!("{} for each {name}", words(quantities))
}

/// What the limits did to the proxies of each role that they held back.
fn waits(cpu: &CpuAccount) -> Vec<String> {
    let of_role = |(role, name): &(ComponentRole, &str)| {
        let throttled = role_throttled(cpu, *role)?;
        (throttled.throttled_periods > 0).then(|| {
            format!(
                "{name} in {} of the periods of 100 ms, {} in all",
                throttled_share(&throttled),
                duration(throttled.throttled_ns)
            )
        })
    };
    ROLES.iter().filter_map(of_role).collect()
}

/// `193`, with what its limit did if it has one: `193 (throttled 43 %)`.
pub(crate) fn cpu_text(cpu: &CpuAccount, role: ComponentRole) -> Option<String> {
    let mut text = role_cpu(cpu, role)?;
    if let Some(throttled) = role_throttled(cpu, role) {
        text.push_str(&format!(" (throttled {})", throttled_share(&throttled)));
    }
    Some(text)
}

/// What the CPU limits did to all components with a role; `None`: they have none.
fn role_throttled(cpu: &CpuAccount, role: ComponentRole) -> Option<Throttled> {
    let of_role = cpu.components.iter().filter(|c| c.role == role);
    of_role
        .filter_map(|component| component.throttled)
        .reduce(Throttled::plus)
}

/// The share of the periods in which a component had to wait: `43 %`.
fn throttled_share(throttled: &Throttled) -> String {
    let periods = throttled.periods.max(1) as f64;
    let share = throttled.throttled_periods as f64 / periods;
    format!("{} %", grouped(share * 100.0, 0))
}

/// `0.5 CPU and 64 MiB`.
fn words(quantities: &Quantities) -> String {
    let cpu = quantities.cpu_millis;
    let cpu = cpu.map(|millis| format!("{} CPU", trimmed(millis as f64 / 1000.0)));
    let memory = quantities.memory_bytes.map(bytes);
    let all: Vec<String> = cpu.into_iter().chain(memory).collect();
    all.join(" and ")
}

/// Whether any of a variant's components has a CPU limit.
pub(crate) fn is_throttled(found: &VariantAnalysis) -> bool {
    let accounts = found.points.iter().filter_map(|point| point.cpu.as_ref());
    let mut components = accounts.flat_map(|cpu| &cpu.components);
    components.any(|component| component.throttled.is_some())
}
