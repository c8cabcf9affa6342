//! Limits on CPU by cgroup, which keep processes waiting though a core is idle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::text::number_after;

/// How long a CPU limit has throttled this process's cgroup: one reading of each of its
/// cgroups, from its own up to the highest visible one.
///
/// Found by `/proc/self/cgroup` and `/proc/self/mountinfo`: version 2 (`cpu.max`, `cpu.stat` in
/// microseconds), version 1 (`cpu.cfs_quota_us`, `cpu.stat` in nanoseconds), and both at a time. The
/// kernel adds up over cores, so it can exceed the wall time; it counts when a throttled core is
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
        let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Self::among(directories(&cgroups, &mounts))
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
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    directories(&cgroups, &mounts)
        .iter()
        .filter_map(|path| quota(path))
        .min_by(f64::total_cmp)
}

/// Of `cpu.max` (version 2), or `cpu.cfs_quota_us` and `cpu.cfs_period_us` (version 1).
fn quota(cgroup: &Path) -> Option<f64> {
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
fn throttled_ns(stat: &str) -> Option<u64> {
    let microseconds = number_after(stat, "throttled_usec");
    microseconds
        .map(|us| us.saturating_mul(1000))
        .or_else(|| number_after(stat, "throttled_time"))
}

/// Where a hierarchy of cgroups is mounted.
struct Mount {
    /// The cgroup that is at the mount's top.
    root: PathBuf,
    point: PathBuf,
    version_2: bool,
}

/// The directories of all cgroups that we are in and that the controller `cpu` may be on, ours first,
/// as far up as they are mounted.
fn directories(cgroups: &str, mountinfo: &str) -> Vec<PathBuf> {
    let mounts: Vec<Mount> = mountinfo.lines().filter_map(mount).collect();
    let mut found = Vec::new();
    for (path, version_2) in cgroups.lines().filter_map(cgroup) {
        let Some((mount, below)) = mounts
            .iter()
            .filter(|mount| mount.version_2 == version_2)
            .find_map(|mount| Some((mount, path.strip_prefix(&mount.root).ok()?)))
        else {
            continue;
        };
        // Outside of the cgroup namespace: `..` would lead out of the mount.
        if below.components().any(|part| part.as_os_str() == "..") {
            continue;
        }
        found.extend(below.ancestors().map(|part| mount.point.join(part)));
    }
    found
}

/// `0::/path` (version 2), or `4:cpu,cpuacct:/path` if the controller is there.
fn cgroup(line: &str) -> Option<(&Path, bool)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers) = (parts.next()?, parts.next()?);
    let path = Path::new(parts.next()?);
    let version_2 = number == "0" && controllers.is_empty();
    let has_cpu = controllers.split(',').any(|name| name == "cpu");
    (version_2 || has_cpu).then_some((path, version_2))
}

/// `31 23 0:28 /root /point options more - type source options`.
fn mount(line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let mut kind = kind.split(' ');
    let version_2 = match kind.next()? {
        "cgroup2" => true,
        "cgroup" if kind.nth(1)?.split(',').any(|option| option == "cpu") => false,
        _ => return None,
    };
    Some(Mount {
        root: unescaped(place.next()?),
        point: unescaped(place.next()?),
        version_2,
    })
}

/// The kernel writes what would end a word as `\040`.
fn unescaped(word: &str) -> PathBuf {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let plain = escapes
        .iter()
        .fold(word.to_owned(), |word, (from, to)| word.replace(from, to));
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cgroups: &str, mounts: &str) -> Vec<String> {
        let paths = directories(cgroups, mounts);
        paths.iter().map(|p| p.display().to_string()).collect()
    }

    const V2: &str = "\
22 1 0:20 / /proc rw,nosuid - proc proc rw
30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
";
    const V1: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
";
    const HYBRID: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_2_is_one_hierarchy() {
        let dirs = found("0::/user.slice/a.scope\n", V2);
        let expected =
            ["user.slice/a.scope", "user.slice", ""].map(|p| format!("/sys/fs/cgroup/{p}"));
        assert_eq!(dirs, expected);
        assert_eq!(found("0::/\n", V2), ["/sys/fs/cgroup/"]);
    }

    #[test]
    fn version_1_is_located_by_its_controller() {
        let cgroups = "5:cpuset:/x\n4:cpu,cpuacct:/box/one\n1:name=systemd:/s\n";
        let expected = ["box/one", "box", ""].map(|p| format!("/sys/fs/cgroup/cpu,cpuacct/{p}"));
        assert_eq!(found(cgroups, V1), expected);
        assert!(found("3:cpuacct:/x\n5:cpuset:/x\n", V1).is_empty());
    }

    #[test]
    fn both_versions_are_searched_on_hybrid_hosts() {
        let mounts = format!("{HYBRID}{V1}");
        let dirs = found("4:cpu,cpuacct:/a\n0::/b\n", &mounts);
        let expected = ["cpu,cpuacct/a", "cpu,cpuacct/", "unified/b", "unified/"];
        assert_eq!(dirs, expected.map(|p| format!("/sys/fs/cgroup/{p}")));
    }

    #[test]
    fn container_mount_hides_its_parent_path() {
        // A bind mount of its own cgroup, and no cgroup namespace.
        let mounts = "9 8 0:26 /pods/p1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let expected = ["/sys/fs/cgroup/c", "/sys/fs/cgroup/"];
        assert_eq!(found("0::/pods/p1/c\n", mounts), expected);
        assert!(found("0::/pods/p10/c\n", mounts).is_empty());
        assert!(found("0::/../other\n", V2).is_empty());
        assert!(found("0::/a\n", "").is_empty() && found("", V2).is_empty());
        for odd in ["a", "1:2", "0:", "::", "\n"] {
            assert!(found(odd, V2).is_empty() && found("0::/a\n", odd).is_empty());
        }
    }

    #[test]
    fn escaped_space_in_a_mount_point_is_decoded() {
        let mounts = "9 8 0:26 / /sys/my\\040cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(found("0::/\n", mounts), ["/sys/my cgroup/"]);
    }

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
