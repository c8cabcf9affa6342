//! Tokens and credentials.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use meshtax_oci::{Credentials, Digest, PullError, PullOptions, pull};
use tempfile::TempDir;

use crate::faults::{Answer, Request, Server, Upstream};
use crate::images::noise;
use crate::{assert_has_fix, assert_names_an_alternative, image_at, setup};

/// A server that wants a token, of its own token service. `is_valid` says whether the n-th token is still accepted.
pub(crate) fn with_tokens(
    upstream: Upstream,
    user: Option<&'static str>,
    is_valid: impl Fn(usize, &Request) -> bool + Send + Sync + 'static,
) -> Server {
    let given = AtomicUsize::new(0);
    Server::start(move |request| {
        let host = request.header("Host").unwrap();
        if request.path.starts_with("/token?") {
            assert!(
                request.path.contains("scope=repository:test/image:pull"),
                "{}",
                request.path
            );
            if request.header("Authorization").map(str::to_owned) != user.map(basic) {
                return Answer::of("401 Unauthorized", "", b"");
            }
            let n = given.fetch_add(1, Ordering::SeqCst);
            return Answer::of("200 OK", "", format!(r#"{{"token": "t{n}"}}"#).as_bytes());
        }
        let token = request
            .header("Authorization")
            .and_then(|value| value.strip_prefix("Bearer t"));
        match token.and_then(|n| n.parse().ok()) {
            Some(n) if is_valid(n, request) => upstream.forward(request),
            _ => {
                let challenge = format!(
                    "WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"test\",\
                     scope=\"repository:test/image:pull\"\r\n"
                );
                Answer::of("401 Unauthorized", &challenge, b"")
            }
        }
    })
}

pub(crate) fn basic(user: &str) -> String {
    format!("Basic {}", encoded(user))
}

pub(crate) fn encoded(user: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(user)
}

pub(crate) fn token_requests(server: &Server) -> usize {
    let requests = server.requests();
    requests
        .iter()
        .filter(|request| request.path.starts_with("/token"))
        .count()
}

#[test]
fn token_service_is_asked_once_after_401() {
    let setup = setup!(&[noise(10)]);
    let server = with_tokens(setup.upstream(), None, |_, _| true);
    setup.pull_from(server.port).unwrap();
    assert_eq!(token_requests(&server), 1);
}

#[test]
fn expired_token_is_renewed_once() {
    let layer = noise(10);
    let digest = Digest::of(&layer.bytes);
    let setup = setup!(&[layer]);
    let server = with_tokens(setup.upstream(), None, move |n, request| {
        n > 0 || !request.path.ends_with(&digest.hex())
    });
    setup.pull_from(server.port).unwrap();
    assert_eq!(token_requests(&server), 2);
}

#[test]
fn token_that_is_not_accepted_is_renewed_once_and_given_up() {
    let setup = setup!(&[noise(10)]);
    let server = with_tokens(setup.upstream(), None, |_, request| !request.is_blob());
    let error = setup.pull_from(server.port).unwrap_err();
    assert_eq!(
        token_requests(&server),
        2,
        "once at first, and once renewed"
    );
    assert_has_fix(&error);
    assert!(
        matches!(error, PullError::Denied { status: 401, .. }),
        "{error}"
    );
}

#[test]
fn credentials_of_docker_and_podman_are_used() {
    let setup = setup!(&[noise(10)]);
    let server = with_tokens(setup.upstream(), Some("user:secret"), |_, _| true);
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PullError::NoToken { .. }), "{error}");
    assert!(!error.to_string().contains("secret"));
    let auth = encoded("user:secret");
    let text = format!(
        r#"{{"auths": {{"localhost:{}": {{"auth": "{auth}"}}}}}}"#,
        server.port
    );
    let (_directory, credentials) = credentials(&text);
    let options = PullOptions {
        credentials,
        ..setup.options()
    };
    pull(&image_at(server.port), &options, &mut |_| {}).unwrap();
}

