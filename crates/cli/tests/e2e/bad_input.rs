//! What cannot be done is refused at once: one error that names the thing and the fix, and the
//! exit code that the documentation gives it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::specs::{SATURATED, spec, variant};
use crate::support::{
    BINARY, Finished, NOBODY, Running, Scratch, alone, copy_program, is_root, meshtax, prepared,
    skipped,
};

/// Five seconds are promised; one more tells a slow refusal, which has a test, from a hang.
const ENDS_WITHIN: Duration = Duration::from_secs(6);

const USAGE: i32 = 2;
const SPEC_INVALID: i32 = 10;
const MISSING: i32 = 11;
const NOTHING_MEASURED: i32 = 12;
const UNREADABLE: i32 = 14;

/// Runs it, and checks what every refusal has in common.
#[track_caller]
fn refused(command: Command, code: i32, named: &[&str]) -> Finished {
    let shown = format!("{command:?}");
    let finished = Running::start(command).finish(ENDS_WITHIN);
    let said = format!("{shown}\n{}\n{}", finished.stderr, finished.stdout);
    assert_eq!(finished.code, code, "{said}");
    assert_eq!(finished.stderr.matches("error: ").count(), 1, "{said}");
    assert_eq!(finished.stdout, "", "{said}");
    for panic in ["panicked", "RUST_BACKTRACE", "unwrap"] {
        assert!(!finished.stderr.contains(panic), "{said}");
    }
    for name in named {
        assert!(finished.stderr.contains(name), "no {name:?} in: {said}");
    }
    finished
}

/// As [`refused`], in a directory where nothing may appear.
#[track_caller]
fn refused_without_a_trace(arguments: &[&str], code: i32, named: &[&str]) {
    let scratch = Scratch::new();
    let finished = refused(meshtax(&scratch, arguments), code, named);
    assert!(!scratch.path("meshtax-runs").exists(), "{finished:?}");
}

#[track_caller]
fn refused_spec(text: &str, named: &[&str]) {
    let scratch = Scratch::new();
    let path = scratch.write("my-spec.yaml", text);
    let arguments = ["run", path.to_str().expect("a path in UTF-8")];
    refused(meshtax(&scratch, &arguments), SPEC_INVALID, named);
    assert!(!scratch.path("meshtax-runs").exists());
}

#[test]
fn a_spec_that_cannot_be_used_is_refused_with_its_place() {
    let _alone = alone();
    refused_spec(
        "name: a\nworkload: {response: 1 KiB, conections: 32}\n",
        &[
            "`conections`",
            "my-spec.yaml:2:29",
            "fix: did you mean `connections`?",
        ],
    );
    refused_spec(
        "load:\n  - steady: {rate: 0}\n",
        &[
            "`rate`: `0` is out of range",
            "my-spec.yaml:2:20",
            "fix: allowed: 1 to",
        ],
    );
    refused_spec(
        "design: {trial: -1s}\n",
        &["`trial`: `-1s` is negative", "my-spec.yaml:1:17", "fix: "],
    );
    refused_spec(
        "variants:\n  - {data-plane: envoy-sidcar, level: mtls}\n",
        &[
            "unknown data plane `envoy-sidcar`",
            ":2:18",
            "did you mean `envoy-sidecar`?",
        ],
    );
    refused_spec("load: }\n", &["not valid YAML", ":1:", "fix: "]);
    refused_spec("", &["the spec", "fix: "]);
}

#[test]
fn a_spec_that_is_not_there_is_refused() {
    let _alone = alone();
    let named = [
        "nowhere.yaml",
        "No such file",
        "fix: name a YAML file, or use --preset",
    ];
    refused_without_a_trace(&["run", "nowhere.yaml"], SPEC_INVALID, &named);
    refused_without_a_trace(&["run", "."], SPEC_INVALID, &["the spec .", "fix: "]);
}

