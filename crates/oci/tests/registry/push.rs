//! Images that are built here and pushed to a real registry on loopback, and what a registry may do wrong.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use meshtax_oci::{
    BuiltImage, Digest, ImageBuilder, Limits, Progress, PushError, PushOptions, Pushed, Reference,
    pull, unpack,
};

use tempfile::TempDir;

use crate::access::{basic, credentials, encoded};
use crate::faults::{Answer, Request, Server, Upstream};
use crate::{Setup, image_at};

const PROGRAM: &str = "/bin/ls";

fn built() -> BuiltImage {
    ImageBuilder::new(PROGRAM).build().unwrap()
}

fn options(setup: &Setup) -> PushOptions {
    PushOptions {
        plain_http: true,
        retries: setup.options().retries,
        ..PushOptions::default()
    }
}

fn push_to(setup: &Setup, port: u16) -> Result<Pushed, PushError> {
    let image = built();
    meshtax_oci::push(&image, &image_at(port), &options(setup), &mut |_| {})
}

/// The requests that store something: how they begin, and with what.
fn writes(server: &Server) -> Vec<String> {
    let requests = server.requests().into_iter();
    let writes = requests.filter(|request| request.method != "HEAD");
    writes
        .map(|request| {
            let path = request.path.split('?').next().unwrap_or_default();
            let place = path.rsplit_once('/').map_or(path, |(place, _)| place);
            format!("{} {place}", request.method)
        })
        .collect()
}

fn assert_has_fix(error: &PushError) {
    let text = error.to_string();
    assert!(
        text.contains("fix:") && text.contains("localhost"),
        "{text}"
    );
}

#[test]
fn pushed_image_is_pulled_with_the_same_digest_and_program() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    let server = setup.changed(|_, answer| answer);
    let image = built();
    let reference = image_at(server.port);
    let mut reports = Vec::new();
    let mut report = |p: Progress<'_>| reports.push((p.done_bytes, p.total_bytes));
    let pushed = meshtax_oci::push(&image, &reference, &options(&setup), &mut report).unwrap();
    assert_eq!(pushed.reference, reference.with_digest(image.digest));
    assert_eq!(pushed.uploaded_bytes, image.size_bytes());
    assert!(reports.is_sorted() && reports.len() > 2, "{reports:?}");
    let size = image.size_bytes();
    assert_eq!(reports.last(), Some(&(size, size)));

    let by_tag = pull(&reference, &setup.options(), &mut |_| {}).unwrap();
    assert_eq!(by_tag.digest, image.digest);
    assert_eq!(by_tag.config.entrypoint, [meshtax_oci::ENTRYPOINT]);
    let by_digest = pull(&pushed.reference, &setup.options(), &mut |_| {}).unwrap();
    let root = setup.cache().with_file_name("root");
    unpack(&by_digest.layers, &root, &Limits::default()).unwrap();
    let program = fs::read(root.join("meshtax")).unwrap();
    assert!(program == fs::read(PROGRAM).unwrap());
    // Content is sent with its length and not in chunks, which some registries do not take.
    let requests = server.requests();
    let puts = requests.iter().filter(|request| request.method == "PUT");
    for put in puts {
        let length = put.header("Content-Length").map(str::to_owned);
        assert_eq!(length, Some(put.body.len().to_string()));
        assert_eq!(put.header("Transfer-Encoding"), None);
    }
}

#[test]
fn blobs_that_the_registry_has_are_not_sent_again() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    push_to(&setup, setup.registry.port).unwrap();
    let server = setup.changed(|_, answer| answer);
    let pushed = push_to(&setup, server.port).unwrap();
    assert_eq!(pushed.uploaded_bytes, 0);
    assert_eq!(writes(&server), ["PUT /v2/test/image/manifests"]);
    // Another label is another configuration, with the same layer.
    let other = ImageBuilder::new(PROGRAM).with_label("a", "b");
    let other = other.build().unwrap();
    let reference = image_at(server.port);
    let pushed = meshtax_oci::push(&other, &reference, &options(&setup), &mut |_| {}).unwrap();
    assert!(pushed.uploaded_bytes > 0 && pushed.uploaded_bytes < 10_000);
}

