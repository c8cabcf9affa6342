//! Other processes on the measured cores.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use meshtax_model::trial::OtherProcess;

use crate::ObserveError;
use crate::text::{ProcessStat, read_once, tick_ns};

/// `PF_KTHREAD` in the kernel's flags of a process.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Which processes take part in a run.
#[derive(Clone, Debug, Default)]
pub struct Ours {
    /// All in this PID namespace, as the link `ns/pid` names it: `pid:[4026532281]`. It must be one
    /// made for the run, or no process counts as foreign. Nested namespaces are not included.
    pub pid_namespace: Option<OsString>,
    /// And these, by their numbers in the `/proc` that is looked at.
    pub pids: BTreeSet<u32>,
}

impl Ours {
    /// The processes of the calling process's PID namespace, and some more.
    ///
    /// # Errors
    /// If the own `/proc` does not show which namespace it is.
    pub fn here_and(pids: impl IntoIterator<Item = u32>) -> Result<Self, ObserveError> {
        let link = fs::read_link("/proc/self/ns/pid")
            .map_err(|e| ObserveError::new("the own PID namespace", e))?;
        Ok(Self {
            pid_namespace: Some(link.into_os_string()),
            pids: pids.into_iter().collect(),
        })
    }

    fn has(&self, pid: u32, directory: &Path) -> bool {
        let in_namespace = |own: &OsString| {
            // Who may not read the link is not root over that process, as it is over all of a run.
            fs::read_link(directory.join("ns/pid")).is_ok_and(|link| link.as_os_str() == own)
        };
        self.pids.contains(&pid) || self.pid_namespace.as_ref().is_some_and(in_namespace)
    }
}

/// Process ids are reused; together with the start time they are unique.
type Key = (u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ours,
    KernelThread,
    Other,
}

/// Reads all processes of a `/proc`, and caches their identities.
///
/// A look costs 10 to 20 µs per process (measured in a virtual machine): one read of `PID/stat` each,
/// one more for a kernel thread, and a link once in a process's life. So a thousand processes are
/// some 15 ms: not for within a window.
#[derive(Debug)]
pub struct Others {
    proc_root: PathBuf,
    cores: Vec<u32>,
    ours: Ours,
    known: BTreeMap<Key, Kind>,
}

/// The CPU time of all processes but ours at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    seen: BTreeMap<Key, Seen>,
    /// Distinguishes a machine without kernel threads from one that hides them.
    shows_kernel_threads: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    is_kernel_thread: bool,
    on_cores: bool,
    cpu_ns: u64,
}

impl Others {
    /// Will look at this `/proc`, which need not be of the own PID namespace (`/proc/self/fd/N` of an
    /// open one does), for what runs on these cores.
    #[must_use]
    pub fn new(proc_root: impl Into<PathBuf>, cores: &[u32], ours: Ours) -> Self {
        Self {
            proc_root: proc_root.into(),
            cores: cores.to_vec(),
            ours,
            known: BTreeMap::new(),
        }
    }

    /// Takes a reading; `None` if this `/proc` shows neither kernel threads nor any process but ours (a
    /// container), or cannot be read.
    pub fn look(&mut self) -> Option<Look> {
        let mut look = Look::default();
        let mut known = BTreeMap::new();
        for entry in fs::read_dir(&self.proc_root).ok()?.map_while(Result::ok) {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(pid) = pid else { continue };
            if let Some((key, kind, seen)) = self.process(pid, &entry.path()) {
                known.insert(key, kind);
                look.shows_kernel_threads |= kind == Kind::KernelThread;
                look.seen.extend(seen.map(|seen| (key, seen)));
            }
        }
        // Ended processes are removed from the cache.
        self.known = known;
        (!look.seen.is_empty()).then_some(look)
    }

    /// `None` if it ended meanwhile, or as good as: one that waits only for its parent to notice
    /// shows its namespace no more.
    fn process(&self, pid: u32, directory: &Path) -> Option<(Key, Kind, Option<Seen>)> {
        let stat = ProcessStat::parse(&read_once(&directory.join("stat")).ok()?)?;
        let key = (pid, stat.started);
        let kind = match self.known.get(&key) {
            Some(kind) => *kind,
            None if stat.flags & KERNEL_THREAD != 0 => Kind::KernelThread,
            None if matches!(stat.state, 'Z' | 'X') => return None,
            None if self.ours.has(pid, directory) => Kind::Ours,
            None => Kind::Other,
        };
        let seen = (kind != Kind::Ours).then(|| self.seen(stat, kind, directory));
        Some((key, kind, seen))
    }

