//! Which files an image has, and where.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::BuildError;
use crate::program::LocalProgram;
use crate::unpack::tree::normal;

/// What may be read and started by everyone.
const PROGRAM_MODE: u32 = 0o755;

/// Where programs write what they do not keep: every user may, and may remove only what is their own.
const TEMPORARY: (&str, u32) = ("tmp", 0o1777);

/// Directories may be entered and read by everyone.
const DIRECTORY_MODE: u32 = 0o755;

/// The beginning of names that remove files of the layers below (OCI image specification, *Whiteouts*).
const WHITEOUT: &str = ".wh.";

/// Where musl's loader looks for libraries, and the loaders of most C libraries.
const LIBRARIES: &str = "/lib";

/// A file, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
}

/// An entry of the layer. Paths have no `/` at their start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    Directory(u32),
    File(&'a Source),
}

/// The files of an image by their paths in it, without `/` at their start.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<PathBuf, Source>);

impl Files {
    /// Adds a file. The same file may be added again.
    pub(super) fn add(&mut self, at: &Path, path: &Path, mode: u32) -> Result<(), BuildError> {
        let relative = relative(at).ok_or_else(|| BuildError::PathInImage {
            path: at.to_owned(),
        })?;
        let source = Source {
            path: path.to_owned(),
            mode: mode & 0o7777,
        };
        let same = self.0.get(&relative);
        if same.is_some_and(|known| *known == source) {
            return Ok(());
        }
        let is_related = |known: &Path| known.starts_with(&relative) || relative.starts_with(known);
        let related = self.0.iter().find(|(known, _)| is_related(known));
        if let Some((_, first)) = related {
            return Err(BuildError::Conflict {
                path: at.to_owned(),
                first: first.path.clone(),
                second: source.path,
            });
        }
        self.0.insert(relative, source);
        Ok(())
    }

    /// Adds a program with its loader, where the kernel looks for it, and its libraries, where the loader does.
    pub(super) fn add_program(
        &mut self,
        at: &Path,
        path: &Path,
        program: &LocalProgram,
    ) -> Result<(), BuildError> {
        self.add(at, path, PROGRAM_MODE)?;
        if let Some(loader) = &program.loader {
            self.add(loader, loader, PROGRAM_MODE)?;
        }
        let directory = library_directory(program);
        for (name, file) in &program.libraries {
            self.add(&directory.join(name), file, PROGRAM_MODE)?;
        }
        Ok(())
    }

    /// All entries by path: every directory comes before what is in it.
    pub(super) fn entries(&self) -> BTreeMap<&Path, Entry<'_>> {
        let (temporary, mode) = TEMPORARY;
        let mut entries = BTreeMap::from([(Path::new(temporary), Entry::Directory(mode))]);
        for (path, source) in &self.0 {
            for above in path.ancestors().skip(1) {
                if !above.as_os_str().is_empty() {
                    let directory = Entry::Directory(DIRECTORY_MODE);
                    entries.entry(above).or_insert(directory);
                }
            }
            entries.insert(path, Entry::File(source));
        }
        entries
    }
}

/// A path of the image without `/` at its start; `None` if no file of an image can have it.
fn relative(at: &Path) -> Option<PathBuf> {
    let relative = normal(at).filter(|_| at.is_absolute())?;
    let is_whiteout = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(WHITEOUT);
    let is_free = relative != Path::new(TEMPORARY.0) && !relative.iter().any(is_whiteout);
    (is_free && relative.file_name().is_some()).then_some(relative)
}

/// Where the loader finds libraries without a cache and without variables: the directory of the C library, which the
/// loader was built with. Libraries from elsewhere are put there, too.
fn library_directory(program: &LocalProgram) -> PathBuf {
    let libc = program.libraries.get(std::ffi::OsStr::new("libc.so.6"));
    let directory = libc.and_then(|path| path.parent());
    directory.unwrap_or(Path::new(LIBRARIES)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(paths: &[(&str, &str)]) -> Result<Files, BuildError> {
        let mut files = Files::default();
        for (at, path) in paths {
            files.add(Path::new(at), Path::new(path), 0o644)?;
        }
        Ok(files)
    }

    #[test]
    fn directories_come_before_their_files_and_tmp_is_there() {
        let files = added(&[("/b/c/d", "/1"), ("/a", "/2"), ("/b/a", "/3")]).unwrap();
        let entries = files.entries();
        let paths: Vec<_> = entries.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a", "b", "b/a", "b/c", "b/c/d", "tmp"]);
        assert_eq!(entries[Path::new("tmp")], Entry::Directory(0o1777));
    }

    #[test]
    fn paths_that_no_file_can_have_are_rejected() {
        for path in ["", "/", "a", "/a/../b", "/.wh.a", "/.wh.a/b", "/tmp"] {
            let error = added(&[(path, "/1")]).unwrap_err();
            assert!(error.to_string().contains("fix:"), "{error}");
            assert!(matches!(error, BuildError::PathInImage { .. }), "{path}");
        }
    }

    #[test]
    fn two_files_at_one_path_are_a_conflict_and_the_same_file_is_not() {
        for (first, second) in [("/a", "/a"), ("/a/b", "/a"), ("/a", "/a/b")] {
            let error = added(&[(first, "/1"), (second, "/2")]).unwrap_err();
            assert!(error.to_string().contains("fix:"), "{error}");
            assert!(matches!(error, BuildError::Conflict { .. }), "{error}");
        }
        assert!(added(&[("/a", "/1"), ("/a", "/1"), ("/ab", "/2")]).is_ok());
    }

    #[test]
    fn libraries_are_in_the_directory_of_the_c_library() {
        let library = |path: &str| {
            let path = PathBuf::from(path);
            (path.file_name().unwrap().to_owned(), path)
        };
        let mut program = LocalProgram {
            machine: 62,
            loader: Some("/lib64/ld-linux-x86-64.so.2".into()),
            libraries: [
                library("/usr/lib64/libc.so.6"),
                library("/opt/far/libfar.so"),
            ]
            .into(),
        };
        let mut files = Files::default();
        let add = |files: &mut Files, program: &LocalProgram| {
            files.add_program(Path::new("/meshtax"), Path::new("/1"), program)
        };
        add(&mut files, &program).unwrap();
        for path in [
            "meshtax",
            "lib64/ld-linux-x86-64.so.2",
            "usr/lib64/libc.so.6",
            "usr/lib64/libfar.so",
        ] {
            assert!(files.0.contains_key(Path::new(path)), "{path}: {files:?}");
        }
        program.libraries = [library("/usr/local/lib/libmusl.so")].into();
        let mut files = Files::default();
        add(&mut files, &program).unwrap();
        assert!(files.0.contains_key(Path::new("lib/libmusl.so")));
    }
}
