//! `meshtax compare` and `meshtax gate` on short runs of the baseline, with and without a known cost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::specs::{run_arguments, spec};
use crate::stores::{STORED, copied, without};
use crate::support::{Finished, Scratch, alone, beside_others, finish, manifest, meshtax};

const STEADY: &str = "  - steady: {rate: 2000}\n";
const DELAYED: &str = "{data-plane: none, inject: {delay: 15%}}";
const EQUAL: &str = "{data-plane: none, id: none+delay}";
const DESIGN: &str = "rounds: 6, blocks: 1, trial: 100ms, warmup: 20ms, time: 7s";
const ONE_BLOCK: &str = "rounds: 1, blocks: 1, trial: 50ms, warmup: 10ms, time: 1s";

/// The runs of all tests here, measured once.
struct Runs {
    _scratch: Scratch,
    delayed: PathBuf,
    equal: PathBuf,
    short: PathBuf,
}

fn runs() -> &'static Runs {
    static RUNS: OnceLock<Runs> = OnceLock::new();
    RUNS.get_or_init(|| {
        let scratch = Scratch::new();
        let made = |name: &str, variant: &str, design: &str| {
            let text = spec("gate", &[variant.to_owned()], STEADY, design);
            let path = scratch.write(&format!("{name}.yaml"), &text);
            let out = scratch.path(name);
            finish(meshtax(&scratch, &run_arguments(&path, &out)));
            assert!(out.join("manifest.json").is_file(), "{name}");
            out
        };
        Runs {
            delayed: made("delayed", DELAYED, DESIGN),
            equal: made("equal", EQUAL, DESIGN),
            short: made("short", DELAYED, ONE_BLOCK),
            _scratch: scratch,
        }
    })
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs the binary without GitHub's environment.
fn invoke(scratch: &Scratch, arguments: &[&str]) -> Finished {
    let mut command = meshtax(scratch, arguments);
    command.env_remove("GITHUB_ACTIONS");
    finish(command)
}

fn gated(base: &Path, new: &Path, more: &[&str]) -> Finished {
    let mut arguments = vec!["gate", text(base), text(new)];
    arguments.extend(more);
    invoke(&Scratch::new(), &arguments)
}

#[test]
fn identical_runs_never_fail_a_gate() {
    let _alone = alone();
    let run = &runs().delayed;
    let limits = [
        "--max",
        "p50 +5%",
        "--max",
        "p99 +5%",
        "--max",
        "cpu +0.1%",
        "--json",
    ];
    let gate = gated(run, run, &limits);
    assert!([0, 21].contains(&gate.code), "{gate:?}");
    let document = gate.json();
    let mut notes = document["notes"].as_array().into_iter().flatten();
    assert!(notes.any(|note| note["id"] == "same-run"), "{document:#}");
    let wide = gated(run, run, &["--max", "memory +300%", "--between", "0%"]);
    assert!([0, 21].contains(&wide.code), "{wide:?}");
}

#[test]
fn runs_with_one_block_are_inconclusive() {
    let _alone = alone();
    let run = &runs().short;
    let limits = ["--max", "p50 +50%", "--max", "cpu +50%", "--json"];
    let gate = gated(run, run, &limits);
    assert_eq!(gate.expect_code(21).json()["verdict"], "inconclusive");
    gated(&runs().delayed, run, &limits).expect_code(21);
}

#[test]
fn limit_of_a_variant_without_trials_is_inconclusive() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let new = without(&scratch, "envoy-sidecar-l7");
    let limits = ["--max", "envoy-sidecar-l7: p50 +900%", "--json"];
    let gate = gated(Path::new(STORED), &new, &limits);
    let document = gate.expect_code(21).json();
    let checks = document["checks"].as_array().expect("checks");
    assert!(!checks.is_empty(), "{document:#}");
    for check in checks {
        assert_eq!(check["reason"]["id"], "not-estimable", "{check:#}");
        let in_side = &check["reason"]["reason"];
        assert_eq!(in_side["side"], "new", "{check:#}");
        let why = &in_side["reason"];
        assert_eq!(why["id"], "excluded", "{check:#}");
        assert_eq!(why["variant"], "envoy-sidecar-l7", "{check:#}");
        assert_eq!(why["reason"]["id"], "no-trials", "{check:#}");
    }
}

