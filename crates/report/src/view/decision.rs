//! The decision table: from a primary requirement to the mesh that a run suggests.

use meshtax_model::advice::{Need, Priority};
use meshtax_model::analysis::{
    Decision, DecisionCell, DecisionGroup, DecisionReason, DecisionRow, Estimate, Ground, Metric,
    Opponent, Suggestion,
};

use super::reasons::{exclusion, not_estimable, withheld};
use super::source::Loads;
use super::table::{Align, Cell, Column, Keep, Table, Tone};
use crate::format::{self, PERCENT};

/// Of the table.
const TITLE: &str = "Decision table";

const NOTE: &str = "Suggested: shown to be the only best one by this run's paired differences, adjusted over the whole run, \
     or by its probes, which do not show FIPS validation. As good as: several best ones within the margin. Facts that no \
     run measures are in `meshtax mesh facts`, without a score. Whether a mesh is needed at all comes first: `meshtax \
     advise`";

/// A table for each group of variants that do the same work; empty: there is none.
pub(crate) fn tables(decision: Option<&Decision>, loads: Loads<'_>) -> Vec<Table> {
    let Some(decision) = decision else {
        return Vec::new();
    };
    let groups = decision.groups.iter();
    groups.map(|group| table(decision, group, loads)).collect()
}

fn table(decision: &Decision, group: &DecisionGroup, loads: Loads<'_>) -> Table {
    let left = |head: &str| Column::new(head, Align::Left, Keep::Always);
    let is_weighted = !decision.weights.is_empty();
    let mut columns = vec![left("primary requirement")];
    if is_weighted {
        columns.push(Column::new("weight", Align::Right, Keep::Always));
    }
    columns.extend([left("mesh"), left("suggestion"), left("reason")]);
    let rows = group.rows.iter();
    let rows = rows.flat_map(|row| self::rows(row, is_weighted, loads));
    Table {
        title: match group.level {
            Some(level) => format!("{TITLE}, {level}"),
            None => TITLE.to_owned(),
        },
        detail: "among variants that do the same work; paired differences and proofs of this run"
            .to_owned(),
        columns,
        rows: rows.collect(),
        footnotes: vec![(String::new(), NOTE.to_owned())],
    }
}

/// One per variant, or one for all of them if a run says nothing about the requirement.
fn rows(row: &DecisionRow, is_weighted: bool, loads: Loads<'_>) -> Vec<Vec<Cell>> {
    let begin = |first: bool| {
        let mut cells = vec![match first {
            true => Cell::text(requirement(row.requirement)),
            false => Cell::empty(),
        }];
        if is_weighted {
            let weight = row.weight.filter(|_| first);
            cells.push(weight.map_or_else(Cell::empty, |w| Cell::text(format::trimmed(w))));
        }
        cells
    };
    if let Some(common) = common(row) {
        let mut cells = begin(true);
        cells.extend([
            Cell::text("all"),
            said(common.suggestion),
            why(common, loads),
        ]);
        return vec![cells];
    }
    let of_variant = |(at, cell): (usize, &DecisionCell)| {
        let mut cells = begin(at == 0);
        let name = Cell::text(cell.variant.0.clone());
        cells.push(match cell.suggestion {
            Suggestion::Suggested | Suggestion::AsGoodAs => name.toned(Tone::Strong),
            _ => name,
        });
        cells.extend([said(cell.suggestion), why(cell, loads)]);
        cells
    };
    // What is suggested comes first, and what is not measured last.
    let mut ordered: Vec<&DecisionCell> = row.cells.iter().collect();
    ordered.sort_by_key(|cell| order(cell.suggestion));
    ordered.into_iter().enumerate().map(of_variant).collect()
}

/// The cell that all variants share.
fn common(row: &DecisionRow) -> Option<&DecisionCell> {
    let first = row.cells.first()?;
    let names_nobody = matches!(
        first.reason,
        DecisionReason::NoMeasurement { .. }
            | DecisionReason::NoComparison
            | DecisionReason::NotProven
            | DecisionReason::NothingWeighted
    );
    let is_same = row.cells.iter().all(|cell| cell.reason == first.reason);
    (names_nobody && is_same).then_some(first)
}

fn order(suggestion: Suggestion) -> u8 {
    match suggestion {
        Suggestion::Suggested => 0,
        Suggestion::AsGoodAs => 1,
        Suggestion::Inconclusive => 2,
        Suggestion::NotSuggested => 3,
        Suggestion::NotMeasuredHere => 4,
    }
}

fn said(suggestion: Suggestion) -> Cell {
    let (text, tone) = match suggestion {
        Suggestion::Suggested => ("suggested", Tone::Good),
        Suggestion::AsGoodAs => ("as good as", Tone::Good),
        Suggestion::Inconclusive => ("inconclusive", Tone::Plain),
        Suggestion::NotSuggested => ("not suggested", Tone::Muted),
        Suggestion::NotMeasuredHere => ("not measured here", Tone::Muted),
    };
    Cell::text(text).toned(tone)
}

