//! Scaling laws: a straight line through runs that differ in one number, and its predictions for other numbers.
//!
//! Ordinary least squares over the runs, with Student's t at two degrees of freedom less than there are runs (Draper
//! and Smith 1998, chapters 1 and 3). A run is one point: the variation of its own trials is not used, so that the
//! intervals include the variation between runs, and a nonlinear relation appears as width.
//!
//! An interval from residuals holds for what the line was fitted to. There is none outside the measured range, for a call
//! graph, and where a curve fits the runs better than the line does.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{
    Analysis, Estimate, LoadOutcome, Metric, Upkeep, VariantAnalysis, Verdict,
};
use meshtax_model::environment::NodeRole;
use meshtax_model::experiment::{LoadPoint, Role, VariantId};
use meshtax_model::scaling::{
    Grows, Law, Line, NoInterval, NoLine, Over, Prediction, ScaledProgram, Scaling,
};
use meshtax_model::topology::Topology;
use meshtax_model::trial::ComponentRole;

use crate::family::ALPHA;
use crate::interval::{CONFIDENCE, Inference, Spread, Student, mean};

/// The minimum number of runs for a line with an interval.
pub const RUNS_MIN: usize = 3;

/// A run, with the number in which it differs from the others.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<'a> {
    /// Pods, nodes, hops, requests per second, clients, endpoints, or endpoint changes per second.
    pub at: u32,
    /// The run's analysis.
    pub analysis: &'a Analysis,
}

/// The number or call graph to predict for.
#[derive(Clone, Copy, Debug)]
pub enum ScalingTarget<'a> {
    /// A number.
    Number(u32),
    /// A call graph, by laws over hops.
    Topology(&'a Topology),
}

impl ScalingTarget<'_> {
    /// The equivalent number: the chain with as many sequential calls, calls in total,
    /// or pods, as this call graph has.
    fn at(self, grows: Grows) -> f64 {
        match (self, grows) {
            (Self::Number(number), _) => f64::from(number),
            // Plus the client's own call.
            (Self::Topology(topology), Grows::AddedMeanLatency) => {
                1.0 + topology.calls_in_sequence()
            }
            (Self::Topology(topology), Grows::AddedCpu) => 1.0 + topology.calls_per_request(),
            (Self::Topology(topology), _) => f64::from(topology.pods()),
        }
    }
}

/// Runs that differ in one number, and the requested prediction.
#[derive(Clone, Copy, Debug)]
pub struct Growth<'a> {
    /// The number that is varied.
    pub over: Over,
    /// From the smallest number to the largest.
    pub runs: &'a [Scaled<'a>],
    /// The requested prediction.
    pub asked: Option<ScalingTarget<'a>>,
    /// A run at exactly that number, which is excluded from the fit.
    pub check: Option<&'a Analysis>,
}

/// The laws of these runs.
#[must_use]
pub fn scaling(growth: &Growth<'_>) -> Scaling {
    let growing: &[Grows] = match growth.over {
        Over::Pods => &[Grows::ProxyMemory, Grows::NodePrograms, Grows::IdleCpu],
        Over::Nodes => &[Grows::ProxyMemory, Grows::NodesMemory, Grows::IdleCpu],
        Over::Hops => &[Grows::AddedMeanLatency, Grows::AddedCpu, Grows::ProxyMemory],
        Over::Rates => &[Grows::ProxyCpu],
        Over::Clients => &[Grows::ServerProxyMemory, Grows::ServerProxyCpu],
        Over::Endpoints => &[
            Grows::ProxyMemory,
            Grows::AddedCpu,
            Grows::IdleCpu,
            Grows::PushTime,
            Grows::AddedStart,
        ],
        Over::Churn => &[Grows::ProxyCpu],
    };
    let mut laws = Vec::new();
    for variant in variants(growth.runs) {
        for grows in growing {
            laws.push(growth.law(&variant, *grows));
        }
    }
    let all = || {
        let fitted = growth.runs.iter().map(|run| run.analysis);
        fitted.chain(growth.check)
    };
    Scaling {
        format_version: FORMAT_VERSION,
        over: growth.over,
        confidence: CONFIDENCE,
        topology: match growth.asked {
            Some(ScalingTarget::Topology(topology)) => topology.name.clone(),
            Some(ScalingTarget::Number(_)) | None => None,
        },
        runs: all().map(|analysis| analysis.run.id.clone()).collect(),
        programs: programs(all()),
        laws,
    }
}

