//! The layer of an image: an archive that depends on nothing but the files and their modes.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::error::BuildError;
use super::files::{Entry, Files, Source};
use crate::digest::{Digest, Hasher};

/// A layer as it is transferred, and the digest of what it becomes.
pub(super) struct BuiltLayer {
    pub(super) bytes: Vec<u8>,
    /// The digest of the archive before compression (OCI image specification, *Layer DiffID*).
    pub(super) diff_id: Digest,
}

/// Archives and compresses the files.
pub(super) fn build(files: &Files) -> Result<BuiltLayer, BuildError> {
    // The time in gzip's header is zero, and the level is fixed: the same archive becomes the same bytes.
    let gzip = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::new(6));
    let mut archive = Builder::new(Hashed {
        inner: gzip,
        hasher: Hasher::default(),
    });
    for (path, entry) in files.entries() {
        match entry {
            Entry::Directory(mode) => add_directory(&mut archive, path, mode)
                .map_err(|source| failed_in_memory(path, source))?,
            Entry::File(source) => add_file(&mut archive, path, source)?,
        }
    }
    let finished = archive.into_inner().and_then(|hashed| {
        let diff_id = hashed.hasher.digest();
        let bytes = hashed.inner.finish()?;
        Ok(BuiltLayer { bytes, diff_id })
    });
    finished.map_err(|source| failed_in_memory(Path::new("/"), source))
}

/// A header of which nothing comes from the machine: no time, no owner.
pub(super) fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Adds a directory, whose name ends with `/`.
pub(super) fn add_directory<W: Write>(
    archive: &mut Builder<W>,
    path: &Path,
    mode: u32,
) -> io::Result<()> {
    let mut header = header(EntryType::Directory, mode, 0);
    archive.append_data(&mut header, path.join(""), io::empty())
}

fn add_file<W: Write>(
    archive: &mut Builder<W>,
    path: &Path,
    source: &Source,
) -> Result<(), BuildError> {
    let unreadable = |error| BuildError::Read {
        path: source.path.clone(),
        source: error,
    };
    let file = File::open(&source.path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::other("it is not a regular file")));
    }
    let mut header = header(EntryType::Regular, source.mode, metadata.len());
    // What is appended to the file in the meantime is not part of the image.
    let mut content = file.take(metadata.len());
    let added = archive.append_data(&mut header, path, &mut content);
    added.map_err(unreadable)?;
    if content.limit() > 0 {
        return Err(BuildError::Changed {
            path: source.path.clone(),
        });
    }
    Ok(())
}

/// Only paths can fail here: the layer is in memory.
fn failed_in_memory(path: &Path, source: io::Error) -> BuildError {
    BuildError::Read {
        path: path.to_owned(),
        source,
    }
}

/// A writer that takes the digest of what is written.
struct Hashed<W> {
    inner: W,
    hasher: Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
