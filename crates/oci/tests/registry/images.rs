//! Images that the tests make.

use std::io::Write as _;
use std::path::Path;

use meshtax_oci::Digest;
use serde_json::{Value, json};
use tar::{EntryType, Header};

use meshtax_fixtures::registry::Registry;

pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Where the tests keep their images.
const REPOSITORY: &str = "test/image";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// An entry of an archive, written as it is, however hostile.
pub(crate) fn entry(kind: EntryType, name: &str, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    let mut bytes = [header.as_bytes().as_slice(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

pub(crate) fn file(name: &str, content: &[u8]) -> Vec<u8> {
    entry(EntryType::Regular, name, "", content)
}

/// The bytes of a layer, and what it is compressed with.
pub(crate) struct Blob {
    media_type: &'static str,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn plain(entries: &[Vec<u8>]) -> Blob {
    Blob {
        media_type: "application/vnd.oci.image.layer.v1.tar",
        bytes: [entries.concat(), vec![0; 1024]].concat(),
    }
}

pub(crate) fn gzip(entries: &[Vec<u8>]) -> Blob {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&plain(entries).bytes).unwrap();
    Blob {
        media_type: "application/vnd.oci.image.layer.v1.tar+gzip",
        bytes: encoder.finish().unwrap(),
    }
}

pub(crate) fn zstd(entries: &[Vec<u8>]) -> Blob {
    Blob {
        media_type: "application/vnd.oci.image.layer.v1.tar+zstd",
        bytes: zstd::encode_all(&plain(entries).bytes[..], 3).unwrap(),
    }
}

/// A layer that does not compress.
pub(crate) fn noise(length: usize) -> Blob {
    let mut state = 1_u32;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    plain(&[file("noise", &bytes.take(length).collect::<Vec<_>>())])
}

/// A layer with files of this machine at their own paths.
pub(crate) fn files_of_this_machine(paths: &[&str]) -> Blob {
    let entries: Vec<_> = paths
        .iter()
        .map(|path| {
            let name = Path::new(path).strip_prefix("/").unwrap();
            file(name.to_str().unwrap(), &std::fs::read(path).unwrap())
        })
        .collect();
    gzip(&entries)
}

/// Stores an image, and returns the descriptor of its manifest.
pub(crate) fn put_image(registry: &Registry, architecture: &str, layers: &[Blob]) -> Value {
    let config = json!({
        "os": "linux",
        "architecture": architecture,
        "created": "2026-01-02T03:04:05Z",
        "config": {
            "Entrypoint": ["/bin/ls"], "Env": ["A=b"], "User": "1337",
            "Labels": {"version": "1"},
        },
        "rootfs": {"type": "layers", "diff_ids": []},
    });
    let put = |media_type: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes).to_string();
        registry.put_blob(REPOSITORY, &digest, bytes);
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": put(CONFIG, config.to_string().as_bytes()),
        "layers": layers.iter().map(|layer| put(layer.media_type, &layer.bytes)).collect::<Vec<_>>(),
    });
    let bytes = manifest.to_string().into_bytes();
    let digest = Digest::of(&bytes).to_string();
    registry.put_manifest(REPOSITORY, &digest, MANIFEST, &bytes);
    json!({
        "mediaType": MANIFEST, "digest": digest, "size": bytes.len(),
        "platform": {"os": "linux", "architecture": architecture},
    })
}

/// Stores an index as `test/image:1`, and returns its digest.
pub(crate) fn put_index(registry: &Registry, manifests: &[Value]) -> Digest {
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    let bytes = index.to_string().into_bytes();
    registry.put_manifest(REPOSITORY, "1", INDEX, &bytes);
    Digest::of(&bytes)
}
