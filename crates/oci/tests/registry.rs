//! Images of a real registry on loopback, and what a registry, a network or an image may do wrong.

#[path = "registry/faults.rs"]
mod faults;
#[path = "registry/images.rs"]
mod images;
#[path = "registry/push.rs"]
mod push;
#[path = "registry/tls.rs"]
mod tls;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use meshtax_oci::{
    Credentials, Digest, Image, LayerFault, Limits, Progress, PullError, PullOptions, Reference,
    Retries, UnpackError, extract_program, pull, resolve, unpack,
};
use tar::EntryType;
use tempfile::TempDir;

use faults::{Answer, Request, Server, Upstream};
use images::{
    Blob, entry, file, files_of_this_machine, gzip, noise, plain, put_image, put_index, zstd,
};
use meshtax_fixtures::registry::Registry;

/// Go's name of this machine's processor.
fn architecture() -> String {
    meshtax_oci::Platform::of_this_machine().architecture
}

/// A registry with one image, and an empty cache.
struct Setup {
    registry: Registry,
    digest: Digest,
    place: TempDir,
}

impl Setup {
    fn new(layers: &[Blob]) -> Option<Self> {
        let registry = Registry::start(Path::new(env!("CARGO_TARGET_TMPDIR")))?;
        let own = put_image(&registry, &architecture(), layers);
        let digest = put_index(&registry, &[own]);
        Some(Self {
            registry,
            digest,
            place: TempDir::new().unwrap(),
        })
    }

    fn cache(&self) -> PathBuf {
        self.place.path().join("cache")
    }

    fn options(&self) -> PullOptions {
        PullOptions {
            plain_http: true,
            retries: Retries {
                tries: 3,
                first_wait: Duration::from_millis(10),
                longest_wait: Duration::from_secs(2),
            },
            ..PullOptions::new(self.cache())
        }
    }

    fn upstream(&self) -> Upstream {
        Upstream(self.registry.port)
    }

    /// A server that answers as the registry does, changed by `change`.
    fn changed(
        &self,
        change: impl Fn(&Request, Answer) -> Answer + Send + Sync + 'static,
    ) -> Server {
        let upstream = self.upstream();
        Server::start(move |request| change(request, upstream.forward(request)))
    }

    fn pull_from(&self, port: u16) -> Result<Image, PullError> {
        pull(&image_at(port), &self.options(), &mut |_| {})
    }

    /// Nothing is written beside the cache.
    fn assert_only_the_cache(&self) {
        for entry in fs::read_dir(&self.place).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(name == "cache" || name == "root", "{name:?}");
        }
    }
}

fn image_at(port: u16) -> Reference {
    format!("localhost:{port}/test/image:1").parse().unwrap()
}

/// A registry with the image, or the end of the test: why was said.
macro_rules! setup {
    ($layers:expr) => {
        match Setup::new($layers) {
            Some(setup) => setup,
            None => return,
        }
    };
}

fn is_layer(request: &Request, layer: &Blob) -> bool {
    request.path.ends_with(&Digest::of(&layer.bytes).hex())
}

fn assert_has_fix(error: &PullError) {
    let text = error.to_string();
    assert!(
        text.contains("fix:") && text.contains("localhost"),
        "{text}"
    );
}

