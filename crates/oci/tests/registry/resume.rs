//! Connections that end too early: a download is continued, or begins again.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshtax_oci::{Digest, PullError};

use crate::faults::{Answer, Request, Server, Upstream};
use crate::images::noise;
use crate::{assert_has_fix, setup};

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