#[test]
fn cost_above_the_limit_never_passes_between_runs() {
    let _alone = alone();
    let Runs { delayed, equal, .. } = runs();
    // From no delay to one of 15 % of the median.
    let gate = gated(equal, delayed, &["--max", "p50 +5%", "--json"]);
    assert!([20, 21].contains(&gate.code), "{gate:?}");
    let document = gate.json();
    let found = &document["checks"][0]["change"]["relative"]["value"];
    assert!(
        found.is_null() || found.as_f64() > Some(0.0),
        "{document:#}"
    );
    let mut differing = document["differing"].as_array().into_iter().flatten();
    let expected = json!({"id": "variant", "variant": "none+delay"});
    let differs = differing.any(|difference| difference["setting"] == expected);
    assert!(differs, "{document:#}");
}

#[test]
fn junit_markdown_and_github_annotations_are_written() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (junit, markdown) = (scratch.path("junit.xml"), scratch.path("gate.md"));
    let run = text(&runs().short);
    let arguments = [
        "gate",
        run,
        run,
        "--max",
        "p50 +5%",
        "--github",
        "--junit",
        text(&junit),
        "--markdown",
        text(&markdown),
    ];
    let gate = invoke(&scratch, &arguments);
    gate.expect_code(21);
    let warned = gate
        .stdout
        .lines()
        .filter(|line| line.starts_with("::warning title="));
    assert_eq!(warned.count(), 1, "{}", gate.stdout);
    let xml = fs::read_to_string(&junit).expect("a file");
    assert!(
        xml.contains("errors=\"1\"") && xml.contains("<error type=\"inconclusive\""),
        "{xml}"
    );
    let tables = fs::read_to_string(&markdown).expect("a file");
    assert!(tables.starts_with("### gate inconclusive"), "{tables}");
    let mut command = meshtax(&scratch, &["gate", run, run, "--max", "p50 +5%", "--json"]);
    command.env("GITHUB_ACTIONS", "true");
    let gate = finish(command);
    gate.expect_code(21);
    assert_eq!(gate.json()["verdict"], "inconclusive");
    assert!(gate.stderr.contains("::warning title="), "{}", gate.stderr);
}

#[test]
fn invalid_limits_and_runs_are_rejected() {
    let _alone = alone();
    let run = &runs().delayed;
    for (limit, message) in [
        ("throughput -5%", "matches no metric that both sides have"),
        ("envoy: p50 +5%", "variants: none+delay"),
        ("p50 +5% at saturated", "load points: steady"),
        ("p98 +5%", "allowed: `p50`"),
        ("p99", "the limit has no size"),
    ] {
        let gate = gated(run, run, &["--max", limit]);
        gate.expect_code(2);
        assert!(gate.stderr.contains(message), "{limit}: {}", gate.stderr);
    }
    let scratch = Scratch::new();
    invoke(&scratch, &["gate", text(run), text(run)]).expect_code(2);
    invoke(&scratch, &["gate", text(run), "--max", "p50 +5%"]).expect_code(2);
    invoke(&scratch, &["compare", text(run)]).expect_code(2);
    let broken = scratch.path("broken");
    fs::create_dir(&broken).expect("a directory");
    scratch.write("broken/manifest.json", "{}");
    gated(run, &broken, &["--max", "p50 +5%"]).expect_code(14);
    gated(run, &scratch.path("none"), &["--max", "p50 +5%"]).expect_code(14);
    invoke(&scratch, &["compare", text(run), text(&broken)]).expect_code(14);
}

#[test]
fn gate_between_kernels_is_refused_with_the_reason() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let run = copied(&scratch);
    let mut manifest = manifest(&run);
    let kernel = &mut manifest["environment"]["machines"][0]["kernel"];
    assert!(kernel.is_string(), "{kernel}");
    *kernel = "6.99-other".into();
    let path = run.join("manifest.json");
    fs::write(path, manifest.to_string()).expect("a file");
    let refused = gated(Path::new(STORED), &run, &["--max", "p50 +500%"]);
    refused.expect_code(22);
    for part in ["kernel: ", "6.99-other in NEW", "fix: "] {
        assert!(refused.stderr.contains(part), "{refused:?}");
    }
}

