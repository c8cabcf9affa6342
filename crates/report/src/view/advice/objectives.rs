//! Which variants meet each objective.

use crate::view::outcome;
use crate::view::reasons::inconclusive_objective;
use meshtax_model::advice::{
    Advice, InconclusiveObjective, ObjectiveAnswer, ObjectiveCheck, ObjectiveVerdict, Standing,
};
use meshtax_model::analysis::Metric;
use meshtax_model::experiment::VariantId;

use super::section::{
    APART, Section, apart, at, interval_of, is_apart, left, list, name_cell, table,
};
use crate::format::{self, Unit};
use crate::view::table::{Cell, Table, Tone};

const PER_SECOND: Unit = Unit {
    factor: 1.0,
    name: "/s",
};

pub(super) fn section(advice: &Advice) -> Section {
    let mut section = Section::new("2. Which variants meet the objectives?");
    if advice.objectives.is_empty() {
        section.say("No objective is given (as in --slo 'p99<5ms@2000/s').");
        return section;
    }
    if let Some(text) = all_of_them(advice) {
        section.say(text);
    }
    for answer in &advice.objectives {
        if answer.checks.is_empty() {
            section.say(not_measured(answer));
            continue;
        }
        let [choices, floors] = apart(advice, &answer.checks, |check| &check.variant);
        let title = answer.objective.text.clone();
        let detail = interval_of(advice);
        section.show(checks_table(advice, answer, &title, detail, &choices));
        let detail = APART.to_owned();
        section.show(checks_table(advice, answer, &title, detail, &floors));
    }
    section.notes.extend(without_a_mesh(advice));
    if advice.objectives.iter().any(|o| !o.checks.is_empty()) {
        section.notes.push(
            "Met: the whole interval is within the objective. Missed: the whole interval is beyond it, or the \
             variant did not carry the load. Intervals \
             are not adjusted for multiple comparisons. The rate is that of one client and one service, through \
             their proxies only."
                .to_owned(),
        );
    }
    section
}

/// Which variants meet each objective, where each was measured.
fn all_of_them(advice: &Advice) -> Option<String> {
    let measured = advice.objectives.iter().all(|o| !o.checks.is_empty());
    if !measured {
        return None;
    }
    let checks = || advice.objectives.iter().flat_map(|o| &o.checks);
    let meets = |id: &VariantId| {
        let every = |answer: &ObjectiveAnswer| {
            let mut own = answer.checks.iter().filter(|c| c.variant == *id).peekable();
            own.peek().is_some() && own.all(|c| c.verdict == ObjectiveVerdict::Met)
        };
        advice.objectives.iter().all(every)
    };
    let choices = advice.variants.iter().filter(|v| !is_apart(v));
    let choices = choices.map(|variant| &variant.variant);
    let met: Vec<VariantId> = choices.filter(|id| meets(id)).cloned().collect();
    let longer = |check: &&ObjectiveCheck| {
        let excluded = matches!(
            check.reason,
            Some(InconclusiveObjective::NotMeasured { .. })
        );
        check.verdict == ObjectiveVerdict::Inconclusive && !excluded
    };
    let open = checks().filter(longer);
    let mut text = match met.as_slice() {
        [] => "Variants that meet every objective: none.".to_owned(),
        met => format!("Variants that meet every objective: {}.", list(met)),
    };
    if open.count() > 0 {
        text.push_str(" Inconclusive ones need a longer run.");
    }
    Some(text)
}

/// Objectives that even the baseline misses are not attributed to the mesh.
fn without_a_mesh(advice: &Advice) -> Option<String> {
    let baseline = advice.variants.iter();
    let mut baseline = baseline.filter(|v| v.standing == Standing::Baseline);
    let id = &baseline.next()?.variant;
    let missed = |answer: &&ObjectiveAnswer| {
        let mut own = answer.checks.iter().filter(|check| check.variant == *id);
        own.any(|check| check.verdict == ObjectiveVerdict::Missed)
    };
    let missed = advice.objectives.iter().filter(missed);
    let missed: Vec<&str> = missed.map(|o| o.objective.text.as_str()).collect();
    (!missed.is_empty()).then(|| {
        format!(
            "Missed even without a mesh, so the mesh is not the cause: {}.",
            missed.join(", ")
        )
    })
}