#[test]
fn reference_with_the_digest_is_pushed_and_with_another_it_is_rejected() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    let image = built();
    let push = |digest: Digest| {
        let port = setup.registry.port;
        let text = format!("localhost:{port}/test/image@{digest}");
        let reference: Reference = text.parse().unwrap();
        meshtax_oci::push(&image, &reference, &options(&setup), &mut |_| {})
    };
    let pushed = push(image.digest).unwrap();
    let pulled = pull(&pushed.reference, &setup.options(), &mut |_| {}).unwrap();
    assert_eq!(pulled.digest, image.digest);
    let error = push(Digest::of(b"other")).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PushError::OtherDigest { .. }), "{error}");
}

/// A server whose token service gives tokens to a user, for reading or for writing as asked.
fn with_tokens(upstream: Upstream, challenged: &'static str) -> Server {
    Server::start(move |request| {
        if request.path.starts_with("/token?") {
            if request.header("Authorization") != Some(&basic("user:secret")) {
                return Answer::of("401 Unauthorized", "", b"");
            }
            let can_push = request
                .path
                .contains("scope=repository:test/image:pull,push");
            let token = if can_push { "push" } else { "pull" };
            let text = format!(r#"{{"token": "{token}"}}"#);
            return Answer::of("200 OK", "", text.as_bytes());
        }
        if request.header("Authorization") == Some("Bearer push") {
            return upstream.forward(request);
        }
        let host = request.header("Host").unwrap();
        let challenge = format!(
            "WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"test\",scope=\"{challenged}\"\r\n"
        );
        Answer::of("401 Unauthorized", &challenge, b"")
    })
}

/// The options of a user whom the server knows, and the directory of the credentials.
fn logged_in(setup: &Setup, server: &Server) -> (TempDir, PushOptions) {
    let auth = encoded("user:secret");
    let text = format!(
        r#"{{"auths": {{"localhost:{}": {{"auth": "{auth}"}}}}}}"#,
        server.port
    );
    let (directory, credentials) = credentials(&text);
    let options = PushOptions {
        credentials,
        ..options(setup)
    };
    (directory, options)
}

#[test]
fn token_to_push_is_asked_for_once_even_if_a_read_was_challenged() {
    for challenged in [
        "repository:test/image:pull",
        "repository:test/image:pull,push",
    ] {
        let Some(setup) = Setup::new(&[]) else {
            return;
        };
        let server = with_tokens(setup.upstream(), challenged);
        let error = push_to(&setup, server.port).unwrap_err();
        assert_has_fix(&error);
        assert!(matches!(error, PushError::NoToken { .. }), "{error}");
        let (_directory, options) = logged_in(&setup, &server);
        let before = server.requests().len();
        let reference = image_at(server.port);
        meshtax_oci::push(&built(), &reference, &options, &mut |_| {}).unwrap();
        let requests = server.requests();
        let tokens = requests[before..].iter();
        let tokens = tokens.filter(|request| request.path.starts_with("/token"));
        assert_eq!(tokens.count(), 1, "{challenged}");
    }
}

#[test]
fn failed_uploads_are_tried_again_as_long_as_asked_and_given_up() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    let calls = AtomicUsize::new(0);
    let server = setup.changed(move |request, answer| {
        if request.method != "PUT" {
            return answer;
        }
        match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::of("429 Too Many Requests", "Retry-After: 1\r\n", b""),
            1 => Answer(Vec::new()),
            _ => answer,
        }
    });
    let started = Instant::now();
    let pushed = push_to(&setup, server.port).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    let pulled = pull(&pushed.reference, &setup.options(), &mut |_| {}).unwrap();
    assert_eq!(Some(pulled.digest), pushed.reference.digest());

    let failing = Server::start(|request| match &*request.method {
        "HEAD" => Answer::of("404 Not Found", "", b""),
        _ => Answer::of("503 Service Unavailable", "", b""),
    });
    let error = push_to(&setup, failing.port).unwrap_err();
    assert_has_fix(&error);
    assert!(
        matches!(error, PushError::Refused { status: 503, .. }),
        "{error}"
    );
    assert_eq!(writes(&failing).len(), 3);
}

