//! Scaling laws: a straight line through runs that differ in one number, and what it says of another number.
//!
//! Ordinary least squares over the runs, with Student's t at two degrees of freedom less than there are runs (Draper
//! and Smith 1998, chapters 1 and 3). A run is one point: what its own trials scatter by is not used, so that the
//! intervals hold whatever runs differ by, and a curve that is no line shows as width.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{
    Analysis, Estimate, Interval, Metric, Node, Upkeep, VariantAnalysis,
};
use meshtax_model::experiment::{LoadPoint, Role, VariantId};
use meshtax_model::graph::Graph;
use meshtax_model::scaling::{Grows, Law, Line, Over, Prediction, Scaling};
use meshtax_model::trial::ComponentRole;

use crate::interval::{CONFIDENCE, Student, mean};

/// With fewer there is no line with an interval.
pub const RUNS_MIN: usize = 3;

/// A run, with the number in which it differs from the others.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<'a> {
    /// Pods, nodes, hops, requests per second, endpoints, or changes of endpoints in a second.
    pub at: u32,
    /// What it says.
    pub analysis: &'a Analysis,
}

/// What the laws are to predict.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// For so many.
    Number(u32),
    /// For services that call each other, by laws over hops.
    Graph {
        /// Who calls whom.
        graph: &'a Graph,
        /// Pods of the service that clients call.
        replicas: u32,
    },
}

impl Asked<'_> {
    /// How many of what there is more of: a chain of so many has as many calls one behind the other, as many in all,
    /// or as many pods, as this has.
    fn at(self, grows: Grows) -> f64 {
        match (self, grows) {
            (Self::Number(number), _) => f64::from(number),
            // The client's own call besides.
            (Self::Graph { graph, .. }, Grows::AddedMeanLatency) => 1.0 + graph.calls_in_sequence(),
            (Self::Graph { graph, .. }, Grows::AddedCpu) => 1.0 + graph.calls_per_request(),
            (Self::Graph { graph, replicas }, _) => {
                f64::from(replicas.saturating_add(graph.pods()))
            }
        }
    }
}

/// Runs that differ in one number, and what is asked of them.
#[derive(Clone, Copy, Debug)]
pub struct Growth<'a> {
    /// What there is more of.
    pub over: Over,
    /// From the smallest number to the largest.
    pub runs: &'a [Scaled<'a>],
    /// What is to be predicted.
    pub asked: Option<Asked<'a>>,
    /// A run of just that, which is left out of the fit.
    pub check: Option<&'a Analysis>,
}

/// The laws of these runs.
#[must_use]
pub fn scaling(growth: &Growth<'_>) -> Scaling {
    let told: &[Grows] = match growth.over {
        Over::Pods => &[Grows::ProxyMemory, Grows::NodePrograms, Grows::IdleCpu],
        Over::Nodes => &[Grows::ProxyMemory, Grows::NodesMemory, Grows::IdleCpu],
        Over::Hops => &[Grows::AddedMeanLatency, Grows::AddedCpu, Grows::ProxyMemory],
        Over::Rates => &[Grows::ProxyCpu],
        Over::Known => &[
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
        for grows in told {
            laws.push(growth.law(&variant, *grows));
        }
    }
    let all = growth.runs.iter().map(|run| run.analysis);
    let all = all.chain(growth.check);
    Scaling {
        format_version: FORMAT_VERSION,
        over: growth.over,
        confidence: CONFIDENCE,
        topology: match growth.asked {
            Some(Asked::Graph { graph, .. }) => Some(graph.name.clone()),
            Some(Asked::Number(_)) | None => None,
        },
        runs: all.map(|analysis| analysis.run.id.clone()).collect(),
        laws,
    }
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
        let ask = self.asked.map(|asked| asked.at(grows));
        let mut line = line(&points, ask, self.check.and_then(value));
        if let Some(predicted) = line.as_mut().and_then(|line| line.predicted.as_mut()) {
            predicted.by_one = self.by_one(variant, grows, predicted.at);
        }
        let reason = match (&line, points.len()) {
            (Some(_), _) => None,
            (None, count) if count < RUNS_MIN => Some(format!(
                "{count} of {} runs have a figure, and a line takes {RUNS_MIN}",
                self.runs.len()
            )),
            (None, _) => Some("all runs are of one number".to_owned()),
        };
        Law {
            variant: variant.clone(),
            grows,
            points,
            line,
            reason,
        }
    }

    /// What a pair adds, as often as is asked for: of other numbers than hops, one is not the unit of an effect.
    fn by_one(&self, variant: &VariantId, grows: Grows, times: f64) -> Option<Estimate> {
        if self.over != Over::Hops {
            return None;
        }
        let one = self.runs.iter().find(|run| run.at == 1)?;
        let effect = added(one.analysis, variant, effect_of(grows)?)?;
        Some(Estimate {
            value: effect.value * times,
            interval: effect.interval.map(|interval| Interval {
                low: interval.low * times,
                high: interval.high * times,
            }),
        })
    }
}

