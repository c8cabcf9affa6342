//! One trial: load from the client's pod, and what it cost, read at the window's very edges.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use meshtax_app::AppStats;
use meshtax_control_plane::{Changed, DiscoveryServer};
use meshtax_load::{LoadModel, LoadSpec, Window, WorkerMessage, WorkerRequest};
use meshtax_model::experiment::{Inject, LoadPoint, Protocol, Regime, Variant, VariantId};
use meshtax_model::plan::PlannedTrial;
use meshtax_model::trial::{
    Changes, ComponentRole, InjectedTime, LoadResult, ResourceSample, TrialOutcome,
};
use meshtax_observe::{listening_sockets, monotonic_ns, speed_probe};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::apps;
use super::component::{Component, Way, ending, spawn_in};
use super::control::Control;
use super::round::{Instance, Round};
use super::setup::{Lab, Pods};
use super::window::{self, Process, Watched, asleep};
use crate::protocol::Reply;

/// Beyond warm-up, window and drain: for starting a process and opening its connections.
const GRACE: Duration = Duration::from_secs(15);
const DRAIN_NS: u64 = 1_000_000_000;

impl Round {
    /// Measures one trial while all other instances idle.
    pub(crate) fn measure(&mut self, lab: &Lab, trial: &PlannedTrial, point: &LoadPoint) -> Reply {
        let result = self.try_measure(lab, trial, point);
        // Also where the trial failed half-way: what idles is to be left alone.
        if let Some(instance) = self.instances.get(&trial.variant) {
            told(instance).for_each(|proxy| proxy.set_changing(false));
        }
        match result {
            Ok((outcome, sample)) => Reply::Measured {
                outcome,
                sample: Some(Box::new(sample)),
            },
            Err(reason) => Reply::Measured {
                outcome: TrialOutcome::Failed { reason },
                sample: None,
            },
        }
    }

    fn try_measure(
        &mut self,
        lab: &Lab,
        trial: &PlannedTrial,
        point: &LoadPoint,
    ) -> Result<(TrialOutcome, ResourceSample), String> {
        let id = &trial.variant;
        let instance = self
            .instances
            .get_mut(id)
            .ok_or_else(|| format!("{id} is not up"))?;
        if let Some(dead) = dead_components(instance).into_iter().next() {
            return Err(dead);
        }
        let pods = &lab.pods[id];
        let delay_before = cost_stats(lab, &instance.variant, pods, point)?;
        let asked_before = asked(lab, pods, point);
        let listening_before = listening(lab, instance);
        let core = lab.setup.layout.server_node.clone();
        let probe_before = speed_on(&core);
        let changing = Changing::begin(instance);

        let mut generator = Generator::start(lab, instance, trial, point)?;
        let announced = generator.window()?;
        let watched = self.watched(id, Way::at(point));
        let pid = generator.child.id();
        let edges = match requests_per_trial(lab, point) {
            None => window::observe(&watched, &announced, pid, &mut asleep),
            Some(_) => window::observe(&watched, &announced, pid, &mut |until_ns| {
                generator.has_ended_before(until_ns)
            }),
        };
        let load = generator.result();
        // The load is over and its connections still stand. Not within the window: the kernel walks
        // its whole table of connections for this, for milliseconds.
        let proxy_connections = watched.connections();
        let memories = watched.memories();
        drop(generator);
        let instance = self.instances.get_mut(id).ok_or("the variant is gone")?;
        let changes = changing.map(|changing| changing.end(instance));
        let probe_after = speed_on(&core);

        let mut component_failures = dead_components(instance);
        let load = load.map_err(|reason| with_failures(reason, &component_failures))?;
        let injected = injected(
            delay_before,
            cost_stats(lab, &instance.variant, pods, point)
                .ok()
                .flatten(),
        );
        let replicas = since(asked_before, asked(lab, pods, point));
        if listening(lab, instance) != listening_before {
            let restarted = "the service's own program was restarted: it listens anew";
            component_failures.push(restarted.to_owned());
        }
        let mut sample = edges?.sample(&trial.id, &memories, &load, [probe_before, probe_after]);
        sample.changes = changes;
        let mut lost_evidence = lost_evidence(point, &sample, &load, proxy_connections);
        lost_evidence.extend(lost_changes(&instance.variant, changes));
        let outcome = TrialOutcome::Measured {
            lost_evidence,
            proxy_connections,
            load: Box::new(load),
            injected,
            replicas,
            component_failures,
        };
        Ok((outcome, sample))
    }

