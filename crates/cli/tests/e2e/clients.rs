//! Several client pods, each with its own proxy: one load, divided among them, and evidence of each.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::outcome::{
    assert_excluded_by, assert_not_excluded, seen_by, trials_together, variant_of,
};
use crate::specs::{run_arguments, variant};
use crate::support::{
    LINKERD_PROXY, PATIENCE, Running, Scratch, alone, beside_others, finish, given, manifest,
    meshtax, records,
};

/// As many connections as the first three clients have two of, and the last one.
const LOAD: &str = "workload: {response: 1 KiB, connections: 7, clients: 4}\n";

fn spec(variants: &[String], load: &str) -> String {
    let variants: String = variants.iter().map(|v| format!("  - {v}\n")).collect();
    format!(
        "name: clients\n{LOAD}variants:\n{variants}load:\n{load}\
         design: {{rounds: 1, blocks: 1, trial: 400ms, warmup: 100ms, time: 3s}}\n"
    )
}

#[test]
fn four_clients_offer_one_load_through_a_proxy_each() {
    let _alone = alone();
    let mut planes = vec![("limit-mtls", "mtls")];
    let linkerd = given(LINKERD_PROXY, "four clients with linkerd2-proxy");
    planes.extend(linkerd.is_some().then_some(("linkerd", "mtls")));
    let variants: Vec<String> = planes
        .iter()
        .map(|(plane, level)| variant(plane, level, plane))
        .collect();
    let load = "  - steady: {rate: 500, arrivals: constant, id: even}\n  - steady: {rate: 500}\n";
    let scratch = Scratch::new();
    let path = scratch.write("clients.yaml", &spec(&variants, load));
    let out = scratch.path("run");
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    let mut command = meshtax(&scratch, &arguments);
    command.envs(linkerd.iter().map(|path| (LINKERD_PROXY, path)));
    let finished = Running::start(command).finish(PATIENCE);
    finished.expect_completed();
    assert_eq!(manifest(&out)["experiment"]["workload"]["clients"], 4);
    let evidence = records(&out.join("evidence.jsonl"));
    let samples = records(&out.join("samples.jsonl"));
    let trials = records(&out.join("trials.jsonl"));
    for (plane, _) in planes {
        assert_not_excluded(variant_of(&finished.json(), plane));
        let of_variant = evidence.iter().find(|record| record["variant"] == plane);
        let of_variant = of_variant.unwrap_or_else(|| panic!("no evidence: {finished:?}"));
        for probe in [
            "permitted-request",
            "in-the-path",
            "client-identity",
            "on-the-wire",
            "canary",
            "handshake",
        ] {
            let seen = seen_by(of_variant, probe);
            assert!(seen.starts_with("4 clients; client: "), "{probe}: {seen}");
        }
        let own = trials.iter().filter(|t| t["trial"]["variant"] == plane);
        assert_eq!(own.count(), 2, "{plane}");
        let together = trials_together(&trials, plane);
        together.iter().copied().for_each(assert_one_load);
        let is_one = |sample: &&Value| {
            let mut trials = together.iter();
            trials.any(|trial| sample["trial"] == trial["trial"]["id"])
        };
        let own: Vec<&Value> = samples.iter().filter(is_one).collect();
        assert_eq!(own.len(), together.len(), "{plane}");
        assert_every_client_is_read(&own, plane);
    }
}

/// The parts add up to the load of the spec.
fn assert_one_load(trial: &Value) {
    let outcome = &trial["outcome"];
    assert_eq!(
        outcome["lost_evidence"].as_array().map_or(0, Vec::len),
        0,
        "{outcome:#}"
    );
    let load = &outcome["load"];
    assert_eq!(load["connections_opened"], 7, "{load:#}");
    let offered = load["offered"].as_u64().expect("a count");
    match trial["trial"]["load_point"] == "even" {
        // 500 a second in 400 ms: of one grid, whose phase the seed gives.
        true => assert!((199..=201).contains(&offered), "{offered}"),
        // Five standard deviations of 200 are 71.
        false => assert!((129..=271).contains(&offered), "{offered}"),
    }
    assert_eq!(load["status"]["200"], offered, "{load:#}");
}

