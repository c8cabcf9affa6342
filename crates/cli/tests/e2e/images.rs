//! Proxies out of container images, laid out like the official ones, from a registry on loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use meshtax_fixtures::registry::Registry;
use meshtax_oci::Digest;
use serde_json::{Value, json};

use crate::outcome::assert_not_excluded;
use crate::support::{
    BINARY, Finished, LINKERD_PROXY, Scratch, ZTUNNEL, alone, beside_others, copy_program, envoy,
    finish, given, is_root, manifest, prepared, until_measured,
};

const NOBODY: u32 = 65534;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A program as its project publishes it.
struct Official {
    repository: &'static str,
    tag: &'static str,
    /// In the image, without the first slash.
    path: &'static str,
}

const ZTUNNEL_IMAGE: Official = Official {
    repository: "istio/ztunnel",
    tag: "1.30.4",
    path: "usr/local/bin/ztunnel",
};
/// Istio's build of Envoy has Envoy's name in it.
const PROXYV2_IMAGE: Official = Official {
    repository: "istio/proxyv2",
    tag: "1.30.4",
    path: "usr/local/bin/envoy",
};
const LINKERD_IMAGE: Official = Official {
    repository: "linkerd/proxy",
    tag: "edge-26.8.2",
    path: "usr/lib/linkerd/linkerd2-proxy",
};

/// Stores an image: a layer with the loader and libraries that the program needs, and one with the program.
fn publish(registry: &Registry, official: &Official, program: &Path) {
    let Official {
        repository, tag, ..
    } = official;
    let put = |media_type: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes).to_string();
        registry.put_blob(repository, &digest, bytes);
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "os": "linux", "architecture": architecture,
        "config": {"Entrypoint": [format!("/{}", official.path)]},
        "rootfs": {"type": "layers", "diff_ids": []},
    });
    let own = vec![(official.path.to_owned(), program.to_owned())];
    let layers = [archive(&libraries(program)), archive(&own)];
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": put("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes()),
        "layers": layers.iter().map(|layer| put(LAYER, layer)).collect::<Vec<_>>(),
    });
    registry.put_manifest(repository, tag, MANIFEST, manifest.to_string().as_bytes());
}

/// What ldd(1) lists, at its own paths.
fn libraries(program: &Path) -> Vec<(String, PathBuf)> {
    let listed = Command::new("ldd").arg(program).output().expect("ldd");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    paths
        .map(|path| (path.trim_start_matches('/').to_owned(), PathBuf::from(path)))
        .collect()
}

