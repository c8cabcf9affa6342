//! What any server can do to any protocol.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use meshtax_load::{LoadModel, Protocol};

use super::quiet::while_the_machine_is_ours;
use crate::harness::*;

/// Every protocol and model against one server. Only errors of these kinds may come, and
/// nothing may be answered.
fn all_fail(what: &str, target: SocketAddr, kinds: &[&str]) {
    for protocol in PROTOCOLS {
        for (name, spec, result) in offer_all(&loads_for(target, protocol, kinds)) {
            let name = format!("{what}: {name}");
            let Some(result) = result else { continue };
            assert_eq!(answered(&result), 0, "{name}: {result:?}");
            only(&result, &name, kinds);
            // A kept connection may be lost for good before the load begins.
            if spec.requests_per_connection.is_some() {
                assert!(result.errors.total() > 0, "{name}: {result:?}");
            }
            if spec.model.is_closed() {
                assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            }
        }
    }
}

#[test]
fn garbage_instead_of_a_response_is_an_error() {
    let target = server(|_, mut stream| {
        while read_some(&mut stream) {
            let _ = stream.write_all(&[0xfe; 5000]);
        }
    });
    // What is behind the first bad byte is not read: the close resets the connection, which may
    // come before the bytes.
    all_fail("garbage", target, &["protocol", "reset"]);
}

#[test]
fn unsolicited_garbage_is_an_error() {
    let target = server(|_, mut stream| {
        let _ = stream.write_all(b"220 mail ready\r\n");
        read_all(&mut stream);
    });
    // Half of what a TCP echo awaits.
    all_fail("greeting", target, &["protocol", "reset", "timeout"]);
}

#[test]
fn a_close_right_after_the_accept_is_counted() {
    let target = server(|_, stream| drop(stream));
    all_fail("close", target, &["reset", "connect"]);
}

#[test]
fn a_reset_right_after_the_accept_is_counted() {
    let target = server(|_, stream| reset_on_close(&stream));
    all_fail("reset", target, &["reset", "connect"]);
}

#[test]
fn a_close_instead_of_a_response_is_counted() {
    let target = server(|_, mut stream| {
        read_some(&mut stream);
    });
    all_fail("close", target, &["reset"]);
}

#[test]
fn a_reset_instead_of_a_response_is_counted() {
    let target = server(|_, mut stream| {
        read_some(&mut stream);
        reset_on_close(&stream);
    });
    all_fail("reset", target, &["reset"]);
}

#[test]
fn a_half_close_instead_of_a_response_is_counted() {
    let target = server(|_, mut stream| {
        read_some(&mut stream);
        let _ = stream.shutdown(Shutdown::Write);
        read_all(&mut stream);
    });
    all_fail("half-close", target, &["reset"]);
}

#[test]
fn a_server_that_never_responds_blocks_nothing() {
    let target = server(|_, mut stream| read_all(&mut stream));
    all_fail("silence", target, &["timeout"]);
}

#[test]
fn a_server_that_never_reads_blocks_nothing() {
    let target = server(|_, stream| {
        std::thread::sleep(Duration::from_secs(60));
        drop(stream);
    });
    for protocol in PROTOCOLS {
        let mut all = loads(target, protocol);
        for spec in &mut all {
            // More than the socket's buffers hold.
            spec.requests[0].method = "POST".into();
            spec.requests[0].body = vec![b'x'; 9_000_000];
            *spec = hurried(spec.clone());
        }
        // Not all at once: each has its nine megabytes.
        for spec in &all[..4] {
            let result = offer(spec).unwrap();
            assert_eq!(answered(&result), 0, "{result:?}");
            only(&result, "nobody reads", &["timeout"]);
        }
    }
}

#[test]
fn a_server_that_never_accepts_blocks_nothing() {
    while_the_machine_is_ours("never an accept", || {
        let listener = {
            let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let socket = rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::STREAM,
                None,
            )
            .unwrap();
            rustix::net::bind(&socket, &any).unwrap();
            rustix::net::listen(&socket, 0).unwrap();
            TcpListener::from(socket)
        };
        let target = listener.local_addr().unwrap();
        // The queue holds one, and takes another: these are open for whoever comes first.
        let _fill: Vec<_> = (0..2)
            .map(|_| std::net::TcpStream::connect_timeout(&target, Duration::from_millis(50)))
            .collect();
        for protocol in PROTOCOLS {
            for (name, spec, result) in offer_all(&loads_for(target, protocol, &["timeout"])) {
                let kept = spec.requests_per_connection.is_none();
                assert_eq!(result.is_none(), kept, "{name}");
                let Some(result) = result else { continue };
                only(&result, &name, &["timeout", "connect"]);
                assert!(result.errors.total() > 0, "{name}: {result:?}");
                if spec.model.is_closed() {
                    assert_eq!(result.unanswered, 0, "{name}: {result:?}");
                }
            }
        }
    });
}

