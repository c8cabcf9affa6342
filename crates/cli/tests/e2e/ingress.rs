//! Clients outside the mesh, who come in through its gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::specs::{run_arguments, spec, variant};
use crate::support::{
    LINKERD_PROXY, Scratch, ZTUNNEL, alone, envoy, finish, given, is_measured, meshtax, records,
    skipped,
};

const DESIGN: &str = "rounds: 1, blocks: 1, trial: 150ms, warmup: 50ms, time: 6s";

/// Every gateway runs Envoy, the baseline's too.
fn without_envoy(what: &str) -> bool {
    let is_absent = envoy().is_none();
    if is_absent {
        skipped(what, "there is no Envoy");
    }
    is_absent
}

/// Roles and names of what had a part in a trial, without what only measures or idles.
fn parts(sample: &Value) -> BTreeSet<(String, String)> {
    let components = sample["components"].as_array().expect("components");
    let part = |component: &Value| {
        let text = |key: &str| component[key].as_str().expect("text").to_owned();
        (text("role"), text("name"))
    };
    let aside = ["generator", "idle", "harness"];
    components
        .iter()
        .map(part)
        .filter(|(role, _)| !aside.contains(&role.as_str()))
        .collect()
}

fn seen<'a>(out: &Path, id: &str, probe: &str, evidence: &'a [Value]) -> &'a str {
    let of_variant = evidence.iter().find(|e| e["variant"] == id);
    let probes = of_variant.and_then(|e| e["probes"].as_array());
    let found = probes.into_iter().flatten().find(|p| p["probe"] == probe);
    let found = found.unwrap_or_else(|| panic!("{id}: no {probe} in {}", out.display()));
    assert_eq!(found["passed"], true, "{id}: {found}");
    found["seen"].as_str().expect("words")
}

/// The gateway is a component of what comes by it, and of nothing else; the client's proxy of what does not.
#[test]
fn a_gateway_is_proven_and_counted_where_requests_pass_it() {
    if without_envoy("gateways") {
        return;
    }
    let _alone = alone();
    let scratch = Scratch::new();
    let variants = [
        variant("limit-mtls", "mtls", "limit"),
        variant("envoy-sidecar", "l7", "envoy"),
    ];
    let load = "  - saturated: {}\n  - saturated: {ingress: plaintext}\n  - saturated: {ingress: tls, \
                requests-per-connection: 1}\n";
    let path = scratch.write("both.yaml", &spec("both", &variants, load, DESIGN));
    let out = scratch.path("both");
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    let finished = finish(meshtax(&scratch, &arguments));
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let mut has_figures = true;
    for variant in finished.json()["variants"].as_array().expect("variants") {
        assert_eq!(variant["left_out"], Value::Null, "{variant:#}");
        for point in variant["points"].as_array().expect("points") {
            let what = format!("{} {}", variant["variant"], point["load_point"]);
            has_figures &= is_measured(point, 1, &what);
        }
    }
    let evidence = records(&out.join("evidence.jsonl"));
    for id in ["none", "none-again", "limit", "envoy"] {
        let by = seen(&out, id, "by the gateway", &evidence);
        assert!(by.starts_with("HTTP and HTTPS answered; "), "{id}: {by}");
        let before = seen(&out, id, "before the gateway", &evidence);
        let expected = "port 8080: request and answer readable on the wire; port 8443: not readable on the wire, TLS 1.3";
        assert!(before.starts_with(expected), "{id}: {before}");
        let behind = seen(&out, id, "behind the gateway", &evidence);
        let is_encrypted = behind.contains("not readable on the wire, TLS 1.3");
        assert_eq!(is_encrypted, !id.starts_with("none"), "{id}: {behind}");
    }
    let mut loads = BTreeMap::new();
    for record in records(&out.join("trials.jsonl")) {
        let text = |key: &str| record["trial"][key].as_str().expect("text").to_owned();
        loads.insert(
            text("id"),
            format!("{} {}", text("variant"), text("load_point")),
        );
    }
    let mut looked_at = 0;
    for sample in records(&out.join("samples.jsonl")) {
        let trial = &loads[sample["trial"].as_str().expect("a trial")];
        let parts = parts(&sample);
        let names: Vec<&str> = parts.iter().map(|(_, name)| name.as_str()).collect();
        let roles: Vec<&str> = parts.iter().map(|(role, _)| role.as_str()).collect();
        let by_ingress = trial.contains("ingress");
        assert_eq!(roles.contains(&"gateway"), by_ingress, "{trial}: {parts:?}");
        for (id, client, gateway) in [
            (
                "limit",
                "limit/client-proxy",
                Some("limit/ingress-gateway-proxy"),
            ),
            ("envoy", "envoy/client-proxy", None),
        ] {
            if !names.contains(&format!("{id}/server-proxy").as_str()) {
                continue;
            }
            looked_at += 1;
            assert_eq!(names.contains(&client), !by_ingress, "{trial}: {parts:?}");
            let beside = gateway.is_some_and(|name| names.contains(&name));
            assert_eq!(
                beside,
                by_ingress && gateway.is_some(),
                "{trial}: {parts:?}"
            );
        }
        let components = sample["components"].as_array().expect("components");
        for gateway in components.iter().filter(|c| c["role"] == "gateway") {
            assert!(gateway["cpu_ns"].as_u64() > Some(0), "{trial}: {gateway}");
        }
    }
    assert!(looked_at > 0, "no sample of a mesh");
    let told = finish(meshtax(&scratch, &["report", out.to_str().expect("UTF-8")]));
    // Without figures of both ways there is no table, and that there are none has been said.
    let title = "By ingress, against the same load from a pod";
    assert!(
        !has_figures || told.stdout.contains(title),
        "{}",
        told.stdout
    );
}

