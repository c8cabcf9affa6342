//! Processes from /proc, selected as descendants of one that a test started, never by name.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process. PIDs are reused; with its start time it is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started_ticks: u64,
}

impl Process {
    /// The process with this PID, unless it is a zombie.
    pub(crate) fn find(pid: u32) -> Option<Self> {
        read(pid).map(|(process, _)| process)
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Its command line.
    pub(crate) fn words(self) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        bytes
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    }

    /// Whether it runs this file, whatever its path in the process's mount namespace.
    pub(crate) fn runs(self, program: &Path) -> bool {
        let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
        let its_own = identity(Path::new(&format!("/proc/{}/exe", self.pid)));
        its_own.is_some() && its_own == identity(program)
    }

    /// The namespace of this kind that it is in (`net` gives `net:[4026531840]`).
    pub(crate) fn namespace(self, kind: &str) -> Option<String> {
        let link = fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).ok()?;
        Some(link.to_string_lossy().into_owned())
    }

    /// Kills exactly this process: a pidfd is opened first, and the start time is checked afterwards.
    pub(crate) fn kill(self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(descriptor) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return false;
        };
        self.is_alive() && pidfd_send_signal(descriptor, Signal::KILL).is_ok()
    }
}

/// The process and its parent's number.
fn read(pid: u32) -> Option<(Process, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any character.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let process = Process {
        pid,
        started_ticks: fields.get(19)?.parse().ok()?,
    };
    Some((process, fields.get(1)?.parse().ok()?))
}

fn all_with_parents() -> Vec<(Process, u32)> {
    fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Every living process.
pub(crate) fn all() -> BTreeSet<Process> {
    all_with_parents().into_iter().map(|(p, _)| p).collect()
}

/// A process's children, their children and so on, without itself.
pub(crate) fn descendants(of: u32) -> BTreeSet<Process> {
    let all = all_with_parents();
    let mut parents = BTreeSet::from([of]);
    let mut found = BTreeSet::new();
    loop {
        let more: Vec<Process> = all
            .iter()
            .filter(|(process, parent)| parents.contains(parent) && !found.contains(process))
            .map(|(process, _)| *process)
            .collect();
        if more.is_empty() {
            return found;
        }
        parents.extend(more.iter().map(|process| process.pid));
        found.extend(more);
    }
}
