//! Outcomes as programs read them: by the ids of the JSON report and of the store, never by sentences.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{records, skipped};

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A variant of a JSON report.
pub(crate) fn variant_of<'a>(analysis: &'a Value, id: &str) -> &'a Value {
    let found = items(&analysis["variants"]).find(|variant| variant["variant"] == id);
    found.unwrap_or_else(|| panic!("no variant {id} in {:#}", analysis["variants"]))
}

#[track_caller]
pub(crate) fn assert_not_excluded(variant: &Value) {
    assert_eq!(variant["excluded"], Value::Null, "{}", variant["variant"]);
}

/// Asserts that the variant was excluded because this probe failed, and that its observation contains all of these
/// values (identities, ports, status codes).
#[track_caller]
pub(crate) fn assert_excluded_by(variant: &Value, probe: &str, values: &[&str]) {
    let failure = &variant["excluded"]["failure"];
    let found = items(&failure["probes"]).find(|failed| failed["probe"] == probe);
    let found = found.unwrap_or_else(|| panic!("{probe} did not fail: {:#}", variant["excluded"]));
    let seen = found["seen"].as_str().unwrap_or_default();
    for value in values {
        assert!(seen.contains(value), "{probe}: no {value:?} in {seen:?}");
    }
}

/// Asserts that the store has a failure of this variant.
#[track_caller]
pub(crate) fn assert_failure_is_stored(run: &Path, id: &str) {
    let failures = records(&run.join("failures.jsonl"));
    let found = failures.iter().any(|failure| failure["variant"] == id);
    assert!(found, "{id}: {failures:#?}");
}

/// What a passed probe saw, in one record of evidence.
#[track_caller]
pub(crate) fn seen_by<'a>(evidence: &'a Value, probe: &str) -> &'a str {
    let found = items(&evidence["probes"]).find(|result| result["probe"] == probe);
    let found = found.unwrap_or_else(|| panic!("no probe {probe} in {evidence:#}"));
    assert_eq!(found["passed"], true, "{found}");
    found["seen"].as_str().expect("an observation")
}

/// The trials of a variant whose clients' load generators started together: a stall of the machine can keep them from it.
/// Asserts that there is one.
#[track_caller]
pub(crate) fn trials_together<'a>(trials: &'a [Value], variant: &str) -> Vec<&'a Value> {
    let own = trials.iter().filter(|t| t["trial"]["variant"] == variant);
    let is_together = |t: &&Value| t["outcome"]["failure"]["id"] != "not-together";
    let together: Vec<&Value> = own.filter(is_together).collect();
    assert!(!together.is_empty(), "no trial of {variant}: {trials:#?}");
    together
}

/// The ids of the report's caveats.
pub(crate) fn caveat_ids(analysis: &Value) -> BTreeSet<&str> {
    let caveats = items(&analysis["caveats"]);
    caveats.filter_map(|caveat| caveat["id"].as_str()).collect()
}

/// All points of all variants.
pub(crate) fn points(analysis: &Value) -> impl Iterator<Item = &Value> {
    items(&analysis["variants"]).flat_map(|variant| items(&variant["points"]))
}

/// The ids of the reasons for which trials of any variant are invalid.
pub(crate) fn invalid_reasons(analysis: &Value) -> BTreeSet<&str> {
    let reasons = points(analysis).filter_map(|point| point["invalid"].as_object());
    reasons
        .flat_map(|reasons| reasons.keys().map(String::as_str))
        .collect()
}

/// Whether every point of the variants that are not excluded has a valid trial.
pub(crate) fn has_every_point(analysis: &Value) -> bool {
    let measured = items(&analysis["variants"]).filter(|variant| variant["excluded"].is_null());
    let mut points = measured.flat_map(|variant| items(&variant["points"]));
    points.all(|point| point["valid"].as_u64() > Some(0))
}

/// Invalid trials of a point, for any reason of these; `None`: for any at all.
fn invalid_for(point: &Value, reasons: Option<&[&str]>) -> u64 {
    let invalid = point["invalid"].as_object().into_iter().flatten();
    let invalid = invalid.filter(|(id, _)| reasons.is_none_or(|of| of.contains(&id.as_str())));
    invalid.filter_map(|(_, count)| count.as_u64()).sum()
}

