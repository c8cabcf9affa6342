//! `meshtax run --prometheus`: what a server of its HTTP API records is context, and what it lacks costs nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::specs::{SATURATED, spec, variant};
use crate::support::{Finished, Scratch, beside_others, finish, meshtax};

const DESIGN: &str = "rounds: 1, blocks: 1, trial: 150ms, warmup: 30ms, time: 2s";

/// A server that answers the queries of a Prometheus until the test ends.
struct Server {
    at: String,
    /// The request lines that it got.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(line) = answer(&stream) {
                    noted.lock().expect("no panic").push(line);
                }
            }
        });
        Self {
            at: format!("http://{at}"),
            asked,
        }
    }
}

/// Two series for every query, and an error for that named `broken`.
fn answer(mut stream: &TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let line = lines.next()?;
    while lines.next().is_some_and(|header| !header.is_empty()) {}
    let series = |name: &str| {
        format!(
            r#"{{"metric":{{"pod":"{name}"}},"values":[[1000.5,"0.25"],[1001,"NaN"],[1002,"0.75"]]}}"#
        )
    };
    let (status, body) = match line.contains("query=broken") {
        true => (
            "400 Bad Request",
            r#"{"status":"error","errorType":"bad_data","error":"parse error: broken"}"#.to_owned(),
        ),
        false => (
            "200 OK",
            format!(
                r#"{{"status":"success","data":{{"resultType":"matrix","result":[{},{}]}}}}"#,
                series("a"),
                series("b")
            ),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    Some(line)
}

fn measured(scratch: &Scratch, options: &[&str]) -> (Finished, PathBuf) {
    let variants = [variant("limit-mtls", "mtls", "limit-mtls")];
    let path = scratch.write("spec.yaml", &spec("watched", &variants, SATURATED, DESIGN));
    let out = scratch.path("run");
    let words = [path.to_str(), out.to_str()].map(|path| path.expect("UTF-8"));
    let run = ["run", words[0], "--out", words[1], "--offline", "--json"];
    let finished = finish(meshtax(scratch, &[&run[..], options].concat()));
    finished.expect_completed();
    (finished, out)
}

#[test]
fn series_of_a_prometheus_are_stored_and_reported_beside_the_analysis() {
    let _shared = beside_others();
    let server = Server::start();
    let scratch = Scratch::new();
    let queries = [
        "--prometheus-query",
        "own=up{a=\"b c\"}",
        "--prometheus-query",
        "bad=broken",
    ];
    let options = [&["--prometheus", &server.at][..], &queries].concat();
    let (finished, out) = measured(&scratch, &options);
    let note = "parse error: broken; the run is not affected";
    assert!(finished.stderr.contains(note), "{}", finished.stderr);
    let stored = std::fs::read_to_string(out.join("prometheus.json")).expect("its file");
    let stored: Value = serde_json::from_str(&stored).expect("JSON");
    let analysis = finished.json();
    assert_eq!(analysis["monitoring"], stored);
    let queries = stored["queries"].as_array().expect("queries");
    let of = |name: &str| {
        let found = queries.iter().find(|query| query["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {stored:#}"))
    };
    for name in ["control plane CPU", "proxies memory", "nodes CPU", "own"] {
        assert_eq!(
            of(name)["series"].as_array().map(Vec::len),
            Some(2),
            "{name}"
        );
    }
    assert_eq!(of("own")["series"][0]["values"][0][0], 1_000_500);
    assert!(
        of("bad")["problem"]
            .as_str()
            .is_some_and(|text| text.contains("400"))
    );
    let asked = server.asked.lock().expect("no panic").join("\n");
    for part in [
        "/api/v1/query_range?",
        "start=",
        "end=",
        "step=5.000",
        "up%7Ba%3D%22b",
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(page.contains("What monitoring recorded"));
}

#[test]
fn prometheus_that_is_not_there_costs_a_note_with_its_url_and_the_fix() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    // Nothing listens at this port of the loopback.
    let (finished, out) = measured(&scratch, &["--prometheus", "http://127.0.0.1:9"]);
    for text in [
        "http://127.0.0.1:9/ cannot be reached",
        "fix: check --prometheus",
    ] {
        assert!(
            finished.stderr.contains(text),
            "{text}: {}",
            finished.stderr
        );
    }
    assert!(finished.json()["variants"].is_array());
    assert!(out.join("trials.jsonl").is_file());
}

#[test]
fn url_with_a_password_is_rejected_with_the_alternative() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let options = ["run", "--prometheus", "http://user:secret@127.0.0.1:9090"];
    let rejected = finish(meshtax(&scratch, &options));
    let stderr = &rejected.expect_code(2).stderr;
    assert!(stderr.contains("MESHTAX_PROMETHEUS_TOKEN"), "{stderr}");
}
