//! What each variant adds in a cluster of a given size.

use meshtax_model::advice::{
    AdviceRequest, Cost, CostFigure, CpuCost, MemoryCost, MemoryPart, Missing, MissingReason,
    ProxyPlace,
};
use meshtax_model::analysis::{
    Analysis, Effect, Estimate, Interval, Metric, NotEstimable, Verdict,
};
use meshtax_model::experiment::{LoadPoint, Variant};
use meshtax_model::trial::ComponentRole;

use super::estimates::{map, times};
use super::measured::measured;
use super::planes::place;

/// Hours of a month, as in price lists.
const HOURS_A_MONTH: f64 = 730.0;

const GIB: f64 = (1_u64 << 30) as f64;

/// A hop passes two proxies: its client's and its server's.
const PROXIES_A_HOP: f64 = 2.0;

/// The cost of a candidate beyond no mesh.
pub(super) fn cost(analysis: &Analysis, asked: &AdviceRequest, variant: &Variant) -> Cost {
    let setting = Setting::of(analysis, asked, variant);
    let (cpu, memory) = (setting.cpu(), setting.memory());
    let missing = [
        (CostFigure::Cpu, cpu.as_ref().err().cloned()),
        (CostFigure::Memory, memory.as_ref().err().cloned()),
        (CostFigure::IdleCpu, Some(setting.idle())),
        (CostFigure::ProgramPages, Some(MissingReason::SharedByNode)),
        (CostFigure::ControlPlane, Some(MissingReason::ClusterOnly)),
    ];
    let missing = missing
        .into_iter()
        .filter_map(|(figure, reason)| reason.map(|reason| Missing { figure, reason }))
        .collect();
    let (cpu, memory) = (cpu.ok(), memory.ok());
    let monthly = || sum(cpu.as_ref()?.monthly?, memory.as_ref()?.monthly?);
    Cost {
        variant: variant.id.clone(),
        monthly: monthly(),
        parts: setting.parts(),
        cpu,
        memory,
        missing,
    }
}

/// The sum of both ends: wider than necessary if the two are not correlated.
fn sum(one: Estimate, other: Estimate) -> Option<Estimate> {
    let ends = one.interval.zip(other.interval);
    let interval = ends.map(|(one, other)| Interval {
        low: one.low + other.low,
        high: one.high + other.high,
    });
    let value = one.value + other.value;
    map(Estimate { value, interval }, |value| value)
}

/// One variant in the cluster of the request.
struct Setting<'a> {
    analysis: &'a Analysis,
    asked: &'a AdviceRequest,
    variant: &'a Variant,
    place: ProxyPlace,
    /// The load points from which CPU and memory are taken, and the requests per proxy there.
    nearest: Option<(&'a LoadPoint, f64)>,
}

impl<'a> Setting<'a> {
    fn of(analysis: &'a Analysis, asked: &'a AdviceRequest, variant: &'a Variant) -> Self {
        let mut setting = Self {
            analysis,
            asked,
            variant,
            place: place(&variant.data_plane),
            nearest: None,
        };
        setting.nearest = setting.nearest_point();
        setting
    }

    /// The number of pods or nodes with a proxy.
    fn count(&self) -> Result<u32, MissingReason> {
        let count = match self.place {
            ProxyPlace::Pod => self.asked.pods,
            ProxyPlace::Node => self.asked.nodes,
        };
        let count = count.filter(|count| *count > 0);
        count.ok_or(MissingReason::NoCount { per: self.place })
    }

    /// Requests per second through each proxy of the cluster.
    fn asked_per_proxy(&self) -> Option<f64> {
        let passes = PROXIES_A_HOP * self.asked.requests_per_s? * self.asked.hops;
        let each = passes / f64::from(self.count().ok()?);
        (each.is_finite() && each > 0.0).then_some(each)
    }

    /// Pods of the run with a proxy: the client's, and one for each replica of each service.
    fn pods(&self) -> f64 {
        1.0 + f64::from(self.analysis.experiment.topology.pods())
    }

