//! An engine that measures nothing, for tests: scripted failures, a latency model with seeded
//! noise, and its own clock, so that a run of minutes takes no time.
//!
//! Its figures are invented and must never be presented as results: its environment's engine is
//! `fake`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use meshtax_model::catalogue;
use meshtax_model::cluster::ClusterRecord;
use meshtax_model::environment::{Artifact, CpuSplit, Environment, Host, Node, NodeRole};
use meshtax_model::evidence::{Evidence, FailedProbe, ProbeId, ProbeResult, Start, WireEvidence};
use meshtax_model::experiment::{
    Design, Experiment, Inject, LoadPoint, PolicyLevel, Regime, Variant, VariantId,
};
use meshtax_model::failure::{
    ComponentEnding, ComponentFailure, TrialFailure, VariantFailureReason,
};
use meshtax_model::plan::{PlannedTrial, TrialId};
use meshtax_model::saturation::steps_per_request;
use meshtax_model::topology::Topology;
use meshtax_model::trial::{
    ComponentRole, ComponentUsage, GeneratorAudit, InjectedTime, LoadResult, MachineUsage, Memory,
    ProxyConnections, ResourceSample, TrialOutcome,
};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng as _;

use crate::clock::Clock;
use crate::engine::{Engine, EngineError, Measured, RoundEnd, VariantStart};

const CORES: u32 = 2;
const BASE_NS: f64 = 100_000.0;

/// A clock that moves only when the fake engine works. Clones share their time.
#[derive(Clone, Debug, Default)]
pub struct FakeClock(Rc<Cell<u64>>);

impl FakeClock {
    /// Unix time at its start: 2026-01-01T00:00:00Z, in milliseconds.
    pub const EPOCH_UNIX_MS: u64 = 1_767_225_600_000;

    /// Advances the clock, in nanoseconds.
    pub fn advance(&self, ns: u64) {
        self.0.set(self.0.get().saturating_add(ns));
    }
}

impl Clock for FakeClock {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn unix_ms(&self) -> u64 {
        Self::EPOCH_UNIX_MS + self.0.get() / 1_000_000
    }
}

/// A scripted failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A requirement is not met: `prepare` fails.
    Missing,
    /// A variant does not start in this round.
    VariantFails(VariantId, u32),
    /// A variant's evidence fails in this round.
    ProbeFails(VariantId, u32),
    /// A variant's evidence no longer holds at the end of this round.
    ProofLost(VariantId, u32),
    /// The environment is lost when this round starts.
    LostAtStart(u32),
    /// A trial gives no result.
    TrialFails(TrialId),
    /// A trial gives no result at the first attempt.
    TrialFailsOnce(TrialId),
    /// A component dies in this trial.
    ComponentDies(TrialId),
    /// The environment is lost in this trial.
    LostInTrial(TrialId),
    /// Teardown cannot remove this.
    Leftover(String),
}

/// The engine. Its public fields are its script and can be set before the run.
#[derive(Clone, Debug)]
pub struct FakeEngine {
    /// Advances by the time that the work would take.
    pub clock: FakeClock,
    /// Time to start a round, in nanoseconds.
    pub setup_ns: u64,
    /// Time that a trial takes beyond its warm-up and window, in nanoseconds.
    pub overhead_ns: u64,
    /// Time to end a round, in nanoseconds.
    pub end_ns: u64,
    /// The scripted failures.
    pub faults: Vec<Fault>,
    /// Latency that a variant adds to the baseline's 100 µs, in nanoseconds. Variants that are not
    /// listed cost 30 µs (minimal proxies), 150 µs, or 200 µs (level `l7`).
    pub cost_ns: BTreeMap<VariantId, u64>,
    /// Standard deviation between the processes of different rounds, as a fraction.
    pub round_noise: f64,
    /// Standard deviation between trials of the same processes, as a fraction.
    pub trial_noise: f64,
    /// What the environment reports when it is asked next.
    pub reports: Vec<ClusterRecord>,
    /// The calls received, in order.
    pub calls: Vec<String>,
    round: u32,
    variants: Vec<Variant>,
    experiment: Option<Experiment>,
}

impl FakeEngine {
    /// An engine without faults: 2 s to start a round, 0.1 s of overhead per trial.
    #[must_use]
    pub fn new(clock: FakeClock) -> Self {
        Self {
            clock,
            setup_ns: 2_000_000_000,
            overhead_ns: 100_000_000,
            end_ns: 100_000_000,
            faults: Vec::new(),
            cost_ns: BTreeMap::new(),
            round_noise: 0.01,
            trial_noise: 0.01,
            reports: Vec::new(),
            calls: Vec::new(),
            round: 0,
            variants: Vec::new(),
            experiment: None,
        }
    }

