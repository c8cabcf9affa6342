//! Why layers cannot be unpacked.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Digest;

/// Why an image cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The directory to unpack into cannot be created or opened.
    #[error("cannot unpack into {path}: {source}\n  fix: free space there, or give another directory", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The directory to unpack into has entries already, so that the result would not be the image.
    #[error("cannot unpack into {path}: it is not empty\n  fix: give an empty directory", path = path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel cannot resolve paths within a directory.
    #[error(
        "this kernel does not have or does not permit openat2, without which images cannot be unpacked safely\n  \
         fix: use Linux 5.6 or later, permit openat2 in the container's seccomp profile, or give a binary"
    )]
    NoOpenat2,
    /// A layer is damaged, hostile or too large.
    #[error(
        "cannot unpack layer {layer}: {fault}\n  fix: {fix}",
        fix = fault.fix()
    )]
    Layer {
        /// The layer's digest.
        layer: String,
        /// What is wrong with it.
        fault: LayerFault,
    },
}

/// What is wrong with a layer. Paths are those in the image.
#[derive(Debug, thiserror::Error)]
pub enum LayerFault {
    /// A path has a component `..`.
    #[error("the path {path} leads out of the image", path = path.display())]
    PathEscapes {
        /// The entry.
        path: PathBuf,
    },
    /// A relative symbolic link climbs above the root of the image.
    #[error("the symbolic link {path} -> {target} leads out of the image", path = path.display(), target = target.display())]
    SymlinkEscapes {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A hard link's target has a component `..`.
    #[error("the hard link {path} -> {target} leads out of the image", path = path.display(), target = target.display())]
    HardLinkEscapes {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A hard link's target is not in the image.
    #[error("the hard link {path} -> {target} has no target in the image", path = path.display(), target = target.display())]
    HardLinkDangles {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A device file, a FIFO or a socket.
    #[error("{path} is a {kind}; only files, directories and links are unpacked", path = path.display())]
    SpecialFile {
        /// The entry.
        path: PathBuf,
        /// Which kind of special file.
        kind: &'static str,
    },
    /// A type of entry that no container runtime unpacks.
    #[error("{path} is an entry of the unknown type {kind:#04x}", path = path.display())]
    UnknownEntry {
        /// The entry.
        path: PathBuf,
        /// The type flag in the archive.
        kind: u8,
    },
    /// A whiteout that names no entry of its directory: `.wh.`, `.wh..` or `.wh...`.
    #[error("the whiteout {path} names no file", path = path.display())]
    InvalidWhiteout {
        /// The whiteout.
        path: PathBuf,
    },
    /// A path is empty, or has a zero byte in it.
    #[error("the path {path:?} is not valid")]
    InvalidPath {
        /// The entry.
        path: PathBuf,
    },
    /// A directory of a path is something else.
    #[error("{path} is below something that is no directory", path = path.display())]
    NotADirectory {
        /// The entry.
        path: PathBuf,
    },
    /// A path or a target is longer than [`Limits::path_bytes`](crate::Limits::path_bytes).
    #[error("a path of {bytes} bytes exceeds the limit of {limit}")]
    PathTooLong {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// A path has more components than [`Limits::depth`](crate::Limits::depth), as written or with its links resolved.
    #[error("{path} is more than {limit} directories deep", path = shortened(path))]
    TooDeep {
        /// The entry.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// There are more entries than [`Limits::entries`](crate::Limits::entries).
    #[error("the image has more than {limit} entries")]
    TooManyEntries {
        /// The limit.
        limit: u64,
    },
    /// The image needs more space than [`Limits::unpacked_bytes`](crate::Limits::unpacked_bytes).
    #[error("the image needs more than {limit_bytes} bytes unpacked")]
    TooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// The layer grows more than [`Limits::expansion`](crate::Limits::expansion) permits.
    #[error("its {size_bytes} bytes become more than {limit_bytes} bytes: a decompression bomb")]
    Bomb {
        /// The compressed size.
        size_bytes: u64,
        /// How much it may become.
        limit_bytes: u64,
    },
    /// The archive or its compression is damaged or cut off.
    #[error("the archive is damaged: {0}")]
    Damaged(#[source] io::Error),
    /// The layer's bytes are not those of its digest.
    #[error("its content has the digest {found}")]
    WrongDigest {
        /// The digest of what was read.
        found: Digest,
    },
    /// It is in a format that is no layer of files, such as an encrypted one.
    #[error("its media type {media_type} is not supported")]
    MediaType {
        /// The media type in the manifest.
        media_type: String,
    },
    /// The layer's blob cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The blob.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file of the image cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The entry.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The start of a path that is too long to show.
fn shortened(path: &Path) -> String {
    const LENGTH: usize = 60;
    let text = path.display().to_string();
    match text.char_indices().nth(LENGTH) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

impl LayerFault {
    fn fix(&self) -> &'static str {
        match self {
            Self::Write { .. } => "free space in the cache, or set XDG_CACHE_HOME",
            Self::Read { .. } | Self::WrongDigest { .. } => {
                "run again: a damaged download is noticed and repeated"
            }
            _ => {
                "use an image of the data plane's own project, or give a binary with `--from PATH`"
            }
        }
    }
}
