//! What the reader of a run must take into account.

use meshtax_model::analysis::{Analysis, Arm, Caveat, Metric, NotEstimable, Verdict};
use meshtax_model::cluster::{ClusterEvent, ClusterRecord, PodGrant, Severity};
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::experiment::{LoadPointId, PolicyLevel, VariantId};
use meshtax_model::failure::RunFailure;
use meshtax_model::trial::{ProxyConnections, TrialOutcome};

use crate::analysis::{MESH, has, reason};
use crate::common::{Cost, Run, bound_generator, effect, run};

/// Whether mesh-l7 is cheaper than mesh-mtls by the steady p50.
fn is_out_of_order(analysis: &Analysis) -> bool {
    has(analysis, |caveat| {
        matches!(
            caveat,
            Caveat::HigherLevelCheaper { higher, lower, metric: Metric::ResponseP50, load_point, change }
                if higher.0 == "mesh-l7" && lower.0 == "mesh-mtls" && load_point.0 == "steady" && *change < 0.0
        )
    })
}

#[test]
fn fewer_than_six_rounds_add_a_caveat() {
    let analysis = run(3, 2, 6, 0.02, &[MESH]).analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert!(p50.difference.unwrap().interval.is_some());
    assert_eq!((p50.rounds, p50.blocks), (2, 12));
    assert!(has(&analysis, |c| *c == Caveat::FewRounds { rounds: 2 }));
}

#[test]
fn result_faster_than_no_mesh_is_kept_with_a_caveat() {
    let odd = Cost {
        delay_ns: -60_000.0,
        cpu_ns: -8_000.0,
        ..MESH
    };
    let analysis = run(5, 8, 2, 0.02, &[odd]).analyse();
    for (at, of) in [
        ("steady", Metric::ResponseP50),
        ("saturated", Metric::Throughput),
        ("saturated", Metric::CpuPerRequest),
    ] {
        assert!(has(&analysis, |caveat| matches!(
            caveat,
            Caveat::CheaperThanNoMesh { variant, metric, load_point, change }
                if variant.0 == "mesh-mtls"
                    && *metric == of
                    && load_point.0 == at
                    && (*change < 0.0) == of.larger_is_worse()
        )));
    }
}

#[test]
fn cheaper_higher_level_adds_a_caveat() {
    let l7 = Cost {
        name: "mesh-l7",
        level: PolicyLevel::L7,
        delay_ns: 10_000.0,
        cpu_ns: 2_000.0,
    };
    let analysis = run(5, 8, 2, 0.02, &[MESH, l7]).analyse();
    assert!(is_out_of_order(&analysis));
    let in_order = run(
        5,
        8,
        2,
        0.02,
        &[
            Cost {
                delay_ns: 9e4,
                cpu_ns: 3e4,
                ..l7
            },
            MESH,
        ],
    );
    assert!(!is_out_of_order(&in_order.analyse()));
}

#[test]
fn proxy_that_costs_less_than_the_minimal_one_makes_that_a_reference() {
    let cheap = Cost {
        name: "mesh-l7",
        level: PolicyLevel::L7,
        delay_ns: 10_000.0,
        cpu_ns: 2_000.0,
    };
    let mut run = run(5, 8, 2, 0.02, &[MESH, cheap]);
    let is_below = |analysis: &Analysis| {
        has(analysis, |caveat| {
            matches!(
                caveat,
                Caveat::BelowFloor { floor, variant, metric: Metric::ResponseP50, change, .. }
                    if floor.0 == "mesh-mtls" && variant.0 == "mesh-l7" && *change < 0.0
            )
        })
    };
    assert!(!is_below(&run.analyse()));
    let planes = ["none", "none", "limit-mtls", "linkerd"];
    for (variant, plane) in run.experiment.variants.iter_mut().zip(planes) {
        variant.data_plane = plane.into();
    }
    assert!(is_below(&run.analyse()));
    // The other way round it is what a floor is for.
    for (variant, plane) in
        run.experiment
            .variants
            .iter_mut()
            .zip(["none", "none", "linkerd", "limit-mtls"])
    {
        variant.data_plane = plane.into();
    }
    let below = |caveat: &Caveat| matches!(caveat, Caveat::BelowFloor { .. });
    assert!(!has(&run.analyse(), below));
}

#[test]
fn overloaded_variant_is_not_cheaper_than_one_that_does_less() {
    let cheap = Cost {
        name: "mesh-l7",
        level: PolicyLevel::L7,
        delay_ns: 10_000.0,
        cpu_ns: 2_000.0,
    };
    let mut run = run(5, 8, 2, 0.02, &[MESH, cheap]);
    let cheaper_at_steady = |run: &Run| {
        let caveats = run.analyse().caveats.into_iter();
        let cheaper = caveats.filter(|caveat| match caveat {
            Caveat::BelowFloor { load_point, .. }
            | Caveat::HigherLevelCheaper { load_point, .. } => load_point.0 == "steady",
            _ => false,
        });
        cheaper.count()
    };
    let planes = [
        ["none", "none", "mesh", "mesh"],
        ["none", "none", "limit-mtls", "linkerd"],
    ];
    let mut rejecting = Vec::new();
    for planes in planes {
        for (variant, plane) in run.experiment.variants.iter_mut().zip(planes) {
            variant.data_plane = plane.into();
        }
        rejecting.push(run.experiment.clone());
        assert!(cheaper_at_steady(&run) > 0, "{planes:?}");
    }
    // Its 503s cost less than answers.
    for load in run.loads("mesh-l7", "steady") {
        load.status = [(503, load.completed)].into();
        load.succeeded = 0;
    }
    for experiment in rejecting {
        run.experiment = experiment;
        assert_eq!(cheaper_at_steady(&run), 0);
    }
}

