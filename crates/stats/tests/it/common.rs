//! Made-up runs with known effects.

use meshtax_fixtures::environment::environment;
use meshtax_model::LatencyHistogram;
use meshtax_model::analysis::{Analysis, Effect, ExclusionReason, Metric, RunFacts};
use meshtax_model::cluster::ClusterRecord;
use meshtax_model::environment::Environment;
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::evidence::{Evidence, ProbeId, ProbeResult, Start, WireEvidence};
use meshtax_model::experiment::{
    Arrivals, Design, Experiment, LoadPoint, LoadPointId, Placement, PolicyLevel, Regime, Role,
    Variant, VariantId, Workers, Workload,
};
use meshtax_model::failure::{VariantFailure, VariantFailureReason};
use meshtax_model::plan::{PlannedTrial, TrialId};
use meshtax_model::trial::{
    ComponentRole, ComponentUsage, GeneratorBound, GeneratorLimit, LoadResult, MachineUsage,
    Memory, ProxyConnections, ResourceSample, TrialOutcome, TrialRecord,
};
use meshtax_stats::{RunData, analyse, precision_reached};
use rand::Rng;
use rand_pcg::Pcg64Mcg;

/// Normal numbers from a generator with a fixed seed.
pub(crate) struct Noise(Pcg64Mcg);

impl Noise {
    pub(crate) fn new(seed: u128) -> Self {
        Self(Pcg64Mcg::new(seed))
    }

    /// Even in (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// What a candidate adds to the baseline's 200 µs and 20 µs of CPU.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) name: &'static str,
    pub(crate) level: PolicyLevel,
    pub(crate) delay_ns: f64,
    pub(crate) cpu_ns: f64,
}

/// All records of a run, to be changed at will before they are analysed.
pub(crate) struct Run {
    pub(crate) experiment: Experiment,
    pub(crate) environment: Environment,
    pub(crate) trials: Vec<TrialRecord>,
    pub(crate) samples: Vec<ResourceSample>,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) failures: Vec<VariantFailure>,
    pub(crate) ending: Option<Ending>,
    pub(crate) resumptions: Vec<Resumption>,
    pub(crate) cluster: Vec<ClusterRecord>,
}

impl Run {
    pub(crate) fn data(&self) -> RunData<'_> {
        RunData {
            run: RunFacts {
                id: "run".into(),
                meshtax_version: "0.0.0".into(),
                started_unix_ms: 0,
                took_ns: 1,
                seed: 1,
                ending: self.ending.clone(),
                resumptions: self.resumptions.clone(),
            },
            experiment: &self.experiment,
            environment: &self.environment,
            trials: &self.trials,
            samples: &self.samples,
            evidence: &self.evidence,
            failures: &self.failures,
            cluster: &self.cluster,
        }
    }

    pub(crate) fn analyse(&self) -> Analysis {
        analyse(&self.data())
    }

    pub(crate) fn precise(&self, half_width: f64) -> bool {
        precision_reached(&self.data(), half_width)
    }

    /// Nothing of a variant is measured: its program is missing.
    pub(crate) fn drop_variant(&mut self, variant: &str) -> ExclusionReason {
        let failure = VariantFailureReason::StartFailed {
            detail: "its program is not on this machine".to_owned(),
        };
        self.trials
            .retain(|record| record.trial.variant.0 != variant);
        self.evidence.retain(|seen| seen.variant.0 != variant);
        self.failures.push(VariantFailure {
            variant: VariantId(variant.to_owned()),
            round: 1,
            reason: failure.clone(),
        });
        ExclusionReason::Failed { round: 1, failure }
    }

    /// The resource samples of a variant's trials and their completed requests, to change.
    pub(crate) fn sampled<'r>(
        &'r mut self,
        variant: &'r str,
    ) -> impl Iterator<Item = (&'r PlannedTrial, u64, &'r mut ResourceSample)> {
        let trials = self.trials.iter().zip(&mut self.samples);
        trials.filter_map(move |(record, sample)| match &record.outcome {
            TrialOutcome::Measured { load, .. } if record.trial.variant.0 == variant => {
                Some((&record.trial, load.completed, sample))
            }
            _ => None,
        })
    }

    /// Adds this much CPU per request that no component of a variant is charged for.
    pub(crate) fn add_unattributed(&mut self, variant: &str, per_request_ns: i64) {
        for (_, completed, sample) in self.sampled(variant) {
            let idle_ns = sample.machines[0].idle_ns as i64 - per_request_ns * completed as i64;
            sample.machines[0].idle_ns = u64::try_from(idle_ns).expect("idle enough");
        }
    }

    /// The measured trials of a variant at a load point, to change.
    pub(crate) fn loads<'r>(
        &'r mut self,
        variant: &'r str,
        point: &'r str,
    ) -> impl Iterator<Item = &'r mut LoadResult> {
        self.trials.iter_mut().filter_map(move |record| {
            let of = record.trial.variant.0 == variant && record.trial.load_point.0 == point;
            match &mut record.outcome {
                TrialOutcome::Measured { load, .. } if of => Some(&mut **load),
                _ => None,
            }
        })
    }
}

