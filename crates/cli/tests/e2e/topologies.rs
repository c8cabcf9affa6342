//! Services of several replicas, further protocols and sizes of answers, and the user's own program.

use std::process::Command;

use serde_json::Value;

use crate::specs::{candidates, run_arguments};
use crate::support::{Finished, Scratch, alone, finish, meshtax, records};

const DESIGN: &str = "design: {rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 25s}\n";

fn command(scratch: &Scratch, name: &str, head: &str, load: &str) -> Command {
    let variants: String = candidates().iter().map(|v| format!("  - {v}\n")).collect();
    let text = format!("name: {name}\n{head}variants:\n{variants}load:\n{load}{DESIGN}");
    let path = scratch.write(&format!("{name}.yaml"), &text);
    let out = scratch.path(name);
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    meshtax(scratch, &arguments)
}

fn run(scratch: &Scratch, name: &str, head: &str, load: &str) -> Finished {
    finish(command(scratch, name, head, load))
}

fn variants(analysis: &Value) -> &Vec<Value> {
    analysis["variants"].as_array().expect("variants")
}

/// Every variant was proven, and every point of it measured. Too few blocks for intervals are enough here.
fn assert_whole(finished: &Finished) -> Value {
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let analysis = finished.json();
    for variant in variants(&analysis) {
        assert_eq!(variant["left_out"], Value::Null, "{variant:#}");
        for point in variant["points"].as_array().expect("points") {
            assert!(point["valid"].as_u64() >= Some(1), "{variant:#}");
        }
    }
    analysis
}

#[test]
fn a_service_address_reaches_every_replica() {
    let _alone = alone();
    let scratch = Scratch::new();
    let head = "service: {replicas: 5, address: virtual}\nworkload: {connections: 8}\n";
    let load = "  - saturated: {requests-per-connection: 1}\n  - saturated: {}\n";
    let analysis = assert_whole(&run(&scratch, "replicas", head, load));
    for variant in variants(&analysis) {
        let id = &variant["variant"];
        // 5 replicas and hundreds of connections: that one of them gets none happens never.
        let spread = &variant["points"][0]["spread"];
        assert_eq!(spread["replicas"], 5, "{id}");
        assert_eq!(spread["hit_min"], 5, "{id}: {spread}");
        let kept = &variant["points"][1]["spread"];
        assert!(kept["busiest_share"].as_f64() >= Some(0.2), "{id}: {kept}");
        let balances = &variant["evidence"]["features"]["balances"];
        let by_request = id.as_str().is_some_and(|id| id.starts_with("envoy"));
        let expected = if by_request {
            "requests"
        } else {
            "connections"
        };
        assert_eq!(*balances, expected, "{id}");
    }
    let told = finish(meshtax(
        &scratch,
        &["report", scratch.path("replicas").to_str().expect("UTF-8")],
    ));
    assert!(
        told.stdout.contains("Spread over 5 replicas"),
        "{}",
        told.stdout
    );
}

#[test]
fn every_protocol_goes_through_every_data_plane_that_has_an_answer() {
    let _alone = alone();
    let scratch = Scratch::new();
    let load = "  - saturated: {}\n  - saturated: {protocol: http2}\n  - saturated: {protocol: grpc}\n\
                \x20 - saturated: {protocol: tcp}\n  - saturated: {response: 0 B}\n\
                \x20 - saturated: {response: 200 KiB}\n";
    let head = "workload: {connections: 4}\n";
    let finished = run(&scratch, "protocols", head, load);
    let analysis = assert_whole(&finished);
    for variant in variants(&analysis) {
        let is_l7 = variant["variant"] == "envoy-sidecar-l7";
        let points = variant["points"].as_array().expect("points");
        assert_eq!(points.len(), if is_l7 { 5 } else { 6 }, "{variant:#}");
    }
    for trial in records(&scratch.path("protocols/trials.jsonl")) {
        let load = &trial["outcome"]["load"];
        assert!(load["succeeded"].as_u64() > Some(0), "{trial}");
        let received = load["bytes_received"].as_f64().unwrap_or_default();
        let each = received / load["completed"].as_f64().unwrap_or_default();
        match trial["trial"]["load_point"].as_str() {
            Some("saturated-0B") => assert!(each < 600.0, "{each}"),
            Some("saturated-200KiB") => assert!(each > 200e3, "{each}"),
            _ => {}
        }
    }
    if crate::support::envoy().is_some() {
        let path = scratch.path("protocols");
        let told = finish(meshtax(
            &scratch,
            &["report", path.to_str().expect("UTF-8")],
        ));
        let words = told.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let gap =
            "envoy-sidecar-l7 was not measured at saturated, TCP: an l7 policy judges requests";
        assert!(words.contains(gap), "{words}");
    }
}

#[test]
fn the_users_own_program_stands_behind_the_service() {
    let _alone = alone();
    let scratch = Scratch::new();
    // Its usual port is the one that meshtax's own application has otherwise.
    let binary = env!("CARGO_BIN_EXE_meshtax");
    let head = format!(
        "service: {{replicas: 2, server: {{command: [{binary}, serve, --listen, \"0.0.0.0:8080\", --body, 77B], \
         port: 8080, path: /mine?a=b}}}}\nworkload: {{connections: 4}}\n"
    );
    let finished = run(
        &scratch,
        "own",
        &head,
        "  - steady: {rate: 300}\n  - saturated: {}\n",
    );
    assert_whole(&finished);
    let out = scratch.path("own");
    for trial in records(&out.join("trials.jsonl")) {
        let load = &trial["outcome"]["load"];
        let received = load["bytes_received"].as_f64().unwrap_or_default();
        let each = received / load["completed"].as_f64().unwrap_or_default();
        assert!(
            (100.0..600.0).contains(&each),
            "not 77 bytes and a head: {each}"
        );
    }
    let used = records(&out.join("samples.jsonl"));
    let names = used.iter().flat_map(|sample| {
        let components = sample["components"].as_array().expect("components");
        components.iter().filter_map(|c| c["name"].as_str())
    });
    let programs = names.filter(|name| name.contains("own-program")).count();
    assert!(programs > 0, "its CPU is accounted for");
}

#[test]
fn a_program_that_is_none_is_named() {
    let _alone = alone();
    let scratch = Scratch::new();
    for (command, named) in [
        (
            "[/no/such/program]",
            "cannot start the service's own program `/no/such/program`",
        ),
        (
            "[sh, -c, echo no licence >&2; exit 4]",
            "own-program exited with 4; its last words: no licence",
        ),
    ] {
        let head = format!("service: {{server: {{command: {command}, port: 9000}}}}\n");
        let finished = run(&scratch, "none", &head, "  - saturated: {}\n");
        finished.expect_code(12);
        assert!(finished.stderr.contains(named), "{}", finished.stderr);
        std::fs::remove_dir_all(scratch.path("none")).expect("a run directory");
    }
}
