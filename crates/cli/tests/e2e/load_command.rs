//! `meshtax load`: command lines of the published studies, numbers of requests, rejected input, and output files for
//! other tools.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Finished, Running, Scratch, alone, beside_others, finish, meshtax};

const SCHEMA: &str = include_str!("../../../../docs/schema/load-v2.json");

const USAGE: i32 = 2;
const MISSING: i32 = 11;
const NOTHING_MEASURED: i32 = 12;

/// `meshtax serve`, killed with the test.
struct Server {
    _running: Running,
    url: String,
}

impl Server {
    fn start(scratch: &Scratch) -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--body", "300B"];
        let mut running = Running::start(meshtax(scratch, &arguments));
        running.wait_until("its address", |server| {
            server.stderr_text().contains("(Ctrl-C")
        });
        let text = running.stderr_text();
        let url = text.split(' ').find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("no URL in {text}")).to_owned();
        Self {
            _running: running,
            url,
        }
    }
}

/// A server that counts requests and connections, records the first request, and sends a fixed response.
struct Counting {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
    first: Arc<Mutex<String>>,
}

impl Counting {
    fn start(response: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let this = Self {
            address: listener.local_addr().expect("its address"),
            connections: Arc::default(),
            requests: Arc::default(),
            first: Arc::default(),
        };
        let (connections, requests, first) = (
            Arc::clone(&this.connections),
            Arc::clone(&this.requests),
            Arc::clone(&this.first),
        );
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::Relaxed);
                let (requests, first) = (Arc::clone(&requests), Arc::clone(&first));
                thread::spawn(move || serve(&stream, response, &requests, &first));
            }
        });
        this
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn counts(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.requests), of(&self.connections))
    }

    fn first(&self) -> String {
        self.first.lock().expect("no panic under it").clone()
    }
}

