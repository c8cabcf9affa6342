//! One program of an unpacked image, with what it needs to run elsewhere: its loader and its libraries.
//!
//! Libraries are looked up as the loader would (ld.so(8)), within the image: nothing of this machine is taken for the
//! image's, whose C library may be another.

mod elf;
mod error;
mod libraries;
mod local;
mod open;
mod search;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::unpack::tree::Root;
pub use elf::ElfError;
pub use error::ExtractError;
use libraries::each_library;
pub(crate) use local::{LocalProgram, inspect};
use open::open;
use search::Object;

/// A program with what it needs, copied out of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFiles {
    /// The program.
    pub program: PathBuf,
    /// The loader that starts it; `None` if it is linked statically.
    pub loader: Option<PathBuf>,
    /// The directory of the libraries.
    pub libraries: PathBuf,
}

impl ProgramFiles {
    /// The words that start the program, before its own arguments: `loader --library-path DIRECTORY program`, or only
    /// the program. Both the GNU loader and musl's understand them.
    #[must_use]
    pub fn command(&self) -> Vec<OsString> {
        let program = self.program.clone().into_os_string();
        match &self.loader {
            None => vec![program],
            Some(loader) => vec![
                loader.clone().into_os_string(),
                "--library-path".into(),
                self.libraries.clone().into_os_string(),
                program,
            ],
        }
    }
}

/// Copies a program of an unpacked image into a directory, with its loader and libraries in `lib` below it. The
/// directory is created if it is missing; the files must not be there. Symbolic links are followed within the image.
///
/// # Errors
/// If the program or something that it needs is not in the image, or the copies cannot be written.
pub fn extract_program(
    root: &Path,
    path_in_image: &Path,
    into: &Path,
) -> Result<ProgramFiles, ExtractError> {
    let image = Root::open(root).map_err(|e| ExtractError::NoImage {
        path: root.to_owned(),
        source: e.into(),
    })?;
    let libraries = into.join("lib");
    fs::create_dir_all(&libraries).map_err(not_written(&libraries))?;
    let (file, elf) = open(&image, path_in_image)?;
    let name = path_in_image.file_name().unwrap_or(OsStr::new("program"));
    let program = into.join(name);
    copy(&file, &program)?;
    let loader = match &elf.interpreter {
        Some(interpreter) => Some(copy_loader(&image, interpreter, &libraries)?),
        None => None,
    };
    if loader.is_some() {
        let path = image.real_path(&file, path_in_image);
        let program = Object::of_program(path, elf);
        each_library(&image, program, &mut |library| {
            copy(library.file, &libraries.join(library.name))
        })?;
    }
    Ok(ProgramFiles {
        program,
        loader,
        libraries,
    })
}

fn copy_loader(
    image: &Root,
    interpreter: &Path,
    libraries: &Path,
) -> Result<PathBuf, ExtractError> {
    let (file, _) = open(image, interpreter)?;
    let name = interpreter.file_name().unwrap_or(OsStr::new("loader"));
    let copied = libraries.join(name);
    copy(&file, &copied)?;
    Ok(copied)
}

fn copy(mut file: &File, to: &Path) -> Result<(), ExtractError> {
    let mut copied = || {
        io::Seek::rewind(&mut file)?;
        let mut options = OpenOptions::new();
        let mut target = options.write(true).create_new(true).mode(0o755).open(to)?;
        io::copy(&mut file, &mut target)
    };
    copied().map(drop).map_err(not_written(to))
}

fn not_written(path: &Path) -> impl FnOnce(io::Error) -> ExtractError {
    move |source| ExtractError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
