//! The cache directory: `$XDG_CACHE_HOME/meshtax` or `~/.cache/meshtax`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use meshtax_model::catalogue::Program;
use tempfile::TempDir;

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

/// The prefix of the working directories in the cache.
const PARTIAL: &str = "partial-";

/// The file in a working directory that its owner keeps locked.
const OWNER: &str = "owner";

/// A working directory without a locked owner is abandoned if it is older than this: a new one is not locked yet.
const UNLOCKED_FOR: Duration = Duration::from_secs(60);

/// A working directory in the cache that is removed with its owner.
pub(crate) struct Partial {
    directory: TempDir,
    /// Locked until it is closed, however the process ends.
    _owner: File,
}

impl Partial {
    pub(crate) fn create(cache: &Path) -> Result<Self, ProgramError> {
        let create = || {
            let directory = tempfile::Builder::new().prefix(PARTIAL).tempdir_in(cache)?;
            let owner = File::create(directory.path().join(OWNER))?;
            owner.lock()?;
            fs::create_dir(directory.path().join("tmp"))?;
            Ok(Self {
                directory,
                _owner: owner,
            })
        };
        create().map_err(not_writable(cache))
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the working directories of processes that no longer run. Process ids would not tell: containers that share a
/// cache have their own.
fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let is_partial = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PARTIAL));
        if is_partial && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(directory: &Path) -> bool {
    let modified = fs::metadata(directory).and_then(|metadata| metadata.modified());
    let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNLOCKED_FOR));
    is_old && File::open(directory.join(OWNER)).is_ok_and(|owner| owner.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn abandoned_working_directories_are_removed_and_those_in_use_are_kept() {
        let cache = tempfile::tempdir().unwrap();
        let in_use = Partial::create(cache.path()).unwrap();
        let abandoned = cache.path().join("partial-1");
        fs::create_dir(&abandoned).unwrap();
        File::create(abandoned.join(OWNER)).unwrap();
        let just_created = cache.path().join("partial-2");
        fs::create_dir(&just_created).unwrap();
        File::create(just_created.join(OWNER)).unwrap();
        for directory in [in_use.path(), &abandoned] {
            let hour_ago = SystemTime::now() - Duration::from_secs(3600);
            File::open(directory)
                .unwrap()
                .set_modified(hour_ago)
                .unwrap();
        }
        remove_abandoned(cache.path());
        assert!(in_use.path().is_dir() && just_created.is_dir() && !abandoned.exists());
        let path = in_use.path().to_owned();
        drop(in_use);
        assert!(!path.exists());
    }
}
