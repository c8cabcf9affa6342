//! The load generator against real servers over loopback.
#![expect(clippy::print_stderr, reason = "a child process tells its result")]

mod quiet;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use meshtax_app::{AppConfig, serve};
use meshtax_load::{
    Hooks, LoadError, LoadModel, LoadSpec, WorkerMessage, WorkerRequest, run, run_with, worker_main,
};
use meshtax_model::experiment::Arrivals;
use meshtax_model::trial::LoadResult;

use quiet::while_the_machine_is_ours;

/// The application on a thread that ends with the test process.
fn app() -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let config = AppConfig::new("127.0.0.1:0".parse().unwrap());
        serve(
            &config,
            |a| sender.send(a).unwrap(),
            &AtomicBool::new(false),
        )
        .unwrap();
    });
    receiver.recv().unwrap()
}

/// A server with a thread for each connection; `serve` gets its number and socket.
fn server(serve: impl Fn(u32, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || serve_on(&listener, serve));
    address
}

fn serve_on(listener: &TcpListener, serve: impl Fn(u32, TcpStream) + Send + Sync + 'static) {
    let serve = Arc::new(serve);
    for (number, stream) in (0..).zip(listener.incoming()) {
        let serve = Arc::clone(&serve);
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        std::thread::spawn(move || serve(number, stream));
    }
}

/// Responds to each request, with nothing.
fn respond(_: u32, mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while read_request(&mut reader) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

/// Reads one request without a body; `false` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> bool {
    let mut line = String::new();
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) if line == "\r\n" => return true,
            Ok(_) => {}
        }
    }
}

fn open(rate_per_s: f64, arrivals: Arrivals) -> LoadModel {
    LoadModel::open(rate_per_s, arrivals)
}

fn spec(target: SocketAddr, model: LoadModel) -> LoadSpec {
    let mut spec = LoadSpec::new(target);
    spec.model = model;
    spec.seed = 11;
    spec.connections = 8;
    spec.warmup_ns = 50_000_000;
    spec.window_ns = 500_000_000;
    spec
}

fn outcome(spec: &LoadSpec) -> LoadResult {
    let r = run(spec, &mut |_| {}).unwrap();
    let ended: u64 = r.status.values().sum();
    let failed = r.errors.reset + r.errors.protocol + r.errors.timeout;
    assert_eq!(
        r.offered,
        ended + failed + r.unanswered,
        "every request ends once: {r:?}"
    );
    assert_eq!((r.response.count(), r.service.count()), (ended, ended));
    r
}

#[test]
fn an_open_loop_reaches_its_rate() {
    let target = app();
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let result = outcome(&spec(target, open(2000.0, arrivals)));
        // 1,000 expected; 5 standard deviations of a Poisson count are 158.
        assert!(
            (840..=1160).contains(&result.offered),
            "{arrivals:?} {result:?}"
        );
        assert_eq!(result.status[&200], result.offered);
        assert_eq!(result.errors.total() + result.unanswered, 0);
        assert_eq!(result.connections_opened, 8);
        assert!(result.bytes_received > result.completed * 1024);
        assert!(!result.congestion_control.is_empty());
        assert!(result.audit.cpu_ns > 0);
    }
}

#[test]
fn the_same_seed_offers_the_same_requests() {
    let target = app();
    let spec = spec(target, open(3000.0, Arrivals::Poisson));
    let (one, two) = (outcome(&spec), outcome(&spec));
    assert_eq!(one.offered, two.offered);
}

#[test]
fn a_closed_loop_keeps_every_connection_busy() {
    while_the_machine_is_ours("a closed loop", || {
        let target = app();
        let mut spec = spec(target, LoadModel::closed());
        spec.window_ns = 300_000_000;
        let mut window = None;
        let result = run(&spec, &mut |w| window = Some(w)).unwrap();
        let window = window.unwrap();
        assert_eq!(
            window.end_monotonic_ns - window.start_monotonic_ns,
            spec.window_ns
        );
        assert!(result.completed > 500, "{result:?}");
        assert!(result.offered.abs_diff(result.completed) <= 8);
        // Little's law: that is why a closed loop's latency says nothing of its own.
        let in_flight = result.achieved_per_s() * result.response.mean_ns().unwrap() / 1e9;
        assert!((7.0..9.0).contains(&in_flight), "{in_flight}");
    });
}

