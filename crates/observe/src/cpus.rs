//! The CPUs of the machine: which of them share a core, and which share a memory node.

use std::fs;
use std::path::Path;

use crate::host::cpu_list;

/// Where the kernel lists its CPUs.
pub const SYSFS_CPUS: &str = "/sys/devices/system/cpu";

/// A CPU as the kernel numbers them: a hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalCpu {
    /// Its number.
    pub number: u32,
    /// The lowest number of the hardware threads of its physical core: SMT siblings have the same.
    pub core: u32,
    /// Its NUMA node.
    pub numa_node: u32,
}

/// These CPUs with their places: the list of SMT siblings and the link `nodeN` of each
/// (Documentation/admin-guide/cputopology.rst). Where the kernel shows none, each is a core of its own on node 0.
///
/// Siblings are listed under two names: `core_cpus_list`, and before Linux 5.3 `thread_siblings_list`. Core and package ids would
/// not do: a package is -1 where the firmware has none (POWER), and core ids repeat between the dies of one package.
#[must_use]
pub fn cpus(sysfs_cpus: &Path, numbers: &[u32]) -> Vec<LogicalCpu> {
    let of = |number: &u32| {
        let directory = sysfs_cpus.join(format!("cpu{number}"));
        let siblings = |name: &str| -> Option<u32> {
            let text = fs::read_to_string(directory.join("topology").join(name)).ok()?;
            cpu_list(&text).into_iter().min()
        };
        LogicalCpu {
            number: *number,
            core: siblings("core_cpus_list")
                .or_else(|| siblings("thread_siblings_list"))
                .unwrap_or(*number),
            numa_node: numa_node(&directory).unwrap_or(0),
        }
    };
    numbers.iter().map(of).collect()
}

fn numa_node(cpu: &Path) -> Option<u32> {
    let entries = fs::read_dir(cpu).ok()?.map_while(Result::ok);
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix("node")?.parse().ok()
        })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_without_topology_is_a_core_of_its_own() {
        let none = cpus(Path::new("/nonexistent"), &[0, 5]);
        assert_eq!(none.len(), 2);
        assert_ne!(none[0].core, none[1].core);
        assert_eq!(none[1].numa_node, 0);
    }

    #[test]
    fn this_machine_is_read() {
        let here = cpus(Path::new(SYSFS_CPUS), &crate::allowed_cores());
        assert_eq!(here.len(), crate::allowed_cores().len());
    }
}