/// The builds that these runs' candidates used, each once: a run on another day may have found another.
fn programs<'a>(runs: impl Iterator<Item = &'a Analysis>) -> Vec<ScaledProgram> {
    let mut all: Vec<ScaledProgram> = Vec::new();
    for analysis in runs {
        let is_candidate = |id| {
            let variant = analysis.experiment.variant(id);
            variant.is_some_and(|v| v.role == Role::Candidate)
        };
        let artifacts = analysis.environment.artifacts.iter();
        for artifact in artifacts.filter(|a| a.variants.iter().any(is_candidate)) {
            let program = ScaledProgram {
                program: artifact.program.clone(),
                version: artifact.version.clone(),
                sha256: artifact.sha256.clone(),
            };
            if !all.contains(&program) {
                all.push(program);
            }
        }
    }
    all
}

/// The candidates of the first run.
fn variants(runs: &[Scaled<'_>]) -> Vec<VariantId> {
    let first = runs.first().map(|run| &run.analysis.experiment.variants);
    let candidates = first
        .into_iter()
        .flatten()
        .filter(|v| v.role == Role::Candidate);
    candidates.map(|variant| variant.id.clone()).collect()
}

impl Growth<'_> {
    fn law(&self, variant: &VariantId, grows: Grows) -> Law {
        let value = |analysis| measured(analysis, variant, grows);
        let points: Vec<(u32, f64)> = self
            .runs
            .iter()
            .filter_map(|run| Some((run.at, value(run.analysis)?)))
            .collect();
        let mut line = line(&points);
        if let Some((fit, asked)) = line.as_mut().zip(self.asked) {
            let at = asked.at(grows);
            let is_graph = matches!(asked, ScalingTarget::Topology(_));
            let mut predicted = predict(fit, &points, at, is_graph, self.check.and_then(value));
            predicted.by_one = self.by_one(variant, grows, at);
            fit.line.predicted = Some(predicted);
        }
        let line = line.map(|fit| fit.line);
        let reason = match (&line, points.len()) {
            (Some(_), _) => None,
            (None, count) if count < RUNS_MIN => Some(NoLine::FewRuns {
                runs: count as u32,
                of: self.runs.len() as u32,
                needed: RUNS_MIN as u32,
            }),
            (None, _) => Some(NoLine::OneNumber),
        };
        Law {
            variant: variant.clone(),
            grows,
            points,
            line,
            reason,
        }
    }

    /// The effect of a pair, multiplied as requested: for numbers other than hops, one is not the unit of an effect.
    fn by_one(&self, variant: &VariantId, grows: Grows, times: f64) -> Option<f64> {
        if self.over != Over::Hops {
            return None;
        }
        let one = self.runs.iter().find(|run| run.at == 1)?;
        let effect = added(one.analysis, variant, effect_of(grows)?)?;
        Some(effect.value * times)
    }
}

