//! Invalid input is rejected immediately, with one error that names the cause and the fix, and the documented exit
//! code.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::specs::{SATURATED, spec, variant};
use crate::support::{
    BINARY, Finished, NOBODY, Running, Scratch, alone, beside_others, copy_program, is_root,
    meshtax, prepared, skipped,
};

/// What is rejected has been read and waits for nothing: it takes well below a second.
const ENDS_WITHIN: Duration = Duration::from_secs(6);

const USAGE: i32 = 2;
const SPEC_INVALID: i32 = 10;
const MISSING: i32 = 11;
const NOTHING_MEASURED: i32 = 12;
const UNREADABLE: i32 = 14;

/// Runs it, and checks what all rejections have in common.
#[track_caller]
fn assert_rejected(command: Command, code: i32, named: &[&str]) -> Finished {
    let shown = format!("{command:?}");
    let finished = Running::start(command).finish(ENDS_WITHIN);
    let output = format!("{shown}\n{}\n{}", finished.stderr, finished.stdout);
    assert_eq!(finished.code, code, "{output}");
    assert_eq!(finished.stderr.matches("error: ").count(), 1, "{output}");
    assert_eq!(finished.stdout, "", "{output}");
    for panic in ["panicked", "RUST_BACKTRACE", "unwrap"] {
        assert!(!finished.stderr.contains(panic), "{output}");
    }
    for name in named {
        assert!(finished.stderr.contains(name), "no {name:?} in: {output}");
    }
    finished
}

/// As [`assert_rejected`], without creating files.
#[track_caller]
fn assert_rejected_without_files(arguments: &[&str], code: i32, named: &[&str]) {
    let scratch = Scratch::new();
    let finished = assert_rejected(meshtax(&scratch, arguments), code, named);
    assert!(!scratch.path("meshtax-runs").exists(), "{finished:?}");
}

#[track_caller]
fn assert_spec_rejected(text: &str, named: &[&str]) {
    let scratch = Scratch::new();
    let path = scratch.write("my-spec.yaml", text);
    let arguments = ["run", path.to_str().expect("a path in UTF-8")];
    assert_rejected(meshtax(&scratch, &arguments), SPEC_INVALID, named);
    assert!(!scratch.path("meshtax-runs").exists());
}

#[test]
fn invalid_spec_is_rejected_with_line_and_column() {
    let _shared = beside_others();
    assert_spec_rejected(
        "name: a\nworkload: {response: 1 KiB, conections: 32}\n",
        &[
            "`conections`",
            "my-spec.yaml:2:29",
            "fix: did you mean `connections`?",
        ],
    );
    assert_spec_rejected(
        "load:\n  - steady: {rate: 0}\n",
        &[
            "`rate`: `0` is out of range",
            "my-spec.yaml:2:20",
            "fix: allowed: 1 to",
        ],
    );
    assert_spec_rejected(
        "design: {trial: -1s}\n",
        &["`trial`: `-1s` is negative", "my-spec.yaml:1:17", "fix: "],
    );
    assert_spec_rejected(
        "variants:\n  - {data-plane: envoy-sidcar, level: mtls}\n",
        &[
            "unknown data plane `envoy-sidcar`",
            ":2:18",
            "did you mean `envoy-sidecar`?",
        ],
    );
    assert_spec_rejected("load: }\n", &["not valid YAML", ":1:", "fix: "]);
    assert_spec_rejected("", &["the spec", "fix: "]);
}

#[test]
fn missing_spec_is_rejected() {
    let _shared = beside_others();
    let named = [
        "nowhere.yaml",
        "No such file",
        "fix: name a YAML file, or use --preset",
    ];
    assert_rejected_without_files(&["run", "nowhere.yaml"], SPEC_INVALID, &named);
    assert_rejected_without_files(&["run", "."], SPEC_INVALID, &["the spec .", "fix: "]);
}

#[test]
fn invalid_arguments_are_rejected_with_a_fix() {
    let _shared = beside_others();
    let preset = ["\"quik\"", "fix: did you mean quick? use one of: quick, "];
    assert_rejected_without_files(&["run", "--preset", "quik"], USAGE, &preset);
    assert_rejected_without_files(&["presets", "show", "quik"], USAGE, &preset);
    assert_rejected_without_files(&["run", "--time=-1"], USAGE, &["--time", "-1"]);
    assert_rejected_without_files(
        &["run", "--time=-1s"],
        USAGE,
        &["--time", "-1s", "negative"],
    );
    assert_rejected_without_files(&["run", "--precision=2"], USAGE, &["--precision", "2%"]);
    assert_rejected_without_files(
        &["run", "--inject=delay=fast"],
        USAGE,
        &["--inject", "fast"],
    );
    let result = [
        "\"livewyer-pot\"",
        "fix: did you mean livewyer-pod? use one of: livewyer-pod, ",
    ];
    assert_rejected_without_files(&["published", "show", "livewyer-pot"], USAGE, &result);
    let mesh = ["\"linkrd\"", "did you mean linkerd?", "istio-ambient"];
    assert_rejected_without_files(&["mesh", "facts", "linkrd"], USAGE, &mesh);
    let mesh = ["\"consul\"", "fix: use one of: istio-sidecar, "];
    assert_rejected_without_files(&["mesh", "facts", "consul", "--json"], USAGE, &mesh);
    let plane = ["\"nope\"", "use one of: none, ", "envoy-sidecar"];
    assert_rejected_without_files(&["dataplanes", "show", "nope"], USAGE, &plane);
    assert_rejected_without_files(&["dataplanes", "get", "nope"], USAGE, &plane);
    assert_rejected_without_files(&["frobnicate"], USAGE, &["frobnicate"]);
}

