//! Cgroups with limits on CPU and memory: one for each limited proxy, within one of the run.
//!
//! The engine makes the run's, since it must tell what the machine permits before anything starts; the lab makes one in it for
//! each proxy. Namespaces do not remove cgroups: whichever of the two processes outlives the other does. Both hold a lock
//! on the run's, by which a later run recognises one that is left over because both were killed at once.
#![expect(
    unsafe_code,
    reason = "a child must enter its cgroup between fork and exec, so that all of its memory and threads count"
)]

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_model::pods::Quantities;
use meshtax_observe::Limited;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The period over which the kernel grants CPU, in microseconds: its default, and Kubernetes'.
const PERIOD_US: u64 = 100_000;

/// How long removing the cgroups of a run may take: the kernel ends their processes meanwhile.
pub(crate) const REMOVED_WITHIN: Duration = Duration::from_secs(2);

/// What the kernel refused to do with a cgroup.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitError {
    #[error("no mounted cgroup hierarchy has the controller `{0}`")]
    NoController(&'static str),
    #[error("cannot {action} {path}: {source}")]
    Refused {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// The same, of a file or directory.
pub(crate) fn refused(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> LimitError + use<> {
    let path = path.to_owned();
    move |source| LimitError::Refused {
        action,
        path,
        source,
    }
}

/// Marks a directory as in use for as long as the file is open.
pub(crate) fn lock(directory: &Path) -> Result<File, LimitError> {
    let locked = File::open(directory).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(file)
    });
    locked.map_err(refused("lock", directory))
}

/// A cgroup in the hierarchy of one controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CgroupDirectory {
    pub(crate) directory: PathBuf,
    pub(crate) version_2: bool,
}

impl CgroupDirectory {
    fn below(&self, name: &str) -> Self {
        Self {
            directory: self.directory.join(name),
            version_2: self.version_2,
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<(), LimitError> {
        let path = self.directory.join(file);
        fs::write(&path, text).map_err(refused("write to", &path))
    }
}

/// A cgroup: one directory in the hierarchy of each controller that is needed. With version 2 they are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CgroupDirectories {
    pub(crate) cpu: Option<CgroupDirectory>,
    pub(crate) memory: Option<CgroupDirectory>,
}

impl CgroupDirectories {
    /// Each directory once.
    pub(crate) fn directories(&self) -> Vec<&Path> {
        let all = self.cpu.iter().chain(&self.memory);
        let mut all: Vec<&Path> = all.map(|place| place.directory.as_path()).collect();
        all.dedup();
        all
    }

    fn below(&self, name: &str) -> Self {
        Self {
            cpu: self.cpu.as_ref().map(|place| place.below(name)),
            memory: self.memory.as_ref().map(|place| place.below(name)),
        }
    }

    /// Puts these limits in force.
    pub(crate) fn limit(&self, limits: &Quantities) -> Result<(), LimitError> {
        if let Some((place, millis)) = self.cpu.as_ref().zip(limits.cpu_millis) {
            limit_cpu(place, millis)?;
        }
        if let Some((place, bytes)) = self.memory.as_ref().zip(limits.memory_bytes) {
            limit_memory(place, bytes)?;
        }
        Ok(())
    }

    /// Marks it as in use for as long as the files are open.
    pub(crate) fn lock(&self) -> Result<Vec<File>, LimitError> {
        self.directories().into_iter().map(lock).collect()
    }

