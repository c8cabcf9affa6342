//! What changed between runs: what differs in them first, then each variant's overheads side by side.

use meshtax_model::analysis::{Estimate, Metric, Verdict};
use meshtax_model::comparison::{BetweenSource, Change, ComparedRun, Differing, RunComparison};
use meshtax_model::experiment::LoadPointId;

use super::{Align, Cell, Column, Keep, Table, Tone, View};
use crate::format::{self, PERCENT, trimmed};

impl View {
    /// What a comparison of runs says.
    pub(crate) fn of_comparison(comparison: &RunComparison) -> Self {
        let mut tables = vec![differing(&comparison.differing, false)];
        let mut points: Vec<&LoadPointId> = Vec::new();
        for change in &comparison.changes {
            if !points.contains(&&change.load_point) {
                points.push(&change.load_point);
            }
        }
        tables.extend(points.into_iter().map(|point| at_point(comparison, point)));
        tables.retain(|table| !table.rows.is_empty());
        let mut notes = comparison.notes.clone();
        notes.extend(between(comparison.changes.iter()));
        notes.push(
            "Verdicts on primary figures are adjusted for several comparisons (Holm), those marked † are not."
                .to_owned(),
        );
        Self {
            title: "meshtax compare: what changed between runs".to_owned(),
            lead: lead(comparison),
            meaning: vec![
                "Each variant is held against the baselines of its own run, so that a machine that is slower as a \
                 whole cancels out."
                    .to_owned(),
            ],
            tables,
            notes,
            facts: facts(&comparison.base, &comparison.new),
            ..Self::default()
        }
    }
}

fn lead(comparison: &RunComparison) -> String {
    let told = comparison.changes.iter().filter(|c| c.primary);
    let told: Vec<&Change> = told
        .filter(|change| change.verdict == Verdict::Different)
        .collect();
    if told.is_empty() {
        return "No primary figure is shown to have changed".to_owned();
    }
    let said: Vec<String> = told.iter().map(|change| in_words(change)).collect();
    format!("Changed: {}", said.join("; "))
}

/// `envoy-sidecar-l7 p99 at steady +12 % [8, 16]`.
pub(crate) fn in_words(change: &Change) -> String {
    let figure = change.relative.map_or_else(String::new, |relative| {
        let (value, interval) = format::estimate(relative, PERCENT);
        format!(" {value} % {}", interval.unwrap_or_default())
    });
    format!("{}{}", place(change), figure.trim_end())
}

/// `envoy-sidecar-l7 p99 at steady`.
pub(crate) fn place(change: &Change) -> String {
    format!(
        "{} {} at {}",
        change.variant,
        change.metric.name(),
        change.load_point
    )
}

/// What is not the same; `one_run`: both sides were measured together.
pub(crate) fn differing(all: &[Differing], one_run: bool) -> Table {
    let rows: Vec<Vec<Cell>> = all
        .iter()
        .map(|d| {
            vec![
                Cell::text(d.what.clone()),
                Cell::text(d.base.clone()),
                Cell::text(d.new.clone()),
            ]
        })
        .collect();
    let same = rows.is_empty() && !one_run;
    Table {
        title: "What differs between the runs".to_owned(),
        detail: String::new(),
        columns: vec![
            Column::new("", Align::Left, Keep::Always),
            Column::new("BASE", Align::Left, Keep::Always),
            Column::new("NEW", Align::Left, Keep::Always),
        ],
        rows: if same {
            let nothing = "nothing in plans, machine and programs";
            vec![vec![Cell::text(nothing), Cell::empty(), Cell::empty()]]
        } else {
            rows
        },
        footnotes: Vec::new(),
    }
}

fn at_point(comparison: &RunComparison, point: &LoadPointId) -> Table {
    let here = comparison.changes.iter().filter(|c| c.load_point == *point);
    let here: Vec<&Change> = here.collect();
    let confidence = trimmed(comparison.confidence * 100.0);
    let mut reasons: Vec<String> = Vec::new();
    let rows = here.iter().map(|change| row(change, &mut reasons));
    let rows: Vec<Vec<Cell>> = rows.collect();
    Table {
        title: format!("At {point}"),
        detail: format!("overhead against each run's own baselines; [{confidence} % interval]"),
        columns: vec![
            Column::new("variant", Align::Left, Keep::Always),
            Column::new("", Align::Left, Keep::Always),
            Column::new("BASE %", Align::Right, Keep::Until(2)),
            Column::new("NEW %", Align::Right, Keep::Until(3)),
            Column::new("change %", Align::Left, Keep::Always),
            Column::new("", Align::Left, Keep::Until(1)),
        ],
        rows,
        footnotes: reasons
            .into_iter()
            .enumerate()
            .map(|(i, reason)| (mark(i), reason))
            .collect(),
    }
}

