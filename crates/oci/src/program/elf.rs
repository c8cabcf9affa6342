//! What a program or library says of the files it needs (System V ABI, chapter 5, *Dynamic Linking*).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use object::Endianness;
use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, FileHeader64, PT_LOAD, ProgramHeader64,
};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};

/// The header of a program, read before anything else of it.
type Header = FileHeader64<Endianness>;

/// Bytes of the string table. That of Envoy has less than one hundredth.
const STRINGS: u64 = 256 << 20;

/// Why a file is no program.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It is not in the format of 64-bit programs, or damaged.
    #[error("{0}")]
    Format(#[from] object::read::Error),
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It names its needs outside itself.
    #[error("its dynamic section is damaged")]
    Dynamic,
}

/// What a program or library needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Elf {
    /// The processor. Libraries for others are passed over.
    pub(super) machine: u16,
    /// The loader. Libraries and static programs have none.
    pub(super) interpreter: Option<PathBuf>,
    /// The names of libraries.
    pub(super) needed: Vec<OsString>,
    /// Where its libraries, and those of its libraries, are looked for first.
    pub(super) rpath: Vec<OsString>,
    /// Where its libraries are looked for first. With it, `rpath` is not used.
    pub(super) runpath: Vec<OsString>,
}

impl Elf {
    /// Reads the headers only: programs have hundreds of megabytes.
    pub(super) fn read(file: &File) -> Result<Self, ElfError> {
        let cache = ReadCache::new(file.try_clone()?);
        let data = &cache;
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, data)?;
        let mut elf = Self {
            machine: header.e_machine.get(endian),
            ..Self::default()
        };
        for segment in segments {
            if let Some(interpreter) = segment.interpreter(endian, data)? {
                elf.interpreter = Some(path_of(interpreter));
            }
            if let Some(entries) = segment.dynamic(endian, data)? {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|e| (e.d_tag(endian), e.d_val(endian)))
                    .collect();
                elf.read_dynamic(&entries, segments, endian, data)?;
            }
        }
        Ok(elf)
    }

    fn read_dynamic<'data>(
        &mut self,
        entries: &[(i64, u64)],
        segments: &[ProgramHeader64<Endianness>],
        endian: Endianness,
        data: impl ReadRef<'data>,
    ) -> Result<(), ElfError> {
        // What follows the end mark is no entry.
        let end = entries.iter().position(|(tag, _)| *tag == 0);
        let entries = &entries[..end.unwrap_or(entries.len())];
        let value = |wanted| {
            let mut entries = entries.iter();
            entries
                .find(|(tag, _)| *tag == wanted)
                .map(|(_, value)| *value)
        };
        let (Some(address), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
            return Ok(());
        };
        let offset = segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.p_vaddr(endian))?;
            let is_within = segment.p_type(endian) == PT_LOAD && within < segment.p_filesz(endian);
            is_within.then(|| segment.p_offset(endian).checked_add(within))?
        });
        let offset = offset.ok_or(ElfError::Dynamic)?;
        if size > STRINGS {
            return Err(ElfError::Dynamic);
        }
        let strings = data.read_bytes_at(offset, size);
        let strings = strings.map_err(|()| ElfError::Dynamic)?;
        for (tag, value) in entries {
            let text = || text_at(strings, *value).ok_or(ElfError::Dynamic);
            match *tag {
                DT_NEEDED => self.needed.push(OsStr::from_bytes(text()?).to_owned()),
                DT_RPATH => self.rpath = directories(text()?),
                DT_RUNPATH => self.runpath = directories(text()?),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The text that starts at an offset and ends with a zero byte.
fn text_at(strings: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(&rest[..end])
}

fn directories(text: &[u8]) -> Vec<OsString> {
    let parts = text
        .split(|byte| *byte == b':')
        .filter(|part| !part.is_empty());
    parts
        .map(|part| OsStr::from_bytes(part).to_owned())
        .collect()
}

/// A path of the image from the bytes in a program.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
