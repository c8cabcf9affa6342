//! A cgroup with limits of its own, and what they did to the processes in it.

use std::fs;
use std::path::{Path, PathBuf};

use meshtax_model::trial::Throttled;

use crate::text::number_after;
use crate::throttling::{quota, throttled_ns};

/// The directories of a cgroup with limits; with version 1 there is one for each controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limited {
    /// Where its CPU is limited; `None`: it is not.
    pub cpu: Option<PathBuf>,
    /// Where its memory is limited; `None`: it is not.
    pub memory: Option<PathBuf>,
}

impl Limited {
    /// How its CPU limit has throttled it so far; `None`: it has none, or it cannot be read.
    #[must_use]
    pub fn throttled(&self) -> Option<Throttled> {
        throttled_in(self.cpu.as_deref()?)
    }

    /// Processes that the kernel killed because they exceeded its memory limit; 0 where there is no limit.
    #[must_use]
    pub fn memory_kills(&self) -> u64 {
        let Some(directory) = &self.memory else {
            return 0;
        };
        // Of version 2 and 1.
        let files = ["memory.events", "memory.oom_control"].into_iter();
        let mut texts = files.filter_map(|file| fs::read_to_string(directory.join(file)).ok());
        let kills = texts.find_map(|text| number_after(&text, "oom_kill"));
        kills.unwrap_or(0)
    }
}

/// The counters of a cgroup with a CPU limit; `None`: it has none, or they cannot be read.
pub(crate) fn throttled_in(directory: &Path) -> Option<Throttled> {
    quota(directory)?;
    let text = fs::read_to_string(directory.join("cpu.stat")).ok()?;
    Some(Throttled {
        periods: number_after(&text, "nr_periods")?,
        throttled_periods: number_after(&text, "nr_throttled")?,
        throttled_ns: throttled_ns(&text)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(files: &[(&str, &str)]) -> (tempfile::TempDir, Limited) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(root.path().join(name), text).unwrap();
        }
        let path = Some(root.path().to_owned());
        let limited = Limited {
            cpu: path.clone(),
            memory: path,
        };
        (root, limited)
    }

    const EXPECTED: Throttled = Throttled {
        periods: 40,
        throttled_periods: 30,
        throttled_ns: 5_000_000,
    };

    #[test]
    fn counters_of_version_2_are_read() {
        let (_root, limited) = cgroup(&[
            ("cpu.max", "10000 100000\n"),
            (
                "cpu.stat",
                "usage_usec 9\nnr_periods 40\nnr_throttled 30\nthrottled_usec 5000\nnr_bursts 0\n",
            ),
            (
                "memory.events",
                "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n",
            ),
        ]);
        assert_eq!(limited.throttled(), Some(EXPECTED));
        assert_eq!(limited.memory_kills(), 1);
    }

    #[test]
    fn counters_of_version_1_are_read() {
        let (_root, limited) = cgroup(&[
            ("cpu.cfs_quota_us", "10000\n"),
            ("cpu.cfs_period_us", "100000\n"),
            (
                "cpu.stat",
                "nr_periods 40\nnr_throttled 30\nthrottled_time 5000000\n",
            ),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            ),
        ]);
        assert_eq!(limited.throttled(), Some(EXPECTED));
        assert_eq!(limited.memory_kills(), 3);
    }

    #[test]
    fn cgroup_without_limits_is_neither_throttled_nor_killed() {
        let (_root, limited) = cgroup(&[
            ("cpu.max", "max 100000\n"),
            (
                "cpu.stat",
                "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
            ),
        ]);
        assert_eq!(limited.throttled(), None);
        assert_eq!(limited.memory_kills(), 0);
        assert_eq!(Limited::default().throttled(), None);
    }
}
