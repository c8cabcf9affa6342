//! A round's pods: created together, verified one by one, removed together.

use std::collections::BTreeMap;
use std::thread;

use meshtax_agent::Captured;
use meshtax_agent::remote::{AgentError, RemoteCapture};
use meshtax_dataplane::Fault;
use meshtax_engine::{RoundEnd, VariantStart};
use meshtax_evidence::{Captures, conclude, failed_again, judge, run_active, run_again};
use meshtax_model::experiment::{Placement, Variant, VariantId};
use meshtax_model::failure::VariantFailureReason;

use crate::error::ClusterError;
use crate::nodes;
use crate::objects::AGENT;
use crate::pods::RunningPod;
use crate::running::{Round, Running};
use crate::trial::warm_up;
use crate::variant::{Instance, StartError, VariantPlan};

impl Running {
    /// Creates the pods of all variants, then starts and verifies one after the other, since they share the nodes.
    pub(crate) fn start_round(
        &mut self,
        number: u32,
        variants: &[Variant],
    ) -> Result<Vec<VariantStart>, ClusterError> {
        // Every variant needs all nodes: without one of them, nothing more can be measured.
        nodes::check(&self.cluster, &self.nodes, &self.common.settings)?;
        if let Some(error) = self.reach_for_round()? {
            let error = StartError::Cluster(error);
            return Ok(variants
                .iter()
                .map(|variant| not_started(&variant.id, &error))
                .collect());
        }
        let mut starts = Vec::new();
        let mut round = Round::default();
        let created: Vec<_> = variants
            .iter()
            .map(|variant| (variant, self.create(variant)))
            .collect();
        // Containers that start slow down what is verified beside them.
        let running: Vec<_> = created
            .into_iter()
            .map(|(variant, created)| (variant, created.and_then(|()| self.await_pods(variant))))
            .collect();
        for (variant, pods) in running {
            let started = match pods.and_then(|pods| self.start(variant, number, pods)) {
                Err(error) if error.may_pass() => self.start_anew(variant, number),
                started => started,
            };
            match started {
                Ok((start, instance)) => {
                    match instance {
                        Some(instance) => {
                            round.instances.insert(variant.id.clone(), instance);
                        }
                        None => self.give_up(&variant.id)?,
                    }
                    starts.push(start);
                }
                Err(StartError::Cluster(lost @ ClusterError::Unreachable { .. })) => {
                    return Err(lost);
                }
                Err(error) => {
                    self.give_up(&variant.id)?;
                    starts.push(not_started(&variant.id, &error));
                }
            }
        }
        self.had_round |= number > 0;
        self.round = round;
        self.record_grants();
        Ok(starts)
    }

    /// Agents that cannot be reached just now cost a round. Before the first, they are reached again until they are, or are
    /// given up: it decides which variants the run has.
    fn reach_for_round(&mut self) -> Result<Option<ClusterError>, ClusterError> {
        loop {
            match self.reach_agents()? {
                Some(_) if !self.had_round => {}
                reached => return Ok(reached),
            }
        }
    }

    /// Removes the pods of a variant that is not up, once it is on record how its containers ended.
    fn give_up(&mut self, variant: &VariantId) -> Result<(), ClusterError> {
        self.record_endings();
        match self.plans.get(variant) {
            Some(plan) => self.cluster.remove_pods(&plan.namespace),
            None => Ok(()),
        }
    }

    fn create(&self, variant: &Variant) -> Result<(), StartError> {
        let plan = self.plan(variant)?;
        for object in plan.objects(&self.common) {
            self.cluster.apply(&object)?;
        }
        Ok(())
    }

    fn await_pods(&self, variant: &Variant) -> Result<BTreeMap<String, RunningPod>, StartError> {
        let plan = self.plan(variant)?;
        Ok(plan.await_pods(&self.cluster, &self.common)?)
    }

    /// Starts a variant with other pods than those of which one was lost.
    fn start_anew(
        &mut self,
        variant: &Variant,
        number: u32,
    ) -> Result<(VariantStart, Option<Instance>), StartError> {
        self.give_up(&variant.id)?;
        self.create(variant)?;
        let pods = self.await_pods(variant)?;
        self.start(variant, number, pods)
    }