fn measured(analysis: &Analysis, variant: &VariantId, grows: Grows) -> Option<f64> {
    let found = || analysis.variants.iter().find(|v| v.variant == *variant);
    let upkeep = |of: fn(&Upkeep) -> Option<Estimate>| Some(of(&found()?.upkeep)?.value);
    match grows {
        Grows::ProxyMemory => held_by(found()?, is_proxy),
        Grows::ServerProxyMemory => held_by(found()?, is_server_proxy),
        Grows::NodePrograms => {
            // On the servers' node the application's file pages are included.
            let mut nodes = found()?.nodes.iter();
            let client = nodes.find(|held| held.role == NodeRole::Client)?;
            Some(client.file_bytes as f64)
        }
        Grows::NodesMemory => {
            let programs = programs_of_proxies(found()?)?;
            Some(held_by(found()?, is_proxy)? + programs)
        }
        Grows::IdleCpu => upkeep(|s| s.idle_cores),
        Grows::ProxyCpu => used_by(analysis, found()?, is_proxy),
        Grows::ServerProxyCpu => used_by(analysis, found()?, is_server_proxy),
        Grows::PushTime => upkeep(|s| s.push_ns),
        Grows::AddedStart => upkeep(|s| s.added_start_ns),
        Grows::AddedMeanLatency | Grows::AddedCpu => {
            Some(added(analysis, variant, effect_of(grows)?)?.value)
        }
    }
}

fn is_proxy(role: ComponentRole) -> bool {
    matches!(
        role,
        ComponentRole::ClientProxy | ComponentRole::ServerProxy | ComponentRole::Waypoint
    )
}

fn is_server_proxy(role: ComponentRole) -> bool {
    role == ComponentRole::ServerProxy
}

/// In steady state; `None` if the memory of a role is unknown.
fn held_by(found: &VariantAnalysis, counts: fn(ComponentRole) -> bool) -> Option<f64> {
    let held = found.memory.iter().filter(|memory| counts(memory.role));
    let bytes: Vec<f64> = held.map(|memory| memory.settled_bytes as f64).collect();
    (!bytes.is_empty()).then(|| bytes.iter().sum())
}

/// One copy per node of each program that its proxies run; `None` if one is unknown.
fn programs_of_proxies(found: &VariantAnalysis) -> Option<f64> {
    let each = found.nodes.iter().map(|held| held.proxy_file_bytes);
    let bytes: Vec<u64> = each.collect::<Option<_>>()?;
    (!bytes.is_empty()).then(|| bytes.iter().sum::<u64>() as f64)
}

/// At the first open loop, as a share of one core.
fn used_by(
    analysis: &Analysis,
    found: &VariantAnalysis,
    counts: fn(ComponentRole) -> bool,
) -> Option<f64> {
    let steady = first_steady(analysis)?;
    let point = found.points.iter().find(|p| p.load_point == steady.id)?;
    if point.outcome != LoadOutcome::Carried {
        return None;
    }
    let used = point.cpu.as_ref()?.components.iter();
    let ns_per_request: Vec<f64> = used
        .filter(|component| counts(component.role))
        .map(|component| component.cpu_per_request_ns)
        .collect();
    let sum: f64 = ns_per_request.iter().sum();
    (!ns_per_request.is_empty()).then_some(sum * point.achieved_per_s / 1e9)
}

fn first_steady(analysis: &Analysis) -> Option<&LoadPoint> {
    let mut points = analysis.experiment.load_points.iter();
    points.find(|point| point.is_steady())
}

/// At the first open loop; `None` also for a load that was not carried.
fn added(analysis: &Analysis, variant: &VariantId, metric: Metric) -> Option<Estimate> {
    let point = first_steady(analysis)?;
    let effect = analysis.effect(variant, &point.id, metric)?;
    effect
        .difference
        .filter(|_| !matches!(effect.verdict, Verdict::Overloaded(_)))
}

/// The metric whose effect is the figure.
fn effect_of(grows: Grows) -> Option<Metric> {
    match grows {
        Grows::AddedMeanLatency => Some(Metric::ResponseMean),
        Grows::AddedCpu => Some(Metric::CpuPerRequest),
        _ => None,
    }
}

/// A line with what its predictions need.
struct Fit {
    line: Line,
    count: f64,
    x_mean: f64,
    /// Sum of the squared distances of the numbers from their mean.
    squares: f64,
    /// Of a run around the line.
    variance: f64,
}

