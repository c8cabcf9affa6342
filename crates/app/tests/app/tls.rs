//! The same over TLS, against rustls and h2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use meshtax_app::{AppConfig, Identity, Protocol};
use meshtax_tls::{ClientTls, client_config, self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio_rustls::TlsConnector;

use super::{App, digits, listener, wait_for};

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn https(config: &mut AppConfig) {
    config.listeners = vec![listener(Protocol::Https)];
}

fn anyone(alpn: &[&str]) -> ClientTls {
    ClientTls {
        insecure: true,
        alpn: alpn.iter().map(|p| (*p).to_owned()).collect(),
        ..ClientTls::default()
    }
}

fn connect(app: &App, tls: &ClientTls) -> Stream {
    let name = ServerName::try_from("localhost").unwrap();
    let config = Arc::new(client_config(tls).unwrap());
    let session = ClientConnection::new(config, name).unwrap();
    StreamOwned::new(session, app.connect())
}

/// Sends the bytes and reads to the end, which has to be a farewell.
fn exchange(stream: &mut Stream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

const LAST: &[u8] = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n";

#[test]
fn http1_is_served_with_and_without_alpn() {
    let app = App::start(https);
    for alpn in [&[][..], &["http/1.1"], &["http/1.1", "x"]] {
        let mut stream = connect(&app, &anyone(alpn));
        let answers = exchange(&mut stream, &[b"GET / HTTP/1.1\r\n\r\n", LAST].concat());
        let text = String::from_utf8(answers).unwrap();
        assert_eq!(text.matches("\r\n\r\n01234").count(), 2, "{text}");
        let agreed = stream.conn.alpn_protocol();
        assert_eq!(agreed, alpn.first().map(|p| p.as_bytes()));
    }
}

#[test]
fn the_generated_certificate_has_the_listen_addresses() {
    // Whoever knows the certificate can trust it.
    let (chain_pem, key_pem) = self_signed(&["localhost".to_owned()]).unwrap();
    let trusting = ClientTls {
        roots_pem: Some(chain_pem.clone()),
        ..ClientTls::default()
    };
    let app = App::start(|config| {
        https(config);
        config.identity = Some(Identity { chain_pem, key_pem });
    });
    assert!(!exchange(&mut connect(&app, &trusting), LAST).is_empty());
    let stranger = App::start(https);
    let mut refused = connect(&stranger, &trusting);
    assert!(refused.write_all(LAST).is_err());
    assert!(!exchange(&mut connect(&stranger, &anyone(&[])), LAST).is_empty());
}

#[test]
fn long_bodies_pass_in_both_directions_over_tls() {
    let app = App::start(|config| {
        https(config);
        config.response_bytes = 5_000_000;
    });
    let mut stream = connect(&app, &anyone(&[]));
    let sent = 3_000_000;
    let head = format!("POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: {sent}\r\n\r\n");
    let answer = exchange(&mut stream, &[head.as_bytes(), &vec![0; sent]].concat());
    let head_bytes = answer.len() - 5_000_000;
    assert!(answer[head_bytes..] == digits(5_000_000));
    assert!(answer[..head_bytes].ends_with(b"\r\n\r\n"));
}

#[test]
fn a_slow_reader_gets_the_whole_body() {
    let app = App::start(|config| {
        https(config);
        config.response_bytes = 1_000_000;
    });
    let mut stream = connect(&app, &anyone(&[]));
    stream
        .write_all(&[&b"GET / HTTP/1.1\r\n\r\n".repeat(9)[..], LAST].concat())
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let text = String::from_utf8(all).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 10);
    assert!(text.len() > 10_000_000);
}

#[test]
fn http2_is_negotiated_by_alpn() {
    let app = App::start(|config| {
        https(config);
        config.response_bytes = 300_000;
    });
    wait_for(async {
        let config = Arc::new(client_config(&anyone(&["h2", "http/1.1"])).unwrap());
        let stream = tokio::net::TcpStream::connect(app.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(config).connect(name, stream).await;
        let stream = stream.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        for _ in 0..3 {
            let mut client: super::http2::Client = client.clone().ready().await.unwrap();
            let asked = Request::post("https://localhost/").body(()).unwrap();
            let (answer, mut sender) = client.send_request(asked, false).unwrap();
            sender
                .send_data(Bytes::from(vec![0; 50_000]), true)
                .unwrap();
            let mut body = answer.await.unwrap().into_body();
            let body = super::http2::read(&mut body).await.unwrap();
            assert!(body == digits(300_000));
        }
    });
}

#[test]
fn mutual_tls_requires_a_certificate_of_the_authority() {
    let name = |name: &str| self_signed(&[name.to_owned()]).unwrap();
    let (chain_pem, key_pem) = name("localhost");
    let (client_chain, client_key) = name("client");
    let app = App::start(|config| {
        https(config);
        config.identity = Some(Identity { chain_pem, key_pem });
        config.client_roots_pem = Some(client_chain.clone());
    });
    let mut known = anyone(&["http/1.1"]);
    (known.chain_pem, known.key_pem) = (Some(client_chain), Some(client_key));
    assert!(!exchange(&mut connect(&app, &known), LAST).is_empty());
    for own in [None, Some(name("stranger"))] {
        let mut tls = anyone(&[]);
        (tls.chain_pem, tls.key_pem) = own.unzip();
        let mut refused = connect(&app, &tls);
        // With TLS 1.3 the refusal may come after the client's first bytes.
        let refusal = refused
            .write_all(LAST)
            .and_then(|()| refused.read(&mut [0; 9]));
        assert!(refusal.is_err(), "{refusal:?}");
    }
    assert!(!exchange(&mut connect(&app, &known), LAST).is_empty());
}

#[test]
fn bytes_are_echoed_over_tls() {
    let app = App::start(|config| config.listeners = vec![listener(Protocol::TlsEcho)]);
    let mut stream = connect(&app, &anyone(&[]));
    for bytes in [1, 1000, 100_000] {
        let sent: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; bytes];
        stream.read_exact(&mut back).unwrap();
        assert!(back == sent);
    }
}

#[test]
fn a_close_notify_is_returned() {
    let app = App::start(https);
    let mut stream = connect(&app, &anyone(&[]));
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("01234"), "{text}");
}

#[test]
fn plaintext_on_a_tls_port_ends_that_connection_only() {
    let app = App::start(https);
    let mut good = connect(&app, &anyone(&[]));
    good.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\xff\xff",
        &[0; 70_000],
    ] {
        let mut stream = app.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        // An alert, or a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP"));
    }
    let answer = exchange(&mut good, b"connection: close\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
}
