//! The cost of ingress through a gateway, next to the gateway's own usage.

use meshtax_model::analysis::{CpuAccount, IngressCost};
use meshtax_model::experiment::LoadPointId;
use meshtax_model::trial::ComponentRole;

use crate::format::{self, CPU_MS_PER_1K, grouped};
use crate::view::labels::name_cell;
use crate::view::source::{Source, load_in_words, point_of};
use crate::view::table::{Align, Cell, Column, Keep, Table};

/// `None`: no load of the run is there by ingress and from a pod.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    let costs = source.analysis.ingress.iter();
    let rows: Vec<Vec<Cell>> = costs.filter_map(|cost| row(source, cost)).collect();
    if rows.is_empty() {
        return None;
    }
    let unit = CPU_MS_PER_1K.name;
    Some(Table {
        title: "Ingress, compared with the same load from a pod".to_owned(),
        detail: "added by the path through the gateway; paired by block".to_owned(),
        columns: vec![
            Column::new("variant", Align::Left, Keep::Always),
            Column::new("load", Align::Left, Keep::Always),
            Column::new(format!("adds {unit}"), Align::Right, Keep::Always),
            Column::new("gateway", Align::Right, Keep::Always),
            Column::new("with its mesh proxy", Align::Right, Keep::Always),
        ],
        rows,
        footnotes: vec![(
            String::new(),
            "with its mesh proxy: gateway and its pod's sidecar, minus the client proxy of the path from a pod. \
             The path should add this much if everything else costs the same"
                .to_owned(),
        )],
    })
}

fn row(source: Source<'_>, cost: &IngressCost) -> Option<Vec<Cell>> {
    let (asked, found) = source
        .measured()
        .find(|(asked, _)| asked.id == cost.variant)?;
    let point = source.points().find(|point| point.id == cost.load_point)?;
    let account = |id: &LoadPointId| point_of(found, id)?.cpu.as_ref();
    let outside = account(&cost.load_point);
    let gateway = used(outside, ComponentRole::Gateway);
    let [near_gateway, near_client] =
        [outside, account(&cost.from_pod)].map(|cpu| used(cpu, ComponentRole::ClientProxy));
    // A role that is not there costs nothing; an account that is not there is not known.
    let expected = gateway
        .filter(|_| account(&cost.from_pod).is_some())
        .map(|own| own + near_gateway.unwrap_or(0.0) - near_client.unwrap_or(0.0));
    let cell = |ns: Option<f64>| ns.map_or_else(Cell::missing, |ns| Cell::text(in_unit(ns)));
    let adds = cost.difference.map_or_else(Cell::missing, |difference| {
        let (value, interval) = format::estimate(difference, CPU_MS_PER_1K);
        Cell::figure(value, interval.unwrap_or_default())
    });
    Some(vec![
        name_cell(asked),
        Cell::text(load_in_words(point)),
        adds,
        cell(gateway),
        cell(expected),
    ])
}

/// CPU per request of all components with a role, in nanoseconds; `None`: there is none.
fn used(cpu: Option<&CpuAccount>, role: ComponentRole) -> Option<f64> {
    let components = cpu?.components.iter();
    let mut of_role = components.filter(|c| c.role == role).peekable();
    of_role.peek()?;
    Some(of_role.map(|c| c.cpu_per_request_ns).sum())
}

fn in_unit(ns: f64) -> String {
    let value = ns * CPU_MS_PER_1K.factor;
    grouped(value, usize::from(value.abs() < 10.0))
}
