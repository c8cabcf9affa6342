//! `kill -9` at any time, of any process of a run: nothing is left on the machine, and the killed process is reported.
//! Only descendants of the run that the test started are killed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machine::{Machine, Trace, assert_nothing_left};
use crate::outcome::{caveat_ids, variant_of};
use crate::processes::{Process, descendants};
use crate::specs::{SATURATED, candidates, run_arguments, spec};
use crate::support::{
    Finished, PATIENCE, Running, Scratch, alone, envoy, finish, meshtax, records,
};

/// Number of killed runs, and the seed of the times: `MESHTAX_KILL_RUNS`, `MESHTAX_KILL_SEED`.
const RUNS: u64 = 8;
const SEED: u64 = 20_261_121;

/// Enough blocks for intervals even if a round lacks one variant.
const DESIGN: &str = "rounds: 3, blocks: 3, trial: 100ms, warmup: 20ms, time: 12s";

const MAX_DELAY: Duration = Duration::from_millis(1500);

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

/// SplitMix64: the delays differ between runs, and repeat with the seed.
struct Delays(u64);

impl Delays {
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
fn killing_any_process_leaves_nothing_behind() {
    let _alone = alone();
    let seed = setting("MESHTAX_KILL_SEED", SEED);
    let mut delays = Delays(seed);
    for (number, victim) in (0..setting("MESHTAX_KILL_RUNS", RUNS)).zip(VICTIMS.iter().cycle()) {
        let attempt = Attempt {
            scratch: Scratch::new(),
            victim: *victim,
            label: format!("run {number} of seed {seed}, {victim:?} killed"),
        };
        attempt.run(&mut delays);
    }
}

/// The processes of a run.
struct Lab(BTreeSet<Process>);

impl Lab {
    /// The process whose command line contains all of these words.
    fn with(&self, words: &[&str]) -> Option<Process> {
        let has = |p: &&Process| words.iter().all(|word| p.words().join(" ").contains(word));
        self.0.iter().find(has).copied()
    }

    /// Whether this client's proxy is under load: the generator is in its pod.
    /// The death of a proxy after its last trial of a round affects no figure and is not reported.
    fn is_measured(&self, proxy: Process) -> bool {
        let pod = proxy.namespace("net");
        let generator = self.with(&["internal load"]);
        pod.is_some() && generator.and_then(|g| g.namespace("net")) == pod
    }

    /// The application in this proxy's pod: its command line does not name the pod.
    fn app_beside(&self, proxy: Process) -> Option<Process> {
        let pod = proxy.namespace("net")?;
        let is_app = |p: &&Process| p.words().join(" ").contains("internal app");
        let mut apps = self.0.iter().filter(is_app);
        apps.find(|app| app.namespace("net").as_ref() == Some(&pod))
            .copied()
    }
}

/// A run of which one process is killed.
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

    fn run(&self, delays: &mut Delays) {
        let text = spec("killed", &candidates(), SATURATED, DESIGN);
        let path = self.scratch.write("spec.yaml", &text);
        let before = Machine::now(&self.scratch);
        let out = self.out();
        let mut arguments = run_arguments(&path, &out);
        arguments.push("--json");
        let mut run = Running::start(meshtax(&self.scratch, &arguments));
        // The run and its lab are killed at any time; processes of a variant while it is measured, because a variant
        // that dies earlier is excluded, which another test covers.
        if !matches!(self.victim, Victim::Run | Victim::LabInit) {
            run.wait_until("a trial", |_| self.trials() > 0);
        }
        thread::sleep(delays.below(MAX_DELAY));
        let mut trace = Trace::default();
        let killed = self.kill(&run, &mut trace);
        let finished = run.finish(PATIENCE);
        assert_nothing_left(&before, &trace, &self.scratch);
        self.check(&finished, &killed);
    }

