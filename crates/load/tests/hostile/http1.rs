//! What a server can do to HTTP/1.1.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use meshtax_load::{LoadModel, LoadSpec, Protocol, run};
use meshtax_model::experiment::Arrivals;

use crate::harness::*;

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Responses every request with the same bytes, in pieces of that length, and keeps the connection.
fn answering(answer: impl Into<Vec<u8>>, piece: usize) -> SocketAddr {
    let answer = answer.into();
    server(move |_, mut stream| {
        while read_head(&mut stream) {
            for part in answer.chunks(piece) {
                if stream.write_all(part).is_err() {
                    return;
                }
            }
        }
    })
}

/// Every model over every kind of connection: all gets a response.
fn all_answered(what: &str, target: SocketAddr) {
    for (name, _, result) in offer_all(&loads(target, Protocol::Http1)) {
        let result = result.unwrap();
        let name = format!("{what}: {name}");
        assert!(answered(&result) > 2, "{name}: {result:?}");
        assert_eq!(failed(&result), 0, "{name}: {result:?}");
        assert_eq!(result.unanswered, 0, "{name}: {result:?}");
    }
}

/// Every model over every kind of connection: nothing gets a response, for these reasons.
fn all_fail(what: &str, target: SocketAddr, kinds: &[&str]) {
    for (name, _, result) in offer_all(&few(loads_for(target, Protocol::Http1, kinds))) {
        let result = result.unwrap();
        let name = format!("{what}: {name}");
        assert_eq!(answered(&result), 0, "{name}: {result:?}");
        assert!(failed(&result) > 0, "{name}: {result:?}");
        only(&result, &name, kinds);
    }
}

/// Loads of exactly so many requests over one connection, one after the other.
fn in_turn(target: SocketAddr, requests: u64) -> Vec<LoadSpec> {
    let arrivals = Arrivals::Constant;
    let models = [
        LoadModel::closed(),
        LoadModel::Closed { think_ns: 100_000 },
        LoadModel::open(2000.0, arrivals),
        LoadModel::Users {
            rate_per_s: 2000.0,
            arrivals,
        },
    ];
    models
        .into_iter()
        .map(|model| {
            let mut spec = spec(target, Protocol::Http1, model);
            spec.connections = 1;
            spec.max_requests = Some(requests);
            spec.window_ns = 15_000 * MS;
            spec
        })
        .collect()
}

/// Every second request gets a response, the others get this response cut after one byte more each
/// time. `complete`: from which length on the response is one.
fn cut_everywhere(answer: &[u8], complete: usize, closes: bool) {
    let positions = answer.len() as u64 + 1;
    for spec in in_turn("127.0.0.1:1".parse().unwrap(), 2 * positions) {
        let answer = answer.to_vec();
        let next = AtomicUsize::new(0);
        let target = server(move |_, mut stream| {
            // Its connection has carried a response: it is opened again without a pause.
            while read_head(&mut stream) && stream.write_all(GOOD).is_ok() && read_head(&mut stream)
            {
                let cut = next.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(&answer[..cut]);
                if cut < answer.len() || closes {
                    return;
                }
            }
        });
        let spec = LoadSpec { target, ..spec };
        let result = offer(&spec).unwrap();
        let name = named(&spec);
        let whole = positions - complete as u64;
        assert_eq!(result.offered, 2 * positions, "{name}: {result:?}");
        assert_eq!(answered(&result), positions + whole, "{name}: {result:?}");
        assert_eq!(result.errors.reset, positions - whole, "{name}: {result:?}");
        assert_eq!(result.unanswered, 0, "{name}: {result:?}");
        only(&result, &name, &["reset"]);
    }
}

