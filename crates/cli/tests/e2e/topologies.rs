//! Services with several replicas, protocols and response sizes, call graphs, and the user's own program.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::outcome::{
    assert_excluded_by, assert_not_excluded, assert_taken, has_figures, points, seen_by,
};
use crate::specs::{SATURATED, candidates, run_arguments, spec, variant};
use crate::support::{
    Finished, LINKERD_PROXY, Scratch, ZTUNNEL, alone, beside_others, envoy, finish, given,
    manifest, meshtax, records, skipped, until_measured,
};

const DESIGN: &str = "design: {rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 2s}\n";

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

/// Whether a stall of the machine covered the whole window. Such a trial is invalid.
fn is_empty(load: &Value) -> bool {
    load["completed"].as_u64() == Some(0)
}

/// Every variant was verified, and a trial of every load point taken. Too few blocks for intervals are accepted.
fn assert_complete(finished: &Finished) -> Value {
    finished.expect_completed();
    let analysis = finished.json();
    variants(&analysis).iter().for_each(assert_not_excluded);
    for point in points(&analysis) {
        assert_taken(point, 1, "a load point");
    }
    analysis
}

#[test]
fn service_address_reaches_every_replica() {
    let _alone = alone();
    let head = "service: {replicas: 5, address: virtual}\nworkload: {connections: 8}\n";
    let load = "  - saturated: {requests-per-connection: 1}\n  - saturated: {}\n";
    let (scratch, finished) = until_measured(
        |scratch| run(scratch, "replicas", head, load),
        |_, finished| finished.has_every_point(),
    );
    let analysis = assert_complete(&finished);
    for variant in variants(&analysis) {
        let id = &variant["variant"];
        let points = variant["points"].as_array().expect("points");
        for point in points {
            if !has_figures(point, 1, "replicas") {
                continue;
            }
            // With hundreds of connections, each of 5 replicas gets some.
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
    let report = finish(meshtax(
        &scratch,
        &["report", scratch.path("replicas").to_str().expect("UTF-8")],
    ));
    assert!(report.stdout.contains("5 replicas"), "{}", report.stdout);
}

#[test]
fn every_protocol_passes_every_data_plane_that_supports_it() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let load = "  - saturated: {}\n  - saturated: {protocol: http2}\n  - saturated: {protocol: grpc}\n\
                \x20 - saturated: {protocol: tcp}\n  - saturated: {response: 0 B}\n\
                \x20 - saturated: {response: 200 KiB}\n";
    let head = "workload: {connections: 4}\n";
    let finished = run(&scratch, "protocols", head, load);
    let analysis = assert_complete(&finished);
    for variant in variants(&analysis) {
        let is_l7 = variant["variant"] == "envoy-sidecar-l7";
        let points = variant["points"].as_array().expect("points");
        assert_eq!(points.len(), if is_l7 { 5 } else { 6 }, "{variant:#}");
    }
    for trial in records(&scratch.path("protocols/trials.jsonl")) {
        let load = &trial["outcome"]["load"];
        if is_empty(load) {
            continue;
        }
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
        let report = finish(meshtax(
            &scratch,
            &["report", path.to_str().expect("UTF-8")],
        ));
        let text = &report.expect_code(0).stdout;
        let words = text.split_whitespace().collect::<Vec<_>>();
        let mut pairs = words.windows(20);
        let is_stated = pairs.any(|near| near[0] == "envoy-sidecar-l7" && near.contains(&"TCP:"));
        assert!(is_stated, "{text}");
    }
}

#[test]
fn users_program_serves_behind_the_proxies() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    // The port that meshtax's own application uses otherwise.
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
    assert_complete(&finished);
    let out = scratch.path("own");
    for trial in records(&out.join("trials.jsonl")) {
        let load = &trial["outcome"]["load"];
        if is_empty(load) {
            continue;
        }
        let received = load["bytes_received"].as_f64().unwrap_or_default();
        let each = received / load["completed"].as_f64().unwrap_or_default();
        assert!(
            (100.0..600.0).contains(&each),
            "not 77 bytes and headers: {each}"
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

/// Calls between services pass the proxies of both ends, encrypted as the level requires; the probes name the pods they
/// saw.
#[test]
fn each_call_between_services_is_verified() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let mut variants = vec![variant("limit-l4", "plaintext", "plain")];
    variants.extend(candidates());
    variants.push(variant("limit-l4", "plaintext", "around"));
    variants.push(variant("limit-mtls", "mtls", "around-mtls"));
    if envoy().is_some() {
        variants.push(variant("envoy-sidecar", "l7", "open-behind"));
    }
    let design = "rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 2s";
    let text = spec("graph", &variants, SATURATED, design);
    let path = scratch.write("graph.yaml", &text);
    let out = scratch.path("graph");
    let mut arguments = run_arguments(&path, &out);
    let mut broken = vec![
        "around=no-redirect-behind",
        "around-mtls=no-redirect-behind",
    ];
    if envoy().is_some() {
        broken.push("open-behind=no-policy-behind");
    }
    arguments.extend(["--topology", "bookinfo", "--json"]);
    for kind in &broken {
        arguments.extend(["--sabotage", kind]);
    }
    let finished = finish(meshtax(&scratch, &arguments));
    finished.expect_completed();
    let analysis = finished.json();
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        match id {
            // Without encryption, only the proxies' own sockets show it.
            "around" => {
                let services = "details, reviews, ratings";
                assert_excluded_by(variant, "calls-in-the-path", &[services, "15006"]);
            }
            "around-mtls" => assert_excluded_by(variant, "permitted-request", &[]),
            "open-behind" => {
                assert_excluded_by(variant, "call-identities", &["intruder", "details"]);
            }
            _ => {
                let is_plaintext = ["none", "none-again", "plain"].contains(&id);
                assert_calls_are_verified(variant, is_plaintext);
            }
        }
    }
    let used = [
        "none/reviews-app-3",
        "plain/productpage-proxy-out",
        "plain/ratings-proxy",
    ];
    assert_used(&out, &used);
    let report = finish(meshtax(&scratch, &["report", out.to_str().expect("UTF-8")]));
    for value in ["bookinfo", "4 services", "2.67"] {
        assert!(report.stdout.contains(value), "{value}: {}", report.stdout);
    }
}

/// The samples of a run have components of these names.
#[track_caller]
fn assert_used(run: &Path, expected: &[&str]) {
    let used = records(&run.join("samples.jsonl"));
    let names: Vec<&str> = used
        .iter()
        .flat_map(|sample| sample["components"].as_array().expect("components"))
        .filter_map(|component| component["name"].as_str())
        .collect();
    for name in expected {
        assert!(names.contains(name), "{name} in {names:?}");
    }
}

/// `bookinfo`: the product page calls details and reviews on the other node, and reviews call ratings.
fn assert_calls_are_verified(variant: &Value, is_plaintext: bool) {
    let id = variant["variant"].as_str().expect("an id");
    assert_not_excluded(variant);
    let wire = seen_by(&variant["evidence"], "calls-on-the-wire");
    assert_eq!(wire.contains("TLS 1.3"), !is_plaintext, "{id}: {wire}");
    assert!(
        wire.contains("client to productpage, productpage to details, productpage to reviews, "),
        "{id}: {wire}"
    );
    let path = seen_by(&variant["evidence"], "calls-in-the-path");
    assert!(path.contains("4 services"), "{id}: {path}");
    if !is_plaintext {
        let identities = seen_by(&variant["evidence"], "call-identities");
        assert!(identities.contains("3 services"), "{id}: {identities}");
    }
    assert_taken(&variant["points"][0], 1, id);
}

/// A sabotage and the check that it was detected.
type Detected = (&'static str, fn(&Value));

/// The same on a mesh with the user's own proxy binary: intact at each of these levels, and broken.
fn check_call_graph_on(program: &str, data_plane: &str, levels: &[&str], broken: &[Detected]) {
    let Some(path) = given(program, &format!("call graphs on {data_plane}")) else {
        return;
    };
    let scratch = Scratch::new();
    let whole = levels
        .iter()
        .map(|level| variant(data_plane, level, &format!("whole-{level}")));
    let mut variants: Vec<String> = whole.collect();
    let ids = broken.iter().map(|(kind, _)| format!("with-{kind}"));
    variants.extend(ids.map(|id| variant(data_plane, "l4", &id)));
    let design = "rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 2s";
    let text = spec("real", &variants, SATURATED, design);
    let (spec, out) = (scratch.write("real.yaml", &text), scratch.path("real"));
    let mut arguments = run_arguments(&spec, &out);
    arguments.extend(["--topology", "bookinfo", "--json"]);
    let flags: Vec<String> = broken
        .iter()
        .map(|(kind, _)| format!("--sabotage=with-{kind}={kind}"))
        .collect();
    arguments.extend(flags.iter().map(String::as_str));
    let mut command = meshtax(&scratch, &arguments);
    command.env(program, path);
    let finished = finish(command);
    finished.expect_completed();
    let analysis = finished.json();
    assert_eq!(
        self::variants(&analysis).len(),
        2 + levels.len() + broken.len()
    );
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        let kind = id.strip_prefix("with-");
        match broken.iter().find(|(broken, _)| Some(*broken) == kind) {
            Some((_, check)) => check(variant),
            None => assert_calls_are_verified(variant, id.starts_with("none")),
        }
    }
}

#[test]
fn call_graph_is_verified_on_ztunnel() {
    let _shared = beside_others();
    let broken: [Detected; 3] = [
        ("no-redirect-behind", |variant| {
            assert_excluded_by(variant, "calls-in-the-path", &["details", "HTTP 200"]);
        }),
        ("no-client-redirect", |variant| {
            assert_excluded_by(variant, "canary", &[]);
            let wire = &variant["evidence"]["wire"];
            assert_eq!(wire["http_to_server"], true, "{wire}");
        }),
        ("wrong-server-identity", |variant| {
            let impostor = "spiffe://cluster.local/ns/default/sa/impostor";
            assert_excluded_by(variant, "server-identity", &[impostor]);
        }),
    ];
    check_call_graph_on(ZTUNNEL, "ztunnel", &["mtls", "l4"], &broken);
    let open: Detected = ("no-policy-behind", |variant| {
        assert_excluded_by(variant, "call-identities", &["intruder"]);
    });
    check_call_graph_on(ZTUNNEL, "ztunnel-dedicated", &["l4"], &[open]);
}

#[test]
fn call_graph_is_verified_on_linkerd() {
    let _shared = beside_others();
    let broken: [Detected; 3] = [
        ("no-policy-behind", |variant| {
            assert_excluded_by(variant, "call-identities", &["intruder"]);
        }),
        ("no-redirect-behind", |variant| {
            assert_excluded_by(variant, "calls-in-the-path", &["details", "HTTP 200"]);
        }),
        // In both directions, because the server responds with a rejection.
        ("no-client-redirect", |variant| {
            assert_excluded_by(variant, "canary", &[]);
            let wire = &variant["evidence"]["wire"];
            assert_eq!(wire["http_to_server"], true, "{wire}");
            assert_eq!(wire["http_to_client"], true, "{wire}");
        }),
    ];
    check_call_graph_on(LINKERD_PROXY, "linkerd", &["mtls", "l4", "l7"], &broken);
}

/// Two namespaces under load at the same time: each service is verified, and did its share of the work.
#[test]
fn entry_points_of_all_namespaces_get_equal_load() {
    let _alone = alone();
    let mut variants = vec![variant("limit-l4", "plaintext", "plain")];
    variants.extend(candidates());
    variants.push(variant("limit-l4", "plaintext", "around"));
    variants.push(variant("limit-mtls", "mtls", "around-mtls"));
    let load = "  - steady: {rate: 100}\n  - saturated: {connections: 3}\n  - saturated: {protocol: http2}\n\
                \x20 - saturated: {response: 20 KiB}\n";
    let design = "rounds: 1, blocks: 1, trial: 300ms, warmup: 50ms, time: 2s";
    let text = spec("tiers", &variants, load, design);
    let scratch = Scratch::new();
    let path = scratch.write("tiers.yaml", &text);
    let out = scratch.path("tiers");
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--topology", "tiers-2", "--json"]);
    for broken in [
        "around=no-redirect-behind",
        "around-mtls=no-redirect-behind",
    ] {
        arguments.extend(["--sabotage", broken]);
    }
    let finished = finish(meshtax(&scratch, &arguments));
    finished.expect_completed();
    assert_raised_to_two_connections_each(&out);
    let analysis = finished.json();
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        match id {
            // The first service that clients call is intact, the second is not.
            "around" => {
                assert_excluded_by(variant, "in-the-path", &["web-2", "15006"]);
                let bypassing = &["app-1", "db-1", "web-2", "app-2", "db-2"];
                assert_excluded_by(variant, "calls-in-the-path", bypassing);
            }
            "around-mtls" => {
                let refused = &["web-1: no 200", "web-2: no 200"];
                assert_excluded_by(variant, "permitted-request", refused);
            }
            _ => assert_both_namespaces_are_verified(variant),
        }
    }
    assert_all_requests_succeeded(&out);
    let used = cpu_used(&records(&out.join("samples.jsonl")));
    for variant in self::variants(&analysis) {
        let id = variant["variant"].as_str().expect("an id");
        if !id.starts_with("around") {
            assert_equal_work(id, &used);
        }
    }
}