#[test]
fn good_image_is_pulled_unpacked_and_cached() {
    let layers = [
        gzip(&[file("etc/a", b"1"), file("etc/b", b"1")]),
        zstd(&[file("etc/a", b"2"), file("etc/.wh.b", b"")]),
        plain(&[file("c", b"3")]),
    ];
    let setup = setup!(&layers);
    let own = put_image(&setup.registry, &architecture(), &layers);
    let other = put_image(&setup.registry, "sparc64", &[gzip(&[file("other", b"")])]);
    let digest = put_index(&setup.registry, &[other, own.clone()]);
    let server = setup.changed(|_, answer| answer);
    let reference = image_at(server.port);

    let resolved = resolve(&reference, &setup.options()).unwrap();
    assert_eq!(resolved.digest, digest);
    assert_eq!(resolved.manifest_digest.to_string(), own["digest"]);
    let layer_bytes: u64 = layers.iter().map(|layer| layer.bytes.len() as u64).sum();
    assert_eq!(resolved.missing_bytes, layer_bytes);
    assert_eq!(server.blob_requests().len(), 1, "only the configuration");

    let mut reports = Vec::new();
    let mut report = |p: Progress<'_>| reports.push((p.done_bytes, p.total_bytes));
    let image = resolved.download(&setup.options(), &mut report).unwrap();
    assert!(reports.is_sorted());
    assert_eq!(reports.last(), Some(&(image.size_bytes, image.size_bytes)));
    assert_eq!(image.config.entrypoint, ["/bin/ls"]);
    assert_eq!(image.config.environment, ["A=b"]);
    assert_eq!(image.config.user, "1337");
    assert_eq!(image.config.labels["version"], "1");
    assert_eq!(
        image.config.created.as_deref(),
        Some("2026-01-02T03:04:05Z")
    );

    let root = setup.place.path().join("root");
    unpack(&image.layers, &root, &Limits::default()).unwrap();
    assert_eq!(fs::read(root.join("etc/a")).unwrap(), b"2");
    assert_eq!(fs::read(root.join("c")).unwrap(), b"3");
    assert!(!root.join("etc/b").exists());

    let before = server.blob_requests().len();
    let again = setup.pull_from(server.port).unwrap();
    assert_eq!(again.layers, image.layers);
    assert_eq!(server.blob_requests().len(), before, "everything is cached");
    let resolved = resolve(&reference, &setup.options()).unwrap();
    assert_eq!(resolved.missing_bytes, 0);
}

#[test]
fn image_of_a_digest_is_taken_from_the_cache_without_the_registry() {
    let setup = setup!(&[gzip(&[file("a", b"1")])]);
    let port = setup.registry.port;
    let pinned: Reference = format!("localhost:{port}/test/image@{}", setup.digest)
        .parse()
        .unwrap();
    let first = pull(&pinned, &setup.options(), &mut |_| {}).unwrap();
    let (options, place) = (setup.options(), setup.place);
    drop(setup.registry);
    let second = pull(&pinned, &options, &mut |_| {}).unwrap();
    assert_eq!(first.layers, second.layers);
    drop(place);
}

#[test]
fn wrong_digest_is_rejected() {
    let layer = noise(10_000);
    let digest = Digest::of(&layer.bytes);
    let setup = setup!(&[layer]);
    let server = setup.changed(move |request, answer| {
        if request.path.ends_with(&digest.hex()) {
            answer.garbled()
        } else {
            answer
        }
    });
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    let is_wrong = matches!(error, PullError::WrongDigest { expected, .. } if expected == digest);
    assert!(is_wrong, "{error}");
    let left = fs::read_dir(setup.cache().join("partial")).unwrap().count();
    assert_eq!(left, 0, "wrong content is not kept");
}

#[test]
fn wrong_manifest_is_rejected() {
    let setup = setup!(&[noise(10)]);
    // White space at the end changes nothing but the digest.
    let server = setup.changed(|request, answer| {
        if request.path.contains("/manifests/sha256:") {
            Answer::of("200 OK", "", &[answer.body(), b" "].concat())
        } else {
            answer
        }
    });
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PullError::WrongDigest { .. }), "{error}");
}

#[test]
fn page_instead_of_a_manifest_is_rejected() {
    let setup = setup!(&[]);
    let server = Server::start(|_| Answer::of("200 OK", "", b"<html>log in</html>"));
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PullError::Malformed { .. }), "{error}");
}

