//! The cgroup of a run whose variants limit their proxies: where it may be, and whether the limits can be enforced in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use meshtax_model::pods::Quantities;
use meshtax_observe::{Controller, OwnCgroup};
use rustix::fs::{FlockOperation, flock};

use crate::cgroups::{
    CgroupDirectories, CgroupDirectory, LimitError, ProxyCgroup, REMOVED_WITHIN, lock, refused,
    remove_tree,
};

/// The beginning of its name.
const PREFIX: &str = "meshtax-run-";

/// The last number in a name: runs in containers may share cgroups, and have the same process id.
const NAMES: u32 = 16;

/// The controllers on one hierarchy.
struct Hierarchy {
    own: OwnCgroup,
    controllers: Vec<Controller>,
}

/// A run's cgroup, which has no processes and no limits of its own; removed when it is dropped, for which the lab must have
/// ended.
#[derive(Debug)]
pub(crate) struct RunCgroup {
    places: CgroupDirectories,
    /// Where controllers were enabled for the children of a cgroup that is not the run's.
    enabled: Vec<(PathBuf, Controller)>,
    locks: Vec<File>,
}

impl RunCgroup {
    /// Makes it, and tries each of these limits. `None`: there are none.
    pub(crate) fn make<'a>(
        limits: impl Iterator<Item = &'a Quantities> + Clone,
    ) -> Result<Option<Self>, LimitError> {
        let is_needed = |controller: &Controller| {
            limits.clone().any(|limits| match controller {
                Controller::Cpu => limits.cpu_millis.is_some(),
                Controller::Memory => limits.memory_bytes.is_some(),
            })
        };
        let needed = [Controller::Cpu, Controller::Memory].into_iter();
        let needed: Vec<Controller> = needed.filter(is_needed).collect();
        if needed.is_empty() {
            return Ok(None);
        }
        let mut this = Self {
            places: CgroupDirectories::default(),
            enabled: Vec::new(),
            locks: Vec::new(),
        };
        for hierarchy in hierarchies(&needed)? {
            this.add(&hierarchy)?;
        }
        try_limits(&this.places, limits)?;
        Ok(Some(this))
    }

    /// What the lab makes the proxies' cgroups in.
    pub(crate) fn places(&self) -> &CgroupDirectories {
        &self.places
    }

    /// Removes it; `false`: it still has processes.
    pub(crate) fn remove(&mut self) -> bool {
        self.locks.clear();
        let is_gone = self.places.remove(REMOVED_WITHIN);
        self.disable();
        is_gone
    }

    /// Takes the controllers away again that it enabled.
    fn disable(&mut self) {
        for (parent, controller) in self.enabled.drain(..) {
            // Refused if somebody else needs it by now.
            let file = parent.join("cgroup.subtree_control");
            let _ = fs::write(file, format!("-{}", controller.name()));
        }
    }

    /// Makes its directory in a hierarchy.
    fn add(&mut self, hierarchy: &Hierarchy) -> Result<(), LimitError> {
        let mut first_error = None;
        for parent in parents(&hierarchy.own, &hierarchy.controllers) {
            match self.add_below(parent, hierarchy) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.disable();
                    first_error = first_error.or(Some(error));
                }
            }
        }
        match first_error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn add_below(&mut self, parent: &Path, hierarchy: &Hierarchy) -> Result<(), LimitError> {
        remove_left_over(parent);
        let version_2 = hierarchy.own.version_2;
        if version_2 {
            for controller in enable(parent, &hierarchy.controllers)? {
                self.enabled.push((parent.to_owned(), controller));
            }
        }
        let (directory, lock) = new_directory(parent)?;
        if version_2 && let Err(error) = enable(&directory, &hierarchy.controllers) {
            let _ = fs::remove_dir(&directory);
            return Err(error);
        }
        self.locks.push(lock);
        for controller in &hierarchy.controllers {
            let place = Some(CgroupDirectory {
                directory: directory.clone(),
                version_2,
            });
            match controller {
                Controller::Cpu => self.places.cpu = place,
                Controller::Memory => self.places.memory = place,
            }
        }
        Ok(())
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The hierarchies of these controllers. With version 2 it is one.
fn hierarchies(controllers: &[Controller]) -> Result<Vec<Hierarchy>, LimitError> {
    let mut all: Vec<Hierarchy> = Vec::new();
    for controller in controllers {
        let own = OwnCgroup::of(*controller);
        let own = own.ok_or(LimitError::NoController(controller.name()))?;
        match all.iter_mut().find(|other| other.own == own) {
            Some(same) => same.controllers.push(*controller),
            None => all.push(Hierarchy {
                own,
                controllers: vec![*controller],
            }),
        }
    }
    Ok(all)
}

/// Where the run's cgroup may be, the best place first.
///
/// Version 1: in this process's own. Version 2 has controllers only for the children of cgroups without processes: this
/// process's own has at least this one. Its ancestors come into question up to the first with a limit, which would not apply
/// above it; those that have the controllers for their children are preferred, since nothing must be changed there.
fn parents<'a>(own: &'a OwnCgroup, controllers: &[Controller]) -> Vec<&'a Path> {
    let all = own.directories.iter().map(PathBuf::as_path);
    if !own.version_2 {
        return all.take(1).collect();
    }
    let mut up: Vec<&Path> = Vec::new();
    for directory in all {
        up.push(directory);
        if has_limit(directory) {
            break;
        }
    }
    up.sort_by_key(|directory| {
        let enabled = words(&directory.join("cgroup.subtree_control"));
        let mut each = controllers.iter();
        !each.all(|controller| enabled.contains(controller.name()))
    });
    up
}

