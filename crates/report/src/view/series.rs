//! The combined results of the runs of one spec, each with its own topology.

use meshtax_model::analysis::Analysis;
use meshtax_model::topology::Topology;

use super::{charts, evidence, figures, headline, notes, study};
use crate::view::document::{EvidenceLine, Headline, View};
use crate::view::source::Source;
use crate::view::table::Table;

/// The runs of one spec, in their order. Each run also has its own report.
pub(crate) fn series(runs: &[Analysis]) -> View {
    let sources: Vec<Source<'_>> = runs.iter().map(|analysis| Source { analysis }).collect();
    let last = runs.last();
    View {
        title: title(runs),
        partial: partial(runs),
        lead: sources.first().map_or_else(
            || "Nothing was measured".to_owned(),
            |source| headline::lead(*source),
        ),
        headlines: sources.iter().flat_map(|s| headlines(*s)).collect(),
        meaning: last.map_or_else(Vec::new, |run| notes::meaning(&run.environment)),
        figures: charts::published::figure(&sources).into_iter().collect(),
        drawn: sources.first().map_or_else(Vec::new, |s| charts::drawn(*s)),
        tables: tables(&sources),
        evidence_title: "Evidence, run by run".to_owned(),
        evidence: lines(&sources),
        notes: all_notes(&sources),
        facts: facts(runs),
        ..View::default()
    }
}

/// What differs between the runs of one spec: `replicas-10`.
fn topology(topology: &Topology) -> String {
    match (&topology.name, topology.pods(), topology.server_nodes()) {
        (Some(name), _, _) => name.clone(),
        (None, 1, _) => "1 pod".to_owned(),
        (None, pods, 1) => format!("{pods} pods"),
        (None, pods, nodes) => format!("{pods} pods on {nodes} nodes"),
    }
}

fn name(run: &Analysis) -> String {
    topology(&run.experiment.topology)
}

fn title(runs: &[Analysis]) -> String {
    let first = runs.first().map(|run| (&run.experiment, &run.environment));
    let (name, engine) = first.map_or(("nothing", ""), |(experiment, environment)| {
        let series = experiment.series.as_ref().unwrap_or(&experiment.name);
        (series.as_str(), environment.engine.as_str())
    });
    format!(
        "meshtax {name}: service mesh overhead in {} runs ({engine} engine)",
        runs.len()
    )
}

fn partial(runs: &[Analysis]) -> Option<String> {
    let partial = runs.iter().filter_map(|run| {
        let why = notes::partial(run)?;
        Some(format!("{}: {why}", name(run)))
    });
    let all: Vec<String> = partial.collect();
    (!all.is_empty()).then(|| all.join(" "))
}

fn headlines(source: Source<'_>) -> Vec<Headline> {
    let all = headline::headlines(source).into_iter();
    all.map(|line| Headline {
        variant: format!("{}, {}", name(source.analysis), line.variant),
        ..line
    })
    .collect()
}

/// The study's; without one, those of each run's load points.
fn tables<'a>(sources: &[Source<'a>]) -> Vec<Table> {
    let mut tables = study::tables(sources);
    if tables.is_empty() {
        let of_run = |source: &Source<'a>| {
            let source = *source;
            source.points().map(move |point| {
                let table = figures::table(source, point);
                Table {
                    title: format!("{}: {}", name(source.analysis), table.title),
                    ..table
                }
            })
        };
        tables = sources.iter().flat_map(of_run).collect();
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn lines(sources: &[Source<'_>]) -> Vec<EvidenceLine> {
    let mut lines: Vec<EvidenceLine> = Vec::new();
    for source in sources {
        for mut line in evidence::lines(*source) {
            if let Some(first) = line.variants.first_mut() {
                *first = format!("{}: {first}", name(source.analysis));
            }
            lines.push(line);
        }
    }
    lines
}

/// The results of each run with its name, then the combined results.
fn all_notes(sources: &[Source<'_>]) -> Vec<String> {
    let of_runs: Vec<(String, Vec<String>)> = sources
        .iter()
        .map(|source| (name(source.analysis), notes::notes(*source, sources)))
        .collect();
    let in_all = |note: &String| of_runs.iter().all(|(_, notes)| notes.contains(note));
    let (mut own, mut common) = (Vec::new(), Vec::new());
    for (number, (name, notes)) in of_runs.iter().enumerate() {
        for note in notes {
            match (in_all(note), number) {
                (false, _) => own.push(format!("{name}: {note}")),
                (true, 0) => common.push(note.clone()),
                (true, _) => {}
            }
        }
    }
    own.extend(common);
    own
}

fn facts(runs: &[Analysis]) -> Vec<(&'static str, String)> {
    let of_run = |run: &Analysis| {
        let facts = notes::facts(run).into_iter();
        let own = facts.filter(|(name, _)| ["Run", "Design"].contains(name));
        own.collect::<Vec<_>>()
    };
    let mut facts: Vec<_> = runs.iter().flat_map(of_run).collect();
    let common = runs.last().map_or_else(Vec::new, notes::facts).into_iter();
    facts.extend(common.filter(|(name, _)| !["Run", "Design"].contains(name)));
    facts
}