#[test]
fn truncated_layer_is_reported_with_the_bytes_that_came() {
    let layer = noise(10_000);
    let digest = Digest::of(&layer.bytes);
    let whole = layer.bytes.clone();
    let setup = setup!(&[layer]);
    let server = setup.changed(move |request, answer| {
        if request.path.ends_with(&digest.hex()) {
            // A registry that has lost the end of the blob, and says that this is all.
            let from = if request.header("Range").is_some() {
                4000
            } else {
                0
            };
            let headers = format!("Content-Range: bytes {from}-3999/4000\r\n");
            let status = if from > 0 {
                "206 Partial Content"
            } else {
                "200 OK"
            };
            Answer::of(status, &headers, &whole[from..4000])
        } else {
            answer
        }
    });
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(
        matches!(
            error,
            PullError::Cut {
                received_bytes: 4000,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn blob_longer_than_its_size_is_rejected() {
    let layer = noise(1000);
    let digest = Digest::of(&layer.bytes);
    let setup = setup!(&[layer]);
    let server = setup.changed(move |request, answer| {
        if request.path.ends_with(&digest.hex()) {
            Answer::of("200 OK", "", &[answer.body(), b"more"].concat())
        } else {
            answer
        }
    });
    let error = setup.pull_from(server.port).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PullError::WrongSize { .. }), "{error}");
}

#[test]
fn cut_connection_resumes_where_it_ended() {
    let layer = noise(100_000);
    let (digest, size) = (Digest::of(&layer.bytes), layer.bytes.len());
    let setup = setup!(&[layer]);
    let sent = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let server = setup.changed(move |request, answer| {
        if !request.path.ends_with(&digest.hex()) {
            return answer;
        }
        // Each answer ends after 40,000 bytes, until the last part fits.
        let length = answer.body().len().min(40_000);
        counter.fetch_add(length, Ordering::SeqCst);
        answer.cut(length)
    });
    let image = setup.pull_from(server.port).unwrap();
    assert_eq!(Digest::of_file(&image.layers[0].path).unwrap(), digest);
    let requests = server.blob_requests();
    let ranges: Vec<_> = requests.iter().skip(1).map(|r| r.header("Range")).collect();
    let last = size - 1;
    let expected = [
        None,
        Some(format!("bytes=40000-{last}")),
        Some(format!("bytes=80000-{last}")),
    ];
    assert_eq!(ranges, expected.each_ref().map(Option::as_deref));
    assert_eq!(
        sent.load(Ordering::SeqCst),
        size,
        "no byte is downloaded twice"
    );
}

#[test]
fn interrupted_run_is_continued_by_the_next() {
    let layer = noise(100_000);
    let (digest, size) = (Digest::of(&layer.bytes), layer.bytes.len());
    let setup = setup!(&[layer]);
    let gone = setup.changed(move |request, answer| {
        let is_first = request.header("Range").is_none();
        match request.path.ends_with(&digest.hex()) {
            true if is_first => answer.cut(60_000),
            true => Answer(Vec::new()),
            false => answer,
        }
    });
    let error = setup.pull_from(gone.port).unwrap_err();
    assert_has_fix(&error);
    let server = setup.changed(|_, answer| answer);
    setup.pull_from(server.port).unwrap();
    let range = server.blob_requests()[0].header("Range").map(str::to_owned);
    assert_eq!(range, Some(format!("bytes=60000-{}", size - 1)));
}

#[test]
fn damaged_first_part_is_downloaded_again() {
    let layer = noise(100_000);
    let digest = Digest::of(&layer.bytes);
    let setup = setup!(&[layer]);
    let partial = setup.cache().join("partial");
    fs::create_dir_all(&partial).unwrap();
    fs::write(partial.join(digest.hex()), b"not the first bytes").unwrap();
    let image = setup.pull_from(setup.registry.port).unwrap();
    assert_eq!(Digest::of_file(&image.layers[0].path).unwrap(), digest);
}

#[test]
fn registry_without_ranges_starts_over() {
    let layer = noise(100_000);
    let digest = Digest::of(&layer.bytes);
    for refusal in [
        "ignored",
        "416 Range Not Satisfiable",
        "206 Partial Content",
    ] {
        let setup = setup!(&[noise(100_000)]);
        let upstream = setup.upstream();
        let calls = AtomicUsize::new(0);
        let server = Server::start(move |request| {
            if !request.path.ends_with(&digest.hex()) {
                return upstream.forward(request);
            }
            if request.header("Range").is_some() && refusal != "ignored" {
                return Answer::of(refusal, "Content-Range: bytes 0-9/10\r\n", b"0123456789");
            }
            let whole = Answer::of("200 OK", "", &whole_body(upstream, request));
            match calls.fetch_add(1, Ordering::SeqCst) {
                0 => whole.cut(50_000),
                _ => whole,
            }
        });
        let image = setup.pull_from(server.port).unwrap();
        assert_eq!(
            Digest::of_file(&image.layers[0].path).unwrap(),
            digest,
            "{refusal}"
        );
    }
}

/// A blob, whatever range the request has.
fn whole_body(upstream: Upstream, request: &Request) -> Vec<u8> {
    let answer = upstream.forward(&request.without("Range"));
    answer.body().to_vec()
}

#[test]
fn registry_that_always_cuts_at_the_same_byte_is_given_up() {
    let layer = noise(100_000);
    let digest = Digest::of(&layer.bytes);
    let setup = setup!(&[layer]);
    let upstream = setup.upstream();
    let server = Server::start(move |request| {
        if request.path.ends_with(&digest.hex()) {
            Answer::of("200 OK", "", &whole_body(upstream, request)).cut(50_000)
        } else {
            upstream.forward(request)
        }
    });
    let error = setup.pull_from(server.port).unwrap_err();
    assert!(
        matches!(
            error,
            PullError::Cut {
                received_bytes: 50_000,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn missing_platform_is_rejected_with_those_that_exist() {
    let setup = setup!(&[]);
    let other = put_image(&setup.registry, "sparc64", &[]);
    put_index(&setup.registry, &[other]);
    let error = setup.pull_from(setup.registry.port).unwrap_err();
    assert_has_fix(&error);
    assert!(error.to_string().contains("linux/sparc64"), "{error}");
    assert!(matches!(error, PullError::NoPlatform { .. }), "{error}");
}

#[test]
fn image_without_an_index_is_pulled_unless_it_is_for_another_platform() {
    let setup = setup!(&[]);
    let port = setup.registry.port;
    let pull_alone = |manifest: &serde_json::Value| {
        let digest = manifest["digest"].as_str().unwrap();
        let reference: Reference = format!("localhost:{port}/test/image@{digest}")
            .parse()
            .unwrap();
        pull(&reference, &setup.options(), &mut |_| {})
    };
    let own = put_image(&setup.registry, &architecture(), &[gzip(&[file("a", b"")])]);
    let image = pull_alone(&own).unwrap();
    assert_eq!(image.digest, image.manifest_digest);
    let other = put_image(&setup.registry, "sparc64", &[]);
    let error = pull_alone(&other).unwrap_err();
    assert!(matches!(error, PullError::NoPlatform { .. }), "{error}");
}

#[test]
fn missing_image_is_reported_by_its_name() {
    let setup = setup!(&[]);
    let reference: Reference = format!("localhost:{}/test/image:none", setup.registry.port)
        .parse()
        .unwrap();
    let error = pull(&reference, &setup.options(), &mut |_| {}).unwrap_err();
    assert_has_fix(&error);
    assert!(matches!(error, PullError::NotFound { .. }), "{error}");
}

#[test]
fn manifest_that_is_cut_is_asked_for_again() {
    let setup = setup!(&[noise(10)]);
    let calls = AtomicUsize::new(0);
    let server = setup.changed(
        move |_, answer| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => answer.cut(20),
            _ => answer,
        },
    );
    setup.pull_from(server.port).unwrap();
}

#[test]
fn changed_tag_is_rejected() {
    let setup = setup!(&[gzip(&[file("a", b"1")])]);
    let options = PullOptions {
        expected: Some(setup.digest),
        ..setup.options()
    };
    let reference = image_at(setup.registry.port);
    pull(&reference, &options, &mut |_| {}).unwrap();
    let other = put_image(
        &setup.registry,
        &architecture(),
        &[gzip(&[file("a", b"2")])],
    );
    let now = put_index(&setup.registry, &[other]);
    let error = pull(&reference, &options, &mut |_| {}).unwrap_err();
    assert_has_fix(&error);
    assert!(
        matches!(error, PullError::Changed { found, .. } if found == now),
        "{error}"
    );
}

/// A server that wants a token, of its own token service. `is_valid` says whether the n-th token is still accepted.
fn with_tokens(
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

fn basic(user: &str) -> String {
    format!("Basic {}", encoded(user))
}

fn encoded(user: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(user)
}

fn token_requests(server: &Server) -> usize {
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
fn credentials(text: &str) -> (TempDir, Credentials) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, text).unwrap();
    let credentials = Credentials::from_files(&[path]).unwrap();
    (directory, credentials)
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
    }
}

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
        .args(["--exact", "pulls_over_tls", "--ignored", "--nocapture"])
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

#[test]
fn simultaneous_pulls_download_each_blob_once() {
    let layers = [noise(200_000), gzip(&[file("a", b"1")])];
    let setup = setup!(&layers);
    let server = setup.changed(|request, answer| {
        if request.is_blob() {
            std::thread::sleep(Duration::from_millis(200));
        }
        answer
    });
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| setup.pull_from(server.port)))
            .collect();
        for pull in pulls {
            let image = pull.join().unwrap().unwrap();
            assert_eq!(
                Digest::of_file(&image.layers[0].path).unwrap(),
                image.layers[0].digest
            );
        }
    });
    let mut paths: Vec<_> = server.blob_requests().into_iter().map(|r| r.path).collect();
    paths.sort();
    let distinct: BTreeSet<_> = paths.iter().cloned().collect();
    assert_eq!(paths, distinct.into_iter().collect::<Vec<_>>());
    assert_eq!(
        fs::read_dir(setup.cache().join("partial")).unwrap().count(),
        0
    );
}

