//! One program of an unpacked image, with what it needs to run elsewhere: its loader and its libraries.
//!
//! Libraries are looked up as the loader would (ld.so(8)), within the image: nothing of this machine is taken for the
//! image's, whose C library may be another.

mod elf;
mod error;
mod open;
mod search;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::unpack::tree::Root;
pub use elf::ElfError;
pub use error::ExtractError;
use open::open;
use search::{Object, Search};

/// Libraries of a program at most. The proxies have ten.
const LIBRARIES: usize = 500;

/// What the GNU C library loads by itself, without naming it as needed: to unwind a thread's stack, and to look up
/// names. Taken if they are there.
const LOADED_BY_GLIBC: [&str; 4] = [
    "libgcc_s.so.1",
    "libnss_files.so.2",
    "libnss_dns.so.2",
    "libresolv.so.2",
];

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
    let copier = Copier {
        image: &image,
        libraries: &libraries,
    };
    let (file, elf) = open(&image, path_in_image)?;
    let name = path_in_image.file_name().unwrap_or(OsStr::new("program"));
    let program = into.join(name);
    copy(&file, &program)?;
    let loader = match &elf.interpreter {
        Some(interpreter) => Some(copier.loader(interpreter)?),
        None => None,
    };
    if loader.is_some() {
        let path = image.real_path(&file, path_in_image);
        copier.closure(Object::of_program(path, elf))?;
    }
    Ok(ProgramFiles {
        program,
        loader,
        libraries,
    })
}

struct Copier<'a> {
    image: &'a Root,
    libraries: &'a Path,
}

impl Copier<'_> {
    fn loader(&self, interpreter: &Path) -> Result<PathBuf, ExtractError> {
        let (file, _) = open(self.image, interpreter)?;
        let name = interpreter.file_name().unwrap_or(OsStr::new("loader"));
        let copied = self.libraries.join(name);
        copy(&file, &copied)?;
        Ok(copied)
    }

    /// Copies the libraries of the program, those that they need, and so on.
    fn closure(&self, program: Object) -> Result<(), ExtractError> {
        let search = Search::new(self.image, &program);
        // The loader is often named as a library, too.
        let loader = program.elf.interpreter.as_deref().and_then(Path::file_name);
        let mut copied: BTreeSet<OsString> = loader.map(OsStr::to_owned).into_iter().collect();
        let program_path = program.path.clone();
        let mut left = vec![program];
        while let Some(object) = left.pop() {
            for name in object.elf.needed.clone() {
                left.extend(self.library(&search, &object, &name, &mut copied)?);
                if copied.len() > LIBRARIES {
                    return Err(ExtractError::TooManyLibraries {
                        path: program_path,
                        limit: LIBRARIES,
                    });
                }
            }
            if left.is_empty() && copied.contains(OsStr::new("libc.so.6")) {
                for name in LOADED_BY_GLIBC {
                    let found = self.library(&search, &object, name.as_ref(), &mut copied);
                    left.extend(found.ok().flatten());
                }
            }
        }
        Ok(())
    }

    /// Copies a library under the name by which it is needed. `None`: it is there.
    fn library(
        &self,
        search: &Search<'_>,
        needed_by: &Object,
        name: &OsStr,
        copied: &mut BTreeSet<OsString>,
    ) -> Result<Option<Object>, ExtractError> {
        let missing = || ExtractError::NoLibrary {
            library: name.to_string_lossy().into_owned(),
            needed_by: needed_by.path.clone(),
        };
        let file_name = Path::new(name).file_name().ok_or_else(missing)?;
        if copied.contains(file_name) {
            return Ok(None);
        }
        let (file, object) = search.find(needed_by, name).ok_or_else(missing)?;
        copy(&file, &self.libraries.join(file_name))?;
        copied.insert(file_name.to_owned());
        Ok(Some(object))
    }
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
