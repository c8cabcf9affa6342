//! HTTP/1.1, byte for byte.

use std::io::{Read, Write};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use meshtax_app::{AppConfig, Echo, serve};

use super::App;

const PLAIN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\n01234";

#[test]
fn every_method_and_path_gets_the_body() {
    let app = App::start(|_| {});
    assert_eq!(app.exchange(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"), PLAIN);
    assert_eq!(app.exchange(b"DELETE /b?c HTTP/1.1\r\n\r\n"), PLAIN);
    let head = app.exchange(b"HEAD / HTTP/1.1\r\n\r\n");
    assert_eq!(head, PLAIN.strip_suffix("01234").unwrap());
    assert_eq!(app.stats().requests, 3);
}

#[test]
fn pipelined_requests_are_parsed_in_any_split() {
    let app = App::start(|_| {});
    let requests = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n\
                    PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n\
                    GET / HTTP/1.1\r\n\r\n";
    assert_eq!(app.exchange(requests.as_bytes()), PLAIN.repeat(4));
    for piece in [1, 7, 30] {
        let mut stream = app.connect();
        stream.set_nodelay(true).unwrap();
        for part in requests.as_bytes().chunks(piece) {
            stream.write_all(part).unwrap();
        }
        let mut answers = vec![0; PLAIN.len() * 4];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(String::from_utf8(answers).unwrap(), PLAIN.repeat(4));
    }
}

#[test]
fn connections_end_as_their_headers_demand() {
    let app = App::start(|_| {});
    for (request, header) in [
        (
            "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
            "connection: close\r\n",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "connection: close\r\n"),
    ] {
        let mut stream = app.connect();
        // The second request must not be answered any more.
        stream.write_all(request.repeat(2).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(
            text.contains(header) && text.matches("200 OK").count() == 1,
            "{text}"
        );
    }
    let kept =
        app.exchange(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    assert_eq!(kept.matches("200 OK").count(), 2);
    assert!(kept.contains("connection: keep-alive\r\n"));
}

#[test]
fn a_requested_failure_is_counted_separately() {
    let app = App::start(|_| {});
    let failing = "GET /_meshtax/echo HTTP/1.1\r\nX-Meshtax-Fail: 1\r\n\r\n";
    let both = app.exchange(format!("{failing}{failing}").as_bytes());
    assert_eq!(both.matches("HTTP/1.1 503 ").count(), 2, "{both}");
    // Only there: elsewhere the header is one like any other.
    let elsewhere = app.exchange(b"GET / HTTP/1.1\r\nx-meshtax-fail: 1\r\n\r\n");
    assert_eq!(elsewhere, PLAIN);
    let stats = app.stats();
    assert_eq!(
        (stats.failed_on_request, stats.requests, stats.errors),
        (2, 1, 0)
    );
}

#[test]
fn malformed_requests_are_rejected() {
    let app = App::start(|_| {});
    assert!(
        app.exchange(b"\x16\x03\x01 hello")
            .starts_with("HTTP/1.1 400 ")
    );
    let large = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(100_000));
    assert!(app.exchange(large.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert_eq!(app.stats().requests, 0);
}

#[test]
fn expect_continue_is_acknowledged() {
    let app = App::start(|_| {});
    let mut stream = app.connect();
    stream
        .write_all(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        .unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ab").unwrap();
    let mut answer = vec![0; PLAIN.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, PLAIN.as_bytes());
}

#[test]
fn echo_reports_the_request_and_returns_the_canary() {
    let app = App::start(|_| {});
    let mut stream = app.connect();
    let request = b"GET /_meshtax/echo?q HTTP/1.1\r\nHost: h\r\nX-Meshtax-Canary: c4\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("x-meshtax-canary: c4"), "{head}");
    let echo: Echo = serde_json::from_str(body).unwrap();
    assert_eq!(
        (echo.method.as_str(), echo.path.as_str()),
        ("GET", "/_meshtax/echo?q")
    );
    assert_eq!(echo.headers[0], ("Host".to_owned(), "h".to_owned()));
    assert_eq!(echo.peer, stream.local_addr().unwrap().to_string());
    let plain = app.exchange(b"GET / HTTP/1.1\r\nx-meshtax-canary: c5\r\n\r\n");
    assert!(plain.contains("x-meshtax-canary: c5\r\n") && plain.ends_with("\r\n\r\n01234"));
    assert_eq!(app.stats().requests, 1);
}

#[test]
fn a_delay_is_spun_and_counted() {
    let app = App::start(|config| config.delay_ns = 3_000_000);
    let begin = Instant::now();
    let three = app.exchange("GET / HTTP/1.1\r\n\r\n".repeat(3).as_bytes());
    assert!(begin.elapsed() >= Duration::from_millis(9));
    assert_eq!(three, PLAIN.repeat(3));
    let stats = app.stats();
    assert_eq!((stats.requests, stats.delayed), (3, 3));
    assert_eq!(stats.configured_delay_ns, 3_000_000);
    assert!(stats.delay_sum_ns >= 9_000_000, "{stats:?}");
}

#[test]
fn a_peer_that_does_not_read_is_not_read_from() {
    let app = App::start(|config| config.response_bytes = 1_000_000);
    let mut stream = app.connect();
    let count = 100;
    stream
        .write_all("GET / HTTP/1.1\r\n\r\n".repeat(count).as_bytes())
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(app.stats().requests < 50, "{:?}", app.stats());
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.len() > 100_000_000);
    assert_eq!(app.stats().requests, 100);
}

#[test]
fn threads_share_a_port_and_sum_their_counters() {
    let app = App::start(|config| config.threads = 3);
    for _ in 0..30 {
        assert_eq!(app.exchange(b"GET / HTTP/1.1\r\n\r\n"), PLAIN);
    }
    assert_eq!(app.stats().requests, 30);
}

#[test]
fn errors_name_the_address_and_the_fix() {
    let app = App::start(|_| {});
    let config = AppConfig::new(app.address);
    let text = serve(&config, |_| {}, &AtomicBool::new(true))
        .unwrap_err()
        .to_string();
    assert!(text.contains(&app.address.to_string()), "{text}");
    assert!(text.contains("choose another"), "{text}");
    let none = AppConfig {
        threads: 0,
        ..config
    };
    let text = serve(&none, |_| {}, &AtomicBool::new(true))
        .unwrap_err()
        .to_string();
    assert_eq!(text, "threads is 0: use 1 to 1024");
}

#[test]
fn bodies_longer_than_any_buffer_are_complete() {
    let app = App::start(|config| config.response_bytes = 3_000_001);
    let expected = super::digits(3_000_001);
    for canary in ["", "x-meshtax-canary: c\r\n"] {
        let request = format!("GET / HTTP/1.1\r\n{canary}\r\n");
        // Pipelined, and with a HEAD between them that has no body.
        let requests = format!("{request}HEAD / HTTP/1.1\r\n\r\n{request}");
        let text = app.exchange(requests.as_bytes());
        let mut rest = text.as_bytes();
        for has_body in [true, false, true] {
            let end = rest.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            assert!(rest.starts_with(b"HTTP/1.1 200 OK\r\n"));
            rest = &rest[end..];
            if has_body {
                assert!(rest.starts_with(&expected));
                rest = &rest[expected.len()..];
            }
        }
        assert!(rest.is_empty());
    }
}

#[test]
fn the_error_share_fails_and_is_counted() {
    let app = App::start(|config| config.error_share = 0.3);
    let text = app.exchange("GET / HTTP/1.1\r\n\r\n".repeat(500).as_bytes());
    let failed = text.matches("HTTP/1.1 503 Service Unavailable\r\n").count();
    let good = text.matches(PLAIN).count();
    assert_eq!(failed + good, 500);
    assert!((100..200).contains(&failed), "{failed}");
    let stats = app.stats();
    assert_eq!((stats.requests, stats.errors), (500, failed as u64));
    let all = App::start(|config| config.error_share = 1.0);
    let with_canary = all.exchange(b"GET / HTTP/1.1\r\nx-meshtax-canary: c6\r\n\r\n");
    assert!(with_canary.starts_with("HTTP/1.1 503 "), "{with_canary}");
    assert!(with_canary.contains("x-meshtax-canary: c6\r\n"));
}

#[test]
fn waiting_requests_hold_up_no_others_and_keep_their_order() {
    let app = App::start(|config| {
        config.wait = Some(meshtax_app::Wait::Uniform {
            from_ns: 200_000_000,
            to_ns: 210_000_000,
        });
    });
    let begin = Instant::now();
    let mut streams: Vec<_> = (0..20).map(|_| app.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    }
    for stream in &mut streams {
        let mut answer = vec![0; PLAIN.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, PLAIN.as_bytes());
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_millis(1500), "{took:?}");
    let stats = app.stats();
    assert_eq!((stats.requests, stats.delayed), (20, 20));
    assert!(stats.delay_sum_ns >= 20 * 200_000_000, "{stats:?}");
    // On one connection, one after the other; the last one closes it.
    let two = "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nconnection: close\r\n\r\n";
    let begin = Instant::now();
    let text = app.exchange(two.as_bytes());
    assert!(begin.elapsed() >= Duration::from_millis(400));
    assert_eq!(text.matches("200 OK").count(), 2);
    assert!(text.starts_with(PLAIN) && text.contains("connection: close\r\n"));
}
