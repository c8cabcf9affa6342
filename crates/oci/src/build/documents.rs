//! The documents of a built image (OCI image specification, *Image Configuration*, *Image Manifest*, *Image Index*,
//! *Image Layout*), and Docker's list of the images in an archive.
//!
//! They are structures and not free JSON: the order of their fields is part of the digest.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::digest::Digest;
use crate::manifest::Platform;
use crate::reference::Reference;

pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// When every image was built: the real time would make each build another image.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// What content is, how large, and its digest.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Described {
    media_type: &'static str,
    pub(super) digest: Digest,
    size: usize,
}

impl Described {
    pub(super) fn new(media_type: &'static str, bytes: &[u8]) -> Self {
        Self {
            media_type,
            digest: Digest::of(bytes),
            size: bytes.len(),
        }
    }
}

#[derive(Serialize)]
struct Config<'a> {
    created: &'a str,
    architecture: &'a str,
    os: &'a str,
    config: Process<'a>,
    rootfs: RootFs,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Process<'a> {
    entrypoint: [&'a str; 1],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: [Digest; 1],
}

/// The configuration: what is started, without variables, user or time.
pub(super) fn config(
    platform: &Platform,
    entrypoint: &str,
    labels: &BTreeMap<String, String>,
    diff_id: Digest,
) -> Vec<u8> {
    to_json(&Config {
        created: CREATED,
        architecture: &platform.architecture,
        os: &platform.os,
        config: Process {
            entrypoint: [entrypoint],
            labels,
        },
        rootfs: RootFs {
            kind: "layers",
            diff_ids: [diff_id],
        },
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u8,
    media_type: &'static str,
    config: &'a Described,
    layers: [&'a Described; 1],
}

pub(super) fn manifest(config: &Described, layer: &Described) -> Vec<u8> {
    to_json(&Manifest {
        schema_version: 2,
        media_type: MANIFEST,
        config,
        layers: [layer],
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    schema_version: u8,
    media_type: &'static str,
    manifests: [Named<'a>; 1],
}

#[derive(Serialize)]
struct Named<'a> {
    #[serde(flatten)]
    manifest: &'a Described,
    platform: OfPlatform<'a>,
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct OfPlatform<'a> {
    architecture: &'a str,
    os: &'a str,
}

/// The index of an archive: its image, and the name by which containerd and Podman import it.
pub(super) fn index(manifest: &Described, platform: &Platform, name: &Reference) -> Vec<u8> {
    let tag = name.tag().unwrap_or_default().to_owned();
    let annotations = BTreeMap::from([
        ("io.containerd.image.name", name.to_string()),
        ("org.opencontainers.image.ref.name", tag),
    ]);
    let platform = OfPlatform {
        architecture: &platform.architecture,
        os: &platform.os,
    };
    to_json(&Index {
        schema_version: 2,
        media_type: INDEX,
        manifests: [Named {
            manifest,
            platform,
            annotations,
        }],
    })
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: [String; 1],
    layers: [String; 1],
}

/// Docker's `manifest.json`, by which it loads an archive (Docker image specification v1.2).
pub(super) fn docker_list(config: &Described, layer: &Described, name: &Reference) -> Vec<u8> {
    to_json(&[DockerImage {
        config: blob_path(&config.digest),
        repo_tags: [name.to_string()],
        layers: [blob_path(&layer.digest)],
    }])
}

/// The path of a blob in an image layout.
pub(super) fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// The mark of an image layout.
pub(super) const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

fn to_json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("texts and numbers are JSON")
}