    /// Kills what is in the cgroups below it.
    pub(crate) fn kill(&self) {
        for directory in self.directories().into_iter().flat_map(children) {
            let listed = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            let pids = listed.lines().filter_map(|line| line.parse().ok());
            // 0 is of another PID namespace, and as a target it is the caller's own group.
            for pid in pids.filter(|pid: &i32| *pid > 0) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    /// Removes it and those below it; `false`: one still has processes.
    pub(crate) fn remove(&self, within: Duration) -> bool {
        const PAUSE: Duration = Duration::from_millis(2);
        let until = Instant::now() + within;
        loop {
            let directories = self.directories().into_iter();
            if directories.filter(|path| !remove_tree(path)).count() == 0 {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// CPU as a quota per period.
fn limit_cpu(place: &CgroupDirectory, millis: u64) -> Result<(), LimitError> {
    let quota_us = millis.saturating_mul(PERIOD_US) / 1000;
    if place.version_2 {
        return place.write("cpu.max", &format!("{quota_us} {PERIOD_US}"));
    }
    place.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
    place.write("cpu.cfs_quota_us", &quota_us.to_string())
}

/// Memory, without swap beyond it: a kubelet grants none either.
fn limit_memory(place: &CgroupDirectory, bytes: u64) -> Result<(), LimitError> {
    let (limit, swap, swap_limit) = match place.version_2 {
        true => ("memory.max", "memory.swap.max", 0),
        false => (
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            bytes,
        ),
    };
    place.write(limit, &bytes.to_string())?;
    // A kernel that does not account for swap has no such file.
    match place.directory.join(swap).exists() {
        true => place.write(swap, &swap_limit.to_string()),
        false => Ok(()),
    }
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

/// Whether it is gone.
pub(crate) fn remove_tree(directory: &Path) -> bool {
    for child in children(directory) {
        let _ = fs::remove_dir(child);
    }
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    }
}

/// The cgroup of one proxy; removed when it is dropped, for which its process must have ended.
#[derive(Debug)]
pub(crate) struct ProxyCgroup {
    places: CgroupDirectories,
    /// The files by which a process joins.
    members: Vec<File>,
}

impl ProxyCgroup {
    /// Makes an empty one within that of the run, without limits.
    pub(crate) fn make(run: &CgroupDirectories, name: &str) -> Result<Self, LimitError> {
        let mut this = Self {
            places: run.below(name),
            members: Vec::new(),
        };
        for directory in this.places.clone().directories() {
            fs::create_dir(directory).map_err(refused("create", directory))?;
            let path = directory.join("cgroup.procs");
            let file = File::options().write(true).open(&path);
            this.members.push(file.map_err(refused("open", &path))?);
        }
        Ok(this)
    }

    /// Puts these limits in force.
    pub(crate) fn limit(&self, limits: &Quantities) -> Result<(), LimitError> {
        self.places.limit(limits)
    }

    /// Has a command join it when it starts.
    pub(crate) fn admit(&self, command: &mut Command) -> io::Result<()> {
        let members = self.members.iter().map(File::try_clone);
        let members: Vec<File> = members.collect::<io::Result<_>>()?;
        // SAFETY: system calls on descriptors that the closure owns; no allocation.
        unsafe {
            command.pre_exec(move || {
                // The process that writes.
                members.iter().try_for_each(|mut file| file.write_all(b"0"))
            });
        }
        Ok(())
    }

    /// Where its counters are.
    pub(crate) fn limited(&self) -> Limited {
        let of =
            |place: &Option<CgroupDirectory>| place.as_ref().map(|place| place.directory.clone());
        Limited {
            cpu: of(&self.places.cpu),
            memory: of(&self.places.memory),
        }
    }
}

impl Drop for ProxyCgroup {
    fn drop(&mut self) {
        // What is left, the end of the run removes.
        self.places.remove(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Quantities = Quantities {
        cpu_millis: Some(250),
        memory_bytes: Some(64 << 20),
    };

    fn read(directory: &Path, file: &str) -> String {
        fs::read_to_string(directory.join(file)).unwrap_or_default()
    }

    fn places(cpu: &Path, memory: &Path, version_2: bool) -> CgroupDirectories {
        let [cpu, memory] = [cpu, memory].map(|directory| {
            Some(CgroupDirectory {
                directory: directory.to_owned(),
                version_2,
            })
        });
        CgroupDirectories { cpu, memory }
    }

    #[test]
    fn limits_are_written_to_the_files_of_version_2() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path(), root.path(), true);
        fs::write(root.path().join("memory.swap.max"), "max\n").unwrap();
        places.limit(&LIMITS).unwrap();
        assert_eq!(read(root.path(), "cpu.max"), "25000 100000");
        assert_eq!(read(root.path(), "memory.max"), "67108864");
        assert_eq!(read(root.path(), "memory.swap.max"), "0");
        assert_eq!(places.directories(), [root.path()]);
    }

    #[test]
    fn limits_are_written_to_the_files_of_version_1_in_both_hierarchies() {
        let root = tempfile::tempdir().unwrap();
        let [cpu, memory] = ["cpu", "memory"].map(|name| root.path().join(name));
        fs::create_dir(&cpu).unwrap();
        fs::create_dir(&memory).unwrap();
        let places = places(&cpu, &memory, false);
        places.limit(&LIMITS).unwrap();
        assert_eq!(read(&cpu, "cpu.cfs_quota_us"), "25000");
        assert_eq!(read(&cpu, "cpu.cfs_period_us"), "100000");
        assert_eq!(read(&memory, "memory.limit_in_bytes"), "67108864");
        // This kernel does not account for swap.
        assert_eq!(read(&memory, "memory.memsw.limit_in_bytes"), "");
        assert_eq!(places.directories(), [cpu, memory]);
    }

    #[test]
    fn only_what_is_limited_is_written() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path(), root.path(), true);
        let memory_only = Quantities {
            cpu_millis: None,
            ..LIMITS
        };
        places.limit(&memory_only).unwrap();
        assert!(!root.path().join("cpu.max").exists());
    }

    #[test]
    fn refused_limit_names_the_file_and_the_cause() {
        let absent = Path::new("/nonexistent");
        let places = places(absent, absent, true);
        let error = places.limit(&LIMITS).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot write to /nonexistent/cpu.max: "),
            "{error}"
        );
    }
}