    fn seen(&self, stat: ProcessStat, kind: Kind, directory: &Path) -> Seen {
        let is_kernel_thread = kind == Kind::KernelThread;
        let ticks = stat.user_ticks.saturating_add(stat.system_ticks);
        let exact = || run_ns(&read_once(&directory.join("schedstat")).ok()?);
        let cpu_ns = is_kernel_thread.then(exact).flatten();
        Seen {
            name: stat.name,
            is_kernel_thread,
            on_cores: self.cores.contains(&stat.core),
            cpu_ns: cpu_ns.unwrap_or_else(|| ticks.saturating_mul(tick_ns())),
        }
    }
}

/// Of `/proc/PID/schedstat`, which is of one thread: a kernel thread has no other.
fn run_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().next()?.parse().ok()
}

impl Look {
    /// What was used since an earlier look: processes that have no part in the run, the busiest first,
    /// in ticks of 10 ms and all threads together; and all kernel threads in nanoseconds, `None` if
    /// they cannot be seen.
    ///
    /// Counted is who ran last on one of the cores, at either look: the main thread's core, so a
    /// process whose other threads alone run there is missed, and one that ran elsewhere most of the
    /// time is counted whole. A process that is new counts with all that it used; one that began and
    /// ended in between is lost, and of one that ended what it used last.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> (Vec<OtherProcess>, Option<u64>) {
        let mut others = Vec::new();
        let mut kernel_threads_ns = 0_u64;
        for (key, seen) in &self.seen {
            let before = earlier.seen.get(key);
            let cpu_ns = seen.cpu_ns.saturating_sub(before.map_or(0, |b| b.cpu_ns));
            let on_cores = seen.on_cores || before.is_some_and(|b| b.on_cores);
            if !on_cores || cpu_ns == 0 {
                continue;
            }
            if seen.is_kernel_thread {
                kernel_threads_ns = kernel_threads_ns.saturating_add(cpu_ns);
            } else {
                let name = seen.name.clone();
                others.push(OtherProcess { name, cpu_ns });
            }
        }
        others.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then_with(|| a.name.cmp(&b.name)));
        let visible = self.shows_kernel_threads.then_some(kernel_threads_ns);
        (others, visible)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A `/proc` made of files.
    struct Made(tempfile::TempDir);

    impl Made {
        fn new() -> Self {
            let made = Self(tempfile::tempdir().unwrap());
            fs::write(made.0.path().join("version"), "x").unwrap();
            made
        }

        /// With its state, flags, user and system ticks, start and core.
        fn set(&self, pid: u32, name: &str, figures: (char, u32, u64, u64, u64, u32)) -> PathBuf {
            let (state, flags, user, system, started, core) = figures;
            let directory = self.0.path().join(pid.to_string());
            fs::create_dir_all(directory.join("ns")).unwrap();
            let zeros = "0 ".repeat(16);
            let stat = format!(
                "{pid} ({name}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 {user} {system} 0 0 20 0 1 0 \
                 {started} {zeros}{core} 0 0\n"
            );
            fs::write(directory.join("stat"), stat).unwrap();
            directory
        }

        fn others(&self) -> Others {
            let ours = Ours {
                pid_namespace: Some("pid:[7]".into()),
                pids: BTreeSet::from([11]),
            };
            Others::new(self.0.path(), &[1, 2], ours)
        }
    }

    fn named(others: &[OtherProcess]) -> Vec<(&str, u64)> {
        let ticks = |o: &OtherProcess| o.cpu_ns / tick_ns();
        others.iter().map(|o| (o.name.as_str(), ticks(o))).collect()
    }

    #[test]
    fn other_processes_on_our_cores_count_and_ours_do_not() {
        let made = Made::new();
        let proxy = made.set(10, "envoy", ('S', 0, 1, 1, 5, 1));
        symlink("pid:[7]", proxy.join("ns/pid")).unwrap();
        made.set(11, "runner", ('S', 0, 1, 1, 5, 1));
        made.set(12, "build", ('R', 0, 10, 2, 5, 1));
        made.set(13, "moved", ('R', 0, 1, 0, 5, 2));
        made.set(14, "elsewhere", ('R', 0, 1, 0, 5, 0));
        let mut others = made.others();
        let before = others.look().unwrap();
        for pid in [10, 11] {
            made.set(pid, "ours", ('S', 0, 50, 50, 5, 1));
        }
        made.set(12, "build", ('R', 0, 11, 5, 5, 1));
        made.set(13, "moved", ('R', 0, 9, 0, 5, 0));
        made.set(14, "elsewhere", ('R', 0, 99, 0, 5, 0));
        made.set(15, "new", ('R', 0, 20, 1, 900, 2));
        let (list, kernel) = others.look().unwrap().since(&before);
        assert_eq!(named(&list), [("new", 21), ("moved", 8), ("build", 4)]);
        assert_eq!(kernel, None);
    }

    #[test]
    fn kernel_threads_are_summed_in_nanoseconds() {
        let made = Made::new();
        let flags = KERNEL_THREAD | 0x40;
        let soft = made.set(2, "ksoftirqd/1", ('S', flags, 0, 7, 1, 1));
        made.set(3, "kworker/1:0", ('I', flags, 0, 7, 1, 1));
        fs::write(soft.join("schedstat"), "1000 5 6\n").unwrap();
        let mut others = made.others();
        let before = others.look().unwrap();
        fs::write(soft.join("schedstat"), "4500 5 6\n").unwrap();
        // Without schedstat: ticks.
        made.set(3, "kworker/1:0", ('I', flags, 0, 8, 1, 1));
        let (list, kernel) = others.look().unwrap().since(&before);
        assert!(list.is_empty());
        assert_eq!(kernel, Some(3500 + tick_ns()));
    }

    #[test]
    fn reused_process_id_is_a_new_process() {
        let made = Made::new();
        made.set(20, "old", ('S', 0, 500, 0, 5, 1));
        let mut others = made.others();
        let before = others.look().unwrap();
        let again = made.set(20, "young", ('S', 0, 3, 0, 700, 1));
        assert_eq!(
            named(&others.look().unwrap().since(&before).0),
            [("young", 3)]
        );
        // And it is identified once in its life.
        symlink("pid:[7]", again.join("ns/pid")).unwrap();
        assert!(others.look().is_some());
        made.set(20, "ours", ('S', 0, 3, 0, 701, 1));
        assert_eq!(others.look(), None);
    }

    #[test]
    fn ended_process_counts_if_it_was_read_before() {
        let made = Made::new();
        made.set(30, "known", ('S', 0, 5, 0, 5, 1));
        let mut others = made.others();
        let before = others.look().unwrap();
        made.set(30, "known", ('Z', 0, 9, 0, 5, 1));
        made.set(31, "unknown", ('Z', 0, 9, 0, 6, 1));
        let (list, _) = others.look().unwrap().since(&before);
        assert_eq!(named(&list), [("known", 4)]);
    }

    #[test]
    fn proc_with_only_our_processes_gives_no_reading() {
        let made = Made::new();
        made.set(11, "runner", ('S', 0, 1, 1, 5, 1));
        fs::create_dir(made.0.path().join("12")).unwrap();
        let odd = made.set(13, "odd", ('S', 0, 1, 1, 5, 1));
        fs::write(odd.join("stat"), b"13 (\xff\xfe) S 1\n").unwrap();
        assert_eq!(made.others().look(), None);
        let nowhere = Others::new("/nowhere", &[0], Ours::default()).look();
        assert_eq!(nowhere, None);
    }

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn busy_process_is_found_unless_it_is_ours() {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "while :; do :; done"])
            .stdout(Stdio::null());
        let busy = Killed(shell.spawn().unwrap());
        let pid = busy.0.id();
        let cores: Vec<u32> = (0..4096).collect();
        let ours = |pids: &[u32]| Ours {
            pids: pids.iter().copied().collect(),
            ..Ours::default()
        };
        let mut strange = Others::new("/proc", &cores, ours(&[]));
        let mut known = Others::new("/proc", &cores, ours(&[pid]));
        let before = strange.look().unwrap();
        known.look();
        let key = |look: &Look| look.seen.keys().find(|key| key.0 == pid).copied();
        let key = key(&before).unwrap();
        let used = |look: &Look| look.seen[&key].cpu_ns - before.seen[&key].cpu_ns;
        // A busy machine leaves it little in a given time.
        let looks = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(200));
            strange.look().unwrap()
        });
        let after = looks.take(50).find(|look| used(look) >= 20_000_000);
        let after = after.expect("it is busy");
        let seen = known.look();
        drop(busy);
        let (list, _) = after.since(&before);
        let used = used(&after);
        assert!(list.iter().any(|o| o.name == "sh" && o.cpu_ns == used));
        assert!(list.is_sorted_by(|a, b| a.cpu_ns >= b.cpu_ns));
        assert!(known.known.get(&key) == Some(&Kind::Ours));
        assert!(seen.is_none_or(|look| !look.seen.contains_key(&key)));
    }

    #[test]
    fn processes_of_this_namespace_are_ours() {
        let mut others = Others::new("/proc", &[0], Ours::here_and([]).unwrap());
        let look = others.look();
        let own = others
            .known
            .iter()
            .find(|(key, _)| key.0 == std::process::id());
        assert_eq!(own.unwrap().1, &Kind::Ours);
        // A further reading identifies nothing again and is cheap: the fastest of some, since any may be interrupted.
        let each = (0..5).map(|_| {
            let start = Instant::now();
            let again = others.look();
            assert_eq!(look.is_some(), again.is_some());
            start.elapsed() / u32::try_from(others.known.len()).unwrap()
        });
        let each = each.min().unwrap();
        assert!(each < Duration::from_millis(1), "{each:?} per process");
    }
}