/// Invalid trials of a point.
pub(crate) fn invalid_trials(point: &Value) -> u64 {
    invalid_for(point, None)
}

/// Trials of a point that the hypervisor or other programs disturbed.
pub(crate) fn disturbed_trials(point: &Value) -> u64 {
    invalid_for(point, Some(&["steal", "late-by-steal", "other-programs"]))
}

/// Blocks with a valid pair that an interval requires.
const BLOCKS_MIN: u64 = 6;

/// Whether the machine alone left a run of two baselines without any interval: there are points all of whose trials were
/// taken as planned, enough of them for an interval, and each lacks it because the machine disturbed trials.
pub(crate) fn is_without_result_by_the_machine(analysis: &Value) -> bool {
    let baseline = |names: &[&str], load_point: &Value| -> Vec<Value> {
        let of = |name: &&str| items(&variant_of(analysis, name)["points"]);
        let points = names.iter().flat_map(of);
        let there = points.filter(|point| point["load_point"] == *load_point);
        there.cloned().collect()
    };
    let is_lacking = |(id, point): (&Value, &Value)| {
        let load_point = &point["load_point"];
        // Without an interval between the baselines, there is no noise floor to judge others by.
        let mut control = baseline(&["none-again"], load_point);
        let first = baseline(&["none"], load_point);
        if control.iter().any(|point| lacks_interval(point, &first)) {
            return true;
        }
        if id != "none-again" {
            control.extend(first);
            return lacks_interval(point, &control);
        }
        false
    };
    let compared = items(&analysis["variants"])
        .filter(|variant| variant["excluded"].is_null() && variant["variant"] != "none");
    let points = compared
        .flat_map(|variant| items(&variant["points"]).map(|point| (&variant["variant"], point)));
    let mut complete = points.filter(|(_, point)| is_complete(point)).peekable();
    analysis["run"]["ending"]["id"] != "failed"
        && match complete.peek() {
            Some(_) => complete.all(is_lacking),
            // On a machine that others use, there may be no time for so many trials.
            None => is_always_disturbed(analysis),
        }
}

/// Whether the machine disturbed more than half of the trials of every point that has any.
fn is_always_disturbed(analysis: &Value) -> bool {
    let all = |point: &Value| valid_trials(point) + invalid_trials(point);
    let taken: Vec<&Value> = points(analysis).filter(|point| all(point) > 0).collect();
    let is_disturbed = |point: &&Value| disturbed_trials(point) * 2 > all(point);
    !taken.is_empty() && taken.iter().all(is_disturbed)
}

/// Whether the trials that an interval requires were taken as planned, whatever the machine did to them. A variant that may
/// not have carried its load has no interval.
fn is_complete(point: &Value) -> bool {
    let disturbed = disturbed_trials(point);
    let carried = point["outcome"]["id"]
        .as_str()
        .is_none_or(|id| id == "carried");
    carried && invalid_trials(point) == disturbed && valid_trials(point) + disturbed >= BLOCKS_MIN
}

/// Whether disturbances leave a point without an interval against these baselines.
fn lacks_interval(point: &Value, baselines: &[Value]) -> bool {
    lacks_pairs(point, baselines) || is_mostly_disturbed([point]) || is_mostly_disturbed(baselines)
}

/// Whether trials that were disturbed left too few pairs. Steal excludes whole blocks: only other disturbances can take the
/// baselines from a block in which the point has a valid trial, and they have to take all of them.
fn lacks_pairs(point: &Value, baselines: &[Value]) -> bool {
    let single = Some(&["late-by-steal", "other-programs"][..]);
    let lost = baselines.iter().map(|point| invalid_for(point, single));
    valid_trials(point) < BLOCKS_MIN + lost.min().unwrap_or(0)
}