/// Each client has its own generator and its own proxy. A stall of the machine can leave them idle for a whole window.
fn assert_every_client_is_read(samples: &[&Value], plane: &str) {
    let busy = |sample: &Value, role: &str| -> BTreeSet<String> {
        let components = sample["components"].as_array().expect("components").iter();
        let of_role = components.filter(|c| c["role"] == role);
        let busy = of_role.filter(|c| c["cpu_ns"].as_u64() > Some(0));
        busy.map(|c| c["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    // Each trial has its own.
    let mut samples_with_all = samples.iter().filter(|s| busy(s, "generator").len() == 4);
    assert!(samples_with_all.next().is_some(), "{samples:#?}");
    let names = |role: &str| -> BTreeSet<String> {
        let all = samples.iter().flat_map(|sample| busy(sample, role));
        all.collect()
    };
    let proxies: BTreeSet<String> = ["", "-2", "-3", "-4"]
        .iter()
        .map(|number| format!("{plane}/client-proxy{number}"))
        .collect();
    assert_eq!(names("client-proxy"), proxies);
    assert_eq!(names("server-proxy").len(), 1);
}

/// The same through the last client alone: the other three are as they should be.
#[test]
fn sabotage_of_one_of_four_clients_is_detected() {
    let _alone = alone();
    let linkerd = given(LINKERD_PROXY, "sabotage of one client of linkerd2-proxy");
    let mut planes = vec![("limit-l4", "plaintext"), ("limit-mtls", "mtls")];
    planes.extend(linkerd.is_some().then_some(("linkerd", "mtls")));
    const KINDS: [&str; 2] = [
        "no-redirect-of-one-client",
        "load-of-one-client-around-proxies",
    ];
    let id = |plane: &str, kind: &str| format!("{plane}-{kind}");
    let all: Vec<(&str, &str, &str)> = planes
        .iter()
        .flat_map(|(plane, level)| KINDS.map(|kind| (*plane, *level, kind)))
        .collect();
    let variants: Vec<String> = all
        .iter()
        .map(|(plane, level, kind)| variant(plane, level, &id(plane, kind)))
        .collect();
    let scratch = Scratch::new();
    let path = scratch.write("one.yaml", &spec(&variants, "  - steady: {rate: 300}\n"));
    let out = scratch.path("run");
    let flags: Vec<String> = all
        .iter()
        .map(|(plane, _, kind)| format!("--sabotage={}={kind}", id(plane, kind)))
        .collect();
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    arguments.extend(flags.iter().map(String::as_str));
    let mut command = meshtax(&scratch, &arguments);
    let programs: Vec<(&str, &PathBuf)> = linkerd.iter().map(|p| (LINKERD_PROXY, p)).collect();
    command.envs(programs);
    let finished = Running::start(command).finish(PATIENCE);
    finished.expect_completed();
    let (analysis, trials) = (finished.json(), records(&out.join("trials.jsonl")));
    for (plane, level, kind) in all {
        let id = id(plane, kind);
        let found = variant_of(&analysis, &id);
        if kind == KINDS[0] {
            let probe = match level {
                // Nothing is encrypted: only the sockets tell.
                "plaintext" => "in-the-path",
                _ => "canary",
            };
            assert_excluded_by(found, probe, &["client-4"]);
            continue;
        }
        // Its probes pass.
        assert_not_excluded(found);
        for trial in trials_together(&trials, &id) {
            let outcome = trial["outcome"].to_string();
            let bypassed = outcome.contains("bypassed-connections");
            assert!(bypassed && outcome.contains("client-4"), "{id}: {outcome}");
        }
    }
}

#[test]
fn clients_that_cannot_share_a_load_are_rejected_with_the_fix() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let path = scratch.write(
        "few.yaml",
        "name: few\nworkload: {connections: 2}\nvariants: [{data-plane: limit-mtls}]\n",
    );
    let path = path.to_str().expect("UTF-8");
    for (arguments, named) in [
        (["run", path, "--clients", "4"], "has 2 connections"),
        (
            ["run", path, "--clients", "0"],
            "whole numbers from 1 to 64",
        ),
        (
            ["run", "--ingress=plaintext", "--clients", "2"],
            "omit `clients`, or `ingress`",
        ),
    ] {
        let finished = finish(meshtax(&scratch, &arguments));
        finished.expect_code(2);
        assert!(finished.stderr.contains(named), "{}", finished.stderr);
    }
}
