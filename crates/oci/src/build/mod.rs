//! Building: a program with what it needs becomes an image, without Docker.
//!
//! The image depends on nothing but the content of the files, their paths in it and the labels: the same program
//! becomes the same digest on another machine and another day.

mod archive;
mod documents;
mod error;
mod files;
mod layer;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use object::elf::{EM_AARCH64, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64};

use crate::digest::Digest;
use crate::manifest::Platform;
use crate::program::{LocalProgram, inspect};
use crate::reference::Reference;
use documents::Described;
pub use error::BuildError;
use files::Files;

/// Where an image's own program is, and what it starts.
pub const ENTRYPOINT: &str = "/meshtax";

/// What an image is made of: a program, and other files if there are any.
///
/// A program that is linked dynamically comes with its loader and libraries from this machine. The image also has an
/// empty `/tmp` that everyone may write to. It has no users, no certificate authorities and no shell.
#[derive(Debug, Clone)]
pub struct ImageBuilder {
    program: PathBuf,
    programs: Vec<(PathBuf, PathBuf)>,
    files: Vec<(PathBuf, PathBuf, u32)>,
    labels: BTreeMap<String, String>,
}

impl ImageBuilder {
    /// An image that starts this program.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            programs: Vec::new(),
            files: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Adds a label, such as `org.opencontainers.image.version`.
    #[must_use]
    pub fn with_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Adds another program, with its loader and libraries if it needs them, at an absolute path of the image.
    #[must_use]
    pub fn with_program(
        mut self,
        path_in_image: impl Into<PathBuf>,
        program: impl Into<PathBuf>,
    ) -> Self {
        self.programs.push((path_in_image.into(), program.into()));
        self
    }

    /// Adds a file as it is, at an absolute path of the image.
    #[must_use]
    pub fn with_file(
        mut self,
        path_in_image: impl Into<PathBuf>,
        file: impl Into<PathBuf>,
        mode: u32,
    ) -> Self {
        self.files.push((path_in_image.into(), file.into(), mode));
        self
    }

    /// Builds the image, in memory.
    ///
    /// # Errors
    /// If a file cannot be read, is no program although it should be one, or needs what this machine does not have; if
    /// two files have the same path.
    pub fn build(&self) -> Result<BuiltImage, BuildError> {
        let program = inspect(&self.program)?;
        let platform = platform(&self.program, &program)?;
        let mut files = Files::default();
        files.add_program(Path::new(ENTRYPOINT), &self.program, &program)?;
        for (at, path) in &self.programs {
            let other = inspect(path)?;
            check_platform(path, &other, &platform)?;
            files.add_program(at, path, &other)?;
        }
        for (at, path, mode) in &self.files {
            files.add(at, path, *mode)?;
        }
        let layer = layer::build(&files)?;
        let config = documents::config(&platform, ENTRYPOINT, &self.labels, layer.diff_id);
        let linkage = match &program.loader {
            None => Linkage::Static,
            Some(loader) => Linkage::Dynamic {
                loader: loader.clone(),
                libraries: program.libraries.len(),
            },
        };
        Ok(BuiltImage::new(platform, linkage, layer.bytes, config))
    }
}

/// What a program needs to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// Nothing.
    Static,
    /// A loader and libraries, which are in the image.
    Dynamic {
        /// The loader's path in the image.
        loader: PathBuf,
        /// How many libraries there are, those that others need among them.
        libraries: usize,
    },
}

/// An image that was built.
#[derive(Debug, Clone)]
pub struct BuiltImage {
    /// The digest of the manifest: what registries and clusters know the image by.
    pub digest: Digest,
    /// What its programs run on.
    pub platform: Platform,
    /// What its own program needs.
    pub linkage: Linkage,
    layer: Blob,
    config: Blob,
    manifest: Blob,
}

