//! Services that call each other.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use meshtax_app::{Call, Page, ServiceStep, Wait};

use super::App;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn call(address: SocketAddr, share: f64) -> Call {
    Call {
        address,
        host: "back:8080".into(),
        path: "/allowed".into(),
        share,
    }
}

fn calls(address: SocketAddr) -> ServiceStep {
    ServiceStep::Calls(vec![call(address, 1.0)])
}

fn status(answer: &str) -> &str {
    answer.split_whitespace().nth(1).unwrap_or(answer)
}

#[test]
fn a_response_waits_for_the_calls_of_each_step() {
    const MS: u64 = 1_000_000;
    let back = App::start(|config| {
        let ns = 100 * MS;
        config.wait = Some(Wait::Uniform {
            from_ns: ns,
            to_ns: ns,
        });
    });
    let at_once = ServiceStep::Calls(vec![call(back.address, 1.0); 3]);
    for (steps, at_least_ms, below_ms) in [
        (vec![at_once.clone()], 100, 290),
        (vec![at_once.clone(), calls(back.address)], 200, 390),
        (vec![ServiceStep::SleepNs(150 * MS), at_once], 250, 440),
    ] {
        let front = App::start(|config| config.steps = steps.clone());
        let before = back.stats().requests;
        // The least of several: a busy machine delays some. One call after the other would take more than each of these ranges.
        let least = (0..3).map(|_| {
            let begin = Instant::now();
            assert_eq!(status(&front.exchange(REQUEST)), "200");
            begin.elapsed()
        });
        let least = least.min().expect("some");
        let made: usize = steps.iter().map(|step| step.calls().len()).sum();
        assert_eq!(back.stats().requests - before, 3 * made as u64);
        assert_eq!(front.stats().calls, 3 * made as u64);
        assert_eq!(front.stats().failed_calls, 0);
        let range = Duration::from_millis(at_least_ms)..Duration::from_millis(below_ms);
        assert!(range.contains(&least), "{steps:?}: {least:?}");
    }
}

#[test]
fn a_failed_call_makes_the_response_an_error() {
    let gone = "127.0.0.1:1".parse().unwrap();
    let behind = App::start(|_| {});
    let front = App::start(|config| config.steps = vec![calls(gone), calls(behind.address)]);
    assert_eq!(status(&front.exchange(REQUEST)), "503");
    let stats = front.stats();
    assert_eq!((stats.calls, stats.failed_calls), (1, 1));
    assert_eq!(behind.stats().requests, 0, "what follows is not called");
    let failing = App::start(|config| config.error_share = 1.0);
    let front = App::start(|config| config.steps = vec![calls(failing.address)]);
    assert_eq!(status(&front.exchange(REQUEST)), "503");
    // The probes of an application are not delayed by what it calls.
    assert_eq!(front.stats().failed_calls, 1);
}

#[test]
fn calls_are_made_for_their_share_of_requests() {
    let back = App::start(|_| {});
    let front = App::start(|config| {
        config.steps = vec![ServiceStep::Calls(vec![call(back.address, 0.25)])];
    });
    let all = REQUEST.repeat(2000);
    assert_eq!(front.exchange(&all).matches("200 OK").count(), 2000);
    let called = back.stats().requests;
    assert!((400..600).contains(&called), "{called}");
}

/// Each page has its own size, its own work and its own calls; any other path has none of them.
#[test]
fn pages_have_their_own_responses_and_calls() {
    let back = App::start(|config| config.response_bytes = 0);
    let page = |response_bytes, burn, steps| Page {
        response_bytes,
        burn,
        steps,
    };
    let front = App::start(|config| {
        config.response_bytes = 1;
        config.pages = vec![
            page(10, 0, vec![calls(back.address), calls(back.address)]),
            page(3000, 1000, Vec::new()),
        ];
    });
    for (path, bytes, called, burned) in [
        ("/allowed/page-1", 10, 2, 0),
        ("/allowed/page-2", 3000, 0, 1),
        ("/allowed/page-3", 1, 0, 0),
        ("/allowed", 1, 0, 0),
    ] {
        for canary in ["", "x-meshtax-canary: here\r\n"] {
            let before = (back.stats().requests, front.stats().burned);
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{canary}\r\n");
            let answer = front.exchange(request.as_bytes());
            assert_eq!(status(&answer), "200", "{path}");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
            assert!(head.contains(&format!("content-length: {bytes}")), "{head}");
            assert_eq!(body.len(), bytes, "{path}");
            assert_eq!(head.contains("here"), !canary.is_empty());
            assert_eq!(back.stats().requests - before.0, called, "{path}");
            assert_eq!(front.stats().burned - before.1, burned, "{path}");
        }
    }
}

/// A server that closes each connection after a response, without a word of it.
#[test]
fn a_connection_closed_while_idle_causes_no_error() {
    let rude = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = rude.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = rude.accept() {
            let mut seen = [0; 500];
            let _ = stream.read(&mut seen);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let front = App::start(|config| config.steps = vec![calls(address)]);
    for _ in 0..50 {
        assert_eq!(status(&front.exchange(REQUEST)), "200");
    }
}

#[test]
fn calls_forward_the_canary() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = [0; 500];
        let count = stream.read(&mut seen).unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        stream.write_all(answer).unwrap();
        String::from_utf8_lossy(&seen[..count]).into_owned()
    });
    let front = App::start(|config| config.steps = vec![calls(address)]);
    let answer = front.exchange(b"GET / HTTP/1.1\r\nx-meshtax-canary: tweet\r\n\r\n");
    assert_eq!(status(&answer), "200");
    let seen = seen.join().unwrap();
    assert!(seen.starts_with("GET /allowed HTTP/1.1\r\n"), "{seen}");
    for header in ["host: back:8080\r\n", "x-meshtax-canary: tweet\r\n"] {
        assert!(seen.contains(header), "{seen}");
    }
}

#[test]
fn a_client_that_disconnects_affects_no_other() {
    let back = App::start(|config| {
        config.wait = Some(Wait::Uniform {
            from_ns: 20_000_000,
            to_ns: 20_000_000,
        });
    });
    let front = App::start(|config| config.steps = vec![calls(back.address)]);
    for _ in 0..20 {
        let mut stream = front.connect();
        stream.write_all(REQUEST).unwrap();
        drop(stream);
    }
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(status(&front.exchange(REQUEST)), "200");
}

#[test]
fn invalid_calls_are_rejected() {
    for (call, field) in [
        (
            Call {
                share: 1.5,
                ..call(([127, 0, 0, 1], 1).into(), 1.0)
            },
            "share",
        ),
        (
            Call {
                host: "a b".into(),
                ..call(([127, 0, 0, 1], 1).into(), 1.0)
            },
            "host",
        ),
        (
            Call {
                path: "x".into(),
                ..call(([127, 0, 0, 1], 1).into(), 1.0)
            },
            "path",
        ),
    ] {
        let mut config = meshtax_app::AppConfig::new(([127, 0, 0, 1], 0).into());
        config.steps = vec![ServiceStep::Calls(vec![call])];
        let stop = std::sync::atomic::AtomicBool::new(true);
        let refused = meshtax_app::serve(&config, |_| {}, &stop).unwrap_err();
        assert!(refused.to_string().starts_with(field), "{refused}");
    }
}
