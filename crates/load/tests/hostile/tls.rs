//! What a server can do to a connection that is to be encrypted.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use meshtax_load::{LoadError, LoadModel, LoadSpec, Protocol, Tls, run};
use meshtax_model::trial::LoadResult;
use meshtax_tls::{ClientTls, ServerTls, self_signed, server_config};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::harness::*;

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A server's settings, and the certificate to trust.
fn certificate(names: &[&str], alpn: &[&str]) -> (Arc<ServerConfig>, String) {
    let names: Vec<_> = names.iter().map(|n| (*n).to_owned()).collect();
    let (chain_pem, key_pem) = self_signed(&names).unwrap();
    let tls = ServerTls {
        chain_pem: chain_pem.clone(),
        key_pem,
        client_roots_pem: None,
        alpn: alpn.iter().map(|a| (*a).to_owned()).collect(),
    };
    (Arc::new(server_config(&tls).unwrap()), chain_pem)
}

type Secured = StreamOwned<ServerConnection, TcpStream>;

/// A server that speaks TLS; `serve` gets the connection before its handshake.
fn secured(
    config: &Arc<ServerConfig>,
    serve: impl Fn(&mut Secured) + Send + Sync + 'static,
) -> SocketAddr {
    let config = Arc::clone(config);
    server(move |_, stream| {
        let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        serve(&mut StreamOwned::new(tls, stream));
    })
}

fn read_request(stream: &mut Secured) -> bool {
    stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0)
}

/// The same loads with TLS; `roots` of `None` trust anyone.
fn over_tls(mut all: Vec<LoadSpec>, roots: Option<&str>) -> Vec<LoadSpec> {
    for spec in &mut all {
        spec.tls = Some(Tls {
            credentials: ClientTls {
                roots_pem: roots.map(str::to_owned),
                insecure: roots.is_none(),
                ..ClientTls::default()
            },
            server_name: "localhost".into(),
        });
    }
    all
}

/// Nothing can be opened: without a load where connections are kept, and with these errors where
/// each request has one.
fn none_opens(what: &str, target: SocketAddr, roots: Option<&str>, kinds: &[&str]) {
    each(&PROTOCOLS, |protocol| {
        let all = over_tls(few(loads_for(target, *protocol, kinds)), roots);
        for (name, spec, result) in offer_all(&all) {
            let name = format!("{what}: {name}");
            if spec.requests_per_connection.is_none() {
                assert!(result.is_none(), "{name}: {result:?}");
                continue;
            }
            let result = result.unwrap();
            assert_eq!(answered(&result), 0, "{name}: {result:?}");
            assert!(result.errors.total() > 0, "{name}: {result:?}");
            only(&result, &name, kinds);
            if spec.model.is_closed() {
                assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            }
        }
    });
}

