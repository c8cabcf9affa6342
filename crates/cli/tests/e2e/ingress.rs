//! Clients outside the mesh that connect through a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::outcome::{assert_excluded_by, assert_not_excluded, assert_taken, has_figures, seen_by};
use crate::specs::{run_arguments, spec, variant};
use crate::support::{
    LINKERD_PROXY, PATIENCE, Running, Scratch, ZTUNNEL, alone, beside_others, envoy, finish, given,
    meshtax, records, skipped, until_measured,
};

const DESIGN: &str = "rounds: 1, blocks: 1, trial: 150ms, warmup: 50ms, time: 2s";

/// Every gateway is an Envoy, the baseline's included.
fn envoy_is_missing(what: &str) -> bool {
    let is_absent = envoy().is_none();
    if is_absent {
        skipped(what, "Envoy is not available");
    }
    is_absent
}

/// Roles and names of the components in the path of a trial.
fn path_components(sample: &Value) -> BTreeSet<(String, String)> {
    let components = sample["components"].as_array().expect("components");
    let role_and_name = |component: &Value| {
        let text = |key: &str| component[key].as_str().expect("text").to_owned();
        (text("role"), text("name"))
    };
    let not_in_path = ["generator", "idle", "harness"];
    components
        .iter()
        .map(role_and_name)
        .filter(|(role, _)| !not_in_path.contains(&role.as_str()))
        .collect()
}

/// What a passed probe of a variant saw, from the records of evidence.
#[track_caller]
fn seen<'a>(evidence: &'a [Value], id: &str, probe: &str) -> &'a str {
    let of_variant = evidence.iter().find(|record| record["variant"] == id);
    let of_variant = of_variant.unwrap_or_else(|| panic!("no evidence of {id}"));
    seen_by(of_variant, probe)
}

/// The gateway is in the path of ingress loads only, the client's proxy in the path of the others only.
#[test]
fn gateway_is_verified_and_counted_for_ingress_loads_only() {
    if envoy_is_missing("gateways") {
        return;
    }
    let _alone = alone();
    let variants = [
        variant("limit-mtls", "mtls", "limit"),
        variant("envoy-sidecar", "l7", "envoy"),
    ];
    let load = "  - saturated: {}\n  - saturated: {ingress: plaintext}\n  - saturated: {ingress: tls, \
                requests-per-connection: 1}\n";
    let (scratch, finished) = until_measured(
        |scratch| {
            let path = scratch.write("both.yaml", &spec("both", &variants, load, DESIGN));
            let out = scratch.path("both");
            let mut arguments = run_arguments(&path, &out);
            arguments.push("--json");
            finish(meshtax(scratch, &arguments))
        },
        |_, finished| finished.has_every_point(),
    );
    finished.expect_completed();
    let out = scratch.path("both");
    let analysis = finished.json();
    let mut measured = true;
    for variant in analysis["variants"].as_array().expect("variants") {
        assert_not_excluded(variant);
        for point in variant["points"].as_array().expect("points") {
            let what = format!("{} {}", variant["variant"], point["load_point"]);
            measured &= has_figures(point, 1, &what);
        }
    }
    let evidence = records(&out.join("evidence.jsonl"));
    for id in ["none", "none-again", "limit", "envoy"] {
        assert_both_sides_of_the_gateway_are_verified(&evidence, id);
    }
    assert_counted_for_ingress_only(&out);
    let compared = analysis["ingress"].as_array().map_or(0, Vec::len);
    assert!(compared > 0 || !measured, "{analysis:#}");
}

/// Clients reach the gateway by HTTP and by HTTPS; behind it, the variant decides.
#[track_caller]
fn assert_both_sides_of_the_gateway_are_verified(evidence: &[Value], id: &str) {
    seen(evidence, id, "through-gateway");
    let before = seen(evidence, id, "client-to-gateway");
    let (http, https) = before.split_once("port 8443").expect("both ports");
    assert!(http.contains("port 8080"), "{id}: {before}");
    assert!(!http.contains("TLS 1.3"), "{id}: {before}");
    assert!(https.contains("TLS 1.3"), "{id}: {before}");
    let behind = seen(evidence, id, "gateway-to-server");
    let is_encrypted = behind.contains("TLS 1.3");
    assert_eq!(is_encrypted, !id.starts_with("none"), "{id}: {behind}");
}