/// Three connections cannot be shared equally by two entry points.
#[track_caller]
fn assert_raised_to_two_connections_each(run: &Path) {
    let load_points = &manifest(run)["experiment"]["load_points"];
    let raised = load_points.as_array().into_iter().flatten();
    let mut raised = raised.filter(|point| point["id"] == "saturated-c3");
    assert!(
        raised.any(|point| point["connections"] == 4),
        "{load_points:#}"
    );
}

/// `tiers-2`: all services of both namespaces, and all load points.
#[track_caller]
fn assert_both_namespaces_are_verified(variant: &Value) {
    let id = variant["variant"].as_str().expect("an id");
    assert_not_excluded(variant);
    let seen = |probe: &str| seen_by(&variant["evidence"], probe);
    let permitted = seen("permitted-request");
    assert!(permitted.contains("2 services"), "{id}: {permitted}");
    let wire = seen("calls-on-the-wire");
    let calls = "client to web-1, web-1 to app-1, app-1 to db-1, client to web-2, web-2 to app-2, app-2 to db-2";
    assert!(wire.ends_with(calls), "{id}: {wire}");
    let is_plaintext = ["none", "none-again", "plain"].contains(&id);
    assert_eq!(wire.contains("TLS 1.3"), !is_plaintext, "{id}: {wire}");
    if !id.starts_with("none") {
        let path = seen("in-the-path");
        assert!(path.contains("web-2 (port 15006)"), "{id}: {path}");
        assert!(seen("calls-in-the-path").contains("6 services"), "{id}");
    }
    if id.ends_with("-l7") {
        for probe in ["forbidden-method", "forbidden-path"] {
            let seen = seen(probe);
            assert!(seen.contains("web-2: HTTP 403"), "{id}: {seen}");
        }
    }
    for point in variant["points"].as_array().expect("points") {
        // Whether an open loop sustained its rate depends on the machine.
        if point["load_point"] != "steady" {
            assert_taken(point, 1, &format!("{id} {}", point["load_point"]));
        }
    }
}