#[test]
fn garbage_instead_of_a_handshake_is_reported() {
    let target = server(|_, mut stream| {
        read_some(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        read_all(&mut stream);
    });
    none_opens("plain", target, None, &["tls"]);
    let target = server(|_, mut stream| {
        read_some(&mut stream);
        flood(&mut stream, &[0x16, 3, 3, 0, 1, 0]);
    });
    none_opens("flood", target, None, &["tls"]);
    let target = server(|_, mut stream| {
        let _ = stream.write_all(&[0; 100]);
        read_all(&mut stream);
    });
    none_opens("unasked", target, None, &["tls"]);
}

#[test]
fn a_close_within_the_handshake_is_reported() {
    let before = server(|_, stream| drop(stream));
    none_opens("before", before, None, &["tls", "connect"]);
    let within = server(|_, mut stream| {
        read_some(&mut stream);
    });
    none_opens("within", within, None, &["tls"]);
    let reset = server(|_, mut stream| {
        read_some(&mut stream);
        reset_on_close(&stream);
    });
    none_opens("reset", reset, None, &["tls"]);
}

#[test]
fn an_endless_handshake_is_reported() {
    let silent = server(|_, mut stream| read_all(&mut stream));
    none_opens("silent", silent, None, &["timeout"]);
}

#[test]
fn an_untrusted_certificate_is_rejected() {
    let (config, _) = certificate(&["localhost"], &["h2", "http/1.1"]);
    let (_, other) = certificate(&["localhost"], &[]);
    let target = secured(&config, |stream| while read_request(stream) {});
    none_opens("another authority", target, Some(&other), &["tls"]);
    let (config, itself) = certificate(&["elsewhere"], &["h2", "http/1.1"]);
    let target = secured(&config, |stream| while read_request(stream) {});
    none_opens("another name", target, Some(&itself), &["tls"]);
}

#[test]
fn an_untrusted_certificate_is_reported_at_once() {
    let (config, _) = certificate(&["localhost"], &[]);
    let target = secured(&config, |stream| while read_request(stream) {});
    let (_, other) = certificate(&["localhost"], &[]);
    let all = vec![spec(target, Protocol::Http1, LoadModel::closed())];
    let mut spec = over_tls(all, Some(&other)).remove(0);
    spec.connect_timeout_ns = 60_000 * MS;
    let begin = Instant::now();
    let error = watched("untrusted", move || run(&spec, &mut |_| {}).unwrap_err());
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(matches!(error, LoadError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("trust"), "{error}");
}

#[test]
fn a_server_without_http2_is_reported() {
    let (config, root) = certificate(&["localhost"], &["http/1.1"]);
    let target = secured(&config, |stream| while read_request(stream) {});
    for protocol in [
        Protocol::Http2 { streams: 2 },
        Protocol::Grpc { streams: 2 },
    ] {
        let all = over_tls(loads_for(target, protocol, &["tls"]), Some(&root));
        for (name, spec, result) in offer_all(&all) {
            let Some(result) = result else {
                assert_eq!(spec.requests_per_connection, None, "{name}");
                continue;
            };
            assert!(result.errors.tls > 0, "{name}: {result:?}");
            only(&result, &name, &["tls"]);
        }
    }
}

/// As [`offer_all`]: once a connection is open, an error of TLS is a request's end. Those whose
/// connections could not be opened are left out.
fn offer_secured(what: &str, all: &[LoadSpec]) -> Vec<(String, LoadResult)> {
    std::thread::scope(|scope| {
        let run = |spec: &LoadSpec| {
            let (name, load) = (format!("{what}: {}", named(spec)), spec.clone());
            let result = match watched(&name, move || run(&load, &mut |_| {})) {
                Err(LoadError::Connect { .. }) => return None,
                result => result.unwrap(),
            };
            books(spec, &result);
            Some((name, result))
        };
        let running: Vec<_> = all.iter().map(|s| scope.spawn(move || run(s))).collect();
        let ended = running.into_iter().filter_map(|r| r.join().unwrap());
        ended.collect()
    })
}

#[test]
fn garbage_after_the_handshake_is_an_error() {
    let (config, root) = certificate(&["localhost"], &["h2", "http/1.1"]);
    let garbage = secured(&config, |stream| {
        read_request(stream);
        let _ = stream
            .sock
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        read_all(&mut stream.sock);
    });
    let encrypted = secured(&config, |stream| {
        read_request(stream);
        let _ = stream.write_all(&[0xfe; 100]);
        read_all(&mut stream.sock);
    });
    let damaged = secured(&config, |stream| {
        read_request(stream);
        // A record of the right form that nobody encrypted.
        let _ = stream.sock.write_all(&[23, 3, 3, 0, 20]);
        let _ = stream.sock.write_all(&[7; 20]);
        read_all(&mut stream.sock);
    });
    for (what, target, kind) in [
        ("garbage", garbage, "tls"),
        ("encrypted", encrypted, "protocol"),
        ("damaged", damaged, "tls"),
    ] {
        for protocol in PROTOCOLS {
            let mut all = over_tls(loads_for(target, protocol, &[]), Some(&root));
            for spec in &mut all {
                // Over HTTP/2 connections break before anything is asked. Those that did so while they
                // were being opened rest for up to a second, and must be tried in the window.
                if matches!(protocol, Protocol::Http2 { .. } | Protocol::Grpc { .. }) {
                    spec.window_ns = 1300 * MS;
                }
            }
            for (name, result) in offer_secured(what, &all) {
                assert_eq!(answered(&result), 0, "{name}: {result:?}");
                assert!(result.errors.total() > 0, "{name}: {result:?}");
                only(&result, &name, &[kind]);
            }
        }
    }
}

#[test]
fn a_body_until_the_close_needs_a_close_notify() {
    let (config, root) = certificate(&["localhost"], &["http/1.1"]);
    for says_so in [true, false] {
        let target = secured(&config, move |stream| {
            read_request(stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsome body");
            if says_so {
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        });
        let all = over_tls(loads_for(target, Protocol::Http1, &[]), Some(&root));
        for (name, result) in offer_secured(&format!("{says_so}"), &all) {
            let (good, bad) = (answered(&result), result.errors.reset);
            let (wanted, other) = if says_so { (good, bad) } else { (bad, good) };
            assert!(wanted > 0 && other == 0, "{name}: {result:?}");
            only(&result, &name, &["reset"]);
        }
    }
}

#[test]
fn tls_records_byte_by_byte_are_accepted() {
    struct Slowly(TcpStream);

    impl Read for Slowly {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Slowly {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(&bytes[..bytes.len().min(1)])
        }

        fn flush(&mut self) -> std::io::Result<()> {
            self.0.flush()
        }
    }

    let (config, root) = certificate(&["localhost"], &["http/1.1"]);
    let target = server(move |_, stream| {
        let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(tls, Slowly(stream));
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            let _ = stream.write_all(GOOD);
        }
    });
    let all = over_tls(loads(target, Protocol::Http1), Some(&root));
    for (name, result) in offer_secured("slowly", &all) {
        assert!(answered(&result) > 0, "{name}: {result:?}");
        assert_eq!(result.errors.total(), 0, "{name}: {result:?}");
    }
}
