//! A real Envoy that does not carry its load, while the baseline does: a result, for reports, gates and advice.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::outcome::{caveat_ids, variant_of};
use crate::specs::{SATURATED, run_arguments, spec};
use crate::support::{Scratch, alone, envoy, finish, meshtax, skipped};

/// Envoy with all that costs CPU per request.
const SLOW: &str =
    "{data-plane: envoy-sidecar, level: l7, id: envoy, access-log: true, tracing: 100%}";
/// More rounds than the six that an interval needs: some trials may be disturbed.
const DESIGN: &str = "rounds: 9, blocks: 1, trial: 250ms, warmup: 50ms, time: 40s";

fn run(scratch: &Scratch, name: &str, load: &str, design: &str, service: &str) -> PathBuf {
    let text = spec(name, &[SLOW.to_owned()], load, design) + service;
    let path = scratch.write(&format!("{name}.yaml"), &text);
    let out = scratch.path(name);
    let finished = finish(meshtax(scratch, &run_arguments(&path, &out)));
    finished.expect_completed();
    out
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn analysis(scratch: &Scratch, run: &Path) -> Value {
    let report = ["report", text(run), "--format", "json"];
    finish(meshtax(scratch, &report)).json()
}

/// Throughput at the first load point, in requests per second.
fn throughput(analysis: &Value, variant: &str) -> f64 {
    variant_of(analysis, variant)["points"][0]["achieved_per_s"]
        .as_f64()
        .expect("a rate")
}

/// Asserts the verdict everywhere, or reports that the machine did not allow it.
fn assert_overloaded(scratch: &Scratch, run: &Path, rate: u32) -> Option<Value> {
    let analysis = analysis(scratch, run);
    let point = &variant_of(&analysis, "envoy")["points"][0];
    let baseline = &variant_of(&analysis, "none")["points"][0];
    let disturbed = |point: &Value| point["valid"].as_u64() < Some(6);
    if disturbed(point) || disturbed(baseline) {
        skipped(
            "the verdict on an overload",
            "too many trials were disturbed",
        );
        return None;
    }
    if point["outcome"]["id"] == "beyond-machine" {
        skipped(
            "the verdict on an overload",
            "the baseline did not carry the load",
        );
        return None;
    }
    assert_eq!(baseline["outcome"]["id"], "carried", "{baseline:#}");
    assert_eq!(point["outcome"]["id"], "overloaded", "{point:#}");
    assert!(caveat_ids(&analysis).contains("overloaded"));
    let effects = analysis["effects"].as_array().expect("effects").iter();
    let of_envoy = effects.filter(|effect| effect["variant"] == "envoy");
    assert!(of_envoy.clone().count() > 0);
    for effect in of_envoy {
        assert_eq!(effect["verdict"]["id"], "overloaded", "{effect:#}");
    }
    let p50 = &point["levels"][0];
    assert_eq!(p50["lower_bound"], true, "{p50:#}");
    let shown = finish(meshtax(scratch, &["report", text(run)])).stdout;
    assert!(
        shown.contains("overloaded at") && shown.contains("≥ "),
        "{shown}"
    );
    // However generous the limit is.
    let gate = ["gate", text(run), text(run), "--max", "p50 +900%"];
    finish(meshtax(scratch, &gate)).expect_code(20);
    let objective = format!("p50<60s@{rate}/s");
    let advise = ["advise", text(run), "--slo", &objective];
    let finished = finish(meshtax(scratch, &advise));
    assert!(
        finished.expect_code(0).stdout.contains("overloaded"),
        "{finished:?}"
    );
    let advise = ["advise", text(run), "--slo", &objective, "--json"];
    let finished = finish(meshtax(scratch, &advise)).json();
    let checks = finished["objectives"][0]["checks"]
        .as_array()
        .expect("checks");
    let of = |name: &str| checks.iter().find(|check| check["variant"] == name);
    assert_eq!(
        of("none").expect("a check")["verdict"],
        "met",
        "{checks:#?}"
    );
    let check = of("envoy").expect("a check");
    assert_eq!(check["verdict"], "missed", "{check:#}");
    Some(point["outcome"].clone())
}

#[test]
fn envoy_at_three_times_its_capacity_is_overloaded() {
    let _alone = alone();
    if envoy().is_none() {
        return;
    }
    let scratch = Scratch::new();
    let short = "rounds: 1, blocks: 3, trial: 300ms, warmup: 100ms, time: 10s";
    let saturated = analysis(&scratch, &run(&scratch, "capacity", SATURATED, short, ""));
    let [own, base] = ["envoy", "none"].map(|variant| throughput(&saturated, variant));
    let rate = (own * 3.0) as u32;
    if own <= 0.0 || f64::from(rate) > base * 0.7 {
        let why =
            "the baseline itself does not carry three times Envoy's capacity, or was disturbed";
        return skipped("an overloaded Envoy", why);
    }
    let load = format!("  - steady: {{rate: {rate}}}\n");
    let run = run(&scratch, "overload", &load, DESIGN, "");
    if let Some(overload) = assert_overloaded(&scratch, &run, rate) {
        let achieved = overload["achieved_per_s"].as_f64().expect("a rate");
        assert!(achieved < f64::from(rate) * 0.7, "{overload:#} at {rate}/s");
    }
}

/// Rejects twenty of each forty requests that came through a proxy, once there are many at once: probes, which come
/// one by one, always succeed.
const REJECTING: &str = r#"
import sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
lock, seen = threading.Lock(), [0, 0.0]
class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        status = b'200 OK'
        if 'x-request-id' in self.headers:
            with lock:
                now = time.monotonic()
                seen[0] = 0 if now - seen[1] > 0.05 else seen[0] + 1
                seen[1] = now
                if seen[0] % 40 >= 20:
                    status = b'503 Service Unavailable'
        self.wfile.write(b'HTTP/1.1 ' + status + b'\r\ncontent-length: 2\r\n\r\nok')
    def log_message(self, *arguments):
        pass
ThreadingHTTPServer(('0.0.0.0', 9000), Handler).serve_forever()
"#;

#[test]
fn envoy_that_answers_bursts_of_503_is_overloaded() {
    let _alone = alone();
    if envoy().is_none() {
        return;
    }
    const RATE: u32 = 200;
    let scratch = Scratch::new();
    let program = scratch.write("rejecting.py", REJECTING);
    let service = format!(
        "service:\n  server:\n    command: [python3, {}]\n    port: 9000\n    path: /\n",
        text(&program)
    );
    let load = format!("  - steady: {{rate: {RATE}}}\n");
    let run = run(&scratch, "rejected", &load, DESIGN, &service);
    if let Some(overload) = assert_overloaded(&scratch, &run, RATE) {
        let rejected = overload["bad_status"].as_f64().expect("a share");
        assert!((0.05..0.95).contains(&rejected), "{overload:#}");
    }
}
