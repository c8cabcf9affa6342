//! Loads that were not carried: by a variant, or by the machine.

use meshtax_model::advice::{AdviceRequest, InconclusiveObjective, Objective, ObjectiveVerdict};
use meshtax_model::analysis::{
    Analysis, Arm, Caveat, Comparison, InvalidReason, LoadOutcome, Metric, NotEstimable, Shortfall,
    Verdict, Withheld,
};
use meshtax_model::comparison::{
    Allowed, GateCheck, GateVerdict, InconclusiveCheck, Limit, Setting,
};
use meshtax_model::experiment::{PolicyLevel, VariantId};
use meshtax_model::failure::{ComponentEnding, ComponentFailure, TrialFailure};
use meshtax_model::trial::{ComponentRole, TrialOutcome};
use meshtax_stats::advise::advise;
use meshtax_stats::between::{Options, Runs, compare};
use meshtax_stats::gate::{GateError, gate_runs, gate_sides};
use proptest::prelude::*;

use crate::common::{Cost, Noise, Run, effect, run};

const MESH: Cost = Cost {
    name: "mesh",
    level: PolicyLevel::Mtls,
    delay_ns: 20_000.0,
    cpu_ns: 1_000.0,
};

const ROUNDS: u32 = 12;

fn made() -> Run {
    run(3, ROUNDS, 1, 0.02, &[MESH])
}

/// Responses with status 503 in the first trials of a variant at the steady load.
fn reject(run: &mut Run, variant: &str, trials: usize) {
    for load in run.loads(variant, "steady").take(trials) {
        let bad = load.completed / 10;
        load.status = [(200, load.completed - bad), (503, bad)].into();
        load.succeeded = load.completed - bad;
    }
}

/// A queue that the first trials of a variant at the steady load never got rid of.
fn overwhelm(run: &mut Run, variant: &str, trials: usize) {
    for load in run.loads(variant, "steady").take(trials) {
        load.unanswered = load.offered / 2;
        load.completed = load.offered / 3;
        load.succeeded = load.completed;
        load.status = [(200, load.completed)].into();
    }
}

fn outcome(analysis: &Analysis, variant: usize) -> LoadOutcome {
    analysis.variants[variant].points[0].outcome
}

fn p50(analysis: &Analysis) -> &Verdict {
    &effect(analysis, "mesh", "steady", Metric::ResponseP50).verdict
}

#[test]
fn variant_that_loses_requests_is_overloaded() {
    let mut run = made();
    overwhelm(&mut run, "mesh", ROUNDS as usize);
    let analysis = run.analyse();
    let LoadOutcome::Overloaded(overload) = outcome(&analysis, 2) else {
        panic!("{:?}", outcome(&analysis, 2));
    };
    assert_eq!((overload.trials, overload.of), (12, 12));
    assert!((overload.offered_per_s - 400.0).abs() < 1.0, "{overload:?}");
    assert!(
        (overload.achieved_per_s - 132.0).abs() < 1.0,
        "{overload:?}"
    );
    assert!((overload.unanswered - 0.5).abs() < 1e-9 && overload.errors == 0.0);
    for found in &analysis.effects {
        let here = found.variant.0 == "mesh" && found.load_point.0 == "steady";
        let is_overloaded = matches!(found.verdict, Verdict::Overloaded(_));
        assert_eq!(is_overloaded, here, "{found:?}");
        let of_latency = found.metric.quantile().is_some() || found.metric == Metric::ResponseMean;
        assert_eq!(found.lower_bound, here && of_latency, "{found:?}");
    }
    let point = &analysis.variants[2].points[0];
    assert_eq!((point.valid, point.invalid.len()), (12, 0));
    assert_eq!(point.short, [(Shortfall::Unanswered, 12)].into());
    assert!(point.levels[0].lower_bound && point.levels[0].value.is_some());
    assert!(!analysis.variants[0].points[0].levels[0].lower_bound);
    let mut caveats = analysis.caveats.iter();
    assert!(caveats.any(|caveat| matches!(caveat, Caveat::Overloaded { .. })));
}