    /// An engine with faults.
    #[must_use]
    pub fn with_faults(clock: FakeClock, faults: impl Into<Vec<Fault>>) -> Self {
        Self {
            faults: faults.into(),
            ..Self::new(clock)
        }
    }

    fn has(&self, fault: &Fault) -> bool {
        self.faults.contains(fault)
    }

    /// Whether this attempt at a trial, which is the last of the calls received, gives no result.
    fn has_no_load(&self, trial: &TrialId) -> bool {
        let call = format!("trial {trial}");
        let attempts = self.calls.iter().filter(|received| **received == call);
        let is_first = attempts.count() == 1;
        self.has(&Fault::TrialFails(trial.clone()))
            || (is_first && self.has(&Fault::TrialFailsOnce(trial.clone())))
    }

    fn start(&self, round: u32, variant: &Variant) -> VariantStart {
        let id = variant.id.clone();
        let fails = self.has(&Fault::VariantFails(id.clone(), round));
        let seen_wrong = self.has(&Fault::ProbeFails(id.clone(), round));
        VariantStart {
            variant: id.clone(),
            evidence: (!fails).then(|| evidence(id, round, !seen_wrong)),
            failure: fails.then(|| VariantFailureReason::StartFailed {
                detail: "scripted: it does not start".to_owned(),
            }),
        }
    }

    fn variant_cost_ns(&self, variant: &Variant) -> f64 {
        if let Some(cost) = self.cost_ns.get(&variant.id) {
            return *cost as f64;
        }
        match (variant.data_plane.as_str(), variant.level) {
            (name, _) if catalogue::is_baseline(name) => 0.0,
            (name, _) if catalogue::is_floor(name) => 30_000.0,
            (_, Some(PolicyLevel::L7)) => 200_000.0,
            _ => 150_000.0,
        }
    }

    /// The services' own work for a request: a step takes 2 ns.
    fn work_ns(&self) -> f64 {
        let topology = self.experiment.as_ref().map(|e| &e.topology);
        2.0 * topology.map_or(0.0, steps_per_request)
    }

    /// The mean latency of one trial, with the noise of its processes and its own, in ns.
    fn mean_ns(&self, trial: &PlannedTrial, variant: &Variant, noise: &mut Noise) -> f64 {
        let mut processes = Noise::new(u64::from(trial.round), &variant.id.0);
        let same = (self.round_noise * processes.normal()).exp();
        let own = (self.trial_noise * noise.normal()).exp();
        (BASE_NS + self.work_ns() + self.variant_cost_ns(variant)) * same * own
    }

    /// A trial's figures, from the latency model.
    fn measured(
        &self,
        experiment: &Experiment,
        trial: &PlannedTrial,
        variant: &Variant,
        load_point: &LoadPoint,
    ) -> Measured {
        let mut noise = Noise::new(trial.arrival_seed, &variant.id.0);
        let mean_ns = self.mean_ns(trial, variant, &mut noise);
        let load = load(experiment, variant, load_point, mean_ns, &mut noise);
        let sample = sample(trial, variant, &load, (mean_ns, self.work_ns()));
        let died = self.has(&Fault::ComponentDies(trial.id.clone()));
        let has_proxies = !catalogue::is_baseline(&variant.data_plane);
        Measured {
            outcome: TrialOutcome::Measured {
                proxy_connections: has_proxies.then_some(ProxyConnections {
                    before: Some(32),
                    after: 32,
                }),
                injected: injected(variant, &load),
                replicas: Vec::new(),
                component_failures: died
                    .then(|| server_proxy_died(variant))
                    .into_iter()
                    .collect(),
                lost_evidence: Vec::new(),
                load: Box::new(load),
            },
            sample: Some(sample),
        }
    }
}

impl Engine for FakeEngine {
    fn prepare(&mut self, experiment: &Experiment) -> Result<Environment, EngineError> {
        self.calls.push("prepare".to_owned());
        if self.has(&Fault::Missing) {
            return Err(EngineError::Missing {
                what: "scripted: something is missing".to_owned(),
                fix: "remove the fault from the script".to_owned(),
            });
        }
        self.experiment = Some(experiment.clone());
        Ok(environment())
    }

    fn set_work(&mut self, topology: &Topology, design: &Design) -> Result<(), EngineError> {
        self.calls.push("work".to_owned());
        if let Some(experiment) = &mut self.experiment {
            experiment.topology = topology.clone();
            experiment.design = design.clone();
        }
        Ok(())
    }

    fn start_round(
        &mut self,
        round: u32,
        variants: &[Variant],
    ) -> Result<Vec<VariantStart>, EngineError> {
        let names: Vec<&str> = variants.iter().map(|v| v.id.0.as_str()).collect();
        self.calls
            .push(format!("start {round}: {}", names.join(" ")));
        self.clock.advance(self.setup_ns);
        if self.has(&Fault::LostAtStart(round)) {
            return Err(lost());
        }
        self.round = round;
        self.variants = variants.to_vec();
        Ok(variants.iter().map(|v| self.start(round, v)).collect())
    }