    /// Every process that is up, with its part in a trial of this variant whose requests come by this way: what stands
    /// on the other way idles.
    fn watched(&self, active: &VariantId, way: Way) -> Watched {
        let mut processes = Vec::new();
        for (id, instance) in &self.instances {
            for component in &instance.components {
                let is_other = id != active;
                let passed = component.way.is_none_or(|only| only == way);
                let is_proxy = component.role != ComponentRole::App;
                processes.push(Process {
                    pid: component.pid(),
                    name: component.name.clone(),
                    role: if is_other || !passed {
                        ComponentRole::Idle
                    } else {
                        component.role
                    },
                    server_node: component.server_node,
                    idles_for: (is_other && is_proxy).then(|| id.clone()),
                });
            }
        }
        processes.push(Process {
            pid: std::process::id(),
            name: "harness".into(),
            role: ComponentRole::Harness,
            server_node: 0,
            idles_for: None,
        });
        let instance = self.instances.get(active);
        // Any process in a server's pod sees its sockets and links. The proxy need not be in the pod.
        let apps = instance.into_iter().flat_map(|i| &i.components);
        let apps = apps.filter(|c| c.is_first_app).map(Component::pid);
        Watched {
            processes,
            servers: apps.collect(),
            proxy_port: instance.and_then(|i| i.blueprint.proxy_port),
        }
    }
}

/// The sockets on which the user's own program listens: what stands before it may have started it
/// again. meshtax's application cannot come back unseen.
fn listening(lab: &Lab, instance: &Instance) -> Vec<Vec<u64>> {
    /// Asking costs milliseconds for each pod.
    const PODS: usize = 8;
    let Some(program) = &lab.setup.service.program else {
        return Vec::new();
    };
    let apps = instance.components.iter().filter(|c| c.is_first_app);
    apps.take(PODS)
        .map(|app| listening_sockets(app.pid(), program.port).unwrap_or_default())
        .collect()
}

/// What a trial itself shows of its path, besides the probes at the round's begin: that the proxies
/// were at work, and had connections to each other.
fn lost_evidence(
    point: &LoadPoint,
    sample: &ResourceSample,
    load: &LoadResult,
    proxy_connections: Option<u32>,
) -> Vec<String> {
    /// No proxy passes a request on in less CPU.
    const AT_WORK_NS: u64 = 300;
    let mut lost = Vec::new();
    for (role, name) in [
        (ComponentRole::ClientProxy, "client's proxy"),
        (ComponentRole::ServerProxy, "server's proxy"),
        (ComponentRole::Waypoint, "waypoint"),
        (ComponentRole::Gateway, "gateway"),
    ] {
        let of_role: Vec<u64> = sample
            .components
            .iter()
            .filter(|component| component.role == role)
            .map(|component| component.cpu_ns)
            .collect();
        let used_ns: u64 = of_role.iter().sum();
        if !of_role.is_empty() && used_ns < load.completed.saturating_mul(AT_WORK_NS) {
            lost.push(format!("the {name} did nothing for these requests"));
        }
    }
    // With connections that end, none need be there just now.
    if point.requests_per_connection.is_none() && load.completed > 0 && proxy_connections == Some(0)
    {
        lost.push("there is no connection between the proxies".to_owned());
    }
    lost
}

/// Endpoints that change while a trial runs.
struct Changing {
    began: Instant,
    before: Vec<Changed>,
}

impl Changing {
    /// `None`: the variant's endpoints do not change.
    fn begin(instance: &Instance) -> Option<Self> {
        instance.variant.options.knows?.changes_per_s?;
        let before = told(instance).map(DiscoveryServer::changed).collect();
        told(instance).for_each(|proxy| proxy.set_changing(true));
        Some(Self {
            began: Instant::now(),
            before,
        })
    }

    fn end(self, instance: &Instance) -> Changes {
        told(instance).for_each(|proxy| proxy.set_changing(false));
        let during_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let passed: Vec<Changed> = told(instance)
            .map(DiscoveryServer::changed)
            .zip(self.before)
            .map(|(now, then)| Changed {
                said: now.said.saturating_sub(then.said),
                held: now.held.saturating_sub(then.held),
            })
            .collect();
        let fewest = |of: fn(&Changed) -> u64| passed.iter().map(of).min().unwrap_or_default();
        Changes {
            during_ns,
            said: fewest(|changed| changed.said),
            held: fewest(|changed| changed.held),
        }
    }
}

fn told(instance: &Instance) -> impl Iterator<Item = &DiscoveryServer> {
    instance.control.iter().filter_map(Control::discovery)
}

