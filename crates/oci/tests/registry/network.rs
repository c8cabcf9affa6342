//! Redirects, rate limits, mirrors, proxies and certificates.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use meshtax_oci::{Digest, PullError, PullOptions, Reference, pull};
use tempfile::TempDir;

use crate::access::{token_requests, with_tokens};
use crate::faults::{Answer, Server, Upstream};
use crate::images::{noise, put_image, put_index};
use crate::tls;
use crate::{architecture, assert_has_fix, image_at, setup};

#[test]
fn redirect_is_followed_without_the_token() {
    let setup = setup!(&[noise(1000)]);
    let storage = setup.changed(|_, answer| answer);
    let (upstream, port) = (setup.upstream(), storage.port);
    let front = Server::start(move |request| {
        if request.is_blob() {
            let target = format!("Location: http://127.0.0.1:{port}{}\r\n", request.path);
            Answer::of("307 Temporary Redirect", &target, b"")
        } else {
            upstream.forward(request)
        }
    });
    let front_port = front.port;
    let forward = Upstream(front_port);
    let server = with_tokens(forward, None, |_, _| true);
    setup.pull_from(server.port).unwrap();
    let requests = storage.blob_requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request.header("Authorization").is_none())
    );
}

#[test]
fn endless_or_insecure_redirect_is_rejected() {
    let setup = setup!(&[]);
    for target in [
        "/again",
        "http://registry.example/",
        "file:///etc/passwd",
        "",
    ] {
        let server = Server::start(move |_| {
            Answer::of(
                "307 Temporary Redirect",
                &format!("Location: {target}\r\n"),
                b"",
            )
        });
        let error = setup.pull_from(server.port).unwrap_err();
        let is_own = matches!(
            error,
            PullError::Redirect { .. } | PullError::PlainHttp { .. }
        );
        assert!(
            is_own && error.to_string().contains("fix:"),
            "{target}: {error}"
        );
    }
}

#[test]
fn rate_limit_is_waited_for_as_long_as_asked() {
    let setup = setup!(&[noise(10)]);
    let calls = AtomicUsize::new(0);
    let server = setup.changed(
        move |_, answer| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::of("429 Too Many Requests", "Retry-After: 1\r\n", b""),
            _ => answer,
        },
    );
    let started = Instant::now();
    setup.pull_from(server.port).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn long_rate_limit_is_an_error_at_once() {
    let setup = setup!(&[]);
    let server =
        Server::start(|_| Answer::of("429 Too Many Requests", "Retry-After: 3600\r\n", b""));
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(error.to_string().contains("3600 s"), "{error}");
    assert!(matches!(error, PullError::RateLimited { .. }), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn failing_registry_is_asked_again_and_given_up() {
    let setup = setup!(&[noise(10)]);
    let calls = AtomicUsize::new(0);
    let server = setup.changed(
        move |_, answer| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::of("503 Service Unavailable", "", b""),
            1 => Answer(Vec::new()),
            _ => answer,
        },
    );
    setup.pull_from(server.port).unwrap();
    let server = Server::start(|_| Answer::of("500 Internal Server Error", "", b""));
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(
        matches!(error, PullError::Server { status: 500, .. }),
        "{error}"
    );
    assert_eq!(server.requests().len(), 3);
    let port = server.port;
    drop(server);
    let error = setup.pull_from(port).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PullError::Unreachable { .. }), "{error}");
}

/// A port where packets to connect are dropped, as long as these are kept.
fn silent_port() -> (u16, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The shortest queue, which is never emptied.
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let wait = Duration::from_millis(200);
    let connect = |_| TcpStream::connect_timeout(&address, wait).ok();
    let waiting: Vec<_> = (0..100).map_while(connect).collect();
    assert!(waiting.len() < 100, "the queue is longer than asked for");
    (address.port(), listener, waiting)
}

#[test]
fn registry_where_packets_are_dropped_is_tried_once_and_not_for_long() {
    let setup = setup!(&[]);
    let (port, _listener, _waiting) = silent_port();
    let mut options = setup.options();
    options.retries.connection_wait = Duration::from_millis(500);
    options.retries.first_wait = Duration::from_secs(2);
    let started = Instant::now();
    let reference = format!("127.0.0.1:{port}/test/image:1").parse().unwrap();
    let error = pull(&reference, &options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, PullError::Unreachable { .. }), "{error}");
    let elapsed = started.elapsed();
    let is_once = (Duration::from_millis(500)..Duration::from_secs(2)).contains(&elapsed);
    assert!(is_once, "{elapsed:?}");
}