    /// Kills the victim as soon as it exists. Returns its component name.
    fn kill(&self, run: &Running, trace: &mut Trace) -> String {
        let since = Instant::now();
        loop {
            trace.look(run.pid());
            if let Some((process, name)) = self.find(run.pid())
                && process.kill()
            {
                return name;
            }
            let text = run.stderr_text();
            assert!(
                since.elapsed() < PATIENCE,
                "{}: none found: {text}",
                self.label
            );
            // Each look takes milliseconds of the cores that the run measures on.
            thread::sleep(Duration::from_millis(15));
        }
    }

    fn find(&self, run: u32) -> Option<(Process, String)> {
        let lab = Lab(descendants(run));
        match self.victim {
            Victim::Run => Process::find(run).map(|p| (p, String::new())),
            Victim::LabInit => Some((lab.with(&["internal lab"])?, "the lab's init".into())),
            Victim::Generator => {
                // A candidate's: with too few valid trials of a baseline there is nothing to compare.
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
                Some((app, "limit-mtls/server-app".into()))
            }
        }
    }

    fn check(&self, finished: &Finished, killed: &str) {
        let text = format!("{}\n{}", finished.stderr, finished.stdout);
        let about = format!("{}: {text}", self.label);
        assert!(!text.contains("panicked"), "{about}");
        match self.victim {
            Victim::Run => assert_eq!(finished.code, 137, "{about}"),
            Victim::LabInit => {
                let code = if self.trials() == 0 { 12 } else { 13 };
                assert_eq!(finished.code, code, "{about}");
                assert!(finished.stderr.contains("signal 9"), "{about}");
            }
            _ => {
                finished.expect_success_or_busy_cores();
                assert!(self.is_stored(killed), "no {killed}: {about}");
            }
        }
        self.check_report();
    }

    /// Whether the store has the killed process and its signal.
    fn is_stored(&self, killed: &str) -> bool {
        let trials = records(&self.out().join("trials.jsonl"));
        let failures = records(&self.out().join("failures.jsonl"));
        if self.victim == Victim::Generator {
            let details = trials.iter().map(|trial| &trial["outcome"]["failure"]);
            let in_trials = details.filter(|failure| failure["id"] == "load-failed");
            // In the burst before the trials.
            let reasons = failures.iter().map(|failure| &failure["reason"]);
            let at_start = reasons.filter(|reason| reason["id"] == "start-failed");
            let mut details = in_trials.chain(at_start).map(|failure| &failure["detail"]);
            return details.any(|detail| detail.to_string().contains("signal 9"));
        }
        let outcomes = trials.iter().map(|trial| &trial["outcome"]);
        let in_trials = outcomes.flat_map(|outcome| {
            let lists = [
                &outcome["component_failures"],
                &outcome["failure"]["components"],
            ];
            lists.map(|list| list.as_array())
        });
        let at_start = failures
            .iter()
            .map(|failure| failure["reason"]["ended"].as_array());
        let mut all = in_trials.chain(at_start).flatten().flatten();
        let ending = json!({"id": "killed", "signal": 9});
        all.any(|failure| failure["component"] == killed && failure["ending"] == ending)
    }

    /// What was measured until then can be reported, with its ending.
    fn check_report(&self) {
        let out = self.out();
        let began = out.join("manifest.json").is_file();
        let out = out.to_str().expect("UTF-8");
        let arguments = ["report", out, "--format", "json"];
        let report = finish(meshtax(&self.scratch, &arguments));
        let text = format!("{}: {}\n{}", self.label, report.stderr, report.stdout);
        assert_eq!(report.code, if began { 0 } else { 14 }, "{text}");
        if !began {
            return;
        }
        let analysis = report.json();
        let ending = &analysis["run"]["ending"];
        match self.victim {
            Victim::Run => assert_eq!(*ending, Value::Null, "{text}"),
            Victim::LabInit => assert_eq!(ending["failure"], "engine-lost", "{text}"),
            _ => assert_eq!(ending["id"], "time-used", "{text}"),
        }
        let is_partial = matches!(self.victim, Victim::Run | Victim::LabInit);
        let caveats = caveat_ids(&analysis);
        assert_eq!(caveats.contains("incomplete"), is_partial, "{text}");
        variant_of(&analysis, "limit-mtls");
    }
}
