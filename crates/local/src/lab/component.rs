//! Processes of the lab: started in a pod, on given cores, with their last words kept.
#![expect(
    unsafe_code,
    reason = "a child must enter its namespace between fork and exec"
)]

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use meshtax_model::experiment::LoadPoint;
use meshtax_model::trial::ComponentRole;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns, unshare};
use nix::unistd::{Pid, chdir};

use super::netns::NetNs;

const KEPT_LINES: usize = 40;

/// By which way a request comes to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From a pod of the mesh.
    Pod,
    /// From outside, through the gateway.
    Ingress,
}

impl Way {
    /// At this load point.
    pub(crate) fn at(point: &LoadPoint) -> Self {
        match point.ingress {
            None => Self::Pod,
            Some(_) => Self::Ingress,
        }
    }
}

/// A process that belongs to a variant.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) role: ComponentRole,
    pub(crate) name: String,
    /// The first that runs in a server's pod: each pod has one.
    pub(crate) is_first_app: bool,
    /// By which way requests come through it; `None`: by each.
    pub(crate) way: Option<Way>,
    /// On which of the servers' nodes it stands, counted from 0; 0 as well if on none of them.
    pub(crate) server_node: u32,
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
}

impl Component {
    /// Starts a program in a pod. The calling thread must live as long as the lab: Envoy asks the
    /// kernel to be killed when the thread that started it ends.
    pub(crate) fn start(
        name: String,
        role: ComponentRole,
        mut command: Command,
        pod: &NetNs,
        cores: &[u32],
    ) -> io::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = spawn_in(&mut command, pod, cores)?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stderr) = child.stderr.take() {
            keep_last_lines(stderr, Arc::clone(&log));
        }
        Ok(Self {
            role,
            name,
            is_first_app: false,
            way: None,
            server_node: 0,
            child,
            log,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has the kernel end it, without waiting until it has: many then end at the same time.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// How it ended, with its last words; `None` while it runs.
    pub(crate) fn failure(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!(
                "{} {}{}",
                self.name,
                ending(status),
                self.last_words()
            )),
            Err(e) => Some(format!("{}: cannot tell whether it runs: {e}", self.name)),
        }
    }

    /// The first of its last lines from which this can be taken.
    pub(crate) fn find_logged<T>(&self, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.lines().iter().find_map(|line| wanted(line))
    }

    /// Its last lines, for an error message. A backtrace is not what tells.
    pub(crate) fn last_words(&self) -> String {
        let lines = self.lines();
        let told: Vec<_> = lines
            .iter()
            .take_while(|line| !line.to_lowercase().starts_with("stack backtrace"))
            .filter(|line| !line.trim().is_empty())
            .cloned()
            .collect();
        let shown = &told[told.len().saturating_sub(5)..];
        if shown.is_empty() {
            return String::new();
        }
        format!("; its last words: {}", shown.join(" | "))
    }

    fn lines(&self) -> VecDeque<String> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command in a pod's network namespace, on these cores.
pub(crate) fn spawn_in(command: &mut Command, pod: &NetNs, cores: &[u32]) -> io::Result<Child> {
    let descriptor = pod.raw();
    let mut set = CpuSet::new();
    for core in cores {
        let _ = set.set(*core as usize);
    }
    // SAFETY: two system calls on plain data that outlives the call; no allocation.
    unsafe {
        command.pre_exec(move || {
            let namespace = BorrowedFd::borrow_raw(descriptor);
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            sched_setaffinity(Pid::from_raw(0), &set)?;
            Ok(())
        });
    }
    command.spawn()
}

/// What there was before the lab's own file systems: where the user's own program finds its files.
#[derive(Debug)]
pub(crate) struct Outside {
    mounts: OwnedFd,
    directory: CString,
}

impl Outside {
    /// Keeps the calling thread's mounts and working directory, and goes on with a copy of the mounts.
    pub(crate) fn leave() -> io::Result<Self> {
        let mounts = File::open("/proc/self/ns/mnt")?.into();
        let directory = std::env::current_dir()?.into_os_string();
        let directory = CString::new(directory.into_vec()).map_err(io::Error::other)?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        Ok(Self { mounts, directory })
    }

    /// Has a command begin there.
    pub(crate) fn enter(&self, command: &mut Command) {
        let (mounts, directory) = (self.mounts.as_raw_fd(), self.directory.clone());
        // SAFETY: system calls on plain data that the closure owns, and on a descriptor that lives as
        // long as the lab; no allocation.
        unsafe {
            command.pre_exec(move || {
                setns(BorrowedFd::borrow_raw(mounts), CloneFlags::CLONE_NEWNS)?;
                // Going there has led to the root. A directory that is gone leaves it there.
                let _ = chdir(directory.as_c_str());
                Ok(())
            });
        }
    }
}

/// In words: `was killed by signal 9`, `exited with 1`.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

fn keep_last_lines(from: impl Read + Send + 'static, log: Arc<Mutex<VecDeque<String>>>) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).chars().take(300).collect();
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.len() == KEPT_LINES {
                log.pop_front();
            }
            log.push_back(line);
        }
    });
}
