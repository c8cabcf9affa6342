//! Two concurrent runs: labs are isolated, so neither sees the other's traffic. Their use of each other's cores is
//! reported.

use crate::machine::{Machine, Trace, assert_nothing_left};
use crate::outcome::{assert_not_excluded, invalid_reasons};
use crate::specs::{SATURATED, candidates, run_arguments, spec};
use crate::support::{PATIENCE, Running, Scratch, alone, manifest, meshtax, records};

/// Windows of 300 ms: a request passes five processes on a core that both runs share.
const DESIGN: &str = "rounds: 3, blocks: 3, trial: 300ms, warmup: 50ms, time: 20s";

#[test]
fn concurrent_runs_are_isolated_and_report_each_other() {
    let _alone = alone();
    let scratch = Scratch::new();
    let before = Machine::now(&scratch);
    let candidates: Vec<String> = candidates().into_iter().take(2).collect();
    let text = spec("twin", &candidates, SATURATED, DESIGN);
    let path = scratch.write("spec.yaml", &text);
    let outs = ["first", "second"].map(|name| scratch.path(name));
    let mut trace = Trace::default();
    let mut runs = [("1", &outs[0]), ("2", &outs[1])].map(|(seed, out)| {
        let mut arguments = run_arguments(&path, out);
        arguments.extend(["--json", "--seed", seed]);
        Running::start(meshtax(&scratch, &arguments))
    });
    for (run, out) in runs.iter_mut().zip(&outs) {
        run.wait_until("a trial", |_| {
            !records(&out.join("trials.jsonl")).is_empty()
        });
    }
    for run in &mut runs {
        assert!(!run.is_over(), "one run ended before the other started");
        trace.look(run.pid());
    }
    let mut ids = Vec::new();
    for (run, (seed, out)) in runs.into_iter().zip([1, 2].into_iter().zip(&outs)) {
        let finished = run.finish(PATIENCE);
        // Trials that shared their cores are invalid, and too few may be left.
        let analysis = finished.expect_success_or_busy_cores().json();
        let reasons = invalid_reasons(&analysis);
        assert!(reasons.contains("other-programs"), "{reasons:?}");
        assert_eq!(analysis["run"]["seed"], seed);
        assert_eq!(manifest(out)["seed"], seed);
        for variant in analysis["variants"].as_array().expect("variants") {
            assert_not_excluded(variant);
            assert_eq!(
                variant["rounds_proven"], variant["rounds_tried"],
                "{variant:#}"
            );
        }
        let of_all = analysis["variants"].as_array().map(Vec::len);
        assert_eq!(of_all, Some(2 + candidates.len()));
        ids.push(analysis["run"]["id"].clone());
    }
    assert_ne!(ids[0], ids[1]);
    assert_nothing_left(&before, &trace, &scratch);
}
