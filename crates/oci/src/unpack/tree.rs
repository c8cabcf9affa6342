//! The file system of an image below one directory, and nothing outside it.
//!
//! Every path is resolved by the kernel with `RESOLVE_IN_ROOT` (openat2(2)): as in a container, an absolute symbolic
//! link starts at the root of the image and `..` does not lead above it. What is written is named by a directory's
//! descriptor and one component, and never followed if it is a link; so neither a link in a layer nor one that another
//! process plants in the meantime leads outside.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, linkat, mkdirat, openat,
    openat2, statat, symlinkat, unlinkat,
};
use rustix::io::{Errno, Result};

/// Directories within directories that are removed at most: each takes a descriptor. [`Limits::depth`] is lower.
///
/// [`Limits::depth`]: crate::Limits::depth
const DEPTH: usize = 256;

/// Directories may be read and entered by everyone; what an image forbids is not meant for this machine's users.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// The root of an image.
pub(crate) struct Root {
    directory: OwnedFd,
}

impl Root {
    /// The image below this directory. The path to the directory itself is resolved as usual.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            directory: openat(CWD, path, flags, Mode::empty())?,
        })
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // The kernel gives up with EAGAIN if something is renamed meanwhile, here or elsewhere.
        for _ in 0..100 {
            match openat2(
                &self.directory,
                path,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                resolve,
            ) {
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens a directory of the image.
    pub(crate) fn directory(&self, path: &Path) -> Result<OwnedFd> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// How many levels below the root a directory is, wherever links led to it; `None`: more than `limit`.
    pub(super) fn depth(&self, directory: BorrowedFd<'_>, limit: usize) -> Result<Option<usize>> {
        let identity = |at: BorrowedFd<'_>| fstat(at).map(|stat| (stat.st_dev, stat.st_ino));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = identity(self.directory.as_fd())?;
        let mut at = openat(directory, ".", flags, Mode::empty())?;
        for depth in 0..=limit {
            if identity(at.as_fd())? == root {
                return Ok(Some(depth));
            }
            at = openat(&at, "..", flags, Mode::empty())?;
        }
        Ok(None)
    }

    /// Opens a regular file of the image for reading. Anything else is `EINVAL`, without waiting for it as for a FIFO.
    pub(crate) fn file(&self, path: &Path) -> Result<File> {
        let opened = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let kind = FileType::from_raw_mode(fstat(&opened)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        Ok(opened.into())
    }

    /// The path in the image of an open file, without links. Without `/proc` it is the path that it was opened by.
    pub(crate) fn real_path(&self, file: &File, opened_by: &Path) -> PathBuf {
        let target = |fd: BorrowedFd<'_>| {
            std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
        };
        let path = target(file.as_fd()).zip(target(self.directory.as_fd()));
        let path = path.and_then(|(path, root)| Some(path.strip_prefix(root).ok()?.to_owned()));
        path.unwrap_or_else(|| opened_by.to_owned())
    }
}

/// The components of a path in an image, without `/` at its start and `.`; `None` if it has a `..`.
pub(crate) fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

/// Makes `name` a directory. One that is there stays; anything else there is an error.
pub(super) fn make_directory_at(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd> {
    match mkdirat(parent, name, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    open_directory_at(parent, name.as_bytes())
}

fn open_directory_at(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Replaces whatever `name` is by a directory, unless it is one.
pub(super) fn put_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
    if kind_of(parent, name.as_bytes())?.is_some_and(|kind| kind != FileType::Directory) {
        remove(parent, name)?;
    }
    make_directory_at(parent, name).map(drop)
}

/// Replaces whatever `name` is by a new, empty file.
pub(super) fn put_file(parent: BorrowedFd<'_>, name: &OsStr, is_program: bool) -> Result<File> {
    remove(parent, name)?;
    let mode = Mode::from_raw_mode(if is_program { 0o755 } else { 0o644 });
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, mode)?.into())
}

/// Replaces whatever `name` is by a symbolic link.
pub(super) fn put_symlink(parent: BorrowedFd<'_>, name: &OsStr, target: &Path) -> Result<()> {
    remove(parent, name)?;
    symlinkat(target, parent, name)
}

/// Replaces whatever `name` is by a hard link to `target`, which is not followed if it is a symbolic link.
pub(super) fn put_hard_link(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    target_parent: BorrowedFd<'_>,
    target: &OsStr,
) -> Result<()> {
    let identity = |at: BorrowedFd<'_>, name: &OsStr| {
        statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat.st_dev, stat.st_ino))
    };
    // Linked to itself, the file would be removed first and then missing.
    let target_identity = identity(target_parent, target)?;
    if identity(parent, name) == Ok(target_identity) {
        return Ok(());
    }
    remove(parent, name)?;
    linkat(target_parent, target, parent, name, AtFlags::empty())
}

fn kind_of(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileType>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Removes `name` and everything below it, if it is there.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
    remove_unless(parent, name.as_bytes(), Path::new(""), &|_| false, DEPTH)
}

/// Removes `name`, whose path in the image is `path`, and everything below it, except what is `kept` and the
/// directories that hold it.
pub(super) fn remove_unkept(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
    kept: &dyn Fn(&Path) -> bool,
) -> Result<()> {
    remove_unless(parent, name.as_bytes(), path, kept, DEPTH)
}

/// Removes everything in a directory of the image, except what is `kept`.
pub(super) fn empty_unkept(
    directory: BorrowedFd<'_>,
    path: &Path,
    kept: &dyn Fn(&Path) -> bool,
) -> Result<()> {
    for name in names(directory)? {
        let below = path.join(OsStr::from_bytes(name.to_bytes()));
        remove_unless(directory, name.to_bytes(), &below, kept, DEPTH)?;
    }
    Ok(())
}

fn remove_unless(
    parent: BorrowedFd<'_>,
    name: &[u8],
    path: &Path,
    kept: &dyn Fn(&Path) -> bool,
    depth: usize,
) -> Result<()> {
    let Some(kind) = kind_of(parent, name)? else {
        return Ok(());
    };
    let is_kept = kept(path);
    if kind != FileType::Directory {
        return if is_kept {
            Ok(())
        } else {
            unlinkat(parent, name, AtFlags::empty())
        };
    }
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let directory = open_directory_at(parent, name)?;
    for name in names(directory.as_fd())? {
        let below = path.join(OsStr::from_bytes(name.to_bytes()));
        remove_unless(directory.as_fd(), name.to_bytes(), &below, kept, depth)?;
    }
    if is_kept {
        return Ok(());
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// The names in a directory, read before any is removed.
fn names(directory: BorrowedFd<'_>) -> Result<Vec<CString>> {
    let is_real = |name: &CStr| name != c"." && name != c"..";
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if is_real(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}
