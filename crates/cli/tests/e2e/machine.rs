//! Compares the machine before and after a run: nothing may be left, however the run ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::processes::{self, Process, descendants};
use crate::support::{BINARY, Running, Scratch, alone, envoy};

/// The kernel removes namespaces asynchronously after their last process.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

const NAMESPACES: [&str; 5] = ["net", "mnt", "pid", "ipc", "user"];

/// Everything on the machine that a run could leave behind, as lines of text.
#[derive(Debug)]
pub(crate) struct Machine {
    things: BTreeSet<String>,
}

impl Machine {
    pub(crate) fn now(scratch: &Scratch) -> Self {
        let mut things = BTreeSet::new();
        let mut add = |kind: &str, names: Vec<String>| {
            things.extend(names.into_iter().map(|name| format!("{kind}: {name}")));
        };
        add("link", links());
        add("mount", lines("/proc/self/mountinfo"));
        add("cgroup", cgroups());
        add("shared memory", names(Path::new("/dev/shm")));
        add("named namespace", names(Path::new("/run/netns")));
        add("temporary file", names(&scratch.path("tmp")));
        add("in /tmp", lab_like(names(Path::new("/tmp"))));
        Self { things }
    }
}

fn lines(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn links() -> Vec<String> {
    lines("/proc/self/net/dev")
        .iter()
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The lab's files in the shared /tmp.
fn lab_like(names: Vec<String>) -> Vec<String> {
    let ours = |name: &String| name.contains("meshtax-lab");
    names.into_iter().filter(ours).collect()
}

/// Control groups below this process's own, and any named after the product; those of the machine's services change
/// independently.
fn cgroups() -> Vec<String> {
    let own: Vec<String> = lines("/proc/self/cgroup")
        .iter()
        .filter_map(|line| Some(line.rsplit_once(':')?.1.to_owned()))
        .collect();
    let mut found = Vec::new();
    directories_below(Path::new("/sys/fs/cgroup"), &mut found);
    found.retain(|path| path.contains("meshtax") || own.iter().any(|own| path.contains(own)));
    found
}

fn directories_below(path: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path().display().to_string());
            directories_below(&entry.path(), found);
        }
    }
}

/// The processes of a run and the namespaces that they were in.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    run: BTreeSet<Process>,
    namespaces: BTreeSet<String>,
    /// Processes that could hold such a namespace; its number may be reused later.
    contemporaries: BTreeSet<Process>,
}

impl Trace {
    /// Records the run's current processes and namespaces.
    pub(crate) fn look(&mut self, run: u32) {
        let own = Process::find(std::process::id()).expect("this process");
        let own: BTreeSet<String> = NAMESPACES.iter().filter_map(|n| own.namespace(n)).collect();
        self.run.extend(Process::find(run));
        self.run.extend(descendants(run));
        let seen = self
            .run
            .iter()
            .flat_map(|process| NAMESPACES.iter().filter_map(|n| process.namespace(n)));
        self.namespaces.extend(seen.filter(|n| !own.contains(n)));
        self.contemporaries.extend(processes::all());
    }

    /// How many processes were seen.
    pub(crate) fn processes(&self) -> usize {
        self.run.len()
    }

    pub(crate) fn namespaces(&self) -> usize {
        self.namespaces.len()
    }

    fn survivors(&self) -> Vec<String> {
        let all = processes::all();
        let ours = |process: &&Process| {
            self.run.contains(process)
                || process.runs(Path::new(BINARY))
                || envoy().is_some_and(|envoy| process.runs(envoy))
        };
        let processes = all
            .iter()
            .filter(ours)
            .map(|process| format!("process {}: {:?}", process.pid, process.words()));
        let holders = all.intersection(&self.contemporaries);
        let namespaces = holders.flat_map(|holder| self.held_by(*holder));
        processes.chain(namespaces).collect()
    }

    /// The run's namespaces that a process is in or holds by a descriptor.
    fn held_by(&self, holder: Process) -> Vec<String> {
        let open = fs::read_dir(format!("/proc/{}/fd", holder.pid));
        let open = open.into_iter().flatten().flatten();
        let open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        NAMESPACES
            .iter()
            .filter_map(|name| holder.namespace(name))
            .chain(open.map(|link| link.to_string_lossy().into_owned()))
            .filter(|namespace| self.namespaces.contains(namespace))
            .map(|namespace| format!("namespace {namespace} held by {}", holder.pid))
            .collect()
    }
}

/// What the run created and that still exists.
fn left(before: &Machine, after: &Machine, trace: &Trace) -> Vec<String> {
    let mut left = trace.survivors();
    left.extend(after.things.difference(&before.things).cloned());
    left
}

/// Fails the test unless everything that the run created is gone.
#[track_caller]
pub(crate) fn assert_nothing_left(before: &Machine, trace: &Trace, scratch: &Scratch) {
    let since = Instant::now();
    loop {
        let after = Machine::now(scratch);
        let left = left(before, &after, trace);
        if left.is_empty() {
            return assert_nothing_taken(before, &after);
        }
        let waited = since.elapsed();
        assert!(waited < SETTLES_WITHIN, "left after {waited:?}: {left:#?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn assert_nothing_taken(before: &Machine, after: &Machine) {
    let lasting = |thing: &&String| thing.starts_with("link") || thing.starts_with("mount");
    let gone: Vec<_> = before.things.difference(&after.things).collect();
    let gone: Vec<_> = gone.into_iter().filter(lasting).collect();
    assert!(gone.is_empty(), "the run removed: {gone:#?}");
}

/// Otherwise every test that ends with this comparison could pass vacuously.
#[test]
fn leftover_process_and_file_are_detected() {
    let _alone = alone();
    let scratch = Scratch::new();
    let before = Machine::now(&scratch);
    let mut command = Command::new("/bin/sleep");
    command.arg("60");
    let sleeper = Running::start(command);
    let mut trace = Trace::default();
    trace.look(sleeper.pid());
    let file = scratch.write("tmp/forgotten", "");
    let seen = left(&before, &Machine::now(&scratch), &trace);
    let expected = [
        format!("process {}: ", sleeper.pid()),
        "temporary file: forgotten".to_owned(),
    ];
    for thing in expected {
        assert!(seen.iter().any(|s| s.starts_with(&thing)), "{seen:#?}");
    }
    drop(sleeper);
    fs::remove_file(file).expect("the file");
    assert_nothing_left(&before, &trace, &scratch);
}