/// The variant and the load point of each trial, by its id.
fn loads(run: &Path) -> BTreeMap<String, String> {
    let trials = records(&run.join("trials.jsonl")).into_iter();
    let named = trials.map(|record| {
        let text = |key: &str| record["trial"][key].as_str().expect("text").to_owned();
        let load = format!("{} {}", text("variant"), text("load_point"));
        (text("id"), load)
    });
    named.collect()
}

/// A sidecar gateway has a proxy of its own beside it, Istio's is one.
const GATEWAY_PROXIES: [(&str, Option<&str>); 2] = [
    ("limit", Some("limit/ingress-gateway-proxy")),
    ("envoy", None),
];

/// In every sample, the gateway and its proxy are in the path of ingress loads, and the client's proxy in that of others.
#[track_caller]
fn assert_counted_for_ingress_only(run: &Path) {
    let loads = loads(run);
    let mut checked = 0;
    for sample in records(&run.join("samples.jsonl")) {
        let trial = &loads[sample["trial"].as_str().expect("a trial")];
        let parts = path_components(&sample);
        let has_name = |wanted: &str| parts.iter().any(|(_, name)| name == wanted);
        let has_gateway = parts.iter().any(|(role, _)| role == "gateway");
        let by_ingress = trial.contains("ingress");
        assert_eq!(has_gateway, by_ingress, "{trial}: {parts:?}");
        for (id, gateway) in GATEWAY_PROXIES {
            if !has_name(&format!("{id}/server-proxy")) {
                continue;
            }
            checked += 1;
            let by_client = has_name(&format!("{id}/client-proxy"));
            assert_eq!(by_client, !by_ingress, "{trial}: {parts:?}");
            let beside = gateway.is_some_and(has_name);
            let expected = by_ingress && gateway.is_some();
            assert_eq!(beside, expected, "{trial}: {parts:?}");
        }
        let components = sample["components"].as_array().expect("components");
        for gateway in components.iter().filter(|c| c["role"] == "gateway") {
            assert!(gateway["cpu_ns"].as_u64() > Some(0), "{trial}: {gateway}");
        }
    }
    assert!(checked > 0, "no sample of a mesh");
}

/// Ingress only, with a call graph: no client runs in the mesh. Broken variants are detected.
#[test]
fn ingress_only_run_has_no_client_proxy() {
    if envoy_is_missing("gateways in front of a call graph") {
        return;
    }
    let _shared = beside_others();
    let scratch = Scratch::new();
    let variants = [
        variant("limit-l4", "plaintext", "around"),
        variant("limit-l4", "plaintext", "beside"),
        variant("envoy-sidecar", "plaintext", "around-envoy"),
        variant("envoy-sidecar", "mtls", "clear"),
        variant("envoy-sidecar", "l4", "whole"),
    ];
    let load = "  - saturated: {requests-per-connection: 1}\n";
    let path = scratch.write("only.yaml", &spec("only", &variants, load, DESIGN));
    let out = scratch.path("only");
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--topology", "bookinfo", "--ingress", "tls", "--json"]);
    for broken in [
        "around=around-the-gateway",
        "beside=no-client-redirect",
        "around-envoy=around-the-gateway",
        "clear=no-encryption",
    ] {
        arguments.extend(["--sabotage", broken]);
    }
    let finished = finish(meshtax(&scratch, &arguments));
    finished.expect_completed();
    for variant in finished.json()["variants"].as_array().expect("variants") {
        let id = variant["variant"].as_str().expect("an id");
        match id {
            "around" | "around-envoy" => {
                assert_excluded_by(variant, "through-gateway", &["port 8080"]);
            }
            "beside" => assert_excluded_by(variant, "through-gateway", &["port 15001"]),
            "clear" => {
                assert_excluded_by(variant, "canary", &[]);
                let wire = &variant["evidence"]["wire"];
                assert_eq!(wire["canary_to_server"], true, "{wire}");
                assert_eq!(wire["canary_to_client"], true, "{wire}");
            }
            _ => {
                assert_not_excluded(variant);
                assert_taken(&variant["points"][0], 1, id);
            }
        }
    }
    let evidence = records(&out.join("evidence.jsonl"));
    let identity = seen(&evidence, "whole", "client-identity");
    assert!(identity.ends_with("/sa/ingress-gateway"), "{identity}");
    for sample in records(&out.join("samples.jsonl")) {
        let parts = path_components(&sample);
        let roles: Vec<&str> = parts.iter().map(|(role, _)| role.as_str()).collect();
        assert!(roles.contains(&"gateway"), "{parts:?}");
        assert!(!roles.contains(&"client-proxy"), "{parts:?}");
    }
}

