//! Services of several replicas, further protocols and sizes of answers, and the user's own program.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::specs::{SATURATED, candidates, run_arguments, spec, variant};
use crate::support::{
    Finished, LINKERD_PROXY, Scratch, ZTUNNEL, alone, finish, given, is_measured, meshtax, records,
    skipped,
};

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
            is_measured(
                point,
                1,
                &format!("{} {}", variant["variant"], point["load_point"]),
            );
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
    let finished = run(&scratch, "replicas", head, load);
    let analysis = assert_whole(&finished);
    for variant in variants(&analysis) {
        let id = &variant["variant"];
        let points = variant["points"].as_array().expect("points");
        for point in points.iter().filter(|point| point["valid"] != 0) {
            // 5 replicas and hundreds of connections: that one of them gets none happens never.
            let spread = &point["spread"];
            assert_eq!(spread["replicas"], 5, "{id}");
            if point["load_point"] == "saturated-new-connections" {
                assert_eq!(spread["hit_min"], 5, "{id}: {spread}");
            } else {
                let busiest = spread["busiest_share"].as_f64();
                assert!(busiest >= Some(0.2), "{id}: {spread}");
            }
        }
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
    let told_so = told.stdout.contains("Spread over 5 replicas");
    if !told_so && finished.was_taken_away() {
        return skipped(
            "what is said of the spread",
            "the hypervisor took the machine away",
        );
    }
    assert!(told_so, "{}", told.stdout);
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

/// Calls between services go through the proxies of both ends, encrypted where the level says so; who asks whom is
/// told by the names of the pods that the probes saw.
#[test]
fn services_that_call_each_other_are_proven_call_by_call() {
    let _alone = alone();
    let scratch = Scratch::new();
    let mut variants = vec![variant("limit-l4", "plaintext", "plain")];
    variants.extend(candidates());
    variants.push(variant("limit-l4", "plaintext", "around"));
    variants.push(variant("limit-mtls", "mtls", "around-mtls"));
    let design = "rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 25s";
    let text = spec("graph", &variants, SATURATED, design);
    let path = scratch.write("graph.yaml", &text);
    let out = scratch.path("graph");
    let mut arguments = run_arguments(&path, &out);
    let broken = [
        "around=no-redirect-behind",
        "around-mtls=no-redirect-behind",
    ];
    arguments.extend(["--topology", "bookinfo", "--json"]);
    for kind in &broken {
        arguments.extend(["--sabotage", kind]);
    }
    let finished = finish(meshtax(&scratch, &arguments));
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let analysis = finished.json();
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        let left_out = variant["left_out"].as_str().unwrap_or_default();
        match id {
            // Without encryption only the proxies' own sockets tell.
            "around" => assert!(
                left_out.contains(
                    "no proxy of details, reviews, ratings holds a connection at port 15006"
                ),
                "{left_out}"
            ),
            "around-mtls" => assert!(left_out.contains("permitted request: "), "{left_out}"),
            _ => {
                let is_clear = ["none", "none-again", "plain"].contains(&id);
                assert_calls_are_proven(variant, is_clear);
            }
        }
    }
    let used = records(&out.join("samples.jsonl"));
    let names: Vec<&str> = used
        .iter()
        .flat_map(|sample| sample["components"].as_array().expect("components"))
        .filter_map(|component| component["name"].as_str())
        .collect();
    for name in [
        "none/reviews-app-3",
        "plain/server-proxy-out",
        "plain/ratings-proxy",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let told = finish(meshtax(&scratch, &["report", out.to_str().expect("UTF-8")]));
    let words = told.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let topology = "topology bookinfo: 4 services, 2.67 calls between them for a request";
    assert!(words.contains(topology), "{words}");
}

/// Of `bookinfo`: the page calls the details and the reviews, on the other node, and those the ratings.
fn assert_calls_are_proven(variant: &Value, is_clear: bool) {
    let id = variant["variant"].as_str().expect("an id");
    assert_eq!(variant["left_out"], Value::Null, "{id}");
    let seen = |probe: &str| {
        let probes = variant["evidence"]["probes"].as_array().expect("probes");
        let found = probes.iter().find(|p| p["probe"] == probe);
        let seen = found.and_then(|p| p["seen"].as_str());
        seen.unwrap_or_else(|| panic!("{id}: no {probe}"))
    };
    let wire = seen("calls on the wire");
    let how = match is_clear {
        true => "readable: ",
        false => "TLS 1.3, the canary not readable: ",
    };
    assert!(wire.starts_with(how), "{id}: {wire}");
    assert!(
        wire.contains("server to details, server to reviews, "),
        "{id}: {wire}"
    );
    let path = seen("calls in the path");
    assert!(path.contains("3 services"), "{id}: {path}");
    is_measured(&variant["points"][0], 1, id);
}

/// The same on a mesh whose program is the user's own, whole at each of these levels, and broken.
fn calls_on_a_real_mesh(program: &str, data_plane: &str, levels: &[&str], broken: &[[&str; 2]]) {
    let Some(path) = given(program, &format!("call graphs on {data_plane}")) else {
        return;
    };
    let scratch = Scratch::new();
    let whole = levels
        .iter()
        .map(|level| variant(data_plane, level, &format!("whole-{level}")));
    let mut variants: Vec<String> = whole.collect();
    let ids = broken.iter().map(|[kind, _]| format!("with-{kind}"));
    variants.extend(ids.map(|id| variant(data_plane, "l4", &id)));
    let design = "rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 40s";
    let text = spec("real", &variants, SATURATED, design);
    let (spec, out) = (scratch.write("real.yaml", &text), scratch.path("real"));
    let mut arguments = run_arguments(&spec, &out);
    arguments.extend(["--topology", "bookinfo", "--json"]);
    let flags: Vec<String> = broken
        .iter()
        .map(|[kind, _]| format!("--sabotage=with-{kind}={kind}"))
        .collect();
    arguments.extend(flags.iter().map(String::as_str));
    let mut command = meshtax(&scratch, &arguments);
    command.env(program, path);
    let finished = finish(command);
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let analysis = finished.json();
    assert_eq!(
        self::variants(&analysis).len(),
        2 + levels.len() + broken.len()
    );
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        let left_out = variant["left_out"].as_str().unwrap_or_default();
        let kind = id.strip_prefix("with-");
        match broken.iter().find(|[broken, _]| Some(*broken) == kind) {
            Some([_, said]) => assert!(left_out.contains(said), "{id}: {left_out}"),
            None => assert_calls_are_proven(variant, id.starts_with("none")),
        }
    }
}

