//! Where libraries are in an image.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::elf::{Elf, path_of};
use super::open::open;
use crate::unpack::tree::Root;

/// Bytes of `/etc/ld.so.conf` and what it includes.
const CONF_BYTES: u64 = 1 << 20;

/// How deep configurations may include each other.
const CONF_DEPTH: usize = 4;

/// A program or library in the image.
pub(super) struct Object {
    /// Its path without links: `$ORIGIN` is the directory of the file itself.
    pub(super) path: PathBuf,
    pub(super) elf: Elf,
    /// The `DT_RPATH` of those who need it, the nearest first, with `$ORIGIN` replaced.
    inherited: Vec<PathBuf>,
}

impl Object {
    pub(super) fn of_program(path: PathBuf, elf: Elf) -> Self {
        Self {
            path,
            elf,
            inherited: Vec::new(),
        }
    }

    fn expand(&self, directories: &[OsString]) -> Vec<PathBuf> {
        let origin = self.path.parent().unwrap_or(Path::new("/"));
        let expand = |directory: &OsString| {
            let text = directory.as_bytes();
            let rest = [&b"$ORIGIN"[..], b"${ORIGIN}"]
                .iter()
                .find_map(|name| text.strip_prefix(*name));
            match rest {
                // `$ORIGIN/../lib` is above the object's own directory, by name and not by links.
                Some(rest) => {
                    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
                    origin.join(path_of(rest))
                }
                None => path_of(text),
            }
        };
        directories.iter().map(expand).collect()
    }

    /// The `DT_RPATH` that counts for this object's libraries, and for theirs.
    fn rpath(&self) -> Vec<PathBuf> {
        let mut all = match self.elf.runpath.is_empty() {
            true => self.expand(&self.elf.rpath),
            false => Vec::new(),
        };
        all.extend(self.inherited.iter().cloned());
        all
    }
}

pub(super) struct Search<'a> {
    image: &'a Root,
    machine: u16,
    /// Where every library is looked for.
    usual: Vec<PathBuf>,
}

impl<'a> Search<'a> {
    pub(super) fn new(image: &'a Root, program: &Object) -> Self {
        let mut usual = Vec::new();
        read_conf(image, Path::new("etc/ld.so.conf"), CONF_DEPTH, &mut usual);
        usual.extend(usual_directories(program.elf.machine));
        Self {
            image,
            machine: program.elf.machine,
            usual,
        }
    }

    /// Finds a library for an object, in the order of ld.so(8): `DT_RPATH` unless there is a `DT_RUNPATH`, that, and
    /// the usual directories.
    pub(super) fn find(&self, needed_by: &Object, name: &OsStr) -> Option<(File, Object)> {
        let inherited = needed_by.rpath();
        let has_runpath = !needed_by.elf.runpath.is_empty();
        let first = if has_runpath {
            needed_by.expand(&needed_by.elf.runpath)
        } else {
            inherited.clone()
        };
        // A name with a directory is a path.
        let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
            vec![PathBuf::from(name)]
        } else {
            first
                .iter()
                .chain(&self.usual)
                .map(|directory| directory.join(name))
                .collect()
        };
        candidates.iter().find_map(|path| {
            let (file, elf) = open(self.image, path).ok()?;
            let path = self.image.real_path(&file, path);
            (elf.machine == self.machine).then(|| {
                let object = Object {
                    path,
                    elf,
                    inherited: inherited.clone(),
                };
                (file, object)
            })
        })
    }
}

/// The directories of the GNU loader on Debian and Red Hat, and of musl's.
fn usual_directories(machine: u16) -> Vec<PathBuf> {
    let triplet = match machine {
        object::elf::EM_X86_64 => Some("x86_64-linux-gnu"),
        object::elf::EM_AARCH64 => Some("aarch64-linux-gnu"),
        object::elf::EM_RISCV => Some("riscv64-linux-gnu"),
        object::elf::EM_PPC64 => Some("powerpc64le-linux-gnu"),
        object::elf::EM_S390 => Some("s390x-linux-gnu"),
        _ => None,
    };
    let multiarch = triplet
        .into_iter()
        .flat_map(|triplet| ["lib", "usr/lib"].map(|base| format!("{base}/{triplet}")));
    let plain = ["lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib"].map(str::to_owned);
    multiarch.chain(plain).map(PathBuf::from).collect()
}

/// Reads directories from a configuration of ldconfig(8), if it is there: one a line, or `include` with a pattern.
fn read_conf(image: &Root, path: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    let mut text = String::new();
    let read = image
        .file(path)
        .map(|file| file.take(CONF_BYTES).read_to_string(&mut text));
    if !matches!(read, Ok(Ok(_))) {
        return;
    }
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include ") {
            let directory = path.parent().unwrap_or(Path::new(""));
            for included in matching(image, &directory.join(pattern.trim())) {
                read_conf(image, &included, depth, found);
            }
        } else if !line.is_empty() {
            found.push(PathBuf::from(line));
        }
    }
}

/// The files of a pattern whose last component has at most one `*`, in their order by name: no image has another.
fn matching(image: &Root, pattern: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Vec::new();
    };
    let name = name.to_string_lossy();
    let Some((start, end)) = name.split_once('*') else {
        return vec![pattern.to_owned()];
    };
    let fits = |file: &str| {
        file.len() >= start.len() + end.len() && file.starts_with(start) && file.ends_with(end)
    };
    let entries = image
        .directory(directory)
        .and_then(|fd| rustix::fs::Dir::read_from(fd.as_fd()));
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
    let mut names: Vec<String> = names.filter(|name| fits(name)).collect();
    names.sort();
    names.iter().map(|name| directory.join(name)).collect()
}