/// By ingress only, with services behind: no client stands in the mesh. Broken variants are caught.
#[test]
fn a_gateway_is_the_only_way_into_a_call_graph() {
    if without_envoy("gateways before a call graph") {
        return;
    }
    let _alone = alone();
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
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let no_connection =
        "by the gateway: the gateway holds no connection at port 8080: traffic goes around it";
    for variant in finished.json()["variants"].as_array().expect("variants") {
        let id = variant["variant"].as_str().expect("an id");
        let left_out = variant["left_out"].as_str().unwrap_or_default();
        let expected = match id {
            "around" | "around-envoy" => no_connection,
            "beside" => "the gateway's proxy holds no connection at port 15001",
            "clear" => "canary: request and answer readable on the wire",
            _ => {
                assert_eq!(left_out, "", "{id}");
                is_measured(&variant["points"][0], 1, id);
                continue;
            }
        };
        assert!(left_out.contains(expected), "{id}: {left_out}");
    }
    let evidence = records(&out.join("evidence.jsonl"));
    let identity = seen(&out, "whole", "client identity", &evidence);
    assert!(identity.ends_with("/sa/ingress-gateway"), "{identity}");
    for sample in records(&out.join("samples.jsonl")) {
        let parts = parts(&sample);
        let roles: Vec<&str> = parts.iter().map(|(role, _)| role.as_str()).collect();
        assert!(roles.contains(&"gateway"), "{parts:?}");
        assert!(!roles.contains(&"client-proxy"), "{parts:?}");
    }
}

