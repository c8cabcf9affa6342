//! One layer: an archive of additions, changes and whiteouts.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::io::Errno;
use tar::{Archive, Entry, EntryType, PaxExtensions};

use super::decompress::{Decompressor, Metered};
use super::error::LayerFault;
use super::paths::Paths;
use super::tree::{self, Root};
use crate::limits::Limits;

/// Bytes of an extended header. Paths fit into it many times, so that only attributes that nobody reads are longer.
const EXTENSION_BYTES: u64 = 1 << 20;

/// A whiteout of the name that follows (OCI image specification, *Whiteouts*).
const WHITEOUT: &[u8] = b".wh.";

/// In a directory, it hides everything that lower layers have there (*Opaque Whiteout*).
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Other names that start with this are the bookkeeping of a storage driver, which runtimes skip.
const BOOKKEEPING: &[u8] = b".wh..wh.";

/// Why a layer is not unpacked to its end.
pub(super) enum Stopped {
    /// Something is wrong with it.
    Fault(LayerFault),
    /// It is larger than it may be.
    Exceeded,
}

impl From<LayerFault> for Stopped {
    fn from(fault: LayerFault) -> Self {
        Self::Fault(fault)
    }
}

/// What an extended header says of the entry that follows it.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
}

pub(super) struct LayerReader<'a> {
    root: &'a Root,
    limits: &'a Limits,
    left_entries: u64,
    /// The paths of this layer, with the directories above them: whiteouts apply to lower layers only.
    written: Paths,
}

impl<'a> LayerReader<'a> {
    pub(super) fn new(root: &'a Root, limits: &'a Limits, left_entries: u64) -> Self {
        Self {
            root,
            limits,
            left_entries,
            written: Paths::default(),
        }
    }

    /// How many entries the layers above may have.
    pub(super) fn left_entries(&self) -> u64 {
        self.left_entries
    }

    /// Unpacks the layer, and returns its bytes without compression.
    pub(super) fn unpack(&mut self, reader: impl Read, limit_bytes: u64) -> Result<u64, Stopped> {
        let is_exceeded = Rc::new(Cell::new(false));
        let metered = Metered {
            inner: Decompressor::new(reader).map_err(LayerFault::Damaged)?,
            left_bytes: limit_bytes,
            is_exceeded: Rc::clone(&is_exceeded),
        };
        let mut archive = Archive::new(metered);
        let result = self.entries(&mut archive);
        let mut metered = archive.into_inner();
        // What follows the archive's end belongs to the layer: a cut or a bomb there is one too.
        let result = result.and_then(|()| {
            let rest = io::copy(&mut metered, &mut io::sink());
            rest.map(drop).map_err(LayerFault::Damaged)
        });
        match result {
            Ok(()) => Ok(limit_bytes - metered.left_bytes),
            Err(_) if is_exceeded.get() => Err(Stopped::Exceeded),
            Err(fault) => Err(fault.into()),
        }
    }

    fn entries<R: Read>(&mut self, archive: &mut Archive<R>) -> Result<(), LayerFault> {
        // Raw: extended headers are read here, where their length is limited.
        let entries = archive.entries().map_err(LayerFault::Damaged)?.raw(true);
        let mut extension = Extension::default();
        for entry in entries {
            let mut entry = entry.map_err(LayerFault::Damaged)?;
            self.count(1)?;
            match entry.header().entry_type() {
                EntryType::XGlobalHeader => {}
                EntryType::XHeader => extension.read_pax(&mut entry)?,
                EntryType::GNULongName => extension.path = Some(read_name(&mut entry)?),
                EntryType::GNULongLink => extension.target = Some(read_name(&mut entry)?),
                _ => self.entry(&mut entry, std::mem::take(&mut extension))?,
            }
        }
        Ok(())
    }

    fn count(&mut self, entries: u64) -> Result<(), LayerFault> {
        let left = self.left_entries.checked_sub(entries);
        self.left_entries = left.ok_or(LayerFault::TooManyEntries {
            limit: self.limits.entries,
        })?;
        Ok(())
    }