#[test]
fn load_that_the_baselines_do_not_carry_either_is_beyond_the_machine() {
    let mut run = made();
    overwhelm(&mut run, "mesh", ROUNDS as usize);
    overwhelm(&mut run, "none", ROUNDS as usize);
    let analysis = run.analyse();
    let beyond = LoadOutcome::BeyondMachine { trials: 12, of: 24 };
    assert_eq!([0, 1, 2].map(|at| outcome(&analysis, at)), [beyond; 3]);
    let reason = NotEstimable::BeyondMachine { trials: 12, of: 24 };
    assert_eq!(*p50(&analysis), Verdict::NotEstimable { reason });
    let caveats = analysis.caveats.iter();
    let beyond = caveats.filter(|caveat| matches!(caveat, Caveat::BeyondMachine { .. }));
    assert_eq!(beyond.count(), 1, "once for the load point");
}

#[test]
fn overload_is_not_hidden_by_a_few_failures_of_the_baselines() {
    let mut run = run(3, 20, 1, 0.02, &[MESH]);
    overwhelm(&mut run, "mesh", 20);
    overwhelm(&mut run, "none", 5);
    let analysis = run.analyse();
    let beyond = LoadOutcome::BeyondMachine { trials: 5, of: 40 };
    assert_eq!([0, 1].map(|at| outcome(&analysis, at)), [beyond; 2]);
    let LoadOutcome::Overloaded(overload) = outcome(&analysis, 2) else {
        panic!("{:?}", outcome(&analysis, 2));
    };
    // In the blocks whose baselines carried the load.
    assert_eq!((overload.trials, overload.of), (15, 15));
    assert!(matches!(p50(&analysis), Verdict::Overloaded(_)));
}

#[test]
fn trials_that_fell_short_count_and_a_few_of_them_decide_nothing() {
    let after = |trials| {
        let mut run = made();
        reject(&mut run, "mesh", trials);
        run.analyse()
    };
    let one = after(1);
    assert_eq!(outcome(&one, 2), LoadOutcome::Carried);
    assert_eq!(*p50(&one), Verdict::Different);
    let found = effect(&one, "mesh", "steady", Metric::ResponseP50);
    assert_eq!(found.blocks, 12, "the trial counts");
    assert!(found.lower_bound, "it lost requests");
    assert!(one.caveats.iter().any(|caveat| matches!(
        caveat,
        Caveat::ShortTrials { trials: 1, of: 12, shortfalls, .. }
            if shortfalls == &[Shortfall::BadStatus]
    )));
    // That both lone short trials are the variant's has a chance of 1/9, three of 1/27.
    let two = after(2);
    assert_eq!(
        outcome(&two, 2),
        LoadOutcome::Uncertain { trials: 2, of: 12 }
    );
    let reason = NotEstimable::LoadNotCarried { trials: 2, of: 12 };
    assert_eq!(*p50(&two), Verdict::NotEstimable { reason });
    assert!(matches!(outcome(&after(3), 2), LoadOutcome::Overloaded(_)));
}

#[test]
fn lone_short_trial_is_weighed_against_both_baselines() {
    let mut partly = run(3, 20, 1, 0.02, &[MESH]);
    reject(&mut partly, "mesh", 4);
    let LoadOutcome::Overloaded(overload) = outcome(&partly.analyse(), 2) else {
        panic!("{:?}", outcome(&partly.analyse(), 2));
    };
    assert_eq!((overload.trials, overload.of), (4, 20));
    assert_eq!(overload.bad_status, 0.1);
}

/// The load's connections are refused in the first trials of a variant at the steady load.
fn refuse(run: &mut Run, variant: &str, trials: usize) {
    let steady = run.trials.iter_mut().filter(|record| {
        record.trial.variant.0 == variant && record.trial.load_point.0 == "steady"
    });
    for record in steady.take(trials) {
        let detail = "cannot connect to 10.0.0.1:80: connection refused".to_owned();
        record.outcome = TrialOutcome::Failed {
            failure: TrialFailure::NotConnected { detail },
        };
    }
}

#[test]
fn variant_that_takes_no_connections_is_overloaded_and_fails_every_gate() {
    let mut run = made();
    refuse(&mut run, "mesh", ROUNDS as usize);
    let analysis = run.analyse();
    let LoadOutcome::Overloaded(overload) = outcome(&analysis, 2) else {
        panic!("{:?}", outcome(&analysis, 2));
    };
    assert_eq!((overload.trials, overload.of), (12, 12));
    assert_eq!((overload.not_connected, overload.proxies_ended), (12, 0));
    let point = &analysis.variants[2].points[0];
    assert_eq!((point.valid, point.invalid.len()), (0, 0));
    assert_eq!(point.short, [(Shortfall::NotConnected, 12)].into());
    assert!(matches!(p50(&analysis), Verdict::Overloaded(_)));
    assert_eq!(gated(&made(), &run).verdict, GateVerdict::Fail);
    // If the baselines take none either, the variant is not the cause.
    for baseline in ["none", "none-again"] {
        refuse(&mut run, baseline, ROUNDS as usize);
    }
    let beyond = LoadOutcome::BeyondMachine { trials: 24, of: 24 };
    assert_eq!(outcome(&run.analyse(), 2), beyond);
}