#[test]
fn mirror_is_asked_first_and_passed_over_if_it_fails() {
    let setup = setup!(&[noise(10)]);
    let registry = setup.changed(|_, answer| answer);
    let broken = setup.changed(|request, answer| {
        if request.is_blob() {
            answer.garbled()
        } else {
            Answer::of("404 Not Found", "", b"")
        }
    });
    let mut options = setup.options();
    let name = format!("localhost:{}", registry.port);
    let mirror = format!("localhost:{}", broken.port);
    options.mirrors.insert(name.clone(), vec![mirror]);
    pull(&image_at(registry.port), &options, &mut |_| {}).unwrap();
    assert!(!broken.requests().is_empty());
    assert!(!registry.requests().is_empty());

    let before = registry.requests().len();
    let good = setup.changed(|_, answer| answer);
    options
        .mirrors
        .insert(name, vec![format!("localhost:{}", good.port)]);
    fs::remove_dir_all(setup.cache()).unwrap();
    pull(&image_at(registry.port), &options, &mut |_| {}).unwrap();
    assert!(!good.requests().is_empty());
    assert_eq!(registry.requests().len(), before);
}

#[test]
fn mirror_with_another_tag_than_recorded_is_passed_over() {
    let setup = setup!(&[noise(10)]);
    let (upstream, older) = (setup.upstream(), setup.digest);
    let own = put_image(&setup.registry, &architecture(), &[noise(20)]);
    let newer = put_index(&setup.registry, &[own]);
    let mirror = Server::start(move |request| {
        let mut request = request.clone();
        let by_digest = format!("/manifests/{older}");
        request.path = request.path.replace("/manifests/1", &by_digest);
        upstream.forward(&request)
    });
    let registry = setup.changed(|_, answer| answer);
    let pull_expecting = |expected: Digest| {
        let mut options = setup.options();
        options.expected = Some(expected);
        let (name, mirror) = (registry.port, mirror.port);
        let mirrors = vec![format!("localhost:{mirror}")];
        options.mirrors.insert(format!("localhost:{name}"), mirrors);
        pull(&image_at(registry.port), &options, &mut |_| {})
    };
    assert_eq!(pull_expecting(older).unwrap().digest, older);
    assert!(registry.requests().is_empty());
    assert_eq!(pull_expecting(newer).unwrap().digest, newer);
    let error = pull_expecting(Digest::of(b"neither")).unwrap_err();
    let is_registrys = matches!(error, PullError::Changed { found, .. } if found == newer);
    assert!(is_registrys, "{error}");
}

#[test]
fn other_hosts_are_asked_through_the_proxy_with_tls() {
    let proxy = Server::start(|_| Answer::of("502 Bad Gateway", "", b""));
    let place = TempDir::new().unwrap();
    let mut options = PullOptions::new(place.path());
    options.proxies.https = Some(format!("http://localhost:{}", proxy.port));
    options.plain_http = true;
    options.retries.tries = 1;
    let reference: Reference = "registry.example/a/b:1".parse().unwrap();
    let error = pull(&reference, &options, &mut |_| {}).unwrap_err();
    // Without certificate authorities no connection is tried.
    if matches!(error, PullError::NoRoots { .. }) {
        return;
    }
    assert!(matches!(error, PullError::Unreachable { .. }), "{error}");
    let requests = proxy.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (&*requests[0].method, &*requests[0].path),
        ("CONNECT", "registry.example:443")
    );
}

/// The port that [`pulls_over_tls`] asks.
const PORT: &str = "MESHTAX_TEST_REGISTRY_PORT";

/// Pulls as another process, whose certificate authorities are those of a file.
fn pull_trusting(pem: &str, port: u16) -> String {
    let place = TempDir::new().unwrap();
    let authorities = place.path().join("authorities.pem");
    fs::write(&authorities, pem).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "network::pulls_over_tls",
            "--ignored",
            "--nocapture",
        ])
        .env("SSL_CERT_FILE", authorities)
        .env_remove("SSL_CERT_DIR")
        .env(PORT, port.to_string())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
#[ignore = "started by certificate_is_verified_against_the_machines_authorities"]
fn pulls_over_tls() {
    let place = TempDir::new().unwrap();
    let mut options = PullOptions::new(place.path());
    options.retries.tries = 1;
    let port = std::env::var(PORT).unwrap().parse().unwrap();
    match pull(&image_at(port), &options, &mut |_| {}) {
        Ok(image) => assert_eq!(image.layers.len(), 1),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn certificate_is_verified_against_the_machines_authorities() {
    let setup = setup!(&[noise(100_000)]);
    let server = setup.changed(|_, answer| answer);
    let identity = tls::Identity::new();
    let port = identity.serve(server.port);
    let output = pull_trusting(&identity.pem, port);
    assert!(output.contains("1 passed"), "{output}");
    assert_eq!(server.blob_requests().len(), 2);
    // Its token service would see credentials in plain text.
    let insecure = with_tokens(setup.upstream(), None, |_, _| true);
    let output = pull_trusting(&identity.pem, identity.serve(insecure.port));
    assert!(output.contains("does not use TLS"), "{output}");
    assert_eq!(token_requests(&insecure), 0);
    let output = pull_trusting(&tls::Identity::new().pem, port);
    assert!(
        output.contains("cannot reach localhost") && output.contains("certificate"),
        "{output}"
    );
    let output = pull_trusting("", port);
    assert!(output.contains("ca-certificates"), "{output}");
    assert_eq!(
        server.blob_requests().len(),
        2,
        "nothing is sent to a server that is not trusted"
    );
}