/// Whether a cgroup of version 2 limits CPU or memory.
fn has_limit(directory: &Path) -> bool {
    let limit = |file: &str| fs::read_to_string(directory.join(file)).ok();
    let all = [limit("cpu.max"), limit("memory.max")];
    all.iter().flatten().any(|text| !text.starts_with("max"))
}

/// The words of a file; none if it cannot be read.
fn words(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Gives the children of a cgroup of version 2 these controllers: all or none, since the kernel takes one write as a whole.
/// Returns those that they did not have.
fn enable(directory: &Path, controllers: &[Controller]) -> Result<Vec<Controller>, LimitError> {
    let path = directory.join("cgroup.subtree_control");
    let enabled = words(&path);
    let missing = controllers.iter().copied();
    let missing: Vec<Controller> = missing
        .filter(|controller| !enabled.contains(controller.name()))
        .collect();
    let words: Vec<String> = missing.iter().map(|c| format!("+{}", c.name())).collect();
    if !words.is_empty() {
        fs::write(&path, words.join(" ")).map_err(refused("write to", &path))?;
    }
    Ok(missing)
}

/// A new directory, and the file by which it is in use.
fn new_directory(parent: &Path) -> Result<(PathBuf, File), LimitError> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        let directory = parent.join(format!("{PREFIX}{pid}-{number}"));
        match fs::create_dir(&directory) {
            Ok(()) => match claim(&directory) {
                Ok(lock) => return Ok((directory, lock)),
                Err(error) => {
                    let _ = fs::remove_dir(&directory);
                    if number == NAMES {
                        return Err(error);
                    }
                }
            },
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < NAMES => {}
            Err(e) => return Err(refused("create", &directory)(e)),
        }
        number += 1;
    }
}

/// Marks a directory that was just made as in use. Fails if another run, which starts at the same moment, takes it for left over:
/// it may be removed already, with the mark on what is no longer there.
fn claim(directory: &Path) -> Result<File, LimitError> {
    let file = lock(directory)?;
    match is_at(&file, directory) {
        Ok(true) => Ok(file),
        Ok(false) => Err(refused("lock", directory)(io::ErrorKind::NotFound.into())),
        Err(e) => Err(refused("lock", directory)(e)),
    }
}

/// Whether an open directory is the one that has this path now: it may have been removed, and another one made.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    Ok(file.metadata()?.ino() == fs::metadata(path)?.ino())
}

/// Removes the cgroups of runs of which no process is left.
fn remove_left_over(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for path in ours.map(|entry| entry.path()) {
        let lock = File::open(&path).and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // Another run may have removed it in the meantime, and a third one have made one of the same name.
            Ok(is_at(&file, &path)?.then_some(file))
        });
        if let Ok(Some(_lock)) = lock {
            remove_tree(&path);
        }
    }
}

