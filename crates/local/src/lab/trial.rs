//! One trial: a load, what it cost, and what contradicts the evidence.

use std::io;
use std::time::Instant;

use meshtax_agent::{
    AgentReply, Entrance, MeasureError, Measurement, Meter, Process, Watched, measure, nft,
    speed_probe_on,
};
use meshtax_control_plane::{Changed, DiscoveryServer};
use meshtax_dataplane::{Fault, GATEWAY_PORT, GATEWAY_TLS_PORT, Redirect};
use meshtax_evidence::{AppCounters, LoadPath, contradictions, lost_connections, read_traffic};
use meshtax_model::experiment::{Ingress, LoadPoint, Variant, VariantId};
use meshtax_model::failure::{ComponentEnding, ComponentFailure, LostEvidence, TrialFailure};
use meshtax_model::plan::PlannedTrial;
use meshtax_model::trial::{Changes, ComponentRole, ResourceSample, TrialOutcome};
use meshtax_observe::{Limited, listening_sockets};

use super::component::TrafficSource;
use super::control::Control;
use super::instance::Instance;
use super::load::{load, start_generators, warm_up};
use super::round::Round;
use super::setup::Lab;
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
    let deployed = instance.deployed(lab);
    let subject = instance.subject(&deployed, &lab.setup.topology);
    let demand = lab.setup.demand();
    let path = LoadPath::of(&demand, point);
    let read_counters = || AppCounters::read(&subject, path, &instance.variant);
    let counters_before = read_counters().map_err(load_failed)?;
    let listening_before = listening(lab, instance);
    let traffic_before = read_traffic(&subject, path);
    let Offered {
        measured,
        speed_probe_ns,
        changes,
    } = offer(round, lab, instance, trial, point)?;

    let mut component_failures = instance.ended();
    let counters = read_counters().unwrap_or_default();
    if listening(lab, instance) != listening_before {
        component_failures.push(own_program_restarted(&trial.variant));
    }
    let mut sample = measured.sample(&trial.id, speed_probe_ns);
    sample.changes = changes;
    let mut lost_evidence = lost_in_path(instance, point, &measured, &sample);
    let traffic = traffic_before.and_then(|before| {
        let after = read_traffic(&subject, path)?;
        Ok(after.lost_since(&before, &measured.load, &measured.parts))
    });
    lost_evidence.extend(traffic.unwrap_or_else(|unreadable| vec![unreadable]));
    lost_evidence.extend(lost_changes(&instance.variant, changes));
    let outcome = TrialOutcome::Measured {
        lost_evidence,
        proxy_connections: measured.proxy_connections,
        load: Box::new(measured.load),
        injected: counters.injected_since(&counters_before),
        replicas: counters.replicas_since(&counters_before),
        component_failures,
    };
    Ok((outcome, sample))
}

/// A trial's load, with what frames it.
struct Offered {
    measured: Measurement,
    /// The core's speed just before and just after the load.
    speed_probe_ns: [u64; 2],
    changes: Option<Changes>,
}

/// Offers the load of a trial, and meters it.
fn offer(
    round: &Round,
    lab: &Lab,
    instance: &Instance,
    trial: &PlannedTrial,
    point: &LoadPoint,
) -> Result<Offered, TrialFailure> {
    let core = probed_core(&lab.setup.nodes);
    let probe_before = speed_probe_on(core);
    let timing = lab.setup.timing.at(point);
    let spec = load(lab, instance, point, timing, trial.arrival_seed).map_err(load_failed)?;
    let changing = Changing::begin(instance);
    let watched = watched(lab, round, &trial.variant, point);
    let bypass = Bypass::begin(lab, instance).map_err(load_failed)?;
    let measured = start_generators(lab, &trial.variant, point)
        .map_err(MeasureError::from)
        .and_then(|clients| measure(&spec, clients, &watched, &mut |_| {}));
    drop(bypass);
    let changes = changing.map(|changing| changing.end(instance));
    let speed_probe_ns = [probe_before, speed_probe_on(core)];
    let measured = measured.map_err(|error| {
        let components = instance.ended();
        match components.is_empty() {
            true => error.into(),
            false => TrialFailure::ComponentsEnded { components },
        }
    })?;
    Ok(Offered {
        measured,
        speed_probe_ns,
        changes,
    })
}

/// What contradicts, in a load and what it cost, that all of it passed the proxies.
fn lost_in_path(
    instance: &Instance,
    point: &LoadPoint,
    measured: &Measurement,
    sample: &ResourceSample,
) -> Vec<LostEvidence> {
    let mut lost = contradictions(
        point,
        &sample.components,
        &measured.load,
        measured.proxy_connections,
    );
    // Connections that end need not be open just now.
    let has_first_proxy =
        point.ingress.is_some() || instance.blueprint.contract.caller_port.is_some();
    if has_first_proxy && point.requests_per_connection.is_none() {
        let entered = &measured.entered_connections;
        lost.extend(lost_connections(entered, &measured.parts));
    }
    lost
}

fn own_program_restarted(variant: &VariantId) -> ComponentFailure {
    ComponentFailure {
        component: format!("{variant}/own-program"),
        role: Some(ComponentRole::App),
        ending: ComponentEnding::Restarted,
        last_output: Vec::new(),
    }
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
                meter: Meter::Process(component.pid()),
                name: component.name.clone(),
                role: match is_other || !passed {
                    true => ComponentRole::Idle,
                    false => component.role,
                },
                node: component.node,
                idles_for: (is_other && is_proxy).then(|| id.clone()),
                limited: component.limited(),
            });
        }
    }
    processes.push(Process {
        meter: Meter::Process(std::process::id()),
        name: "harness".into(),
        role: ComponentRole::Harness,
        node: 0,
        idles_for: None,
        limited: Limited::default(),
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

/// What accepts the connections of a load: the proxy in each client's pod, or the gateway.
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
    fault: Fault,
}

impl<'a> Bypass<'a> {
    /// `None`: the variant has no such fault.
    fn begin(lab: &'a Lab, instance: &'a Instance) -> io::Result<Option<Self>> {
        let Some(fault) = instance.blueprint.emulation.fault else {
            return Ok(None);
        };
        let this = Self {
            lab,
            instance,
            fault,
        };
        this.in_each_pod(|_| nft::lift_redirection())?;
        Ok(Some(this))
    }

    fn in_each_pod(&self, change: impl Fn(&Redirect) -> io::Result<()> + Sync) -> io::Result<()> {
        let pods = &self.lab.pods[&self.instance.variant.id];
        let site = &self.instance.site;
        let blueprints = self.instance.blueprint.emulation.pods.iter();
        let mut blueprints = blueprints.filter(|pod| self.fault.lifts_redirection(site, &pod.pod));
        blueprints.try_for_each(|blueprint| match pods.all().get(&blueprint.pod) {
            Some(namespace) => namespace.run(|| change(&blueprint.redirect)),
            None => Ok(()),
        })
    }
}

impl Drop for Bypass<'_> {
    fn drop(&mut self) {
        // If it fails, the probes at the round's end do.
        let _ = self.in_each_pod(nft::redirect);
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
