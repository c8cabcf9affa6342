//! A round's processes: started together, verified one by one, all ended together.

use std::collections::BTreeMap;
use std::fs;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use meshtax_agent::Capture;
use meshtax_dataplane::Fault;
use meshtax_evidence::{Active, Captures, conclude, failed_again, judge, run_active, run_again};
use meshtax_model::catalogue;
use meshtax_model::evidence::FailedProbe;
use meshtax_model::experiment::{Variant, VariantId};
use meshtax_model::failure::{ComponentFailure, VariantFailureReason};

use super::component::Component;
use super::error::StartError;
use super::instance::Instance;
use super::load::warm_up;
use super::setup::{Lab, Pods};
use crate::protocol::StartReport;

/// All variants that are up.
#[derive(Debug)]
pub(crate) struct Round {
    /// Counted from 1; 0 is the pilot's.
    number: u32,
    pub(crate) instances: BTreeMap<VariantId, Instance>,
}

impl Round {
    /// Starts all variants, then verifies them.
    pub(crate) fn start(lab: &Lab, round: u32, variants: &[Variant]) -> (Self, Vec<StartReport>) {
        let between_nodes = lab.network.listen().map(Capture::start);
        let at_pods: Vec<PodCaptures> = variants
            .iter()
            .map(|variant| PodCaptures::start(variant, &lab.pods[&variant.id]))
            .collect();
        let started: Vec<Result<Instance, StartError>> = variants
            .iter()
            .map(|variant| Instance::start(lab, variant, round))
            .collect();
        let verified = verified(lab, started);
        let mut between_nodes = between_nodes.and_then(Capture::finish);
        let mut instances = BTreeMap::new();
        let mut reports = Vec::new();
        for ((variant, verified), at_pods) in variants.iter().zip(verified).zip(at_pods) {
            let (instance, active) = match verified {
                Ok(verified) => verified,
                Err(error) => {
                    reports.push(not_started(&variant.id, error.to_string()));
                    continue;
                }
            };
            let mut report = match &mut between_nodes {
                Ok(captured) => {
                    let captures = at_pods.finish(std::mem::take(captured));
                    let nothing = Captures::default();
                    let seen = match instance.blueprint.emulation.fault {
                        Some(Fault::NoCapture) => &nothing,
                        _ => &captures,
                    };
                    let report = report(lab, &instance, round, active, seen);
                    *captured = captures.between_nodes;
                    report
                }
                Err(e) => {
                    let detail = format!("no packets could be captured between the nodes: {e}");
                    not_started(&variant.id, detail)
                }
            };
            // A variant that failed does not stay up: it would only take CPU from the others.
            if report.failure.is_none() {
                match warm_up(lab, &instance) {
                    Ok(()) => {
                        instances.insert(variant.id.clone(), instance);
                    }
                    Err(error) => {
                        let detail = error.to_string();
                        report.failure = Some(VariantFailureReason::StartFailed { detail });
                    }
                }
            }
            reports.push(report);
        }
        (
            Self {
                number: round,
                instances,
            },
            reports,
        )
    }

    /// Replaces a variant's processes by new ones. Its evidence is of the old ones, with the same configuration, and is
    /// repeated at the end of the round.
    pub(crate) fn restart(&mut self, lab: &Lab, variant: &VariantId) -> Result<(), StartError> {
        let Some(old) = self.instances.remove(variant) else {
            return Ok(());
        };
        let variant = old.variant.clone();
        // Its ports must be free.
        drop(old);
        let new = Instance::start(lab, &variant, self.number)?;
        self.instances.insert(variant.id, new);
        Ok(())
    }

    /// The processes that have ended.
    pub(crate) fn ended(&self) -> Vec<ComponentFailure> {
        self.instances.values().flat_map(Instance::ended).collect()
    }