fn archive(files: &[(String, PathBuf)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    // As in the official images: the image specification advises against sparse entries, and a copy may have holes.
    archive.sparse(false);
    for (name, path) in files {
        let path = path.canonicalize().expect("a file");
        archive.append_path_with_name(path, name).expect("an entry");
    }
    archive.into_inner().expect("an archive")
}

fn registry() -> Option<Registry> {
    Registry::start(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

/// The binary as an ordinary user, in a new home, with the registry as a mirror of the official ones.
fn as_user(scratch: &Scratch, registry: &Registry, arguments: &[&str]) -> Finished {
    use std::os::unix::process::CommandExt as _;
    let home = scratch.path("home");
    let binary = scratch.path("meshtax");
    if !home.is_dir() {
        fs::create_dir(&home).expect("a home");
        copy_program(Path::new(BINARY), &binary);
        if is_root() {
            for path in [&home, &scratch.path("tmp")] {
                std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("a chown");
            }
        }
    }
    let mut command = prepared(Command::new(binary), scratch, arguments);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let host = format!("127.0.0.1:{}", registry.port);
    command
        .env("HOME", &home)
        .env_remove("XDG_CACHE_HOME")
        .env_remove("XDG_STATE_HOME")
        .env(
            "MESHTAX_MIRRORS",
            format!("docker.io={host},cr.l5d.io={host}"),
        );
    finish(command)
}

#[test]
fn official_images_are_pulled_and_measured_by_the_default_run() {
    let _alone = alone();
    let wanted = "proxies out of images";
    let (Some(ztunnel), Some(linkerd)) = (given(ZTUNNEL, wanted), given(LINKERD_PROXY, wanted))
    else {
        return;
    };
    let Some(registry) = registry() else {
        return;
    };
    publish(&registry, &ZTUNNEL_IMAGE, &ztunnel);
    publish(&registry, &LINKERD_IMAGE, &linkerd);
    let (scratch, finished) = until_measured(
        |scratch| {
            for name in ["ztunnel", "linkerd"] {
                let got = as_user(scratch, &registry, &["dataplanes", "get", name]);
                got.expect_code(0);
                assert!(got.stdout.contains("(image "), "{}", got.stdout);
                assert!(got.stderr.contains(" MB, once)"), "{}", got.stderr);
            }
            let out = scratch.path("home/run");
            let mut arguments = vec!["run", "--time", "75s", "--json", "--offline"];
            arguments.extend(["--out", out.to_str().expect("UTF-8")]);
            let copy = scratch.path("envoy");
            if let Some(envoy) = envoy() {
                copy_program(envoy, &copy);
                arguments.extend(["--envoy", copy.to_str().expect("UTF-8")]);
            }
            as_user(scratch, &registry, &arguments)
        },
        |_, finished| finished.is_measured(),
    );
    let analysis = finished.expect_success_or_busy_cores().json();
    let run = manifest(&scratch.path("home/run"));
    for (id, repository) in [
        ("ztunnel-mtls", "docker.io/istio/ztunnel:"),
        ("linkerd-mtls", "cr.l5d.io/linkerd/proxy:"),
    ] {
        assert_not_excluded(crate::outcome::variant_of(&analysis, id));
        let artifacts = run["environment"]["artifacts"]
            .as_array()
            .expect("artifacts");
        let runs_it = |a: &&Value| {
            a["variants"]
                .as_array()
                .is_some_and(|v| v.contains(&json!(id)))
        };
        let artifact = artifacts.iter().find(runs_it).expect("an artifact");
        let origin = artifact["origin"].as_str().expect("an origin");
        assert!(
            origin.starts_with(&format!("image {repository}")),
            "{origin}"
        );
    }
}

#[test]
fn istios_envoy_is_pulled_under_a_name_of_its_own() {
    let _shared = beside_others();
    let (Some(registry), Some(envoy)) = (registry(), envoy()) else {
        return;
    };
    // Its place in the image is what matters here, not its filters.
    publish(&registry, &PROXYV2_IMAGE, envoy);
    let scratch = Scratch::new();
    for name in ["istio-sidecar", "istio-proxy@1.30.4"] {
        let got = as_user(&scratch, &registry, &["dataplanes", "get", name]);
        got.expect_code(0);
        let origin = "(image docker.io/istio/proxyv2:1.30.4";
        assert!(got.stdout.starts_with("istio-proxy "), "{}", got.stdout);
        assert!(got.stdout.contains(origin), "{}", got.stdout);
    }
}

#[test]
fn tag_that_changed_is_rejected_and_another_image_can_be_named() {
    let _shared = beside_others();
    let Some(ztunnel) = given(ZTUNNEL, "a tag that changed") else {
        return;
    };
    let Some(registry) = registry() else {
        return;
    };
    publish(&registry, &ZTUNNEL_IMAGE, &ztunnel);
    let scratch = Scratch::new();
    as_user(&scratch, &registry, &["dataplanes", "get", "ztunnel"]).expect_code(0);
    // The same tag, with one more byte.
    let other = scratch.path("other");
    copy_program(&ztunnel, &other);
    let mut bytes = fs::read(&other).expect("the copy");
    bytes.push(0);
    fs::write(&other, bytes).expect("the copy");
    publish(&registry, &ZTUNNEL_IMAGE, &other);
    fs::remove_dir_all(scratch.path("home/.cache")).expect("a cache");
    let changed = as_user(&scratch, &registry, &["dataplanes", "get", "ztunnel"]);
    changed.expect_code(11);
    assert!(changed.stderr.contains("fix:"), "{}", changed.stderr);
    let image = format!("127.0.0.1:{}/istio/ztunnel:1.30.4", registry.port);
    let named = ["dataplanes", "get", "ztunnel", "--image", &image];
    as_user(&scratch, &registry, &named).expect_code(0);
    let listed = as_user(&scratch, &registry, &["dataplanes"]);
    assert!(listed.stdout.contains(&image), "{}", listed.stdout);
}

#[test]
fn changed_file_in_the_cache_is_rejected_until_it_is_removed() {
    let _shared = beside_others();
    let Some(ztunnel) = given(ZTUNNEL, "a changed file in the cache") else {
        return;
    };
    let Some(registry) = registry() else {
        return;
    };
    publish(&registry, &ZTUNNEL_IMAGE, &ztunnel);
    let scratch = Scratch::new();
    let get = ["dataplanes", "get", "ztunnel"];
    as_user(&scratch, &registry, &get).expect_code(0);
    let cache = scratch.path("home/.cache/meshtax");
    let entries = fs::read_dir(&cache).expect("a cache").flatten();
    let directory = entries
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|of| of == "image"))
        .expect("the program's directory");
    let program = directory.join("files/ztunnel");
    let mut bytes = fs::read(&program).expect("the program");
    bytes.push(0);
    fs::write(&program, bytes).expect("the program");
    let changed = as_user(&scratch, &registry, &["dataplanes"]);
    changed.expect_code(11);
    let named = directory.to_str().expect("UTF-8");
    assert!(changed.stderr.contains(named), "{}", changed.stderr);
    fs::remove_dir_all(&directory).expect("a directory");
    as_user(&scratch, &registry, &get).expect_code(0);
}

#[test]
fn version_of_the_official_image_is_not_combined_with_another_build() {
    let _shared = beside_others();
    let Some(registry) = registry() else {
        return;
    };
    let scratch = Scratch::new();
    for other in [["--from", "/bin/true"], ["--image", "a/b:c"]] {
        let arguments = ["dataplanes", "get", "ztunnel@1.30.4", other[0], other[1]];
        let rejected = as_user(&scratch, &registry, &arguments);
        rejected.expect_code(2);
        assert!(
            rejected.stderr.contains("`get ztunnel`"),
            "{}",
            rejected.stderr
        );
    }
}

#[test]
fn unreachable_registry_or_missing_version_names_what_to_do() {
    let _shared = beside_others();
    let Some(registry) = registry() else {
        return;
    };
    let scratch = Scratch::new();
    let out = scratch.path("home/run");
    let out = out.to_str().expect("UTF-8");
    for (arguments, expected) in [
        (
            &[
                "dataplanes",
                "get",
                "ztunnel",
                "--image",
                "127.0.0.1:1/a/b:c",
            ][..],
            "127.0.0.1:1",
        ),
        (
            &["dataplanes", "get", "ztunnel", "--image", "not an image"],
            "not an image",
        ),
        (
            &["dataplanes", "get", "ztunnel", "--offline"],
            "--ztunnel PATH",
        ),
        (
            &[
                "dataplanes",
                "get",
                "ztunnel",
                "--offline",
                "--image",
                "a/b:c",
            ],
            "--from PATH",
        ),
        // Before three minutes of measuring one side only.
        (
            &[
                "run",
                "--preset",
                "upgrade",
                "--data-plane",
                "ztunnel",
                "--from",
                "0.0.1",
                "--to",
                "0.0.2",
                "--out",
                out,
            ],
            "ztunnel:0.0.1",
        ),
    ] {
        let failed = as_user(&scratch, &registry, arguments);
        failed.expect_code(11);
        assert!(failed.stderr.contains(expected), "{}", failed.stderr);
        assert!(
            failed.stderr.contains("fix") || expected.starts_with("--"),
            "{}",
            failed.stderr
        );
    }
}
