//! Starts the binary, waits for it with a timeout, and reads its output and files.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::outcome::{has_every_point, is_without_result_by_the_machine};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_meshtax");

/// An unprivileged user.
pub(crate) const NOBODY: u32 = 65534;

/// Longer than any run of these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// The machine's cores and all else that its processes share.
static MACHINE: RwLock<()> = RwLock::new(());

/// For tests that assert figures or durations, or compare the whole machine before and after; held for the whole test.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that assert evidence, errors or text only: runs are isolated from each other, and spend much of their time
/// waiting for responses that never come. Held for the whole test.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// How often a command is run for its figures.
const TRIES: u32 = 3;

/// Runs a command, each time in a new directory, until its figures are there, but at most three times. Returns the last
/// result, on which the test asserts them: one disturbance can invalidate a trial, a defect does so every time.
pub(crate) fn until_measured<T>(
    run: impl Fn(&Scratch) -> T,
    is_measured: impl Fn(&Scratch, &T) -> bool,
) -> (Scratch, T) {
    let mut number = 1;
    loop {
        let scratch = Scratch::new();
        let result = run(&scratch);
        if number == TRIES || is_measured(&scratch, &result) {
            return (scratch, result);
        }
        number += 1;
        let _ = writeln!(io::stderr(), "REPEATED: a run without all figures");
    }
}

/// Reports a skipped check. Bypasses the test harness's capture, which would hide it while the test passes.
pub(crate) fn skipped(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {what}: {why}");
}

/// Reports a step that is done a second time, as [`skipped`] does.
pub(crate) fn repeated(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "REPEATED: {what}: {why}");
}

/// The environment variable with the path of a ztunnel, for the product and these tests.
pub(crate) const ZTUNNEL: &str = "MESHTAX_ZTUNNEL";
/// The environment variable with the path of a linkerd2-proxy, for the product and these tests.
pub(crate) const LINKERD_PROXY: &str = "MESHTAX_LINKERD_PROXY";
/// The environment variable with the path of Istio's build of Envoy, for the product and these tests.
pub(crate) const ISTIO_PROXY: &str = "MESHTAX_ISTIO_PROXY";

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A temporary directory of one test, readable by all users.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        let directory = TempDir::with_prefix("e2e-").expect("a temporary directory");
        open_to_all(directory.path());
        let this = Self(directory);
        fs::create_dir(this.path("tmp")).expect("a directory for temporary files");
        this
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file of the test");
        path
    }
}

pub(crate) fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// The binary in a clean environment: no user settings, and temporary files inside the scratch directory.
pub(crate) fn meshtax(scratch: &Scratch, arguments: &[&str]) -> Command {
    prepared(Command::new(BINARY), scratch, arguments)
}

pub(crate) fn prepared(mut command: Command, scratch: &Scratch, arguments: &[&str]) -> Command {
    command
        .args(arguments)
        .current_dir(scratch.path(""))
        .env("TMPDIR", scratch.path("tmp"))
        .env("XDG_STATE_HOME", scratch.path("state"))
        .env("NO_COLOR", "1")
        .env_remove("MESHTAX_ENVOY")
        .env_remove(ZTUNNEL)
        .env_remove(LINKERD_PROXY)
        .env_remove(ISTIO_PROXY)
        .stdin(Stdio::null());
    command
}

/// A started process with its output in files: a pipe would stay open if a descendant outlived it, and reading it
/// would hang.
pub(crate) struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    started: Instant,
}