/// A mesh with the user's own proxy binary: the gateway is a plain Envoy in a pod of the mesh. With both kinds of load,
/// and ingress only with a call graph; broken variants are detected.
fn check_gateway_of(program: &str, data_plane: &str, level: &str, ports: [u16; 2]) {
    let what = format!("gateways of {data_plane}");
    let Some(path) = given(program, &what).filter(|_| !envoy_is_missing(&what)) else {
        return;
    };
    let scratch = Scratch::new();
    let variants = ["whole", "around", "beside"].map(|id| variant(data_plane, level, id));
    let start = |name: &str, load: &str, more: &[&str]| {
        let text = spec(name, &variants, load, DESIGN);
        let spec = scratch.write(&format!("{name}.yaml"), &text);
        let out = scratch.path(name);
        let mut arguments = run_arguments(&spec, &out);
        arguments.extend(more);
        arguments.extend(["--json", "--sabotage", "around=around-the-gateway"]);
        arguments.extend(["--sabotage", "beside=no-client-redirect"]);
        let mut command = meshtax(&scratch, &arguments);
        command.env(program, &path);
        Running::start(command)
    };
    // Both at once: most of the time they wait for the broken variants.
    let both = "  - saturated: {}\n  - saturated: {ingress: tls}\n";
    let only = "  - saturated: {ingress: plaintext}\n";
    let runs = [
        ("both", "client", start("both", both, &[])),
        (
            "only",
            "ingress-gateway",
            start("only", only, &["--topology", "bookinfo"]),
        ),
    ];
    for (name, client, run) in runs {
        let finished = run.finish(PATIENCE);
        finished.expect_completed();
        let analysis = finished.json();
        for variant in analysis["variants"].as_array().expect("variants") {
            let id = variant["variant"].as_str().expect("an id");
            match id {
                "around" => assert_excluded_by(variant, "through-gateway", &["200"]),
                // The server rejects connections that bypass the mesh.
                "beside" => assert_excluded_by(variant, "permitted-request", &[]),
                _ => {
                    assert_not_excluded(variant);
                    for point in variant["points"].as_array().expect("points") {
                        assert_taken(point, 1, &format!("{name} {id} {}", point["load_point"]));
                    }
                }
            }
        }
        assert_gateway_is_in_path(&scratch.path(name), ports, client);
    }
}

/// The gateway, its proxy and the server's proxy have connections, and the server saw this client's identity.
fn assert_gateway_is_in_path(out: &Path, [gateway_port, server_port]: [u16; 2], client: &str) {
    let evidence = records(&out.join("evidence.jsonl"));
    let by = seen(&evidence, "whole", "through-gateway");
    for port in [8080, gateway_port, server_port] {
        assert!(by.contains(&format!("port {port}")), "{by}");
    }
    let identity = seen(&evidence, "whole", "client-identity");
    let is_it = identity.ends_with(&format!("/sa/{client}"))
        || identity.starts_with(&format!("{client}.default.serviceaccount."));
    assert!(is_it, "{client}: {identity}");
}

#[test]
fn gateway_runs_in_a_pod_served_by_ztunnel() {
    let _shared = beside_others();
    check_gateway_of(ZTUNNEL, "ztunnel", "l4", [15001, 15008]);
}

#[test]
fn gateway_runs_beside_a_linkerd_proxy() {
    let _shared = beside_others();
    check_gateway_of(LINKERD_PROXY, "linkerd", "l7", [4140, 4143]);
}

#[test]
fn ingress_without_gateway_support_or_envoy_is_rejected() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let assert_rejected = |arguments: &[&str], code, message: &str| {
        let finished = finish(meshtax(&scratch, arguments));
        finished.expect_code(code);
        let words = finished
            .stderr
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(words.contains(message), "{arguments:?}: {words}");
    };
    let able = "these have one: none, limit-l4, limit-mtls, ztunnel, linkerd, envoy-sidecar";
    assert_rejected(
        &["run", "--preset", "data-planes", "--ingress", "tls"],
        2,
        able,
    );
    assert_rejected(&["run", "--ingress", "https"], 2, "plaintext or tls");
    assert_rejected(
        &["run", "--ingress", "tls", "--envoy", "/no/such/envoy"],
        11,
        "/no/such/envoy",
    );
}
