//! Every error names its location, what is allowed and the fix.
#![forbid(unsafe_code)]

use meshtax_model::experiment::{Experiment, Inject, Role};
use meshtax_spec::{SpecError, add_injected, parse, preset};
use proptest::prelude::*;

fn read(text: &str) -> Result<Experiment, SpecError> {
    parse("spec.yaml", text)
}

fn ids(experiment: &Experiment) -> Vec<&str> {
    experiment
        .variants
        .iter()
        .map(|v| v.id.0.as_str())
        .collect()
}

const INVALID: [(&str, &str); 78] = [
    (
        "a share of nothing",
        "variants: [{data-plane: envoy-sidecar, level: mtls, tracing: 0%}]\n",
    ),
    (
        "an option that is not there",
        "variants: [{data-plane: limit-mtls, extra-endpoints: 5}]\n",
    ),
    (
        "no endpoints",
        "variants: [{data-plane: envoy-sidecar, level: mtls, extra-endpoints: {endpoints: 0}}]\n",
    ),
    (
        "changes of nothing",
        "variants: [{data-plane: envoy-sidecar, level: mtls, extra-endpoints: {changes: 5/s}}]\n",
    ),
    (
        "too many changes",
        "variants: [{data-plane: envoy-sidecar, level: mtls, extra-endpoints: {endpoints: 9, changes: 5000/s}}]\n",
    ),
    (
        "changes where nothing can change",
        "variants: [{data-plane: ztunnel, level: mtls, extra-endpoints: {endpoints: 9, changes: 5/s}}]\n",
    ),
    (
        "a log that is neither",
        "variants: [{data-plane: envoy-sidecar, level: mtls, access-log: maybe}]\n",
    ),
    (
        "all statistics where none are left out",
        "variants: [{data-plane: linkerd, level: mtls, all-stats: true}]\n",
    ),
    (
        "a version of a built-in proxy",
        "variants: [{data-plane: limit-mtls, version: 1.2.3}]\n",
    ),
    (
        "a version of one of several programs",
        "variants: [{data-plane: ztunnel-waypoint, version: 1.2.3}]\n",
    ),
    (
        "a version that is a path",
        "variants: [{data-plane: envoy-sidecar, level: mtls, version: ../envoy}]\n",
    ),
    (
        "a version and a program",
        "variants: [{data-plane: envoy-sidecar, level: mtls, version: 1.40.0, program: /bin/envoy}]\n",
    ),
    (
        "a runtime switch that no program reads",
        "variants: [{data-plane: envoy-sidecar, level: mtls, runtime: {RUST_LOG: info}}]\n",
    ),
    (
        "limits without a proxy",
        "variants: [{data-plane: none, id: x, limits: {cpu: 1}}]\n",
    ),
    (
        "limits of nothing",
        "variants: [{data-plane: limit-mtls, limits: {}}]\n",
    ),
    (
        "limits of a role to nothing",
        "variants: [{data-plane: limit-mtls, limits: {client-proxy: {}}}]\n",
    ),
    (
        "limits of a waypoint that is not there",
        "variants: [{data-plane: limit-mtls, limits: {waypoint: {cpu: 1}}}]\n",
    ),
    (
        "limits of all proxies and of a role",
        "variants: [{data-plane: limit-mtls, limits: {cpu: 1, client-proxy: {cpu: 2}}}]\n",
    ),
    (
        "less CPU than the kernel grants",
        "variants: [{data-plane: limit-mtls, limits: {cpu: 5m}}]\n",
    ),
    ("neither a number of workers nor native", "workers: many\n"),
    (
        "misspelt key",
        "name: a\nworkload: {response: 1 KiB, conections: 32}\n",
    ),
    ("misspelt top key", "name: a\nworklaod: {}\n"),
    ("key without a neighbour", "colour: blue\n"),
    ("misspelt design key", "design:\n  rouds: 6\n"),
    ("zero rate", "load:\n  - steady: {rate: 0}\n"),
    ("nan rate", "load:\n  - steady: {rate: .nan}\n"),
    ("infinite rate", "load:\n  - steady: {rate: .inf}\n"),
    ("too large a rate", "load:\n  - steady: {rate: 1e9}\n"),
    ("no rate", "load:\n  - steady: {arrivals: constant}\n"),
    ("too few requests", "load:\n  - steady: {rate: 2}\n"),
    (
        "bad arrivals",
        "load:\n  - steady: {rate: 1000, arrivals: poison}\n",
    ),
    ("negative duration", "design: {trial: -1s}\n"),
    ("bare negative duration", "design: {trial: -1}\n"),
    ("no unit", "design:\n  time: 120\n"),
    ("time too long", "design: {time: 48h}\n"),
    ("precision zero", "design: {precision: 0%}\n"),
    ("precision without sign", "design: {precision: 0.02}\n"),
    ("zero rounds", "design: {rounds: 0}\n"),
    ("zero connections", "workload: {connections: 0}\n"),
    ("fraction of a connection", "workload: {connections: 1.5}\n"),
    (
        "too many connections",
        "workload: {connections: 99999999999999999999999999}\n",
    ),
    ("large response", "workload: {response: 9999 MiB}\n"),
    ("no replicas", "service: {replicas: 0}\n"),
    ("no nodes", "service: {replicas: 3, nodes: 0}\n"),
    ("too many nodes", "service: {replicas: 30, nodes: 21}\n"),
    (
        "more nodes than replicas",
        "service:\n  replicas: 3\n  nodes: 4\n",
    ),
    (
        "more nodes than replicas by name",
        "topology: replicas-3-nodes-4\n",
    ),
    (
        "nodes of a service behind",
        "topology: {services: [{name: a, calls: [b]}, {name: b, replicas: 2, nodes: 2}]}\n",
    ),
    (
        "more replicas than room",
        "service: {replicas: 500}\nvariants:\n  - {data-plane: limit-mtls}\n  - {data-plane: limit-l4}\n  \
         - {data-plane: envoy-sidecar, level: plaintext}\n  - {data-plane: envoy-sidecar, level: mtls}\n  \
         - {data-plane: envoy-sidecar, level: l4}\n  - {data-plane: envoy-sidecar, level: l7}\n",
    ),
    (
        "a pod's address for several",
        "service: {replicas: 3, address: pod}\n",
    ),
    (
        "a pod's address behind Istio's sidecars",
        "service: {address: pod}\nvariants: [{data-plane: linkerd, level: l7}, {data-plane: envoy-sidecar, level: mtls}]\n",
    ),
    (
        "a command in one piece",
        "service: {server: {command: nginx, port: 80}}\n",
    ),
    (
        "an empty command",
        "service: {server: {command: [], port: 80}}\n",
    ),
    (
        "a proxy's port",
        "service: {server: {command: [nginx], port: 15008}}\n",
    ),
    (
        "no path",
        "service: {server: {command: [nginx], port: 80, path: index.html}}\n",
    ),
    ("no port", "service: {server: {command: [nginx]}}\n"),
    (
        "a protocol for an own program",
        "service: {server: {command: [nginx], port: 80}}\nload: [saturated: {protocol: grpc}]\n",
    ),
    ("unknown protocol", "load: [saturated: {protocol: http3}]\n"),
    (
        "two load points that are one",
        "load: [saturated: {response: 1 KiB}, saturated: {response: 1KiB}]\n",
    ),
    ("list for a value", "workload: {connections: [1, 2]}\n"),
    ("value for a mapping", "workload: 32\n"),
    ("empty variants", "variants: []\n"),
    ("null variants", "variants:\nname: a\n"),
    ("empty load", "load: []\n"),
    (
        "unknown data plane",
        "variants:\n  - {data-plane: envoy-sidcar, level: mtls}\n",
    ),
    (
        "unknown level",
        "variants:\n  - {data-plane: envoy-sidecar, level: mtsl}\n",
    ),
    (
        "level it lacks",
        "variants:\n  - {data-plane: limit-mtls, level: l7}\n",
    ),
    (
        "level on none",
        "variants:\n  - {data-plane: none, level: l7, id: x}\n",
    ),
    ("no level", "variants:\n  - data-plane: envoy-sidecar\n"),
    ("bare variant", "variants:\n  - limit-mtls\n"),
    (
        "duplicate variant",
        "variants:\n  - {data-plane: limit-mtls}\n  - {data-plane: limit-mtls, level: mtls}\n",
    ),
    (
        "none twice",
        "variants:\n  - {data-plane: none}\n  - {data-plane: none}\n",
    ),
    (
        "unsafe id",
        "variants:\n  - {data-plane: limit-mtls, id: ../../etc}\n",
    ),
    (
        "bad injection",
        "variants:\n  - {data-plane: none, inject: {delay: 15}}\n",
    ),
    (
        "duplicate load",
        "load:\n  - saturated: {}\n  - saturated: {}\n",
    ),
    (
        "two in one item",
        "load:\n  - {saturated: {}, steady: {rate: 1000}}\n",
    ),
    ("duplicate key", "name: a\nname: b\n"),
    ("not yaml", "name: [a\nload: }\n"),
];

