//! The [`Engine`] of one machine: it starts the lab and sends it one request at a time.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use meshtax_agent::{AgentReply, AgentRequest, Surroundings};
use meshtax_artifacts::{Binary, ProgramError, sha256_of_file};
use meshtax_dataplane::Sabotage;
use meshtax_engine::{Engine, EngineError, Measured, RoundEnd, VariantStart};
use meshtax_model::catalogue::{GATEWAY_PROGRAM, Program, find};
use meshtax_model::environment::{Artifact, Build, Environment, OwnBuild};
use meshtax_model::experiment::{
    Design, Experiment, LoadPoint, Placement, ProgramChoice, Variant, VariantId,
};
use meshtax_model::failure::VariantFailureReason;
use meshtax_model::plan::PlannedTrial;
use meshtax_model::topology::Topology;
use meshtax_workload::Timing;
use nix::sys::resource::{Resource, getrlimit};

use crate::link::{Link, NoReply};
use crate::missing::{no_limits, no_namespaces, refused_inside};
use crate::placement::{self, Capacity};
use crate::protocol::{LAB_PROTOCOL, LabProgram, LabReply, LabRequest, Reply, Request, Setup};
use crate::run_cgroup::RunCgroup;
use crate::sandbox::{FIRST_PROGRAM, Sandbox};

/// Grace period in addition to a request's own time limit, after which the lab counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit to verify one variant: its readiness, and a timeout of every probe.
const PATIENCE_PER_VARIANT: Duration = Duration::from_secs(40);

/// What a local run needs in addition to its experiment.
#[derive(Clone, Debug, Default)]
pub struct LocalOptions {
    /// The programs of real proxies that are there, by who runs them.
    pub programs: BTreeMap<ProgramChoice, Binary>,
    /// Variants that are broken on purpose, for tests.
    pub sabotage: BTreeMap<VariantId, Sabotage>,
    /// Set if the user asks the run to stop: what takes longer than a second then is given up.
    pub interrupted: Arc<AtomicBool>,
}

/// The local engine.
#[derive(Debug)]
pub struct LocalEngine {
    options: LocalOptions,
    lab: Option<RunningLab>,
    /// Variants whose program is not there.
    without_program: BTreeMap<VariantId, String>,
}

#[derive(Debug)]
struct RunningLab {
    sandbox: Sandbox,
    /// After the sandbox: its processes must have ended.
    cgroup: Option<RunCgroup>,
    link: Link,
    surroundings: Surroundings,
}

impl LocalEngine {
    /// An engine that starts nothing yet.
    #[must_use]
    pub fn new(options: LocalOptions) -> Self {
        Self {
            options,
            lab: None,
            without_program: BTreeMap::new(),
        }
    }

    fn ask(&mut self, request: LabRequest) -> Result<LabReply, EngineError> {
        match self.exchange(&Request::Lab(request))? {
            Reply::Lab(LabReply::Refused {
                step,
                cause,
                not_permitted,
            }) => Err(refused_inside(step, &cause, not_permitted)),
            Reply::Lab(reply) => Ok(reply),
            Reply::Agent(_) => Err(out_of_order()),
        }
    }

    fn exchange(&mut self, request: &Request) -> Result<Reply, EngineError> {
        let lab = self
            .lab
            .as_mut()
            .ok_or_else(|| lost("the lab", "is not running"))?;
        lab.link.exchange(request).map_err(|none| match none {
            NoReply::Interrupted => lost("the lab", "was abandoned: the run was interrupted"),
            NoReply::Broken(e) => lab.lost(&e),
        })
    }

    fn missing_program(&self, variant: &Variant, gateway: bool) -> Option<String> {
        let plane = find(&variant.data_plane)?;
        let absent: Vec<String> = plane
            .programs_with(gateway)
            .map(|program| variant.choice(program))
            .filter(|choice| !self.options.programs.contains_key(choice))
            .map(|choice| ProgramError::missing(&choice).to_string())
            .collect();
        (!absent.is_empty()).then(|| absent.join("; "))
    }
}

