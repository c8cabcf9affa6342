//! Starting the binary, waiting for it within bounds, and reading what it left.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_meshtax");

/// A user who owns nothing.
pub(crate) const NOBODY: u32 = 65534;

/// Longer than any run of these tests; what takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// Held by a test from its first line to its last.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that a check could not be made. Written past the capture of the test harness, which would
/// hide it as long as the test passes.
pub(crate) fn skipped(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {what}: {why}");
}

/// By which the product, and these tests, are given a ztunnel.
pub(crate) const ZTUNNEL: &str = "MESHTAX_ZTUNNEL";
/// By which the product, and these tests, are given a linkerd2-proxy.
pub(crate) const LINKERD_PROXY: &str = "MESHTAX_LINKERD_PROXY";

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory of one test, which goes with it. Everybody may look into it.
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

/// The binary with surroundings of the test's own: nothing of the user's settings, and temporary
/// files where the test can see them.
pub(crate) fn meshtax(scratch: &Scratch, arguments: &[&str]) -> Command {
    prepared(Command::new(BINARY), scratch, arguments)
}

pub(crate) fn prepared(mut command: Command, scratch: &Scratch, arguments: &[&str]) -> Command {
    command
        .args(arguments)
        .current_dir(scratch.path(""))
        .env("TMPDIR", scratch.path("tmp"))
        .env("NO_COLOR", "1")
        .env_remove("MESHTAX_ENVOY")
        .env_remove(ZTUNNEL)
        .env_remove(LINKERD_PROXY)
        .stdin(Stdio::null());
    command
}

/// A process that was started, with its output in files: a pipe would be kept open by whatever
/// outlives it, and reading it would hang where the test must see the survivor.
pub(crate) struct Running {
    child: Child,
    stdout: File,
    stderr: File,
    started: Instant,
}

/// What a process said, and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// As a shell shows it: 128 and the signal for one that was killed.
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
    pub(crate) fn said(&self) -> String {
        content(&self.stderr)
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("its own child").is_some()
    }

    /// Waits until this is true. Fails the test if the process ends before, or time runs out.
    pub(crate) fn wait_until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        while !is_true(self) {
            let waited = self.started.elapsed();
            assert!(!self.is_over(), "it ended before {what}: {}", self.said());
            assert!(
                waited < PATIENCE,
                "no {what} in {waited:?}: {}",
                self.said()
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
            assert!(waited < within, "no end after {waited:?}: {}", self.said());
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
        // Of a child that was waited for already this does nothing.
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

/// Read at given places, since reading moves the place at which the process goes on writing.
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
    /// Asserts the exit code and shows all output if it is another.
    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}\n{}", self.stderr, self.stdout);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// It ended in good order. Where tests run beside it, or are busy with it, its trials may not count
    /// for that reason, which it must then say.
    #[track_caller]
    pub(crate) fn expect_success_or_company(&self) -> &Self {
        let company = self.stdout.contains("another program used its cores");
        if company && self.code == 13 {
            return self;
        }
        self.expect_an_answer()
    }

    /// It ended with an answer, of a run with `--json`. It may have none only if, of its trials that do not count,
    /// the hypervisor disturbed more than everything else did.
    #[track_caller]
    pub(crate) fn expect_an_answer(&self) -> &Self {
        if self.code == 13 && self.was_taken_away() {
            skipped(
                "the answer of a run",
                "the hypervisor took the machine away",
            );
            return self;
        }
        self.expect_code(0)
    }

    /// Of the trials that do not count, the hypervisor disturbed more than everything else did.
    pub(crate) fn was_taken_away(&self) -> bool {
        let analysis: Value = serde_json::from_str(&self.stdout).unwrap_or_default();
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let points = items(&analysis["variants"]);
        let points = points.iter().flat_map(|variant| items(&variant["points"]));
        let (mut taken, mut invalid) = (0, 0);
        for point in points {
            taken += taken_away(&point);
            let all = point["invalid"].as_object().into_iter().flatten();
            invalid += all.filter_map(|(_, count)| count.as_u64()).sum::<u64>();
        }
        taken * 2 > invalid
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

/// A copy of the Envoy that the product finds or brings, by which its processes can be told from
/// those of others on this machine. `None` where there is none to be had.
pub(crate) fn envoy() -> Option<&'static Path> {
    static ENVOY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let bring = || {
        let got = Command::new(BINARY)
            .args(["dataplanes", "get", "envoy"])
            .stdin(Stdio::null())
            .output()
            .expect("the binary under test");
        if !got.status.success() {
            let why = String::from_utf8_lossy(&got.stderr);
            skipped("all that needs the real Envoy", why.trim());
            return None;
        }
        let said = String::from_utf8_lossy(&got.stdout).into_owned();
        let (_, path) = said.trim().rsplit_once("): ").expect("a path at the end");
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("envoy-of-these-tests");
        copy_program(Path::new(path), &copy);
        Some(copy)
    };
    ENVOY.get_or_init(bring).as_deref()
}

/// The user's own binary of a real proxy, by the variable by which the product is given it. There is
/// no registry to bring it from: without one, what needs it is skipped.
pub(crate) fn given(variable: &str, what: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        skipped(what, &format!("{variable} names no binary"));
    }
    path
}

/// Put in place whole: a program that runs cannot be written over.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let partial = to.with_extension(format!("partial-{}", std::process::id()));
    fs::copy(from, &partial).expect("room for a copy of a program");
    open_to_all(&partial);
    fs::rename(&partial, to).expect("a name for the copy");
}

/// Of a run on disk: see [`Finished::was_taken_away`].
pub(crate) fn run_was_taken_away(scratch: &Scratch, run: &Path) -> bool {
    let run = run.to_str().expect("a path in UTF-8");
    finish(meshtax(scratch, &["report", run, "--format", "json"])).was_taken_away()
}

/// Asserts that at least so many trials of a point were measured as planned. What the hypervisor or another program took
/// away was; false, and said, if they took so much that there are no figures.
#[track_caller]
pub(crate) fn is_measured(point: &Value, least: u64, what: &str) -> bool {
    let valid = point["valid"].as_u64().unwrap_or(0);
    let company = &point["invalid"]["another program used its cores"];
    let taken = taken_away(point) + company.as_u64().unwrap_or(0);
    assert!(valid + taken >= least.max(1), "{what}: {point:#}");
    if valid == 0 {
        skipped(
            &format!("figures of {what}"),
            "the hypervisor, or another program, took the machine away",
        );
    }
    valid > 0
}

/// Trials of a point that do not count only because the hypervisor gave the machine to others: they were
/// measured as planned, and no test can help it.
pub(crate) fn taken_away(point: &Value) -> u64 {
    let invalid = point["invalid"].as_object().into_iter().flatten();
    let taken = invalid.filter(|(why, _)| why.starts_with("the hypervisor"));
    taken.filter_map(|(_, count)| count.as_u64()).sum()
}