/// Digits that stand for a footnote.
fn mark(index: usize) -> String {
    format!("({})", index + 1)
}

fn row(change: &Change, reasons: &mut Vec<String>) -> Vec<Cell> {
    let mut verdict = match &change.verdict {
        Verdict::Different => Cell::text("changed").toned(Tone::Strong),
        Verdict::NotDistinguishable | Verdict::Equivalent => {
            Cell::text("not distinguishable").toned(Tone::Muted)
        }
        Verdict::NotEstimable { reason } => {
            let known = reasons.iter().position(|r| r == reason);
            let index = known.unwrap_or_else(|| {
                reasons.push(reason.clone());
                reasons.len() - 1
            });
            Cell::text(format!("not estimable {}", mark(index))).toned(Tone::Muted)
        }
    };
    if !change.primary && !matches!(change.verdict, Verdict::NotEstimable { .. }) {
        verdict = verdict.marked("†");
    }
    vec![
        Cell::text(change.variant.clone()),
        Cell::text(change.metric.name()),
        overhead(change.base),
        overhead(change.new),
        percent(change.relative),
        verdict,
    ]
}

fn overhead(estimate: Option<Estimate>) -> Cell {
    match estimate.filter(|e| e.value.is_finite()) {
        None => Cell::missing(),
        Some(estimate) => Cell::text(format::estimate(estimate, PERCENT).0),
    }
}

/// A relative change with its interval.
pub(crate) fn percent(estimate: Option<Estimate>) -> Cell {
    match estimate.filter(|e| e.value.is_finite()) {
        None => Cell::missing(),
        Some(estimate) => {
            let (value, interval) = format::estimate(estimate, PERCENT);
            Cell::figure(value, interval.unwrap_or_default())
        }
    }
}

/// The between-run component of each metric, in one sentence for each source.
pub(crate) fn between<'a>(changes: impl Iterator<Item = &'a Change> + Clone) -> Vec<String> {
    let mut said = Vec::new();
    for source in [
        BetweenSource::Default,
        BetweenSource::Given,
        BetweenSource::Runs,
    ] {
        let mut metrics: Vec<(Metric, f64, f64)> = Vec::new();
        for change in changes.clone() {
            let Some(between) = change.between.filter(|b| b.source == source) else {
                continue;
            };
            match metrics.iter_mut().find(|(m, ..)| *m == change.metric) {
                Some((_, low, high)) => {
                    (*low, *high) = (low.min(between.value), high.max(between.value));
                }
                None => metrics.push((change.metric, between.value, between.value)),
            }
        }
        metrics.sort_by_key(|(metric, ..)| *metric);
        if metrics.is_empty() {
            continue;
        }
        let figures: Vec<String> = metrics
            .iter()
            .map(|(metric, low, high)| format!("{} {} %", metric.name(), range(*low, *high)))
            .collect();
        let from = match source {
            BetweenSource::Default => {
                "the default; --between sets it, several runs a side estimate it"
            }
            BetweenSource::Given => "as given by --between",
            BetweenSource::Runs => "from the runs and the default together",
        };
        said.push(format!(
            "Between-run component: {} ({from}).",
            figures.join(", ")
        ));
    }
    said
}

fn range(low: f64, high: f64) -> String {
    let [low, high] = [low, high].map(|share| format::grouped(share * 100.0, 1));
    if low == high {
        low
    } else {
        format!("{low}-{high}")
    }
}

/// The runs of both sides.
pub(crate) fn facts(base: &[ComparedRun], new: &[ComparedRun]) -> Vec<(&'static str, String)> {
    let say = |side: &[ComparedRun]| {
        let all: Vec<String> = side.iter().map(run).collect();
        all.join("; ")
    };
    vec![("BASE", say(base)), ("NEW", say(new))]
}

/// One run in words.
pub(crate) fn run(compared: &ComparedRun) -> String {
    let ComparedRun {
        run,
        rounds,
        blocks,
    } = compared;
    format!(
        "{}, {}, {}, {rounds} {}, {blocks} {}, meshtax {}",
        run.id,
        format::date_utc(run.started_unix_ms),
        format::duration(run.took_ns),
        format::plural(*rounds as usize, "round", "rounds"),
        format::plural(*blocks as usize, "block", "blocks"),
        run.meshtax_version
    )
}
