//! Blobs by their digest: `blobs/sha256/<hex>`, as in an OCI image layout.
//!
//! A blob is written to `partial/<hex>` and renamed when its digest is verified, so that what has a digest as its name
//! is whole. Who downloads holds a lock on the partial file; it is the kernel's, which gives it up when the process
//! ends in whatever way. The file stays then, and the next process continues it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::digest::{Digest, Hasher};
use crate::error::PullError;

/// How often a download of another process is looked at.
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Opens a cache, which is created if it is missing.
    pub(crate) fn open(directory: &Path) -> Result<Self, PullError> {
        for name in ["blobs/sha256", "partial"] {
            let path = directory.join(name);
            fs::create_dir_all(&path).map_err(failed(&path))?;
        }
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Where the blob is or will be.
    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.directory.join("blobs/sha256").join(digest.hex())
    }

    /// The blob, if it is there and undamaged.
    pub(crate) fn verified(&self, digest: &Digest) -> Option<PathBuf> {
        let path = self.path(digest);
        let found = Digest::of_file(&path).ok()?;
        (found == *digest).then_some(path)
    }

    /// Whether a blob of this size is there. It may be damaged.
    pub(crate) fn has(&self, digest: &Digest, size_bytes: u64) -> bool {
        fs::metadata(self.path(digest)).is_ok_and(|metadata| metadata.len() == size_bytes)
    }

    /// The content of a small blob, if it is there and undamaged.
    pub(crate) fn read(&self, digest: &Digest) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path(digest)).ok()?;
        (Digest::of(&bytes) == *digest).then_some(bytes)
    }

    /// Stores a small blob.
    pub(crate) fn write(&self, digest: &Digest, bytes: &[u8]) -> Result<(), PullError> {
        let mut partial = self.lock(digest, &mut || {})?;
        partial.restart()?;
        partial.append(bytes)?;
        partial.keep(&self.path(digest)).map(drop)
    }

    /// Takes the blob's partial file for this process, and waits while another has it. `waiting` is called meanwhile.
    pub(crate) fn lock(
        &self,
        digest: &Digest,
        waiting: &mut dyn FnMut(),
    ) -> Result<Partial, PullError> {
        let path = self.directory.join("partial").join(digest.hex());
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true);
            let file = options.open(&path).map_err(failed(&path))?;
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => break,
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        waiting();
                        thread::sleep(POLL);
                    }
                    Err(e) => return Err(failed(&path)(e.into())),
                }
            }
            // The process that had it may have renamed or removed it: then this is another file.
            if is_at(&file, &path).map_err(failed(&path))? {
                return Partial::of(file, path);
            }
        }
    }
}

/// Whether the open file is the one at the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (open.dev(), open.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> PullError {
    let path = path.to_owned();
    move |source| PullError::Cache {
        path: path.clone(),
        source,
    }
}

/// A blob on its way. No other process writes it.
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
    length: u64,
    hasher: Hasher,
}

impl Partial {
    fn of(mut file: File, path: PathBuf) -> Result<Self, PullError> {
        let mut hasher = Hasher::default();
        let length = hasher.read_all(&mut file).map_err(failed(&path))?;
        Ok(Self {
            file,
            path,
            length,
            hasher,
        })
    }

    /// How many bytes are there.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Starts from the first byte.
    pub(crate) fn restart(&mut self) -> Result<(), PullError> {
        let emptied = self.file.set_len(0);
        let emptied = emptied.and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(failed(&self.path))?;
        self.length = 0;
        self.hasher = Hasher::default();
        Ok(())
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        self.file.write_all(bytes).map_err(failed(&self.path))?;
        self.length += bytes.len() as u64;
        self.hasher.update(bytes);
        Ok(())
    }

    /// The digest of what is there.
    pub(crate) fn digest(&self) -> Digest {
        self.hasher.clone().digest()
    }

    /// Makes it the blob at `to`. The content reaches the disk before the name does.
    pub(crate) fn keep(self, to: &Path) -> Result<PathBuf, PullError> {
        self.file.sync_all().map_err(failed(&self.path))?;
        fs::rename(&self.path, to).map_err(failed(to))?;
        Ok(to.to_owned())
    }

    /// Removes it.
    pub(crate) fn discard(self) -> Result<(), PullError> {
        fs::remove_file(&self.path).map_err(failed(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_is_found_until_it_is_damaged() {
        let directory = tempfile::TempDir::new().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let digest = Digest::of(b"content");
        assert_eq!(cache.verified(&digest), None);
        cache.write(&digest, b"content").unwrap();
        assert_eq!(cache.verified(&digest), Some(cache.path(&digest)));
        fs::write(cache.path(&digest), b"damaged").unwrap();
        assert!(cache.has(&digest, 7));
        assert_eq!(cache.verified(&digest), None);
        assert_eq!(cache.read(&digest), None);
    }

    #[test]
    fn interrupted_blob_is_continued() {
        let directory = tempfile::TempDir::new().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let digest = Digest::of(b"content");
        cache
            .lock(&digest, &mut || {})
            .unwrap()
            .append(b"con")
            .unwrap();
        let mut partial = cache.lock(&digest, &mut || {}).unwrap();
        assert_eq!(partial.length(), 3);
        partial.append(b"tent").unwrap();
        assert_eq!(partial.digest(), digest);
        partial.keep(&cache.path(&digest)).unwrap();
        assert_eq!(cache.read(&digest).unwrap(), b"content");
    }

    #[test]
    fn simultaneous_writers_do_not_damage_a_blob() {
        let directory = tempfile::TempDir::new().unwrap();
        let content = vec![7; 1 << 20];
        let digest = Digest::of(&content);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let cache = Cache::open(directory.path()).unwrap();
                    cache.write(&digest, &content).unwrap();
                    assert!(cache.verified(&digest).is_some());
                });
            }
        });
        assert_eq!(
            fs::read_dir(directory.path().join("partial"))
                .unwrap()
                .count(),
            0
        );
    }
}
