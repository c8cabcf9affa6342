//! An image in the cache.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::digest::Digest;

/// A layer of an image: an archive of files in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The digest of the blob.
    pub digest: Digest,
    /// Bytes of the blob, compressed.
    pub size_bytes: u64,
    /// The media type in the manifest.
    pub media_type: String,
    /// The blob in the cache.
    pub path: PathBuf,
}

impl Layer {
    /// Whether it holds files. Others are encrypted, or no layers: signatures and attestations are stored as such.
    pub(crate) fn is_supported(&self) -> bool {
        is_archive(&self.media_type)
    }
}

/// Whether a layer of this media type is an archive of files, by the OCI image specification (*Image Layer Filesystem
/// Changeset*) and Docker's *Image Manifest Version 2, Schema 2*.
pub(crate) fn is_archive(media_type: &str) -> bool {
    let oci = [
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
    ];
    let docker = [
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar",
    ];
    let compressions = |separator: char| {
        move |rest: &str| {
            let rest = rest.strip_prefix(separator);
            matches!(rest, Some("gzip" | "zstd"))
        }
    };
    let is = |bases: [&str; 2], compressed: &dyn Fn(&str) -> bool| {
        let rest = bases.iter().find_map(|base| media_type.strip_prefix(base));
        rest.is_some_and(|rest| rest.is_empty() || compressed(rest))
    };
    is(oci, &compressions('+')) || is(docker, &compressions('.'))
}

/// How an image's program is started (OCI image specification, *Image Configuration*).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageConfig {
    /// The words that are always started.
    pub entrypoint: Vec<String>,
    /// The words after the entry point, unless others are given.
    pub command: Vec<String>,
    /// Variables, as `NAME=value`.
    pub environment: Vec<String>,
    /// The user and group, by name or number; empty: root.
    pub user: String,
    /// Labels, such as `org.opencontainers.image.version`.
    pub labels: BTreeMap<String, String>,
    /// When it was built, in RFC 3339; builds that can be repeated have a fixed one.
    pub created: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_archives_of_files_are_layers() {
        for good in [
            "application/vnd.oci.image.layer.v1.tar",
            "application/vnd.oci.image.layer.v1.tar+gzip",
            "application/vnd.oci.image.layer.v1.tar+zstd",
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
            "application/vnd.docker.image.rootfs.diff.tar.zstd",
        ] {
            assert!(is_archive(good), "{good}");
        }
        for bad in [
            "",
            "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
            "application/vnd.oci.image.layer.v1.tar.gzip",
            "application/vnd.docker.image.rootfs.diff.tar+gzip",
            "application/vnd.in-toto+json",
        ] {
            assert!(!is_archive(bad), "{bad}");
        }
    }
}
