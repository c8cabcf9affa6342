//! `meshtax load` against `meshtax serve`.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Running, Scratch, alone, finish, meshtax};

const ENDS_WITHIN: Duration = Duration::from_secs(5);

fn count(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no count {key} in {value:#}"))
}

fn sum(value: &Value) -> u64 {
    let fields = value.as_object().expect("counts by name");
    fields.values().filter_map(Value::as_u64).sum()
}

/// Every offered request has a response, failed, or is unanswered.
fn check_counts(document: &Value) {
    assert_eq!(document["format_version"], 2);
    let result = &document["result"];
    let responses = sum(&result["status"]);
    let all = responses + sum(&result["errors"]) + count(result, "unanswered");
    assert_eq!(count(result, "offered"), all, "{result:#}");
    assert!(responses > 0, "{result:#}");
    assert_eq!(
        count(&document["response_ns"], "count"),
        responses,
        "{document:#}"
    );
    assert_eq!(
        count(&document["service_ns"], "count"),
        responses,
        "{document:#}"
    );
    let only_success = result["status"]
        .as_object()
        .is_some_and(|s| s.keys().eq(["200"]));
    assert!(only_success, "{result:#}");
    assert_eq!(count(result, "succeeded"), count(result, "completed"));
    let seconds = count(result, "window_ns") as f64 / 1e9;
    let per_second = count(result, "completed") as f64 / seconds;
    let printed = document["achieved_per_s"].as_f64().expect("a rate");
    assert!(
        (printed - per_second).abs() < 0.01,
        "{printed}, {per_second}"
    );
}

#[test]
fn load_counts_every_response_of_serve() {
    let _alone = alone();
    let scratch = Scratch::new();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--body", "300B"];
    let mut server = Running::start(meshtax(&scratch, &arguments));
    server.wait_until("its address", |server| {
        server.stderr_text().contains("(Ctrl-C")
    });
    let text = server.stderr_text();
    let url = text.split(' ').find(|word| word.starts_with("http://"));
    let url = url.unwrap_or_else(|| panic!("no URL in {text}"));
    assert!(!url.contains(":0/"), "{url}");

    let open = ["load", url, "-c", "4", "-z", "400ms", "-q", "500"];
    let constant = ["--warmup", "50ms", "--arrivals", "constant", "--json"];
    let open = finish(meshtax(&scratch, &[&open[..], &constant[..]].concat()));
    let open = open.expect_code(0).json();
    check_counts(&open);
    // Equal gaps: the number of intended sends in a window is fixed, except at its edges.
    let offered = count(&open["result"], "offered");
    assert!(
        (199..=201).contains(&offered),
        "{offered} in 400 ms at 500/s"
    );
    let completed = count(&open["result"], "completed");
    assert!(completed > 0 && count(&open["result"], "bytes_received") > completed * 150);

    let closed = ["load", url, "-c", "3", "-z", "300ms", "--warmup", "50ms"];
    let json = finish(meshtax(&scratch, &[&closed[..], &["--json"]].concat()));
    let json = json.expect_code(0).json();
    check_counts(&json);
    assert_eq!(count(&json["result"], "connections_opened"), 3);
    let text = finish(meshtax(&scratch, &closed));
    let stdout = &text.expect_code(0).stdout;
    assert!(
        stdout.contains("over 3 connections\nclosed loop\n"),
        "{stdout}"
    );
    assert!(stdout.contains("status        200: "), "{stdout}");

    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), Signal::INT).expect("a living server");
    server
        .finish(ENDS_WITHIN + Duration::from_secs(60))
        .expect_code(130);
}
