//! The [`Engine`] of one machine: it starts the lab and asks it, one request at a time.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use meshtax_dataplane::{DATA_PLANES, DataPlane, GATEWAY_PROGRAM, Program, Sabotage, find};
use meshtax_engine::{Engine, EngineError, Measured, RoundEnd, VariantStart};
use meshtax_model::environment::{Artifact, CpuLayout, Environment};
use meshtax_model::experiment::{Experiment, LoadPoint, Variant, VariantId};
use meshtax_model::plan::PlannedTrial;
use nix::sys::resource::{Resource, getrlimit};

use crate::artifacts::{Binary, digest};
use crate::missing::{no_namespaces, refused_inside};
use crate::protocol::{PROTOCOL_VERSION, Reply, Request, Setup, receive, send};
use crate::sandbox::Sandbox;
use crate::surroundings::Surroundings;

/// Beyond what a request may take, the lab is taken for lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// What proving one variant may take: its readiness, and every probe met by silence.
const PATIENCE_PER_VARIANT: Duration = Duration::from_secs(40);

/// What a local run is given besides its experiment.
#[derive(Clone, Debug, Default)]
pub struct LocalOptions {
    /// The programs of real proxies that are there.
    pub programs: Vec<Binary>,
    /// Variants that are broken on purpose, for tests.
    pub sabotage: BTreeMap<VariantId, Sabotage>,
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
    replies: BufReader<UnixStream>,
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

    fn ask(&mut self, request: &Request) -> Result<Reply, EngineError> {
        let lab = self
            .lab
            .as_mut()
            .ok_or_else(|| EngineError::Lost("the lab is not running".into()))?;
        match lab.exchange(request) {
            Ok(Reply::Refused {
                step,
                cause,
                not_permitted,
            }) => Err(refused_inside(&step, &cause, not_permitted)),
            Ok(reply) => Ok(reply),
            Err(e) => Err(lab.lost(&e)),
        }
    }

    fn missing_program(&self, variant: &Variant, gateway: bool) -> Option<String> {
        let plane = find(&variant.data_plane)?;
        let absent: Vec<String> = plane
            .programs_with(gateway)
            .filter(|program| self.binary(*program).is_none())
            .map(missing_program)
            .collect();
        (!absent.is_empty()).then(|| absent.join("; "))
    }

    fn binary(&self, program: Program) -> Option<&Binary> {
        self.options.programs.iter().find(|b| b.program == program)
    }
}

