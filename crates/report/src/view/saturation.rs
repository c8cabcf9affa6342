//! An application that is scaled to saturate: how its work was found, and its share of the CPU.

use std::collections::BTreeSet;

use meshtax_model::analysis::{CpuAccount, Point};
use meshtax_model::environment::NodeRole;
use meshtax_model::experiment::{LoadPoint, Role, Variant};
use meshtax_model::saturation::{Burst, Saturation};
use meshtax_model::trial::ComponentRole;

use crate::format::{grouped, signed, three_digits};
use crate::view::labels::name_cell;
use crate::view::source::{Source, point_of};
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// The rate of a saturated application does not grow by more than this with the number of connections, as a share.
const FLAT: f64 = 0.1;

/// Empty: the run scales no work.
pub(crate) fn tables(source: Source<'_>) -> Vec<Table> {
    let found = source.analysis.experiment.saturation.as_ref();
    let calibration = found.filter(|found| !found.is_open()).map(calibration);
    calibration.into_iter().chain(shares(source)).collect()
}

/// What was measured before the first round, and what was chosen.
fn calibration(saturation: &Saturation) -> Table {
    let right = |head: &str| Column::new(head, Align::Right, Keep::Always);
    let reached = saturation.reached();
    let row = |(number, burst): (usize, &Burst)| {
        let is_chosen = reached.is_some_and(|chosen| std::ptr::eq(chosen, burst));
        let tone = match is_chosen {
            true => Tone::Strong,
            false => Tone::Plain,
        };
        let cpu = burst.app_cpu_ns.map(milliseconds);
        vec![
            Cell::text((number + 1).to_string()).toned(tone),
            Cell::text(grouped(burst.steps_per_request.round(), 0)),
            cpu.map_or_else(Cell::missing, Cell::text),
            Cell::text(grouped(burst.rate_per_s, 1)).toned(tone),
        ]
    };
    Table {
        title: "Calibration of the application".to_owned(),
        detail: format!(
            "without a mesh, before the first round: work is added until it saturates at {} requests/s",
            grouped(saturation.rate_per_s, 1)
        ),
        columns: vec![
            right("burst"),
            right("steps of work"),
            right("application ms"),
            right("req/s"),
        ],
        rows: saturation.bursts.iter().enumerate().map(row).collect(),
        footnotes: vec![
            (String::new(), chosen(saturation)),
            (
                String::new(),
                "steps of work and CPU time (ms) of all services together, per request of a client"
                    .to_owned(),
            ),
        ],
    }
}

/// `chosen: productpage 1.7 ms, … of CPU for each request that it receives. Saturates at 156.2 requests/s (-0.8 %)`.
fn chosen(saturation: &Saturation) -> String {
    let services = saturation.services.iter();
    if services.clone().all(|service| service.burn_steps == 0) {
        return "the application is already slower than that: no work was added".to_owned();
    }
    let of_service = |service: &meshtax_model::saturation::ChosenWork| {
        let amount = service.added_cpu_ns.map_or_else(
            || format!("{} steps", grouped(service.burn_steps as f64, 0)),
            |ns| format!("{} ms", milliseconds(ns)),
        );
        format!("{} {amount}", service.service)
    };
    let each: Vec<String> = services.map(of_service).collect();
    let saturates = saturation.reached().map_or_else(String::new, |burst| {
        format!(
            ". The application then saturates at {} requests/s ({} %)",
            grouped(burst.rate_per_s, 1),
            signed((burst.rate_per_s / saturation.rate_per_s - 1.0) * 100.0, 1)
        )
    });
    format!(
        "chosen: {} of added CPU time for each request that the service receives{saturates}",
        each.join(", ")
    )
}

fn milliseconds(ns: f64) -> String {
    three_digits(ns / 1e6)
}

/// The application's share of the CPU in closed loops, where a study is reproduced or work is scaled.
fn shares(source: Source<'_>) -> Option<Table> {
    let experiment = &source.analysis.experiment;
    if experiment.study.is_none() && experiment.saturation.is_none() {
        return None;
    }
    let cores = tested_cores(source);
    let mut rows = Vec::new();
    for load in source.points().filter(|point| !point.is_steady()) {
        for (asked, found) in source.measured() {
            let at = point_of(found, &load.id);
            rows.extend(at.and_then(|at| row((source, load), asked, at, cores)));
        }
    }
    let right = |head: String| Column::new(head, Align::Right, Keep::Always);
    (!rows.is_empty()).then(|| Table {
        title: "The application's share of CPU".to_owned(),
        detail: "of the CPU time of all processes except the load generator".to_owned(),
        columns: vec![
            right("connections".to_owned()),
            Column::new("variant", Align::Left, Keep::Always),
            right("req/s".to_owned()),
            right("application ms".to_owned()),
            right("proxies ms".to_owned()),
            right("application's share".to_owned()),
            right(match cores {
                Some(cores) => format!("cores of {cores}"),
                None => "cores".to_owned(),
            }),
        ],
        rows,
        footnotes: footnotes(source),
    })
}

/// The cores on which everything but the generator runs; `None`: not pinned.
fn tested_cores(source: Source<'_>) -> Option<usize> {
    let of_role = |role| source.analysis.environment.tested_cores(role);
    let cores: BTreeSet<(u32, u32)> = [NodeRole::Client, NodeRole::Server]
        .into_iter()
        .flat_map(of_role)
        .collect();
    (!cores.is_empty()).then_some(cores.len())
}