/// Output and exit code of a process.
#[derive(Debug)]
pub(crate) struct Finished {
    /// As in a shell: 128 plus the signal for a killed process.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let file = || tempfile::tempfile().expect("a file for output");
        let (stdout, stderr) = (file(), file());
        let given = |file: &File| Stdio::from(file.try_clone().expect("a second descriptor"));
        let child = command
            .stdout(given(&stdout))
            .stderr(given(&stderr))
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?} cannot be started: {e}"));
        Self {
            child,
            stdout,
            stderr,
            started: Instant::now(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard error so far.
    pub(crate) fn stderr_text(&self) -> String {
        content(&self.stderr)
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("its own child").is_some()
    }

    /// Waits until this is true. Fails the test if the process exits first, or after [`PATIENCE`].
    pub(crate) fn wait_until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        while !is_true(self) {
            let waited = self.started.elapsed();
            assert!(
                !self.is_over(),
                "it exited before {what}: {}",
                self.stderr_text()
            );
            assert!(
                waited < PATIENCE,
                "no {what} in {waited:?}: {}",
                self.stderr_text()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn finish(mut self, within: Duration) -> Finished {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its own child") {
                break status;
            }
            let waited = self.started.elapsed();
            assert!(
                waited < within,
                "no end after {waited:?}: {}",
                self.stderr_text()
            );
            thread::sleep(Duration::from_millis(5));
        };
        Finished {
            code: as_in_a_shell(status),
            stdout: content(&self.stdout),
            stderr: content(&self.stderr),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // No effect on a child that was already waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn as_in_a_shell(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .expect("it ended in some way")
}

/// Reads with offsets, because the file position is shared with the writing process.
fn content(file: &File) -> String {
    let length = file.metadata().expect("an open file").len();
    let mut bytes = vec![0; usize::try_from(length).expect("a small file")];
    let read = file.read_at(&mut bytes, 0).expect("output that is kept");
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn finish(command: Command) -> Finished {
    Running::start(command).finish(PATIENCE)
}

impl Finished {
    /// Asserts the exit code, and shows all output otherwise, errors last.
    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Self {
        self.expect_code_of(&[code])
    }

    /// Asserts that a run was completed, with intervals or without (13).
    #[track_caller]
    pub(crate) fn expect_completed(&self) -> &Self {
        self.expect_code_of(&[0, 13])
    }

    #[track_caller]
    fn expect_code_of(&self, codes: &[i32]) -> &Self {
        let Self {
            code,
            stdout,
            stderr,
        } = self;
        assert!(
            codes.contains(code),
            "{stdout}\n{stderr}\nexit code {code}, expected {codes:?}"
        );
        assert!(!stderr.contains("panicked"), "{stderr}");
        self
    }

    /// Asserts that a run with `--json` has a result. It may have none (13) only where the trials for it were taken, and
    /// the machine disturbed so many of them that none can be left.
    #[track_caller]
    pub(crate) fn expect_success_or_busy_cores(&self) -> &Self {
        if self.code == 13 && is_without_result_by_the_machine(&self.json()) {
            return self;
        }
        self.expect_code(0)
    }

    /// Whether this is the JSON report of a run with a result, in which every point of the measured variants has a valid
    /// trial.
    pub(crate) fn is_measured(&self) -> bool {
        self.code == 0 && self.has_every_point()
    }

    /// As [`Self::is_measured`], for runs that are too short for intervals.
    pub(crate) fn has_every_point(&self) -> bool {
        serde_json::from_str(&self.stdout).is_ok_and(|analysis| has_every_point(&analysis))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{e} in {}\n{}", self.stdout, self.stderr))
    }
}

/// The records of a `.jsonl` file; none if it is not there yet.
pub(crate) fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}")))
        .collect()
}

pub(crate) fn manifest(run: &Path) -> Value {
    let text = fs::read_to_string(run.join("manifest.json")).expect("a manifest");
    serde_json::from_str(&text).expect("a manifest in JSON")
}

/// A copy of the Envoy that the product finds or downloads; its path distinguishes its processes from others on this
/// machine. `None` if Envoy is not available.
pub(crate) fn envoy() -> Option<&'static Path> {
    static ENVOY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let copy = || {
        let got = Command::new(BINARY)
            .args(["dataplanes", "get", "envoy"])
            .stdin(Stdio::null())
            .output()
            .expect("the binary under test");
        if !got.status.success() {
            let why = String::from_utf8_lossy(&got.stderr);
            skipped("everything that needs Envoy", why.trim());
            return None;
        }
        let text = String::from_utf8_lossy(&got.stdout).into_owned();
        let (_, path) = text.trim().rsplit_once("): ").expect("a path at the end");
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("envoy-of-these-tests");
        copy_program(Path::new(path), &copy);
        Some(copy)
    };
    ENVOY.get_or_init(copy).as_deref()
}

/// The user's own binary of a proxy, from an environment variable. No registry has it: without one, tests that need it
/// are skipped.
pub(crate) fn given(variable: &str, what: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        skipped(what, &format!("{variable} names no binary"));
    }
    path
}

/// Copies atomically: a running program cannot be overwritten.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let partial = to.with_extension(format!("partial-{}", std::process::id()));
    fs::copy(from, &partial).expect("room for a copy of a program");
    open_to_all(&partial);
    fs::rename(&partial, to).expect("a name for the copy");
}
