//! The cgroup of a container, of version 1 or 2.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use meshtax_model::trial::Throttled;

use crate::ObserveError;
use crate::host::cpu_list;
use crate::limited::throttled_in;
use crate::text::{number_after, tick_ns};

/// The cgroup of a container: everything that runs in it, what has exited included.
#[derive(Debug)]
pub struct Cgroup {
    directory: PathBuf,
    cpu: CpuAccount,
    /// Where the CPU limit is; `None`: the controller is not there.
    limited: Option<PathBuf>,
}

/// The file with the CPU time, kept open: a reading is one system call.
#[derive(Debug)]
enum CpuAccount {
    /// `cpuacct.usage`, in nanoseconds.
    V1(File),
    /// `cpu.stat`, in microseconds.
    V2(File),
}

/// How deep container runtimes nest the cgroup of a container.
const DEEPEST: u32 = 12;

impl Cgroup {
    /// The cgroup of the container with this id, below the file system of cgroups mounted at `root`: container runtimes
    /// have the id in the name of its directory (`cri-containerd-ID.scope`, `ID`).
    ///
    /// # Errors
    /// If there is none, or its CPU account cannot be read.
    pub fn of_container(root: &Path, id: &str) -> Result<Self, ObserveError> {
        let (hierarchy, file) = match root.join("cgroup.controllers").exists() {
            true => (root.to_path_buf(), "cpu.stat"),
            // The same hierarchy under another name on some systems.
            false => (
                ["cpuacct", "cpu,cpuacct"]
                    .map(|name| root.join(name))
                    .into_iter()
                    .find(|path| path.is_dir())
                    .ok_or_else(|| {
                        let cause = "it has neither cgroup.controllers nor cpuacct";
                        ObserveError::new(root.display().to_string(), cause)
                    })?,
                "cpuacct.usage",
            ),
        };
        let directory = find(&hierarchy, id, DEEPEST).ok_or_else(|| {
            let what = format!("the cgroup of container {id}");
            let cause = format!("no directory of its name below {}", hierarchy.display());
            ObserveError::new(what, cause)
        })?;
        let path = directory.join(file);
        let open = File::open(&path).map_err(|e| ObserveError::new(path.display().to_string(), e));
        let cpu = match file {
            "cpu.stat" => CpuAccount::V2(open?),
            _ => CpuAccount::V1(open?),
        };
        let limited = match &cpu {
            CpuAccount::V2(_) => Some(directory.clone()),
            CpuAccount::V1(_) => find(&root.join("cpu"), id, DEEPEST),
        };
        Ok(Self {
            directory,
            cpu,
            limited,
        })
    }

    /// CPU that the container has used since it started, user and system, in nanoseconds. Version 2 counts in
    /// microseconds.
    ///
    /// # Errors
    /// If the account cannot be read: the container has ended.
    pub fn cpu_ns(&self) -> Result<u64, ObserveError> {
        let failed = |cause: &dyn std::fmt::Display| {
            ObserveError::new(self.directory.display().to_string(), cause)
        };
        let (CpuAccount::V1(file) | CpuAccount::V2(file)) = &self.cpu;
        let mut buffer = [0_u8; 512];
        let length = file.read_at(&mut buffer, 0).map_err(|e| failed(&e))?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        let ns = match &self.cpu {
            CpuAccount::V1(_) => text.trim().parse().ok(),
            CpuAccount::V2(_) => number_after(&text, "usage_usec").map(|us| us * 1000),
        };
        ns.ok_or_else(|| failed(&"an unknown form of the CPU account"))
    }

    /// The kernel's part of it, in nanoseconds; `None` where it is not shown. Sampled by the clock tick on many kernels.
    #[must_use]
    pub fn system_ns(&self) -> Option<u64> {
        let of = |file| fs::read_to_string(self.directory.join(file)).ok();
        match &self.cpu {
            CpuAccount::V1(_) => {
                number_after(&of("cpuacct.stat")?, "system").map(|ticks| ticks * tick_ns())
            }
            CpuAccount::V2(_) => number_after(&of("cpu.stat")?, "system_usec").map(|us| us * 1000),
        }
    }

    /// How its CPU limit has throttled it so far; `None`: it has none, or it cannot be read.
    #[must_use]
    pub fn throttled(&self) -> Option<Throttled> {
        throttled_in(self.limited.as_deref()?)
    }

    /// Its processes, as the calling process's PID namespace numbers them; those of other namespaces are left out.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        numbers.filter(|pid| *pid != 0).collect()
    }
}

