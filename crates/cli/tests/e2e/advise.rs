//! Advice from the run that an earlier version stored: nothing is measured here.

use std::fs;

use serde_json::Value;

use crate::stores::{STORED, copied};
use crate::support::{Finished, Scratch, alone, finish, meshtax};

fn advised(more: &[&str]) -> Finished {
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
fn a_stored_run_answers_in_order() {
    let _alone = alone();
    let mut asked = vec!["--slo", "p50<5ms@400/s", "--slo", "p99<5ms@2000/s"];
    asked.extend(CLUSTER);
    let told = advised(&asked);
    let text = &told.expect_code(0).stdout;
    let places: Vec<Option<usize>> = [
        "1. Is a mesh needed?",
        "the answer is no mesh",
        "2. What meets",
        "3. What does",
        "4. What comes first",
        "facts side by side, no score",
        "5. What does",
        "6. What this does not say",
        "one shared core",
    ]
    .iter()
    .map(|sentence| text.find(sentence))
    .collect();
    assert!(places.iter().all(Option::is_some), "{places:?}\n{text}");
    assert!(places.is_sorted(), "{places:?}\n{text}");
    // Asked beyond what was measured, it says so, and what would measure it.
    let lines: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(lines.contains("2,000/s was not"), "{text}");
    assert!(lines.contains("meshtax run --preset rates"), "{text}");
    assert!(lines.contains("Not in it: idle CPU"), "{text}");
    // Again from the same records, the same words.
    assert_eq!(advised(&asked).stdout, *text);
}

#[test]
fn the_example_in_the_documentation_is_what_it_prints() {
    let _alone = alone();
    let page = include_str!("../../../../docs/advise.md");
    let example = page.rsplit_once("```text\n").expect("an example").1;
    let example = example.trim_end().trim_end_matches("```");
    let mut asked = vec!["--slo", "p50<5ms@400/s", "--slo", "p99<5ms@2000/s"];
    asked.extend(["--need", "mtls"]);
    asked.extend(CLUSTER);
    let told = advised(&asked);
    let told: Vec<&str> = told.expect_code(0).stdout.lines().collect();
    // Behind the command's two lines; an ellipsis stands for what is cut.
    let shown = example.lines().skip(2).filter(|line| *line != "…");
    let missing: Vec<&str> = shown.filter(|line| !told.contains(line)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_document_is_of_its_schema() {
    let _alone = alone();
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/schema/advise-v1.json")).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let mut asked = vec!["--json", "--slo", "throughput>100/s", "--need", "mtls"];
    asked.extend(["--need", "mtls", "--cni", "cilium", "--priority", "cost"]);
    asked.extend(CLUSTER);
    let document = advised(&asked).expect_code(0).json();
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
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
fn what_cannot_be_answered_is_refused_with_the_fix() {
    let _alone = alone();
    for (asked, told) in [
        (["--slo", "p99<5ms"], "p99<5ms@2000/s"),
        (["--slo", "p99<5ms@sat"], "latency at saturation"),
        (["--slo", "p95<5ms@400/s"], "did you mean `p90`"),
        (["--slo", "p99<5@400/s"], "has no unit"),
        (["--pods", "0"], "whole numbers from 1"),
        (["--need", "encryption"], "known: `mtls`"),
        (["--priority", "speed"], "known: `performance`"),
        (["--cpu-price", "-1"], "0 to 1000000"),
        (["--cni", "flannel"], "cilium"),
    ] {
        let refused = advised(&asked);
        refused.expect_code(2);
        assert!(
            refused.stderr.contains(told),
            "{asked:?}: {}",
            refused.stderr
        );
    }
    let scratch = Scratch::new();
    finish(meshtax(&scratch, &["advise"])).expect_code(2);
    let nowhere = scratch.path("none").display().to_string();
    finish(meshtax(&scratch, &["advise", &nowhere])).expect_code(14);
    // Two blocks are no figure with an interval.
    let run = copied(&scratch);
    let trials = fs::read_to_string(run.join("trials.jsonl")).expect("trials");
    let few: Vec<&str> = trials.lines().take(30).collect();
    fs::write(run.join("trials.jsonl"), few.join("\n") + "\n").expect("a file");
    let few = finish(meshtax(&scratch, &["advise", &run.display().to_string()]));
    few.expect_code(13);
    assert!(few.stderr.contains("fewer than six blocks"), "{few:?}");
    assert!(few.stderr.contains("meshtax run --time"), "{few:?}");
}
