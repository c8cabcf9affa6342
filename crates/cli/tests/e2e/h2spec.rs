//! `meshtax serve` against h2spec, the conformance test suite for HTTP/2 servers.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Running, Scratch, beside_others, meshtax, skipped};

/// The variable that names the h2spec binary; without it, the one on PATH is used.
const H2SPEC: &str = "MESHTAX_H2SPEC";

/// All cases of h2spec but its strict ones.
const CASES: usize = 145;

fn h2spec() -> Option<OsString> {
    let program = std::env::var_os(H2SPEC).unwrap_or_else(|| "h2spec".into());
    let mut version = Command::new(&program);
    version.arg("--version").stdout(Stdio::null());
    match version.status() {
        Ok(status) if status.success() => return Some(program),
        outcome => assert!(
            std::env::var_os("CI").is_none(),
            "{program:?} does not run: {outcome:?}"
        ),
    }
    skipped(
        "HTTP/2 conformance",
        &format!("{H2SPEC} names no binary, and there is no h2spec on PATH"),
    );
    None
}

/// The sum of an attribute over all test suites of a JUnit report.
fn total(report: &str, attribute: &str) -> usize {
    let suites = report.lines().filter(|line| line.contains("<testsuite "));
    let prefix = format!(" {attribute}=\"");
    let count = |line: &str| -> usize {
        let (_, value) = line.split_once(&prefix).expect("the attribute");
        let (digits, _) = value.split_once('"').expect("a quoted attribute");
        digits.parse().expect("a count")
    };
    suites.map(count).sum()
}

fn check(program: &OsString, report: &Path, port: &str, flags: &[&str]) {
    let mut command = Command::new(program);
    command
        // In seconds; a stall of the machine may exceed the default of 2. A response that is missing fails a case all the same.
        .args(["--timeout", "20"])
        .args(["--host", "127.0.0.1", "--port", port, "--junit-report"])
        .arg(report)
        .args(flags);
    let output = command.output().expect("h2spec");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let report = std::fs::read_to_string(report).expect("a JUnit report");
    let totals = ["tests", "failures", "errors", "skipped"].map(|name| total(&report, name));
    assert_eq!(totals, [CASES, 0, 0, 0], "{text}");
}

#[test]
fn serve_conforms_to_http2() {
    let Some(program) = h2spec() else {
        return;
    };
    let _shared = beside_others();
    let scratch = Scratch::new();
    let arguments = [
        "serve",
        "--listen",
        "http://127.0.0.1:0",
        "--listen",
        "https://127.0.0.1:0",
    ];
    let mut server = Running::start(meshtax(&scratch, &arguments));
    server.wait_until("its addresses", |server| {
        server.stderr_text().contains("(Ctrl-C")
    });
    let text = server.stderr_text();
    let port = |scheme: &str| {
        let mut words = text.split_whitespace();
        let url = words.find_map(|word| word.strip_prefix(scheme));
        let (_, port) = url.expect("a URL").rsplit_once(':').expect("a port");
        port.trim_end_matches('/').to_owned()
    };
    let report = scratch.path("h2spec.xml");
    check(&program, &report, &port("http://"), &[]);
    check(
        &program,
        &report,
        &port("https://"),
        &["--tls", "--insecure"],
    );
}
