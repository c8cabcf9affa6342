//! What is determined before the first round: injected delays, the work of an application that saturates.

use meshtax_engine::RunError;
use meshtax_engine::fake::Fault;
use meshtax_model::experiment::{Inject, LoadPoint};
use meshtax_model::saturation::Saturation;
use meshtax_spec::{Lengths, add_injected, parse_all, preset};

use crate::setup::{Finished, SECOND, Setup, TEN_TRIALS, id, trial_id};

#[test]
fn injected_shares_are_resolved_to_nanoseconds_before_anything_is_stored() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
    let ran = setup.run();
    assert_eq!(ran.calls[..2], ["prepare", "start 0: none"]);
    assert!(
        ran.calls[2..11]
            .iter()
            .all(|call| call.starts_with("trial r0b1t0"))
    );
    assert_eq!(
        ran.calls[11..13],
        [
            "end",
            "start 1: none none-again limit-mtls envoy-sidecar-mtls envoy-sidecar-l7 none+delay"
        ]
    );
    let stored = ran.sink.experiment.as_ref().unwrap();
    let Some(Inject::DelayNs(ns)) = stored.variant(&id("none+delay")).unwrap().inject else {
        panic!("not resolved: {stored:?}");
    };
    assert!((14_000..17_000).contains(&ns), "{ns}");
    assert_eq!(*stored, ran.outcome.experiment);
    assert!(ran.sink.trials.iter().all(|t| t.trial.round > 0));
    assert!(ran.took_ns <= 120 * SECOND);
}

#[test]
fn a_failed_pilot_is_a_pilot_error() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
    setup.experiment.load_points.retain(|p| !p.is_steady());
    let ran = setup.run();
    assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
    assert_eq!(ran.calls, ["teardown"]);
    for fault in [
        Fault::VariantFails(id("none"), 0),
        Fault::TrialFails(trial_id("r0b1t02")),
    ] {
        let mut setup = Setup::new(TEN_TRIALS, [fault]);
        add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
        let ran = setup.run();
        assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
        assert!(ran.sink.calls.is_empty());
        assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
        assert!(ran.calls.len() < 10, "{:?}", ran.calls);
    }
}

#[test]
fn a_pilot_trial_whose_load_was_not_offered_is_measured_again() {
    let once = Fault::TrialFailsOnce(trial_id("r0b1t02"));
    let mut setup = Setup::new(TEN_TRIALS, [once.clone()]);
    add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
    let ran = setup.run();
    assert!(ran.outcome.problem.is_none());
    assert_eq!(
        ran.calls[2..6],
        [
            "trial r0b1t01",
            "trial r0b1t02",
            "trial r0b1t02",
            "trial r0b1t03"
        ]
    );
    let mut setup = Setup::new(TEN_TRIALS, [once]);
    setup.experiment.saturation = Some(Saturation::at(500.0));
    let ran = setup.run();
    assert!(ran.outcome.problem.is_none());
    let saturation = ran.outcome.experiment.saturation.unwrap();
    let reached = saturation.reached().unwrap();
    assert!((reached.rate_per_s / 500.0 - 1.0).abs() < 0.03);
    // A failure of the variant itself is final.
    let dies = Fault::ComponentDies(trial_id("r0b1t02"));
    let mut setup = Setup::new(TEN_TRIALS, [dies]);
    add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
    let ran = setup.run();
    assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
    let tries = ran.calls.iter().filter(|call| *call == "trial r0b1t02");
    assert_eq!(tries.count(), 1);
}

/// The fake application takes 0.1 ms of one core for a request, and 2 ns for each step of work.
#[test]
fn work_is_scaled_until_the_baseline_saturates_and_is_stored_with_its_bursts() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.experiment.saturation = Some(Saturation::at(500.0));
    let ran = setup.run();
    assert_eq!(
        ran.calls[..5],
        ["prepare", "work", "start 0: none", "trial r0b1t01", "end"]
    );
    let stored = ran.sink.experiment.as_ref().unwrap();
    let saturation = stored.saturation.as_ref().unwrap();
    let reached = saturation.reached().unwrap();
    assert!((saturation.bursts.len()) >= 3, "{saturation:?}");
    assert!(ran.took_ns <= 120 * SECOND, "{}", ran.took_ns);
    assert!(
        (reached.rate_per_s / 500.0 - 1.0).abs() < 0.03,
        "{reached:?}"
    );
    // 2 ms less the 0.1 ms without work.
    let chosen = &saturation.services[0];
    assert!(
        (900_000..1_000_000).contains(&chosen.burn_steps),
        "{chosen:?}"
    );
    let added_ns = chosen.added_cpu_ns.unwrap();
    assert!((added_ns / 1.9e6 - 1.0).abs() < 0.05, "{chosen:?}");
    assert_eq!(
        stored.topology.services[0].work.burn_steps,
        chosen.burn_steps
    );
    assert_eq!(*stored, ran.outcome.experiment);
    // A run that is continued keeps it.
    let mut again = Setup::new(TEN_TRIALS, []);
    again.experiment = stored.clone();
    let again = again.run();
    assert_eq!(again.sink.experiment.as_ref(), Some(stored));
    assert!(!again.calls.contains(&"work".to_owned()));
}

