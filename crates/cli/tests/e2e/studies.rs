//! Features of the study presets: several topologies, users and pages, a study's own durations.

use serde_json::Value;

use crate::outcome::{assert_not_excluded, has_figures, variant_of};
use crate::specs::run_arguments;
use crate::support::{
    Finished, Scratch, alone, beside_others, finish, meshtax, records, until_measured,
};

fn run(scratch: &Scratch, name: &str, text: &str, more: &[&str]) -> Finished {
    let path = scratch.write(&format!("{name}.yaml"), text);
    let out = scratch.path(name);
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(more);
    finish(meshtax(scratch, &arguments))
}

fn loads(scratch: &Scratch, directory: &str) -> Vec<Value> {
    let trials = records(&scratch.path(&format!("{directory}/trials.jsonl")));
    assert!(!trials.is_empty(), "nothing was measured in {directory}");
    trials
        .iter()
        .map(|trial| trial["outcome"]["load"].clone())
        .collect()
}

#[test]
fn several_topologies_are_reported_together() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let text = "name: pods\nstudy: pods-vegeta\ntopologies: [replicas-1, replicas-10]\n\
                workload: {connections: 2}\nvariants: [{data-plane: limit-l4}]\n\
                load: [{steady: {rate: 50}}]\ndesign: {rounds: 1, blocks: 1, trial: 400ms, warmup: 50ms, time: 2s}\n";
    let finished = run(&scratch, "pods", text, &[]);
    finished.expect_completed();
    for value in ["2 runs", "Linkerd over 1 to 90 pods", "cluster only"] {
        assert!(
            finished.stdout.contains(value),
            "{value}: {}",
            finished.stdout
        );
    }
    let directory = scratch.path("pods");
    let directory = directory.to_str().expect("UTF-8");
    for (name, pods) in [("pods-replicas-1", 1), ("pods-replicas-10", 10)] {
        let manifest = scratch.path(&format!("pods/{name}/manifest.json"));
        let manifest = std::fs::read_to_string(manifest).expect("a run of its own");
        let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
        assert_eq!(
            manifest["experiment"]["topology"]["services"][0]["replicas"],
            pods
        );
        assert_eq!(manifest["experiment"]["series"], "pods");
    }
    assert!(scratch.path("pods/report.html").is_file());
    let finished = finish(meshtax(&scratch, &["report", directory]));
    assert_eq!((finished.code, &finished.stdout), (0, &finished.stdout));
    let finished = finish(meshtax(
        &scratch,
        &["report", directory, "--format", "json"],
    ));
    let series = finished.json();
    let runs = series["runs"].as_array().expect("runs");
    assert_eq!(
        (runs.len(), &series["format_version"]),
        (2, &Value::from(2))
    );
    let csv = finish(meshtax(&scratch, &["report", directory, "--format", "csv"]));
    assert!(
        csv.code == 2 && csv.stderr.contains("name one of the directories"),
        "{csv:?}"
    );
}

/// Two pages in turn: half of the responses are large.
#[test]
fn users_request_pages_in_order_and_first_byte_latency_is_reported() {
    let _alone = alone();
    let text = "name: shop\nstudy: teastore-users\n\
                topology:\n  name: shop\n  services:\n    - {name: front, calls: [back], pages: [{name: small, response: 0 B}, \
                {name: large, response: 100 KiB, calls: [back, back]}]}\n    - {name: back, response: 1 KiB}\n\
                variants: [{data-plane: limit-mtls}]\nload: [{steady: {users: 20, rate: 200, arrivals: constant}}]\n\
                design: {rounds: 1, blocks: 1, trial: 500ms, warmup: 100ms, time: 2s}\n";
    let (scratch, finished) = until_measured(
        |scratch| run(scratch, "shop", text, &["--json"]),
        |_, finished| finished.has_every_point(),
    );
    finished.expect_completed();
    for load in loads(&scratch, "shop") {
        let each = load["bytes_received"].as_f64().unwrap_or_default()
            / load["completed"].as_f64().unwrap_or_default();
        assert!((40e3..65e3).contains(&each), "{each}: {load}");
        let status = load["status"].as_object().expect("responses");
        assert!(status.keys().all(|code| code == "200"), "{load}");
    }
    let analysis = finished.json();
    assert_eq!(analysis["experiment"]["load_points"][0]["by_users"], true);
    for variant in analysis["variants"].as_array().expect("variants") {
        assert_not_excluded(variant);
        let point = &variant["points"][0];
        if !has_figures(point, 1, "users") {
            continue;
        }
        let quantiles = point["first_byte"].as_array().expect("percentiles");
        assert!(quantiles.iter().any(|p| p["quantile"] == 0.75), "{point:#}");
        assert!(
            point["usage"].as_array().is_some_and(|u| !u.is_empty()),
            "{point:#}"
        );
    }
}