#[test]
fn wrong_words_on_the_command_line_are_refused() {
    let _alone = alone();
    let preset = ["\"quik\"", "fix: use one of: quick, "];
    refused_without_a_trace(&["run", "--preset", "quik"], USAGE, &preset);
    refused_without_a_trace(&["presets", "show", "quik"], USAGE, &preset);
    refused_without_a_trace(&["run", "--time=-1"], USAGE, &["--time", "-1"]);
    refused_without_a_trace(
        &["run", "--time=-1s"],
        USAGE,
        &["--time", "-1s", "negative"],
    );
    refused_without_a_trace(&["run", "--precision=2"], USAGE, &["--precision", "2%"]);
    refused_without_a_trace(
        &["run", "--inject=delay=fast"],
        USAGE,
        &["--inject", "fast"],
    );
    let result = [
        "\"livewyer-pot\"",
        "fix: did you mean livewyer-pod? use one of: livewyer-pod, ",
    ];
    refused_without_a_trace(&["published", "show", "livewyer-pot"], USAGE, &result);
    let mesh = ["\"linkrd\"", "did you mean linkerd?", "istio-ambient"];
    refused_without_a_trace(&["meshes", "linkrd"], USAGE, &mesh);
    let mesh = ["\"consul\"", "fix: use one of: istio-sidecar, "];
    refused_without_a_trace(&["meshes", "consul", "--json"], USAGE, &mesh);
    let plane = ["\"nope\"", "fix: use one of: none, ", "envoy-sidecar"];
    refused_without_a_trace(&["dataplanes", "show", "nope"], USAGE, &plane);
    refused_without_a_trace(&["dataplanes", "get", "nope"], USAGE, &plane);
    refused_without_a_trace(&["frobnicate"], USAGE, &["frobnicate"]);
}

#[test]
fn an_output_directory_that_cannot_be_used_is_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let run = |out: &Path| {
        let out = out.to_str().expect("a path in UTF-8");
        meshtax(&scratch, &["run", "--preset", "noise", "--out", out])
    };
    let file = scratch.write("file", "of mine");
    refused(
        run(&file.join("below")),
        MISSING,
        &["file/below", "fix: ", "--out"],
    );
    refused(
        run(&file),
        MISSING,
        &["is not a directory", "fix: ", "--out"],
    );
    assert_eq!(fs::read_to_string(&file).expect("the file"), "of mine");
    refused(
        run(Path::new("/proc/below")),
        MISSING,
        &["/proc/below", "fix: ", "--out"],
    );

    let earlier = scratch.path("earlier");
    fs::create_dir(&earlier).expect("a directory");
    let kept = scratch.write("earlier/manifest.json", "{}");
    let named = [
        "earlier is not empty",
        "fix: give another --out, or remove it first",
    ];
    refused(run(&earlier), MISSING, &named);
    assert_eq!(fs::read_to_string(kept).expect("the file"), "{}");
}

#[test]
fn an_output_directory_of_somebody_else_is_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let binary = scratch.path("meshtax");
    copy_program(Path::new(BINARY), &binary);
    let locked = scratch.path("locked");
    fs::create_dir(&locked).expect("a directory");
    let out = locked.join("run");
    let out = out.to_str().expect("a path in UTF-8");
    let mut command = prepared(
        Command::new(binary),
        &scratch,
        &["run", "--preset", "noise", "--out", out],
    );
    if is_root() {
        // Root may write anywhere: somebody else must be refused.
        command.uid(NOBODY).gid(NOBODY);
    } else {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).expect("permissions");
    }
    let named = [
        "locked/run",
        "Permission denied",
        "fix: give a directory that you may write in",
    ];
    refused(command, MISSING, &named);
}

#[test]
fn what_is_no_run_cannot_be_reported() {
    let _alone = alone();
    let scratch = Scratch::new();
    let report = |name: &str, named: &[&str]| {
        refused(meshtax(&scratch, &["report", name]), UNREADABLE, named);
    };
    report("nowhere", &["there is no run at nowhere", "fix: "]);
    fs::create_dir(scratch.path("empty")).expect("a directory");
    report(
        "empty",
        &["empty is not a run directory", "manifest.json", "fix: "],
    );
    scratch.write("file", "of mine");
    report("file", &["file is not a run directory", "fix: "]);
    fs::create_dir(scratch.path("garbage")).expect("a directory");
    scratch.write("garbage/manifest.json", "\u{0}\u{1}{{{");
    report("garbage", &["garbage/manifest.json is corrupt", "fix: "]);
    fs::create_dir(scratch.path("future")).expect("a directory");
    let version = meshtax_model::FORMAT_VERSION + 1;
    let manifest = json!({"format_version": version, "of the future": true});
    scratch.write("future/manifest.json", &manifest.to_string());
    let found = format!("format version {version}");
    report("future", &["future/manifest.json", &found, "fix: "]);
    refused_without_a_trace(
        &["report"],
        UNREADABLE,
        &["no run in meshtax-runs", "fix: "],
    );
}

