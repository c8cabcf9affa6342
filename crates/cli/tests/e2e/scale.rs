//! Laws of growth from real runs, small ones.

use serde_json::Value;

use crate::support::{Scratch, alone, finish, is_measured, meshtax};

#[test]
fn memory_grows_by_the_pod_and_the_document_is_of_its_schema() {
    let _alone = alone();
    let scratch = Scratch::new();
    let out = scratch.path("runs");
    let out = out.to_str().expect("UTF-8");
    let arguments = [
        "scale",
        "pods",
        "--at",
        "1,4,8",
        "--predict",
        "12",
        "--check",
        "--data-plane",
        "limit-mtls",
        "--time",
        "8s",
        "--out",
        out,
        "--json",
    ];
    let finished = finish(meshtax(&scratch, &arguments));
    let document = finished.json();
    is_of_schema(&document);
    for number in ["1", "4", "8", "12"] {
        let run = scratch.path("runs").join(number);
        assert!(run.join("manifest.json").is_file(), "{}", run.display());
    }
    let law = &document["laws"][0];
    assert_eq!(law["grows"], "proxy_memory");
    if !["1", "4", "8", "12"]
        .iter()
        .all(|number| was_measured(&scratch, number))
    {
        return;
    }
    finished.expect_code(0);
    let each = law["line"]["each"]["value"].as_f64().expect("a slope");
    // A minimal proxy holds some hundred KiB.
    assert!((100e3..10e6).contains(&each), "{law:#}");
    let predicted = &law["line"]["predicted"];
    let measured = predicted["measured"].as_f64().expect("a check");
    let expected = predicted["value"]["value"].as_f64().expect("a prediction");
    assert!((measured / expected - 1.0).abs() < 0.25, "{law:#}");
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(4));
}

/// From chains to services that call each other at once and one after the other, which no fit has seen.
#[test]
fn hops_predict_a_call_graph_that_was_left_out() {
    let _alone = alone();
    let scratch = Scratch::new();
    let shop = scratch.path("shop.yaml");
    // A name that is one of the numbers as well.
    let text = "name: \"2\"\nservices:\n  - {name: front, calls: [cart, {all: [stock, price]}]}\n  \
                - {name: cart}\n  - {name: stock}\n  - {name: price}\n";
    std::fs::write(&shop, text).expect("a file");
    let (shop, out) = (shop.display().to_string(), scratch.path("runs"));
    let out = out.display().to_string();
    let arguments = format!(
        "scale hops --at 1,2,3 --for {shop} --check --data-plane limit-mtls --rate 80 --time 8s --out {out} --json"
    );
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let finished = finish(meshtax(&scratch, &arguments));
    let document = finished.json();
    is_of_schema(&document);
    assert_eq!(document["topology"], "2");
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(4));
    let runs = ["1", "2", "3", "for-2"];
    if !runs.iter().all(|name| was_measured(&scratch, name)) {
        return;
    }
    // The client's call and two behind each other; all four; four pods.
    for (number, grows, at) in [
        (0, "added_mean_latency", 3.0),
        (1, "added_cpu", 4.0),
        (2, "proxy_memory", 4.0),
    ] {
        let law = &document["laws"][number];
        assert_eq!(law["grows"], grows);
        let predicted = &law["line"]["predicted"];
        assert_eq!(predicted["at"], at, "{law:#}");
        assert!(predicted["measured"].is_number(), "{law:#}");
        assert_eq!(predicted["by_one"].is_object(), number < 2, "{law:#}");
    }
}

