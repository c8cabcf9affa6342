//! Closed loops by io_uring and by epoll do the same. Where the kernel gives no io_uring, the
//! comparison says SKIPPED.
#![expect(clippy::print_stderr, reason = "what is skipped is reported")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use meshtax_app::{AppConfig, serve};
use meshtax_load::{LoadSpec, Protocol, run};
use meshtax_model::trial::LoadResult;

fn app(response_bytes: u32) -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut config = AppConfig::new("127.0.0.1:0".parse().unwrap());
        config.response_bytes = response_bytes;
        let ready = |address| sender.send(address).unwrap();
        serve(&config, ready, &AtomicBool::new(false)).unwrap();
    });
    receiver.recv().unwrap()
}

fn spec(target: SocketAddr, protocol: Protocol, connections: u32) -> LoadSpec {
    let mut spec = LoadSpec::new(target);
    spec.protocol = protocol;
    spec.connections = connections;
    spec.window_ns = 300_000_000;
    spec
}

/// The load by io_uring and by epoll; each responses all that it sends.
fn both_ways(spec: &LoadSpec) -> [LoadResult; 2] {
    ["io_uring", "epoll"].map(|by| {
        let mut spec = spec.clone();
        spec.io_uring = by == "io_uring";
        let result = run(&spec, &mut |_| {}).unwrap();
        if spec.io_uring && result.socket_io == "epoll" {
            eprintln!("SKIPPED io_uring: this kernel gives none; its load went by epoll");
        } else {
            assert_eq!(result.socket_io, by);
        }
        assert!(result.completed > 0, "{by}: {result:?}");
        assert_eq!(result.offered, result.response.count(), "{by}: {result:?}");
        assert_eq!(result.errors.total(), 0, "{by}: {result:?}");
        result
    })
}

#[test]
fn all_protocols_work_with_fewer_buffers_than_connections() {
    let target = app(100);
    for (protocol, connections) in [
        (Protocol::Http1, 1),
        (Protocol::Http1, 600),
        (Protocol::Http2 { streams: 100 }, 4),
        (Protocol::Http2 { streams: 3 }, 300),
        (Protocol::Grpc { streams: 7 }, 5),
    ] {
        let mut spec = spec(target, protocol, connections);
        spec.requests[0].body = b"a body".to_vec();
        both_ways(&spec);
    }
}

#[test]
fn responses_larger_than_all_buffers_are_complete() {
    let bytes = 6_000_000;
    let mut spec = spec(app(bytes), Protocol::Http1, 3);
    spec.max_requests = Some(30);
    spec.window_ns = 30_000_000_000;
    for result in both_ways(&spec) {
        assert_eq!(result.completed, 30);
        assert!(result.bytes_received > 30 * u64::from(bytes));
    }
}

/// An echo that reads slowly, and counts what is not the body again and again.
fn slow_echo(body: Vec<u8>) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let wrong = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&wrong);
    let echo = move |mut stream: TcpStream, body: Vec<u8>, wrong: Arc<AtomicU64>| {
        let mut buffer = [0; 50_000];
        let mut at = 0;
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            for byte in &buffer[..count] {
                wrong.fetch_add(u64::from(*byte != body[at]), Ordering::Relaxed);
                at = (at + 1) % body.len();
            }
            std::thread::sleep(Duration::from_micros(200));
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (body, wrong) = (body.clone(), Arc::clone(&shared));
            std::thread::spawn(move || echo(stream, body, wrong));
        }
    });
    (address, wrong)
}

/// Small bodies go by the ring, larger ones by the socket, and one of megabytes fills it.
#[test]
fn bodies_that_fill_the_socket_are_complete() {
    for bytes in [1_000, 16_384, 16_385, 300_000, 5_000_000] {
        let body: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
        let (target, wrong) = slow_echo(body.clone());
        let mut spec = spec(target, Protocol::Tcp, 3);
        spec.requests[0].body = body;
        spec.max_requests = Some(12);
        spec.window_ns = 30_000_000_000;
        for result in both_ways(&spec) {
            assert_eq!(result.completed, 12, "{bytes}: {result:?}");
            assert_eq!(result.bytes_sent, 12 * u64::from(bytes), "{bytes}");
        }
        assert_eq!(wrong.load(Ordering::Relaxed), 0, "{bytes}");
    }
}

/// Many streams with bodies on one connection overflow what its socket takes at once.
#[test]
fn streams_that_fill_the_socket_are_complete() {
    let mut spec = spec(app(1000), Protocol::Http2 { streams: 100 }, 2);
    spec.requests[0].method = "POST".into();
    spec.requests[0].body = vec![b'x'; 12_000];
    both_ways(&spec);
}

#[test]
fn a_connection_that_ends_between_requests_is_reopened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                for _ in 0..5 {
                    let mut buffer = [0; 1000];
                    if !matches!(stream.read(&mut buffer), Ok(1..)) {
                        return;
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                }
            });
        }
    });
    for by_ring in [true, false] {
        let mut spec = spec(target, Protocol::Http1, 4);
        spec.io_uring = by_ring;
        let result = run(&spec, &mut |_| {}).unwrap();
        let answered: u64 = result.status.values().sum();
        assert!(answered > 20 && result.connections_opened > 4, "{result:?}");
        assert_eq!(result.offered, answered + result.errors.total());
    }
}
