//! Limits on CPU by cgroup, which keep processes waiting though a core is idle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::hierarchy::{Controller, own_directories};
use crate::text::number_after;

/// How long a CPU limit has throttled this process's cgroup: one reading of each of its
/// cgroups, from its own up to the highest visible one.
///
/// Of version 2 (`cpu.max`, `cpu.stat` in microseconds), of version 1 (`cpu.cfs_quota_us`, `cpu.stat` in nanoseconds),
/// and both at a time. The kernel adds up over cores, so it can exceed the wall time; it counts when a throttled core is
/// unthrottled; and it includes other processes in these cgroups. Limits set outside of a
/// container's view, and those of a hypervisor (that is `steal`), do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttling {
    /// In nanoseconds, by the cgroup's directory.
    throttled: BTreeMap<PathBuf, u64>,
}

impl Throttling {
    /// Reads it now; `None` if no limit is visible.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::among(own_directories(Controller::Cpu)?)
    }

    fn among(directories: impl IntoIterator<Item = PathBuf>) -> Option<Self> {
        let (mut throttled, mut limited) = (BTreeMap::new(), false);
        for path in directories {
            let text = |name: &str| fs::read_to_string(path.join(name)).ok();
            let Some(ns) = text("cpu.stat").and_then(|stat| throttled_ns(&stat)) else {
                continue;
            };
            let quota = text("cpu.max").or_else(|| text("cpu.cfs_quota_us"));
            limited |= quota.is_some_and(|quota| is_limit(&quota));
            // Cgroups without a limit, too: it may be set later, and the count is cumulative.
            throttled.insert(path, ns);
        }
        limited.then_some(Self { throttled })
    }

    /// Nanoseconds since an earlier reading, for the cgroup that was throttled longest: a
    /// sum would count time twice in which two limits applied at once.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> u64 {
        let passed = self.throttled.iter().map(|(path, now)| {
            let then = earlier.throttled.get(path);
            then.map_or(0, |then| now.saturating_sub(*then))
        });
        passed.max().unwrap_or(0)
    }
}

/// The cores' worth of CPU time that cgroups grant to this process; `None`: no limit is visible.
#[must_use]
pub fn cpu_quota() -> Option<f64> {
    own_directories(Controller::Cpu)?
        .iter()
        .filter_map(|path| quota(path))
        .min_by(f64::total_cmp)
}

/// Of `cpu.max` (version 2), or `cpu.cfs_quota_us` and `cpu.cfs_period_us` (version 1).
pub(crate) fn quota(cgroup: &Path) -> Option<f64> {
    let text = |name: &str| fs::read_to_string(cgroup.join(name)).ok();
    let limit = text("cpu.max").or_else(|| {
        let period = text("cpu.cfs_period_us")?;
        Some(format!("{} {period}", text("cpu.cfs_quota_us")?.trim()))
    })?;
    let mut numbers = limit.split_ascii_whitespace().map(str::parse::<u64>);
    let (granted, period) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (period > 0).then(|| granted as f64 / period as f64)
}

/// `cpu.max` contains `max 100000` or `50000 100000`, `cpu.cfs_quota_us` `-1` or `50000`.
fn is_limit(text: &str) -> bool {
    let quota = text.split_ascii_whitespace().next();
    quota.is_some_and(|quota| quota.parse::<u64>().is_ok())
}

/// Of `cpu.stat`, of either version.
pub(crate) fn throttled_ns(stat: &str) -> Option<u64> {
    let microseconds = number_after(stat, "throttled_usec");
    microseconds
        .map(|us| us.saturating_mul(1000))
        .or_else(|| number_after(stat, "throttled_time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_in_nanoseconds() {
        let v2 = "usage_usec 9\nnr_periods 4\nnr_throttled 2\nthrottled_usec 150\nnr_bursts 0\n";
        let v1 = "nr_periods 4\nnr_throttled 2\nthrottled_time 150\n";
        assert_eq!(throttled_ns(v2), Some(150_000));
        assert_eq!(throttled_ns(v1), Some(150));
        // The root of version 2.
        assert_eq!(throttled_ns("usage_usec 9\nuser_usec 5\n"), None);
    }

    #[test]
    fn only_finite_quotas_are_limits() {
        assert!(is_limit("50000 100000\n") && is_limit("50000\n"));
        assert!(!is_limit("max 100000\n") && !is_limit("-1\n") && !is_limit(""));
    }

    #[test]
    fn longest_throttled_cgroup_with_a_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().to_owned(), root.path().join("inner"));
        fs::create_dir(&inner).unwrap();
        let write = |path: &Path, name: &str, text: &str| fs::write(path.join(name), text).unwrap();
        let read = || Throttling::among([inner.clone(), outer.clone()]);
        write(&inner, "cpu.max", "max 100000\n");
        write(&inner, "cpu.stat", "throttled_usec 7\n");
        write(&outer, "cpu.stat", "throttled_usec 900\n");
        assert_eq!(read(), None);
        write(&outer, "cpu.max", "50000 100000\n");
        let before = read().unwrap();
        write(&inner, "cpu.max", "20000 100000\n");
        write(&inner, "cpu.stat", "throttled_usec 50\n");
        write(&outer, "cpu.stat", "throttled_usec 930\n");
        let after = read().unwrap();
        assert_eq!(after.since(&before), 43_000);
        assert_eq!(after.since(&after), 0);
        assert_eq!(before.since(&after), 0);
    }

    #[test]
    fn throttling_of_this_process_is_readable() {
        if let (Some(before), Some(after)) = (Throttling::now(), Throttling::now()) {
            assert!(after.since(&before) < 60_000_000_000);
        }
    }

    #[test]
    fn quota_is_read_in_both_versions() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert_eq!(quota(directory.path()), None);
        file("cpu.cfs_quota_us", "-1\n");
        file("cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(directory.path()), None);
        file("cpu.cfs_quota_us", "150000\n");
        assert_eq!(quota(directory.path()), Some(1.5));
        file("cpu.max", "max 100000\n");
        assert_eq!(quota(directory.path()), None);
        file("cpu.max", "200000 100000\n");
        assert_eq!(quota(directory.path()), Some(2.0));
    }
}
