//! The libraries of a program, those that they need, and so on.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;

use super::error::ExtractError;
use super::search::{Object, Search};
use crate::unpack::tree::Root;

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

/// A library that was found.
pub(super) struct Library<'a> {
    /// By which it is needed.
    pub(super) name: &'a OsStr,
    /// Its path without links.
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
}

type Take<'a> = dyn FnMut(Library<'_>) -> Result<(), ExtractError> + 'a;

/// Passes each library of a program to `take`, once. The loader is not among them.
pub(super) fn each_library(
    image: &Root,
    program: Object,
    take: &mut Take<'_>,
) -> Result<(), ExtractError> {
    // The loader is often named as a library, too.
    let loader = program.elf.interpreter.as_deref().and_then(Path::file_name);
    let mut closure = Closure {
        search: Search::new(image, &program),
        taken: loader.map(OsStr::to_owned).into_iter().collect(),
        take,
    };
    let program_path = program.path.clone();
    let mut left = vec![program];
    while let Some(object) = left.pop() {
        for name in &object.elf.needed {
            left.extend(closure.library(&object, name)?);
            if closure.taken.len() > LIBRARIES {
                return Err(ExtractError::TooManyLibraries {
                    path: program_path,
                    limit: LIBRARIES,
                });
            }
        }
        if left.is_empty() && closure.taken.contains(OsStr::new("libc.so.6")) {
            for name in LOADED_BY_GLIBC {
                let found = closure.library(&object, name.as_ref());
                left.extend(found.ok().flatten());
            }
        }
    }
    Ok(())
}

struct Closure<'a, 'b> {
    search: Search<'a>,
    taken: BTreeSet<OsString>,
    take: &'a mut Take<'b>,
}

impl Closure<'_, '_> {
    /// Takes a library under the name by which it is needed. `None`: it was taken before.
    fn library(
        &mut self,
        needed_by: &Object,
        name: &OsStr,
    ) -> Result<Option<Object>, ExtractError> {
        let missing = || ExtractError::NoLibrary {
            library: name.to_string_lossy().into_owned(),
            needed_by: needed_by.path.clone(),
        };
        let name_of_file = Path::new(name).file_name().ok_or_else(missing)?;
        if self.taken.contains(name_of_file) {
            return Ok(None);
        }
        let (file, object) = self.search.find(needed_by, name).ok_or_else(missing)?;
        (self.take)(Library {
            name: name_of_file,
            path: &object.path,
            file: &file,
        })?;
        self.taken.insert(name_of_file.to_owned());
        Ok(Some(object))
    }
}