#[test]
fn identity_token_is_exchanged_for_a_token() {
    let setup = setup!(&[noise(10)]);
    let upstream = setup.upstream();
    let server = Server::start(move |request| {
        if request.path == "/token" {
            assert_eq!(request.method, "POST");
            assert!(
                request.form().contains("refresh_token=identity"),
                "{}",
                request.form()
            );
            return Answer::of("200 OK", "", br#"{"access_token": "good"}"#);
        }
        if request.header("Authorization") == Some("Bearer good") {
            return upstream.forward(request);
        }
        let host = request.header("Host").unwrap();
        let challenge = format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\"\r\n");
        Answer::of("401 Unauthorized", &challenge, b"")
    });
    let text = format!(
        r#"{{"auths": {{"localhost:{}": {{"identitytoken": "identity"}}}}}}"#,
        server.port
    );
    let (_directory, credentials) = credentials(&text);
    let options = PullOptions {
        credentials,
        ..setup.options()
    };
    pull(&image_at(server.port), &options, &mut |_| {}).unwrap();
}

/// Credentials of a file with this content.
pub(crate) fn credentials(text: &str) -> (TempDir, Credentials) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, text).unwrap();
    let credentials = Credentials::from_files(&[path]).unwrap();
    (directory, credentials)
}

#[test]
fn token_is_preferred_to_a_password_whatever_is_offered_first() {
    let setup = setup!(&[noise(10)]);
    let basic = "WWW-Authenticate: Basic realm=\"x\"";
    for before in [format!("{basic}\r\nWWW-Authenticate:"), format!("{basic},")] {
        let upstream = setup.upstream();
        let server = Server::start(move |request| {
            let host = request.header("Host").unwrap();
            match request.header("Authorization") {
                _ if request.path.starts_with("/token") => {
                    Answer::of("200 OK", "", br#"{"token": "good"}"#)
                }
                Some("Bearer good") => upstream.forward(request),
                _ => {
                    let challenge = format!("{before} Bearer realm=\"http://{host}/token\"\r\n");
                    Answer::of("401 Unauthorized", &challenge, b"")
                }
            }
        });
        setup.pull_from(server.port).unwrap();
        assert_eq!(token_requests(&server), 1);
    }
}

#[test]
fn registry_behind_a_redirect_is_asked_with_its_own_token_and_credentials() {
    let setup = setup!(&[noise(10)]);
    let behind = with_tokens(setup.upstream(), Some("behind:secret"), |_, _| true);
    let port = behind.port;
    let redirecting = Server::start(move |request| {
        let target = format!("Location: http://127.0.0.1:{port}{}\r\n", request.path);
        Answer::of("307 Temporary Redirect", &target, b"")
    });
    let front = with_tokens(Upstream(redirecting.port), Some("front:secret"), |_, _| {
        true
    });
    let text = format!(
        r#"{{"auths": {{"localhost:{}": {{"auth": "{}"}}, "127.0.0.1:{port}": {{"auth": "{}"}}}}}}"#,
        front.port,
        encoded("front:secret"),
        encoded("behind:secret")
    );
    let (_directory, credentials) = credentials(&text);
    let options = PullOptions {
        credentials,
        ..setup.options()
    };
    pull(&image_at(front.port), &options, &mut |_| {}).unwrap();
    assert_eq!((token_requests(&front), token_requests(&behind)), (1, 1));
    let requests = behind.requests();
    assert!(
        requests[0].header("Authorization").is_none(),
        "the token of the registry in front is not for the one behind it"
    );
    // Without credentials for it, its token service says who asked in vain.
    let error = setup.pull_from(redirecting.port).unwrap_err();
    let is_own =
        matches!(&error, PullError::NoToken { service, .. } if service.contains(&port.to_string()));
    assert!(is_own, "{error}");
}

#[test]
fn registry_behind_a_redirect_that_denies_is_named() {
    let setup = setup!(&[]);
    let behind = Server::start(|_| Answer::of("403 Forbidden", "", b""));
    let port = behind.port;
    let front = Server::start(move |request| {
        let target = format!("Location: http://127.0.0.1:{port}{}\r\n", request.path);
        Answer::of("307 Temporary Redirect", &target, b"")
    });
    let error = setup.pull_from(front.port).unwrap_err();
    let login = format!("docker login 127.0.0.1:{port}");
    assert!(error.to_string().contains(&login), "{error}");
}

#[test]
fn denied_image_is_reported_with_how_to_log_in() {
    let setup = setup!(&[]);
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let server = Server::start(move |_| Answer::of(status, "", b""));
        let error = setup.pull_from(server.port).unwrap_err();
        assert!(
            error.to_string().contains("docker login localhost"),
            "{error}"
        );
        assert!(matches!(error, PullError::Denied { .. }), "{error}");
        assert_names_an_alternative(&error);
    }
}
