//! One trial: a load, what it cost, and what contradicts the evidence.

use std::io;
use std::time::Instant;

use meshtax_agent::{
    AgentReply, Entrance, MeasureError, Measurement, Process, Watched, measure, speed_probe_on,
};
use meshtax_app::AppStats;
use meshtax_control_plane::{Changed, DiscoveryServer};
use meshtax_dataplane::{Fault, GATEWAY_PORT, GATEWAY_TLS_PORT, Redirect};
use meshtax_evidence::{LoadPath, StatsError, app_stats, lost_connections, read_traffic};
use meshtax_model::experiment::{Ingress, Inject, LoadPoint, Protocol, Variant, VariantId};
use meshtax_model::failure::{ComponentEnding, ComponentFailure, LostEvidence, TrialFailure};
use meshtax_model::plan::PlannedTrial;
use meshtax_model::trial::{
    Changes, ComponentRole, InjectedTime, LoadResult, ProxyConnections, ResourceSample,
    TrialOutcome,
};
use meshtax_observe::listening_sockets;

use super::component::TrafficSource;
use super::control::Control;
use super::instance::Instance;
use super::load::{load, start_generator, warm_up};
use super::nft;
use super::round::Round;
use super::setup::{Lab, Pods};
use crate::placement::{cores_in_use, probed_core};

/// Measures one trial while all other instances idle.
pub(crate) fn measure_trial(
    round: &mut Round,
    lab: &Lab,
    trial: &PlannedTrial,
    point: &LoadPoint,
) -> AgentReply {
    let restarted = match point.cold {
        true => round.restart(lab, &trial.variant),
        false => Ok(()),
    };
    if let Err(error) = restarted {
        return failed(load_failed(error));
    }
    let Some(instance) = round.instances.get(&trial.variant) else {
        return failed(TrialFailure::VariantNotRunning);
    };
    let result = try_measure(round, lab, instance, trial, point);
    // Also after a failure: endpoints of an idle variant do not change.
    discovery_servers(instance).for_each(|proxy| proxy.set_changing(false));
    if point.cold {
        // A generator that ends here takes nothing from this trial; the next ones are merely less warm, which is counted.
        let _ = warm_up(lab, instance);
    }
    match result {
        Ok((outcome, sample)) => AgentReply::Measured {
            outcome,
            sample: Some(Box::new(sample)),
        },
        Err(failure) => failed(failure),
    }
}

fn failed(failure: TrialFailure) -> AgentReply {
    AgentReply::Measured {
        outcome: TrialOutcome::Failed { failure },
        sample: None,
    }
}

