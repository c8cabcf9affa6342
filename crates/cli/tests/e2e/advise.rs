//! `meshtax advise` on a stored run; nothing is measured here.

use std::fs;

use serde_json::{Value, json};

use crate::stores::{STORED, copied, without};
use crate::support::{Finished, Scratch, beside_others, finish, meshtax};

fn advise(more: &[&str]) -> Finished {
    let mut arguments = vec!["advise", STORED];
    arguments.extend(more);
    finish(meshtax(&Scratch::new(), &arguments))
}

const CLUSTER: [&str; 8] = [
    "--pods",
    "500",
    "--requests",
    "20000/s",
    "--cpu-price",
    "0.04",
    "--memory-price",
    "0.005",
];

#[test]
fn advice_sections_appear_in_order() {
    let _shared = beside_others();
    let mut options = vec!["--slo", "p50<5ms@400/s", "--slo", "p99<5ms@2000/s"];
    options.extend(CLUSTER);
    let advice = advise(&options);
    let text = &advice.expect_code(0).stdout;
    let sections = ["1. ", "2. ", "3. ", "4. ", "5. ", "6. "];
    let sections = sections.map(|number| text.lines().position(|line| line.starts_with(number)));
    assert!(sections.iter().all(Option::is_some), "{sections:?}\n{text}");
    assert!(sections.is_sorted(), "{sections:?}\n{text}");
    // The same records give the same text.
    assert_eq!(advise(&options).stdout, *text);
    // What was not measured is reported, with what would measure it.
    options.push("--json");
    let document = advise(&options).expect_code(0).json();
    assert_eq!(document["sufficient"], serde_json::json!([]));
    let not_measured = &document["objectives"][1];
    assert_eq!(
        not_measured["checks"],
        serde_json::json!([]),
        "{not_measured:#}"
    );
    let presets = not_measured["presets"].as_array().expect("presets");
    assert!(presets.contains(&"rates".into()), "{not_measured:#}");
    let missing = document["costs"][0]["missing"].as_array().expect("a list");
    let is_missing = |missing: &Value| missing["figure"] == "idle-cpu";
    assert!(missing.iter().any(is_missing), "{missing:#?}");
}

#[test]
fn documented_advice_example_matches_output() {
    let _shared = beside_others();
    let page = include_str!("../../../../docs/advise.md");
    let example = page.rsplit_once("```text\n").expect("an example").1;
    let example = example.trim_end().trim_end_matches("```");
    let mut options = vec!["--slo", "p50<5ms@400/s", "--slo", "p99<5ms@2000/s"];
    options.extend(["--need", "mtls"]);
    options.extend(CLUSTER);
    let advice = advise(&options);
    let printed: Vec<&str> = advice.expect_code(0).stdout.lines().collect();
    // After the command's two lines; an ellipsis marks an omission.
    let shown = example.lines().skip(2).filter(|line| *line != "…");
    let missing: Vec<&str> = shown.filter(|line| !printed.contains(line)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[track_caller]
fn assert_matches_schema(document: &Value) {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/schema/advise-v2.json")).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(document)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn objective_of_a_variant_without_trials_is_not_measured() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let run = without(&scratch, "envoy-sidecar-l7").display().to_string();
    let document = finish(meshtax(
        &scratch,
        &["advise", &run, "--slo", "p50<5s@400/s", "--json"],
    ));
    let document = document.expect_code(0).json();
    assert_matches_schema(&document);
    let checks = document["objectives"][0]["checks"].as_array();
    let checks = checks.expect("checks");
    let check = checks.iter().find(|c| c["variant"] == "envoy-sidecar-l7");
    let check = check.expect("a check of every variant");
    assert_eq!(check["verdict"], "inconclusive", "{check:#}");
    let reason = json!({"id": "not-measured", "reason": {"id": "no-trials"}});
    assert_eq!(check["reason"], reason, "{check:#}");
}

#[test]
fn advice_json_matches_its_schema() {
    let _shared = beside_others();
    let mut options = vec!["--json", "--slo", "throughput>100/s", "--need", "mtls"];
    options.extend(["--need", "mtls", "--cni", "cilium", "--priority", "cost"]);
    options.extend(CLUSTER);
    let document = advise(&options).expect_code(0).json();
    assert_matches_schema(&document);
    assert_eq!(document["asked"]["needs"], serde_json::json!(["mtls"]));
    assert_eq!(document["sufficient"][0], "envoy-sidecar-l7");
    assert_eq!(document["priorities"].as_array().map(Vec::len), Some(1));
    let costs = document["costs"].as_array().expect("costs");
    assert_eq!(costs.len(), 3);
    for cost in costs {
        let cores = &cost["cpu"]["cores"];
        let interval = &cores["interval"];
        let [low, value, high] =
            [&interval["low"], &cores["value"], &interval["high"]].map(Value::as_f64);
        assert!(low < value && value < high, "{cost:#}");
        assert!(cost["memory"]["total_bytes"]["value"].as_f64() > Some(0.0));
    }
}

#[test]
fn invalid_advice_options_are_rejected_with_a_fix() {
    let _shared = beside_others();
    for (options, message) in [
        (["--slo", "p99<5ms"], "p99<5ms@2000/s"),
        (["--slo", "p99<5ms@sat"], "latency at saturation"),
        (["--slo", "p95<5ms@400/s"], "did you mean `p90`"),
        (["--slo", "p99<5@400/s"], "has no unit"),
        (["--pods", "0"], "whole numbers from 1"),
        (["--need", "encryption"], "allowed: `mtls`"),
        (["--priority", "speed"], "allowed: `performance`"),
        (["--cpu-price", "-1"], "0 to 1000000"),
        (["--cni", "flannel"], "cilium"),
    ] {
        let rejected = advise(&options);
        rejected.expect_code(2);
        assert!(
            rejected.stderr.contains(message),
            "{options:?}: {}",
            rejected.stderr
        );
    }
    let scratch = Scratch::new();
    finish(meshtax(&scratch, &["advise"])).expect_code(2);
    let nowhere = scratch.path("none").display().to_string();
    finish(meshtax(&scratch, &["advise", &nowhere])).expect_code(14);
    // Two blocks give no figure with an interval.
    let run = copied(&scratch);
    let trials = fs::read_to_string(run.join("trials.jsonl")).expect("trials");
    let few: Vec<&str> = trials.lines().take(30).collect();
    fs::write(run.join("trials.jsonl"), few.join("\n") + "\n").expect("a file");
    let few = finish(meshtax(&scratch, &["advise", &run.display().to_string()]));
    few.expect_code(13);
    assert!(few.stderr.contains("meshtax run --time"), "{few:?}");
    assert!(few.stderr.contains("fewer than six blocks"), "{few:?}");
}

#[test]
fn decision_weights_are_checked_and_need_two_choices() {
    let _shared = beside_others();
    for (weight, wrong) in [
        ("speed=1", "speed"),
        ("cost=0", "cost=0"),
        ("cost=nan", "nan"),
        ("cost", "cost"),
    ] {
        let refused = advise(&["--weight", weight]);
        let text = &refused.expect_code(2).stderr;
        assert!(text.contains(wrong), "{text}");
    }
    // The stored run has one mesh, so nothing is suggested.
    let document = advise(&["--weight", "cost=2", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(document["asked"]["weights"][0]["requirement"], "cost");
    assert_eq!(document["decision"], Value::Null);
    let arguments = ["report", STORED, "--weight", "cost=2", "--format", "csv"];
    finish(meshtax(&Scratch::new(), &arguments)).expect_code(2);
}