fn is_of_schema(document: &Value) {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/schema/scale-v1.json")).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(document)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// The pods stay, so what grows is what each node has of its own: a copy of the proxies' program.
#[test]
fn a_node_adds_a_copy_of_the_program() {
    let _alone = alone();
    let scratch = Scratch::new();
    let out = scratch.path("runs");
    let out = out.to_str().expect("UTF-8");
    let arguments = [
        "scale",
        "nodes",
        "--at",
        "1,2,4",
        "--predict",
        "6",
        "--check",
        "--pods",
        "6",
        "--data-plane",
        "limit-mtls",
        "--time",
        "8s",
        "--out",
        out,
        "--json",
    ];
    let finished = finish(meshtax(&scratch, &arguments));
    let document = finished.json();
    assert_eq!(document["over"], "nodes");
    let numbers = ["1", "2", "4", "6"];
    if !numbers.iter().all(|number| was_measured(&scratch, number)) {
        return;
    }
    finished.expect_code(0);
    let laws = document["laws"].as_array().expect("laws");
    let names: Vec<&str> = laws
        .iter()
        .filter_map(|law| law["grows"].as_str())
        .collect();
    assert_eq!(names, ["proxy_memory", "nodes_memory", "idle_cpu"]);
    let each = |law: &Value| law["line"]["each"]["value"].as_f64().expect("a slope");
    let (memory, with_programs) = (each(&laws[0]), each(&laws[1]));
    assert!(memory.abs() < 500e3, "{document:#}");
    // The program is meshtax itself: some MiB of it are resident.
    assert!(
        (1e6..100e6).contains(&(with_programs - memory)),
        "{document:#}"
    );
}

/// Whether one of the runs has a figure; what the hypervisor or another program took away is told.
fn was_measured(scratch: &Scratch, number: &str) -> bool {
    let run = scratch.path("runs").join(number);
    let run = run.to_str().expect("UTF-8");
    let analysis = finish(meshtax(scratch, &["report", run, "--format", "json"])).json();
    let mut variants = analysis["variants"].as_array().expect("variants").iter();
    let proxied = variants.find(|v| v["variant"] == "limit-mtls");
    let point = &proxied.expect("the minimal proxy")["points"][0];
    is_measured(point, 1, &format!("memory of {number} pods"))
}

#[test]
fn what_makes_no_line_is_refused_with_the_fix() {
    let _alone = alone();
    let scratch = Scratch::new();
    for (arguments, code, said) in [
        (
            vec!["scale", "pods", "--at", "1,2,2"],
            2,
            "a line takes 3 different numbers",
        ),
        (
            vec!["scale", "pods", "--at", "0,1,2"],
            2,
            "whole numbers from 1 to 100000",
        ),
        (
            vec!["scale", "pods", "--at", "1,2,501"],
            2,
            "whole numbers from 1 to 500",
        ),
        (
            vec!["scale", "nodes", "--at", "1,2,21"],
            2,
            "whole numbers from 1 to 20",
        ),
        (
            vec!["scale", "nodes", "--at", "1,2,4", "--pods", "3"],
            2,
            "3 replicas cannot stand on 4 nodes",
        ),
        (
            vec!["scale", "mesh"],
            2,
            "possible values: pods, nodes, hops, rates, known, churn",
        ),
        (
            vec!["scale", "known", "--data-plane", "linkerd"],
            2,
            "use one of: ztunnel, ztunnel-dedicated, envoy-sidecar",
        ),
        (
            vec!["scale", "churn", "--data-plane", "ztunnel"],
            2,
            "the proxies of ztunnel cannot be told of services that change",
        ),
        (
            vec!["scale", "hops", "--data-plane", "envoy-sidecar-tcp"],
            2,
            "cannot carry services",
        ),
        (
            vec!["scale", "pods", "--for", "bookinfo"],
            2,
            "meshtax scale hops --for TOPOLOGY",
        ),
        (
            vec!["scale", "hops", "--pods", "8"],
            2,
            "meshtax scale nodes --pods N",
        ),
        (
            vec!["scale", "hops", "--for", "bookinf"],
            2,
            "did you mean `bookinfo`?",
        ),
        (
            vec!["scale", "rates", "--rate", "100"],
            2,
            "say which with --at",
        ),
        (
            vec!["scale", "hops", "--at", "1,2,30"],
            2,
            "whole numbers from 1 to 20",
        ),
        (
            vec!["scale", "pods", "--data-plane", "envoi-sidecar"],
            2,
            "did you mean `envoy-sidecar`?",
        ),
        (
            vec![
                "scale",
                "pods",
                "--data-plane",
                "linkerd",
                "--level",
                "plaintext",
            ],
            2,
            "has no level plaintext",
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
}
