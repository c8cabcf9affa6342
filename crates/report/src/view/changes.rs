//! What changed between runs: what differs in them first, then each variant's overheads side by side.

use crate::view::reasons::not_estimable;
use crate::view::{caveats, outcome, settings, side_by_side};
use meshtax_model::analysis::{Estimate, Metric, Verdict};
use meshtax_model::comparison::{BetweenSource, Change, ComparedRun, Differing, RunComparison};
use meshtax_model::experiment::LoadPointId;

use crate::format::{self, PERCENT, trimmed};
use crate::view::document::View;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// The content of a comparison of runs.
pub(crate) fn comparison(comparison: &RunComparison) -> View {
    let mut tables = vec![differing(&comparison.differing, comparison.interleaved)];
    let mut points: Vec<&LoadPointId> = Vec::new();
    for change in &comparison.changes {
        if !points.contains(&&change.load_point) {
            points.push(&change.load_point);
        }
    }
    tables.extend(points.into_iter().map(|point| at_point(comparison, point)));
    tables.retain(|table| !table.rows.is_empty());
    let mut notes: Vec<String> = comparison.notes.iter().map(caveats::note).collect();
    notes.extend(between(comparison.changes.iter()));
    notes.push(
            "Verdicts on primary metrics are adjusted for multiple comparisons (Holm); those marked † are not."
                .to_owned(),
        );
    let (title, meaning) = match comparison.interleaved {
        false => (
            "meshtax compare: changes between runs",
            "Each variant is compared with the baselines of its own run, so that differences in overall \
             machine speed cancel out.",
        ),
        true => (
            "meshtax: two builds, measured in the same rounds",
            "Changes are paired differences between the two builds, in the same blocks of one run.",
        ),
    };
    tables.extend(comparison.pairs.iter().flat_map(side_by_side::tables));
    View {
        title: title.to_owned(),
        lead: lead(comparison),
        meaning: vec![meaning.to_owned()],
        tables,
        notes,
        facts: match comparison.base.first() {
            Some(only) if comparison.interleaved => vec![("Run", run(only))],
            _ => facts(&comparison.base, &comparison.new),
        },
        ..View::default()
    }
}

fn lead(comparison: &RunComparison) -> String {
    let changed = comparison.changes.iter().filter(|c| c.primary);
    let changed: Vec<&Change> = changed
        .filter(|change| change.verdict == Verdict::Different)
        .collect();
    if changed.is_empty() && comparison.interleaved {
        let mut primary = comparison.changes.iter().filter(|c| c.primary);
        return match primary.all(|change| change.verdict == Verdict::Equivalent) {
            true => "No relevant difference in any primary metric".to_owned(),
            false => "No significant difference in any primary metric".to_owned(),
        };
    }
    if changed.is_empty() {
        return "No significant change of a primary metric".to_owned();
    }
    let clauses: Vec<String> = changed.iter().map(|change| in_words(change)).collect();
    format!("Changed: {}", clauses.join("; "))
}

/// `envoy-sidecar-l7 p99 at steady +12 % [8, 16]`.
pub(crate) fn in_words(change: &Change) -> String {
    let figure = change.relative.map_or_else(String::new, |relative| {
        let (value, interval) = format::estimate(relative, PERCENT);
        let value = outcome::at_least(value, change.lower_bound);
        format!(" {value} % {}", interval.unwrap_or_default())
    });
    format!("{}{}", subject(change), figure.trim_end())
}

/// `envoy-sidecar-l7 p99 at steady`.
pub(crate) fn subject(change: &Change) -> String {
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
                Cell::text(settings::name(&d.setting)),
                Cell::text(settings::values(&d.base)),
                Cell::text(settings::values(&d.new)),
            ]
        })
        .collect();
    let same = rows.is_empty() && !one_run;
    Table {
        title: match one_run {
            true => "Builds",
            false => "Differences between the runs",
        }
        .to_owned(),
        detail: String::new(),
        columns: vec![
            Column::new("", Align::Left, Keep::Always),
            Column::new("BASE", Align::Left, Keep::Always),
            Column::new("NEW", Align::Left, Keep::Always),
        ],
        rows: if same {
            let nothing = "none in plan, machine and programs";
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
        detail: format!("overhead against the run's own baselines; [{confidence} % interval]"),
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

/// Digits used as footnote marks.
fn mark(index: usize) -> String {
    format!("({})", index + 1)
}

fn row(change: &Change, reasons: &mut Vec<String>) -> Vec<Cell> {
    let mut footnote = |reason: String| {
        let known = reasons.iter().position(|r| *r == reason);
        let index = known.unwrap_or_else(|| {
            reasons.push(reason);
            reasons.len() - 1
        });
        mark(index)
    };
    let mut verdict = match &change.verdict {
        Verdict::Different => Cell::text("changed").toned(Tone::Strong),
        Verdict::Equivalent => Cell::text("no relevant difference"),
        Verdict::Inconclusive => Cell::text("inconclusive").toned(Tone::Muted),
        Verdict::NotEstimable { reason } => {
            let reason = not_estimable(reason, Some(&change.new_variant));
            Cell::text(format!("not estimable {}", footnote(reason))).toned(Tone::Muted)
        }
        Verdict::Overloaded(overload) => {
            let mark = footnote(outcome::overload(overload));
            Cell::text(format!("overloaded {mark}")).toned(Tone::Bad)
        }
    };
    let is_tested = !matches!(
        change.verdict,
        Verdict::NotEstimable { .. } | Verdict::Overloaded(_)
    );
    if !change.primary && is_tested {
        verdict = verdict.marked("†");
    }
    vec![
        Cell::text(change.variant.clone()),
        Cell::text(change.metric.name()),
        overhead(change.base),
        overhead(change.new),
        changed(change),
        verdict,
    ]
}

fn overhead(estimate: Option<Estimate>) -> Cell {
    match estimate.filter(|e| e.value.is_finite()) {
        None => Cell::missing(),
        Some(estimate) => Cell::text(format::estimate(estimate, PERCENT).0),
    }
}

/// The relative change with its interval.
pub(crate) fn changed(change: &Change) -> Cell {
    if matches!(change.verdict, Verdict::Overloaded(_)) {
        return Cell::text("overloaded").toned(Tone::Bad);
    }
    match change.relative.filter(|e| e.value.is_finite()) {
        None => Cell::missing(),
        Some(estimate) => {
            let (value, interval) = format::estimate(estimate, PERCENT);
            let value = outcome::at_least(value, change.lower_bound);
            Cell::figure(value, interval.unwrap_or_default())
        }
    }
}

/// The between-run component of each metric, in one sentence for each source.
pub(crate) fn between<'a>(changes: impl Iterator<Item = &'a Change> + Clone) -> Vec<String> {
    let mut clauses = Vec::new();
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
                "default; set it with --between, or estimate it from several runs per side"
            }
            BetweenSource::Given => "from --between",
            BetweenSource::Runs => "from the runs and the default combined",
        };
        clauses.push(format!(
            "Between-run component: {} ({from}).",
            figures.join(", ")
        ));
    }
    clauses
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
