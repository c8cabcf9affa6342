//! Unpacking: the layers of an image become one directory.
//!
//! The format is that of the OCI image specification, *Image Layer Filesystem Changeset*. Owners, times, extended
//! attributes and setuid bits are not restored: what is unpacked is looked at and copied, by the user who runs meshtax.

mod decompress;
mod error;
mod layer;
mod paths;
pub(crate) mod tree;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use rustix::io::Errno;

use crate::digest::Hasher;
use crate::image::Layer;
use crate::limits::Limits;
pub use error::{LayerFault, UnpackError};
use layer::LayerReader;
use tree::Root;

/// Unpacks layers into an empty directory, which is created if it is missing. Each layer's digest is verified while it
/// is read.
///
/// Nothing outside the directory is written, whatever the layers contain. After an error the directory holds a part
/// of the image: remove it.
///
/// # Errors
/// If a layer is damaged, hostile or exceeds a limit; if the directory cannot be written.
pub fn unpack(layers: &[Layer], into: &Path, limits: &Limits) -> Result<(), UnpackError> {
    let mut unpacker = Unpacker::new(into, limits)?;
    layers
        .iter()
        .try_for_each(|layer| unpack_blob(&mut unpacker, layer))
}

fn unpack_blob(unpacker: &mut Unpacker, layer: &Layer) -> Result<(), UnpackError> {
    let name = layer.digest.to_string();
    let named = |fault| UnpackError::Layer {
        layer: name.clone(),
        fault,
    };
    if !layer.is_supported() {
        return Err(named(LayerFault::MediaType {
            media_type: layer.media_type.clone(),
        }));
    }
    let unreadable = |source| {
        named(LayerFault::Read {
            path: layer.path.clone(),
            source,
        })
    };
    let mut reader = Hashed {
        inner: File::open(&layer.path).map_err(unreadable)?,
        hasher: Hasher::default(),
    };
    let unpacked = unpacker.add_layer(&name, layer.size_bytes, &mut reader);
    let Hashed {
        mut inner,
        mut hasher,
    } = reader;
    hasher.read_all(&mut inner).map_err(unreadable)?;
    // A damaged blob explains whatever else went wrong.
    let found = hasher.digest();
    if found != layer.digest {
        return Err(named(LayerFault::WrongDigest { found }));
    }
    unpacked
}

/// A reader that takes the digest of what is read.
struct Hashed {
    inner: File,
    hasher: Hasher,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }
}

/// Unpacks layers one by one, the lowest first. [`unpack`] is this for blobs in a cache.
pub struct Unpacker {
    root: Root,
    limits: Limits,
    left_bytes: u64,
    left_entries: u64,
}

impl Unpacker {
    /// Starts with an empty directory, which is created if it is missing.
    ///
    /// # Errors
    /// If the directory has entries, or cannot be created.
    pub fn new(into: &Path, limits: &Limits) -> Result<Self, UnpackError> {
        let failed = |source| UnpackError::Directory {
            path: into.to_owned(),
            source,
        };
        fs::create_dir_all(into).map_err(failed)?;
        if fs::read_dir(into).map_err(failed)?.next().is_some() {
            return Err(UnpackError::NotEmpty {
                path: into.to_owned(),
            });
        }
        let root = Root::open(into).map_err(|e| failed(e.into()))?;
        match root.directory(Path::new("")) {
            Err(Errno::NOSYS | Errno::PERM) => return Err(UnpackError::NoOpenat2),
            result => result.map_err(|e| failed(e.into()))?,
        };
        Ok(Self {
            root,
            limits: *limits,
            left_bytes: limits.unpacked_bytes,
            left_entries: limits.entries,
        })
    }

    /// Unpacks a layer (an archive: plain, gzip or zstd) over those below it. `name` is for errors, `size_bytes` is
    /// the layer's size as transferred. The layer's digest is the caller's to verify.
    ///
    /// # Errors
    /// If the layer is damaged, hostile or exceeds a limit; if the directory cannot be written.
    pub fn add_layer(
        &mut self,
        name: &str,
        size_bytes: u64,
        reader: impl Read,
    ) -> Result<(), UnpackError> {
        let expansion_bytes = self.limits.unpacked_bytes_of_layer(size_bytes);
        let allowed_bytes = expansion_bytes.min(self.left_bytes);
        let mut layer = LayerReader::new(&self.root, &self.limits, self.left_entries);
        let result = layer.unpack(reader, allowed_bytes);
        self.left_entries = layer.left_entries();
        let named = |fault| UnpackError::Layer {
            layer: name.to_owned(),
            fault,
        };
        match result {
            Ok(unpacked_bytes) => {
                self.left_bytes -= unpacked_bytes;
                Ok(())
            }
            Err(layer::Stopped::Fault(fault)) => Err(named(fault)),
            Err(layer::Stopped::Exceeded) if allowed_bytes < expansion_bytes => {
                Err(named(LayerFault::TooLarge {
                    limit_bytes: self.limits.unpacked_bytes,
                }))
            }
            Err(layer::Stopped::Exceeded) => Err(named(LayerFault::Bomb {
                size_bytes,
                limit_bytes: expansion_bytes,
            })),
        }
    }
}

#[cfg(test)]
mod tests;