/// Whether the machine disturbed more trials than a comparison may be without (docs/method.md).
pub(crate) fn is_mostly_disturbed<'a>(points: impl IntoIterator<Item = &'a Value>) -> bool {
    let [mut valid, mut stolen, mut others] = [0, 0, 0];
    for point in points {
        valid += valid_trials(point);
        stolen += invalid_for(point, Some(&["steal", "late-by-steal"]));
        others += invalid_for(point, Some(&["other-programs"]));
    }
    let rest = valid + others;
    (others > 1 && others * 10 > rest) || stolen * 4 > (rest + stolen) * 3
}

fn valid_trials(point: &Value) -> u64 {
    point["valid"].as_u64().unwrap_or(0)
}

/// Asserts that at least `least` trials of a point were taken as planned, whether or not other tests on the same cores
/// disturbed them.
#[track_caller]
pub(crate) fn assert_taken(point: &Value, least: u64, what: &str) {
    let taken = valid_trials(point) + disturbed_trials(point);
    assert!(taken >= least, "{what}: {point:#}");
}

/// Whether a point has figures to assert: a valid trial. Asserts that `least` trials were taken as planned; where the
/// machine disturbed all of them, it says so, and the figures are not asserted.
#[track_caller]
#[must_use]
pub(crate) fn has_figures(point: &Value, least: u64, what: &str) -> bool {
    assert_taken(point, least, what);
    let measured = valid_trials(point) > 0;
    if !measured {
        skipped(&format!("the figures of {what}"), ALL_DISTURBED);
    }
    measured
}

/// Why figures of a run are not asserted.
pub(crate) const ALL_DISTURBED: &str = "the hypervisor or other programs disturbed too many trials";

#[cfg(test)]
mod tests {
    use super::*;

    /// The valid trials of a variant at its only load point, and the reasons of the invalid ones.
    type Trials = (u64, Value);

    fn analysis(none: Trials, again: Trials, it: Trials) -> Value {
        let variant = |id: &str, (valid, invalid): Trials| {
            let point = json!({"load_point": "saturated", "valid": valid, "invalid": invalid});
            json!({"variant": id, "excluded": null, "points": [point]})
        };
        let variants = [
            variant("none", none),
            variant("none-again", again),
            variant("it", it),
        ];
        json!({"run": {"ending": {"id": "time-used"}}, "variants": variants})
    }

    /// The same for every variant.
    fn same(valid: u64, invalid: Value) -> Value {
        let all = || (valid, invalid.clone());
        analysis(all(), all(), all())
    }

    #[track_caller]
    fn assert_accepted(analyses: impl IntoIterator<Item = Value>, accepted: bool) {
        for analysis in analyses {
            let found = is_without_result_by_the_machine(&analysis);
            assert_eq!(found, accepted, "{analysis:#}");
        }
    }

    #[test]
    fn run_without_a_result_is_accepted_if_the_machine_disturbed_it() {
        let others = |valid| (valid, json!({"other-programs": 1}));
        let whole = || (6, json!({}));
        let analyses = [
            same(1, json!({"other-programs": 4})),
            same(5, json!({"steal": 1})),
            same(9, json!({"other-programs": 2})),
            same(8, json!({"steal": 30})),
            // Its own trials are there, and blocks of them have lost both baselines.
            analysis(others(5), others(5), whole()),
            // The baselines have too few pairs for a noise floor.
            analysis(others(5), whole(), whole()),
        ];
        assert_accepted(analyses, true);
    }

    #[test]
    fn run_without_a_result_is_not_accepted_for_another_reason() {
        let whole = |valid| (valid, json!({}));
        let mut failed = same(5, json!({"steal": 1}));
        failed["run"]["ending"]["id"] = json!("failed");
        let analyses = [
            same(9, json!({})),
            same(5, json!({})),
            same(9, json!({"steal": 4})),
            same(5, json!({"failed": 1})),
            same(3, json!({"other-programs": 2})),
            // Steal takes whole blocks: the baselines have lost no other.
            analysis((6, json!({"steal": 1})), whole(7), whole(7)),
            // What another reason made invalid is no disturbance.
            analysis(whole(9), whole(9), (3, json!({"evidence-lost": 6}))),
            failed,
        ];
        assert_accepted(analyses, false);
    }
}