#[test]
fn failure_of_the_generator_says_nothing_of_the_variant() {
    let mut run = made();
    refuse(&mut run, "mesh", ROUNDS as usize);
    for record in &mut run.trials {
        if let TrialOutcome::Failed { failure } = &mut record.outcome {
            let detail = "the load generator did not respond within 16 s".to_owned();
            *failure = TrialFailure::LoadFailed { detail };
        }
    }
    let analysis = run.analyse();
    assert_eq!(outcome(&analysis, 2), LoadOutcome::Carried);
    assert_eq!(
        analysis.variants[2].points[0].invalid,
        [(InvalidReason::Failed, 12)].into()
    );
}

#[test]
fn equal_variants_are_seldom_overloaded_by_chance() {
    let mut noise = Noise::new(9);
    let mut template = run(4, ROUNDS, 1, 0.0, &[MESH]);
    let mut declared = 0;
    for _ in 0..400 {
        for variant in ["none", "none-again", "mesh"] {
            for load in template.loads(variant, "steady") {
                load.errors.reset = if noise.uniform() < 0.07 { 20 } else { 0 };
            }
        }
        let overloaded = matches!(outcome(&template.analyse(), 2), LoadOutcome::Overloaded(_));
        declared += u32::from(overloaded);
    }
    assert!(declared <= 20, "{declared} of 400");
}

fn limit(metric: Metric, share: f64) -> Limit {
    Limit {
        text: "as typed".to_owned(),
        variant: None,
        metric,
        allowed: Allowed::Relative(share),
        load_point: Some("steady".to_owned()),
    }
}

fn gated(base: &Run, new: &Run) -> meshtax_model::comparison::GateReport {
    let runs = [base, new].map(|run| [run.data()]);
    let runs = Runs {
        base: &runs[0],
        new: &runs[1],
    };
    let limits = [
        limit(Metric::ResponseP50, 5.0),
        limit(Metric::CpuPerRequest, 5.0),
    ];
    gate_runs(runs, &Options::default(), &limits).unwrap()
}

#[test]
fn overloaded_variant_fails_every_gate() {
    let (good, mut bad) = (made(), made());
    reject(&mut bad, "mesh", ROUNDS as usize);
    let gate = gated(&good, &bad);
    assert_eq!(gate.count(GateVerdict::Fail), 2, "{gate:?}");
    assert_eq!(gated(&bad, &bad).verdict, GateVerdict::Fail);
    // What an overload would have cost is unknown: no improvement is claimed from it.
    assert_eq!(gated(&bad, &good).verdict, GateVerdict::Inconclusive);
    let pairs = [(None, VariantId("mesh".to_owned()))];
    let limits = [limit(Metric::ResponseP50, 5.0)];
    let verdict = |run: &Run| gate_sides(&run.data(), &pairs, &limits).unwrap().verdict;
    assert_eq!(verdict(&bad), GateVerdict::Fail);
    assert_eq!(verdict(&good), GateVerdict::Pass);
}

/// Ends a proxy in trials of a variant at the steady load: in the first of a round, or before it, so that it has no figures.
fn lose_proxy(run: &mut Run, variant: &str, trials: usize, ending: &ComponentEnding) {
    let steady = run.trials.iter_mut().filter(|record| {
        record.trial.variant.0 == variant && record.trial.load_point.0 == "steady"
    });
    for (at, record) in steady.take(trials).enumerate() {
        let components = vec![ComponentFailure {
            component: format!("{variant}/server-proxy"),
            role: Some(ComponentRole::ServerProxy),
            ending: ending.clone(),
            last_output: Vec::new(),
        }];
        match &mut record.outcome {
            TrialOutcome::Measured {
                component_failures, ..
            } if at % 2 == 0 => *component_failures = components,
            outcome => {
                let failure = TrialFailure::ComponentsEnded { components };
                *outcome = TrialOutcome::Failed { failure };
            }
        }
    }
}