impl RunningLab {
    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        send(&self.sandbox.control, request)?;
        receive(&mut self.replies)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it closed its socket"))
    }

    fn lost(&self, error: &io::Error) -> EngineError {
        // The socket closes a moment before the process can be reaped.
        for _ in 0..100 {
            if let Some(how) = self.sandbox.ended() {
                return EngineError::Lost(format!("the lab's init process {how}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        EngineError::Lost(format!("the lab does not answer: {error}"))
    }
}

impl Engine for LocalEngine {
    fn prepare(&mut self, experiment: &Experiment) -> Result<Environment, EngineError> {
        let points = experiment.load_points.iter();
        let most = points.map(|point| experiment.connections(point)).max();
        enough_open_files(most.unwrap_or(experiment.workload.connections))?;
        let layout = cpu_layout(&meshtax_observe::allowed_cores());
        let binaries = &self.options.programs;
        let paths: Vec<&Path> = binaries.iter().map(|b| b.path.as_path()).collect();
        let programs = binaries.iter().map(|b| b.program).collect();
        let sandbox =
            Sandbox::start(&["internal", "lab"], &paths).map_err(|e| no_namespaces(&e))?;
        let lost = |e: io::Error| EngineError::Lost(format!("the lab's control socket: {e}"));
        let design = &experiment.design;
        let trial = Duration::from_nanos(design.warmup_ns.saturating_add(design.trial_ns));
        let patience = PATIENCE + PATIENCE_PER_VARIANT * experiment.variants.len() as u32 + trial;
        sandbox
            .control
            .set_read_timeout(Some(patience))
            .map_err(lost)?;
        let replies = BufReader::new(sandbox.control.try_clone().map_err(lost)?);
        let rootless = sandbox.rootless;
        let surroundings = Surroundings::of(sandbox.pid().unsigned_abs(), &layout);
        self.lab = Some(RunningLab {
            sandbox,
            replies,
            surroundings,
        });
        self.ask(&Request::Prepare(Box::new(Setup {
            version: PROTOCOL_VERSION,
            service: experiment.service.clone(),
            workload: experiment.workload.clone(),
            load_points: experiment.load_points.clone(),
            equal_work: experiment.equal_work.clone(),
            warmup_ns: experiment.design.warmup_ns,
            trial_ns: experiment.design.trial_ns,
            part_ns: experiment.design.part_ns(),
            requests_per_trial: experiment.design.requests_per_trial,
            variants: experiment.variants.iter().map(|v| v.id.clone()).collect(),
            layout: layout.clone(),
            programs,
            sabotage: self.options.sabotage.clone(),
        })))?;
        let gateway = experiment.has_ingress();
        self.without_program = experiment
            .variants
            .iter()
            .filter_map(|v| Some((v.id.clone(), self.missing_program(v, gateway)?)))
            .collect();
        Ok(Environment {
            engine: "local".into(),
            host: meshtax_observe::host(),
            layout,
            rootless,
            artifacts: self.artifacts(experiment),
        })
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
                failure: self.without_program.get(&v.id).cloned(),
                variant: v.id,
                evidence: None,
            })
            .collect();
        match self.ask(&Request::StartRound {
            round,
            variants: present,
        })? {
            Reply::RoundStarted(reports) => {
                starts.extend(reports.into_iter().map(|r| VariantStart {
                    variant: r.variant,
                    evidence: r.evidence,
                    failure: r.failure,
                }));
                Ok(starts)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn trial(
        &mut self,
        trial: &PlannedTrial,
        load_point: &LoadPoint,
    ) -> Result<Measured, EngineError> {
        let request = Request::Trial {
            trial: trial.clone(),
            load_point: load_point.clone(),
        };
        let before = self.lab.as_mut().map(|lab| lab.surroundings.before());
        match self.ask(&request)? {
            Reply::Measured {
                outcome,
                mut sample,
            } => {
                if let (Some(before), Some(lab), Some(sample)) =
                    (&before, &mut self.lab, &mut sample)
                {
                    lab.surroundings.add(before, sample);
                }
                Ok(Measured {
                    outcome,
                    sample: sample.map(|sample| *sample),
                })
            }
            other => Err(unexpected(&other)),
        }
    }

    fn end_round(&mut self, prove: bool) -> Result<RoundEnd, EngineError> {
        match self.ask(&Request::EndRound { prove })? {
            Reply::RoundEnded { died, lost } => Ok(RoundEnd { died, lost }),
            other => Err(unexpected(&other)),
        }
    }

    fn teardown(&mut self) -> Vec<String> {
        let Some(lab) = self.lab.take() else {
            return Vec::new();
        };
        let pid = lab.sandbox.pid();
        drop(lab);
        // Reaped: the kernel has ended every process of the namespace first.
        if std::path::Path::new(&format!("/proc/{pid}")).exists() {
            return vec![format!("the lab's init process {pid}")];
        }
        Vec::new()
    }
}

impl LocalEngine {
    fn artifacts(&self, experiment: &Experiment) -> Vec<Artifact> {
        DATA_PLANES
            .iter()
            .filter(|plane| {
                experiment
                    .variants
                    .iter()
                    .any(|v| v.data_plane == plane.name)
            })
            .flat_map(|plane| plane.needs.iter().map(move |program| (plane, *program)))
            .filter_map(|(plane, program)| match program {
                Program::LimitProxy => Some(own_program(plane)),
                program => self.binary(program).map(|binary| Artifact {
                    data_plane: plane.name.into(),
                    version: binary.version.clone(),
                    sha256: binary.sha256.clone(),
                    origin: binary.origin.clone(),
                    // Once is enough.
                    note: plane
                        .note
                        .filter(|_| plane.needs.first() == Some(&program))
                        .map(str::to_owned),
                }),
            })
            .chain(self.gateway(experiment))
            .collect()
    }

    /// What all gateways run.
    fn gateway(&self, experiment: &Experiment) -> Option<Artifact> {
        let binary = self.binary(GATEWAY_PROGRAM)?;
        experiment.has_ingress().then(|| Artifact {
            data_plane: "gateways".into(),
            version: binary.version.clone(),
            sha256: binary.sha256.clone(),
            origin: binary.origin.clone(),
            note: Some(
                "Envoy for every variant: a plain reverse proxy without a mesh, one with a sidecar for the \
                 limits, the mesh's own proxy for envoy-sidecar"
                    .into(),
            ),
        })
    }
}

/// What is missing, and how to get it.
#[must_use]
pub fn missing_program(program: Program) -> String {
    match program {
        Program::Envoy => "there is no Envoy binary: `meshtax dataplanes get envoy` brings it, \
             or give one with --envoy PATH"
            .into(),
        Program::Ztunnel => "there is no ztunnel binary: give one with --ztunnel PATH (the image \
             istio/ztunnel holds it), or keep it with `meshtax dataplanes get ztunnel --from PATH`"
            .into(),
        Program::LinkerdProxy => "there is no linkerd2-proxy binary: give one with \
             --linkerd-proxy PATH (the image linkerd/proxy holds it), or keep it with \
             `meshtax dataplanes get linkerd --from PATH`"
            .into(),
        Program::LimitProxy => "it is built in".into(),
    }
}

/// A proxy has two sockets for each connection of the generator, and some of its own.
fn enough_open_files(connections: u32) -> Result<(), EngineError> {
    const OWN: u64 = 128;
    let needed = u64::from(connections) * 2 + OWN;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|e| EngineError::Lost(format!("the limit on open files: {e}")))?;
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

/// The minimal proxy is this very program.
fn own_program(plane: &DataPlane) -> Artifact {
    Artifact {
        data_plane: plane.name.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        sha256: digest(Path::new("/proc/self/exe")).unwrap_or_else(|e| format!("unknown: {e}")),
        origin: "built in".into(),
        note: plane.note.map(str::to_owned),
    }
}

fn unexpected(reply: &Reply) -> EngineError {
    let kind = match reply {
        Reply::Prepared => "prepared",
        Reply::Refused { .. } => "refused",
        Reply::RoundStarted(_) => "round started",
        Reply::Measured { .. } => "measured",
        Reply::RoundEnded { .. } => "round ended",
    };
    EngineError::Lost(format!("the lab answered out of order ({kind})"))
}

/// Which core does what: the generator has one to itself; with four or more cores each node has
/// cores of its own, with fewer both nodes share the rest.
#[must_use]
pub fn cpu_layout(allowed: &[u32]) -> CpuLayout {
    let (generator, rest) = match allowed {
        [] => (vec![0], vec![0]),
        [only] => (vec![*only], vec![*only]),
        [first, rest @ ..] => (vec![*first], rest.to_vec()),
    };
    let (client_node, server_node) = if allowed.len() < 4 {
        (rest.clone(), rest)
    } else {
        let middle = rest.len() / 2;
        (rest[..middle].to_vec(), rest[middle..].to_vec())
    };
    CpuLayout {
        generator,
        client_node,
        server_node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_has_a_core_to_itself_where_there_are_two() {
        assert!(cpu_layout(&[3]).generator_shares_core());
        let two = cpu_layout(&[0, 1]);
        assert!(!two.generator_shares_core() && two.ends_share_cores());
        let three = cpu_layout(&[0, 1, 2]);
        assert!(!three.generator_shares_core() && three.ends_share_cores());
        let eight = cpu_layout(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(!eight.generator_shares_core() && !eight.ends_share_cores());
        assert_eq!((eight.client_node.len(), eight.server_node.len()), (3, 4));
    }
}