    /// Verifies all variants once more. Returns those with probes that fail now. A variant with an ended process is
    /// skipped: that is reported anyway.
    pub(crate) fn lost(&self, lab: &Lab) -> Vec<(VariantId, Vec<FailedProbe>)> {
        let capture = lab.network.listen().map(Capture::start);
        let running = self.instances.values().filter(|i| i.ended().is_empty());
        let checked: Vec<(&Instance, Active)> = running
            .map(|instance| {
                let deployed = instance.deployed(lab);
                let subject = instance.subject(&deployed, &lab.setup.topology);
                (instance, run_again(&subject))
            })
            .collect();
        let captured = capture.and_then(Capture::finish);
        let captures = captured.map(|between_nodes| Captures {
            between_nodes,
            ..Captures::default()
        });
        let failed = checked.into_iter().map(|(instance, active)| {
            let deployed = instance.deployed(lab);
            let subject = instance.subject(&deployed, &lab.setup.topology);
            let failed = failed_again(&subject, active, captures.as_ref());
            (instance.variant.id.clone(), failed)
        });
        failed.filter(|(_, failed)| !failed.is_empty()).collect()
    }
}

/// Runs the active probes of variants that respond one by one, since they share the cores. The others spend most of their
/// time waiting for responses that never come, and do so side by side.
fn verified(
    lab: &Lab,
    started: Vec<Result<Instance, StartError>>,
) -> Vec<Result<(Instance, Active), StartError>> {
    let turn = Mutex::new(());
    let in_turn = |instance: Instance| {
        let has_responded = instance.served_ns.is_some();
        let _turn = has_responded.then(|| turn.lock().unwrap_or_else(PoisonError::into_inner));
        with_active(lab, instance)
    };
    thread::scope(|scope| {
        let begin = |instance: Result<Instance, StartError>| {
            instance.map(|instance| scope.spawn(|| in_turn(instance)))
        };
        let verifying: Vec<_> = started.into_iter().map(begin).collect();
        let end = |thread: ScopedJoinHandle<'_, (Instance, Active)>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        verifying.into_iter().map(|v| v.map(end)).collect()
    })
}

fn with_active(lab: &Lab, instance: Instance) -> (Instance, Active) {
    let active = {
        let deployed = instance.deployed(lab);
        run_active(&instance.subject(&deployed, &lab.setup.topology))
    };
    (instance, active)
}

/// Captures on the links of pods whose other hop does not leave their node.
struct PodCaptures {
    waypoint: Option<Capture>,
    gateway: Option<Capture>,
}

impl PodCaptures {
    /// What cannot be captured is missing for its probe.
    fn start(variant: &Variant, pods: &Pods) -> Self {
        let site = pods.layout();
        let plane = catalogue::find(&variant.data_plane);
        let waypoint = plane.filter(|plane| plane.has_waypoint());
        let waypoint = waypoint.map(|_| &site.waypoint);
        let gateway = site.gateway.as_ref().map(|gateway| &gateway.pod);
        Self {
            waypoint: waypoint.and_then(|pod| pods.namespace(pod).capture().ok()),
            gateway: gateway.and_then(|pod| pods.namespace(pod).capture().ok()),
        }
    }

    fn finish(self, between_nodes: meshtax_agent::Captured) -> Captures {
        let finish = |capture: Option<Capture>| capture.and_then(|c| c.finish().ok());
        Captures {
            between_nodes,
            at_waypoint: finish(self.waypoint),
            at_gateway: finish(self.gateway),
        }
    }
}

fn not_started(variant: &VariantId, detail: String) -> StartReport {
    StartReport {
        variant: variant.clone(),
        evidence: None,
        failure: Some(VariantFailureReason::StartFailed { detail }),
    }
}

fn report(
    lab: &Lab,
    instance: &Instance,
    round: u32,
    active: Active,
    captures: &Captures,
) -> StartReport {
    let ended = instance.ended();
    let deployed = instance.deployed(lab);
    let subject = instance.subject(&deployed, &lab.setup.topology);
    let evidence = conclude(&subject, round, active, captures);
    let failure = judge(&subject, &evidence, ended);
    StartReport {
        variant: instance.variant.id.clone(),
        evidence: Some(evidence),
        failure,
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let components = self.instances.values().flat_map(|i| &i.components);
        components.for_each(Component::kill);
        for pod in self.instances.values().flat_map(|i| i.site.pods()) {
            let _ = fs::remove_dir_all(&pod.directory);
        }
    }
}
