//! What each variant adds in a cluster of a given size.

use meshtax_model::advice::{Asked, Cost, CpuCost, MemoryCost, MemoryPart, Missing, ProxyPlace};
use meshtax_model::analysis::{Analysis, Effect, Estimate, Interval, Metric, Verdict};
use meshtax_model::experiment::{LoadPoint, Variant};
use meshtax_model::graph::Graph;
use meshtax_model::trial::ComponentRole;

use super::{map, measured, place, times};

/// A month, as prices have it.
const HOURS_A_MONTH: f64 = 730.0;

const GIB: f64 = (1_u64 << 30) as f64;

/// A hop passes two proxies: its client's and its server's.
const PROXIES_A_HOP: f64 = 2.0;

/// What a candidate costs beyond no mesh.
pub(super) fn cost(analysis: &Analysis, asked: &Asked, variant: &Variant) -> Cost {
    let setting = Setting::of(analysis, asked, variant);
    let mut missing = Vec::new();
    let mut told = |what: &str, why: String| {
        missing.push(Missing {
            what: what.to_owned(),
            why,
        });
    };
    let cpu = setting.cpu().map_err(|why| told("CPU", why)).ok();
    let memory = setting.memory().map_err(|why| told("memory", why)).ok();
    told("idle CPU", setting.idle().to_owned());
    told(
        "program text",
        "file pages, of which a node has one copy of each program, are not in the memory"
            .to_owned(),
    );
    told(
        "control plane",
        "a cluster's alone: not measured here".to_owned(),
    );
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

/// The ends added up: wider than it need be where the two do not go together.
fn sum(one: Estimate, other: Estimate) -> Option<Estimate> {
    let ends = one.interval.zip(other.interval);
    let interval = ends.map(|(one, other)| Interval {
        low: one.low + other.low,
        high: one.high + other.high,
    });
    let value = one.value + other.value;
    map(Estimate { value, interval }, |value| value)
}

/// One variant in the cluster that is asked about.
struct Setting<'a> {
    analysis: &'a Analysis,
    asked: &'a Asked,
    variant: &'a Variant,
    place: ProxyPlace,
    /// Where CPU and memory are taken from, and what each proxy carried there.
    nearest: Option<(&'a LoadPoint, f64)>,
}

impl<'a> Setting<'a> {
    fn of(analysis: &'a Analysis, asked: &'a Asked, variant: &'a Variant) -> Self {
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

    /// How many there are of what has a proxy, or how to say it.
    fn count(&self) -> Result<u32, String> {
        let (count, flag) = match self.place {
            ProxyPlace::Pod => (self.asked.pods, "--pods"),
            ProxyPlace::Node => (self.asked.nodes, "--nodes"),
        };
        let per = match self.place {
            ProxyPlace::Pod => "pod",
            ProxyPlace::Node => "node",
        };
        count
            .filter(|count| *count > 0)
            .ok_or_else(|| format!("it has a proxy in each {per}: say how many with {flag}"))
    }

    /// Requests per second through each proxy of the cluster.
    fn asked_per_proxy(&self) -> Option<f64> {
        let passes = PROXIES_A_HOP * self.asked.requests_per_s? * self.asked.hops;
        let each = passes / f64::from(self.count().ok()?);
        (each.is_finite() && each > 0.0).then_some(each)
    }

    /// Pods of the run that had a proxy: the client's, and one for each replica of each service.
    fn pods(&self) -> f64 {
        let service = &self.analysis.experiment.service;
        let behind = service.graph.as_ref().map_or(0, Graph::pods);
        1.0 + f64::from(service.replicas.max(1)) + f64::from(behind)
    }

    /// How many there were in the run of what has a proxy.
    fn places(&self) -> f64 {
        match self.place {
            ProxyPlace::Pod => self.pods(),
            ProxyPlace::Node => self.nodes(),
        }
    }

    /// Why it is no sum of its own.
    fn idle(&self) -> &'static str {
        let found = measured(self.analysis, &self.variant.id);
        match found.and_then(|found| found.upkeep.idle_cores) {
            Some(_) => {
                "what proxies use without requests stands in the run's own report; what they use under load has it in it"
            }
            None => "this run does not say what its proxies use without requests",
        }
    }

    /// How often a request of the run's clients passed the mesh: their own call, and those between services.
    fn hops_measured(&self) -> f64 {
        let graph = self.analysis.experiment.service.graph.as_ref();
        let calls = graph.map_or(0.0, Graph::calls_per_request);
        1.0 + if calls.is_finite() { calls } else { 0.0 }
    }

    /// Nodes of the run that had a proxy: the client's, and those of the servers.
    fn nodes(&self) -> f64 {
        1.0 + f64::from(self.analysis.experiment.service.nodes.max(1))
    }

    /// The load point with an effect whose rate is nearest, by ratio, to what each proxy will carry; one with an
    /// interval, if there is any. Only those are looked at that are driven as the first one is: new connections or
    /// other protocols are other costs.
    fn nearest_point(&self) -> Option<(&'a LoadPoint, f64)> {
        // Between services no request passes a gateway.
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

    /// A difference from the baselines that has a figure, or why there is none.
    fn effect(&self, point: &LoadPoint, metric: Metric) -> Result<(&'a Effect, Estimate), String> {
        let effect = self.analysis.effect(&self.variant.id, &point.id, metric);
        let effect = effect.ok_or_else(|| format!("no {} on record", metric.name()))?;
        let difference = effect.difference.and_then(|d| times(d, 1.0));
        match (difference, &effect.verdict) {
            (Some(difference), _) => Ok((effect, difference)),
            (None, Verdict::NotEstimable { reason }) => Err(reason.clone()),
            (None, _) => Err(format!("no {} on record", metric.name())),
        }
    }

    fn point(&self) -> Result<(&'a LoadPoint, f64), String> {
        self.nearest.ok_or_else(|| {
            let points = self.analysis.experiment.load_points.iter();
            if points.clone().all(|point| point.ingress.is_some()) {
                return "all clients of this run came in through a gateway: what services cost each other was not \
                        measured"
                    .to_owned();
            }
            let mut reasons = points.map(|point| self.effect(point, Metric::CpuPerRequest));
            let reason = reasons.find_map(Result::err);
            reason.unwrap_or_else(|| "nothing of it was measured".to_owned())
        })
    }

    fn cpu(&self) -> Result<CpuCost, String> {
        let rate = self
            .asked
            .requests_per_s
            .ok_or("the requests per second are not given: --requests")?;
        let (point, measured_per_proxy_per_s) = self.point()?;
        let (effect, added_ns) = self.effect(point, Metric::CpuPerRequest)?;
        let per_request_ns = times(added_ns, 1.0 / self.hops_measured());
        let per_request_ns = per_request_ns.ok_or("the figure is out of range")?;
        let cores = times(per_request_ns, rate * self.asked.hops / 1e9);
        let cores = cores.ok_or("the figure is out of range")?;
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

    /// The run's added memory, spread over what has a proxy. A waypoint is counted once, as its median.
    fn memory(&self) -> Result<MemoryCost, String> {
        let count = self.count()?;
        let (point, _) = self.point()?;
        let (_, added) = self.effect(point, Metric::AnonymousMemory)?;
        let waypoint = self
            .part(ComponentRole::Waypoint)
            .map(|p| p.anonymous_bytes);
        let apart = waypoint.unwrap_or(0) as f64;
        let each = map(added, |bytes| (bytes - apart) / self.places());
        let total = each.and_then(|each| map(each, |bytes| bytes * f64::from(count) + apart));
        let (each_bytes, total_bytes) = each.zip(total).ok_or("the figure is out of range")?;
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
