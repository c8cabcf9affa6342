//! The lock file: the digest of each download, recorded when it is first made. Later downloads and cached files must have
//! the same digest. Nobody ships digests that nobody could check, so the first download is trusted.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::cache::base_directory;
use crate::error::ProgramError;

const FILE: &str = "programs.lock.json";

/// `$XDG_STATE_HOME/meshtax/programs.lock.json` or `~/.local/state/meshtax/programs.lock.json`: emptying the cache does not
/// remove it.
fn path() -> Result<PathBuf, ProgramError> {
    let base = base_directory("XDG_STATE_HOME", ".local/state").ok_or(ProgramError::NoCache)?;
    Ok(base.join(FILE))
}

/// Its content: `envoy 1.36.4 x86_64` -> digest.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    programs: BTreeMap<String, String>,
}

/// The name under which a build is recorded.
pub(crate) fn entry(program: &str, version: &str) -> String {
    format!("{program} {version} {}", env::consts::ARCH)
}

/// The recorded digest.
///
/// # Errors
/// If the file is damaged.
pub(crate) fn recorded(entry: &str) -> Result<Option<String>, ProgramError> {
    let path = path()?;
    let content = read(&path).map_err(unusable(&path))?;
    Ok(content.programs.get(entry).cloned())
}

/// Compares a digest with the recorded one, or records it.
///
/// # Errors
/// If another digest is recorded, or the file cannot be used.
pub(crate) fn verify_or_record(entry: &str, digest: &str) -> Result<(), ProgramError> {
    let path = path()?;
    let known = exchange(&path, entry, digest).map_err(unusable(&path))?;
    match known {
        Some(known) if known != digest => Err(ProgramError::DigestChanged {
            entry: entry.to_owned(),
            recorded: known,
            found: digest.to_owned(),
            lock_file: path,
        }),
        _ => Ok(()),
    }
}

/// Returns what is recorded; if nothing is, records `digest`. Two processes may do this at once, and a full disk or a kill
/// leaves the file as it was.
fn exchange(path: &Path, entry: &str, digest: &str) -> io::Result<Option<String>> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    // The file itself is replaced, so the directory is locked.
    let directory_lock = File::open(directory)?;
    directory_lock.lock()?;
    let mut content = read(path)?;
    if let Some(known) = content.programs.get(entry) {
        return Ok(Some(known.clone()));
    }
    content.programs.insert(entry.to_owned(), digest.to_owned());
    let text = serde_json::to_string_pretty(&content).map_err(io::Error::other)?;
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(None)
}

fn read(path: &Path) -> io::Result<Content> {
    match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Content::default()),
        read => parse(&read?),
    }
}

fn parse(bytes: &[u8]) -> io::Result<Content> {
    serde_json::from_slice(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> ProgramError {
    move |source| ProgramError::LockUnusable {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_recorded_at_the_same_time_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || exchange(path, &format!("envoy {number} x"), "aa").unwrap());
            }
        });
        assert_eq!(read(&path).unwrap().programs.len(), 8);
        // No temporary file is left.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn first_digest_is_recorded_and_a_damaged_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a").join(FILE);
        assert_eq!(exchange(&path, "envoy 1 x", "aa").unwrap(), None);
        assert_eq!(
            exchange(&path, "envoy 1 x", "bb").unwrap().as_deref(),
            Some("aa")
        );
        assert_eq!(exchange(&path, "envoy 2 x", "bb").unwrap(), None);
        fs::write(&path, "{").unwrap();
        assert!(exchange(&path, "envoy 2 x", "bb").is_err());
    }
}
