//! Processes of the lab: started in a pod, on given cores, with their last log lines kept.
#![expect(
    unsafe_code,
    reason = "a child must enter its namespace between fork and exec"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use meshtax_model::experiment::LoadPoint;
use meshtax_model::failure::{ComponentEnding, ComponentFailure};
use meshtax_model::trial::ComponentRole;
use meshtax_observe::Limited;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns, unshare};
use nix::unistd::{Pid, chdir};

use super::netns::NetNs;
use crate::cgroups::ProxyCgroup;

const KEPT_LINES: usize = 40;

/// The source of a trial's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficSource {
    /// A pod of the mesh.
    Pod,
    /// Clients outside the mesh, through the gateway.
    Ingress,
}

impl TrafficSource {
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
    /// The first process of an entry point's pod: each pod has one.
    pub(crate) is_first_app: bool,
    /// The source of the requests that pass it; `None`: any.
    pub(crate) source: Option<TrafficSource>,
    /// Index of its node in the run's environment.
    pub(crate) node: u32,
    child: RefCell<Child>,
    log: Arc<Mutex<VecDeque<String>>>,
    /// Its limits, which its process joined when it started; `None`: it has none.
    pub(crate) cgroup: Option<ProxyCgroup>,
}

impl Component {
    /// Where the counters of its limits are.
    pub(crate) fn limited(&self) -> Limited {
        let cgroup = self.cgroup.as_ref();
        cgroup.map(ProxyCgroup::limited).unwrap_or_default()
    }

    /// Its environment variables, as the kernel has them; empty once it has ended.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let path = format!("/proc/{}/environ", self.child.borrow().id());
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.split('\0')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Starts a program in a pod. The calling thread must live as long as the lab: Envoy has
    /// the kernel kill it when the thread that started it ends.
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
            source: None,
            node: 0,
            child: RefCell::new(child),
            log,
            cgroup: None,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.borrow().id()
    }

    /// Kills it without waiting for its end, so that many end at the same time.
    pub(crate) fn kill(&self) {
        let _ = self.child.borrow_mut().kill();
    }

    /// How it ended, with its last output; `None` while it runs.
    pub(crate) fn failure(&self) -> Option<ComponentFailure> {
        let ending = match self.child.borrow_mut().try_wait() {
            Ok(None) => return None,
            // The kernel's killer sends the same signal as anybody else.
            Ok(Some(status)) => match component_ending(status) {
                ComponentEnding::Killed { .. } if self.limited().memory_kills() > 0 => {
                    ComponentEnding::OutOfMemory
                }
                ending => ending,
            },
            Err(e) => ComponentEnding::Unknown {
                detail: e.to_string(),
            },
        };
        Some(ComponentFailure {
            component: self.name.clone(),
            role: Some(self.role),
            ending,
            last_output: self.last_output(),
        })
    }

    /// Its last lines, without a backtrace.
    pub(crate) fn last_output(&self) -> Vec<String> {
        let lines: Vec<String> = self
            .lines()
            .into_iter()
            .take_while(|line| !line.to_lowercase().starts_with("stack backtrace"))
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(5)..].to_vec()
    }

    /// Its last lines.
    pub(crate) fn lines(&self) -> VecDeque<String> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let mut child = self.child.borrow_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Starts a command in a pod's network namespace, on these cores.
pub(crate) fn spawn_in(command: &mut Command, pod: &NetNs, cores: &[u32]) -> io::Result<Child> {
    let descriptor = pod.raw();
    let set = core_set(cores);
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

/// Lets the calling thread, and what it starts, run on these cores only.
pub(crate) fn stay_on(cores: &[u32]) -> nix::Result<()> {
    sched_setaffinity(Pid::from_raw(0), &core_set(cores))
}

fn core_set(cores: &[u32]) -> CpuSet {
    let mut set = CpuSet::new();
    for core in cores {
        let _ = set.set(*core as usize);
    }
    set
}

/// A subcommand of this binary, as a separate process.
pub(crate) fn own_program(name: &str, arguments: &[String]) -> Command {
    // Under this path it is found even if its own path is hidden by the lab's file systems.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("meshtax")
        .arg("internal")
        .arg(name)
        .args(arguments);
    command
}

/// The host's mounts, before the lab's own file systems: there the user's own program finds its files.
#[derive(Debug)]
pub(crate) struct HostMounts {
    mounts: OwnedFd,
    directory: CString,
}

impl HostMounts {
    /// Keeps the calling thread's mounts and working directory, and continues with a copy of the mounts.
    pub(crate) fn leave() -> io::Result<Self> {
        let mounts = File::open("/proc/self/ns/mnt")?.into();
        let directory = std::env::current_dir()?.into_os_string();
        let directory = CString::new(directory.into_vec()).map_err(io::Error::other)?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        Ok(Self { mounts, directory })
    }

    /// Starts a command there.
    pub(crate) fn enter(&self, command: &mut Command) {
        let (mounts, directory) = (self.mounts.as_raw_fd(), self.directory.clone());
        // SAFETY: system calls on plain data that the closure owns, and on a descriptor that lives as
        // long as the lab; no allocation.
        unsafe {
            command.pre_exec(move || {
                setns(BorrowedFd::borrow_raw(mounts), CloneFlags::CLONE_NEWNS)?;
                // `setns` changed to the root directory. It stays there if the directory no longer exists.
                let _ = chdir(directory.as_c_str());
                Ok(())
            });
        }
    }
}

fn component_ending(status: ExitStatus) -> ComponentEnding {
    match (status.code(), status.signal()) {
        (Some(code), _) => ComponentEnding::Exited { code },
        (None, Some(signal)) => ComponentEnding::Killed { signal },
        (None, None) => ComponentEnding::Ended,
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