/// Whether there were fewer changes than the variant is for.
fn lost_changes(variant: &Variant, changes: Option<Changes>) -> Option<String> {
    /// Of what was asked for; the rest may be on its way when the trial ends.
    const SHARE: f64 = 0.9;
    /// So many may be on their way however few there are.
    const UNDERWAY: f64 = 2.0;
    let asked_per_s = variant.options.knows?.changes_per_s?;
    let changes = changes?;
    let asked = asked_per_s * changes.during_ns as f64 / 1e9;
    let enough = (changes.held as f64 + UNDERWAY) >= asked * SHARE;
    (!enough).then(|| {
        let Changes { said, held, .. } = changes;
        format!(
            "of {asked:.0} changes of endpoints {said} were said to a proxy, and it held {held}"
        )
    })
}

fn with_failures(reason: String, failures: &[String]) -> String {
    if failures.is_empty() {
        return reason;
    }
    format!("{}; {reason}", failures.join("; "))
}

fn dead_components(instance: &mut Instance) -> Vec<String> {
    instance
        .components
        .iter_mut()
        .filter_map(Component::failure)
        .collect()
}

/// The speed of the core on which the system under test runs.
fn speed_on(cores: &[u32]) -> u64 {
    let pinned = || {
        let mut set = CpuSet::new();
        if let Some(core) = cores.first() {
            let _ = set.set(*core as usize);
            let _ = sched_setaffinity(Pid::from_raw(0), &set);
        }
        speed_probe()
    };
    thread::scope(|scope| scope.spawn(pinned).join().unwrap_or(0))
}

/// The generator's process.
struct Generator {
    child: Child,
    messages: Receiver<Result<WorkerMessage, String>>,
    /// What came while it was not asked yet.
    early: Option<Result<WorkerMessage, String>>,
    patience: Duration,
    /// While this is open, the generator keeps its connections.
    _hold: ChildStdin,
}