fn try_measure(
    round: &Round,
    lab: &Lab,
    instance: &Instance,
    trial: &PlannedTrial,
    point: &LoadPoint,
) -> Result<(TrialOutcome, ResourceSample), TrialFailure> {
    let components = instance.ended();
    if !components.is_empty() {
        return Err(TrialFailure::ComponentsEnded { components });
    }
    let counters = Counters {
        lab,
        pods: &lab.pods[&trial.variant],
        point,
    };
    let injected_before = counters.injected(&instance.variant).map_err(load_failed)?;
    let replicas_before = counters.replicas();
    let listening_before = listening(lab, instance);
    let core = probed_core(&lab.setup.nodes);
    let probe_before = speed_probe_on(core);
    let timing = lab.setup.timing(point);
    let spec = load(lab, instance, point, timing, trial.arrival_seed).map_err(load_failed)?;
    let open = spec.connections;
    let deployed = instance.deployed(lab);
    let subject = instance.subject(&deployed, &lab.setup.topology);
    let path = counters.path();
    let traffic_before = read_traffic(&subject, path);
    let changing = Changing::begin(instance);
    let watched = watched(lab, round, &trial.variant, point);
    let bypass = Bypass::begin(lab, instance).map_err(load_failed)?;
    let measured = start_generator(lab, &trial.variant, point)
        .map_err(MeasureError::from)
        .and_then(|started| measure(spec, started, &watched, &mut |_| {}));
    drop(bypass);
    let changes = changing.map(|changing| changing.end(instance));
    let probe_after = speed_probe_on(core);

    let mut component_failures = instance.ended();
    let measured = measured.map_err(|e| match component_failures.is_empty() {
        true => load_failed(e),
        false => TrialFailure::ComponentsEnded {
            components: component_failures.clone(),
        },
    })?;
    let injected_after = counters.injected(&instance.variant).ok().flatten();
    let replicas = since(replicas_before, counters.replicas());
    if listening(lab, instance) != listening_before {
        component_failures.push(ComponentFailure {
            component: format!("{}/own-program", trial.variant),
            ending: ComponentEnding::Restarted,
            last_output: Vec::new(),
        });
    }
    let mut sample = measured.sample(&trial.id, [probe_before, probe_after]);
    sample.changes = changes;
    let Measurement {
        load,
        proxy_connections,
        entered_connections,
        ..
    } = measured;
    let mut lost_evidence = lost_evidence(point, &sample, &load, proxy_connections);
    // Connections that end need not be open just now.
    let has_first_proxy =
        point.ingress.is_some() || instance.blueprint.contract.caller_port.is_some();
    if has_first_proxy && point.requests_per_connection.is_none() {
        lost_evidence.extend(lost_connections(entered_connections, open));
    }
    let traffic = traffic_before.and_then(|before| {
        let after = read_traffic(&subject, path)?;
        Ok(after.lost_since(&before, &load))
    });
    lost_evidence.extend(traffic.unwrap_or_else(|unreadable| vec![unreadable]));
    lost_evidence.extend(lost_changes(&instance.variant, changes));
    let outcome = TrialOutcome::Measured {
        lost_evidence,
        proxy_connections,
        load: Box::new(load),
        injected: injected(injected_before, injected_after),
        replicas,
        component_failures,
    };
    Ok((outcome, sample))
}

fn load_failed(cause: impl ToString) -> TrialFailure {
    let detail = cause.to_string();
    TrialFailure::LoadFailed { detail }
}

/// Every process that is up, with its role in a trial of this variant with requests from this source: processes that
/// such requests do not pass are idle.
fn watched(lab: &Lab, round: &Round, active: &VariantId, point: &LoadPoint) -> Watched {
    let source = TrafficSource::at(point);
    let mut processes = Vec::new();
    for (id, instance) in &round.instances {
        for component in &instance.components {
            let is_other = id != active;
            let passed = component.source.is_none_or(|only| only == source);
            let is_proxy = component.role != ComponentRole::App;
            processes.push(Process {
                pid: component.pid(),
                name: component.name.clone(),
                role: match is_other || !passed {
                    true => ComponentRole::Idle,
                    false => component.role,
                },
                node: component.node,
                idles_for: (is_other && is_proxy).then(|| id.clone()),
            });
        }
    }
    processes.push(Process {
        pid: std::process::id(),
        name: "harness".into(),
        role: ComponentRole::Harness,
        node: 0,
        idles_for: None,
    });
    let instance = round.instances.get(active);
    // Any process in a server's pod sees its sockets and links. The proxy need not be in the pod.
    let apps = instance.into_iter().flat_map(|i| &i.components);
    let apps = apps.filter(|c| c.is_first_app);
    Watched {
        cores: cores_in_use(&lab.setup.nodes),
        processes,
        servers: apps.map(super::component::Component::pid).collect(),
        proxy_port: instance.and_then(|i| i.blueprint.contract.proxy_port),
        entrance: instance.and_then(|instance| entrance(instance, point)),
    }
}

/// What accepts the connections of a load: the proxy in the client's pod, or the gateway.
fn entrance(instance: &Instance, point: &LoadPoint) -> Option<Entrance> {
    let Some(ingress) = point.ingress else {
        let port = instance.blueprint.contract.caller_port?;
        return Some(Entrance { pid: None, port });
    };
    let components = &instance.components;
    let gateway = components
        .iter()
        .find(|c| c.role == ComponentRole::Gateway)?;
    Some(Entrance {
        pid: Some(gateway.pid()),
        port: match ingress {
            Ingress::Plaintext => GATEWAY_PORT,
            Ingress::Tls => GATEWAY_TLS_PORT,
        },
    })
}