fn measured(analysis: &Analysis, variant: &VariantId, grows: Grows) -> Option<f64> {
    let found = || analysis.variants.iter().find(|v| v.variant == *variant);
    let upkeep = |of: fn(&Upkeep) -> Option<Estimate>| Some(of(&found()?.upkeep)?.value);
    match grows {
        Grows::ProxyMemory => held_by_proxies(found()?),
        Grows::NodePrograms => {
            // On the servers' node the application's are among them.
            let mut nodes = found()?.nodes.iter();
            let client = nodes.find(|held| held.node == Node::Client)?;
            Some(client.file_bytes as f64)
        }
        Grows::NodesMemory => {
            let programs = programs_of_proxies(found()?)?;
            Some(held_by_proxies(found()?)? + programs)
        }
        Grows::IdleCpu => upkeep(|s| s.idle_cores),
        Grows::ProxyCpu => used_by_proxies(analysis, found()?),
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

/// Once settled; `None` if that of a role is not known.
fn held_by_proxies(found: &VariantAnalysis) -> Option<f64> {
    let held = found.memory.iter().filter(|memory| is_proxy(memory.role));
    let bytes: Vec<f64> = held.map(|memory| memory.settled_bytes as f64).collect();
    (!bytes.is_empty()).then(|| bytes.iter().sum())
}

/// On each node one copy of each program that its proxies run; `None` if one is not known.
fn programs_of_proxies(found: &VariantAnalysis) -> Option<f64> {
    let each = found.nodes.iter().map(|held| held.proxy_file_bytes);
    let bytes: Vec<u64> = each.collect::<Option<_>>()?;
    (!bytes.is_empty()).then(|| bytes.iter().sum::<u64>() as f64)
}

/// At the first open loop, as a share of one core.
fn used_by_proxies(analysis: &Analysis, found: &VariantAnalysis) -> Option<f64> {
    let steady = first_steady(analysis)?;
    let point = found.points.iter().find(|p| p.load_point == steady.id)?;
    let used = point.cpu.as_ref()?.components.iter();
    let ns_per_request: Vec<f64> = used
        .filter(|component| is_proxy(component.role))
        .map(|component| component.cpu_per_request_ns)
        .collect();
    let sum: f64 = ns_per_request.iter().sum();
    (!ns_per_request.is_empty()).then_some(sum * point.achieved_per_s / 1e9)
}

fn first_steady(analysis: &Analysis) -> Option<&LoadPoint> {
    let mut points = analysis.experiment.load_points.iter();
    points.find(|point| point.is_steady())
}

/// At the first open loop.
fn added(analysis: &Analysis, variant: &VariantId, metric: Metric) -> Option<Estimate> {
    let point = first_steady(analysis)?;
    analysis.effect(variant, &point.id, metric)?.difference
}

/// The metric that something that grows is the effect on.
fn effect_of(grows: Grows) -> Option<Metric> {
    match grows {
        Grows::AddedMeanLatency => Some(Metric::ResponseMean),
        Grows::AddedCpu => Some(Metric::CpuPerRequest),
        _ => None,
    }
}

/// Least squares; `None` with too few points, or with all at one number.
fn line(points: &[(u32, f64)], ask: Option<f64>, check: Option<f64>) -> Option<Line> {
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
    let products: f64 = xs
        .iter()
        .zip(&ys)
        .map(|(x, y)| (x - x_mean) * (y - y_mean))
        .sum();
    let slope = products / squares;
    let fixed = y_mean - slope * x_mean;
    let left = xs
        .iter()
        .zip(&ys)
        .map(|(x, y)| (y - fixed - slope * x).powi(2));
    let variance = left.sum::<f64>() / (count - 2.0);
    let estimate = |value: f64, share: f64| {
        let student = Student {
            standard_error: (variance * share).sqrt(),
            degrees_of_freedom: count - 2.0,
        };
        Estimate {
            value,
            interval: student.interval(value, CONFIDENCE),
        }
    };
    let away = |x: f64| 1.0 / count + (x - x_mean).powi(2) / squares;
    let predicted = ask.map(|at| {
        let value = estimate(fixed + slope * at, 1.0 + away(at));
        let within = |measured: f64| {
            let interval = value.interval?;
            Some((interval.low..=interval.high).contains(&measured))
        };
        Prediction {
            at,
            value,
            by_one: None,
            measured: check,
            holds: check.and_then(within),
        }
    });
    Some(Line {
        fixed: estimate(fixed, away(0.0)),
        each: estimate(slope, 1.0 / squares),
        predicted,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::SeedableRng as _;

    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let points = [(1, 12.0), (10, 30.0), (50, 110.0), (90, 190.0)];
        let line = line(&points, Some(150.0), Some(311.0)).unwrap();
        assert!((line.fixed.value - 10.0).abs() < 1e-9 && (line.each.value - 2.0).abs() < 1e-9);
        let predicted = line.predicted.unwrap();
        assert!((predicted.value.value - 310.0).abs() < 1e-9);
        assert_eq!(predicted.holds, Some(false), "an exact line leaves no room");
    }

    #[test]
    fn a_curve_is_no_narrow_line() {
        let points = [(1, 1.0), (10, 100.0), (50, 2500.0), (90, 8100.0)];
        let line = line(&points, Some(150.0), None).unwrap();
        let predicted = line.predicted.unwrap().value;
        let interval = predicted.interval.unwrap();
        assert!(
            interval.high - interval.low > predicted.value,
            "{interval:?}"
        );
    }

    #[test]
    fn too_few_and_equal_ones_make_no_line() {
        assert!(line(&[(1, 1.0), (2, 2.0)], None, None).is_none());
        assert!(line(&[(5, 1.0), (5, 2.0), (5, 3.0)], None, None).is_none());
    }

    /// A page that calls two services one after the other, the second of two pods; that one calls a third for half of
    /// the requests.
    #[test]
    fn a_call_graph_is_so_many_hops() {
        use meshtax_model::graph::{Call, GraphNode, GraphService, Step, Work};
        let call = |service: &str, share| Call {
            service: service.to_owned(),
            share,
        };
        let service = |name: &str, replicas, steps| GraphService {
            name: name.to_owned(),
            replicas,
            response_bytes: Some(1),
            clients: false,
            node: GraphNode::Client,
            work: Work {
                steps,
                ..Work::default()
            },
        };
        let graph = Graph {
            name: "shop".to_owned(),
            entry: "page".to_owned(),
            work: Work {
                steps: vec![Step::Calls(vec![call("a", 1.0), call("b", 1.0)])],
                ..Work::default()
            },
            pages: Vec::new(),
            others: vec![
                service("a", 1, Vec::new()),
                service("b", 2, vec![Step::Calls(vec![call("c", 0.5)])]),
                service("c", 1, Vec::new()),
            ],
        };
        let asked = Asked::Graph {
            graph: &graph,
            replicas: 3,
        };
        let at = |grows| asked.at(grows);
        // At once, of the two calls the longer chain counts.
        assert!((at(Grows::AddedMeanLatency) - 2.5).abs() < 1e-12);
        assert!((at(Grows::AddedCpu) - 3.5).abs() < 1e-12);
        assert!((at(Grows::ProxyMemory) - 7.0).abs() < 1e-12);
    }

    /// Of points that scatter normally around a line, the next one lies in the interval as often as is claimed.
    #[test]
    fn predictions_cover_what_they_claim() {
        let mut random = Pcg64::seed_from_u64(11);
        let mut normal = || {
            // The sum of twelve even draws, less their mean (Irwin and Hall).
            let draw = |_| (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            (0..12).map(draw).sum::<f64>() - 6.0
        };
        let mut held = 0;
        for _ in 0..4_000 {
            let mut at = |n: u32| 20.0 + 15.0 * f64::from(n) + 3.0 * normal();
            let points = [1, 10, 50, 90].map(|n| (n, at(n)));
            let next = at(150);
            let line = line(&points, Some(150.0), Some(next)).unwrap();
            held += u32::from(line.predicted.unwrap().holds == Some(true));
        }
        let share = f64::from(held) / 4_000.0;
        assert!((0.935..0.965).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn nothing_panics(points in proptest::collection::vec((0_u32..1000, any::<f64>()), 0..8), ask in proptest::option::of(any::<f64>())) {
            let _ = line(&points, ask, points.first().map(|p| p.1));
        }
    }
}
