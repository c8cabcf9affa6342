//! Why a program cannot be taken out of an image.

use std::io;
use std::path::PathBuf;

use super::elf::ElfError;

/// Why a program cannot be taken out of an image. Paths are those in the image, unless stated otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// The image is not where it is expected.
    #[error("cannot open the unpacked image {path}: {source}\n  fix: unpack it again", path = path.display())]
    NoImage {
        /// The directory on this machine.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// There is no such file.
    #[error("the image has no file {path}: {source}\n  fix: name the program's path in the image", path = path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is no program of a kind that can be read, such as a script.
    #[error("{path} in the image is no program: {source}\n  fix: name the program itself, not a script", path = path.display())]
    NoProgram {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        source: ElfError,
    },
    /// A library is not in the image.
    #[error(
        "the image lacks the library {library} that {needed_by} needs\n  fix: use an image in which the program runs",
        needed_by = needed_by.display()
    )]
    NoLibrary {
        /// The library's name.
        library: String,
        /// Who needs it.
        needed_by: PathBuf,
    },
    /// The program needs more libraries than any program does.
    #[error("{path} in the image needs more than {limit} libraries\n  fix: use another image", path = path.display())]
    TooManyLibraries {
        /// The path.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// A copy cannot be written.
    #[error("cannot write {path}: {source}\n  fix: free space there, or set XDG_CACHE_HOME", path = path.display())]
    Write {
        /// The path on this machine.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}