#[test]
fn long_rate_limit_is_an_error_at_once() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    let server =
        Server::start(|_| Answer::of("429 Too Many Requests", "Retry-After: 3600\r\n", b""));
    let error = push_to(&setup, server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(error.to_string().contains("3600 s"), "{error}");
    assert!(matches!(error, PushError::RateLimited { .. }), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn refusals_are_told_apart_and_quote_the_registry() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    let said = br#"{"errors": [{"code": "DENIED", "message": "quota\nexceeded"}]}"#;
    type Expected = fn(&PushError) -> bool;
    let cases: [(&str, Expected); 4] = [
        ("401 Unauthorized", |e| {
            matches!(e, PushError::Denied { status: 401, .. })
        }),
        ("403 Forbidden", |e| {
            matches!(e, PushError::Denied { status: 403, .. })
        }),
        ("404 Not Found", |e| {
            matches!(e, PushError::NoRepository { .. })
        }),
        ("413 Content Too Large", |e| {
            matches!(e, PushError::Refused { status: 413, .. })
        }),
    ];
    for (status, is_expected) in cases {
        let server = Server::start(move |request| match &*request.method {
            "HEAD" => Answer::of("404 Not Found", "", b""),
            _ => Answer::of(status, "", said),
        });
        let error = push_to(&setup, server.port).unwrap_err();
        assert_has_fix(&error);
        assert!(is_expected(&error), "{status}: {error}");
        assert!(error.to_string().contains("DENIED, quota exceeded"));
    }
    let port = Server::start(|_| Answer(Vec::new())).port;
    let error = push_to(&setup, port).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PushError::Unreachable { .. }), "{error}");
}

#[test]
fn registry_that_stores_something_else_is_noticed() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    let other = format!("Docker-Content-Digest: {}\r\n", Digest::of(b"other"));
    let server = setup.changed(move |request, answer| {
        if request.path.contains("/manifests/") {
            return Answer::of("201 Created", &other, b"");
        }
        answer
    });
    let error = push_to(&setup, server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PushError::WrongDigest { .. }), "{error}");
}

/// A server in front of the registry, which sends uploads to `place`.
fn sending_uploads_to(setup: &Setup, place: String) -> Server {
    setup.changed(move |request, answer| {
        if request.method != "POST" {
            return answer;
        }
        Answer::of("202 Accepted", &format!("Location: {place}\r\n"), b"")
    })
}

#[test]
fn upload_at_another_place_is_sent_without_credentials_and_never_in_plain_text() {
    let Some(setup) = Setup::new(&[]) else {
        return;
    };
    let received = std::sync::Arc::new(Mutex::new(Vec::new()));
    let log = received.clone();
    let storage = Server::start(move |request: &Request| {
        log.lock().unwrap().push(request.path.clone());
        assert_eq!(request.header("Authorization"), None);
        Answer::of("201 Created", "", b"")
    });
    let place = format!("http://127.0.0.1:{}/store?state=1", storage.port);
    let front = sending_uploads_to(&setup, place);
    let server = with_tokens(Upstream(front.port), "repository:test/image:pull,push");
    let (_directory, options) = logged_in(&setup, &server);
    meshtax_oci::push(&built(), &image_at(server.port), &options, &mut |_| {}).unwrap();
    let received = received.lock().unwrap();
    assert_eq!(received.len(), 2, "the layer and the configuration");
    assert!(
        received
            .iter()
            .all(|path| path.starts_with("/store?state=1&digest=sha256:"))
    );
    for place in ["http://registry.example/store", "file:///etc/passwd", ""] {
        let front = sending_uploads_to(&setup, place.to_owned());
        let error = push_to(&setup, front.port).unwrap_err();
        let is_own = matches!(
            error,
            PushError::Redirect { .. } | PushError::PlainHttp { .. }
        );
        assert!(
            is_own && error.to_string().contains("fix:"),
            "{place}: {error}"
        );
    }
}