/// The requested load, the measured loads, and how to measure the requested one.
fn not_measured(answer: &ObjectiveAnswer) -> String {
    let objective = &answer.objective;
    let mut has: Vec<String> = answer
        .measured_per_s
        .iter()
        .map(|rate| format!("{}/s", format::trimmed(*rate)))
        .collect();
    if answer.measured_saturated {
        has.push("saturation".to_owned());
    }
    let has = match has.as_slice() {
        [] => "nothing".to_owned(),
        has => has.join(", "),
    };
    let Some(rate) = objective.rate_per_s else {
        return format!(
            "{}: not measured. This run measured {has}, and no saturated load. To measure it: put `saturated: {{}}` \
             under `load` of a spec, and run it.",
            objective.text
        );
    };
    let how = match answer.presets.as_slice() {
        [] => format!(
            "put `steady: {{rate: {rate}}}` under `load` of a spec (meshtax presets show quick), and meshtax run SPEC"
        ),
        presets => {
            let runs: Vec<String> = presets
                .iter()
                .map(|preset| format!("meshtax run --preset {preset}"))
                .collect();
            runs.join(", or ")
        }
    };
    format!(
        "{}: not measured. This run measured {has}, not {}/s. Other rates do not answer it: latency is not \
         necessarily lower at a lower rate. To measure it: {how}.",
        objective.text,
        format::trimmed(rate),
    )
}

fn checks_table(
    advice: &Advice,
    answer: &ObjectiveAnswer,
    title: &str,
    detail: String,
    checks: &[ObjectiveCheck],
) -> Table {
    let unit = unit(answer);
    let head = format!("{} {}", answer.objective.metric.name(), unit.name);
    let columns = vec![left("variant"), left("at"), left(&head), left(""), left("")];
    let mut shown = table(title, detail, columns);
    let metric = answer.objective.metric.name();
    let row = |check: &ObjectiveCheck| {
        let reason = check.reason.as_ref();
        let reason = reason.map(|reason| inconclusive_objective(reason, metric));
        let reason = reason.or_else(|| {
            let overload = check.overload.as_ref()?;
            Some(format!("overloaded: {}", outcome::overload(overload)))
        });
        vec![
            name_cell(advice, &check.variant),
            at(&check.load_point),
            level(check, unit, answer.objective.metric),
            verdict(check.verdict),
            Cell::text(reason.unwrap_or_default()).toned(Tone::Muted),
        ]
    };
    shown.rows = checks.iter().map(row).collect();
    shown
}

/// One for the bound and all levels.
fn unit(answer: &ObjectiveAnswer) -> Unit {
    match answer.objective.metric {
        Metric::Throughput => PER_SECOND,
        _ => format::time_unit(answer.objective.bound),
    }
}

fn level(check: &ObjectiveCheck, unit: Unit, metric: Metric) -> Cell {
    let Some(level) = check.level.filter(|level| level.value.is_finite()) else {
        return Cell::missing();
    };
    let scaled = format::scale(level, unit);
    let decimals = format::decimals_by_interval(scaled.value, scaled.interval);
    let interval = scaled.interval.map(|i| format::interval_text(i, decimals));
    let value = format::grouped(scaled.value, decimals);
    let is_lower_bound = check.overload.is_some() && metric != Metric::Throughput;
    let value = outcome::at_least(value, is_lower_bound);
    Cell::figure(value, interval.unwrap_or_default())
}

fn verdict(verdict: ObjectiveVerdict) -> Cell {
    let tone = match verdict {
        ObjectiveVerdict::Met => Tone::Good,
        ObjectiveVerdict::Missed => Tone::Bad,
        ObjectiveVerdict::Inconclusive => Tone::Strong,
    };
    Cell::text(verdict.to_string()).toned(tone)
}