#[test]
fn faithful_closed_loop_ends_after_its_last_request() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let text = "name: by-number\nvariants: [{data-plane: limit-l4}]\nload: [{saturated: {connections: 4}}]\n\
                faithful: {requests: 700}\n";
    let finished = run(&scratch, "by-number", text, &["--faithful"]);
    finished.expect_completed();
    let announced = "3 trials of 700 requests";
    assert!(finished.stderr.contains(announced), "{}", finished.stderr);
    for load in loads(&scratch, "by-number") {
        assert_eq!(load["offered"], 700, "{load}");
        // Its time limit is an hour.
        assert!(load["window_ns"].as_u64() < Some(30_000_000_000), "{load}");
    }
    let rejected = run(&scratch, "short", "name: short\n", &["--faithful"]);
    assert_eq!(rejected.code, 10, "{rejected:?}");
    assert!(
        rejected.stderr.contains("add `faithful:"),
        "{}",
        rejected.stderr
    );
}

/// 200/s are far below what bookinfo reaches by itself, in a debug build too. The bursts take a quarter of the time.
#[test]
fn application_saturates_at_the_rate_of_the_spec_unless_it_is_asked_to_be_fast() {
    let _alone = alone();
    let text = "name: slow\ntopology: bookinfo\nsaturates-at: 200/s\nvariants: [{data-plane: limit-l4}]\n\
                load: [{saturated: {connections: 16}}]\n\
                design: {rounds: 1, blocks: 1, trial: 500ms, warmup: 200ms, time: 14s}\n";
    let distance = |burst: &Value| {
        let rate = burst["rate_per_s"].as_f64().expect("a rate");
        (rate / 200.0).ln().abs()
    };
    let nearest = |analysis: &Value| {
        let bursts = analysis["experiment"]["saturation"]["bursts"].as_array();
        let distances = bursts.expect("bursts").iter().map(distance);
        distances.fold(f64::MAX, f64::min)
    };
    // A stall leaves too little time for bursts, or halves the rate of the last one.
    let (_scratch, finished) = until_measured(
        |scratch| run(scratch, "slow", text, &["--json"]),
        |_, finished| finished.has_every_point() && nearest(&finished.json()) < 0.25,
    );
    finished.expect_completed();
    assert!(
        finished.stderr.contains("calibrating the application"),
        "{finished:?}"
    );
    let analysis = finished.json();
    let saturation = &analysis["experiment"]["saturation"];
    let bursts = saturation["bursts"].as_array().expect("bursts");
    assert!(bursts.len() > 1, "{saturation:#}");
    assert!(nearest(&analysis) < 0.25, "{saturation:#}");
    let services = analysis["experiment"]["topology"]["services"].as_array();
    for service in services.expect("services") {
        assert!(
            service["work"]["burn_steps"].as_u64() > Some(0),
            "{service}"
        );
    }
    let baseline = variant_of(&analysis, "none");
    if has_figures(
        &baseline["points"][0],
        1,
        "the application that is scaled to 200/s",
    ) {
        let rate = baseline["points"][0]["achieved_per_s"]
            .as_f64()
            .expect("a rate");
        assert!((100.0..400.0).contains(&rate), "{rate}: {saturation:#}");
    }
    let fast = ["--json", "--fast-application", "--time", "2s"];
    let analysis = run(&Scratch::new(), "slow", text, &fast).json();
    assert_eq!(analysis["experiment"]["saturation"], Value::Null);
}