#[test]
fn connections_opened_within_the_window_add_a_caveat_unless_they_are_the_load() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    let not_warm = |run: &Run| {
        let caveats = run.analyse().caveats.into_iter();
        let found = caveats.filter(|caveat| matches!(caveat, Caveat::NotWarm { .. }));
        found.collect::<Vec<_>>()
    };
    assert_eq!(not_warm(&run), []);
    let mut of_mesh = run.trials.iter_mut().filter(|record| {
        record.trial.variant.0 == "mesh-mtls" && record.trial.load_point.0 == "steady"
    });
    let Some(TrialOutcome::Measured {
        proxy_connections, ..
    }) = of_mesh.next().map(|record| &mut record.outcome)
    else {
        panic!("no trial");
    };
    *proxy_connections = Some(ProxyConnections {
        before: Some(4),
        after: 7,
    });
    let expected = Caveat::NotWarm {
        variant: VariantId("mesh-mtls".into()),
        load_point: LoadPointId("steady".into()),
        trials: 1,
        of: 12,
        most: 3,
    };
    assert_eq!(not_warm(&run), [expected]);
    // The trial counts.
    let analysis = run.analyse();
    assert!(!has(&analysis, |caveat| matches!(
        caveat,
        Caveat::InvalidTrials { .. }
    )));
    run.experiment.load_points[0].requests_per_connection = Some(1);
    assert_eq!(not_warm(&run), []);
    run.experiment.load_points[0].requests_per_connection = None;
    run.experiment.load_points[0].cold = true;
    assert_eq!(not_warm(&run), []);
}

#[test]
fn bound_generator_adds_a_caveat_in_closed_loops_only() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    for name in ["none", "none-again"] {
        for load in run.loads(name, "saturated") {
            load.audit.generator_bound = Some(bound_generator());
        }
    }
    let analysis = run.analyse();
    let throughput = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    assert_eq!(throughput.verdict, Verdict::Different);
    assert!(has(&analysis, |caveat| matches!(
        caveat,
        Caveat::GeneratorBoundBaselines { trials: 24, .. }
    )));
    for load in run.loads("none", "steady") {
        load.audit.generator_bound = Some(bound_generator());
    }
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(
        reason(&p50.verdict),
        &NotEstimable::TooManyInvalid {
            arm: Arm::Baselines,
            invalid: 12,
            trials: 24,
        }
    );
}

#[test]
fn incomplete_run_adds_caveats() {
    let mut run = run(5, 6, 1, 0.02, &[]);
    run.ending = Some(Ending::Failed {
        failure: RunFailure::EngineLost,
        detail: "the link went away".to_owned(),
    });
    for ending in [run.ending.clone(), None] {
        run.ending.clone_from(&ending);
        let caveat = Caveat::Incomplete { ending };
        assert!(run.analyse().caveats.contains(&caveat));
    }
    for sample in &mut run.samples {
        sample.machines[0].steal_ns = 50_000_000;
    }
    assert!(has(&run.analyse(), |caveat| matches!(
        caveat,
        Caveat::Steal { share } if (share - 0.05).abs() < 1e-3
    )));
}

#[test]
fn resumed_run_has_a_caveat_and_its_timeline_no_pause() {
    let mut run = run(5, 6, 1, 0.02, &[MESH]);
    let end = |run: &Run| {
        let timelines = run.analyse().variants.into_iter().map(|v| v.timeline);
        timelines.flatten().map(|moment| moment.at_ns).max()
    };
    let whole = end(&run);
    let first = run.trials.iter().filter(|t| t.trial.round > 3);
    let at_unix_ms = first.map(|t| t.started_unix_ms).min().unwrap();
    for record in run.trials.iter_mut().filter(|t| t.trial.round > 3) {
        record.started_unix_ms += 60_000;
    }
    run.resumptions = vec![Resumption {
        at_unix_ms: at_unix_ms + 60_000,
        after_round: 3,
        paused_ns: 60_000_000_000,
        restarted: false,
    }];
    let resumptions = run.resumptions.clone();
    assert!(
        run.analyse()
            .caveats
            .contains(&Caveat::Resumed { resumptions })
    );
    assert_eq!(end(&run), whole);
}

#[test]
fn cluster_is_reported_and_changes_no_figure() {
    let mut run = run(5, 6, 1, 0.02, &[MESH]);
    let before = run.analyse();
    let grant = PodGrant {
        variant: VariantId("none".to_owned()),
        pod: "server".to_owned(),
        node: "node1".to_owned(),
        qos: "Guaranteed".to_owned(),
        containers: Vec::new(),
    };
    let event = |severity, reason: &str| {
        ClusterRecord::Event(ClusterEvent {
            at_unix_ms: 1,
            severity,
            variant: None,
            object: "Pod/server".to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            count: 4,
        })
    };
    run.cluster = vec![
        ClusterRecord::Granted(grant.clone()),
        event(Severity::Normal, "Pulling"),
        event(Severity::Warning, "Evicted"),
        // As a run that was resumed has it.
        ClusterRecord::Granted(grant.clone()),
    ];
    let mut after = run.analyse();
    assert_eq!(after.environment.pods, [grant]);
    assert_eq!(after.events.len(), 2);
    let warning = Caveat::ClusterWarnings {
        reasons: vec!["Evicted".to_owned()],
        events: 4,
    };
    assert_eq!(after.caveats.last(), Some(&warning));
    after.caveats.pop();
    after.events.clear();
    after.environment.pods.clear();
    assert_eq!(after, before);
}