/// A mesh whose program is the user's own: the gateway is the plain one, in a pod of the mesh. By ingress and from a
/// pod, and by ingress only before services that call each other; broken variants are caught.
fn enters_a_real_mesh(program: &str, data_plane: &str, level: &str, ports: [u16; 2]) {
    let what = format!("gateways of {data_plane}");
    let Some(path) = given(program, &what).filter(|_| !without_envoy(&what)) else {
        return;
    };
    let scratch = Scratch::new();
    let variants = ["whole", "around", "beside"].map(|id| variant(data_plane, level, id));
    for (name, load, more) in [
        (
            "both",
            "  - saturated: {}\n  - saturated: {ingress: tls}\n",
            ["--json"].as_slice(),
        ),
        (
            "only",
            "  - saturated: {ingress: plaintext}\n",
            &["--json", "--topology", "bookinfo"],
        ),
    ] {
        let text = spec(
            name,
            &variants,
            load,
            "rounds: 1, blocks: 1, trial: 150ms, warmup: 50ms, time: 20s",
        );
        let spec = scratch.write(&format!("{name}.yaml"), &text);
        let out = scratch.path(name);
        let mut arguments = run_arguments(&spec, &out);
        arguments.extend(more);
        arguments.extend(["--sabotage", "around=around-the-gateway"]);
        arguments.extend(["--sabotage", "beside=no-client-redirect"]);
        let mut command = meshtax(&scratch, &arguments);
        command.env(program, &path);
        let finished = finish(command);
        assert!([0, 13].contains(&finished.code), "{finished:?}");
        let analysis = finished.json();
        for variant in analysis["variants"].as_array().expect("variants") {
            let id = variant["variant"].as_str().expect("an id");
            let left_out = variant["left_out"].as_str().unwrap_or_default();
            match id {
                "around" => assert!(left_out.contains("by the gateway: no 200: "), "{left_out}"),
                // Whoever comes to the server without the mesh is refused there.
                "beside" => assert!(left_out.contains("permitted request: "), "{left_out}"),
                _ => {
                    assert_eq!(left_out, "", "{name} {id}");
                    for point in variant["points"].as_array().expect("points") {
                        is_measured(point, 1, &format!("{name} {id} {}", point["load_point"]));
                    }
                }
            }
        }
        let who = match name {
            "both" => "client",
            _ => "ingress-gateway",
        };
        assert_entered_by(&out, ports, who);
    }
}

/// The gateway, its proxy and the server's hold connections, and the server saw the identity of who came in first.
fn assert_entered_by(out: &Path, [gateway_port, server_port]: [u16; 2], who: &str) {
    let evidence = records(&out.join("evidence.jsonl"));
    let by = seen(out, "whole", "by the gateway", &evidence);
    for port in [8080, gateway_port, server_port] {
        assert!(by.contains(&format!("(port {port})")), "{by}");
    }
    let identity = seen(out, "whole", "client identity", &evidence);
    let is_it = identity.ends_with(&format!("/sa/{who}"))
        || identity.starts_with(&format!("{who}.default.serviceaccount."));
    assert!(is_it, "{who}: {identity}");
}

#[test]
fn a_gateway_stands_in_a_pod_that_ztunnel_serves() {
    let _alone = alone();
    enters_a_real_mesh(ZTUNNEL, "ztunnel", "l4", [15001, 15008]);
}

#[test]
fn a_gateway_stands_beside_a_linkerd_proxy() {
    let _alone = alone();
    enters_a_real_mesh(LINKERD_PROXY, "linkerd", "l7", [4140, 4143]);
}

#[test]
fn a_data_plane_without_a_gateway_and_a_gateway_without_a_program_are_named() {
    let _alone = alone();
    let scratch = Scratch::new();
    let refused = |arguments: &[&str], code, said: &str| {
        let finished = finish(meshtax(&scratch, arguments));
        finished.expect_code(code);
        let words = finished
            .stderr
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(words.contains(said), "{arguments:?}: {words}");
    };
    let able =
        "gateways stand on none, limit-l4, limit-mtls, ztunnel, linkerd, envoy-sidecar so far";
    refused(
        &["run", "--preset", "data-planes", "--ingress", "tls"],
        2,
        able,
    );
    refused(&["run", "--ingress", "https"], 2, "plaintext or tls");
    refused(
        &["run", "--ingress", "tls", "--envoy", "/no/such/envoy"],
        11,
        "/no/such/envoy",
    );
}