    fn trial(
        &mut self,
        trial: &PlannedTrial,
        load_point: &LoadPoint,
    ) -> Result<Measured, EngineError> {
        self.calls.push(format!("trial {}", trial.id));
        let (Some(experiment), Some(variant)) = (
            self.experiment.clone(),
            self.variants
                .iter()
                .find(|v| v.id == trial.variant)
                .cloned(),
        ) else {
            return Err(EngineError::Lost {
                component: "variant",
                problem: format!("{} is not running", trial.variant),
            });
        };
        let design = &experiment.design;
        self.clock
            .advance(design.trial_ns + design.warmup_ns + self.overhead_ns);
        if self.has(&Fault::LostInTrial(trial.id.clone())) {
            return Err(lost());
        }
        if self.has_no_load(&trial.id) {
            return Ok(without_load());
        }
        Ok(self.measured(&experiment, trial, &variant, load_point))
    }

    fn end_round(&mut self, prove: bool) -> Result<RoundEnd, EngineError> {
        self.calls.push("end".to_owned());
        self.clock.advance(self.end_ns);
        self.variants.clear();
        let lost = |fault: &Fault| match fault {
            Fault::ProofLost(variant, round) if prove && *round == self.round => {
                let probe = FailedProbe {
                    probe: ProbeId::Canary,
                    seen: "scripted: not as promised".to_owned(),
                };
                Some((variant.clone(), vec![probe]))
            }
            _ => None,
        };
        Ok(RoundEnd {
            ended: Vec::new(),
            lost: self.faults.iter().filter_map(lost).collect(),
        })
    }

    fn observed(&mut self) -> Vec<ClusterRecord> {
        std::mem::take(&mut self.reports)
    }

    fn teardown(&mut self) -> Vec<String> {
        self.calls.push("teardown".to_owned());
        let left = |fault: &Fault| match fault {
            Fault::Leftover(what) => Some(what.clone()),
            _ => None,
        };
        self.faults.iter().filter_map(left).collect()
    }
}

fn without_load() -> Measured {
    let failure = TrialFailure::LoadFailed {
        detail: "scripted: the load did not run".to_owned(),
    };
    Measured {
        outcome: TrialOutcome::Failed { failure },
        sample: None,
    }
}

fn server_proxy_died(variant: &Variant) -> ComponentFailure {
    ComponentFailure {
        component: format!("{}/server-proxy", variant.id),
        role: Some(ComponentRole::ServerProxy),
        ending: ComponentEnding::Exited { code: 139 },
        last_output: Vec::new(),
    }
}

fn lost() -> EngineError {
    EngineError::Lost {
        component: "environment",
        problem: "lost, as scripted".to_owned(),
    }
}

/// Seeded noise.
struct Noise(Pcg64);

