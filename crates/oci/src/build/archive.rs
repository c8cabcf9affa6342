//! An image as an archive: an OCI image layout, which Docker loads, too.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use tar::{Builder, EntryType};

use super::layer::{add_directory, header};

const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Writes files by their paths, with the directories above them.
pub(super) fn write(files: &BTreeMap<String, &[u8]>, to: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(to);
    for directory in ["blobs", "blobs/sha256"] {
        add_directory(&mut archive, Path::new(directory), DIRECTORY_MODE)?;
    }
    for (path, bytes) in files {
        let mut header = header(EntryType::Regular, FILE_MODE, bytes.len() as u64);
        archive.append_data(&mut header, path, *bytes)?;
    }
    archive.into_inner()?.flush()
}