impl Generator {
    fn start(
        lab: &Lab,
        instance: &Instance,
        trial: &PlannedTrial,
        point: &LoadPoint,
    ) -> Result<Self, String> {
        let spec = load_spec(lab, instance, trial, point)?;
        let pod = match point.ingress {
            None => &lab.pods[&trial.variant].client,
            Some(_) => &lab.outsider,
        };
        let patience =
            GRACE + Duration::from_nanos(spec.warmup_ns + spec.window_ns + spec.drain_ns);
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("meshtax")
            .args(["internal", "load"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let failed = |e: std::io::Error| format!("cannot start the load generator: {e}");
        let mut child =
            spawn_in(&mut command, &pod.namespace, &lab.setup.layout.generator).map_err(failed)?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the load generator has no pipes".into());
        };
        let request =
            serde_json::to_vec(&WorkerRequest::holding(spec)).map_err(|e| e.to_string())?;
        input.write_all(&request).map_err(failed)?;
        Ok(Self {
            child,
            messages: read_messages(output),
            early: None,
            patience,
            _hold: input,
        })
    }

    fn window(&mut self) -> Result<Window, String> {
        match self.next()? {
            WorkerMessage::Window(window) => Ok(window),
            WorkerMessage::Error(reason) => Err(format!("load: {reason}")),
            _ => Err("the load generator announced no window".into()),
        }
    }

    fn result(&mut self) -> Result<LoadResult, String> {
        match self.next()? {
            WorkerMessage::Result(result) => Ok(*result),
            WorkerMessage::Error(reason) => Err(format!("load: {reason}")),
            _ => Err("the load generator told something else than its result".into()),
        }
    }

    /// Waits until an instant of `CLOCK_MONOTONIC`; `true`: the load is over, and nothing is waited for any more.
    fn has_ended_before(&mut self, instant_ns: u64) -> bool {
        if self.early.is_some() {
            return true;
        }
        let left_ns = instant_ns.saturating_sub(monotonic_ns());
        match self.messages.recv_timeout(Duration::from_nanos(left_ns)) {
            Ok(message) => self.early = Some(message),
            Err(RecvTimeoutError::Timeout) => return false,
            // How it ended shows when its result is asked for.
            Err(RecvTimeoutError::Disconnected) => {}
        }
        true
    }

    fn next(&mut self) -> Result<WorkerMessage, String> {
        if let Some(message) = self.early.take() {
            return message;
        }
        match self.messages.recv_timeout(self.patience) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => {
                Err("the load generator did not answer in time".into())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let how = self.child.wait().map_or_else(|e| e.to_string(), ending);
                Err(format!("the load generator {how}"))
            }
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_messages(output: ChildStdout) -> Receiver<Result<WorkerMessage, String>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let message = serde_json::from_str(&line)
                .map_err(|e| format!("the load generator's answer is unreadable: {e}"));
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

fn load_spec(
    lab: &Lab,
    instance: &Instance,
    trial: &PlannedTrial,
    point: &LoadPoint,
) -> Result<LoadSpec, String> {
    let asked = match (point.ingress, instance.blueprint.entered_at) {
        (None, _) => apps::load(&lab.setup, &instance.site, point),
        (Some(ingress), Some(entered_at)) => {
            apps::load_from_outside(&instance.site, entered_at, ingress)
        }
        (Some(_), None) => {
            return Err(format!(
                "{} has no gateway for clients outside",
                trial.variant
            ));
        }
    };
    let connections = point.connections.unwrap_or(lab.setup.workload.connections);
    Ok(LoadSpec {
        connections,
        requests_per_connection: point.requests_per_connection,
        model: match point.load {
            Regime::Steady {
                rate_per_s,
                arrivals,
            } if point.by_users => LoadModel::Users {
                rate_per_s: rate_per_s / f64::from(connections),
                arrivals,
            },
            Regime::Steady {
                rate_per_s,
                arrivals,
            } => LoadModel::open(rate_per_s, arrivals),
            Regime::Saturated => LoadModel::closed(),
        },
        seed: trial.arrival_seed,
        warmup_ns: lab.setup.warmup_ns,
        window_ns: lab.setup.trial_ns,
        drain_ns: DRAIN_NS,
        interval_ns: lab.setup.part_ns,
        max_requests: requests_per_trial(lab, point),
        ..asked
    })
}

/// `None`: a trial lasts its time, as an open loop's does in any case.
fn requests_per_trial(lab: &Lab, point: &LoadPoint) -> Option<u64> {
    match point.load {
        Regime::Steady { .. } => None,
        Regime::Saturated => lab.setup.requests_per_trial,
    }
}

/// Requests that each replica has answered so far; `None` where there is one only, or where the
/// program does not count.
fn asked(lab: &Lab, pods: &Pods, point: &LoadPoint) -> Option<Vec<u64>> {
    if pods.more_servers.is_empty() || lab.setup.service.program.is_some() {
        return None;
    }
    let (port, _) = apps::target(&lab.setup, point);
    if point.protocol == Protocol::Tcp {
        return None;
    }
    pods.servers()
        .map(|pod| Some(apps::stats(&pod.namespace, port).ok()?.requests))
        .collect()
}

fn since(before: Option<Vec<u64>>, after: Option<Vec<u64>>) -> Vec<u64> {
    let (Some(before), Some(after)) = (before, after) else {
        return Vec::new();
    };
    let pairs = after.iter().zip(&before);
    pairs
        .map(|(after, before)| after.saturating_sub(*before))
        .collect()
}

/// The application's own account of the time that it was told to take, over all pods that clients call, asked from
/// inside them, past any proxy; `None` if there is none to speak of.
fn cost_stats(
    lab: &Lab,
    variant: &Variant,
    pods: &Pods,
    point: &LoadPoint,
) -> Result<Option<AppStats>, String> {
    let takes_time = variant.inject.is_some_and(|inject| match inject {
        Inject::DelayNs(_)
        | Inject::DelayShareOfP50(_)
        | Inject::DelaySome { .. }
        | Inject::BurnSteps(_) => true,
        Inject::HoldBytes(_) | Inject::CapPerS(_) | Inject::LeakBytes(_) => false,
    });
    if !takes_time || point.protocol == Protocol::Tcp {
        return Ok(None);
    }
    let (port, _) = apps::target(&lab.setup, point);
    let mut sum = AppStats::default();
    for pod in pods.called_pods() {
        let stats = apps::stats(&pod.namespace, port)?;
        sum.delay_asked_ns = stats.delay_asked_ns;
        sum.delayed += stats.delayed;
        sum.delay_sum_ns += stats.delay_sum_ns;
        sum.burned += stats.burned;
        sum.burned_ns += stats.burned_ns;
    }
    Ok(Some(sum))
}

fn injected(before: Option<AppStats>, after: Option<AppStats>) -> Option<InjectedTime> {
    let (before, after) = (before?, after?);
    let time = |count: fn(&AppStats) -> u64, sum_ns: fn(&AppStats) -> u64| {
        let counted = count(&after).checked_sub(count(&before))?;
        let passed_ns = sum_ns(&after).saturating_sub(sum_ns(&before));
        (counted > 0).then(|| (counted, passed_ns as f64 / counted as f64))
    };
    let spun = time(|s| s.delayed, |s| s.delay_sum_ns);
    let (count, mean_ns) = spun.or_else(|| time(|s| s.burned, |s| s.burned_ns))?;
    Some(InjectedTime {
        asked_ns: after.delay_asked_ns,
        count,
        mean_ns,
    })
}
