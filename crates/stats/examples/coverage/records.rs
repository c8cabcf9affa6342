//! A run's records, as a run directory would give them, from figures.

use meshtax_fixtures::environment::environment;
use meshtax_model::analysis::RunFacts;
use meshtax_model::environment::Environment;
use meshtax_model::event::Ending;
use meshtax_model::experiment::{
    Arrivals, Design, Experiment, LoadPoint, LoadPointId, Placement, PolicyLevel, Regime, Role,
    Variant, VariantId, Workers, Workload,
};
use meshtax_model::plan::{PlannedTrial, TrialId};
use meshtax_model::trial::{
    ComponentRole, ComponentUsage, LoadResult, MachineUsage, ResourceSample, TrialOutcome,
    TrialRecord,
};
use meshtax_stats::RunData;
use meshtax_stats::pairing::BlockKey;

/// The steady point, first in [`experiment`].
pub(crate) const STEADY: usize = 0;

/// The saturated one.
pub(crate) const SATURATED: usize = 1;

/// The name of a load point.
pub(crate) fn point_id(point: usize) -> LoadPointId {
    LoadPointId(
        if point == STEADY {
            "steady"
        } else {
            "saturated"
        }
        .into(),
    )
}

/// An experiment with the two baselines and these candidates, at both load points.
pub(crate) fn experiment(candidates: &[&str]) -> Experiment {
    let variant = |id: &str, role| {
        let (data_plane, level) = match role {
            Role::Candidate => ("mesh", Some(PolicyLevel::Plaintext)),
            Role::Baseline | Role::Control => ("none", None),
        };
        Variant::new(VariantId(id.into()), data_plane, level, role)
    };
    let mut variants = vec![
        variant("none", Role::Baseline),
        variant("none-again", Role::Control),
    ];
    variants.extend(candidates.iter().map(|id| variant(id, Role::Candidate)));
    let steady = Regime::Steady {
        rate_per_s: 500.0,
        arrivals: Arrivals::Poisson,
    };
    Experiment {
        name: "coverage".into(),
        study: None,
        series: None,
        placement: Placement::TwoNodes,
        kubernetes: None,
        topology: Default::default(),
        saturation: None,
        workload: Workload {
            response_bytes: 1024,
            connections: 32,
            clients: 1,
        },
        workers: Workers::Equal(1),
        variants,
        load_points: vec![
            LoadPoint::new("steady", steady),
            LoadPoint::new("saturated", Regime::Saturated),
        ],
        margins: Default::default(),
        design: Design {
            min_rounds: 6,
            blocks_per_round: 2,
            trial_ns: 500_000_000,
            warmup_ns: 100_000_000,
            time_limit_ns: 120_000_000_000,
            requests_per_trial: None,
            precision: None,
        },
    }
}

/// The outcome of one trial.
pub(crate) struct Figures<'a> {
    pub(crate) key: BlockKey,
    /// Its place in the block, from 1.
    pub(crate) position: u32,
    /// The variant's place in the experiment.
    pub(crate) variant: usize,
    /// [`STEADY`] or [`SATURATED`].
    pub(crate) point: usize,
    pub(crate) window_ns: u64,
    pub(crate) completed: u64,
    /// Requests without a response, beside the completed ones.
    pub(crate) unanswered: u64,
    /// CPU of the path in the window.
    pub(crate) cpu_ns: u64,
    /// What the hypervisor took of the time in which a core was wanted.
    pub(crate) steal_ns: u64,
    pub(crate) latencies_ns: &'a [u64],
    pub(crate) speed_probe_ns: [u64; 2],
}

/// All records of a run. Histograms have tens of thousands of counters each, so their memory
/// is used again by the next run.
pub(crate) struct Records {
    pub(crate) experiment: Experiment,
    pub(crate) environment: Environment,
    pub(crate) trials: Vec<TrialRecord>,
    pub(crate) samples: Vec<ResourceSample>,
    pub(crate) ending: Ending,
    #[expect(
        clippy::vec_box,
        reason = "records have them boxed: they go back and forth"
    )]
    spare: Vec<Box<LoadResult>>,
}

impl Records {
    pub(crate) fn new(experiment: Experiment) -> Self {
        Self {
            experiment,
            environment: environment(),
            trials: Vec::new(),
            samples: Vec::new(),
            ending: Ending::TimeUsed,
            spare: Vec::new(),
        }
    }

    /// Makes room for the next run.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
        self.ending = Ending::TimeUsed;
        for record in self.trials.drain(..) {
            if let TrialOutcome::Measured { load, .. } = record.outcome {
                self.spare.push(load);
            }
        }
    }

    pub(crate) fn push(&mut self, figures: &Figures<'_>) {
        let BlockKey { round, block } = figures.key;
        let id = TrialId::new(round, block, figures.position);
        let mut load = self.spare.pop().unwrap_or_default();
        load.window_ns = figures.window_ns;
        load.offered = figures.completed + figures.unanswered;
        load.unanswered = figures.unanswered;
        load.completed = figures.completed;
        load.succeeded = figures.completed;
        load.response.clear();
        for latency in figures.latencies_ns {
            load.response.record(*latency);
        }
        self.samples.push(sample(&id, figures));
        self.trials.push(TrialRecord {
            trial: PlannedTrial {
                id,
                round,
                block,
                variant: self.experiment.variants[figures.variant].id.clone(),
                load_point: point_id(figures.point),
                arrival_seed: u64::from(round),
            },
            started_unix_ms: 0,
            outcome: TrialOutcome::Measured {
                load,
                proxy_connections: None,
                injected: None,
                replicas: Vec::new(),
                component_failures: Vec::new(),
                lost_evidence: Vec::new(),
            },
        });
    }

    pub(crate) fn data(&self) -> RunData<'_> {
        RunData {
            run: RunFacts {
                id: "coverage".into(),
                meshtax_version: "0.0.0".into(),
                started_unix_ms: 0,
                took_ns: 1,
                seed: 1,
                ending: Some(self.ending.clone()),
                resumptions: Vec::new(),
            },
            experiment: &self.experiment,
            environment: &self.environment,
            trials: &self.trials,
            samples: &self.samples,
            evidence: &[],
            failures: &[],
            cluster: &[],
        }
    }
}

fn sample(id: &TrialId, figures: &Figures<'_>) -> ResourceSample {
    ResourceSample {
        components: vec![ComponentUsage {
            cpu_ns: figures.cpu_ns,
            ..ComponentUsage::new("app", ComponentRole::App)
        }],
        machines: vec![MachineUsage {
            wall_ns: figures.window_ns,
            cores: 2,
            idle_ns: (2 * figures.window_ns).saturating_sub(figures.cpu_ns + figures.steal_ns),
            steal_ns: figures.steal_ns,
            resolution_ns: 10_000_000,
            speed_probe_ns: Some(figures.speed_probe_ns),
            others: Some(Vec::new()),
            ..MachineUsage::default()
        }],
        ..ResourceSample::new(id.clone())
    }
}