#[test]
fn invalid_specs_are_rejected_with_location_and_fix() {
    let mut all = String::new();
    for (title, text) in INVALID {
        let error = read(text).expect_err(title);
        assert!(error.line.is_some(), "{title}: no location");
        all.push_str(&format!("## {title}\n{error}\n\n"));
    }
    for (title, text) in [("empty", ""), ("not a mapping", "hello\n")] {
        all.push_str(&format!("## {title}\n{}\n\n", read(text).expect_err(title)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn defaults_are_those_of_the_quick_preset() {
    let quick = preset("quick").unwrap();
    let quick = parse("quick", quick.yaml).unwrap();
    assert_eq!(read("name: quick\n").unwrap(), quick);
}

#[test]
fn the_baselines_come_first_whether_or_not_they_are_listed() {
    let listed = "variants:\n  - {data-plane: limit-mtls}\n  - {data-plane: none}\n";
    let unlisted = "variants:\n  - {data-plane: limit-mtls}\n";
    let experiment = read(listed).unwrap();
    assert_eq!(experiment, read(unlisted).unwrap());
    assert_eq!(ids(&experiment), ["none", "none-again", "limit-mtls"]);
    let roles: Vec<Role> = experiment.variants.iter().map(|v| v.role).collect();
    assert_eq!(roles, [Role::Baseline, Role::Control, Role::Candidate]);
    let only = read("variants: [{data-plane: none}]").unwrap();
    assert_eq!(ids(&only), ["none", "none-again"]);
}

#[test]
fn ids_are_generated_unless_given() {
    let text = "variants:\n\
        \x20 - {data-plane: envoy-sidecar, level: l7}\n\
        \x20 - {data-plane: limit-l4}\n\
        \x20 - {data-plane: none, inject: {delay: 15%}}\n\
        \x20 - {data-plane: none, inject: {delay: 12us}, id: slow}\n\
        load:\n  - steady: {rate: 500}\n  - steady: {rate: 2000, id: busy}\n  - steady: {rate: 1000}\n";
    let experiment = read(text).unwrap();
    assert_eq!(
        ids(&experiment)[2..],
        ["envoy-sidecar-l7", "limit-l4", "none+delay", "slow"]
    );
    assert_eq!(
        experiment.variants[4].inject,
        Some(Inject::DelayShareOfP50(0.15))
    );
    assert_eq!(experiment.variants[5].inject, Some(Inject::DelayNs(12_000)));
    let points: Vec<&str> = experiment
        .load_points
        .iter()
        .map(|p| p.id.0.as_str())
        .collect();
    assert_eq!(points, ["steady-500", "busy", "steady-1000"]);
}

#[test]
fn injected_costs_get_unique_ids() {
    let mut experiment = read("name: a\n").unwrap();
    let first = add_injected(&mut experiment, Inject::DelayNs(5000)).unwrap();
    let second = add_injected(&mut experiment, Inject::DelayShareOfP50(0.1)).unwrap();
    assert_eq!(
        (first.0.as_str(), second.0.as_str()),
        ("none+delay", "none+delay-2")
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = read(&text).map_err(|e| e.to_string());
    }

    #[test]
    fn no_damaged_spec_panics(cut in 0_usize..700, junk in "[\\PC\n]{0,8}") {
        let mut text = preset("quick").unwrap().yaml.to_owned();
        let at = text.floor_char_boundary(cut);
        text.insert_str(at, &junk);
        let _ = read(&text).map_err(|e| e.to_string());
        text.truncate(at);
        let _ = read(&text).map_err(|e| e.to_string());
    }
}