pub(crate) fn effect<'a>(
    analysis: &'a Analysis,
    variant: &str,
    point: &str,
    metric: Metric,
) -> &'a Effect {
    analysis
        .effect(
            &VariantId(variant.into()),
            &LoadPointId(point.into()),
            metric,
        )
        .unwrap_or_else(|| panic!("no effect of {variant} at {point} on {metric:?}"))
}

pub(crate) fn experiment(candidates: &[Cost]) -> Experiment {
    let none = |id: &str, role| Variant::new(VariantId(id.into()), "none", None, role);
    let mut variants = vec![
        none("none", Role::Baseline),
        none("none-again", Role::Control),
    ];
    variants.extend(candidates.iter().map(|cost| {
        let id = VariantId(cost.name.into());
        Variant::new(id, "mesh", Some(cost.level), Role::Candidate)
    }));
    Experiment {
        name: "test".into(),
        study: None,
        series: None,
        placement: Placement::TwoNodes,
        kubernetes: None,
        topology: Default::default(),
        saturation: None,
        workload: Workload {
            response_bytes: 1024,
            connections: 16,
            clients: 1,
        },
        workers: Workers::Equal(1),
        variants,
        load_points: vec![
            LoadPoint::new(
                "steady",
                Regime::Steady {
                    rate_per_s: 400.0,
                    arrivals: Arrivals::Poisson,
                },
            ),
            LoadPoint::new("saturated", Regime::Saturated),
        ],
        margins: Default::default(),
        design: Design {
            min_rounds: 6,
            blocks_per_round: 2,
            trial_ns: 500_000_000,
            warmup_ns: 100_000_000,
            time_limit_ns: 30_000_000_000,
            requests_per_trial: None,
            precision: None,
        },
    }
}

/// A run in which trials differ by `trial_sd` (relative) and every block is faster or slower.
pub(crate) fn run(seed: u128, rounds: u32, blocks: u32, trial_sd: f64, candidates: &[Cost]) -> Run {
    let experiment = experiment(candidates);
    let mut noise = Noise::new(seed);
    let mut run = Run {
        environment: environment(),
        trials: Vec::new(),
        samples: Vec::new(),
        evidence: Vec::new(),
        failures: Vec::new(),
        ending: Some(Ending::TimeUsed),
        resumptions: Vec::new(),
        cluster: Vec::new(),
        experiment: experiment.clone(),
    };
    for round in 1..=rounds {
        for variant in &experiment.variants {
            run.evidence.push(passed(&variant.id, round));
        }
        for block in 1..=blocks {
            let machine = (0.1 * noise.normal()).exp();
            let mut position = 0;
            for variant in &experiment.variants {
                for point in &experiment.load_points {
                    position += 1;
                    let planned = PlannedTrial {
                        id: TrialId::new(round, block, position),
                        round,
                        block,
                        variant: variant.id.clone(),
                        load_point: point.id.clone(),
                        arrival_seed: u64::from(round),
                    };
                    let cost = candidates.iter().find(|c| c.name == variant.id.0);
                    let speed = machine * (trial_sd * noise.normal()).exp();
                    measure(&mut run, &mut noise, planned, point, cost, speed);
                }
            }
        }
    }
    run
}

