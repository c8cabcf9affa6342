//! A program of this machine, and where what it needs is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::elf::Elf;
use super::error::ExtractError;
use super::libraries::each_library;
use super::search::Object;
use crate::unpack::tree::Root;

/// A program of this machine with the paths of what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalProgram {
    /// The processor, as `e_machine` of its header.
    pub(crate) machine: u16,
    /// The path at which the kernel looks for its loader; `None` if it is linked statically.
    pub(crate) loader: Option<PathBuf>,
    /// The files of its libraries, without links, by the names by which they are needed.
    pub(crate) libraries: BTreeMap<OsString, PathBuf>,
}

/// Finds what a program of this machine needs, where the machine's loader would.
pub(crate) fn inspect(program: &Path) -> Result<LocalProgram, ExtractError> {
    // By the kernel and not below a root: /proc/self/exe is a link to a file that may have no name any more.
    let file = File::open(program).map_err(|source| ExtractError::NotFound {
        path: program.to_owned(),
        source,
    })?;
    let elf = Elf::read(&file).map_err(|source| ExtractError::NoProgram {
        path: program.to_owned(),
        source,
    })?;
    let mut found = LocalProgram {
        machine: elf.machine,
        loader: elf.interpreter.clone(),
        libraries: BTreeMap::new(),
    };
    if found.loader.is_some() {
        let top = Path::new("/");
        let machine = Root::open(top).map_err(|e| ExtractError::NoImage {
            path: top.to_owned(),
            source: e.into(),
        })?;
        let object = Object::of_program(real_path(program), elf);
        each_library(&machine, object, &mut |library| {
            let path = top.join(library.path);
            found.libraries.insert(library.name.to_owned(), path);
            Ok(())
        })?;
    }
    Ok(found)
}

/// The path without links, by which `$ORIGIN` is known; that of a removed file is what the link says.
fn real_path(program: &Path) -> PathBuf {
    let real = fs::canonicalize(program).or_else(|_| fs::read_link(program));
    real.unwrap_or_else(|_| program.to_owned())
}