#[test]
fn comparison_is_rendered_in_every_format() {
    let _alone = alone();
    let Runs { delayed, equal, .. } = runs();
    let scratch = Scratch::new();
    let compared = |format: &str| {
        let arguments = ["compare", text(equal), text(delayed), "--format", format];
        let finished = invoke(&scratch, &arguments);
        finished.expect_code(0);
        finished
    };
    let shown = compared("terminal").stdout;
    let (differs, found) = (shown.find("Differences between"), shown.find("At steady"));
    assert!(differs.is_some() && differs < found, "{shown}");
    assert!(compared("markdown").stdout.contains("| "));
    assert!(compared("html").stdout.starts_with("<!DOCTYPE html>"));
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/schema/compare-v2.json"))
            .expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let document = compared("json").json();
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn runs_without_common_variants_list_their_variants() {
    let _alone = alone();
    let scratch = Scratch::new();
    let other = "{data-plane: none, id: other}".to_owned();
    let path = scratch.write("other.yaml", &spec("other", &[other], STEADY, ONE_BLOCK));
    let out = scratch.path("other");
    finish(meshtax(&scratch, &run_arguments(&path, &out)));
    let apart = invoke(&scratch, &["compare", text(&runs().short), text(&out)]);
    apart.expect_code(2);
    for message in ["BASE has: none+delay", "NEW has: other", "--pair"] {
        assert!(apart.stderr.contains(message), "{}", apart.stderr);
    }
    let arguments = [
        "compare",
        text(&runs().short),
        text(&out),
        "--pair",
        "none+delay=other",
    ];
    invoke(&scratch, &arguments).expect_code(0);
}

/// Writes two specs with these variants and designs.
fn write_specs<'a>(scratch: &Scratch, sides: [(&'a str, &'a str); 2]) -> [PathBuf; 2] {
    let mut names = ["a.yaml", "b.yaml"].into_iter();
    sides.map(|(variant, design)| {
        let text = spec("gate", &[variant.to_owned()], STEADY, design);
        scratch.write(names.next().unwrap_or_default(), &text)
    })
}

#[test]
fn specs_with_different_designs_are_rejected_with_each_difference() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let [a, b] = write_specs(&scratch, [(EQUAL, DESIGN), (DELAYED, ONE_BLOCK)]);
    let arguments = ["gate", "--a", text(&a), "--b", text(&b), "--max", "p50 +5%"];
    let rejected = invoke(&scratch, &arguments);
    rejected.expect_code(10);
    for message in ["design.rounds differs", "design.trial", "design.time"] {
        assert!(rejected.stderr.contains(message), "{}", rejected.stderr);
    }
    let [a, b] = write_specs(&scratch, [(EQUAL, DESIGN), (DELAYED, DESIGN)]);
    let arguments = [
        "gate",
        "--a",
        text(&a),
        "--b",
        text(&b),
        "--max",
        "throughput -5%",
    ];
    // Before anything is measured.
    invoke(&scratch, &arguments).expect_code(2);
    invoke(&scratch, &["gate", "--a", text(&a), "--max", "p50 +5%"]).expect_code(2);
}

#[test]
fn interleaved_gate_does_not_pass_a_cost_above_the_limit() {
    let _alone = alone();
    let scratch = Scratch::new();
    let [a, b] = write_specs(
        &scratch,
        [("{data-plane: none}", DESIGN), (DELAYED, DESIGN)],
    );
    let out = scratch.path("run");
    let arguments = [
        "gate",
        "--a",
        text(&a),
        "--b",
        text(&b),
        "--max",
        "p50 +5%",
        "--seed",
        "7",
        "--out",
        text(&out),
        "--json",
        "--offline",
    ];
    let gate = invoke(&scratch, &arguments);
    assert!([20, 21].contains(&gate.code), "{gate:?}");
    let document = gate.json();
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/schema/gate-v2.json")).expect("JSON");
    assert!(
        jsonschema::draft202012::new(&schema)
            .expect("a schema")
            .is_valid(&document)
    );
    assert_eq!(document["interleaved"], true);
    assert_eq!(document["checks"][0]["change"]["base_variant"], "none");
    assert_eq!(
        document["checks"][0]["change"]["new_variant"],
        "b.none+delay"
    );
    assert!(out.join("report.html").is_file());
}