impl RunningLab {
    fn lost(&self, error: &io::Error) -> EngineError {
        // The socket closes a moment before the process can be reaped.
        for _ in 0..100 {
            if let Some(how) = self.sandbox.ended() {
                return lost("the lab's init process", how);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        lost("the lab", format!("does not respond: {error}"))
    }
}

/// The evidence is captured on the link between the nodes.
fn on_two_nodes(experiment: &Experiment) -> Result<(), EngineError> {
    match experiment.placement {
        Placement::TwoNodes => Ok(()),
        Placement::OneNode => Err(EngineError::Missing {
            what: "`placement: one-node` needs a node of a cluster: the local engine's two nodes are on this machine already"
                .to_owned(),
            fix: "write `placement: two-nodes`, or add --engine kubernetes".to_owned(),
        }),
    }
}

impl Engine for LocalEngine {
    fn prepare(&mut self, experiment: &Experiment) -> Result<Environment, EngineError> {
        on_two_nodes(experiment)?;
        let points = experiment.load_points.iter();
        let most = points.map(|point| experiment.connections(point)).max();
        enough_open_files(most.unwrap_or(experiment.workload.connections))?;
        let capacity = Capacity::here();
        let cores = capacity.cpus.len() as u32;
        let nodes = placement::nodes(
            &capacity,
            experiment.workers.most(cores),
            experiment.topology.server_nodes(),
        );
        let limits = experiment.variants.iter().flat_map(|v| v.limits.values());
        let cgroup = RunCgroup::make(limits).map_err(|e| no_limits(&e))?;
        let (programs, paths) = descriptors(&self.options.programs);
        let sandbox =
            Sandbox::start(&["internal", "lab"], &paths).map_err(|e| no_namespaces(&e))?;
        let socket = |e: io::Error| lost("the lab's control socket", format!("failed: {e}"));
        let design = &experiment.design;
        let trial = Duration::from_nanos(design.warmup_ns.saturating_add(design.trial_ns));
        let patience = PATIENCE + PATIENCE_PER_VARIANT * experiment.variants.len() as u32 + trial;
        let interrupted = Arc::clone(&self.options.interrupted);
        let link = Link::new(&sandbox.control, patience, interrupted).map_err(socket)?;
        let rootless = sandbox.rootless;
        let pid = sandbox.pid().unsigned_abs();
        let surroundings = Surroundings::new(
            pid,
            &placement::cores_in_use(&nodes),
            placement::probed_core(&nodes),
        );
        let limits = cgroup.as_ref().map(|cgroup| cgroup.places().clone());
        self.lab = Some(RunningLab {
            sandbox,
            cgroup,
            link,
            surroundings,
        });
        self.ask(LabRequest::Prepare(Box::new(Setup {
            version: LAB_PROTOCOL,
            topology: experiment.topology.clone(),
            workload: experiment.workload.clone(),
            load_points: experiment.load_points.clone(),
            workers: experiment.workers,
            cores,
            timing: Timing::of(&experiment.design),
            variants: experiment.variants.iter().map(|v| v.id.clone()).collect(),
            nodes: nodes.clone(),
            programs,
            sabotage: self.options.sabotage.clone(),
            limits,
        })))?;
        let gateway = experiment.has_ingress();
        self.without_program = experiment
            .variants
            .iter()
            .filter_map(|v| Some((v.id.clone(), self.missing_program(v, gateway)?)))
            .collect();
        let own = own_program();
        Ok(Environment {
            artifacts: self.artifacts(experiment, cores, &own),
            meshtax: Some(OwnBuild {
                sha256: own.sha256,
                image: None,
            }),
            ..placement::environment(meshtax_observe::host(), nodes, rootless)
        })
    }

    fn set_work(&mut self, topology: &Topology, design: &Design) -> Result<(), EngineError> {
        match self.ask(LabRequest::SetWork {
            topology: Box::new(topology.clone()),
            timing: Timing::of(design),
        })? {
            LabReply::WorkSet => Ok(()),
            _ => Err(out_of_order()),
        }
    }

    fn start_round(
        &mut self,
        round: u32,
        variants: &[Variant],
    ) -> Result<Vec<VariantStart>, EngineError> {
        let (absent, present): (Vec<_>, Vec<_>) = variants
            .iter()
            .cloned()
            .partition(|v| self.without_program.contains_key(&v.id));
        let mut starts: Vec<VariantStart> = absent
            .into_iter()
            .map(|v| VariantStart {
                failure: self.without_program.get(&v.id).map(|detail| {
                    VariantFailureReason::StartFailed {
                        detail: detail.clone(),
                    }
                }),
                variant: v.id,
                evidence: None,
            })
            .collect();
        match self.ask(LabRequest::StartRound {
            round,
            variants: present,
        })? {
            LabReply::RoundStarted(reports) => {
                starts.extend(reports.into_iter().map(|r| VariantStart {
                    variant: r.variant,
                    evidence: r.evidence,
                    failure: r.failure,
                }));
                Ok(starts)
            }
            _ => Err(out_of_order()),
        }
    }

    fn trial(
        &mut self,
        trial: &PlannedTrial,
        load_point: &LoadPoint,
    ) -> Result<Measured, EngineError> {
        let request = AgentRequest::new(trial.clone(), load_point.clone());
        let before = self.lab.as_mut().map(|lab| lab.surroundings.before());
        match self.exchange(&Request::Agent(request))? {
            Reply::Agent(AgentReply::Measured {
                outcome,
                mut sample,
            }) => {
                if let (Some(before), Some(lab), Some(sample)) =
                    (&before, &mut self.lab, &mut sample)
                {
                    for machine in &mut sample.machines {
                        lab.surroundings.add(before, machine);
                    }
                }
                Ok(Measured {
                    outcome,
                    sample: sample.map(|sample| *sample),
                })
            }
            _ => Err(out_of_order()),
        }
    }

    fn end_round(&mut self, prove: bool) -> Result<RoundEnd, EngineError> {
        match self.ask(LabRequest::EndRound { prove })? {
            LabReply::RoundEnded { ended, lost } => Ok(RoundEnd { ended, lost }),
            _ => Err(out_of_order()),
        }
    }

    fn teardown(&mut self) -> Vec<String> {
        let Some(lab) = self.lab.take() else {
            return Vec::new();
        };
        let pid = lab.sandbox.pid();
        let RunningLab {
            sandbox, cgroup, ..
        } = lab;
        drop(sandbox);
        let mut left = Vec::new();
        // Reaped: the kernel has ended every process of the namespace first.
        if std::path::Path::new(&format!("/proc/{pid}")).exists() {
            left.push(format!("the lab's init process {pid}"));
        }
        if let Some(mut cgroup) = cgroup
            && !cgroup.remove()
        {
            let directories = cgroup.places().directories();
            left.extend(
                directories
                    .iter()
                    .map(|path| format!("the cgroup {}", path.display())),
            );
        }
        left
    }
}

/// Each program with the descriptors that the lab will have of it, and what these refer to, in their order.
fn descriptors(programs: &BTreeMap<ProgramChoice, Binary>) -> (Vec<LabProgram>, Vec<&Path>) {
    let mut paths = Vec::new();
    let mut add = |path| {
        paths.push(path);
        FIRST_PROGRAM + paths.len() as RawFd - 1
    };
    let described = programs.iter().map(|(choice, binary)| LabProgram {
        choice: choice.clone(),
        file: add(binary.path.as_path()),
        loader: binary
            .loader
            .as_ref()
            .map(|loader| (add(loader.path.as_path()), add(loader.libraries.as_path()))),
    });
    let described = described.collect();
    (described, paths)
}

impl LocalEngine {
    /// The programs of each data plane, each build once.
    fn artifacts(&self, experiment: &Experiment, cores: u32, own: &Artifact) -> Vec<Artifact> {
        let mut all: Vec<Artifact> = Vec::new();
        for variant in &experiment.variants {
            let Some(plane) = find(&variant.data_plane) else {
                continue;
            };
            for program in plane.programs.iter().copied() {
                // Once is enough.
                let note = plane
                    .note
                    .filter(|_| plane.programs.first() == Some(&program));
                let workers = experiment.workers.of(program, cores);
                let described = match program {
                    Program::LimitProxy => Some(own.clone()),
                    program => self.described(&variant.choice(program)),
                };
                let Some(described) = described else {
                    continue;
                };
                let is_same = |a: &&mut Artifact| {
                    a.data_plane == plane.name
                        && a.program == program.name()
                        && a.sha256 == described.sha256
                };
                match all.iter_mut().find(is_same) {
                    Some(same) => same.variants.push(variant.id.clone()),
                    None => all.push(Artifact {
                        data_plane: plane.name.into(),
                        program: program.name().into(),
                        variants: vec![variant.id.clone()],
                        workers: Some(workers),
                        note: note.map(str::to_owned),
                        ..described
                    }),
                }
            }
        }
        all.extend(self.gateway(experiment, cores));
        all
    }

    /// What all gateways run.
    fn gateway(&self, experiment: &Experiment, cores: u32) -> Option<Artifact> {
        let described = self.described(&ProgramChoice::default_of(GATEWAY_PROGRAM))?;
        experiment.has_ingress().then(|| Artifact {
            data_plane: "gateways".into(),
            program: GATEWAY_PROGRAM.name().into(),
            variants: experiment.variants.iter().map(|v| v.id.clone()).collect(),
            workers: Some(experiment.workers.of(GATEWAY_PROGRAM, cores)),
            note: Some(
                "Envoy for every variant: a plain reverse proxy without a mesh, one with a sidecar for the \
                 limits, the mesh's own proxy for envoy-sidecar and istio-sidecar (upstream Envoy for both)"
                    .into(),
            ),
            ..described
        })
    }

    fn described(&self, choice: &ProgramChoice) -> Option<Artifact> {
        let binary = self.options.programs.get(choice)?;
        Some(Artifact {
            version: binary.version.clone(),
            sha256: binary.sha256.clone(),
            origin: binary.origin.to_string(),
            build: binary.build.clone(),
            ..Artifact::default()
        })
    }
}

/// A proxy has two sockets for each connection of the generator, and a few more.
fn enough_open_files(connections: u32) -> Result<(), EngineError> {
    const OWN: u64 = 128;
    let needed = u64::from(connections) * 2 + OWN;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|e| lost("the limit on open files", format!("cannot be read: {e}")))?;
    if hard >= needed {
        return Ok(());
    }
    Err(EngineError::Missing {
        what: format!(
            "{connections} connections need {needed} open files in each proxy, and the limit is {hard}"
        ),
        fix: format!(
            "raise it (`ulimit -n {needed}`), or use at most {} connections",
            hard.saturating_sub(OWN) / 2
        ),
    })
}

/// This very program, which is also the minimal proxy.
fn own_program() -> Artifact {
    let profile = match cfg!(debug_assertions) {
        true => "debug",
        false => "release",
    };
    Artifact {
        version: env!("CARGO_PKG_VERSION").into(),
        sha256: sha256_of_file(Path::new("/proc/self/exe"))
            .unwrap_or_else(|e| format!("unknown: {e}")),
        origin: "built in".into(),
        build: Build {
            profile: Some(profile.to_owned()),
            allocator: Some("the C library's".to_owned()),
            crypto: Some("ring".to_owned()),
            ..Build::default()
        },
        ..Artifact::default()
    }
}

fn lost(component: &'static str, problem: impl Into<String>) -> EngineError {
    EngineError::Lost {
        component,
        problem: problem.into(),
    }
}

fn out_of_order() -> EngineError {
    lost("the lab", "replied out of order")
}
