//! Bad and missing records: never a panic, never a figure that is not a number.

use crate::common::{Cost, Run, run};
use meshtax_model::LatencyHistogram;
use meshtax_model::analysis::Analysis;
use meshtax_model::experiment::{PolicyLevel, Role, VariantId};
use meshtax_model::failure::{
    ComponentEnding, ComponentFailure, TrialFailure, VariantFailure, VariantFailureReason,
};
use meshtax_model::trial::{ComponentRole, InjectedTime, TrialOutcome, TrialRecord};
use proptest::prelude::*;

pub(crate) fn small() -> Run {
    let cost = |name, level| Cost {
        name,
        level,
        delay_ns: 20_000.0,
        cpu_ns: 10_000.0,
    };
    run(
        9,
        7,
        2,
        0.05,
        &[cost("a", PolicyLevel::Mtls), cost("b", PolicyLevel::L7)],
    )
}

/// JSON has no NaN and no infinity: a value that survives a round trip has neither.
fn assert_finite(analysis: &Analysis) {
    let text = serde_json::to_string(analysis).unwrap();
    let back: Analysis = serde_json::from_str(&text).expect("no figure is missing");
    assert_eq!(back.effects.len(), analysis.effects.len());
    for effect in &back.effects {
        for p in [effect.p_value, effect.p_adjusted].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&p), "{effect:?}");
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Harm {
    Fail,
    Kill,
    NoWindow,
    NoHistogram,
    Huge,
    Zero,
    Nan,
    Repeat,
    Stray,
    OtherRound(u32),
}

pub(crate) fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        Just(Harm::Fail),
        Just(Harm::Kill),
        Just(Harm::NoWindow),
        Just(Harm::NoHistogram),
        Just(Harm::Huge),
        Just(Harm::Zero),
        Just(Harm::Nan),
        Just(Harm::Repeat),
        Just(Harm::Stray),
        (0_u32..9).prop_map(Harm::OtherRound),
    ]
}

pub(crate) fn apply(run: &mut Run, index: usize, harm: &Harm) {
    let Some(record) = run.trials.get_mut(index) else {
        return;
    };
    match harm {
        Harm::Repeat => {
            let copy = record.clone();
            run.trials.push(copy);
        }
        Harm::Stray => record.trial.variant = VariantId("stray".into()),
        Harm::OtherRound(round) => record.trial.round = *round,
        Harm::Fail => {
            record.outcome = TrialOutcome::Failed {
                failure: TrialFailure::VariantNotRunning,
            };
        }
        other => spoil(record, other),
    }
}

fn spoil(record: &mut TrialRecord, harm: &Harm) {
    let TrialOutcome::Measured {
        load,
        injected,
        component_failures,
        ..
    } = &mut record.outcome
    else {
        return;
    };
    match harm {
        Harm::Kill => component_failures.push(ComponentFailure {
            component: "app".to_owned(),
            role: Some(ComponentRole::App),
            ending: ComponentEnding::Killed { signal: 9 },
            last_output: Vec::new(),
        }),
        Harm::NoWindow => load.window_ns = 0,
        Harm::NoHistogram => load.response = LatencyHistogram::new(),
        Harm::Huge => {
            load.completed = u64::MAX;
            load.succeeded = u64::MAX;
            load.window_ns = 1;
            load.response.record(u64::MAX);
        }
        Harm::Zero => {
            load.succeeded = 0;
            load.status.clear();
        }
        _ => {
            load.audit.busy_share = f64::NAN;
            *injected = Some(InjectedTime {
                asked_ns: 1,
                count: 3,
                mean_ns: f64::NAN,
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_subset_of_the_records_is_analysed(
        keep_trials in prop::collection::vec(prop::bool::weighted(0.8), 112),
        keep_samples in prop::collection::vec(prop::bool::weighted(0.7), 112),
        keep_evidence in prop::collection::vec(any::<bool>(), 28),
        variants in prop::collection::vec(prop::bool::weighted(0.8), 4),
        harms in prop::collection::vec((0_usize..112, harm()), 0..30),
        machine in prop::collection::vec((0_usize..112, any::<[u64; 4]>()), 0..8),
    ) {
        let mut run = small();
        for (index, harm) in &harms {
            apply(&mut run, *index, harm);
        }
        for (index, [wall, idle, steal, step]) in machine {
            if let Some(sample) = run.samples.get_mut(index) {
                let machine = &mut sample.machines[0];
                machine.wall_ns = wall;
                machine.idle_ns = idle;
                machine.steal_ns = steal;
                machine.resolution_ns = step;
                sample.components[0].cpu_ns = step;
            }
        }
        thin(&mut run.trials, &keep_trials);
        thin(&mut run.samples, &keep_samples);
        thin(&mut run.evidence, &keep_evidence);
        thin(&mut run.experiment.variants, &variants);
        run.failures.push(VariantFailure {
            variant: VariantId("b".into()),
            round: 2,
            reason: VariantFailureReason::NotStarted,
        });
        assert_finite(&run.analyse());
        let _ = run.precise(0.1);
    }
}

fn thin<T>(items: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    items.retain(|_| *keep.next().unwrap_or(&true));
}

#[test]
fn run_without_records_is_analysed() {
    let mut run = small();
    run.trials.clear();
    assert_finite(&run.analyse());
    run.samples.clear();
    run.evidence.clear();
    run.ending = None;
    let analysis = run.analyse();
    assert_finite(&analysis);
    assert_eq!((analysis.rounds, analysis.blocks), (0, 0));
    run.experiment.variants.clear();
    run.experiment.load_points.clear();
    assert!(run.analyse().effects.is_empty());
}

#[test]
fn run_with_baselines_only_is_analysed() {
    let mut run = small();
    run.experiment
        .variants
        .retain(|variant| variant.role != Role::Candidate);
    let analysis = run.analyse();
    assert_finite(&analysis);
    assert!(analysis.effects.iter().all(|effect| !effect.primary));
}

#[test]
fn identical_records_give_degenerate_intervals() {
    let mut run = small();
    let first = run.trials[0].outcome.clone();
    for record in &mut run.trials {
        record.outcome = first.clone();
    }
    let analysis = run.analyse();
    assert_finite(&analysis);
}
