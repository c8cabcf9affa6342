//! Why an image cannot be built, and what the user can do about it.

use std::io;
use std::path::PathBuf;

use crate::program::{ElfError, ExtractError};

/// Why an image cannot be built or stored.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A program cannot be opened.
    #[error("cannot open the program {path}: {source}\n  fix: check the path", path = path.display())]
    NotFound {
        /// The program.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is no 64-bit program, but a script for example.
    #[error("{path} is no program: {source}\n  fix: name a 64-bit ELF program, not a script", path = path.display())]
    NoProgram {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ElfError,
    },
    /// Images have no name for the program's processor.
    #[error(
        "{path} is for a processor that images have no name for (ELF machine {machine})\n  \
         fix: name a program for x86-64, arm64, riscv64, ppc64le or s390x",
        path = path.display()
    )]
    Processor {
        /// The program.
        path: PathBuf,
        /// `e_machine` of its header.
        machine: u16,
    },
    /// Programs for different processors cannot be in one image.
    #[error(
        "{path} is for {found}, and the image for {wanted}\n  fix: name a program for {wanted}",
        path = path.display()
    )]
    OtherProcessor {
        /// The program.
        path: PathBuf,
        /// Its platform.
        found: String,
        /// The platform of the image.
        wanted: String,
    },
    /// A library is not where this machine's loader looks.
    #[error(
        "the library {library}, which {needed_by} needs, is not on this machine\n  \
         fix: install it, or name a statically linked program",
        needed_by = needed_by.display()
    )]
    NoLibrary {
        /// The library's name.
        library: String,
        /// Who needs it.
        needed_by: PathBuf,
    },
    /// The program needs more libraries than any program does.
    #[error("{path} needs more than {limit} libraries\n  fix: name a statically linked program", path = path.display())]
    TooManyLibraries {
        /// The program.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// A path is no path that a file of an image can have.
    #[error(
        "`{path}` cannot be a file of an image\n  fix: write an absolute path without `..`, whose names do not begin with `.wh.`",
        path = path.display()
    )]
    PathInImage {
        /// The path.
        path: PathBuf,
    },
    /// Two files would be at the same path of the image, or one below the other.
    #[error(
        "both {first} and {second} would be at {path} of the image\n  fix: give one of them another path",
        path = path.display(), first = first.display(), second = second.display()
    )]
    Conflict {
        /// The path in the image.
        path: PathBuf,
        /// One file on this machine.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}\n  fix: check that it is a file that you may read", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file became shorter while it was read.
    #[error("{path} changed while it was read\n  fix: wait until it is written, and build again", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The image is to be stored under a name with a digest, which only the content decides.
    #[error(
        "{name} has a digest, which an image that is built has only afterwards\n  fix: leave out `@sha256:...`"
    )]
    NameWithDigest {
        /// The name.
        name: String,
    },
    /// The archive cannot be written.
    #[error("cannot write {path}: {source}\n  fix: free space there, or choose another path", path = path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Rewrites an error about a program in an image so that it is about a program on this machine.
impl From<ExtractError> for BuildError {
    fn from(error: ExtractError) -> Self {
        match error {
            ExtractError::NotFound { path, source } => Self::NotFound { path, source },
            ExtractError::NoProgram { path, source } => Self::NoProgram { path, source },
            ExtractError::NoLibrary { library, needed_by } => Self::NoLibrary {
                library,
                needed_by: PathBuf::from("/").join(needed_by),
            },
            ExtractError::TooManyLibraries { path, limit } => {
                Self::TooManyLibraries { path, limit }
            }
            ExtractError::NoImage { path, source } | ExtractError::Write { path, source } => {
                Self::Read { path, source }
            }
        }
    }
}