    fn entry<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        extension: Extension,
    ) -> Result<(), LayerFault> {
        let own_path = || entry.header().path_bytes().into_owned();
        let path = self.path(extension.path.unwrap_or_else(own_path))?;
        let normal =
            tree::normal(&path).ok_or_else(|| LayerFault::PathEscapes { path: path.clone() })?;
        let kind = entry.header().entry_type();
        let Some(name) = normal.file_name().map(OsStr::to_owned) else {
            // The root itself: it is there.
            return if kind == EntryType::Directory {
                Ok(())
            } else {
                Err(LayerFault::InvalidPath { path })
            };
        };
        if normal.iter().count() > self.limits.depth {
            return Err(self.too_deep(&path));
        }
        let above = normal.parent().unwrap_or(Path::new(""));
        if name.as_bytes().starts_with(WHITEOUT) {
            return self.whiteout(above, &name);
        }
        reject_special(kind, &path)?;
        let target = match kind {
            EntryType::Link | EntryType::Symlink => {
                let own = || entry.header().link_name_bytes().unwrap_or_default();
                let target = extension.target.unwrap_or_else(|| own().into_owned());
                self.path(target)?
            }
            _ => PathBuf::new(),
        };
        let parent = self.make_directory(above, &path)?;
        self.put(entry, &normal, &name, parent.as_fd(), &target)?;
        self.written.add(&normal);
        Ok(())
    }

    /// Opens the directory of an entry, and creates it and those above it where they are missing.
    ///
    /// A short entry may name many directories. Each of them counts as an entry: it takes an inode if it is created, and
    /// memory if it is one more name, through a link, for one that is there.
    fn make_directory(&mut self, above: &Path, entry: &Path) -> Result<OwnedFd, LayerFault> {
        let failed = fault_at(entry);
        let (mut missing, mut existing) = (Vec::new(), above);
        let mut directory = loop {
            let found = self.root.directory(existing);
            match (found, existing.parent(), existing.file_name()) {
                (Err(Errno::NOENT), Some(parent), Some(name)) => {
                    missing.push(name);
                    existing = parent;
                }
                (found, ..) => break found.map_err(&failed)?,
            }
        };
        // Links lead deeper than the path shows.
        let limit = self.limits.depth;
        let depth = self.root.depth(directory.as_fd(), limit);
        match depth.map_err(&failed)? {
            Some(depth) if depth + missing.len() < limit => {}
            _ => return Err(self.too_deep(entry)),
        }
        let named = self.written.add(above);
        self.count(named.max(missing.len() as u64))?;
        for name in missing.into_iter().rev() {
            directory = tree::make_directory_at(directory.as_fd(), name).map_err(&failed)?;
        }
        Ok(directory)
    }

    fn too_deep(&self, path: &Path) -> LayerFault {
        LayerFault::TooDeep {
            path: path.to_owned(),
            limit: self.limits.depth,
        }
    }

    /// Writes an entry as `name` into its directory.
    fn put<R: Read>(
        &self,
        entry: &mut Entry<'_, R>,
        path: &Path,
        name: &OsStr,
        parent: BorrowedFd<'_>,
        target: &Path,
    ) -> Result<(), LayerFault> {
        match entry.header().entry_type() {
            EntryType::Directory => tree::put_directory(parent, name).map_err(fault_at(path)),
            EntryType::Symlink => {
                if climbs_out(path, target) {
                    return Err(LayerFault::SymlinkEscapes {
                        path: path.to_owned(),
                        target: target.to_owned(),
                    });
                }
                tree::put_symlink(parent, name, target).map_err(fault_at(path))
            }
            EntryType::Link => self.hard_link(path, name, parent, target),
            _ => put_file(entry, path, name, parent),
        }
    }

    fn hard_link(
        &self,
        path: &Path,
        name: &OsStr,
        parent: BorrowedFd<'_>,
        target: &Path,
    ) -> Result<(), LayerFault> {
        let (path_owned, target_owned) = (path.to_owned(), target.to_owned());
        let normal = tree::normal(target).ok_or(LayerFault::HardLinkEscapes {
            path: path_owned,
            target: target_owned,
        })?;
        let dangles = || LayerFault::HardLinkDangles {
            path: path.to_owned(),
            target: target.to_owned(),
        };
        let target_name = normal.file_name().ok_or_else(dangles)?;
        let above = normal.parent().unwrap_or(Path::new(""));
        let linked = self.root.directory(above).and_then(|target_parent| {
            tree::put_hard_link(parent, name, target_parent.as_fd(), target_name)
        });
        match linked {
            // EPERM: the target is a directory, which cannot be linked.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::PERM) => Err(dangles()),
            linked => linked.map_err(fault_at(path)),
        }
    }

    /// Applies a whiteout to what lower layers have in the directory `above`.
    fn whiteout(&self, above: &Path, whiteout: &OsStr) -> Result<(), LayerFault> {
        let path = above.join(whiteout);
        let directory = match self.root.directory(above) {
            // Nothing is there that could be hidden.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            directory => directory.map_err(fault_at(&path))?,
        };
        let kept = |path: &Path| self.written.contains(path);
        if whiteout.as_bytes() == OPAQUE {
            let emptied = tree::empty_unkept(directory.as_fd(), above, &kept);
            return emptied.map_err(fault_at(&path));
        }
        if whiteout.as_bytes().starts_with(BOOKKEEPING) {
            return Ok(());
        }
        let hidden = OsStr::from_bytes(&whiteout.as_bytes()[WHITEOUT.len()..]);
        if ["", ".", ".."].iter().any(|name| hidden == *name) {
            return Err(LayerFault::InvalidWhiteout { path });
        }
        let removed = tree::remove_unkept(directory.as_fd(), hidden, &above.join(hidden), &kept);
        removed.map_err(fault_at(&path))
    }

    /// Bytes of the archive as a path.
    fn path(&self, bytes: Vec<u8>) -> Result<PathBuf, LayerFault> {
        let limit = self.limits.path_bytes;
        if bytes.len() > limit {
            return Err(LayerFault::PathTooLong {
                bytes: bytes.len() as u64,
                limit,
            });
        }
        let is_valid = !bytes.is_empty() && !bytes.contains(&0);
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
        if is_valid {
            Ok(path)
        } else {
            Err(LayerFault::InvalidPath { path })
        }
    }
}

