//! Scales the services' work until the baseline saturates at a given rate: short bursts before the first round.

use meshtax_model::experiment::{Design, Experiment, LoadPoint, Regime, Role, Variant};
use meshtax_model::failure::VariantFailureReason;
use meshtax_model::saturation::{Burst, ChosenWork, Saturation, steps_per_request};
use meshtax_model::topology::Topology;
use meshtax_model::trial::{ComponentRole, LoadResult, ResourceSample};

use crate::error::{PilotError, Stop};
use crate::interruption::check;
use crate::pilot::Pilot;

/// The most bursts. Each starts the baseline anew.
const BURSTS: u32 = 7;

/// Bursts that are made however long they take: one without added work, and one with it.
const BURSTS_MIN: u32 = 2;

/// No further burst begins when those before it took this part of the run: what is left is for the trials.
const PART_OF_RUN: u64 = 4;

/// The rate counts as reached within this, as a share: a burst of one or two seconds resolves no less.
const CLOSE_ENOUGH: f64 = 0.02;

/// Steps per request of the second burst: milliseconds on today's processors.
const FIRST_STEPS: f64 = 1e6;

/// By how much the work grows or shrinks at most from burst to burst.
const LARGEST_CHANGE: f64 = 10.0;

/// Whether the services' work is still to be found.
pub(crate) fn is_needed(experiment: &Experiment) -> bool {
    let asked = experiment.saturation.as_ref();
    asked.is_some_and(Saturation::is_open)
}

fn closed_loop(experiment: &Experiment) -> Result<&LoadPoint, PilotError> {
    let mut points = experiment.load_points.iter();
    points
        .find(|point| point.load == Regime::Saturated)
        .ok_or(PilotError::NoClosedLoop)
}

/// Rejects, before anything is started, an experiment whose work cannot be scaled.
pub(crate) fn validate(experiment: &Experiment) -> Result<(), PilotError> {
    if is_needed(experiment) {
        closed_loop(experiment)?;
    }
    Ok(())
}

impl Pilot<'_> {
    /// Finds the work with which the baseline saturates at the rate asked for, and records how.
    pub(crate) fn scale_work(&mut self, experiment: &mut Experiment) -> Result<(), Stop> {
        let Some(mut saturation) = experiment.saturation.clone() else {
            return Ok(());
        };
        let point = closed_loop(experiment)?.clone();
        let Some(baseline) = experiment.by_role(Role::Baseline).cloned() else {
            return Err(PilotError::NotProven(VariantFailureReason::NotStarted).into());
        };
        let bursts = short(experiment, &point);
        let shape = equal_unless_given(&experiment.topology);
        let mut factor = Some(0.0);
        let begin_ns = self.clock.now_ns();
        let at_most_ns = run_ns(experiment) / PART_OF_RUN;
        for number in 1..=BURSTS {
            let Some(by) = factor else { break };
            let took_ns = self.clock.now_ns().saturating_sub(begin_ns);
            if number > BURSTS_MIN && took_ns >= at_most_ns {
                break;
            }
            let topology = scaled(&shape, by);
            let burst = self.burst(number, (&topology, &bursts), &baseline, &point)?;
            saturation.bursts.push(burst);
            factor = next_factor(&saturation, steps_per_request(&shape));
        }
        let chosen = saturation.reached().map_or(0.0, |b| b.steps_per_request);
        experiment.topology = scaled(&shape, chosen / steps_per_request(&shape));
        self.engine
            .set_work(&experiment.topology, &experiment.design)?;
        saturation.services = chosen_work(&experiment.topology, &saturation);
        experiment.saturation = Some(saturation);
        Ok(())
    }

    /// Measures the baseline with this work.
    fn burst(
        &mut self,
        number: u32,
        (topology, design): (&Topology, &Design),
        baseline: &Variant,
        point: &LoadPoint,
    ) -> Result<Burst, Stop> {
        check(self.interrupted)?;
        self.engine.set_work(topology, design)?;
        let started = self.start(baseline);
        let measured = started.and_then(|()| self.trial(number, baseline, point));
        let (load, sample) = self.ended(measured)?;
        check(self.interrupted)?;
        if load.succeeded == 0 || load.window_ns == 0 {
            return Err(PilotError::NoResponse.into());
        }
        Ok(Burst {
            steps_per_request: steps_per_request(topology),
            rate_per_s: load.succeeded as f64 / (load.window_ns as f64 / 1e9),
            app_cpu_ns: sample.and_then(|sample| app_cpu_ns(&sample, &load)),
        })
    }
}