fn row(
    (source, load): (Source<'_>, &LoadPoint),
    asked: &Variant,
    at: &Point,
    cores: Option<usize>,
) -> Option<Vec<Cell>> {
    let cpu = at.cpu.as_ref()?;
    let app_ns = per_request_ns(cpu, |role| role == ComponentRole::App);
    let proxies_ns = per_request_ns(cpu, is_proxy);
    let all_ns = per_request_ns(cpu, |role| role != ComponentRole::Generator);
    let used = all_ns * at.achieved_per_s / 1e9;
    let is_full = cores.is_some_and(|cores| used > 0.9 * cores as f64);
    Some(vec![
        Cell::text(source.analysis.experiment.connections(load).to_string()),
        name_cell(asked),
        Cell::text(grouped(at.achieved_per_s, 1)),
        Cell::text(milliseconds(app_ns)),
        match proxies_ns > 0.0 {
            true => Cell::text(milliseconds(proxies_ns)),
            false => Cell::missing(),
        },
        share(cpu).map_or_else(Cell::missing, |share| {
            Cell::text(format!("{} %", grouped(share * 100.0, 0)))
        }),
        Cell::text(grouped(used, 2)).toned(match is_full {
            true => Tone::Strong,
            false => Tone::Plain,
        }),
    ])
}

fn is_proxy(role: ComponentRole) -> bool {
    matches!(
        role,
        ComponentRole::ClientProxy
            | ComponentRole::ServerProxy
            | ComponentRole::Waypoint
            | ComponentRole::Gateway
    )
}

fn per_request_ns(cpu: &CpuAccount, counts: impl Fn(ComponentRole) -> bool) -> f64 {
    let components = cpu.components.iter().filter(|c| counts(c.role));
    components
        .map(|component| component.cpu_per_request_ns)
        .sum()
}

fn footnotes(source: Source<'_>) -> Vec<(String, String)> {
    let units =
        "application ms and proxies ms: CPU time per request of a client; proxies include gateways"
            .to_owned();
    let saturates = saturates(source);
    saturates
        .into_iter()
        .chain([units])
        .map(|text| (String::new(), text))
        .collect()
}

/// A closed loop of the baseline.
struct Loop {
    connections: u32,
    rate_per_s: f64,
    /// The application's share of the CPU; `None`: CPU was not read.
    application: Option<f64>,
}

/// Whether the application saturates; `None`: there is one number of connections only.
fn saturates(source: Source<'_>) -> Option<String> {
    let experiment = &source.analysis.experiment;
    let (_, baseline) = source
        .measured()
        .find(|(asked, _)| asked.role == Role::Baseline)?;
    let of_point = |point: &LoadPoint| {
        let at = point_of(baseline, &point.id)?;
        (at.achieved_per_s > 0.0).then(|| Loop {
            connections: experiment.connections(point),
            rate_per_s: at.achieved_per_s,
            application: at.cpu.as_ref().and_then(share),
        })
    };
    let closed = source.points().filter(|point| !point.is_steady());
    let loops: Vec<Loop> = closed.filter_map(of_point).collect();
    let fewest = loops.iter().min_by_key(|of| of.connections)?;
    let most = loops.iter().max_by_key(|of| of.connections)?;
    (fewest.connections < most.connections).then(|| saturation_sentence(fewest, most))
}

/// Of the CPU time of all processes except the load generator.
fn share(cpu: &CpuAccount) -> Option<f64> {
    let all_ns = per_request_ns(cpu, |role| role != ComponentRole::Generator);
    let app_ns = per_request_ns(cpu, |role| role == ComponentRole::App);
    (all_ns > 0.0).then(|| app_ns / all_ns)
}

/// A rate that does not grow any more shows that something is saturated, and the larger part of the CPU what it is.
fn saturation_sentence(fewest: &Loop, most: &Loop) -> String {
    let growth = most.rate_per_s / fewest.rate_per_s - 1.0;
    let verdict = match (growth <= FLAT, most.application) {
        (false, _) => "not saturated with the fewer connections",
        (true, Some(share)) if share > 0.5 => "the application saturates",
        (true, Some(_)) => {
            "saturated, but not by the application, which has less than half of the CPU"
        }
        (true, None) => "saturated; without CPU figures the cause is unknown",
    };
    format!(
        "{verdict}: without a mesh, {} instead of {} connections change the rate by {} %",
        most.connections,
        fewest.connections,
        signed(growth * 100.0, 1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_saturates_only_if_the_rate_is_flat_and_most_of_the_cpu_is_its_own() {
        let sentence = |rate_per_s, application| {
            let of = |connections, rate_per_s| Loop {
                connections,
                rate_per_s,
                application,
            };
            saturation_sentence(&of(32, 157.0), &of(128, rate_per_s))
        };
        for (rate_per_s, application, expected) in [
            (166.0, Some(0.88), "the application saturates: without"),
            (152.0, Some(0.88), "the application saturates: without"),
            (
                180.0,
                Some(0.88),
                "not saturated with the fewer connections: without",
            ),
            (157.0, Some(0.2), "saturated, but not by the application"),
            (157.0, None, "saturated; without CPU figures"),
        ] {
            let said = sentence(rate_per_s, application);
            assert!(said.starts_with(expected), "{said}");
        }
        let said = sentence(166.0, Some(0.88));
        assert!(
            said.ends_with("128 instead of 32 connections change the rate by +5.7 %"),
            "{said}"
        );
    }
}