#[test]
fn a_close_at_every_byte_of_a_response_is_counted() {
    let head = "HTTP/1.1 200 OK\r\nserver: x\r\n";
    let of_length = format!("{head}content-length: 9\r\n\r\nsome body");
    let chunked = format!(
        "{head}transfer-encoding: chunked\r\nTrailer: t\r\n\r\n\
         4;a=\"b\"\r\nsome\r\n05\r\n body\r\n0\r\nt: u\r\nv: w\r\n\r\n"
    );
    let until_close = format!("{head}\r\nsome body");
    let until_close_head = head.len() + 2;
    for (answer, complete, closes) in [
        (&of_length, of_length.len(), false),
        (&chunked, chunked.len(), false),
        (&until_close, until_close_head, true),
    ] {
        let answer = answer.as_bytes();
        cut_everywhere(answer, complete, closes);
    }
}

#[test]
fn a_number_of_requests_is_never_exceeded() {
    // Responses are late, so that arrivals queue.
    let target = server(|_, mut stream| {
        while read_head(&mut stream) {
            std::thread::sleep(Duration::from_millis(2));
            let _ = stream.write_all(GOOD);
        }
    });
    for spec in in_turn(target, 20) {
        for connections in [1, 3] {
            let spec = LoadSpec {
                connections,
                ..spec.clone()
            };
            let result = offer(&spec).unwrap();
            let name = named(&spec);
            assert_eq!((result.offered, answered(&result)), (20, 20), "{name}");
            // It ends with the last response, not with the drain.
            assert!(result.window_ns < 2000 * MS, "{name}: {result:?}");
        }
    }
}

#[test]
fn an_endless_head_is_an_error() {
    let line = server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ");
        flood(&mut stream, b"a");
    });
    let lines = server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        flood(&mut stream, b"a: b\r\n");
    });
    let reason = server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 ");
        flood(&mut stream, b"a");
    });
    for (what, target) in [("a line", line), ("lines", lines), ("a reason", reason)] {
        all_fail(what, target, &["protocol"]);
    }
}

#[test]
fn an_endless_head_byte_by_byte_is_an_error() {
    let target = server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ");
        while stream.write_all(b"a").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    all_fail("byte by byte", target, &["timeout"]);
    // All of the 64 KiB in single bytes, as fast as they go.
    let target = server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ");
        while stream.write_all(b"a").is_ok() {}
    });
    let mut spec = spec(target, Protocol::Http1, LoadModel::closed());
    spec.connections = 1;
    spec.timeout_ns = None;
    spec.drain_ns = 10_000 * MS;
    let result = offer(&spec).unwrap();
    assert!(result.errors.protocol > 0, "{result:?}");
    only(&result, "bytes", &["protocol"]);
}

#[test]
fn two_responses_to_one_request_are_an_error() {
    let at_once = answering(GOOD.repeat(2), usize::MAX);
    // One request at a time, and far apart: the second response comes when nobody waits.
    let later = server(|_, mut stream| {
        while read_head(&mut stream) {
            let _ = stream.write_all(GOOD);
            std::thread::sleep(Duration::from_millis(3));
            let _ = stream.write_all(GOOD);
        }
    });
    all_answered("at once", at_once);
    let mut spec = spec(
        later,
        Protocol::Http1,
        LoadModel::open(20.0, Arrivals::Constant),
    );
    spec.window_ns = 500 * MS;
    let result = offer(&spec).unwrap();
    assert_eq!((result.offered, answered(&result)), (10, 10), "{result:?}");
    assert_eq!(result.errors.total(), 0, "{result:?}");
    assert!(result.connections_opened > 3, "{result:?}");
}

#[test]
fn chunks_with_extensions_and_trailers_are_accepted() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bodies = [
        "0\r\n\r\n".to_owned(),
        "5;name=value;other=\"quoted; text\"\r\nhello\r\n0;last\r\n\r\n".to_owned(),
        "0000000000005\r\nhello\r\n000\r\n\r\n".to_owned(),
        "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\nx: y\r\nz:\r\n\r\n".to_owned(),
        format!("3\r\n\r\n\r\r\n{}0\r\n\r\n", "1\r\nx\r\n".repeat(500)),
        format!("0\r\n{}\r\n", "trailer: of some length\r\n".repeat(1000)),
    ];
    for body in &bodies {
        for piece in [1, 100, usize::MAX] {
            if piece == 1 && body.len() > 1000 {
                continue;
            }
            all_answered(
                &format!("{body:.40} by {piece}"),
                answering(format!("{head}{body}"), piece),
            );
        }
    }
}