/// The time limit, or the first block if that takes longer: it is measured regardless of the time, and a study's own
/// trials have no other limit.
fn run_ns(experiment: &Experiment) -> u64 {
    experiment.design.time_limit_ns.max(experiment.block_ns())
}

/// The design with trials of at most a few seconds: a study's own may take an hour.
fn short(experiment: &Experiment, point: &LoadPoint) -> Design {
    const AT_LEAST_S: f64 = 2.0;
    /// Responses to each connection.
    const TURNS: f64 = 4.0;
    let mut design = experiment.design.clone();
    design.requests_per_trial = None;
    if let Some(saturation) = &experiment.saturation {
        let turns_s = TURNS * f64::from(experiment.connections(point)) / saturation.rate_per_s;
        // The cast saturates.
        let enough_ns = (turns_s.max(AT_LEAST_S) * 1e9) as u64;
        design.trial_ns = design.trial_ns.min(enough_ns);
    }
    design
}

/// CPU of all services' processes per request of a client.
fn app_cpu_ns(sample: &ResourceSample, load: &LoadResult) -> Option<f64> {
    let components = sample.components.iter();
    let of_app = components.filter(|c| c.role == ComponentRole::App);
    let sum: u64 = of_app.map(|component| component.cpu_ns).sum();
    (sum > 0 && load.completed > 0).then(|| sum as f64 / load.completed as f64)
}

/// The proportions of the services' work: their own, or the same for each request to any service.
fn equal_unless_given(topology: &Topology) -> Topology {
    let mut shape = topology.clone();
    if steps_per_request(topology) <= 0.0 {
        for service in &mut shape.services {
            service.work.burn_steps = 1;
        }
    }
    shape
}

fn scaled(shape: &Topology, factor: f64) -> Topology {
    let mut topology = shape.clone();
    for service in &mut topology.services {
        // The cast saturates.
        service.work.burn_steps = (service.work.burn_steps as f64 * factor).round() as u64;
    }
    topology
}

/// The factor of the next burst; `None`: the rate is reached, or the application is slower without any added work.
///
/// Where one resource is saturated, the time per request grows linearly with the work.
fn next_factor(saturation: &Saturation, shape_steps: f64) -> Option<f64> {
    let (fast, last) = (saturation.bursts.first()?, saturation.bursts.last()?);
    let aim = saturation.rate_per_s;
    if fast.rate_per_s <= aim || (last.rate_per_s / aim - 1.0).abs() <= CLOSE_ENOUGH {
        return None;
    }
    if saturation.bursts.len() == 1 {
        return Some(FIRST_STEPS / shape_steps);
    }
    let added_s = 1.0 / last.rate_per_s - 1.0 / fast.rate_per_s;
    let wanted_s = 1.0 / aim - 1.0 / fast.rate_per_s;
    let change = match added_s > 0.0 {
        true => (wanted_s / added_s).clamp(1.0 / LARGEST_CHANGE, LARGEST_CHANGE),
        false => LARGEST_CHANGE,
    };
    Some(last.steps_per_request / shape_steps * change)
}

/// What each service got. All steps are the same work, so that the added CPU divides in proportion to them.
fn chosen_work(topology: &Topology, saturation: &Saturation) -> Vec<ChosenWork> {
    let cpu = |burst: Option<&Burst>| burst.and_then(|burst| burst.app_cpu_ns);
    let (fast, reached) = (saturation.bursts.first(), saturation.reached());
    let steps = reached.map_or(0.0, |burst| burst.steps_per_request);
    let added_ns = cpu(reached)
        .zip(cpu(fast))
        .map(|(with, without)| (with - without).max(0.0));
    let per_step_ns = added_ns.filter(|_| steps > 0.0).map(|ns| ns / steps);
    let services = topology.services.iter();
    let of_service = |service: &meshtax_model::topology::Service| ChosenWork {
        service: service.name.clone(),
        burn_steps: service.work.burn_steps,
        added_cpu_ns: per_step_ns.map(|ns| ns * service.work.burn_steps as f64),
    };
    services.map(of_service).collect()
}
