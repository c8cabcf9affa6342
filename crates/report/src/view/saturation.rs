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

/// Cores of which more than this share is used are fully used.
const FULL: f64 = 0.9;

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
        return "the application is slower than that by itself: no work was added".to_owned();
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
    let used = used_cores(cpu, at.achieved_per_s);
    let is_full = cores.is_some_and(|cores| used > FULL * cores as f64);
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
#[derive(Clone, Copy)]
struct Loop {
    connections: u32,
    rate_per_s: f64,
    /// `None`: CPU was not read, or there is no set of cores to compare it with.
    used: Option<Used>,
}

/// Whose the cores were.
#[derive(Clone, Copy)]
struct Used {
    /// The share of the tested cores' time that was used, 0 to 1.
    of_cores: f64,
    /// The application's share of the CPU that was used, 0 to 1.
    application: f64,
}

impl Used {
    fn of(cpu: &CpuAccount, rate_per_s: f64, cores: usize) -> Option<Self> {
        Some(Self {
            of_cores: used_cores(cpu, rate_per_s) / cores as f64,
            application: share(cpu)?,
        })
    }
}

/// Cores' worth of CPU time of all processes except the load generator.
fn used_cores(cpu: &CpuAccount, rate_per_s: f64) -> f64 {
    per_request_ns(cpu, |role| role != ComponentRole::Generator) * rate_per_s / 1e9
}

/// Whether the application saturates; `None`: there is one number of connections only.
fn saturates(source: Source<'_>) -> Option<String> {
    let experiment = &source.analysis.experiment;
    let (_, baseline) = source
        .measured()
        .find(|(asked, _)| asked.role == Role::Baseline)?;
    let cores = tested_cores(source);
    let of_point = |point: &LoadPoint| {
        let at = point_of(baseline, &point.id)?;
        (at.achieved_per_s > 0.0).then(|| Loop {
            connections: experiment.connections(point),
            rate_per_s: at.achieved_per_s,
            used: at
                .cpu
                .as_ref()
                .zip(cores)
                .and_then(|(cpu, cores)| Used::of(cpu, at.achieved_per_s, cores)),
        })
    };
    let closed: Vec<&LoadPoint> = source.points().filter(|point| !point.is_steady()).collect();
    let first = closed.first()?;
    // Rates of other requests say nothing of this application.
    let same = closed
        .iter()
        .filter(|point| differ_in_connections_only(first, point));
    let loops: Vec<Loop> = same.filter_map(|point| of_point(point)).collect();
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

/// Whether two closed loops send the same requests in the same way, over however many connections.
fn differ_in_connections_only(one: &LoadPoint, other: &LoadPoint) -> bool {
    let connections = |point: &LoadPoint| LoadPoint {
        id: one.id.clone(),
        connections: None,
        ..point.clone()
    };
    connections(one) == connections(other)
}

/// A rate that more connections do not change shows that something is saturated; cores that are all used by the
/// application show that it is the application.
fn saturation_sentence(fewest: &Loop, most: &Loop) -> String {
    let growth = most.rate_per_s / fewest.rate_per_s - 1.0;
    let verdict = match most.used {
        _ if growth > FLAT => "not saturated with the fewer connections",
        _ if growth < -FLAT => "beyond saturation: more connections lower the rate",
        None => "saturated; without CPU figures the cause is unknown",
        Some(used) if used.of_cores <= FULL => {
            "saturated, but not by the application: its cores are not fully used"
        }
        Some(used) if used.application <= 0.5 => {
            "saturated, but not by the application, which has less than half of the CPU"
        }
        Some(_) => "the application saturates",
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
        let sentence = |rate_per_s, used: Option<[f64; 2]>| {
            let used = used.map(|[of_cores, application]| Used {
                of_cores,
                application,
            });
            let of = |connections, rate_per_s| Loop {
                connections,
                rate_per_s,
                used,
            };
            saturation_sentence(&of(32, 157.0), &of(128, rate_per_s))
        };
        let full = Some([0.97, 0.88]);
        for (rate_per_s, used, expected) in [
            (166.0, full, "the application saturates: without"),
            (152.0, full, "the application saturates: without"),
            (180.0, full, "not saturated with the fewer connections:"),
            (90.0, full, "beyond saturation: more connections lower"),
            (
                157.0,
                Some([0.97, 0.2]),
                "saturated, but not by the application, which",
            ),
            (
                157.0,
                Some([0.4, 1.0]),
                "saturated, but not by the application: its cores",
            ),
            (157.0, None, "saturated; without CPU figures"),
        ] {
            let said = sentence(rate_per_s, used);
            assert!(said.starts_with(expected), "{said}");
        }
        let said = sentence(166.0, full);
        assert!(
            said.ends_with("128 instead of 32 connections change the rate by +5.7 %"),
            "{said}"
        );
    }
}