#[test]
fn what_is_no_envoy_is_not_taken_for_one() {
    let _alone = alone();
    let named = [
        "/bin/ls",
        "no usable Envoy",
        "fix: give the path of a binary of Envoy",
    ];
    let scratch = Scratch::new();
    for arguments in [
        &["run", "--envoy", "/bin/ls"][..],
        &["dataplanes", "--envoy", "/bin/ls"][..],
        &["dataplanes", "--envoy", "/bin/ls", "get", "envoy"][..],
    ] {
        refused(meshtax(&scratch, arguments), MISSING, &named);
    }
    let named = ["/nowhere/envoy", "No such file", "fix: "];
    let arguments = ["run", "--envoy", "/nowhere/envoy"];
    refused(meshtax(&scratch, &arguments), MISSING, &named);
}

#[test]
fn a_run_that_never_began_leaves_no_directory() {
    let _alone = alone();
    let arguments = ["run", "--envoy", "/nowhere/envoy"];
    refused_without_a_trace(&arguments, MISSING, &["/nowhere/envoy"]);
}

/// A URL at which nobody listens.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    format!("http://{address}/")
}

/// A refusal is an answer: there is nothing to wait for, as there is with a lost packet.
#[test]
fn load_to_a_closed_port_is_refused_at_once() {
    let _alone = alone();
    let scratch = Scratch::new();
    let started = Instant::now();
    let command = meshtax(&scratch, &["load", &closed_port(), "-z", "100ms"]);
    let named = ["cannot connect to 127.0.0.1", "refused"];
    refused(command, NOTHING_MEASURED, &named);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn load_refuses_what_it_cannot_read() {
    let _alone = alone();
    let closed = closed_port();
    for url in [
        "ftp://host/",
        "http://",
        "http://host:99999/",
        "http://user:secret@host/",
        "http://::1/",
        "tcp://host",
    ] {
        let named = [url, "fix: write it as http://HOST[:PORT][/PATH]"];
        refused_without_a_trace(&["load", url], USAGE, &named);
    }
    let none = ["load", &closed, "-c", "0"];
    refused_without_a_trace(&none, USAGE, &["connections is 0: use 1 to"]);
    refused_without_a_trace(&["load", &closed, "-q", "0"], USAGE, &["--rate", "0"]);
    refused_without_a_trace(&["load", &closed, "-z", "-1s"], USAGE, &["-1"]);
}

/// As in `ulimit -n 256; meshtax …`.
fn with_few_files(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", BINARY]);
    prepared(shell, scratch, arguments)
}

#[test]
fn load_with_more_connections_than_files_names_the_limit() {
    let _alone = alone();
    let scratch = Scratch::new();
    let arguments = ["load", "http://127.0.0.1:9/", "-c", "10000"];
    let named = ["10000 connections", "the limit is 256", "ulimit -n 10"];
    refused(with_few_files(&scratch, &arguments), MISSING, &named);
}

#[test]
fn run_with_more_connections_than_files_names_the_limit() {
    let _alone = alone();
    let scratch = Scratch::new();
    let text = spec(
        "many",
        &[variant("limit-mtls", "mtls", "limit-mtls")],
        SATURATED,
        "trial: 100ms, warmup: 20ms, time: 3s",
    );
    let text = text.replace("connections: 8", "connections: 10000");
    let path = scratch.write("spec.yaml", &text);
    let arguments = ["run", path.to_str().expect("a path in UTF-8")];
    let named = ["10000 connections", "256", "ulimit -n"];
    refused(with_few_files(&scratch, &arguments), MISSING, &named);
}

#[test]
fn a_run_of_envoy_alone_without_envoy_says_how_to_bring_it() {
    let _alone = alone();
    let scratch = Scratch::new();
    // Nothing on PATH and an empty cache: offline there is no Envoy to be had.
    let text = spec(
        "without",
        &[variant("envoy-sidecar", "mtls", "envoy-sidecar-mtls")],
        SATURATED,
        "trial: 100ms, warmup: 20ms, time: 3s",
    );
    let path = scratch.write("spec.yaml", &text);
    let arguments = ["run", "--offline", path.to_str().expect("a path in UTF-8")];
    let mut command = meshtax(&scratch, &arguments);
    command
        .env("PATH", "/nowhere")
        .env("XDG_CACHE_HOME", scratch.path("cache"));
    let finished = Running::start(command).finish(ENDS_WITHIN);
    if finished.code == MISSING && finished.stderr.contains("namespaces") {
        assert!(!is_root(), "{}", finished.stderr);
        return skipped("a run without Envoy", finished.stderr.trim());
    }
    finished.expect_code(NOTHING_MEASURED);
    for words in [
        "--offline forbids",
        "meshtax dataplanes get envoy",
        "no candidate came up",
    ] {
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
}
