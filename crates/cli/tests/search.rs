//! Several levels of load against a server whose limits are known.

#[path = "../../load/tests/quiet/mod.rs"]
mod quiet;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use quiet::while_the_machine_is_ours;

const SCHEMA: &str = include_str!("../../../docs/schema/load-search-v2.json");
const LEVEL: &str = include_str!("../../../docs/schema/load-v2.json");

/// The document and each of its levels are as their schemas say.
fn check(document: &Value) {
    for (schema, documents) in [
        (SCHEMA, vec![document]),
        (
            LEVEL,
            document["levels"]
                .as_array()
                .into_iter()
                .flatten()
                .collect(),
        ),
    ] {
        let schema = serde_json::from_str(schema).expect("a schema");
        let validator = jsonschema::draft202012::new(&schema).expect("a schema");
        for document in documents {
            let problems: Vec<_> = validator
                .iter_errors(document)
                .map(|e| e.to_string())
                .collect();
            assert!(problems.is_empty(), "{problems:?}");
        }
    }
}

const BINARY: &str = env!("CARGO_BIN_EXE_meshtax");

/// A server that ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// It spins for so long before each answer, on one thread.
    fn start(delay: &str) -> Self {
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--delay", delay])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stderr = child.stderr.take().expect("its standard error");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let found = lines.find_map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            words.find(|word| word.starts_with("http://"))
        });
        // Read to its end, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            url: found.expect("its address"),
        }
    }

    fn load(&self, arguments: &str) -> (i32, Value, String) {
        let output = Command::new(BINARY)
            .args(["load", &self.url])
            .args(arguments.split(' ').map(|word| word.replace('_', " ")))
            .output()
            .expect("the load starts");
        let text = String::from_utf8(output.stdout).expect("text");
        let value = serde_json::from_str(&text).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().expect("an exit code");
        (code, value, format!("{text}\n{stderr}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that spins and a generator take two cores: two such pairs at once measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn knee_is_below_the_servers_capacity() {
    let _alone = alone();
    while_the_machine_is_ours("the knee of a known server", find_the_knee);
}

fn find_the_knee() {
    let server = Server::start("1ms");
    let goal = "--find-knee p90_<_10ms -q 200 -z 300ms -c 64 --seed 3 --json";
    let (code, found, text) = server.load(goal);
    assert_eq!(code, 0, "{text}");
    check(&found);
    let search = &found["search"];
    assert_eq!(search["kind"], "knee", "{text}");
    assert_eq!(search["goal"], "p90 < 10ms");
    let low = search["low_per_s"].as_f64().expect("a rate");
    let high = search["high_per_s"].as_f64().expect("a rate above it");
    // A thread that spins for a millisecond answers a thousand a second, and queues before that.
    assert!(low < high && low < 1050.0, "{low} {high}");
    assert!(high > 200.0, "{low} {high}");
    let levels = found["levels"].as_array().expect("levels");
    assert!(levels.len() >= 5, "{text}");
    assert!(
        levels
            .iter()
            .all(|l| l["result"]["offered"].as_u64() > Some(0))
    );
}

#[test]
fn sweeps_print_a_row_per_level() {
    let _alone = alone();
    while_the_machine_is_ours("sweeps of a known server", sweep);
}

fn sweep() {
    let server = Server::start("1ms");
    let (code, found, text) = server.load("--sweep 100,3k -z 400ms --json --no-tui");
    assert_eq!(code, 0, "{text}");
    check(&found);
    let rates: Vec<_> = found["levels"]
        .as_array()
        .expect("levels")
        .iter()
        .map(|level| level["spec"]["model"]["rate"]["constant"]["per_s"].as_f64())
        .collect();
    assert_eq!(rates, [Some(100.0), Some(3000.0)], "{text}");
    assert_eq!(found["search"]["kept_up_to_per_s"], 100.0, "{text}");

    let (_, found, _) = server.load("--sweep-connections 1,2 -z 200ms --json");
    check(&found);
    assert_eq!(found["search"]["verdict"], "too-few-levels");
    let (code, _, text) = server.load("--sweep-connections 1,2,4,8 -z 400ms");
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("saturated from ") || text.contains("generator was"),
        "{text}"
    );
    let rows = text.lines().filter(|line| line.contains(" conn."));
    assert_eq!(rows.count(), 4, "{text}");
}

#[test]
fn invalid_search_options_are_rejected() {
    let _alone = alone();
    let server = Server::start("0s");
    for (arguments, word) in [
        ("--find-knee p99", "p99 < 5ms"),
        ("--find-knee mean_<_5ms", "not a percentile"),
        ("--find-knee p99_<_5ms -n 5", "--count"),
        ("--precision 5", "--find-knee"),
        ("--sweep 1,x", "requests per second"),
        ("--sweep 100 -q 5", "--rate"),
        ("--sweep-connections 0,1", "connections is 0"),
        ("--sweep-connections 1 -c 5", "--connections"),
    ] {
        let (code, _, text) = server.load(arguments);
        assert_eq!(code, 2, "{arguments}: {text}");
        assert!(text.contains(word), "{arguments}: {text}");
    }
}