#[test]
fn proxy_that_dies_again_and_again_is_overloaded_and_fails_every_gate() {
    let endings = [
        (ComponentEnding::Exited { code: 139 }, Shortfall::ProxyEnded),
        (ComponentEnding::OutOfMemory, Shortfall::ProxyOutOfMemory),
    ];
    for (ending, shortfall) in endings {
        let mut run = made();
        lose_proxy(&mut run, "mesh", 6, &ending);
        let analysis = run.analyse();
        let LoadOutcome::Overloaded(overload) = outcome(&analysis, 2) else {
            panic!("{:?}", outcome(&analysis, 2));
        };
        assert_eq!((overload.trials, overload.of), (6, 12));
        assert_eq!(overload.proxies_ended, 6);
        let point = &analysis.variants[2].points[0];
        assert_eq!((point.valid, point.invalid.len()), (9, 0));
        assert_eq!(point.short, [(shortfall, 6)].into());
        assert!(matches!(p50(&analysis), Verdict::Overloaded(_)));
        assert_eq!(gated(&made(), &run).verdict, GateVerdict::Fail);
    }
    // One death in twelve trials decides nothing, and is no figure.
    let mut once = made();
    lose_proxy(
        &mut once,
        "mesh",
        1,
        &ComponentEnding::Killed { signal: 11 },
    );
    let analysis = once.analyse();
    assert_eq!(outcome(&analysis, 2), LoadOutcome::Carried);
    let cpu = effect(&analysis, "mesh", "steady", Metric::CpuPerRequest);
    assert_eq!(cpu.blocks, 11, "what the dead process used is not known");
    let mut caveats = analysis.caveats.iter();
    assert!(caveats.any(|caveat| matches!(
        caveat,
        Caveat::ShortTrials { trials: 1, of: 12, shortfalls, .. }
            if shortfalls == &[Shortfall::ProxyEnded]
    )));
}

#[test]
fn lower_bound_never_passes_a_gate() {
    let (good, mut bad) = (made(), made());
    reject(&mut bad, "mesh", 1);
    let gate = gated(&good, &bad);
    let [latency, cpu] = gate.checks.as_slice() else {
        panic!("{gate:?}");
    };
    assert_eq!(latency.reason, Some(InconclusiveCheck::LowerBound));
    assert_eq!(latency.verdict, GateVerdict::Inconclusive);
    assert_eq!(cpu.verdict, GateVerdict::Pass);
}

/// A gate that checks the p50 alone.
fn gated_p50(base: &Run, new: &Run, share: f64) -> GateCheck {
    let runs = [base, new].map(|run| [run.data()]);
    let runs = Runs {
        base: &runs[0],
        new: &runs[1],
    };
    let limits = [limit(Metric::ResponseP50, share)];
    let mut gate = gate_runs(runs, &Options::default(), &limits).unwrap();
    gate.checks.remove(0)
}

#[test]
fn gate_is_inconclusive_where_missing_requests_favour_the_verdict() {
    let lossy = |variant: &str| {
        let mut run = made();
        reject(&mut run, variant, 1);
        run
    };
    let good = made();
    let pass = |base: &Run, new: &Run| gated_p50(base, new, 5.0);
    let fail = |base: &Run, new: &Run| gated_p50(base, new, -0.5);
    assert_eq!(pass(&good, &good).verdict, GateVerdict::Pass);
    assert_eq!(fail(&good, &good).verdict, GateVerdict::Fail);
    // Either makes NEW look better than it is: it still fails, and no longer passes.
    for (base, new) in [(&good, &lossy("mesh")), (&lossy("none"), &good)] {
        let passed = pass(base, new);
        assert_eq!(passed.reason, Some(InconclusiveCheck::LowerBound));
        assert!(passed.change.lower_bound);
        assert_eq!(fail(base, new).verdict, GateVerdict::Fail);
    }
    // And either of these makes it look worse.
    for (base, new) in [(&lossy("mesh"), &good), (&good, &lossy("none"))] {
        assert_eq!(pass(base, new).verdict, GateVerdict::Pass);
        let failed = fail(base, new);
        assert_eq!(failed.verdict, GateVerdict::Inconclusive);
        assert_eq!(failed.reason, Some(InconclusiveCheck::UpperBound));
        assert!(!failed.change.lower_bound);
    }
}

