//! What is pulled is what was named, once, and kept.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use meshtax_oci::{
    Digest, LayerFault, Limits, Progress, PullError, PullOptions, Reference, UnpackError, pull,
    resolve, unpack,
};

use crate::faults::{Answer, Server};
use crate::images::{file, gzip, noise, plain, put_image, put_index, zstd};
use crate::{architecture, assert_has_fix, assert_names_an_alternative, image_at, is_layer, setup};

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
fn missing_platform_is_rejected_with_those_that_exist() {
    let setup = setup!(&[]);
    let other = put_image(&setup.registry, "sparc64", &[]);
    put_index(&setup.registry, &[other]);
    let error = setup.pull_from(setup.registry.port).unwrap_err();
    assert_has_fix(&error);
    assert!(error.to_string().contains("linux/sparc64"), "{error}");
    assert_names_an_alternative(&error);
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
    assert_names_an_alternative(&error);
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
        (
            "a layer",
            Limits {
                layer_bytes: 9_999,
                ..Limits::default()
            },
        ),
        (
            "the sum of all layers",
            Limits {
                image_bytes: 10_100,
                ..Limits::default()
            },
        ),
        (
            "the number of layers",
            Limits {
                layers: 0,
                ..Limits::default()
            },
        ),
        (
            "the manifest",
            Limits {
                manifest_bytes: 100,
                ..Limits::default()
            },
        ),
    ];
    for (expected, limits) in limits {
        let options = PullOptions {
            limits,
            ..setup.options()
        };
        let error = pull(&image_at(server.port), &options, &mut |_| {}).unwrap_err();
        let is_own = matches!(&error, PullError::TooLarge { what, .. } if **what == *expected);
        assert!(is_own, "{error}");
        assert!(server.blob_requests().is_empty());
    }
}
