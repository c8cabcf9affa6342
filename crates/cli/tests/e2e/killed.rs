//! `kill -9` at any moment, of any part of a run: nothing remains on the machine, and who died is
//! said. Only descendants of the run that the test itself started are ever killed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::{Machine, Trace, assert_nothing_left};
use crate::processes::{Process, descendants};
use crate::specs::{SATURATED, candidates, run_arguments, spec};
use crate::support::{
    Finished, PATIENCE, Running, Scratch, alone, envoy, finish, meshtax, records,
    run_was_taken_away, skipped,
};

/// How many runs are killed, and the seed of the moments: `MESHTAX_KILL_RUNS`, `MESHTAX_KILL_SEED`.
const RUNS: u64 = 8;
const SEED: u64 = 20_261_121;

/// Enough blocks that a round without one variant leaves the others' intervals.
const DESIGN: &str = "rounds: 3, blocks: 3, trial: 100ms, warmup: 20ms, time: 10s";

const MOMENTS: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Run,
    LabInit,
    Proxy,
    Generator,
    App,
}

const VICTIMS: [Victim; 5] = [
    Victim::Run,
    Victim::LabInit,
    Victim::Proxy,
    Victim::Generator,
    Victim::App,
];

/// SplitMix64: the moments differ between runs, and are the same in each repeat of the test.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).expect("seconds");
        Duration::from_micros(self.next() % most)
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_remains_whoever_is_killed() {
    let _alone = alone();
    let seed = setting("MESHTAX_KILL_SEED", SEED);
    let mut moments = Moments(seed);
    for (number, victim) in (0..setting("MESHTAX_KILL_RUNS", RUNS)).zip(VICTIMS.iter().cycle()) {
        let attempt = Attempt {
            scratch: Scratch::new(),
            victim: *victim,
            label: format!("run {number} of seed {seed}, {victim:?} killed"),
        };
        attempt.go(&mut moments);
    }
}

/// The processes of a run.
struct Lab(BTreeSet<Process>);

impl Lab {
    /// One whose command line holds all of these words.
    fn with(&self, words: &[&str]) -> Option<Process> {
        let has = |p: &&Process| words.iter().all(|word| p.words().join(" ").contains(word));
        self.0.iter().find(has).copied()
    }

    /// Whether load goes through this client's proxy just now: the generator is in its pod.
    /// A proxy that dies after its last trial of a round harms no figure, and nobody is told.
    fn is_measured(&self, proxy: Process) -> bool {
        let pod = proxy.namespace("net");
        let generator = self.with(&["internal load"]);
        pod.is_some() && generator.and_then(|g| g.namespace("net")) == pod
    }

    /// The application in this proxy's pod: its command line does not say whose it is.
    fn app_beside(&self, proxy: Process) -> Option<Process> {
        let pod = proxy.namespace("net")?;
        let is_app = |p: &&Process| p.words().join(" ").contains("internal app");
        let mut apps = self.0.iter().filter(is_app);
        apps.find(|app| app.namespace("net").as_ref() == Some(&pod))
            .copied()
    }
}

/// One run that is killed.
struct Attempt {
    scratch: Scratch,
    victim: Victim,
    label: String,
}

impl Attempt {
    fn out(&self) -> PathBuf {
        self.scratch.path("run")
    }

    fn trials(&self) -> usize {
        records(&self.out().join("trials.jsonl")).len()
    }

    fn go(&self, moments: &mut Moments) {
        let text = spec("killed", &candidates(), SATURATED, DESIGN);
        let path = self.scratch.write("spec.yaml", &text);
        let before = Machine::now(&self.scratch);
        let out = self.out();
        let arguments = run_arguments(&path, &out);
        let mut run = Running::start(meshtax(&self.scratch, &arguments));
        // The run and its lab are killed at any moment; parts of a variant while it is measured,
        // since a variant that dies before is left out, which is another test's subject.
        if !matches!(self.victim, Victim::Run | Victim::LabInit) {
            run.wait_until("a trial", |_| self.trials() > 0);
        }
        thread::sleep(moments.below(MOMENTS));
        let mut trace = Trace::default();
        let killed = self.kill(&run, &mut trace);
        let finished = run.finish(PATIENCE);
        assert_nothing_left(&before, &trace, &self.scratch);
        self.check(&finished, &killed);
    }