#[test]
fn side_that_lacks_its_slow_requests_is_not_shown_to_be_better() {
    let cheaper = Cost {
        name: "cheaper",
        delay_ns: 0.0,
        ..MESH
    };
    let compared = |lossy: &[&str]| -> Comparison {
        let mut run = run(6, ROUNDS, 1, 0.02, &[MESH, cheaper]);
        for variant in lossy {
            reject(&mut run, variant, 1);
        }
        let mut all = run.analyse().comparisons.into_iter();
        let found = all.find(|c| c.metric == Metric::ResponseP50);
        found.expect("one at the steady load")
    };
    let whole = compared(&[]);
    assert_eq!(
        (&whole.verdict, whole.withheld),
        (&Verdict::Different, None)
    );
    // The worse side would only be worse.
    assert_eq!(compared(&["mesh"]).verdict, Verdict::Different);
    for lossy in [&["cheaper"][..], &["cheaper", "mesh"]] {
        let found = compared(lossy);
        assert_eq!(found.verdict, Verdict::Inconclusive, "{lossy:?}");
        assert_eq!(found.withheld, Some(Withheld::LowerBound));
    }
}

#[test]
fn effect_is_a_lower_bound_only_if_the_baselines_are_complete() {
    let found = |lossy: &[&str]| {
        let mut run = made();
        for variant in lossy {
            reject(&mut run, variant, 1);
        }
        let analysis = run.analyse();
        let p50 = effect(&analysis, "mesh", "steady", Metric::ResponseP50);
        (p50.verdict.clone(), p50.lower_bound)
    };
    assert_eq!(found(&["mesh"]), (Verdict::Different, true));
    // The baselines look better, and requests are missing from them.
    assert_eq!(found(&["none"]), (Verdict::Inconclusive, false));
    assert_eq!(found(&["none", "mesh"]), (Verdict::Inconclusive, false));
}

#[test]
fn trials_that_served_nothing_are_not_left_out_of_a_ratio() {
    let served_nothing = |variant: &str| {
        let mut run = run(3, 20, 1, 0.02, &[MESH]);
        for load in run.loads(variant, "saturated").take(2) {
            load.status = [(503, load.completed)].into();
            load.succeeded = 0;
        }
        run
    };
    let good = run(3, 20, 1, 0.02, &[MESH]);
    let mut limit = limit(Metric::Throughput, -0.5);
    limit.load_point = None;
    let gate = |bad: &Run| {
        let pairs = [(None, VariantId("mesh".to_owned()))];
        let report = gate_sides(&bad.data(), &pairs, std::slice::from_ref(&limit)).unwrap();
        report.verdict
    };
    assert_eq!(gate(&good), GateVerdict::Pass);
    for (variant, arm) in [("mesh", Arm::Variant), ("none", Arm::Baselines)] {
        let bad = served_nothing(variant);
        let analysis = bad.analyse();
        assert_eq!(analysis.variants[2].points[1].outcome, LoadOutcome::Carried);
        let throughput = effect(&analysis, "mesh", "saturated", Metric::Throughput);
        let reason = NotEstimable::NothingServed { arm, trials: 2 };
        assert_eq!(throughput.verdict, Verdict::NotEstimable { reason });
        assert_eq!(gate(&bad), GateVerdict::Inconclusive);
        // The responses cost CPU all the same.
        let cpu = effect(&analysis, "mesh", "saturated", Metric::CpuPerRequest);
        assert_eq!(cpu.blocks, 20);
    }
}

#[test]
fn overloaded_variant_misses_every_objective() {
    let answer = |run: &Run| {
        let asked = AdviceRequest {
            objectives: vec![Objective {
                text: "p50<1s@400/s".to_owned(),
                metric: Metric::ResponseP50,
                bound: 1e9,
                rate_per_s: Some(400.0),
            }],
            ..AdviceRequest::default()
        };
        let mut advice = advise(&run.analyse(), &asked, &[]);
        advice.objectives.remove(0).checks
    };
    let mut run = made();
    assert_eq!(answer(&run)[1].verdict, ObjectiveVerdict::Met);
    reject(&mut run, "mesh", 1);
    let lost = &answer(&run)[1];
    assert_eq!(lost.verdict, ObjectiveVerdict::Inconclusive);
    assert_eq!(lost.reason, Some(InconclusiveObjective::LowerBound));
    reject(&mut run, "mesh", ROUNDS as usize);
    let missed = &answer(&run)[1];
    assert_eq!(missed.verdict, ObjectiveVerdict::Missed);
    assert!(missed.overload.is_some(), "{missed:?}");
    assert_eq!(answer(&run)[0].verdict, ObjectiveVerdict::Met);
    reject(&mut run, "none", ROUNDS as usize);
    let beyond = Some(InconclusiveObjective::BeyondMachine);
    assert!(answer(&run).iter().all(|check| check.reason == beyond));
}