#[test]
fn malformed_chunks_are_errors() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let bodies = [
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "+5\r\nhello\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\nhello\n0\n\n",
        "ffffffffffffffff\r\n",
        "0\r\n\r\r\n",
        ";5\r\n",
    ];
    each(&bodies, |body| {
        let target = answering(format!("{head}{body}"), usize::MAX);
        all_fail(body, target, &["protocol"]);
    });
    for endless in ["0\r\n", "5;"] {
        let head = format!("{head}{endless}");
        let target = server(move |_, mut stream| {
            read_head(&mut stream);
            let _ = stream.write_all(head.as_bytes());
            flood(&mut stream, b"a");
        });
        all_fail(endless, target, &["protocol"]);
    }
}

#[test]
fn malformed_lengths_are_errors() {
    let lengths = [
        "x",
        "-1",
        "+1",
        "1, 2",
        "1,",
        "",
        "18446744073709551616",
        "1\r\ncontent-length: 2",
        "0x10",
    ];
    each(&lengths, |length| {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nx");
        all_fail(length, answering(answer, usize::MAX), &["protocol"]);
    });
    // The longest that there is: never complete.
    let longest = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\nx", u64::MAX);
    all_fail("longest", answering(longest, usize::MAX), &["timeout"]);
}

#[test]
fn responses_without_a_body_are_complete() {
    for answer in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 500\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    ] {
        all_answered(answer, answering(answer, usize::MAX));
    }
    // What a body would be after a response that has none is another response, which nobody
    // asked for.
    let answer = "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello";
    all_answered(answer, answering(answer, usize::MAX));
}

