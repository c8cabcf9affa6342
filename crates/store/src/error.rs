//! What can be wrong with a run directory.

use std::io;
use std::path::PathBuf;

/// A run directory cannot be written or read. Each names the file, the cause and the fix.
///
/// Exit code 14 when reading.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be made or written in.
    #[error("cannot write into {}: {cause}\n  fix: {fix}", path.display())]
    CannotWrite {
        /// The directory or the file in it.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
        /// What the user can do.
        fix: &'static str,
    },
    /// There is something in the output directory already.
    #[error(
        "{} is not empty: a run never overwrites another one\n  fix: give another --out, or remove it first",
        path.display()
    )]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// The output path is a file.
    #[error(
        "{} exists and is not a directory\n  fix: give a directory that does not exist yet as --out",
        path.display()
    )]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Its run goes on.
    #[error(
        "another meshtax is writing into {}: the run is still in progress\n  fix: wait until it ends, or interrupt it first",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing at this path.
    #[error("there is no run at {}: the path does not exist\n  fix: give the directory that `meshtax run` named at its end", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// There is something, and it is not a run directory.
    #[error("{} is not a run directory: {why}\n  fix: give the directory that `meshtax run` named at its end", path.display())]
    NotARun {
        /// The path.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// The directory or a file in it cannot be read.
    #[error("cannot read {}: {cause}\n  fix: {fix}", path.display())]
    CannotRead {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
        /// What the user can do.
        fix: &'static str,
    },
    /// A newer meshtax wrote it.
    #[error(
        "{} has format version {found}, and this meshtax reads version {known} only\n  fix: read it with the meshtax that wrote it, or a later one",
        path.display()
    )]
    FutureVersion {
        /// The manifest.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that is read.
        known: u32,
    },
    /// An earlier meshtax wrote it, in a format that is no longer read.
    #[error(
        "{} has format version {found}, and this meshtax reads version {known} only\n  fix: read it with the meshtax that wrote it, or measure again",
        path.display()
    )]
    PastVersion {
        /// The manifest.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that is read.
        known: u32,
    },
    /// The manifest is not what meshtax writes.
    #[error("{} is corrupt: {cause}\n  fix: restore it from a copy; a run cannot be read without its manifest", path.display())]
    CorruptManifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong, where.
        cause: serde_json::Error,
    },
    /// A line that is not the torn last one is not what meshtax writes.
    #[error("{}:{line} is corrupt: {cause}\n  fix: restore the file from a copy, or remove that line if you can do without it", path.display())]
    CorruptLine {
        /// The file.
        path: PathBuf,
        /// Counts from 1.
        line: u64,
        /// What is wrong.
        cause: String,
    },
}

impl StoreError {
    pub(crate) fn write(path: impl Into<PathBuf>, cause: io::Error) -> Self {
        let fix = match cause.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "give a directory that you may write in as --out"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make room, or give a directory on another disk as --out"
            }
            io::ErrorKind::NotADirectory => {
                "a part of the path is a file: give another path as --out"
            }
            _ => "give another directory as --out",
        };
        Self::CannotWrite {
            path: path.into(),
            cause,
            fix,
        }
    }

    pub(crate) fn read(path: impl Into<PathBuf>, cause: io::Error) -> Self {
        let fix = match cause.kind() {
            io::ErrorKind::PermissionDenied => {
                "read it as the user who owns it, or change its mode"
            }
            io::ErrorKind::NotFound => "restore the file from a copy of the run",
            _ => "check the disk, or restore the file from a copy of the run",
        };
        Self::CannotRead {
            path: path.into(),
            cause,
            fix,
        }
    }
}