#[test]
fn runs_under_other_conditions_are_refused_by_a_gate() {
    let good = made();
    let mut other = made();
    other.environment.machines[0].kernel = "6.1".to_owned();
    for variant in ["none", "none-again", "mesh"] {
        for load in other.loads(variant, "steady") {
            load.socket_io = "epoll".to_owned();
        }
    }
    let runs = [&good, &other].map(|run| [run.data()]);
    let runs = Runs {
        base: &runs[0],
        new: &runs[1],
    };
    let limits = [limit(Metric::ResponseP50, 5.0)];
    let refused = gate_runs(runs, &Options::default(), &limits);
    let Err(GateError::NotComparable { differing }) = refused else {
        panic!("{refused:?}");
    };
    let settings: Vec<&Setting> = differing.iter().map(|one| &one.setting).collect();
    assert_eq!(settings, [&Setting::Kernel, &Setting::Generator]);
    // Side by side, without a verdict.
    assert!(compare(runs, &Options::default()).is_ok());
}

#[test]
fn overloaded_variant_ranks_behind_those_that_carried_the_load() {
    let cheaper = Cost {
        name: "cheaper",
        delay_ns: 0.0,
        ..MESH
    };
    let mut run = run(3, ROUNDS, 1, 0.02, &[MESH, cheaper]);
    let places = |run: &Run| {
        let advice = advise(&run.analyse(), &AdviceRequest::default(), &[]);
        let ranking = advice.priorities[0].rankings[0].clone();
        assert_eq!(ranking.metric, Metric::ResponseP50);
        let places = ranking.places.into_iter();
        places
            .map(|place| (place.variant.0, place.best, place.worst))
            .collect::<Vec<_>>()
    };
    let is = |best: &str, other: &str| [(best.to_owned(), 1, 1), (other.to_owned(), 2, 2)];
    assert_eq!(places(&run), is("cheaper", "mesh"));
    reject(&mut run, "cheaper", ROUNDS as usize);
    assert_eq!(places(&run), is("mesh", "cheaper"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// By block: whether the baseline, its control and the variant lose requests.
    #[test]
    fn outcome_is_that_of_the_trials(lost in proptest::collection::vec(proptest::array::uniform3(any::<bool>()), 1..14)) {
        let rounds = u32::try_from(lost.len()).unwrap();
        let mut run = run(6, rounds, 1, 0.0, &[MESH]);
        for (at, variant) in ["none", "none-again", "mesh"].into_iter().enumerate() {
            for (load, lost) in run.loads(variant, "steady").zip(&lost) {
                load.errors.timeout = if lost[at] { 50 } else { 0 };
            }
        }
        let analysis = run.analyse();
        let count = |is: &dyn Fn(&[bool; 3]) -> bool| lost.iter().filter(|l| is(l)).count();
        let baselines = count(&|l| l[0]) + count(&|l| l[1]);
        let beyond = baselines * 10 > lost.len() * 2;
        let outcome = outcome(&analysis, 2);
        let overloaded = matches!(outcome, LoadOutcome::Overloaded(_));
        prop_assert_eq!(matches!(outcome, LoadOutcome::BeyondMachine { .. }), beyond && !overloaded);
        let short = count(&|l| l[2]);
        if !beyond {
            let is_carried = outcome == LoadOutcome::Carried;
            prop_assert_eq!(is_carried, short * 10 <= lost.len(), "{:?}", outcome);
        }
        if let LoadOutcome::Overloaded(overload) = outcome {
            prop_assert_eq!(overload.trials as usize, count(&|l| *l == [false, false, true]));
            // Of its one trial in three, more than of theirs.
            prop_assert!(short * 2 > baselines, "{} {}", short, baselines);
        }
        // All trials are valid: an outcome excludes nothing.
        prop_assert_eq!(analysis.variants[2].points[0].valid, rounds);
    }
}
