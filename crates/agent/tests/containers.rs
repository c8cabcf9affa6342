//! What a container used, against the files of its cgroup, read beside the agent at the same instants.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use meshtax_agent::{Meter, NodeUsage, Process, Watched, observe_window};
use meshtax_load::Window;
use meshtax_model::trial::ComponentRole;
use meshtax_observe::{Cgroup, Limited, monotonic_ns, sleep_until_ns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROOT: &str = "/sys/fs/cgroup";

/// What the container holds: far more than the kernel's batches of pages.
const BUFFER_MIB: u64 = 192;

/// A container: a cgroup with a process that is always busy and holds memory.
struct Container {
    id: String,
    /// One with version 2; in version 1 each controller has its own.
    directories: Vec<PathBuf>,
    busy: Child,
}

fn controllers() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    match root.join("cgroup.controllers").exists() {
        true => vec![root.to_path_buf()],
        false => ["cpuacct", "memory"].map(|name| root.join(name)).to_vec(),
    }
}

impl Container {
    /// `None`: this user may not make cgroups.
    fn start() -> Option<Self> {
        let id = format!("meshtax-test-{}", std::process::id());
        let mut directories = Vec::new();
        for controller in controllers() {
            let directory = controller.join(&id);
            fs::create_dir(&directory).ok()?;
            directories.push(directory);
        }
        // It waits until it is in its cgroups: memory is charged where it is first touched.
        let dd = format!("read _ && exec dd if=/dev/zero of=/dev/null bs={BUFFER_MIB}M");
        let mut busy = Command::new("sh")
            .args(["-c", &dd])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        for directory in &directories {
            let joined = fs::write(directory.join("cgroup.procs"), busy.id().to_string());
            joined.expect("a cgroup that admits it");
        }
        let mut input = busy.stdin.take().expect("a pipe");
        input.write_all(b"\n").expect("a waiting shell");
        let this = Self {
            id,
            directories,
            busy,
        };
        while this.held_bytes() < BUFFER_MIB << 20 {
            thread::sleep(Duration::from_millis(20));
        }
        Some(this)
    }

    fn read(&self, file: &str) -> String {
        let paths = self.directories.iter().map(|d| d.join(file));
        let mut texts = paths.filter_map(|path| fs::read_to_string(path).ok());
        texts.next().unwrap_or_default()
    }

    /// A line `KEY NUMBER` of a file.
    fn number(&self, file: &str, key: &str) -> Option<u64> {
        let text = self.read(file);
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        value?.parse().ok()
    }

    fn cpu_ns(&self) -> u64 {
        let version_2 = self.number("cpu.stat", "usage_usec").map(|us| us * 1000);
        version_2.unwrap_or_else(|| self.read("cpuacct.usage").trim().parse().expect("a number"))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.busy.id().cast_signed()), signal).expect("its own child");
    }

    fn held_bytes(&self) -> u64 {
        let version_2 = self.number("memory.stat", "anon");
        let held = version_2.or_else(|| self.number("memory.stat", "rss"));
        held.expect("an account of its memory")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.busy.kill();
        let _ = self.busy.wait();
        for directory in &self.directories {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// As an agent observes it on a node.
fn observed(container: &Container, window: Window) -> NodeUsage {
    let cgroup = Cgroup::of_container(Path::new(ROOT), &container.id).unwrap();
    let watched = Watched {
        cores: vec![0],
        processes: vec![Process {
            meter: Meter::Container(Arc::new(cgroup)),
            name: "busy".into(),
            role: ComponentRole::App,
            node: 0,
            idles_for: None,
            limited: Limited::default(),
        }],
        servers: Vec::new(),
        proxy_port: None,
        entrance: None,
    };
    observe_window(&watched, window).unwrap()
}

fn assert_within_one_percent(what: &str, found: u64, by_hand: u64) {
    let difference = found.abs_diff(by_hand);
    assert!(
        difference * 100 <= by_hand,
        "{what}: {found}, and {by_hand} by hand"
    );
}

/// What an agent observed in a window, and the CPU by hand. The container is busy within the window only: nothing changes at
/// its edges, whenever each of the two reads. `None`: it was stopped too late for that.
fn measured(container: &Container) -> Option<(NodeUsage, u64)> {
    const EDGE_NS: u64 = 300_000_000;
    container.signal(Signal::SIGSTOP);
    let start_ns = monotonic_ns() + EDGE_NS;
    let end_ns = start_ns + 2_000_000_000;
    let window = Window {
        start_monotonic_ns: start_ns,
        end_monotonic_ns: end_ns,
    };
    let by_hand = || {
        sleep_until_ns(start_ns);
        let before = container.cpu_ns();
        sleep_until_ns(start_ns + EDGE_NS);
        container.signal(Signal::SIGCONT);
        sleep_until_ns(end_ns - EDGE_NS);
        container.signal(Signal::SIGSTOP);
        let is_in_time = monotonic_ns() < end_ns - EDGE_NS / 2;
        sleep_until_ns(end_ns);
        is_in_time.then(|| container.cpu_ns() - before)
    };
    thread::scope(|scope| {
        let by_hand = scope.spawn(by_hand);
        let usage = observed(container, window);
        Some((usage, by_hand.join().unwrap()?))
    })
}

#[test]
fn cpu_and_memory_of_a_container_are_those_of_its_files() {
    let Some(container) = Container::start() else {
        let why = "no cgroup can be made here, which root can";
        let _ = writeln!(std::io::stderr(), "SKIPPED: a container's files: {why}");
        return;
    };
    let (usage, cpu_ns) = (0..5)
        .find_map(|_| measured(&container))
        .expect("a machine that stops a process in time");
    let [component] = usage.components.as_slice() else {
        panic!("{:?}", usage.components);
    };
    assert!(cpu_ns > 100_000_000, "it was busy for {cpu_ns} ns only");
    assert_within_one_percent("CPU", component.cpu_ns, cpu_ns);
    let held = component.memory.expect("its memory").anonymous_bytes;
    assert_within_one_percent("memory", held, container.held_bytes());
}