#[track_caller]
fn assert_all_requests_succeeded(run: &Path) {
    for trial in records(&run.join("trials.jsonl")) {
        let load = &trial["outcome"]["load"];
        if is_empty(load) {
            continue;
        }
        assert!(load["succeeded"].as_u64() > Some(0), "{trial}");
        assert_eq!(load["succeeded"], load["completed"], "{trial}");
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

/// Each service used about as much CPU as its counterpart in the other namespace.
fn assert_equal_work(id: &str, used: &BTreeMap<String, f64>) {
    // One process per response size and per direction.
    let of = |what: &str| -> f64 {
        let names = ["", "-20480-bytes", "-out"].map(|rest| format!("{id}/{what}{rest}"));
        names.iter().filter_map(|name| used.get(name)).sum()
    };
    let proxies = [
        ("web-1-proxy", "web-2-proxy"),
        ("app-1-proxy", "app-2-proxy"),
        ("db-1-proxy", "db-2-proxy"),
    ];
    let apps = [
        ("web-1-app", "web-2-app"),
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

/// A request fails if a service that it calls fails, and the load counts it.
#[test]
fn failed_call_fails_the_request() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let own = "name: shaky\nservices:\n  - {name: front, calls: [{all: [back, slow]}]}\n\
               \x20 - {name: back, errors: 5%}\n  - {name: slow, replicas: 2, node: server, time: 'exp:1ms'}\n";
    let topology = scratch.write("shaky.yaml", own);
    let variants = [variant("limit-l4", "plaintext", "plain")];
    let design = "rounds: 1, blocks: 1, trial: 300ms, warmup: 50ms, time: 2s";
    let text = spec("shaky", &variants, SATURATED, design);
    let path = scratch.write("spec.yaml", &text);
    let out = scratch.path("shaky");
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--topology", topology.to_str().expect("UTF-8"), "--json"]);
    let finished = finish(meshtax(&scratch, &arguments));
    let trials = records(&out.join("trials.jsonl"));
    // One request in twenty fails: a probe may be affected, and then there is no trial.
    let mut checked = 0;
    for trial in &trials {
        let load = &trial["outcome"]["load"];
        let completed = load["completed"].as_f64().expect("requests");
        // A window that was mostly stalled has too few requests for the share.
        if completed < 200.0 {
            continue;
        }
        checked += 1;
        let succeeded = load["succeeded"].as_f64().expect("requests");
        let failed = (completed - succeeded) / completed;
        assert!((0.01..0.12).contains(&failed), "{failed}: {trial}");
    }
    if checked == 0 && !trials.is_empty() {
        skipped("the share of failed requests", "no window has 200 requests");
    }
    if trials.is_empty() {
        let failures = records(&out.join("failures.jsonl"));
        let probes = failures
            .iter()
            .filter_map(|failure| failure["reason"]["probes"].as_array());
        let mut probes = probes.flatten();
        let failed = probes.any(|failed| failed["probe"] == "permitted-request");
        assert!(failed, "{finished:?}");
    }
}

#[test]
fn invalid_topologies_are_rejected_with_a_fix() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let cycle = scratch.write(
        "cycle.yaml",
        "services:\n  - {name: a, calls: [b]}\n  - {name: b, calls: [a]}\n",
    );
    let cycle = cycle.to_str().expect("UTF-8");
    for (arguments, code, message) in [
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
            "does not support services that call each other yet",
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
            finished.stderr.contains(message),
            "{arguments:?}: {}",
            finished.stderr
        );
    }
    let shown = finish(meshtax(&scratch, &["topologies", "show", "bookinfo"]));
    assert!(
        shown
            .expect_code(0)
            .stdout
            .contains("4 services with 6 pods")
    );
}

#[test]
fn failing_users_program_is_reported() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    for (command, named) in [
        (
            "[/no/such/program]",
            "cannot start the service's own program `/no/such/program`",
        ),
        ("[sh, -c, echo no licence >&2; exit 4]", "no licence"),
    ] {
        let head = format!("service: {{server: {{command: {command}, port: 9000}}}}\n");
        let finished = run(&scratch, "none", &head, "  - saturated: {}\n");
        finished.expect_code(12);
        assert!(finished.stderr.contains(named), "{}", finished.stderr);
        std::fs::remove_dir_all(scratch.path("none")).expect("a run directory");
    }
}
