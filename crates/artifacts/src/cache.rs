//! The cache directory: `$XDG_CACHE_HOME/meshtax` or `~/.cache/meshtax`.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use meshtax_model::catalogue::Program;

use crate::error::ProgramError;

/// The path of the cache; `None` without `HOME` and `XDG_CACHE_HOME`.
pub(crate) fn directory() -> Option<PathBuf> {
    base_directory("XDG_CACHE_HOME", ".cache")
}

/// meshtax's directory below the one that a variable of the XDG base directory specification names.
pub(crate) fn base_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = set(variable).or_else(|| Some(set("HOME")?.join(below_home)))?;
    Some(base.join("meshtax"))
}

/// The cache, created if needed, without what killed processes left in it.
pub(crate) fn writable() -> Result<PathBuf, ProgramError> {
    let cache = directory().ok_or(ProgramError::NoCache)?;
    fs::create_dir_all(&cache).map_err(not_writable(&cache))?;
    remove_abandoned(&cache);
    Ok(cache)
}

pub(crate) fn not_writable(path: &Path) -> impl FnOnce(io::Error) -> ProgramError {
    move |source| ProgramError::CacheNotWritable {
        path: path.to_owned(),
        source,
    }
}

/// The file name of the user's own copy of a program.
pub(crate) fn kept_name(program: Program) -> String {
    format!("{}-own-{}", program.name(), env::consts::ARCH)
}

/// A working directory in the cache that is removed with its owner.
pub(crate) struct Partial(pub(crate) PathBuf);

impl Partial {
    pub(crate) fn create(cache: &Path) -> Result<Self, ProgramError> {
        let path = cache.join(format!("partial-{}", std::process::id()));
        fs::create_dir_all(path.join("tmp")).map_err(not_writable(cache))?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the working directories of processes that no longer run.
fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|n| n.strip_prefix("partial-")?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