fn serve(stream: &TcpStream, response: &str, requests: &AtomicU64, first: &Mutex<String>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let from = head.len();
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
            let line = &head[from..];
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        if requests.fetch_add(1, Ordering::Relaxed) == 0 {
            let body = String::from_utf8_lossy(&body);
            *first.lock().expect("no panic under it") = head.to_lowercase() + &body;
        }
        let mut stream = stream;
        if stream.write_all(response.as_bytes()).is_err() || head.contains("connection: close") {
            return;
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn load(scratch: &Scratch, line: &str) -> Finished {
    let words: Vec<_> = ["load"]
        .into_iter()
        .chain(line.split_whitespace())
        .collect();
    finish(meshtax(scratch, &words))
}

/// The JSON document, checked against its schema.
#[track_caller]
fn document(scratch: &Scratch, line: &str) -> Value {
    let finished = load(scratch, &format!("{line} --json"));
    let document = finished.expect_code(0).json();
    valid(&document);
    document
}

#[track_caller]
fn valid(document: &Value) {
    let schema = serde_json::from_str(SCHEMA).expect("a schema in JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<_> = validator
        .iter_errors(document)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn command_lines_of_other_tools_are_accepted() {
    let _alone = alone();
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let url = &server.url;
    // A, oha: fewer requests than its 300,000.
    for connections in [32, 64, 128] {
        let line = format!(
            "{url} -c {connections} -n 2000 --disable-keepalive --disable-compression --insecure --ipv4 --no-tui"
        );
        let finished = load(&scratch, &line);
        let stdout = &finished.expect_code(0).stdout;
        assert!(stdout.contains("a new one for each request"), "{stdout}");
        assert!(stdout.contains("status        200: 2,000"), "{stdout}");
        assert!(stdout.contains("connections / throughput"), "{stdout}");
        assert_eq!(finished.stderr, "", "no progress output");
    }
    // B, Nighthawk: 10 connections and 10/s for each of 16 workers.
    let nighthawk = document(
        &scratch,
        &format!("{url} -q 160 -c 160 --threads 16 -z 1s --arrivals constant"),
    );
    assert_eq!(nighthawk["spec"]["threads"], 16);
    let offered = nighthawk["result"]["offered"].as_u64().expect("a count");
    assert!((158..=162).contains(&offered), "{offered}");
    // C, Vegeta.
    let vegeta = load(
        &scratch,
        &format!("{url} -q 50 -z 1s --arrivals constant -o vegeta:-"),
    );
    let stdout = &vegeta.expect_code(0).stdout;
    assert!(
        stdout.starts_with("Requests      [total, rate, throughput]         5"),
        "{stdout}"
    );
    assert!(
        stdout.contains("Success       [ratio]                           100.00%"),
        "{stdout}"
    );
    // D, JMeter: users work through a list in order.
    let list = scratch.write("list.yaml", "[{path: /a}, {path: /b}, {path: /c}]");
    let line = format!(
        "{url} --users 20 --rate-per-user 5 --requests {} --warmup 200ms -z 1s",
        list.display()
    );
    let jmeter = document(&scratch, &line);
    assert_eq!(jmeter["spec"]["model"]["loop"], "users");
    assert_eq!(jmeter["spec"]["requests"].as_array().map(Vec::len), Some(3));
    let count = jmeter["first_byte_ns"]["count"].as_u64().expect("a count");
    assert!((60..=140).contains(&count), "{count}");
    drop(server);
}

#[test]
fn count_sends_exactly_n_requests() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    for (flags, connections) in [
        ("-n 100 -c 3", 3..=3),
        ("-n 100 -c 4 --threads 2", 4..=4),
        ("-n 20 -c 3 --disable-keepalive", 20..=20),
        // Divided unequally, the last connection is not used up.
        ("-n 60 -c 2 --requests-per-connection 10", 6..=7),
        ("-n 40 -c 2 -q 1000", 2..=2),
    ] {
        let server = Counting::start(OK);
        let document = document(&scratch, &format!("{} {flags}", server.url()));
        let count: u64 = flags
            .split(' ')
            .nth(1)
            .and_then(|n| n.parse().ok())
            .expect("a number");
        let (requests, opened) = server.counts();
        assert_eq!(requests, count, "{flags}");
        assert!(connections.contains(&opened), "{flags}: {opened}");
        assert_eq!(document["result"]["offered"], count, "{flags}");
        assert_eq!(document["result"]["status"]["200"], count, "{flags}");
    }
}

#[test]
fn request_matches_its_flags() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let server = Counting::start(OK);
    let body = scratch.write("body", "from a file");
    let line = format!(
        "http://shop.example/cart?a=b --connect-to shop.example:80:{} -n 1 -c 1 -m POST -H x-trace:1 \
         -T text/plain -A */* -D {} --json",
        server.address,
        body.display()
    );
    load(&scratch, &line).expect_code(0);
    let sent = server.first();
    let expected = "post /cart?a=b http/1.1\r\nhost: shop.example\r\nx-trace: 1\r\ncontent-type: text/plain\r\n\
                    accept: */*\r\ncontent-length: 11\r\n\r\nfrom a file";
    assert_eq!(sent, expected);
}

#[test]
fn replay_ends_with_its_last_timestamp() {
    let _alone = alone();
    let scratch = Scratch::new();
    let server = Counting::start(OK);
    let times = scratch.write("times", "1732179938.0\n1732179938.1\n1732179938.25\n");
    let line = format!("{} --replay {} -c 2", server.url(), times.display());
    let document = document(&scratch, &line);
    assert_eq!(server.counts().0, 3);
    assert_eq!(document["spec"]["model"]["times"], 3);
    let window = document["result"]["window_ns"].as_u64().expect("a length");
    assert!((250_000_000..1_000_000_000).contains(&window), "{window}");
}

#[test]
fn exported_files_parse() {
    let _alone = alone();
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let line = format!(
        "{} -q 500 -z 600ms --interval 200ms -o json:out.json -o hgrm:out.hgrm -o fortio:fortio.json -o vegeta:v.txt -o out.csv",
        server.url
    );
    let finished = load(&scratch, &line);
    let stdout = &finished.expect_code(0).stdout;
    assert!(stdout.contains("generator: "), "the summary: {stdout}");
    let read = |name: &str| fs::read_to_string(scratch.path(name)).expect(name);
    let json: Value = serde_json::from_str(&read("out.json")).expect("JSON");
    valid(&json);
    let responses = json["response_ns"]["count"].as_u64().expect("a count");

    let fortio: Value = serde_json::from_str(&read("fortio.json")).expect("JSON");
    assert_eq!(fortio["DurationHistogram"]["Count"], responses);
    assert_eq!(fortio["RetCodes"]["200"], responses);
    assert_eq!(fortio["ActualDuration"], json["result"]["window_ns"]);

    let hgrm = read("out.hgrm");
    let rows: Vec<Vec<&str>> = hgrm
        .lines()
        .skip(2)
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(rows.iter().all(|row| row.len() == 4), "{hgrm}");
    let median = rows
        .iter()
        .find(|row| row[1] == "0.500000000000")
        .expect("a median");
    let median_ns = median[0].parse::<f64>().expect("a number") * 1e6;
    let truth = json["response_ns"]["p50"].as_f64().expect("a median");
    assert!(
        (median_ns / truth - 1.0).abs() < 2e-3,
        "{median_ns} {truth}"
    );
    assert_eq!(
        rows.last().map(|row| (row[1], row[3])),
        Some(("1.000000000000", "inf"))
    );

    let csv = read("out.csv");
    let rows: Vec<_> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect::<Vec<_>>())
        .collect();
    // A stall of the machine over a boundary makes one interval of two.
    assert!((1..=3).contains(&rows.len()), "{csv}");
    let sum: u64 = rows
        .iter()
        .map(|row| row[3].parse::<u64>().expect("a count"))
        .sum();
    assert_eq!(sum, responses, "{csv}");
    assert!(read("v.txt").contains("Status Codes  [code:count]                      200:"));
}

#[test]
fn interrupted_load_prints_partial_figures() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let server = Server::start(&scratch);
    let arguments = [
        "load",
        &server.url,
        "-z",
        "60s",
        "-q",
        "200",
        "--interval",
        "200ms",
    ];
    let mut running = Running::start(meshtax(&scratch, &arguments));
    running.wait_until("two intervals", |load| {
        load.stderr_text().matches("p50").count() >= 2
    });
    let pid = i32::try_from(running.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), Signal::INT).expect("a living load");
    let finished = running.finish(Duration::from_secs(30));
    let stdout = &finished.expect_code(130).stdout;
    assert!(stdout.contains("responses/s"), "{stdout}");
    assert!(
        finished.stderr.contains("errors"),
        "a line per interval: {}",
        finished.stderr
    );
    drop(server);
}