#[test]
fn unusable_output_directory_is_rejected() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let run = |out: &Path| {
        let out = out.to_str().expect("a path in UTF-8");
        meshtax(&scratch, &["run", "--preset", "noise", "--out", out])
    };
    let file = scratch.write("file", "of mine");
    assert_rejected(
        run(&file.join("below")),
        MISSING,
        &["file/below", "fix: ", "--out"],
    );
    assert_rejected(
        run(&file),
        MISSING,
        &["is not a directory", "fix: ", "--out"],
    );
    assert_eq!(fs::read_to_string(&file).expect("the file"), "of mine");
    assert_rejected(
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
    assert_rejected(run(&earlier), MISSING, &named);
    assert_eq!(fs::read_to_string(kept).expect("the file"), "{}");
}

#[test]
fn unwritable_output_directory_is_rejected() {
    let _shared = beside_others();
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
        // Root may write anywhere, so use another user.
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
    assert_rejected(command, MISSING, &named);
}

#[test]
fn invalid_run_directory_is_rejected() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let report = |name: &str, named: &[&str]| {
        assert_rejected(meshtax(&scratch, &["report", name]), UNREADABLE, named);
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
    assert_rejected_without_files(
        &["report"],
        UNREADABLE,
        &["no run in meshtax-runs", "fix: "],
    );
}

#[test]
fn wrong_envoy_binary_is_rejected() {
    let _alone = alone();
    let named = [
        "/bin/ls",
        "is not a usable Envoy binary",
        "fix: give the path of a working Envoy binary",
    ];
    let scratch = Scratch::new();
    for arguments in [
        &["run", "--envoy", "/bin/ls"][..],
        &["dataplanes", "--envoy", "/bin/ls"][..],
        &["dataplanes", "--envoy", "/bin/ls", "get", "envoy"][..],
    ] {
        assert_rejected(meshtax(&scratch, arguments), MISSING, &named);
    }
    let named = ["/nowhere/envoy", "No such file", "fix: "];
    let arguments = ["run", "--envoy", "/nowhere/envoy"];
    assert_rejected(meshtax(&scratch, &arguments), MISSING, &named);
}

#[test]
fn run_that_fails_to_start_leaves_no_directory() {
    let _shared = beside_others();
    let arguments = ["run", "--envoy", "/nowhere/envoy"];
    assert_rejected_without_files(&arguments, MISSING, &["/nowhere/envoy"]);
}

/// Nobody listens there, and no program is given that port.
const CLOSED: &str = "http://127.0.0.1:1/";

/// Unlike a lost packet, a refused connection is final: nothing to wait for.
#[test]
fn load_to_a_closed_port_fails_immediately() {
    let _alone = alone();
    let took = [(); 3].map(|()| {
        let scratch = Scratch::new();
        let started = Instant::now();
        let command = meshtax(&scratch, &["load", CLOSED, "-z", "100ms"]);
        let named = ["cannot connect to 127.0.0.1", "refused"];
        assert_rejected(command, NOTHING_MEASURED, &named);
        started.elapsed()
    });
    // A new attempt until the timeout of five seconds would delay all of them; a stall of the machine delays one.
    let fastest = took.iter().min();
    assert!(fastest < Some(&Duration::from_secs(3)), "{took:?}");
}

#[test]
fn invalid_load_arguments_are_rejected() {
    let _shared = beside_others();
    for url in [
        "ftp://host/",
        "http://",
        "http://host:99999/",
        "http://user:secret@host/",
        "http://::1/",
        "tcp://host",
    ] {
        let named = [url, "fix: write it as http://HOST[:PORT][/PATH]"];
        assert_rejected_without_files(&["load", url], USAGE, &named);
    }
    let none = ["load", CLOSED, "-c", "0"];
    assert_rejected_without_files(&none, USAGE, &["connections is 0: use 1 to"]);
    assert_rejected_without_files(&["load", CLOSED, "-q", "0"], USAGE, &["--rate", "0"]);
    assert_rejected_without_files(&["load", CLOSED, "-z", "-1s"], USAGE, &["-1"]);
}

/// As in `ulimit -n 256; meshtax …`.
fn with_few_files(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", BINARY]);
    prepared(shell, scratch, arguments)
}

#[test]
fn load_above_the_open_file_limit_names_the_limit() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let arguments = ["load", "http://127.0.0.1:9/", "-c", "10000"];
    let named = ["10000 connections", "the limit is 256", "ulimit -n 10"];
    assert_rejected(with_few_files(&scratch, &arguments), MISSING, &named);
}

#[test]
fn run_above_the_open_file_limit_names_the_limit() {
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
    assert_rejected(with_few_files(&scratch, &arguments), MISSING, &named);
}

#[test]
fn missing_envoy_is_an_error_with_the_download_command() {
    let _alone = alone();
    let scratch = Scratch::new();
    // Nothing on PATH and an empty cache: Envoy is not available offline.
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
        "--offline forbids downloading",
        "meshtax dataplanes get envoy",
        "no candidate could be started",
    ] {
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
}
