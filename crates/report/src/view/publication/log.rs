//! The course of the run: its steps, rounds and interruptions, and whose CPU it followed.

use meshtax_model::analysis::RoundLog;
use meshtax_model::trial::ComponentRole;
use meshtax_published::PageContent;

use crate::format::{duration, grouped};
use crate::view::reasons::invalid;
use crate::view::source::Source;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

fn left(head: &str) -> Column {
    Column::new(head, Align::Left, Keep::Always)
}

fn right(head: &str) -> Column {
    Column::new(head, Align::Right, Keep::Always)
}

/// How long each step took; `None`: nothing was measured.
pub(super) fn steps(source: Source<'_>) -> Option<Table> {
    let run = &source.analysis.run;
    let log = &source.analysis.round_log;
    let first = log.first()?;
    let step = |name: String, ns: u64| vec![Cell::text(name), Cell::text(duration(ns))];
    let rounds = match log.len() {
        1 => "1 round".to_owned(),
        count => format!("{count} rounds"),
    };
    let of_rounds = run.took_ns.saturating_sub(first.at_ns);
    Some(Table {
        title: "Steps".to_owned(),
        detail: "each round starts and verifies all variants anew".to_owned(),
        columns: vec![left("step"), right("took")],
        rows: vec![
            step(before_first_trial(source), first.at_ns),
            step(format!("{rounds}, from the first trial on"), of_rounds),
            step("the whole run".to_owned(), run.took_ns),
        ],
        footnotes: Vec::new(),
    })
}

/// All that is done once, in its order.
fn before_first_trial(source: Source<'_>) -> String {
    let saturation = source.analysis.experiment.saturation.as_ref();
    let bursts = saturation.map_or(0, |saturation| saturation.bursts.len());
    let scaled = match bursts {
        0 => String::new(),
        1 => "application calibrated (1 burst), ".to_owned(),
        _ => format!("application calibrated ({bursts} bursts), "),
    };
    format!("environment built, {scaled}first round started and verified")
}

/// What was measured in each round.
pub(super) fn rounds(source: Source<'_>) -> Option<Table> {
    let log = &source.analysis.round_log;
    let ends = log.iter().skip(1).map(|next| next.at_ns);
    let ends = ends.chain([source.analysis.run.took_ns]);
    let rows: Vec<Vec<Cell>> = log.iter().zip(ends).map(row).collect();
    (!rows.is_empty()).then(|| Table {
        title: "Rounds".to_owned(),
        detail: "trials of all variants and loads; invalid ones are in no figure".to_owned(),
        columns: vec![
            right("round"),
            right("began after"),
            right("took"),
            right("trials"),
            right("invalid"),
            left("why"),
            left("failed"),
        ],
        rows,
        footnotes: Vec::new(),
    })
}

fn row((log, end_ns): (&RoundLog, u64)) -> Vec<Cell> {
    let count: u32 = log.invalid.values().sum();
    let why = log.invalid.iter();
    let why: Vec<String> = why
        .map(|(reason, count)| format!("{} ({count})", invalid(*reason)))
        .collect();
    let failed: Vec<&str> = log.failed.iter().map(|id| id.0.as_str()).collect();
    let tone = match count {
        0 => Tone::Plain,
        _ => Tone::Bad,
    };
    vec![
        Cell::text(log.round.to_string()),
        Cell::text(duration(log.at_ns)),
        Cell::text(duration(end_ns.saturating_sub(log.at_ns))),
        Cell::text(grouped(f64::from(log.trials), 0)),
        Cell::text(grouped(f64::from(count), 0)).toned(tone),
        Cell::text(why.join("; ")),
        Cell::text(failed.join(", ")),
    ]
}

/// Where the run was interrupted and continued.
pub(super) fn interruptions(source: Source<'_>) -> Vec<String> {
    let resumptions = source.analysis.run.resumptions.iter();
    let sentence = |resumed: &meshtax_model::event::Resumption| {
        format!(
            "Interrupted after round {} and continued {} later",
            resumed.after_round,
            duration(resumed.paused_ns)
        )
    };
    resumptions.map(sentence).collect()
}

/// What a study's page shows of a role's CPU.
const ROLES: [(ComponentRole, PageContent); 5] = [
    (ComponentRole::App, PageContent::ApplicationCpu),
    (ComponentRole::ClientProxy, PageContent::ProxyCpu),
    (ComponentRole::ServerProxy, PageContent::ProxyCpu),
    (ComponentRole::Waypoint, PageContent::ProxyCpu),
    (ComponentRole::Gateway, PageContent::IngressCpu),
];

/// Whose CPU the run followed.
pub(super) fn roles(source: Source<'_>) -> Vec<PageContent> {
    let moments = || source.measured().flat_map(|(_, found)| &found.timeline);
    let is_here = |role: ComponentRole| moments().any(|m| m.roles.iter().any(|r| r.role == role));
    let found = ROLES.into_iter().filter(|(role, _)| is_here(*role));
    found.map(|(_, content)| content).collect()
}

/// What has no chart of its own.
pub(super) fn absent(source: Source<'_>) -> &'static str {
    match source.analysis.environment.is_local() {
        true => {
            "CPU of control planes: cluster only, because meshtax's emulation of them is no substitute. CPU of the network \
             plugin (CNI): not measured by any engine, and one machine has none."
        }
        false => {
            "CPU of the network plugin (CNI): not measured by any engine. CPU of ingress gateways: local engine only."
        }
    }
}
