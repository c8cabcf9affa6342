//! Programs and libraries of an image, opened.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::elf::Elf;
use super::error::ExtractError;
use crate::unpack::tree::Root;

/// Opens a program or library of the image.
pub(super) fn open(image: &Root, path: &Path) -> Result<(File, Elf), ExtractError> {
    let file = image.file(path).map_err(|errno| ExtractError::NotFound {
        path: path.to_owned(),
        source: match errno {
            Errno::INVAL => io::Error::other("it is not a regular file"),
            errno => errno.into(),
        },
    })?;
    let elf = Elf::read(&file).map_err(|source| ExtractError::NoProgram {
        path: path.to_owned(),
        source,
    })?;
    Ok((file, elf))
}