#[test]
fn services_that_call_each_other_stand_on_ztunnel() {
    let _alone = alone();
    let broken = [
        [
            "no-redirect-behind",
            "calls in the path: plain HTTP to details was let through: HTTP 200",
        ],
        ["no-client-redirect", "traffic goes around its proxy"],
        [
            "wrong-server-identity",
            "server identity: the server is spiffe://cluster.local/ns/default/sa/impostor",
        ],
    ];
    calls_on_a_real_mesh(ZTUNNEL, "ztunnel", &["mtls", "l4"], &broken);
    calls_on_a_real_mesh(ZTUNNEL, "ztunnel-dedicated", &["l4"], &[]);
}

#[test]
fn services_that_call_each_other_stand_on_linkerd() {
    let _alone = alone();
    let broken = [
        [
            "no-redirect-behind",
            "calls in the path: plain HTTP to details was let through: HTTP 200",
        ],
        // Both ways, since the server answers that it lets nobody in so.
        ["no-client-redirect", "goes around both proxies"],
    ];
    calls_on_a_real_mesh(LINKERD_PROXY, "linkerd", &["mtls", "l4", "l7"], &broken);
}

/// What a probe of a variant saw.
fn seen(variant: &Value, probe: &str) -> Option<String> {
    let probes = variant["evidence"]["probes"].as_array()?;
    let found = probes.iter().find(|p| p["probe"] == probe)?;
    found["seen"].as_str().map(str::to_owned)
}