impl Extension {
    /// Reads an extended header (POSIX.1-2017, pax, *pax Extended Header*).
    fn read_pax<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), LayerFault> {
        let bytes = read_extension(entry)?;
        for record in PaxExtensions::new(&bytes) {
            let record = record.map_err(LayerFault::Damaged)?;
            let value = || Some(record.value_bytes().to_vec());
            match record.key_bytes() {
                b"path" => self.path = value(),
                b"linkpath" => self.target = value(),
                // A size that differs from the header's is for files above 8 GiB. Taken or ignored, two readers of
                // one archive would see different entries.
                b"size" => return Err(unsupported("a size in an extended header")),
                key if key.starts_with(b"GNU.sparse") => return Err(unsupported("a sparse file")),
                _ => {}
            }
        }
        Ok(())
    }
}

fn unsupported(what: &str) -> LayerFault {
    LayerFault::Damaged(io::Error::other(format!("{what} is not supported")))
}

fn read_extension<R: Read>(entry: &mut Entry<'_, R>) -> Result<Vec<u8>, LayerFault> {
    if entry.size() > EXTENSION_BYTES {
        return Err(LayerFault::PathTooLong {
            bytes: entry.size(),
            limit: EXTENSION_BYTES as usize,
        });
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(LayerFault::Damaged)?;
    Ok(bytes)
}

/// Reads a long name of GNU tar, which ends with a zero byte.
fn read_name<R: Read>(entry: &mut Entry<'_, R>) -> Result<Vec<u8>, LayerFault> {
    let mut name = read_extension(entry)?;
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn reject_special(kind: EntryType, path: &Path) -> Result<(), LayerFault> {
    let special = |kind| {
        Err(LayerFault::SpecialFile {
            path: path.to_owned(),
            kind,
        })
    };
    match kind {
        EntryType::Regular
        | EntryType::Continuous
        | EntryType::Directory
        | EntryType::Link
        | EntryType::Symlink => Ok(()),
        EntryType::Char => special("character device"),
        EntryType::Block => special("block device"),
        EntryType::Fifo => special("FIFO"),
        other => Err(LayerFault::UnknownEntry {
            path: path.to_owned(),
            kind: other.as_byte(),
        }),
    }
}

/// Whether a relative link climbs above the root. At the root of a container `..` leads nowhere, so no working image
/// has such a link; it is the mark of an archive that is meant to be unpacked elsewhere.
fn climbs_out(path: &Path, target: &Path) -> bool {
    if target.is_absolute() {
        return false;
    }
    let mut depth = path.components().count() - 1;
    for component in target.components() {
        depth = match component {
            Component::Normal(_) => depth + 1,
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth - 1,
            _ => depth,
        };
    }
    false
}

fn put_file<R: Read>(
    entry: &mut Entry<'_, R>,
    path: &Path,
    name: &OsStr,
    parent: BorrowedFd<'_>,
) -> Result<(), LayerFault> {
    let is_program = entry.header().mode().unwrap_or(0) & 0o111 != 0;
    let mut file = tree::put_file(parent, name, is_program).map_err(fault_at(path))?;
    let mut left = entry.size();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = entry.read(&mut buffer).map_err(LayerFault::Damaged)?;
        if length == 0 {
            break;
        }
        file.write_all(&buffer[..length])
            .map_err(|source| LayerFault::Write {
                path: path.to_owned(),
                source,
            })?;
        left = left.saturating_sub(length as u64);
    }
    if left > 0 {
        return Err(LayerFault::Damaged(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// What the kernel's error on writing a path means.
fn fault_at(path: &Path) -> impl Fn(Errno) -> LayerFault {
    let path = path.to_owned();
    move |errno| {
        let path = path.clone();
        match errno {
            Errno::NOTDIR | Errno::LOOP => LayerFault::NotADirectory { path },
            errno => LayerFault::Write {
                path,
                source: errno.into(),
            },
        }
    }
}