/// The experiment of a spec with the lengths of a study's own trials.
fn faithful(spec: &str, faults: impl Into<Vec<Fault>>) -> Setup {
    let mut setup = Setup::new(TEN_TRIALS, faults);
    let mut parsed = parse_all("spec.yaml", spec, Lengths::Faithful).unwrap();
    setup.experiment = parsed.remove(0);
    setup
}

/// How far the application is from the rate at which it is to saturate, as a share of that.
fn distance(ran: &Finished) -> f64 {
    let saturation = ran.outcome.experiment.saturation.as_ref().unwrap();
    let reached = saturation.reached().unwrap();
    (reached.rate_per_s / saturation.rate_per_s - 1.0).abs()
}

#[test]
fn trials_of_a_study_s_own_length_leave_time_for_bursts_until_the_rate_is_reached() {
    for lengths in ["{requests: 300000, trial: 1m}", "{trial: 1m}"] {
        let text = format!("{TEN_TRIALS}saturates-at: 500\nfaithful: {lengths}\n");
        let setup = faithful(&text, []);
        let design = setup.experiment.design.clone();
        let ran = setup.run();
        assert!(bursts(&ran) >= 3, "{lengths}: {:?}", ran.calls);
        assert!(distance(&ran) < 0.03, "{lengths}: {}", distance(&ran));
        // A burst takes two seconds, and two and a half to start and end.
        let of_trials_ns = 10 * (design.trial_ns + SECOND);
        let bursts_ns = bursts(&ran) * 5 * SECOND;
        assert!(
            ran.took_ns < of_trials_ns + bursts_ns + 5 * SECOND,
            "{lengths}: {}",
            ran.took_ns
        );
        assert_eq!(ran.outcome.experiment.design, design);
    }
}

#[test]
fn faithful_livewyer_runs_measure_an_application_that_saturates_at_the_study_s_rate() {
    for name in ["livewyer-pod", "livewyer-ingress"] {
        let yaml = preset(name).unwrap().yaml;
        // The trials themselves take hours of the fake clock, and tell nothing about the bursts.
        let ran = faithful(yaml, [Fault::LostAtStart(1)]).run();
        assert!(distance(&ran) < 0.03, "{name}: {}", distance(&ran));
    }
}

/// Each burst of this run takes 2.8 s.
#[test]
fn bursts_after_the_second_take_no_more_than_a_quarter_of_the_time_limit() {
    let with_limit = |time_limit_ns: u64| {
        let mut setup = Setup::new(TEN_TRIALS, []);
        setup.experiment.saturation = Some(Saturation::at(500.0));
        setup.experiment.design.time_limit_ns = time_limit_ns;
        setup.run()
    };
    for (limit_s, expected) in [(1, 2), (22, 2), (23, 3)] {
        let ran = with_limit(limit_s * SECOND);
        assert_eq!(bursts(&ran), expected, "{limit_s} s: {:?}", ran.calls);
        // The nearest of those that there were.
        let saturation = ran.outcome.experiment.saturation.as_ref().unwrap();
        assert_eq!(saturation.bursts.len() as u64, expected);
        assert!(!saturation.is_open());
        assert!(limit_s == 1 || ran.took_ns <= limit_s * SECOND);
    }
}

fn bursts(ran: &Finished) -> u64 {
    let calls = ran.calls.iter();
    calls.filter(|call| call.starts_with("trial r0")).count() as u64
}

#[test]
fn an_application_that_is_slower_anyway_gets_no_work() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.experiment.saturation = Some(Saturation::at(1e6));
    let ran = setup.run();
    let saturation = ran.outcome.experiment.saturation.unwrap();
    assert_eq!(saturation.bursts.len(), 1);
    assert_eq!(saturation.services[0].burn_steps, 0);
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.experiment.saturation = Some(Saturation::at(500.0));
    setup.experiment.load_points.retain(LoadPoint::is_steady);
    let ran = setup.run();
    assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
    assert_eq!(ran.calls, ["teardown"]);
}