/// The CPUs that the container with this id may use, as its cgroup has them, below the file system of cgroups at `root`;
/// `None`: they cannot be read.
#[must_use]
pub fn container_cpus(root: &Path, id: &str) -> Option<Vec<u32>> {
    let (hierarchy, files) = match root.join("cgroup.controllers").exists() {
        true => (root.to_path_buf(), ["cpuset.cpus.effective", "cpuset.cpus"]),
        false => (
            root.join("cpuset"),
            ["cpuset.effective_cpus", "cpuset.cpus"],
        ),
    };
    let directory = find(&hierarchy, id, DEEPEST)?;
    let read = |file: &str| {
        // Where the controller ends further up, what it says there holds.
        let mut up = directory.ancestors().take_while(|path| **path != *root);
        let text = up.find_map(|path| fs::read_to_string(path.join(file)).ok())?;
        Some(cpu_list(&text)).filter(|cpus| !cpus.is_empty())
    };
    files.into_iter().find_map(read)
}

/// The directory whose name contains `id`, breadth first.
fn find(below: &Path, id: &str, deepest: u32) -> Option<PathBuf> {
    let mut level = vec![below.to_path_buf()];
    for _ in 0..deepest {
        let entries = level
            .iter()
            .filter_map(|directory| fs::read_dir(directory).ok());
        let directories: Vec<PathBuf> = entries
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        let is_it = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().contains(id)
        };
        if let Some(found) = directories.iter().find(is_it) {
            return Some(found.clone());
        }
        level = directories;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef";

    /// A directory of its own below the system's temporary one, removed at the end.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("meshtax-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_1_is_read_in_nanoseconds() {
        let root = Root::new("cgroup-v1");
        let of = |file: &str| format!("cpuacct/kubepods/besteffort/pod1/{ID}/{file}");
        root.write(&of("cpuacct.usage"), "1234567890\n");
        root.write(&of("cpuacct.stat"), "user 7\nsystem 3\n");
        root.write(&of("cgroup.procs"), "41\n0\n42\n");
        let cgroup = Cgroup::of_container(&root.0, ID).unwrap();
        assert_eq!(cgroup.cpu_ns().unwrap(), 1_234_567_890);
        assert_eq!(cgroup.system_ns(), Some(3 * tick_ns()));
        assert_eq!(cgroup.processes(), [41, 42], "0 is of another namespace");
        assert_eq!(cgroup.throttled(), None);
        // The limit is in another hierarchy.
        let of = |file: &str| format!("cpu/kubepods/besteffort/pod1/{ID}/{file}");
        root.write(&of("cpu.cfs_quota_us"), "50000\n");
        root.write(&of("cpu.cfs_period_us"), "100000\n");
        root.write(
            &of("cpu.stat"),
            "nr_periods 9\nnr_throttled 4\nthrottled_time 70\n",
        );
        let limited = Cgroup::of_container(&root.0, ID).unwrap();
        let throttled = limited.throttled().unwrap();
        assert_eq!(
            (throttled.throttled_periods, throttled.throttled_ns),
            (4, 70)
        );
    }

    #[test]
    fn version_2_is_read_in_microseconds() {
        let root = Root::new("cgroup-v2");
        root.write("cgroup.controllers", "cpu memory\n");
        let scope = format!("kubepods.slice/pod1.slice/cri-containerd-{ID}.scope/cpu.stat");
        root.write(
            &scope,
            "usage_usec 2500\nuser_usec 1500\nsystem_usec 1000\n",
        );
        let cgroup = Cgroup::of_container(&root.0, ID).unwrap();
        assert_eq!(cgroup.cpu_ns().unwrap(), 2_500_000);
        assert_eq!(cgroup.system_ns(), Some(1_000_000));
    }

    #[test]
    fn cpus_of_a_container_are_those_of_its_cgroup_in_both_versions() {
        let v2 = Root::new("cpus-v2");
        v2.write("cgroup.controllers", "cpu cpuset\n");
        let scope = format!("kubepods.slice/cri-containerd-{ID}.scope/cpuset.cpus.effective");
        v2.write(&scope, "2-3,6\n");
        assert_eq!(container_cpus(&v2.0, ID), Some(vec![2, 3, 6]));
        let v1 = Root::new("cpus-v1");
        let of = |file: &str| format!("cpuset/kubepods/pod1/{ID}/{file}");
        v1.write(&of("cpuset.cpus"), "0-7\n");
        v1.write(&of("cpuset.effective_cpus"), "4\n");
        assert_eq!(container_cpus(&v1.0, ID), Some(vec![4]));
        assert_eq!(container_cpus(&v1.0, "another"), None);
        // Without the controller in this cgroup there is no file.
        let without = Root::new("cpus-without");
        without.write(&format!("cpuset/kubepods/{ID}/tasks"), "");
        assert_eq!(container_cpus(&without.0, ID), None);
    }

    #[test]
    fn absent_container_is_named() {
        let root = Root::new("cgroup-absent");
        root.write("cgroup.controllers", "cpu\n");
        let error = Cgroup::of_container(&root.0, ID).unwrap_err().to_string();
        assert!(error.contains(ID), "{error}");
        let nothing = Root::new("cgroup-nothing");
        let error = Cgroup::of_container(&nothing.0, ID)
            .unwrap_err()
            .to_string();
        assert!(error.contains("neither"), "{error}");
    }
}
