//! `meshtax scale` on short runs.

use serde_json::Value;

use crate::outcome::{has_figures, variant_of};
use crate::support::{Finished, Scratch, alone, beside_others, finish, meshtax, until_measured};

#[test]
fn memory_scales_with_pods_and_json_matches_its_schema() {
    let _alone = alone();
    let numbers = ["1", "4", "8", "12"];
    let options = "pods --at 1,4,8 --predict 12 --check";
    let (scratch, finished) = scaled(options, &numbers);
    let document = finished.json();
    assert_matches_schema(&document);
    for number in numbers {
        let run = scratch.path("runs").join(number);
        assert!(run.join("manifest.json").is_file(), "{}", run.display());
    }
    if !all_measured(&scratch, &numbers) {
        return;
    }
    finished.expect_code(0);
    let law = &document["laws"][0];
    assert_eq!(law["grows"], "proxy_memory");
    let each = law["line"]["each"]["value"].as_f64().expect("a slope");
    // A minimal proxy uses some hundred KiB.
    assert!((100e3..10e6).contains(&each), "{law:#}");
    let predicted = &law["line"]["predicted"];
    let measured = predicted["measured"].as_f64().expect("a check");
    let expected = predicted["value"]["value"].as_f64().expect("a prediction");
    assert!((measured / expected - 1.0).abs() < 0.25, "{law:#}");
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(4));
}

/// From chains to a graph with concurrent and sequential calls, which is not part of the fit.
#[test]
fn hops_predict_a_call_graph_excluded_from_the_fit() {
    let _alone = alone();
    let own = Scratch::new();
    // A name that is also one of the sizes.
    let text = "name: \"2\"\nservices:\n  - {name: front, calls: [cart, {all: [stock, price]}]}\n  \
                - {name: cart}\n  - {name: stock}\n  - {name: price}\n";
    let shop = own.write("shop.yaml", text);
    let runs = ["1", "2", "3", "for-2"];
    let options = format!("hops --at 1,2,3 --for {} --check --rate 80", shop.display());
    let (scratch, finished) = scaled(&options, &runs);
    let document = finished.json();
    assert_matches_schema(&document);
    assert_eq!(document["topology"], "2");
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(4));
    if !all_measured(&scratch, &runs) {
        return;
    }
    // The client's call and two in sequence; all four calls; four pods.
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
        assert_eq!(predicted["by_one"].is_number(), number < 2, "{law:#}");
    }
}

fn assert_matches_schema(document: &Value) {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/schema/scale-v2.json")).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(document)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// The number of pods is constant, so only the copies of the proxies' program grow.
#[test]
fn each_node_adds_a_copy_of_the_program() {
    let _alone = alone();
    let numbers = ["1", "2", "4", "6"];
    let options = "nodes --at 1,2,4 --predict 6 --check --pods 6";
    let (scratch, finished) = scaled(options, &numbers);
    let document = finished.json();
    assert_eq!(document["over"], "nodes");
    if !all_measured(&scratch, &numbers) {
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
    // The program is meshtax itself, with some MiB resident.
    assert!(
        (1e6..100e6).contains(&(with_programs - memory)),
        "{document:#}"
    );
}

/// `meshtax scale` with these options, until each of its runs has figures.
fn scaled(options: &str, runs: &[&str]) -> (Scratch, Finished) {
    let measure = |scratch: &Scratch| {
        let out = scratch.path("runs").display().to_string();
        let mut arguments = vec!["scale"];
        arguments.extend(options.split(' '));
        arguments.extend([
            "--data-plane",
            "limit-mtls",
            "--time",
            "8s",
            "--json",
            "--out",
            &out,
        ]);
        finish(meshtax(scratch, &arguments))
    };
    until_measured(measure, |scratch, _| {
        let mut points = runs.iter().map(|name| proxied_point(scratch, name));
        points.all(|point| point["valid"].as_u64() > Some(0))
    })
}

/// The point of the variant with proxies in one of the runs.
fn proxied_point(scratch: &Scratch, run: &str) -> Value {
    let run = scratch.path("runs").join(run);
    let run = run.to_str().expect("UTF-8");
    let analysis = finish(meshtax(scratch, &["report", run, "--format", "json"])).json();
    variant_of(&analysis, "limit-mtls")["points"][0].clone()
}

/// Whether all of these runs have figures to assert.
#[track_caller]
fn all_measured(scratch: &Scratch, runs: &[&str]) -> bool {
    let mut runs = runs.iter();
    runs.all(|run| has_figures(&proxied_point(scratch, run), 1, &format!("the run {run}")))
}

/// Each of these command lines of `meshtax scale` is a usage error that says this.
#[track_caller]
fn assert_rejected(cases: &[(&str, &str)]) {
    let scratch = Scratch::new();
    for (options, message) in cases {
        let mut arguments = vec!["scale"];
        arguments.extend(options.split(' '));
        let finished = finish(meshtax(&scratch, &arguments));
        finished.expect_code(2);
        let stderr = &finished.stderr;
        assert!(stderr.contains(message), "{options}: {stderr}");
    }
}

#[test]
fn invalid_numbers_to_scale_over_are_rejected_with_a_fix() {
    let _shared = beside_others();
    assert_rejected(&[
        ("pods --at 1,2,2", "a line requires 3 different numbers"),
        ("pods --at 0,1,2", "whole numbers from 1 to 100000"),
        ("pods --at 1,2,501", "whole numbers from 1 to 500"),
        ("nodes --at 1,2,21", "whole numbers from 1 to 20"),
        ("hops --at 1,2,30", "whole numbers from 1 to 20"),
        (
            "nodes --at 1,2,4 --pods 3",
            "3 replicas cannot be distributed over 4 nodes",
        ),
    ]);
}

#[test]
fn options_of_another_scale_are_rejected_with_the_right_one() {
    let _shared = beside_others();
    assert_rejected(&[
        (
            "mesh",
            "possible values: pods, nodes, hops, rates, clients, endpoints, churn",
        ),
        ("pods --for bookinfo", "meshtax scale hops --for TOPOLOGY"),
        ("hops --pods 8", "meshtax scale nodes --pods N"),
        ("hops --for bookinf", "did you mean `bookinfo`?"),
        ("rates --rate 100", "use --at"),
    ]);
}

#[test]
fn data_planes_that_cannot_be_scaled_are_rejected_with_a_fix() {
    let _shared = beside_others();
    assert_rejected(&[
        (
            "endpoints --data-plane linkerd",
            "use one of: ztunnel, ztunnel-dedicated, envoy-sidecar",
        ),
        (
            "churn --data-plane ztunnel",
            "ztunnel does not support endpoint churn",
        ),
        (
            "hops --data-plane envoy-sidecar-tcp",
            "does not support services that call each other",
        ),
        (
            "pods --data-plane envoi-sidecar",
            "did you mean envoy-sidecar?",
        ),
        (
            "pods --data-plane linkerd --level plaintext",
            "has no level plaintext",
        ),
    ]);
}