/// Nothing is redirected while this lives: a fault of the variant, for tests.
struct Bypass<'a> {
    lab: &'a Lab,
    instance: &'a Instance,
}

impl<'a> Bypass<'a> {
    /// `None`: the variant has no such fault.
    fn begin(lab: &'a Lab, instance: &'a Instance) -> io::Result<Option<Self>> {
        match instance.blueprint.emulation.fault {
            None | Some(Fault::NoCapture) => return Ok(None),
            Some(Fault::LoadBypassesProxies | Fault::LoadBypassesBusyProxies) => {}
        }
        let this = Self { lab, instance };
        this.in_each_pod(|_| nft::lift())?;
        Ok(Some(this))
    }

    fn in_each_pod(&self, change: impl Fn(&Redirect) -> io::Result<()> + Sync) -> io::Result<()> {
        let pods = &self.lab.pods[&self.instance.variant.id];
        let mut blueprints = self.instance.blueprint.emulation.pods.iter();
        blueprints.try_for_each(|blueprint| match pods.all().get(&blueprint.pod) {
            Some(namespace) => namespace.run(|| change(&blueprint.redirect)),
            None => Ok(()),
        })
    }
}

impl Drop for Bypass<'_> {
    fn drop(&mut self) {
        // If it fails, the probes at the round's end do.
        let _ = self.in_each_pod(nft::restore);
    }
}

/// The sockets on which the user's own program listens: its supervisor may have restarted it. meshtax's application
/// cannot be restarted unseen.
fn listening(lab: &Lab, instance: &Instance) -> Vec<Vec<u64>> {
    /// Reading them takes milliseconds for each pod.
    const PODS: usize = 8;
    let Some(program) = lab.setup.topology.program() else {
        return Vec::new();
    };
    let apps = instance.components.iter().filter(|c| c.is_first_app);
    apps.take(PODS)
        .map(|app| listening_sockets(app.pid(), program.port).unwrap_or_default())
        .collect()
}

/// Contradictions between a trial's own readings and the evidence: the proxies did not work, or were not
/// connected to each other.
fn lost_evidence(
    point: &LoadPoint,
    sample: &ResourceSample,
    load: &LoadResult,
    proxy_connections: Option<ProxyConnections>,
) -> Vec<LostEvidence> {
    /// No proxy forwards a request in less CPU.
    const AT_WORK_NS: u64 = 300;
    let mut lost = Vec::new();
    for role in [
        ComponentRole::ClientProxy,
        ComponentRole::ServerProxy,
        ComponentRole::Waypoint,
        ComponentRole::Gateway,
    ] {
        let of_role: Vec<u64> = sample
            .components
            .iter()
            .filter(|component| component.role == role)
            .map(|component| component.cpu_ns)
            .collect();
        let used_ns: u64 = of_role.iter().sum();
        if !of_role.is_empty() && used_ns < load.completed.saturating_mul(AT_WORK_NS) {
            lost.push(LostEvidence::IdleProxy { role });
        }
    }
    // Connections that end need not be open just now.
    let has_none = proxy_connections.is_some_and(|connections| connections.after == 0);
    if point.requests_per_connection.is_none() && load.completed > 0 && has_none {
        lost.push(LostEvidence::NoProxyConnection);
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
        instance.variant.options.extra_endpoints?.changes_per_s?;
        let before = discovery_servers(instance)
            .map(DiscoveryServer::changed)
            .collect();
        discovery_servers(instance).for_each(|proxy| proxy.set_changing(true));
        Some(Self {
            began: Instant::now(),
            before,
        })
    }

    fn end(self, instance: &Instance) -> Changes {
        discovery_servers(instance).for_each(|proxy| proxy.set_changing(false));
        let during_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let passed: Vec<Changed> = discovery_servers(instance)
            .map(DiscoveryServer::changed)
            .zip(self.before)
            .map(|(now, then)| Changed {
                sent: now.sent.saturating_sub(then.sent),
                held: now.held.saturating_sub(then.held),
            })
            .collect();
        let fewest = |of: fn(&Changed) -> u64| passed.iter().map(of).min().unwrap_or_default();
        Changes {
            during_ns,
            sent: fewest(|changed| changed.sent),
            held: fewest(|changed| changed.held),
        }
    }
}

