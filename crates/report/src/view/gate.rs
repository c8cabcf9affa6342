//! A gate's verdict, and each of its checks.

use crate::view::caveats;
use crate::view::reasons::inconclusive_check;
use meshtax_model::analysis::Verdict;
use meshtax_model::comparison::{GateCheck, GateReport, GateVerdict};

use super::changes::{self, in_words, subject};
use super::outcome::overload;
use crate::format::{self, trimmed};
use crate::view::document::View;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// The content of a gate report: its verdict in the title, so that one line is enough.
pub(crate) fn gate(gate: &GateReport) -> View {
    let mut tables = vec![
        changes::differing(&gate.differing, gate.interleaved),
        checks(gate),
    ];
    tables.retain(|table| !table.rows.is_empty());
    let mut notes = advice(gate);
    notes.extend(gate.notes.iter().map(caveats::note));
    notes.extend(changes::between(gate.checks.iter().map(|c| &c.change)));
    let facts = match gate.base.first() {
        Some(run) if gate.interleaved => vec![("Run", changes::run(run))],
        _ => changes::facts(&gate.base, &gate.new),
    };
    View {
        title: line(gate),
        lead: lead(gate).to_owned(),
        tables,
        notes,
        facts,
        ..View::default()
    }
}

fn lead(gate: &GateReport) -> &'static str {
    if gate.interleaved {
        "Both sides were measured in the same blocks of one run; changes are paired differences"
    } else {
        "Each variant is compared with the baselines of its own run; changes are from BASE to NEW"
    }
}

/// The verdict in one line: the result, the number of checks, and the most important one.
pub(crate) fn line(gate: &GateReport) -> String {
    let all = gate.checks.len();
    let worst = gate.checks.iter().find(|c| c.verdict == gate.verdict);
    let count = gate.count(gate.verdict);
    let more = match count.saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more of {all})"),
    };
    match (gate.verdict, worst) {
        (GateVerdict::Pass, _) => {
            let checks = format::plural(all, "check is", "checks are");
            format!("gate passed: {all} {checks} within the limits")
        }
        (GateVerdict::Fail, Some(worst)) => format!("gate FAILED: {}{more}", sentence(worst)),
        (GateVerdict::Inconclusive, Some(worst)) => {
            format!("gate inconclusive: {}{more}", sentence(worst))
        }
        (_, None) => "gate inconclusive: nothing was checked".to_owned(),
    }
}

/// One check in a sentence.
pub(crate) fn sentence(check: &GateCheck) -> String {
    let limit = limit(check);
    let found = in_words(&check.change);
    if let Verdict::Overloaded(found) = &check.change.verdict {
        return format!(
            "{}: overloaded, {}",
            subject(&check.change),
            overload(found)
        );
    }
    if check.change.relative.is_none() {
        return format!("{}: {}", subject(&check.change), reason(check));
    }
    match check.verdict {
        GateVerdict::Pass => format!("{found}, within {limit}"),
        GateVerdict::Fail => format!("{found}, beyond {limit}"),
        GateVerdict::Inconclusive => format!("{found}, limit {limit}: {}", reason(check)),
    }
}

/// Why a check is inconclusive; empty if it is not.
fn reason(check: &GateCheck) -> String {
    let of = &check.change.new_variant;
    let reason = check.reason.as_ref();
    reason.map_or_else(String::new, |reason| inconclusive_check(reason, Some(of)))
}

/// `+5 %`; an absolute one with what was typed.
pub(crate) fn limit(check: &GateCheck) -> String {
    match check.allowed {
        None => check.limit.clone(),
        Some(share) => {
            let percent = format::signed(share * 100.0, 2);
            let percent = match percent.split_once('.') {
                Some(_) => percent.trim_end_matches('0').trim_end_matches('.'),
                None => &percent,
            };
            if check.limit.contains('%') {
                format!("{percent} %")
            } else {
                format!("{percent} % ({})", check.limit)
            }
        }
    }
}

fn checks(gate: &GateReport) -> Table {
    let confidence = trimmed(gate.confidence * 100.0);
    Table {
        title: "Checks".to_owned(),
        detail: format!("[{confidence} % interval]"),
        columns: vec![
            Column::new("", Align::Left, Keep::Always),
            Column::new("variant", Align::Left, Keep::Always),
            Column::new("", Align::Left, Keep::Always),
            Column::new("at", Align::Left, Keep::Until(1)),
            Column::new("change %", Align::Left, Keep::Always),
            Column::new("limit", Align::Left, Keep::Always),
        ],
        rows: gate.checks.iter().map(row).collect(),
        footnotes: Vec::new(),
    }
}

fn row(check: &GateCheck) -> Vec<Cell> {
    let verdict = match check.verdict {
        GateVerdict::Pass => Cell::text("passed").toned(Tone::Good),
        GateVerdict::Fail => Cell::text("FAILED").toned(Tone::Bad),
        GateVerdict::Inconclusive => Cell::text("inconclusive").toned(Tone::Strong),
    };
    let change = &check.change;
    vec![
        verdict,
        Cell::text(change.variant.clone()),
        Cell::text(change.metric.name()),
        Cell::text(change.load_point.0.clone()),
        changes::changed(change),
        Cell::text(limit(check)),
    ]
}

/// Why it is inconclusive, and what would help.
fn advice(gate: &GateReport) -> Vec<String> {
    let open = || {
        let checks = gate.checks.iter();
        checks.filter(|check| check.verdict == GateVerdict::Inconclusive)
    };
    let mut sentences: Vec<String> = Vec::new();
    for check in open() {
        let mut text = format!("{}: {}", subject(&check.change), reason(check));
        if let Some(factor) = check.longer_to_tell.filter(|factor| factor.is_finite()) {
            let times = format::grouped(factor.max(1.0), usize::from(factor < 10.0));
            text.push_str(&format!("; a run about {times} times as long would decide"));
        }
        sentences.push(text + ".");
    }
    if open().next().is_some() && !gate.interleaved {
        sentences.push(
            "To decide it: longer runs, several of each side (--base DIR, --new DIR), or one interleaved run \
             (gate --a SPEC --b SPEC), whose two sides are measured together."
                .to_owned(),
        );
    }
    sentences
}
