//! Limits on CPU by cgroup, which keep processes waiting though a core is idle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::text::number_after;

/// For how long a limit on CPU has kept this process's cgroup waiting: one reading of each of its
/// cgroups, from its own up to the highest that can be seen.
///
/// Found by `/proc/self/cgroup` and `/proc/self/mountinfo`: version 2 (`cpu.max`, `cpu.stat` in
/// microseconds), version 1 (`cpu.cfs_quota_us`, `cpu.stat` in nanoseconds), and both at a time. The
/// kernel adds up over cores, so it can exceed the wall time; it counts when a throttled core is
/// let go again; and it counts whoever else is in these cgroups. Limits set from outside of a
/// container's view, and those of a hypervisor (that is `steal`), do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttling {
    /// In nanoseconds, by the cgroup's directory.
    throttled: BTreeMap<PathBuf, u64>,
}

impl Throttling {
    /// Reads it now; `None` if no limit can be seen.
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
            // Those without a limit, too: it may come later, and the count is of all times.
            throttled.insert(path, ns);
        }
        limited.then_some(Self { throttled })
    }

    /// Nanoseconds since an earlier reading, of that cgroup of ours that was kept waiting longest: the
    /// sum would count a time twice in which two limits held at once.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> u64 {
        let passed = self.throttled.iter().map(|(path, now)| {
            let then = earlier.throttled.get(path);
            then.map_or(0, |then| now.saturating_sub(*then))
        });
        passed.max().unwrap_or(0)
    }
}

/// `cpu.max` says `max 100000` or `50000 100000`, `cpu.cfs_quota_us` `-1` or `50000`.
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
    fn version_1_is_found_by_its_controller() {
        let cgroups = "5:cpuset:/x\n4:cpu,cpuacct:/box/one\n1:name=systemd:/s\n";
        let expected = ["box/one", "box", ""].map(|p| format!("/sys/fs/cgroup/cpu,cpuacct/{p}"));
        assert_eq!(found(cgroups, V1), expected);
        assert!(found("3:cpuacct:/x\n5:cpuset:/x\n", V1).is_empty());
    }

    #[test]
    fn of_both_versions_both_are_looked_at() {
        let mounts = format!("{HYBRID}{V1}");
        let dirs = found("4:cpu,cpuacct:/a\n0::/b\n", &mounts);
        let expected = ["cpu,cpuacct/a", "cpu,cpuacct/", "unified/b", "unified/"];
        assert_eq!(dirs, expected.map(|p| format!("/sys/fs/cgroup/{p}")));
    }

    #[test]
    fn a_container_sees_its_own_part() {
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
    fn a_name_with_a_space_is_that_name() {
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
    fn what_is_a_limit() {
        assert!(is_limit("50000 100000\n") && is_limit("50000\n"));
        assert!(!is_limit("max 100000\n") && !is_limit("-1\n") && !is_limit(""));
    }

    #[test]
    fn the_cgroup_that_waited_longest_counts_and_only_those_with_a_limit() {
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
    fn this_process_can_be_asked() {
        if let (Some(before), Some(after)) = (Throttling::now(), Throttling::now()) {
            assert!(after.since(&before) < 60_000_000_000);
        }
    }
}
