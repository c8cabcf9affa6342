//! A file that grows by whole lines.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use serde::Serialize;
use serde::de::IgnoredAny;

use crate::StoreError;

/// A file that grows by whole lines.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(crate) fn create(path: PathBuf) -> Result<Self, StoreError> {
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(e) => Err(StoreError::write(path, e)),
        }
    }

    /// Opens a file that was written before.
    pub(crate) fn open(path: PathBuf) -> Result<Self, StoreError> {
        let file = OpenOptions::new().read(true).append(true).open(&path);
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(e) => Err(StoreError::write(path, e)),
        }
    }

    /// Whether this process alone may write from now on, until it ends or drops this. Where the file system has no locks,
    /// any process may.
    pub(crate) fn try_lock(&self) -> bool {
        !matches!(self.file.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Removes what a kill left of the last line, so that the next one begins on a line of its own. A whole record
    /// without its end gets it: it is read.
    pub(crate) fn repair(&mut self) -> Result<(), StoreError> {
        repair(&mut self.file).map_err(|e| StoreError::write(&self.path, e))
    }

    pub(crate) fn append(&mut self, record: &impl Serialize) -> Result<(), StoreError> {
        let mut line = serde_json::to_vec(record).unwrap_or_else(|e| {
            unreachable!("records have string keys and no failing serialiser: {e}")
        });
        line.push(b'\n');
        // One write for the whole line: a kill between two writes would tear it.
        self.file
            .write_all(&line)
            .map_err(|e| StoreError::write(&self.path, e))
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.file
            .sync_data()
            .map_err(|e| StoreError::write(&self.path, e))
    }
}

fn repair(file: &mut File) -> io::Result<()> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    let whole = whole.map_or(0, |end| end + 1);
    let rest = &bytes[whole..];
    if rest.is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<IgnoredAny>(rest) {
        Ok(_) => file.write_all(b"\n")?,
        Err(_) => file.set_len(whole as u64)?,
    }
    file.sync_all()
}