impl Fit {
    fn value(&self, at: f64) -> f64 {
        self.line.fixed.value + self.line.each.value * at
    }

    /// Whether the points are known not to be on a line.
    fn is_curved(&self) -> bool {
        self.line.lack_of_fit.is_some_and(|p| p < ALPHA)
    }

    /// The variance of the line's value at a number, as a share of [`Self::variance`].
    fn away(&self, at: f64) -> f64 {
        1.0 / self.count + (at - self.x_mean).powi(2) / self.squares
    }

    fn estimate(&self, value: f64, share: f64) -> Estimate {
        let student = Student {
            standard_error: (self.variance * share).sqrt(),
            degrees_of_freedom: self.count - 2.0,
        };
        Estimate {
            value,
            interval: student.interval(value, CONFIDENCE),
        }
    }
}

/// Least squares; `None` with too few points, or with all at one number.
fn line(points: &[(u32, f64)]) -> Option<Fit> {
    if points.len() < RUNS_MIN {
        return None;
    }
    let count = points.len() as f64;
    let xs: Vec<f64> = points.iter().map(|(at, _)| f64::from(*at)).collect();
    let ys: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
    let (x_mean, y_mean) = (mean(&xs)?, mean(&ys)?);
    let squares: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    if squares <= 0.0 {
        return None;
    }
    let both = || xs.iter().zip(&ys);
    let products: f64 = both().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let slope = products / squares;
    let fixed = y_mean - slope * x_mean;
    let left: Vec<f64> = both().map(|(x, y)| y - fixed - slope * x).collect();
    let plain = |value| Estimate {
        value,
        interval: None,
    };
    let mut fit = Fit {
        line: Line {
            fixed: plain(fixed),
            each: plain(slope),
            lack_of_fit: lack_of_fit(&xs, &left),
            predicted: None,
        },
        count,
        x_mean,
        squares,
        variance: left.iter().map(|rest| rest.powi(2)).sum::<f64>() / (count - 2.0),
    };
    // Points on a curve have no slope, and outside the measured range nothing is known of the line.
    if !fit.is_curved() {
        fit.line.each = fit.estimate(slope, 1.0 / squares);
        if xs.contains(&0.0) {
            fit.line.fixed = fit.estimate(fixed, fit.away(0.0));
        }
    }
    Some(fit)
}

/// The p-value of a quadratic term beside the line: with one run per number nothing else separates curvature from the
/// scatter of runs. `left`: the residuals of the line. `None` with fewer than four runs or three different numbers.
fn lack_of_fit(xs: &[f64], left: &[f64]) -> Option<f64> {
    let degrees_of_freedom = xs.len() as f64 - 3.0;
    if degrees_of_freedom < 1.0 {
        return None;
    }
    let x_mean = mean(xs)?;
    let largest = xs.iter().map(|x| (x - x_mean).abs()).fold(0.0, f64::max);
    let us: Vec<f64> = xs.iter().map(|x| (x - x_mean) / largest).collect();
    let power = |n: i32| us.iter().map(|u| u.powi(n)).sum::<f64>();
    // The square, without what a line explains of it.
    let slope = power(3) / power(2);
    let middle = power(2) / xs.len() as f64;
    let curve: Vec<f64> = us.iter().map(|u| u * u - middle - slope * u).collect();
    let size: f64 = curve.iter().map(|c| c * c).sum();
    if size.is_nan() || size <= 1e-9 {
        return None;
    }
    let bend = curve
        .iter()
        .zip(left)
        .map(|(c, rest)| c * rest)
        .sum::<f64>()
        / size;
    let rest = curve
        .iter()
        .zip(left)
        .map(|(c, rest)| (rest - bend * c).powi(2));
    let variance = rest.sum::<f64>() / degrees_of_freedom;
    let student = Student {
        standard_error: (variance / size).sqrt(),
        degrees_of_freedom,
    };
    Inference::new(bend, Some(Spread::Student(student))).p_value()
}