/// Two namespaces, which clients load at the same time: each service is proven, and each did its work.
#[test]
fn clients_call_the_first_tier_of_every_namespace() {
    let _alone = alone();
    let scratch = Scratch::new();
    let mut variants = vec![variant("limit-l4", "plaintext", "plain")];
    variants.extend(candidates());
    variants.push(variant("limit-mtls", "mtls", "around-mtls"));
    let load = "  - steady: {rate: 100}\n  - saturated: {connections: 3}\n  - saturated: {protocol: http2}\n\
                \x20 - saturated: {response: 20 KiB}\n";
    let design = "rounds: 1, blocks: 1, trial: 300ms, warmup: 50ms, time: 40s";
    let text = spec("tiers", &variants, load, design);
    let path = scratch.write("tiers.yaml", &text);
    let out = scratch.path("tiers");
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--topology", "tiers-2", "--json"]);
    arguments.extend(["--sabotage", "around-mtls=no-redirect-behind"]);
    let finished = finish(meshtax(&scratch, &arguments));
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let told = "load point `saturated-c3`: 3 connections become 4";
    assert!(finished.stderr.contains(told), "{}", finished.stderr);
    let analysis = finished.json();
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        let left_out = variant["left_out"].as_str().unwrap_or_default();
        if id == "around-mtls" {
            assert!(left_out.contains("web-2: "), "{left_out}");
            continue;
        }
        assert_eq!(left_out, "", "{id}");
        let told = |probe: &str| seen(variant, probe).unwrap_or_default();
        assert!(
            told("permitted request").ends_with("by 2 services"),
            "{variant:#}"
        );
        let wire = told("calls on the wire");
        let calls =
            "server to app-1, app-1 to db-1, client to web-2, web-2 to app-2, app-2 to db-2";
        assert!(wire.ends_with(calls), "{id}: {wire}");
        let how = match id {
            "none" | "none-again" | "plain" => "readable: ",
            _ => "TLS 1.3, the canary not readable: ",
        };
        assert!(wire.starts_with(how), "{id}: {wire}");
        if !id.starts_with("none") {
            let path = told("in the path");
            assert!(path.contains("at web-2 (port 15006)"), "{id}: {path}");
            assert!(told("calls in the path").contains("5 services"), "{id}");
        }
        if id.ends_with("-l7") {
            for probe in ["forbidden method", "forbidden path"] {
                assert!(
                    told(probe).contains("at web-2: HTTP 403"),
                    "{id}: {variant:#}"
                );
            }
        }
        for point in variant["points"].as_array().expect("points") {
            // Whether an open loop kept its rate says more of the machine than of the services.
            if point["load_point"] != "steady" {
                is_measured(point, 1, &format!("{id} {}", point["load_point"]));
            }
        }
    }
    for trial in records(&out.join("trials.jsonl")) {
        let load = &trial["outcome"]["load"];
        assert!(load["succeeded"].as_u64() > Some(0), "{trial}");
        assert_eq!(load["succeeded"], load["completed"], "{trial}");
    }
    let used = cpu_used(&records(&out.join("samples.jsonl")));
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        if id != "around-mtls" {
            both_namespaces_worked(id, &used);
        }
    }
}

/// CPU of each component in all trials of its own variant.
fn cpu_used(samples: &[Value]) -> BTreeMap<String, f64> {
    let mut used = BTreeMap::new();
    for sample in samples {
        let components = sample["components"].as_array().expect("components");
        for component in components.iter().filter(|c| c["role"] != "idle") {
            let name = component["name"].as_str().expect("a name");
            let cpu_ns = component["cpu_ns"].as_f64().expect("CPU");
            *used.entry(name.to_owned()).or_default() += cpu_ns;
        }
    }
    used
}