#[test]
fn damaged_blob_is_noticed_and_downloaded_again() {
    let layer = gzip(&[file("a", b"1")]);
    let setup = setup!(std::slice::from_ref(&layer));
    let server = setup.changed(|_, answer| answer);
    let image = setup.pull_from(server.port).unwrap();
    fs::write(&image.layers[0].path, b"damaged").unwrap();
    let root = setup.place.path().join("root");
    let error = unpack(&image.layers, &root, &Limits::default()).unwrap_err();
    let is_told = matches!(
        error,
        UnpackError::Layer {
            fault: LayerFault::WrongDigest { .. },
            ..
        }
    );
    assert!(is_told, "{error}");
    let image = setup.pull_from(server.port).unwrap();
    assert_eq!(fs::read(&image.layers[0].path).unwrap(), layer.bytes);
    let asked = server.blob_requests();
    assert_eq!(
        asked
            .iter()
            .filter(|request| is_layer(request, &layer))
            .count(),
        2
    );
}

#[test]
fn image_above_a_limit_is_rejected_before_its_layers_are_downloaded() {
    let layer = noise(10_000);
    let setup = setup!(&[layer]);
    let server = setup.changed(|_, answer| answer);
    let limits = [
        Limits {
            layer_bytes: 9_999,
            ..Limits::default()
        },
        Limits {
            layers: 0,
            ..Limits::default()
        },
        Limits {
            manifest_bytes: 100,
            ..Limits::default()
        },
    ];
    for limits in limits {
        let options = PullOptions {
            limits,
            ..setup.options()
        };
        let error = pull(&image_at(server.port), &options, &mut |_| {}).unwrap_err();
        assert!(matches!(error, PullError::TooLarge { .. }), "{error}");
        assert!(server.blob_requests().is_empty());
    }
}