impl BuiltImage {
    fn new(platform: Platform, linkage: Linkage, layer: Vec<u8>, config: Vec<u8>) -> Self {
        let layer = Blob::new(documents::LAYER, layer);
        let config = Blob::new(documents::CONFIG, config);
        let manifest = documents::manifest(&config.described, &layer.described);
        let manifest = Blob::new(documents::MANIFEST, manifest);
        Self {
            digest: manifest.digest(),
            platform,
            linkage,
            layer,
            config,
            manifest,
        }
    }

    /// Bytes of the configuration and the layer, compressed.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        (self.config.bytes.len() + self.layer.bytes.len()) as u64
    }

    /// The archive's layer: a compressed archive of the files.
    #[must_use]
    pub fn layer(&self) -> &[u8] {
        &self.layer.bytes
    }

    /// What the manifest names, in the order in which a registry should get it.
    pub(crate) fn blobs(&self) -> [&Blob; 2] {
        [&self.layer, &self.config]
    }

    /// The manifest, with its media type.
    pub(crate) fn manifest(&self) -> (&'static str, &[u8]) {
        (documents::MANIFEST, &self.manifest.bytes)
    }

    /// Writes the image as an archive that `docker load`, `podman load` and `ctr images import` read, under this name.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write_archive(&self, name: &Reference, to: impl Write) -> io::Result<()> {
        let index = documents::index(&self.manifest.described, &self.platform, name);
        let list = documents::docker_list(&self.config.described, &self.layer.described, name);
        let mut files: BTreeMap<String, &[u8]> = BTreeMap::from([
            ("index.json".to_owned(), &*index),
            ("manifest.json".to_owned(), &*list),
            ("oci-layout".to_owned(), documents::LAYOUT),
        ]);
        for blob in [&self.layer, &self.config, &self.manifest] {
            files.insert(documents::blob_path(&blob.digest()), &blob.bytes);
        }
        archive::write(&files, to)
    }

    /// Writes the archive to a file, which is there as a whole or not at all.
    ///
    /// # Errors
    /// If the name has a digest, or the file cannot be written.
    pub fn save(&self, name: &Reference, path: &Path) -> Result<(), BuildError> {
        if name.digest().is_some() {
            return Err(BuildError::NameWithDigest {
                name: name.to_string(),
            });
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".partial-{}", std::process::id()));
        let partial = PathBuf::from(partial);
        let written = File::create(&partial)
            .and_then(|file| self.write_archive(name, BufWriter::new(file)))
            .and_then(|()| fs::rename(&partial, path));
        written.map_err(|source| {
            // The first error is the one to report.
            let _ = fs::remove_file(&partial);
            BuildError::Write {
                path: path.to_owned(),
                source,
            }
        })
    }
}

/// Content with its digest.
#[derive(Clone)]
pub(crate) struct Blob {
    described: Described,
    pub(crate) bytes: Vec<u8>,
}

/// Content is not for logs.
impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.described, f)
    }
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        Self {
            described: Described::new(media_type, &bytes),
            bytes,
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.described.digest
    }
}

/// Go's name of the processor that a program is for.
fn platform(path: &Path, program: &LocalProgram) -> Result<Platform, BuildError> {
    let architecture = match program.machine {
        EM_X86_64 => "amd64",
        EM_AARCH64 => "arm64",
        EM_RISCV => "riscv64",
        EM_PPC64 => "ppc64le",
        EM_S390 => "s390x",
        machine => {
            return Err(BuildError::Processor {
                path: path.to_owned(),
                machine,
            });
        }
    };
    Ok(Platform {
        os: "linux".to_owned(),
        architecture: architecture.to_owned(),
        variant: None,
    })
}

fn check_platform(
    path: &Path,
    program: &LocalProgram,
    wanted: &Platform,
) -> Result<(), BuildError> {
    let found = platform(path, program)?;
    if found == *wanted {
        return Ok(());
    }
    Err(BuildError::OtherProcessor {
        path: path.to_owned(),
        found: found.to_string(),
        wanted: wanted.to_string(),
    })
}

#[cfg(test)]
mod tests;