/// A generator that sent too late.
pub(crate) fn bound_generator() -> GeneratorBound {
    GeneratorBound {
        worker: None,
        limit: GeneratorLimit::LateSends {
            quantile: 0.95,
            lag_ns: 3_000_000,
            max_lag_ns: 1_000_000,
        },
    }
}

pub(crate) fn passed(variant: &VariantId, round: u32) -> Evidence {
    Evidence {
        variant: variant.clone(),
        round,
        probes: vec![ProbeResult {
            probe: ProbeId::PermittedRequest,
            passed: true,
            seen: "200".into(),
        }],
        wire: WireEvidence::default(),
        features: None,
        start: Start::default(),
    }
}

fn response(noise: &mut Noise, speed: f64, delay_ns: f64) -> LatencyHistogram {
    let mut response = LatencyHistogram::new();
    for _ in 0..200 {
        let latency = 200_000.0 * speed * (0.3 * noise.normal()).exp() + delay_ns;
        response.record(latency as u64);
    }
    response
}

/// One trial, with its resource sample.
fn measure(
    run: &mut Run,
    noise: &mut Noise,
    planned: PlannedTrial,
    point: &LoadPoint,
    cost: Option<&Cost>,
    speed: f64,
) {
    let delay = cost.map_or(0.0, |c| c.delay_ns);
    let cpu = (20_000.0 + cost.map_or(0.0, |c| c.cpu_ns)) * speed;
    let response = response(noise, speed, delay);
    let completed = if point.is_steady() {
        200
    } else {
        (5e8 / cpu) as u64
    };
    let has_proxy = cost.is_some();
    let path_ns = cpu * completed as f64;
    run.samples.push(sample(&planned.id, path_ns, has_proxy));
    run.trials.push(TrialRecord {
        trial: planned,
        started_unix_ms: 0,
        outcome: TrialOutcome::Measured {
            load: Box::new(LoadResult {
                window_ns: 500_000_000,
                offered: completed,
                completed,
                succeeded: completed,
                status: [(200, completed)].into(),
                response,
                ..LoadResult::default()
            }),
            proxy_connections: has_proxy.then_some(ProxyConnections {
                before: Some(4),
                after: 4,
            }),
            injected: None,
            replicas: Vec::new(),
            component_failures: Vec::new(),
            lost_evidence: Vec::new(),
        },
    });
}

/// `path_ns`: the CPU of the application and the proxy together, who use the same if there is a proxy.
fn sample(trial: &TrialId, path_ns: f64, has_proxy: bool) -> ResourceSample {
    let used = |name: &str, role, cpu_ns: f64| ComponentUsage {
        cpu_ns: cpu_ns as u64,
        memory: Some(Memory {
            anonymous_bytes: 4 << 20,
            file_bytes: 1 << 20,
            pss_bytes: 5 << 20,
            peak_bytes: 6 << 20,
        }),
        ..ComponentUsage::new(name, role)
    };
    let mut components = vec![
        used("generator", ComponentRole::Generator, 1e8),
        used("app", ComponentRole::App, path_ns / 2.0),
    ];
    if has_proxy {
        components.push(used("p", ComponentRole::ServerProxy, path_ns / 2.0));
    } else {
        components[1].cpu_ns *= 2;
    }
    let busy_ns = 1e8 + path_ns + 2e7;
    ResourceSample {
        components,
        machines: vec![MachineUsage {
            wall_ns: 500_000_000,
            cores: 2,
            idle_ns: (1e9 - busy_ns).max(0.0) as u64,
            resolution_ns: 10_000_000,
            others: Some(Vec::new()),
            ..MachineUsage::default()
        }],
        ..ResourceSample::new(trial.clone())
    }
}