#[test]
fn hostile_layers_are_rejected_and_nothing_is_written_outside() {
    let bomb = vec![0; 80 << 20];
    type Expected = fn(&LayerFault) -> bool;
    let cases: [(&str, Vec<Vec<u8>>, Expected); 8] = [
        ("../", vec![file("../evil", b"")], |f| {
            matches!(f, LayerFault::PathEscapes { .. })
        }),
        (
            "symlink",
            vec![entry(EntryType::Symlink, "a", "../../evil", b"")],
            |f| matches!(f, LayerFault::SymlinkEscapes { .. }),
        ),
        (
            "through a symlink",
            vec![
                entry(EntryType::Symlink, "a", "/tmp", b""),
                file("a/evil", b""),
            ],
            |f| matches!(f, LayerFault::NotADirectory { .. }),
        ),
        (
            "hard link",
            vec![entry(EntryType::Link, "a", "../cache/blobs", b"")],
            |f| matches!(f, LayerFault::HardLinkEscapes { .. }),
        ),
        (
            "hard link to the machine's file",
            vec![entry(EntryType::Link, "a", "/etc/passwd", b"")],
            |f| matches!(f, LayerFault::HardLinkDangles { .. }),
        ),
        ("whiteout", vec![file(".wh...", b"")], |f| {
            matches!(f, LayerFault::InvalidWhiteout { .. })
        }),
        (
            "device",
            vec![entry(EntryType::Char, "dev/null", "", b"")],
            |f| matches!(f, LayerFault::SpecialFile { .. }),
        ),
        ("bomb", vec![file("zeros", &bomb)], |f| {
            matches!(f, LayerFault::Bomb { .. })
        }),
    ];
    for (name, entries, is_expected) in cases {
        let setup = setup!(&[gzip(&entries)]);
        let image = setup.pull_from(setup.registry.port).unwrap();
        let root = setup.place.path().join("root");
        let error = unpack(&image.layers, &root, &Limits::default()).unwrap_err();
        assert!(error.to_string().contains("fix:"), "{error}");
        match &error {
            UnpackError::Layer { layer, fault } if is_expected(fault) => {
                assert_eq!(*layer, image.layers[0].digest.to_string());
            }
            other => panic!("{name}: {other}"),
        }
        setup.assert_only_the_cache();
    }
    let setup = setup!(&[gzip(&[file("/absolute/path", b"1")])]);
    let image = setup.pull_from(setup.registry.port).unwrap();
    let root = setup.place.path().join("root");
    unpack(&image.layers, &root, &Limits::default()).unwrap();
    assert_eq!(fs::read(root.join("absolute/path")).unwrap(), b"1");
    assert!(!Path::new("/absolute").exists());
    setup.assert_only_the_cache();
}

#[test]
fn program_of_an_image_runs_with_its_own_loader_and_libraries() {
    let listed = Command::new("ldd").arg("/bin/ls").output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let mut paths: Vec<&str> = listed
        .split_whitespace()
        .filter(|w| w.starts_with('/'))
        .collect();
    paths.push("/bin/ls");
    let setup = setup!(&[files_of_this_machine(&paths)]);
    let image = setup.pull_from(setup.registry.port).unwrap();
    let root = setup.place.path().join("root");
    unpack(&image.layers, &root, &Limits::default()).unwrap();
    let into = TempDir::new().unwrap();
    let path = Path::new(&image.config.entrypoint[0]);
    let program = extract_program(&root, path, into.path()).unwrap();
    assert!(program.loader.is_some());
    let words = program.command();
    let output = loop {
        let mut command = Command::new(&words[0]);
        match command.args(&words[1..]).arg(&root).output() {
            // Another test's child has the descriptor by which this process wrote the file, for a moment.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy => {}
            output => break output.unwrap(),
        }
    };
    assert!(output.status.success(), "{output:?}");
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.lines().any(|line| line == "bin"), "{listed}");
}