#[test]
fn announced_closes_are_not_errors() {
    for answer in [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nConnection: foo, CLOSE\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n\r\nok",
    ] {
        let target = server(move |_, mut stream| {
            if read_head(&mut stream) {
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        all_answered(answer, target);
    }
    // Announced and not done: the generator closes.
    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    all_answered("kept", answering(answer, usize::MAX));
}

#[test]
fn interim_responses_are_skipped() {
    let some = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n";
    let many = format!(
        "{}{}",
        some.repeat(50),
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    );
    all_answered("many", answering(many.clone(), usize::MAX));
    all_answered("in pieces", answering(many, 100));
    let target = server(|_, mut stream| {
        read_head(&mut stream);
        flood(&mut stream, b"HTTP/1.1 102 Processing\r\n\r\n");
    });
    all_fail("endless", target, &["timeout"]);
    let upgrade = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n";
    all_fail("upgrade", answering(upgrade, usize::MAX), &["protocol"]);
}

#[test]
fn a_response_before_the_request_was_read_ends_the_connection() {
    // Reads the rest later.
    let patient = server(|_, mut stream| {
        while read_head(&mut stream) {
            let _ = stream.write_all(GOOD);
            std::thread::sleep(Duration::from_millis(5));
            let mut left = 3_000_000;
            let mut buffer = vec![0; 65_536];
            while left > 0 {
                let most = buffer.len().min(left);
                match stream.read(&mut buffer[..most]) {
                    Ok(count) if count > 0 => left -= count,
                    _ => return,
                }
            }
        }
    });
    // Closes with the rest unread, which resets the connection: the response may be lost.
    let hasty = server(|_, mut stream| {
        if read_head(&mut stream) {
            let _ = stream.write_all(GOOD);
        }
    });
    for (target, kinds) in [(patient, &[][..]), (hasty, &["reset"][..])] {
        for spec in &mut loads(target, Protocol::Http1)[..3] {
            spec.requests[0].method = "PUT".into();
            spec.requests[0].body = vec![b'x'; 3_000_000];
            let result = offer(spec).unwrap();
            let name = named(spec);
            only(&result, &name, kinds);
            assert!(
                answered(&result) + result.errors.reset > 2,
                "{name}: {result:?}"
            );
            assert_eq!(result.unanswered, 0, "{name}: {result:?}");
        }
    }
}

#[test]
fn a_reset_within_a_body_is_counted() {
    let target = server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n");
        let _ = stream.write_all(&[b'x'; 400_000]);
        reset_on_close(&stream);
    });
    all_fail("a reset", target, &["reset"]);
}

#[test]
fn a_response_to_head_has_no_body() {
    let target = answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", usize::MAX);
    for spec in &mut loads(target, Protocol::Http1) {
        spec.requests[0].method = "HEAD".into();
        let result = offer(spec).unwrap();
        assert_eq!(failed(&result) + result.unanswered, 0, "{result:?}");
    }
}

pub(crate) const FIVE_GIGABYTES: u64 = 5_000_000_000;

/// The most memory that this process has had, in bytes.
pub(crate) fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// One request, whose response `serve` writes; what was read of it, in bytes.
pub(crate) fn one_large(
    protocol: Protocol,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) -> u64 {
    let target = server(move |_, stream| serve(stream));
    let mut spec = spec(target, protocol, LoadModel::closed());
    spec.connections = 1;
    spec.max_requests = Some(1);
    spec.window_ns = 100_000 * MS;
    spec.drain_ns = 100_000 * MS;
    spec.timeout_ns = None;
    let (patience, load) = (Duration::from_secs(120), spec.clone());
    let result = watched_for("a large body", patience, move || run(&load, &mut |_| {})).unwrap();
    books(&spec, &result);
    assert_eq!((result.offered, answered(&result)), (1, 1), "{result:?}");
    result.bytes_received
}

fn of_length(mut stream: TcpStream, length: u64) {
    let stream = &mut stream;
    read_head(stream);
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length:10}\r\n\r\n"
    );
    repeat(stream, &[b'x'; 50_000], length / 50_000);
    read_all(stream);
}

fn chunked(mut stream: TcpStream, length: u64) {
    let stream = &mut stream;
    read_head(stream);
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = [b"C350\r\n".as_slice(), &[b'x'; 50_000], b"\r\n"].concat();
    repeat(stream, &chunk, length / 50_000);
    let _ = stream.write_all(b"0\r\n\r\n");
    read_all(stream);
}

/// Writes the block so many times, or until nobody reads any more.
pub(crate) fn repeat(stream: &mut TcpStream, block: &[u8], times: u64) {
    for _ in 0..times {
        if stream.write_all(block).is_err() {
            return;
        }
    }
}

/// Runs only as the child of the next test, whose memory it measures.
#[test]
#[ignore = "measures this process: run by memory_does_not_grow_with_the_body"]
fn five_gigabytes() {
    // Both heads are as long as each other.
    let head = 17 + 28 + 2;
    let framing = |length: u64| length / 50_000 * 8 + 5;
    let both = |length: u64| {
        let read = one_large(Protocol::Http1, move |s| of_length(s, length));
        assert_eq!(read, head + length);
        let read = one_large(Protocol::Http1, move |s| chunked(s, length));
        assert_eq!(read, head + length + framing(length));
    };
    both(5_000_000);
    let before = peak_bytes();
    both(FIVE_GIGABYTES);
    let grown = peak_bytes() - before;
    assert!(grown < 8_000_000, "{grown} bytes more");
}

/// Runs an ignored test of this binary as a process of its own.
pub(crate) fn as_a_process(test: &str) {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn memory_does_not_grow_with_the_body() {
    as_a_process("http1::five_gigabytes");
}