#[test]
fn load_without_successes_prints_a_hint() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let lost = Counting::start("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    let finished = load(&scratch, &format!("{} -n 20 -c 2", lost.url()));
    let stdout = &finished.expect_code(0).stdout;
    assert!(stdout.contains("status 404"), "{stdout}");
    let garbage = Counting::start("SSH-2.0-server\r\n\r\n");
    let finished = load(&scratch, &format!("{} -n 20 -c 2", garbage.url()));
    let stdout = &finished.expect_code(NOTHING_MEASURED).stdout;
    assert!(stdout.contains("hint: 127.0.0.1:"), "{stdout}");
}

#[test]
fn invalid_combinations_are_rejected_before_sending() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let server = Counting::start(OK);
    let url = server.url();
    for (flags, code, word) in [
        ("-q 10 --think-time 1s", USAGE, "--think-time"),
        ("--arrivals constant", USAGE, "fix: add -q RATE"),
        ("--requests /nowhere/list", USAGE, "/nowhere/list"),
        (
            "--json -o hgrm:-",
            USAGE,
            "two outputs go to standard output",
        ),
        ("-o csv:a.csv --interval 0", USAGE, "remove --interval 0"),
        (
            "-o json:/nowhere/a.json",
            MISSING,
            "cannot write /nowhere/a.json",
        ),
        ("-p 3", USAGE, "add --http2"),
    ] {
        let finished = load(&scratch, &format!("{url} {flags}"));
        finished.expect_code(code);
        assert!(
            finished.stderr.contains(word),
            "{flags}: {}",
            finished.stderr
        );
        assert_eq!(
            finished.stderr.matches("error: ").count(),
            1,
            "{}",
            finished.stderr
        );
        assert_eq!(finished.stdout, "", "{flags}");
    }
    assert_eq!(server.counts(), (0, 0));
    assert!(!scratch.path("a.csv").exists());
}

/// `meshtax serve` on every kind of listener, and its URLs.
fn serve_everything(scratch: &Scratch) -> (Running, Vec<String>) {
    let mut arguments = vec!["serve", "--grpc-echo"];
    for listen in [
        "http://127.0.0.1:0",
        "https://127.0.0.1:0",
        "tcp://127.0.0.1:0",
        "tls://127.0.0.1:0",
    ] {
        arguments.extend(["--listen", listen]);
    }
    let mut running = Running::start(meshtax(scratch, &arguments));
    running.wait_until("its addresses", |server| {
        server.stderr_text().contains("(Ctrl-C")
    });
    let text = running.stderr_text();
    let words = text.split_whitespace();
    let urls = words.filter(|word| word.contains("://")).map(str::to_owned);
    (running, urls.collect())
}

#[test]
fn every_protocol_works_against_serve() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let (_server, urls) = serve_everything(&scratch);
    let [http, https, tcp, tls] = urls.as_slice() else {
        panic!("{urls:?}");
    };
    for line in [
        format!("{http} --http2 -p 4"),
        format!("{http} --grpc /a.B/C --grpc-message 0a0161 -p 3"),
        format!("{https} --insecure"),
        format!("{https} --insecure --http2 -p 4 --threads 2"),
        format!("{https} --insecure --http2 --disable-keepalive"),
        format!("{https} --insecure --grpc /a.B/C -d x -q 2k"),
        format!("{tcp} -d ping --requests-per-connection 5"),
        format!("{tls} --insecure --body-hex 00ff -q 2k"),
    ] {
        let document = document(&scratch, &format!("{line} -n 200 -c 4"));
        let result = &document["result"];
        assert_eq!(result["status"]["200"], 200, "{line}: {result:#}");
        assert_eq!(result["succeeded"], 200, "{line}");
        if line.contains("--grpc") {
            assert_eq!(result["grpc_status"]["0"], 200, "{line}");
        }
        let is_tls = line.contains("--insecure");
        let handshakes = document["tls_handshake_ns"]["count"]
            .as_u64()
            .expect("a count");
        assert_eq!(handshakes > 0, is_tls, "{line}");
    }
}

/// A TCP echo server.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn tcp_echo_is_counted_in_bytes() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let address = echo();
    let document = document(&scratch, &format!("tcp://{address} -d ping -n 50 -c 2"));
    assert_eq!(document["result"]["bytes_sent"], 200);
    assert_eq!(document["result"]["bytes_received"], 200);
    let finished = load(
        &scratch,
        &format!("tcp://{address} --body-hex 00ff -n 50 -c 2"),
    );
    let stdout = &finished.expect_code(0).stdout;
    assert!(stdout.contains("echoed        50"), "{stdout}");
}
