//! The lock file: the digest of each download, recorded when it is first made. Later downloads and cached files must have
//! the same digest. Nobody ships digests that nobody could check, so the first download is trusted.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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
    let content = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read
            .and_then(|bytes| parse(&bytes))
            .map_err(unusable(&path))?,
    };
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

/// Returns what is recorded; if nothing is, records `digest`. Two processes may do this at once.
fn exchange(path: &Path, entry: &str, digest: &str) -> io::Result<Option<String>> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    let mut options = OpenOptions::new();
    let mut file: File = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.lock()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut content = match bytes.is_empty() {
        true => Content::default(),
        false => parse(&bytes)?,
    };
    if let Some(known) = content.programs.get(entry) {
        return Ok(Some(known.clone()));
    }
    content.programs.insert(entry.to_owned(), digest.to_owned());
    let text = serde_json::to_string_pretty(&content).map_err(io::Error::other)?;
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(None)
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
    fn first_digest_is_recorded_and_a_damaged_file_is_an_error() {
        let directory = env::temp_dir().join(format!("meshtax-lock-{}", std::process::id()));
        let path = directory.join("a").join(FILE);
        assert_eq!(exchange(&path, "envoy 1 x", "aa").unwrap(), None);
        assert_eq!(
            exchange(&path, "envoy 1 x", "bb").unwrap().as_deref(),
            Some("aa")
        );
        assert_eq!(exchange(&path, "envoy 2 x", "bb").unwrap(), None);
        fs::write(&path, "{").unwrap();
        assert!(exchange(&path, "envoy 2 x", "bb").is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