#[test]
fn a_stalled_server_shows_in_response_latency() {
    while_the_machine_is_ours("a stalled server", || {
        let begin = Instant::now();
        // All connections stand still from 0.8 to 1.1 s after the begin.
        let target = server(move |_, stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut stream = stream;
            while read_request(&mut reader) {
                let at_ms = begin.elapsed().as_millis() as u64;
                if (800..1100).contains(&at_ms) {
                    std::thread::sleep(Duration::from_millis(1100 - at_ms));
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        });
        let mut spec = spec(target, open(1000.0, Arrivals::Constant));
        spec.connections = 16;
        spec.warmup_ns = 10_000_000;
        spec.window_ns = 2_000_000_000;
        let result = outcome(&spec);
        let ms = |h: &meshtax_model::LatencyHistogram, q| h.quantile_ns(q).unwrap() / 1_000_000;
        assert_eq!(result.unanswered, 0);
        assert!((1990..=2010).contains(&result.offered));
        // 300 of 2,000 requests fell into the stall: the worst 15 % rise evenly to 300 ms.
        assert!(ms(&result.response, 0.99) >= 200, "{result:?}");
        assert!(
            (60..250).contains(&ms(&result.response, 0.95)),
            "{result:?}"
        );
        // Only 16 requests were on the wire: seen from the actual send, nearly nothing happened.
        assert!(ms(&result.service, 0.95) < 60, "{result:?}");
        assert!(result.queued > 150, "{}", result.queued);
        // The requests that waited did not wait for the generator.
        assert!(
            ms(&result.generator_lag, 0.95) < 60,
            "{:?}",
            result.generator_lag
        );
    });
}

/// Runs only as the child of the next test, which stops it for a while.
#[test]
#[ignore = "the child process of a_stalled_generator_shows_in_latency_and_audit"]
fn a_worker_process_offers_the_load() {
    let mut spec = spec(app(), open(1000.0, Arrivals::Constant));
    spec.warmup_ns = 10_000_000;
    spec.window_ns = 2_000_000_000;
    let result = run(&spec, &mut |_| eprintln!("begun")).unwrap();
    eprintln!("result {}", serde_json::to_string(&result).unwrap());
}

#[test]
fn a_stalled_generator_shows_in_latency_and_audit() {
    while_the_machine_is_ours("a stalled generator", || {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "a_worker_process_offers_the_load",
            ])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        lines
            .find(|line| line.as_ref().unwrap() == "begun")
            .unwrap()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        std::thread::sleep(Duration::from_millis(700));
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        let result = lines
            .find_map(|line| Some(line.unwrap().strip_prefix("result ")?.to_owned()))
            .unwrap();
        child.wait().unwrap();
        let result: LoadResult = serde_json::from_str(&result).unwrap();
        // Server and generator stood still alike, so that only the intended times can tell.
        assert!(
            result.response.quantile_ns(0.99).unwrap() >= 200_000_000,
            "{result:?}"
        );
        assert!(result.audit.longest_loop_ns >= 290_000_000, "{result:?}");
        assert!(result.audit.generator_bound.is_some(), "{result:?}");
    });
}

#[test]
fn thousands_of_connections_open_without_an_error() {
    let mut spec = spec(app(), open(4000.0, Arrivals::Constant));
    spec.connections = 2000;
    spec.warmup_ns = 0;
    spec.window_ns = 1_000_000_000;
    let result = outcome(&spec);
    assert_eq!(
        (result.connections_opened, result.errors.total()),
        (2000, 0)
    );
}

#[test]
fn a_reset_is_counted_once_and_the_connection_reopened() {
    // Each connection serves three requests and is closed on the fourth.
    let target = server(|_, stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        for _ in 0..3 {
            if !read_request(&mut reader) {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno");
        }
        read_request(&mut reader);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut");
    });
    let mut spec = spec(target, open(400.0, Arrivals::Constant));
    spec.warmup_ns = 0;
    let result = outcome(&spec);
    let (died, answered) = (result.errors.reset, result.status[&503]);
    assert!((30..=60).contains(&died), "{result:?}");
    assert!((answered / 3).abs_diff(died) <= 8, "{result:?}");
    assert_eq!(result.succeeded, 0);
    assert!(
        result.connections_opened.abs_diff(8 + died) <= 2,
        "{result:?}"
    );
}

#[test]
fn chunked_and_closed_responses_are_not_errors() {
    while_the_machine_is_ours("chunks and closes", || {
        let answers: [(&str, bool); 4] = [
            (
                "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                false,
            ),
            ("connection: close\r\ncontent-length: 2\r\n\r\nok", true),
            ("\r\nuntil the end", true),
            // Closes without having said so.
            ("content-length: 2\r\n\r\nok", true),
        ];
        for (rest, closes) in answers {
            let target = server(move |_, stream| {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while read_request(&mut reader) {
                    let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 ");
                    let answer = format!("200 OK\r\n{rest}");
                    for part in answer.as_bytes().chunks(9) {
                        let _ = stream.write_all(part);
                    }
                    if closes {
                        return;
                    }
                }
            });
            // Slow enough for the close to come before the connection's next turn.
            let result = outcome(&spec(target, open(200.0, Arrivals::Constant)));
            assert_eq!(
                result.errors.total() + result.unanswered,
                0,
                "{rest:?} {result:?}"
            );
            assert_eq!(result.status[&200], result.offered);
            assert_eq!(
                result.connections_opened > 50,
                closes,
                "{rest:?} {result:?}"
            );
        }
    });
}