/// What each service of one namespace used is near to what its like of the other used.
fn both_namespaces_worked(id: &str, used: &BTreeMap<String, f64>) {
    // A process for each size of answers, and for each direction.
    let of = |what: &str| -> f64 {
        let names = ["", "-20480-bytes", "-out"].map(|rest| format!("{id}/{what}{rest}"));
        names.iter().filter_map(|name| used.get(name)).sum()
    };
    let proxies = [
        ("server-proxy", "web-2-proxy"),
        ("app-1-proxy", "app-2-proxy"),
        ("db-1-proxy", "db-2-proxy"),
    ];
    let apps = [
        ("app", "web-2-app"),
        ("app-1-app", "app-2-app"),
        ("db-1-app", "db-2-app"),
    ];
    let proxies = proxies.iter().filter(|_| !id.starts_with("none"));
    for (one, other) in apps.iter().chain(proxies) {
        let (one_ns, other_ns) = (of(one), of(other));
        let share = one_ns / (one_ns + other_ns);
        assert!(
            (0.3..0.7).contains(&share),
            "{id}: {one} and {other}: {share} in {used:?}"
        );
    }
}

/// A service that fails makes the one in front fail, and the load says so.
#[test]
fn errors_behind_are_errors_in_front() {
    let _alone = alone();
    let scratch = Scratch::new();
    let own = "name: shaky\nservices:\n  - {name: front, calls: [{all: [back, slow]}]}\n\
               \x20 - {name: back, errors: 5%}\n  - {name: slow, replicas: 2, node: server, time: 'exp:1ms'}\n";
    let topology = scratch.write("shaky.yaml", own);
    let variants = [variant("limit-l4", "plaintext", "plain")];
    let design = "rounds: 1, blocks: 1, trial: 300ms, warmup: 50ms, time: 10s";
    let text = spec("shaky", &variants, SATURATED, design);
    let path = scratch.write("spec.yaml", &text);
    let out = scratch.path("shaky");
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--topology", topology.to_str().expect("UTF-8"), "--json"]);
    let finished = finish(meshtax(&scratch, &arguments));
    let trials = records(&out.join("trials.jsonl"));
    // One request in twenty fails: a probe may meet one of them, and then there is no trial.
    for trial in &trials {
        let load = &trial["outcome"]["load"];
        let completed = load["completed"].as_f64().expect("requests");
        let succeeded = load["succeeded"].as_f64().expect("requests");
        let failed = (completed - succeeded) / completed;
        assert!((0.01..0.12).contains(&failed), "{failed}: {trial}");
    }
    let refused = finished.stderr.contains("permitted request") || !trials.is_empty();
    assert!(refused, "{finished:?}");
}

#[test]
fn topologies_that_are_none_are_named_with_the_fix() {
    let _alone = alone();
    let scratch = Scratch::new();
    let cycle = scratch.write(
        "cycle.yaml",
        "services:\n  - {name: a, calls: [b]}\n  - {name: b, calls: [a]}\n",
    );
    let cycle = cycle.to_str().expect("UTF-8");
    for (arguments, code, said) in [
        (
            vec!["run", "--topology", "bookinf"],
            2,
            "did you mean `bookinfo`?",
        ),
        (
            vec!["run", "--topology", cycle],
            10,
            "a request would never end",
        ),
        (
            vec!["run", "--topology", "no/such.yaml"],
            10,
            "cannot read the topology",
        ),
        (
            vec!["run", "--preset", "data-planes", "--topology", "chain-3"],
            2,
            "cannot carry services that call each other here",
        ),
        (
            vec!["topologies", "show", "chain-99"],
            2,
            "whole numbers from 1 to 20",
        ),
    ] {
        let finished = finish(meshtax(&scratch, &arguments));
        finished.expect_code(code);
        assert!(
            finished.stderr.contains(said),
            "{arguments:?}: {}",
            finished.stderr
        );
    }
    let shown = finish(meshtax(&scratch, &["topologies", "show", "bookinfo"]));
    assert!(shown.expect_code(0).stdout.contains("4 services of 6 pods"));
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