fn predict(
    fit: &Fit,
    points: &[(u32, f64)],
    at: f64,
    is_graph: bool,
    measured: Option<f64>,
) -> Prediction {
    let numbers = || points.iter().map(|(at, _)| f64::from(*at));
    let (low, high) = numbers().fold((f64::INFINITY, 0.0), |(low, high), x| {
        (x.min(low), x.max(high))
    });
    let is_outside = at < low || at > high;
    let no_interval = if is_graph {
        Some(NoInterval::CallGraph)
    } else if is_outside {
        Some(NoInterval::OutsideRange)
    } else {
        fit.is_curved().then_some(NoInterval::NotALine)
    };
    let mut value = fit.estimate(fit.value(at), 1.0 + fit.away(at));
    value.interval = value.interval.filter(|_| no_interval.is_none());
    let within =
        |measured: f64| Some((value.interval?.low..=value.interval?.high).contains(&measured));
    Prediction {
        at,
        value,
        no_interval,
        held_out_error: (no_interval == Some(NoInterval::OutsideRange))
            .then(|| held_out_error(points, at > high))
            .flatten(),
        by_one: None,
        measured,
        holds: measured.and_then(within),
    }
}

/// The outermost run, relative to what the others predict for it.
fn held_out_error(points: &[(u32, f64)], largest: bool) -> Option<f64> {
    let by_number =
        |(_, one): &(usize, &(u32, f64)), (_, other): &(usize, &(u32, f64))| one.0.cmp(&other.0);
    let all = points.iter().enumerate();
    let (index, (at, value)) = match largest {
        true => all.max_by(by_number),
        false => all.min_by(by_number),
    }?;
    let mut others = points.to_vec();
    others.remove(index);
    let error = value / line(&others)?.value(f64::from(*at)) - 1.0;
    error.is_finite().then_some(error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::SeedableRng as _;

    use super::*;

    fn predicted(points: &[(u32, f64)], at: f64, measured: Option<f64>) -> Prediction {
        predict(&line(points).unwrap(), points, at, false, measured)
    }

    #[test]
    fn exact_line_is_recovered() {
        let points = [(1, 12.0), (10, 30.0), (50, 110.0), (90, 190.0)];
        let fit = line(&points).unwrap().line;
        assert!((fit.fixed.value - 10.0).abs() < 1e-9 && (fit.each.value - 2.0).abs() < 1e-9);
        let inside = predicted(&points, 70.0, Some(151.0));
        assert!((inside.value.value - 150.0).abs() < 1e-9);
        assert_eq!(inside.holds, Some(false), "an exact line leaves no room");
    }

    #[test]
    fn prediction_outside_the_measured_range_has_the_error_of_a_held_out_run_and_no_interval() {
        let points = [(1, 12.0), (10, 30.0), (50, 110.0), (90, 209.0)];
        let outside = predicted(&points, 150.0, Some(400.0));
        assert_eq!(outside.no_interval, Some(NoInterval::OutsideRange));
        assert_eq!((outside.value.interval, outside.holds), (None, None));
        assert!((outside.held_out_error.unwrap() - 0.1).abs() < 1e-9);
        let inside = predicted(&points, 60.0, None);
        assert!(inside.value.interval.is_some() && inside.held_out_error.is_none());
        let graph = predict(&line(&points).unwrap(), &points, 60.0, true, None);
        assert_eq!(graph.no_interval, Some(NoInterval::CallGraph));
        assert_eq!(graph.value.interval, None);
    }

    #[test]
    fn fixed_part_has_an_interval_only_if_zero_was_measured() {
        let from = |first: u32| {
            let points = [(first, 12.0), (10, 30.5), (50, 109.0), (90, 190.0)];
            line(&points).unwrap().line
        };
        assert!(from(1).fixed.interval.is_none() && from(1).each.interval.is_some());
        assert!(from(0).fixed.interval.is_some());
    }

    #[test]
    fn curved_points_are_not_a_line() {
        let curve = [(1, 1.0), (10, 101.0), (50, 2500.0), (90, 8100.0)];
        let inside = predicted(&curve, 70.0, None);
        assert_eq!(inside.no_interval, Some(NoInterval::NotALine));
        let bent = line(&curve).unwrap().line;
        assert!(bent.lack_of_fit < Some(0.01));
        assert_eq!(bent.each.interval, None, "a curve has no slope");
        let straight = [(1, 1.0), (10, 11.0), (50, 49.0), (90, 90.5)];
        assert!(line(&straight).unwrap().line.lack_of_fit > Some(0.1));
        let three = [(1, 1.0), (10, 100.0), (50, 2500.0)];
        assert_eq!(line(&three).unwrap().line.lack_of_fit, None);
    }

    #[test]
    fn too_few_or_equal_points_give_no_line() {
        assert!(line(&[(1, 1.0), (2, 2.0)]).is_none());
        assert!(line(&[(5, 1.0), (5, 2.0), (5, 3.0)]).is_none());
    }

    /// A page that calls two services in sequence, the second with two pods; that one calls a third for half of
    /// the requests.
    #[test]
    fn call_graph_is_converted_to_hops() {
        use meshtax_model::topology::{Call, Service, Topology, Work, WorkStep};
        let call = |service: &str, share| Call {
            service: service.to_owned(),
            share,
        };
        let service = |name: &str, replicas, steps| Service {
            replicas,
            entry_point: name == "page",
            work: Work {
                steps,
                ..Work::default()
            },
            ..Service::new(name)
        };
        let calls = |calls| vec![WorkStep::Calls(calls)];
        let shop = Topology {
            name: Some("shop".to_owned()),
            services: vec![
                service("page", 3, calls(vec![call("a", 1.0), call("b", 1.0)])),
                service("a", 1, Vec::new()),
                service("b", 2, calls(vec![call("c", 0.5)])),
                service("c", 1, Vec::new()),
            ],
        };
        let asked = ScalingTarget::Topology(&shop);
        let at = |grows| asked.at(grows);
        // Of two parallel calls, the longer chain counts.
        assert!((at(Grows::AddedMeanLatency) - 2.5).abs() < 1e-12);
        assert!((at(Grows::AddedCpu) - 3.5).abs() < 1e-12);
        assert!((at(Grows::ProxyMemory) - 7.0).abs() < 1e-12);
    }

    /// For points with normal noise around a line, the interval contains the next one with the nominal probability, and one
    /// line in twenty seems to be a curve. (Conditional on a line that does not, coverage is slightly higher.)
    #[test]
    fn prediction_intervals_reach_nominal_coverage() {
        let mut random = Pcg64::seed_from_u64(11);
        let mut normal = || {
            // The sum of twelve uniform values, minus their mean (Irwin and Hall).
            let draw = |_| (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            (0..12).map(draw).sum::<f64>() - 6.0
        };
        let (mut held, mut of, mut curved) = (0, 0, 0);
        for _ in 0..4_000 {
            let mut at = |n: u32| 20.0 + 15.0 * f64::from(n) + 3.0 * normal();
            let points = [1, 10, 50, 90].map(|n| (n, at(n)));
            let next = at(70);
            match predicted(&points, 70.0, Some(next)).holds {
                Some(holds) => (held, of) = (held + u32::from(holds), of + 1),
                None => curved += 1,
            }
        }
        let share = f64::from(held) / f64::from(of);
        assert!((0.935..0.97).contains(&share), "{share}");
        assert!((140..260).contains(&curved), "{curved}");
    }

    proptest! {
        #[test]
        fn arbitrary_points_do_not_panic(points in proptest::collection::vec((0_u32..1000, any::<f64>()), 0..8), ask in proptest::option::of(any::<f64>())) {
            if let Some((fit, at)) = line(&points).zip(ask) {
                let _ = predict(&fit, &points, at, false, points.first().map(|p| p.1));
            }
        }
    }
}