    /// The number of these units in the run.
    fn places(&self) -> f64 {
        match self.place {
            ProxyPlace::Pod => self.pods(),
            ProxyPlace::Node => self.nodes(),
        }
    }

    /// Why CPU without requests is not a separate cost.
    fn idle(&self) -> MissingReason {
        let found = measured(self.analysis, &self.variant.id);
        match found.and_then(|found| found.upkeep.idle_cores) {
            Some(_) => MissingReason::InRunReport,
            None => MissingReason::NotRead,
        }
    }

    /// Hops per request of the run's clients: their own call, and those between services.
    fn hops_measured(&self) -> f64 {
        let calls = self.analysis.experiment.topology.calls_per_request();
        1.0 + if calls.is_finite() { calls } else { 0.0 }
    }

    /// Nodes of the run with a proxy: the client's, and those of the servers.
    fn nodes(&self) -> f64 {
        f64::from(self.analysis.experiment.nodes())
    }

    /// The load point with an effect whose rate is nearest, by ratio, to the planned rate of each proxy; one with an
    /// interval, if there is any. Only load points with the settings of the first one are considered: new
    /// connections or other protocols have other costs.
    fn nearest_point(&self) -> Option<(&'a LoadPoint, f64)> {
        // Calls between services do not pass a gateway.
        let points = self.analysis.experiment.load_points.iter();
        let points: Vec<&LoadPoint> = points.filter(|point| point.ingress.is_none()).collect();
        let first = *points.first()?;
        let alike = |point: &&LoadPoint| {
            point.protocol == first.protocol
                && point.requests_per_connection == first.requests_per_connection
                && point.response_bytes == first.response_bytes
        };
        let carried = |point: &'a LoadPoint| {
            let (_, added) = self.effect(point, Metric::CpuPerRequest).ok()?;
            Some((point, self.carried(point)?, added.interval.is_some()))
        };
        let mut carried: Vec<_> = points
            .into_iter()
            .filter(alike)
            .filter_map(carried)
            .collect();
        if carried.iter().any(|(.., is_sure)| *is_sure) {
            carried.retain(|(.., is_sure)| *is_sure);
        }
        let mut carried = carried.into_iter().map(|(point, rate, _)| (point, rate));
        let Some(wanted) = self.asked_per_proxy() else {
            return carried.next();
        };
        let distance = |rate: f64| (rate / wanted).ln().abs();
        carried.min_by(|(_, a), (_, b)| distance(*a).total_cmp(&distance(*b)))
    }

    /// Requests per second that each proxy carried at a load point.
    fn carried(&self, point: &LoadPoint) -> Option<f64> {
        let found = measured(self.analysis, &self.variant.id)?;
        let point = found.points.iter().find(|p| p.load_point == point.id)?;
        let passes = PROXIES_A_HOP * self.hops_measured() * point.achieved_per_s;
        let each = passes / self.places();
        (each.is_finite() && each > 0.0).then_some(each)
    }

    /// The estimate of a difference from the baselines, or why there is none.
    fn effect(
        &self,
        point: &LoadPoint,
        metric: Metric,
    ) -> Result<(&'a Effect, Estimate), MissingReason> {
        let effect = self.analysis.effect(&self.variant.id, &point.id, metric);
        let effect = effect.ok_or(MissingReason::NotOnRecord { metric })?;
        let difference = effect.difference.and_then(|d| times(d, 1.0));
        match (difference, &effect.verdict) {
            (_, Verdict::Overloaded(_)) => Err(MissingReason::NotEstimable {
                reason: NotEstimable::Overloaded {
                    variant: self.variant.id.clone(),
                },
            }),
            (Some(difference), _) => Ok((effect, difference)),
            (None, Verdict::NotEstimable { reason }) => Err(MissingReason::NotEstimable {
                reason: reason.clone(),
            }),
            (None, _) => Err(MissingReason::NotOnRecord { metric }),
        }
    }

    fn point(&self) -> Result<(&'a LoadPoint, f64), MissingReason> {
        self.nearest.ok_or_else(|| {
            let points = self.analysis.experiment.load_points.iter();
            if points.clone().all(|point| point.ingress.is_some()) {
                return MissingReason::GatewayOnly;
            }
            let mut reasons = points.map(|point| self.effect(point, Metric::CpuPerRequest));
            let reason = reasons.find_map(Result::err);
            reason.unwrap_or(MissingReason::NotMeasured)
        })
    }

    fn cpu(&self) -> Result<CpuCost, MissingReason> {
        let rate = self
            .asked
            .requests_per_s
            .ok_or(MissingReason::NoRequestRate)?;
        let (point, measured_per_proxy_per_s) = self.point()?;
        let (effect, added_ns) = self.effect(point, Metric::CpuPerRequest)?;
        let added_ns = self.with_elsewhere(point, added_ns);
        let per_request_ns = times(added_ns, 1.0 / self.hops_measured());
        let per_request_ns = per_request_ns.ok_or(MissingReason::OutOfRange)?;
        let cores = times(per_request_ns, rate * self.asked.hops / 1e9);
        let cores = cores.ok_or(MissingReason::OutOfRange)?;
        let price = self.asked.cpu_price;
        Ok(CpuCost {
            load_point: point.id.clone(),
            asked_per_proxy_per_s: self.asked_per_proxy(),
            measured_per_proxy_per_s,
            per_request_ns,
            cores,
            monthly: price.and_then(|price| times(cores, price * HOURS_A_MONTH)),
            verdict: effect.verdict.clone(),
        })
    }

    /// Where work may have moved out of the path, the interval also covers the added CPU with it: the truth is between the
    /// two.
    fn with_elsewhere(&self, point: &LoadPoint, path: Estimate) -> Estimate {
        let added = self.analysis.added_cpu(&self.variant.id, &point.id);
        let other = added
            .and_then(|added| added.with_elsewhere.as_ref())
            .and_then(|end| end.added.interval)
            .filter(|other| other.low.is_finite() && other.high.is_finite());
        let interval = path.interval.map(|own| match other {
            Some(other) => Interval {
                low: own.low.min(other.low),
                high: own.high.max(other.high),
            },
            None => own,
        });
        Estimate { interval, ..path }
    }

    /// The run's added memory, divided by the number of units with a proxy. A waypoint is counted once, as its median.
    fn memory(&self) -> Result<MemoryCost, MissingReason> {
        let count = self.count()?;
        let (point, _) = self.point()?;
        let (_, added) = self.effect(point, Metric::AnonymousMemory)?;
        let waypoint = self
            .part(ComponentRole::Waypoint)
            .map(|p| p.anonymous_bytes);
        let apart = waypoint.unwrap_or(0) as f64;
        let each = map(added, |bytes| (bytes - apart) / self.places());
        let total = each.and_then(|each| map(each, |bytes| bytes * f64::from(count) + apart));
        let (each_bytes, total_bytes) = each.zip(total).ok_or(MissingReason::OutOfRange)?;
        let price = self.asked.memory_price;
        Ok(MemoryCost {
            load_point: point.id.clone(),
            per: self.place,
            count,
            each_bytes,
            waypoint_bytes: waypoint,
            total_bytes,
            monthly: price.and_then(|price| times(total_bytes, price * HOURS_A_MONTH / GIB)),
        })
    }

    fn part(&self, role: ComponentRole) -> Option<MemoryPart> {
        let found = measured(self.analysis, &self.variant.id)?;
        let memory = found.memory.iter().find(|memory| memory.role == role)?;
        Some(MemoryPart {
            role,
            anonymous_bytes: memory.anonymous_bytes,
            file_bytes: memory.file_bytes,
        })
    }

    fn parts(&self) -> Vec<MemoryPart> {
        let roles = [
            ComponentRole::ClientProxy,
            ComponentRole::ServerProxy,
            ComponentRole::Waypoint,
        ];
        roles
            .into_iter()
            .filter_map(|role| self.part(role))
            .collect()
    }
}