    /// Kills the victim as soon as there is one. Returns what is said of it.
    fn kill(&self, run: &Running, trace: &mut Trace) -> String {
        let since = Instant::now();
        loop {
            trace.look(run.pid());
            if let Some((process, name)) = self.find(run.pid())
                && process.kill()
            {
                return name;
            }
            let said = run.said();
            assert!(
                since.elapsed() < PATIENCE,
                "{}: none found: {said}",
                self.label
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn find(&self, run: u32) -> Option<(Process, String)> {
        let lab = Lab(descendants(run));
        match self.victim {
            Victim::Run => Process::find(run).map(|p| (p, String::new())),
            Victim::LabInit => Some((lab.with(&["internal lab"])?, "the lab's init".into())),
            Victim::Generator => {
                // Of a candidate: a baseline with too few valid trials leaves nothing to compare.
                lab.is_measured(lab.with(&["limit-proxy", "/limit-mtls/client/"])?)
                    .then_some(())?;
                Some((lab.with(&["internal load"])?, "the load generator".into()))
            }
            Victim::Proxy if envoy().is_some() => {
                let proxy = lab.with(&["envoy", "/envoy-sidecar-mtls/client/"])?;
                lab.is_measured(proxy).then_some(())?;
                Some((proxy, "envoy-sidecar-mtls/client-proxy".into()))
            }
            Victim::Proxy => {
                let proxy = lab.with(&["limit-proxy", "/limit-mtls/client/"])?;
                lab.is_measured(proxy).then_some(())?;
                Some((proxy, "limit-mtls/client-proxy".into()))
            }
            Victim::App => {
                lab.is_measured(lab.with(&["limit-proxy", "/limit-mtls/client/"])?)
                    .then_some(())?;
                let app = lab.app_beside(lab.with(&["limit-proxy", "/limit-mtls/server/"])?)?;
                Some((app, "limit-mtls/app".into()))
            }
        }
    }

    fn check(&self, finished: &Finished, killed: &str) {
        let said = format!("{}\n{}", finished.stderr, finished.stdout);
        let about = format!("{}: {said}", self.label);
        assert!(!said.contains("panicked"), "{about}");
        match self.victim {
            Victim::Run => assert_eq!(finished.code, 137, "{about}"),
            Victim::LabInit => {
                let code = if self.trials() == 0 { 12 } else { 13 };
                assert_eq!(finished.code, code, "{about}");
                assert!(
                    said.contains("the lab's init process was killed by signal 9"),
                    "{about}"
                );
            }
            _ => {
                if finished.code == 13 && run_was_taken_away(&self.scratch, &self.out()) {
                    skipped(
                        &format!("the answer of the run whose {killed} was killed"),
                        "the hypervisor took the machine away",
                    );
                } else {
                    finished.expect_success_or_company();
                }
                let named = said.contains(&format!("{killed} was killed by signal 9"));
                assert!(named, "no {killed}: {about}");
            }
        }
        self.check_report();
    }

    /// What was measured until then can be read, and says how it ended.
    fn check_report(&self) {
        let out = self.out();
        let began = out.join("manifest.json").is_file();
        let report = finish(meshtax(
            &self.scratch,
            &["report", out.to_str().expect("UTF-8")],
        ));
        let said = format!("{}: {}\n{}", self.label, report.stderr, report.stdout);
        assert_eq!(report.code, if began { 0 } else { 14 }, "{said}");
        let ending = match self.victim {
            _ if !began => return,
            Victim::Run => "Partial: killed or still running",
            Victim::LabInit => "Partial: the environment broke: ",
            _ => "limit-mtls",
        };
        assert!(report.stdout.contains(ending), "{said}");
        let partial = matches!(self.victim, Victim::Run | Victim::LabInit);
        assert_eq!(report.stdout.contains("Partial:"), partial, "{said}");
    }
}