/// Has a process join a cgroup within the run's, and puts each of the limits in force there.
fn try_limits<'a>(
    run: &CgroupDirectories,
    limits: impl Iterator<Item = &'a Quantities>,
) -> Result<(), LimitError> {
    let trial = ProxyCgroup::make(run, "trial")?;
    // It does next to nothing.
    let mut command = Command::new("/proc/self/exe");
    command.arg("--version");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let directories = run.directories();
    let path = directories.first().copied().unwrap_or(Path::new(""));
    trial
        .admit(&mut command)
        .and_then(|()| command.status())
        .map_err(refused("have a process join", path))?;
    drop(trial);
    for limits in limits {
        ProxyCgroup::make(run, "trial")?.limit(limits)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    const BOTH: [Controller; 2] = [Controller::Cpu, Controller::Memory];

    /// The directories of `/a/b/c` and their ancestors, each with a file that says which controllers its children have.
    fn tree(enabled: [&str; 4]) -> (tempfile::TempDir, OwnCgroup) {
        let root = tempfile::tempdir().unwrap();
        let deepest = root.path().join("a/b/c");
        fs::create_dir_all(&deepest).unwrap();
        let directories: Vec<PathBuf> = deepest.ancestors().take(4).map(Into::into).collect();
        for (directory, controllers) in directories.iter().zip(enabled) {
            fs::write(directory.join("cgroup.subtree_control"), controllers).unwrap();
        }
        let own = OwnCgroup {
            directories,
            version_2: true,
        };
        (root, own)
    }

    fn names(own: &OwnCgroup) -> Vec<String> {
        let all = parents(own, &BOTH).into_iter();
        all.map(|path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into()
        })
        .collect()
    }

    #[test]
    fn cgroup_whose_children_have_the_controllers_comes_first() {
        let (_root, own) = tree(["", "memory\n", "cpu memory pids\n", "cpu memory\n"]);
        assert_eq!(names(&own)[0], "a");
        assert_eq!(names(&own)[2..], ["c", "b"]);
    }

    #[test]
    fn nothing_above_a_limit_comes_into_question() {
        let (root, own) = tree(["", "", "", "cpu memory\n"]);
        fs::write(root.path().join("a/b/cpu.max"), "max 100000\n").unwrap();
        fs::write(root.path().join("a/b/memory.max"), "1048576\n").unwrap();
        assert_eq!(names(&own), ["c", "b"]);
    }

    #[test]
    fn version_1_uses_its_own_cgroup() {
        let (_root, own) = tree(["", "", "", ""]);
        let own = OwnCgroup {
            version_2: false,
            ..own
        };
        assert_eq!(names(&own), ["c"]);
    }

    #[test]
    fn only_missing_controllers_are_enabled() {
        let (root, own) = tree(["memory\n", "", "", ""]);
        let path = own.directories[0].join("cgroup.subtree_control");
        assert_eq!(
            enable(&own.directories[0], &BOTH).unwrap(),
            [Controller::Cpu]
        );
        assert_eq!(fs::read_to_string(path).unwrap(), "+cpu");
        assert!(enable(&root.path().join("nonexistent"), &BOTH).is_err());
    }

    #[test]
    fn controllers_are_enabled_in_one_write_of_which_the_kernel_takes_all_or_nothing() {
        let (_root, own) = tree(["", "", "", ""]);
        assert_eq!(enable(&own.directories[0], &BOTH).unwrap(), BOTH);
        let path = own.directories[0].join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(path).unwrap(), "+cpu +memory");
    }

    fn empty() -> RunCgroup {
        RunCgroup {
            places: CgroupDirectories::default(),
            enabled: Vec::new(),
            locks: Vec::new(),
        }
    }

    #[test]
    fn place_that_is_refused_is_left_as_it_was_and_the_next_one_is_used() {
        let (_root, own) = tree(["", "", "", ""]);
        let (first, second) = (own.directories[0].clone(), own.directories[1].clone());
        // Every name is taken.
        let pid = std::process::id();
        for number in 0..=NAMES {
            fs::write(first.join(format!("{PREFIX}{pid}-{number}")), "").unwrap();
        }
        let hierarchy = Hierarchy {
            own,
            controllers: BOTH.to_vec(),
        };
        let mut run = empty();
        run.add(&hierarchy).unwrap();
        let written = |at: &Path| fs::read_to_string(at.join("cgroup.subtree_control")).unwrap();
        assert_eq!(written(&first), "-memory", "both were taken away again");
        assert_eq!(written(&second), "+cpu +memory");
        assert!(run.enabled.iter().all(|(parent, _)| *parent == second));
        let directory = run.places.directories()[0].to_owned();
        assert!(directory.starts_with(&second));
        assert_eq!(written(&directory), "+cpu +memory");
        assert_eq!(run.locks.len(), 1);
        // The kernel's files would not be in the way of its removal.
        fs::remove_file(directory.join("cgroup.subtree_control")).unwrap();
        assert!(run.remove());
    }

    #[test]
    fn starting_run_keeps_its_cgroup_while_others_remove_what_is_left_over() {
        let root = tempfile::tempdir().unwrap();
        let is_over = AtomicBool::new(false);
        let kept = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        remove_left_over(root.path());
                    }
                });
            }
            let kept = || {
                let (directory, _lock) = new_directory(root.path())?;
                thread::sleep(Duration::from_micros(50));
                let exists = directory.exists();
                // Names are few, and the others may have no core to remove it on.
                let _ = fs::remove_dir(&directory);
                Ok::<bool, LimitError>(exists)
            };
            let kept: Vec<_> = (0..200).map(|_| kept()).collect();
            is_over.store(true, Ordering::Relaxed);
            kept
        });
        for exists in kept {
            assert!(exists.unwrap());
        }
    }

    #[test]
    fn cgroups_in_use_are_not_left_over() {
        let root = tempfile::tempdir().unwrap();
        let [used, left, other] = ["meshtax-run-1-0", "meshtax-run-2-0", "meshtax-e2e"]
            .map(|name| root.path().join(name));
        for path in [&used, &left.join("proxy-0"), &other] {
            fs::create_dir_all(path).unwrap();
        }
        let places = CgroupDirectories {
            cpu: Some(CgroupDirectory {
                directory: used.clone(),
                version_2: true,
            }),
            memory: None,
        };
        let locks = places.lock().unwrap();
        remove_left_over(root.path());
        assert!(used.exists() && other.exists() && !left.exists());
        drop(locks);
        remove_left_over(root.path());
        assert!(!used.exists() && other.exists());
    }
}