fn requirement(requirement: Option<Priority>) -> &'static str {
    match requirement {
        Some(Priority::Performance) => "performance",
        Some(Priority::EaseOfInstallation) => "ease of installation",
        Some(Priority::EaseOfMaintenance) => "ease of maintenance",
        Some(Priority::Compliance) => "compliance",
        Some(Priority::Cost) => "cost and resources",
        Some(Priority::Support) => "support",
        None => "by weight",
    }
}

fn why(cell: &DecisionCell, loads: Loads<'_>) -> Cell {
    let with = |opponents: &[Opponent]| {
        let all: Vec<String> = opponents.iter().map(|o| opponent(o, loads)).collect();
        all.join("; ")
    };
    Cell::text(match &cell.reason {
        DecisionReason::Better { than } | DecisionReason::Worse { than } => with(than),
        DecisionReason::Equivalent { to } => with(to),
        DecisionReason::NotSeparated { from } if from.is_empty() => {
            "not compared with all others".to_owned()
        }
        DecisionReason::NotSeparated { from } => with(from),
        DecisionReason::Excluded { reason } => exclusion(reason),
        DecisionReason::NoMeasurement { features } => {
            format!("no run measures it; facts: {}", features.join(", "))
        }
        DecisionReason::NoComparison => "no paired difference in this run".to_owned(),
        DecisionReason::NotProven => {
            "no probe of this run proved encryption or a policy".to_owned()
        }
        DecisionReason::NothingWeighted => {
            "no requirement that has a weight was measured".to_owned()
        }
    })
}

/// `CPU per request at 1,000 requests/s -23 % [-25, -20] against linkerd-mtls`.
fn opponent(opponent: &Opponent, loads: Loads<'_>) -> String {
    let other = &opponent.variant;
    match &opponent.ground {
        Ground::Difference {
            metric,
            load_point,
            relative,
            withheld: why,
            open,
        } => {
            let (metric, at) = (metric.name(), loads.at(load_point));
            let difference = difference(*relative);
            let why = why.map_or_else(String::new, |why| format!(" ({})", withheld(why)));
            format!(
                "{metric} {at} {difference} against {other}{why}{}",
                alone(metric, open)
            )
        }
        Ground::Overload {
            load_point,
            carried: true,
        } => format!("carried the load {}, {other} did not", loads.at(load_point)),
        Ground::Overload {
            load_point,
            carried: false,
        } => format!(
            "did not carry the load {}, {other} did",
            loads.at(load_point)
        ),
        Ground::NotEstimable {
            metric,
            load_point,
            reason,
        } => {
            let (metric, at) = (metric.name(), loads.at(load_point));
            let why = not_estimable(reason, Some(other));
            format!("{metric} {at} against {other}: {why}")
        }
        Ground::Conflict { better, worse } => format!(
            "better than {other} by {}, worse by {}",
            better.name(),
            worse.name()
        ),
        Ground::Proof { needs } => {
            let needs: Vec<&str> = needs.iter().map(|need| Need::name(*need)).collect();
            format!("proven, against {other}: {}", needs.join(", "))
        }
        Ground::Weights {
            better,
            worse,
            equivalent,
            open,
        } => {
            let weights = weights([*better, *worse, *equivalent, *open]);
            format!("weights against {other}: {weights}")
        }
    }
}

/// What else the requirement is decided by, and that it does not: ` (by p50 alone: p99 does not decide)`.
fn alone(metric: &str, open: &[Metric]) -> String {
    let names: Vec<&str> = open.iter().map(|metric| metric.name()).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!(" (by {metric} alone: {one} does not decide)"),
        several => {
            let names = several.join(", ");
            format!(" (by {metric} alone: {names} do not decide)")
        }
    }
}

/// `-23 % [-25, -20]`.
fn difference(relative: Option<Estimate>) -> String {
    let Some(relative) = relative else {
        return format::MISSING.to_owned();
    };
    let (value, interval) = format::estimate(relative, PERCENT);
    let interval = interval.map_or(String::new(), |i| format!(" {i}"));
    format!("{value} %{interval}")
}

/// The sums of weights that are not zero: `better 3, open 1`.
fn weights(sums: [f64; 4]) -> String {
    let names = ["better", "worse", "as good", "open"];
    let sums = sums.iter().zip(names).filter(|(weight, _)| **weight > 0.0);
    let sums: Vec<String> = sums
        .map(|(weight, what)| format!("{what} {}", format::trimmed(*weight)))
        .collect();
    sums.join(", ")
}