    /// No instance: it failed its probes.
    fn start(
        &self,
        variant: &Variant,
        number: u32,
        pods: BTreeMap<String, RunningPod>,
    ) -> Result<(VariantStart, Option<Instance>), StartError> {
        let plan = self.plan(variant)?;
        let ground = self.ground();
        let capture = self.capture(plan, &pods);
        let services = &self.services[&variant.id];
        let mesh = &self.authorities.mesh;
        let mut instance = Instance::configure(plan, &ground, pods, services, (mesh, number))?;
        instance.served_ns = {
            let deployed = self.deployed(&instance);
            instance.first_response(&deployed, &ground)
        };
        let (evidence, failure) = {
            let deployed = self.deployed(&instance);
            let subject = instance.subject(&deployed, &ground);
            let active = run_active(&subject);
            let mut captures = captures(capture.and_then(RemoteCapture::finish));
            if let Err(lost @ AgentError::CaptureIncomplete { .. }) = captures {
                // Other pods, whose packets are captured from the start, may prove what these cannot.
                return Err(self.agents.of_nodes[0].failed(lost).into());
            }
            if instance.blueprint.emulation.fault == Some(Fault::NoCapture) {
                captures = Ok(Captures::default());
            }
            let ended = instance.ended(&self.cluster);
            let nothing = Captures::default();
            let seen = captures.as_ref().unwrap_or(&nothing);
            let evidence = conclude(&subject, number, active, seen);
            let failure = match &captures {
                Ok(_) => judge(&subject, &evidence, ended),
                Err(error) => Some(VariantFailureReason::StartFailed {
                    detail: format!("no packets could be captured between the nodes: {error}"),
                }),
            };
            (evidence, failure)
        };
        let is_up = failure.is_none();
        if is_up {
            warm_up(&instance, &ground);
        }
        let start = VariantStart {
            variant: variant.id.clone(),
            evidence: Some(evidence),
            failure,
        };
        Ok((start, is_up.then_some(instance)))
    }

    /// On the clients' node: what goes to another node passes its uplink. If all are on one, in the pods of services: there,
    /// addresses of services have become those of pods.
    fn capture(
        &self,
        plan: &VariantPlan,
        pods: &BTreeMap<String, RunningPod>,
    ) -> Result<RemoteCapture, AgentError> {
        let addresses = pods.values().map(|pod| pod.address).collect();
        let within = match self.experiment.placement {
            Placement::TwoNodes => Vec::new(),
            Placement::OneNode => {
                let of_services = plan.pods.iter().filter(|of| of.service.is_some());
                let running = of_services.filter_map(|of| pods.get(&of.name));
                running.filter_map(|pod| pod.container_id(AGENT)).collect()
            }
        };
        self.agents.of_nodes[0].agent.capture(addresses, within)
    }

    /// Verifies all variants again, if asked to, and removes their pods.
    pub(crate) fn end_round(&mut self, prove: bool) -> Result<RoundEnd, ClusterError> {
        let round = std::mem::take(&mut self.round);
        let mut end = RoundEnd::default();
        for instance in round.instances.values() {
            let ended = instance.ended(&self.cluster);
            if !prove || !ended.is_empty() {
                end.ended.extend(ended);
                continue;
            }
            let Some(plan) = self.plans.get(&instance.variant.id) else {
                continue;
            };
            let capture = self.capture(plan, &instance.pods);
            let ground = self.ground();
            let deployed = self.deployed(instance);
            let subject = instance.subject(&deployed, &ground);
            let active = run_again(&subject);
            let captured = captures(capture.and_then(RemoteCapture::finish));
            let captured = captured.map_err(std::io::Error::other);
            let failed = failed_again(&subject, active, captured.as_ref());
            if !failed.is_empty() {
                end.lost.push((instance.variant.id.clone(), failed));
            }
        }
        self.record_endings();
        let cluster = &self.cluster;
        let removed: Vec<Result<(), ClusterError>> = thread::scope(|scope| {
            let namespaces = self.plans.values().map(|plan| plan.namespace.as_str());
            let removing: Vec<_> = namespaces
                .map(|namespace| scope.spawn(move || cluster.remove_pods(namespace)))
                .collect();
            let joined = removing.into_iter().map(thread::ScopedJoinHandle::join);
            joined.filter_map(Result::ok).collect()
        });
        removed.into_iter().collect::<Result<(), _>>()?;
        Ok(end)
    }
}

fn captures(captured: Result<Captured, AgentError>) -> Result<Captures, AgentError> {
    captured.map(|between_nodes| Captures {
        between_nodes,
        ..Captures::default()
    })
}

pub(crate) fn not_started(variant: &VariantId, error: &StartError) -> VariantStart {
    let fix = match error {
        StartError::Cluster(error) => format!("\n  fix: {}", error.fix()),
        _ => String::new(),
    };
    VariantStart {
        variant: variant.clone(),
        evidence: None,
        failure: Some(VariantFailureReason::StartFailed {
            detail: format!("{error}{fix}"),
        }),
    }
}
