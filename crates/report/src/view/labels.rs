//! How variants, roles and metrics are called in tables and pictures.

use meshtax_model::analysis::{CpuAccount, Metric};
use meshtax_model::experiment::{Role, Variant};
use meshtax_model::margins::Margins;
use meshtax_model::trial::ComponentRole;

use super::table::{Cell, Tone};
use crate::format::{CPU_MS_PER_1K, MIB, MICROSECONDS, Unit, grouped, trimmed};

/// Marks differences outside the adjusted family.
pub(crate) const UNADJUSTED: &str = "†";

/// A variant's name in the first column.
pub(crate) fn name_cell(variant: &Variant) -> Cell {
    match variant.role {
        Role::Control => Cell::text(format!("{} (A/A)", variant.id)).toned(Tone::Muted),
        Role::Baseline => Cell::text(variant.id.0.clone()),
        Role::Candidate => Cell::text(variant.id.0.clone()).toned(Tone::Strong),
    }
}

/// CPU of all components with a role, in ms per 1,000 requests.
pub(crate) fn role_cpu(cpu: &CpuAccount, role: ComponentRole) -> Option<String> {
    let mut of_role = cpu.components.iter().filter(|c| c.role == role).peekable();
    of_role.peek()?;
    let per_request_ns: f64 = of_role.map(|c| c.cpu_per_request_ns).sum();
    let value = per_request_ns * CPU_MS_PER_1K.factor;
    let decimals = usize::from(value.abs() < 10.0);
    Some(grouped(value, decimals))
}

/// The roles of components, in the order of a table, and how they are called.
pub(crate) const ROLES: [(ComponentRole, &str); 9] = [
    (ComponentRole::App, "app"),
    (ComponentRole::ClientProxy, "client proxy"),
    (ComponentRole::ServerProxy, "server proxy"),
    (ComponentRole::Waypoint, "waypoint"),
    (ComponentRole::Gateway, "gateway"),
    (ComponentRole::ControlPlane, "control plane"),
    (ComponentRole::Generator, "generator"),
    (ComponentRole::Idle, "idle variants"),
    (ComponentRole::Harness, "meshtax"),
];

/// What a component is called.
pub(crate) fn role_name(role: ComponentRole) -> &'static str {
    let mut names = ROLES.iter();
    names
        .find(|(of, _)| *of == role)
        .map_or("", |(_, name)| name)
}

/// A margin: `±2 %`.
pub(crate) fn margin(margins: &Margins, metric: Metric) -> String {
    format!("±{} %", trimmed(metric.margin(margins).abs() * 100.0))
}

/// The unit of a metric in a table.
pub(crate) fn unit(metric: Metric) -> Unit {
    match metric {
        Metric::CpuPerRequest => CPU_MS_PER_1K,
        Metric::AnonymousMemory => MIB,
        Metric::Throughput => Unit {
            factor: 1.0,
            name: "/s",
        },
        Metric::ResponseP50
        | Metric::ResponseP90
        | Metric::ResponseP99
        | Metric::ResponseP999
        | Metric::ResponseMean => MICROSECONDS,
    }
}
