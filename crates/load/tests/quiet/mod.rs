//! Tests that go by the clock, on machines that others share.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A core that leaves what is ready waiting for so long was taken by others: the kernel lets one that has slept
/// run sooner than that, however busy the tests keep it.
const STALL: Duration = Duration::from_millis(8);

const TRIES: u32 = 5;

/// Runs a check that goes by the clock. If it fails although no core stood still, it has failed. If it fails and
/// one did, that says nothing: it is run again, and in the end said not to have been made.
///
/// # Panics
/// As the check does.
pub(crate) fn while_the_machine_is_ours(what: &str, check: impl Fn()) {
    let mut longest = Duration::ZERO;
    for _ in 0..TRIES {
        let watch = Watch::start();
        let outcome = catch_unwind(AssertUnwindSafe(&check));
        let stall = watch.end();
        match outcome {
            Ok(()) => return,
            Err(panic) if stall < STALL => resume_unwind(panic),
            Err(_) => longest = longest.max(stall),
        }
    }
    // Past what keeps the output of tests that pass: nobody is to think that this was tested.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: {what}: in each of {TRIES} tries a core stood still, for up to {} ms",
        longest.as_millis()
    );
}

/// A thread on each core that sleeps, and sees how much later than asked for it wakes.
struct Watch {
    ended: Arc<AtomicBool>,
    cores: Vec<JoinHandle<Duration>>,
}

impl Watch {
    fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let allowed = sched_getaffinity(None).expect("the cores of this process");
        let cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let watched = cores.map(|core| {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || latest(core, &ended))
        });
        Self {
            cores: watched.collect(),
            ended,
        }
    }

    /// The longest time that a core stood still.
    fn end(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        let all = self.cores.into_iter().map(JoinHandle::join);
        all.map(|late| late.expect("a watch that ends"))
            .max()
            .unwrap_or_default()
    }
}

fn latest(core: usize, ended: &AtomicBool) -> Duration {
    const STEP: Duration = Duration::from_millis(1);
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).expect("a core of this process");
    let mut latest = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
        let begin = Instant::now();
        std::thread::sleep(STEP);
        latest = latest.max(begin.elapsed().saturating_sub(STEP));
    }
    latest
}