#[test]
fn what_is_not_http_is_a_protocol_error() {
    let target = server(|_, mut stream| {
        let mut request = [0; 1000];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(b"SSH-2.0-server\r\n");
    });
    let mut spec = spec(target, open(200.0, Arrivals::Constant));
    spec.window_ns = 200_000_000;
    // Longer than a stall.
    spec.drain_ns = 1_000_000_000;
    let result = outcome(&spec);
    assert!(result.errors.protocol > 5, "{result:?}");
    assert_eq!(result.completed, 0);
}

#[test]
fn requests_without_response_are_counted() {
    let target = server(|_, mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let mut spec = spec(target, open(1000.0, Arrivals::Constant));
    spec.window_ns = 100_000_000;
    spec.drain_ns = 50_000_000;
    let result = outcome(&spec);
    // Eight are on the wire since the warm-up, the others never found a connection.
    assert_eq!((result.offered, result.unanswered), (100, 100));
    assert_eq!(result.queued, 100);
}

#[test]
fn a_large_request_body_is_sent_completely() {
    let mut spec = spec(app(), LoadModel::closed());
    spec.requests[0].method = "POST".into();
    spec.requests[0].body = vec![b'x'; 3_000_000];
    spec.connections = 2;
    let result = outcome(&spec);
    assert!(result.succeeded > 2, "{result:?}");
    assert_eq!(result.errors.total() + result.unanswered, 0, "{result:?}");
}

#[test]
fn a_refused_connection_names_the_target_and_the_cause() {
    let target: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let mut spec = spec(target, LoadModel::closed());
    spec.connect_timeout_ns = 200_000_000;
    let error = run(&spec, &mut |_| {}).unwrap_err();
    assert!(matches!(
        error,
        LoadError::Connect {
            opened: 0,
            connections: 8,
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains(&target.to_string()) && text.contains("refused"),
        "{text}"
    );
}

#[test]
fn a_server_that_starts_late_is_awaited() {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    // Its port is taken from the beginning, and connections to it are refused until it listens.
    let late = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&late, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let late = TcpListener::from(late);
    let target = late.local_addr().unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        listen(&late, 128).unwrap();
        serve_on(&late, respond);
    });
    let result = outcome(&spec(target, open(500.0, Arrivals::Constant)));
    assert_eq!((result.errors.total(), result.connections_opened), (0, 8));
}

#[test]
fn an_abort_returns_what_was_measured() {
    let target = app();
    let mut spec = spec(target, open(1000.0, Arrivals::Constant));
    spec.warmup_ns = 0;
    spec.window_ns = 60_000_000_000;
    let abort = Arc::new(AtomicBool::new(false));
    let setter = Arc::clone(&abort);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        setter.store(true, Ordering::Relaxed);
    });
    let shown = AtomicU32::new(0);
    let mut on_window = |_| {};
    let hooks = Hooks {
        on_progress: Some(&mut |_| {
            shown.fetch_add(1, Ordering::Relaxed);
        }),
        abort: Some(&abort),
        ..Hooks::new(&mut on_window)
    };
    let result = run_with(&spec, hooks).unwrap();
    assert!(
        (400_000_000..5_000_000_000).contains(&result.window_ns),
        "{result:?}"
    );
    let expected = result.window_ns / 1_000_000;
    assert!(result.offered.abs_diff(expected) <= 2, "{result:?}");
    assert_eq!(result.unanswered, 0);
    assert!(shown.load(Ordering::Relaxed) >= 1);
}

#[test]
fn the_worker_writes_json_lines() {
    let mut input = serde_json::to_vec(&WorkerRequest::new(spec(
        app(),
        open(500.0, Arrivals::Poisson),
    )))
    .unwrap();
    input.extend_from_slice(b"\nwhat follows is not read");
    let mut output = Vec::new();
    worker_main(std::io::Cursor::new(input), &mut output).unwrap();
    let lines: Vec<WorkerMessage> = output
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert!(matches!(lines[0], WorkerMessage::Window(_)));
    let WorkerMessage::Result { load, open } = &lines[1] else {
        panic!("{lines:?}");
    };
    assert_eq!((lines.len(), load.status[&200]), (2, load.offered));
    assert!(*open > 0);
}

/// Runs only as the child of the next test, whose limit the whole process has.
#[test]
#[ignore = "needs a lowered limit: run by too_many_connections_are_one_error"]
fn ten_thousand_connections() {
    let mut spec = LoadSpec::new("127.0.0.1:9".parse().unwrap());
    spec.connections = 10_000;
    let error = run(&spec, &mut |_| {}).unwrap_err();
    panic!("reported: {error}");
}

#[test]
fn too_many_connections_are_one_error() {
    let itself = std::env::current_exe().unwrap();
    let child = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -n 256; exec \"$0\" --ignored --exact ten_thousand_connections",
        ])
        .arg(itself)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(text.contains("reported: 10000 connections need"), "{text}");
    assert!(
        text.contains("the limit is 256") && text.contains("ulimit -n"),
        "{text}"
    );
}