fn discovery_servers(instance: &Instance) -> impl Iterator<Item = &DiscoveryServer> {
    instance.control.iter().filter_map(Control::discovery)
}

/// Fewer endpoint changes than the variant is configured for.
fn lost_changes(variant: &Variant, changes: Option<Changes>) -> Option<LostEvidence> {
    /// Of the configured changes; the rest may be in flight when the trial ends.
    const SHARE: f64 = 0.9;
    /// As many may be in flight, however few there are.
    const UNDERWAY: f64 = 2.0;
    let configured_per_s = variant.options.extra_endpoints?.changes_per_s?;
    let changes = changes?;
    let expected = configured_per_s * changes.during_ns as f64 / 1e9;
    let enough = (changes.held as f64 + UNDERWAY) >= expected * SHARE;
    (!enough).then_some(LostEvidence::FewEndpointChanges {
        expected,
        sent: changes.sent,
        acknowledged: changes.held,
    })
}

/// Reads the applications' counters, past any proxy.
struct Counters<'a> {
    lab: &'a Lab,
    pods: &'a Pods,
    point: &'a LoadPoint,
}

impl Counters<'_> {
    fn port(&self) -> u16 {
        self.lab.setup.demand().target(self.point).0
    }

    /// Where the load enters, and what counts it.
    fn path(&self) -> LoadPath<'_> {
        LoadPath {
            point: self.point,
            port: self.port(),
            apps_count: self.point.protocol != Protocol::Tcp
                && self.lab.setup.topology.program().is_none(),
        }
    }

    /// The requests that each replica has received; `None` with one replica, and where the program does not count.
    fn replicas(&self) -> Option<Vec<u64>> {
        let pods = &self.pods.layout().entry_point().pods;
        let counts = self.point.protocol != Protocol::Tcp;
        if pods.len() < 2 || !counts || self.lab.setup.topology.program().is_some() {
            return None;
        }
        let stats = |pod| app_stats(self.pods.namespace(pod), self.port()).ok();
        pods.iter().map(|pod| Some(stats(pod)?.requests)).collect()
    }

    /// The time that an injected cost has taken, over all pods that clients call; `None`: no time is injected.
    fn injected(&self, variant: &Variant) -> Result<Option<AppStats>, StatsError> {
        let takes_time = variant.inject.is_some_and(|inject| match inject {
            Inject::DelayNs(_)
            | Inject::DelayShareOfP50(_)
            | Inject::DelaySome { .. }
            | Inject::BurnSteps(_) => true,
            Inject::HoldBytes(_) | Inject::CapPerS(_) | Inject::LeakBytes(_) => false,
        });
        if !takes_time || self.point.protocol == Protocol::Tcp {
            return Ok(None);
        }
        let mut sum = AppStats::default();
        let entry_points = self.pods.layout().entry_points();
        for pod in entry_points.flat_map(|service| &service.pods) {
            let stats = app_stats(self.pods.namespace(pod), self.port())?;
            sum.configured_delay_ns = stats.configured_delay_ns;
            sum.delayed += stats.delayed;
            sum.delay_sum_ns += stats.delay_sum_ns;
            sum.burned += stats.burned;
            sum.burned_ns += stats.burned_ns;
        }
        Ok(Some(sum))
    }
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
        asked_ns: after.configured_delay_ns,
        count,
        mean_ns,
    })
}
