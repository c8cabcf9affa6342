//! Where the cgroups of a process are: the hierarchies of both versions, and the directories in them.

use std::fs;
use std::path::{Path, PathBuf};

/// A controller of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
}

impl Controller {
    /// The kernel's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// The cgroup of this process that a controller is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCgroup {
    /// Its directory and its ancestors', the highest visible one last.
    pub directories: Vec<PathBuf>,
    /// Whether it is of version 2.
    pub version_2: bool,
}

impl OwnCgroup {
    /// Of this process; `None`: the controller is on no mounted hierarchy.
    #[must_use]
    pub fn of(controller: Controller) -> Option<Self> {
        let (cgroups, mounts) = own()?;
        Self::among(&cgroups, &mounts, controller)
    }

    /// A controller is on one hierarchy only: that of version 2 lists it if it is there.
    fn among(cgroups: &str, mountinfo: &str, controller: Controller) -> Option<Self> {
        let all = hierarchies(cgroups, mountinfo, controller);
        all.into_iter().find(|found| {
            let top = found.directories.last();
            let list = top.map(|top| top.join("cgroup.controllers"));
            let list = list.and_then(|path| fs::read_to_string(path).ok());
            let mut names = list.iter().flat_map(|list| list.split_ascii_whitespace());
            !found.version_2 || names.any(|name| name == controller.name())
        })
    }
}

/// The directories of all cgroups of this process that a controller may be on, its own first, as far up as they are
/// mounted.
pub(crate) fn own_directories(controller: Controller) -> Option<Vec<PathBuf>> {
    let (cgroups, mounts) = own()?;
    Some(directories(&cgroups, &mounts, controller))
}

/// `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn own() -> Option<(String, String)> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    Some((cgroups, fs::read_to_string("/proc/self/mountinfo").ok()?))
}

fn directories(cgroups: &str, mountinfo: &str, controller: Controller) -> Vec<PathBuf> {
    let all = hierarchies(cgroups, mountinfo, controller).into_iter();
    all.flat_map(|found| found.directories).collect()
}

/// Where a hierarchy of cgroups is mounted.
struct Mount {
    /// The cgroup that is at the mount's top.
    root: PathBuf,
    point: PathBuf,
    version_2: bool,
}

/// The hierarchies that the controller may be on.
fn hierarchies(cgroups: &str, mountinfo: &str, controller: Controller) -> Vec<OwnCgroup> {
    let mounts = mountinfo.lines().filter_map(|line| mount(line, controller));
    let mounts: Vec<Mount> = mounts.collect();
    let mut found = Vec::new();
    let own = cgroups.lines().filter_map(|line| cgroup(line, controller));
    for (path, version_2) in own {
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
        let up = below.ancestors().map(|part| mount.point.join(part));
        found.push(OwnCgroup {
            directories: up.collect(),
            version_2,
        });
    }
    found
}

/// `0::/path` (version 2), or `4:cpu,cpuacct:/path` if the controller is there.
fn cgroup(line: &str, controller: Controller) -> Option<(&Path, bool)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers) = (parts.next()?, parts.next()?);
    let path = Path::new(parts.next()?);
    let version_2 = number == "0" && controllers.is_empty();
    let is_there = controllers.split(',').any(|name| name == controller.name());
    (version_2 || is_there).then_some((path, version_2))
}

/// `31 23 0:28 /root /point options more - type source options`.
fn mount(line: &str, controller: Controller) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let mut kind = kind.split(' ');
    let has_it = |options: &str| options.split(',').any(|option| option == controller.name());
    let version_2 = match kind.next()? {
        "cgroup2" => true,
        "cgroup" if has_it(kind.nth(1)?) => false,
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
        let paths = directories(cgroups, mounts, Controller::Cpu);
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
    fn controller_is_on_version_2_only_if_it_is_listed_there() {
        let root = tempfile::tempdir().unwrap();
        let point = root.path().display();
        let mounts = format!("{V1}41 31 0:38 / {point} rw - cgroup2 cgroup2 rw\n");
        let cgroups = "4:cpu,cpuacct:/a\n0::/b\n";
        let of = |controller| OwnCgroup::among(cgroups, &mounts, controller);
        let cpu = of(Controller::Cpu).unwrap();
        assert!(!cpu.version_2);
        assert_eq!(
            cpu.directories[0],
            Path::new("/sys/fs/cgroup/cpu,cpuacct/a")
        );
        assert_eq!(of(Controller::Memory), None);
        fs::write(root.path().join("cgroup.controllers"), "io memory pids\n").unwrap();
        let memory = of(Controller::Memory).unwrap();
        assert!(memory.version_2);
        assert_eq!(
            memory.directories,
            [root.path().join("b"), root.path().join("")]
        );
    }
}