#[test]
fn a_flood_of_input_blocks_nothing() {
    let floods: [&'static [u8]; 6] = [
        b"\0",
        b"A",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"\r\n",
        // PRIORITY, which is to be ignored.
        b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\0",
    ];
    each(&floods, |bytes| {
        let bytes = *bytes;
        let target = server(move |_, mut stream| {
            read_some(&mut stream);
            flood(&mut stream, bytes);
        });
        for protocol in PROTOCOLS {
            for requests in [None, Some(1)] {
                let mut spec = hurried(spec(target, protocol, LoadModel::closed()));
                spec.requests_per_connection = requests;
                let Some(result) = offer(&spec) else { continue };
                let kinds = ["protocol", "reset", "timeout", "connect"];
                only(&result, &named(&spec), &kinds);
            }
        }
    });
}

#[test]
fn a_response_in_another_protocol_is_an_error() {
    let target = server(|_, mut stream| {
        while read_some(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    for protocol in &PROTOCOLS[1..] {
        for (name, _, result) in offer_all(&loads_for(target, *protocol, &[])) {
            let Some(result) = result else { continue };
            only(&result, &name, &["protocol", "reset"]);
            assert_eq!(answered(&result), 0, "{name}: {result:?}");
        }
    }
}

#[test]
fn an_echoed_request_is_not_a_response() {
    let target = server(|_, mut stream| {
        let mut other = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut other);
    });
    for protocol in PROTOCOLS {
        for (name, _, result) in offer_all(&loads_for(target, protocol, &[])) {
            let Some(result) = result else {
                assert_ne!(protocol, Protocol::Tcp, "{name}");
                continue;
            };
            if protocol == Protocol::Tcp {
                assert!(answered(&result) > 5, "{name}: {result:?}");
                assert_eq!(failed(&result), 0, "{name}: {result:?}");
            } else {
                assert_eq!(answered(&result), 0, "{name}: {result:?}");
                only(&result, &name, &["protocol", "reset"]);
            }
        }
    }
}

#[test]
fn a_server_that_recovers_is_used_again() {
    let mut all = loads("127.0.0.1:1".parse().unwrap(), Protocol::Tcp);
    for spec in &mut all {
        // The first connections are closed; then it is an echo.
        spec.target = server(|number, mut stream| {
            if number < 6 {
                read_some(&mut stream);
                return;
            }
            let mut other = stream.try_clone().unwrap();
            let _ = std::io::copy(&mut stream, &mut other);
        });
        spec.window_ns = 600 * MS;
    }
    for (name, _, result) in offer_all(&all) {
        let result = result.unwrap();
        assert!(result.errors.reset <= 6, "{name}: {result:?}");
        assert!(answered(&result) > 60, "{name}: {result:?}");
        assert_eq!(result.unanswered, 0, "{name}: {result:?}");
    }
}

#[test]
fn echoes_of_the_wrong_length_are_errors() {
    for extra in [-1_i32, 1] {
        let target = server(move |_, mut stream| {
            while read_some(&mut stream) {
                let _ = stream.write_all(&[b'x'; 33][..(32 + extra) as usize]);
            }
        });
        for (name, spec, result) in offer_all(&loads_for(target, Protocol::Tcp, &["timeout"])) {
            let result = result.unwrap();
            assert_eq!(answered(&result), 0, "{name}: {result:?}");
            only(&result, &name, &["protocol", "timeout"]);
            let wanted = if extra < 0 {
                result.errors.timeout
            } else {
                result.errors.protocol
            };
            assert!(wanted > 0, "{name} {extra}: {result:?}");
            if spec.model.is_closed() {
                assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            }
        }
    }
}

#[test]
fn connections_that_never_stay_open_are_reported() {
    // The patience is longer than the longest pause between two attempts: each of them gets a
    // connection, and none of them progress.
    let closing = server(|_, stream| drop(stream));
    let greeting = server(|_, mut stream| {
        let _ = stream.write_all(b"220 mail ready\r\n");
        read_all(&mut stream);
    });
    for target in [closing, greeting] {
        let mut spec = spec(target, Protocol::Http1, LoadModel::closed());
        spec.connect_timeout_ns = 2500 * MS;
        // All may be open for an instant: then the load begins, and fails.
        let answers = offer(&spec).map(|result| answered(&result));
        assert!(answers.is_none_or(|answers| answers == 0));
    }
}