impl Noise {
    fn new(seed: u64, name: &str) -> Self {
        let stream = name.bytes().fold(7_u128, |hash, byte| {
            hash.wrapping_mul(31) + u128::from(byte)
        });
        Self(Pcg64::new(u128::from(seed) << 64 | stream, stream))
    }

    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The sum of twelve uniform numbers: sufficiently normal here.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

fn delay_ns(variant: &Variant) -> u64 {
    match variant.inject {
        Some(Inject::DelayNs(ns)) => ns,
        _ => 0,
    }
}

fn injected(variant: &Variant, load: &LoadResult) -> Option<InjectedTime> {
    let asked_ns = variant.inject.map(|_| delay_ns(variant))?;
    Some(InjectedTime {
        asked_ns,
        count: load.completed,
        mean_ns: asked_ns as f64,
    })
}

fn load(
    experiment: &Experiment,
    variant: &Variant,
    point: &LoadPoint,
    mean_ns: f64,
    noise: &mut Noise,
) -> LoadResult {
    let window_ns = experiment.design.trial_ns;
    let connections = experiment.connections(point);
    let delay = delay_ns(variant) as f64;
    let (count, mean, spread) = match point.load {
        Regime::Steady { rate_per_s, .. } => {
            let expected = rate_per_s * window_ns as f64 / 1e9;
            let count = expected + expected.sqrt() * noise.normal();
            (count.max(1.0) as u64, mean_ns, 0.25)
        }
        // One shared core: requests queue for it.
        Regime::Saturated => {
            let each = mean_ns + delay;
            let count = (window_ns as f64 / each).max(1.0) as u64;
            (count, each * f64::from(connections) - delay, 0.1)
        }
    };
    let mut result = LoadResult {
        window_ns,
        offered: count,
        completed: count,
        succeeded: count,
        status: BTreeMap::from([(200, count)]),
        bytes_received: count * (u64::from(experiment.workload.response_bytes) + 120),
        connections_opened: u64::from(connections),
        congestion_control: "cubic".to_owned(),
        socket_io: "epoll".to_owned(),
        audit: GeneratorAudit {
            cpu_ns: count * 4_000,
            busy_share: 0.1,
            longest_loop_ns: 60_000,
            ..GeneratorAudit::default()
        },
        ..LoadResult::default()
    };
    for _ in 0..count {
        let latency = mean * (spread * noise.normal()).exp() + delay;
        let lag = 2_000.0 * noise.uniform();
        result.service.record(latency as u64);
        result.response.record((latency + lag) as u64);
        result.send_lag.record(lag as u64);
    }
    result
}

fn sample(
    trial: &PlannedTrial,
    variant: &Variant,
    load: &LoadResult,
    (mean_ns, work_ns): (f64, f64),
) -> ResourceSample {
    let component = |name: &str, role, cpu_ns| ComponentUsage {
        cpu_ns,
        system_ns: Some(cpu_ns / 3),
        context_switches: Some(load.completed / 2),
        memory: Some(Memory {
            anonymous_bytes: 8 << 20,
            file_bytes: 4 << 20,
            pss_bytes: 10 << 20,
            peak_bytes: 13 << 20,
        }),
        ..ComponentUsage::new(format!("{}/{name}", variant.id), role)
    };
    let app_ns = load.completed * (20_000 + work_ns as u64 + delay_ns(variant));
    let proxy_ns = load.completed * (mean_ns / 8.0) as u64;
    let mut components = vec![
        component("generator", ComponentRole::Generator, load.audit.cpu_ns),
        component("app", ComponentRole::App, app_ns),
        component("meshtax", ComponentRole::Harness, 1_000_000),
        component("idle", ComponentRole::Idle, 2_000_000),
    ];
    if !catalogue::is_baseline(&variant.data_plane) {
        components.push(component(
            "client-proxy",
            ComponentRole::ClientProxy,
            proxy_ns,
        ));
        components.push(component(
            "server-proxy",
            ComponentRole::ServerProxy,
            proxy_ns,
        ));
    }
    let busy_ns = components.iter().map(|c| c.cpu_ns).sum::<u64>() * 11 / 10;
    let wall_ns = load.window_ns;
    ResourceSample {
        components,
        machines: vec![MachineUsage {
            wall_ns,
            cores: CORES,
            idle_ns: (wall_ns * u64::from(CORES)).saturating_sub(busy_ns),
            resolution_ns: 10_000_000,
            speed_probe_ns: Some([3_000_000, 3_000_000]),
            others: Some(Vec::new()),
            ..MachineUsage::default()
        }],
        ..ResourceSample::new(trial.id.clone())
    }
}

fn evidence(variant: VariantId, round: u32, passed: bool) -> Evidence {
    let result = |probe, passed, seen: &str| ProbeResult {
        probe,
        passed,
        seen: seen.to_owned(),
    };
    let canary = if passed {
        "as expected"
    } else {
        "scripted: not as expected"
    };
    Evidence {
        variant,
        round,
        probes: vec![
            result(ProbeId::PermittedRequest, true, "200"),
            result(ProbeId::Canary, passed, canary),
        ],
        wire: WireEvidence {
            frames_to_server: 20,
            frames_to_client: 20,
            bytes_to_server: 20_000,
            bytes_to_client: 40_000,
            ports: vec![8080],
            connections: 4,
            ..WireEvidence::default()
        },
        features: None,
        start: Start::default(),
    }
}

fn node(name: &str, role: NodeRole, process: ComponentRole, core: u32) -> Node {
    Node {
        name: name.to_owned(),
        role,
        machine: 0,
        cores: [(process, vec![core])].into(),
    }
}

fn environment() -> Environment {
    Environment {
        engine: "fake".to_owned(),
        machines: vec![Host {
            kernel: "0.0.0-fake".to_owned(),
            cpu_model: "no processor: invented figures".to_owned(),
            cores: CORES,
            memory_bytes: 1 << 30,
            clock_source: "fake".to_owned(),
            virtual_machine: true,
            cpu_split: CpuSplit::Sampled,
            boot_id: None,
        }],
        nodes: vec![
            node("client", NodeRole::Client, ComponentRole::Generator, 0),
            node("server-1", NodeRole::Server, ComponentRole::App, 1),
        ],
        kubernetes: None,
        cluster_run: None,
        rootless: true,
        meshtax: None,
        pods: Vec::new(),
        artifacts: vec![Artifact {
            data_plane: "limit-mtls".to_owned(),
            version: "0.0.0".to_owned(),
            sha256: "0".repeat(64),
            origin: "built in".to_owned(),
            note: Some("the fake engine's".to_owned()),
            ..Artifact::default()
        }],
    }
}
