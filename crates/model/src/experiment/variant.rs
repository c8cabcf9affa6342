//! What is compared: a data plane at a policy level, with its options, builds and limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::{PolicyLevel, Role, VariantId};
use crate::pods::{ProxyRole, Quantities};
use crate::program::{Program, ProgramBuild, ProgramChoice};

/// A known cost that is added to a variant to validate the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inject {
    /// The server busy-waits this long for each request before it responds.
    DelayNs(u64),
    /// As [`Inject::DelayNs`], as a share of the baseline's p50 response latency at the
    /// first steady load point, measured before the first round (0.15 is 15 %).
    DelayShareOfP50(f64),
    /// The server delays some responses by this long, at random; the others are unaffected.
    DelaySome {
        /// The minimum delay, in nanoseconds: timers fire late.
        delay_ns: u64,
        /// The share of delayed requests, 0 to 1.
        share: f64,
    },
    /// The server does this many steps of work for each request: a multiplication and an addition
    /// each, every step depending on the previous one. The CPU clock of its thread measures them.
    BurnSteps(u64),
    /// The server holds this much more memory, in bytes, with every page written.
    HoldBytes(u64),
    /// The server sends at most this many responses per second.
    CapPerS(f64),
    /// The server keeps this much more memory for each request, in bytes, and never frees it: a
    /// fault that the validity checks must detect.
    LeakBytes(u64),
}

impl Inject {
    /// The name of the cost: `delay`, `burn`, `memory`, `cap`, `leak`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DelayNs(_) | Self::DelayShareOfP50(_) | Self::DelaySome { .. } => "delay",
            Self::BurnSteps(_) => "burn",
            Self::HoldBytes(_) => "memory",
            Self::CapPerS(_) => "cap",
            Self::LeakBytes(_) => "leak",
        }
    }
}

/// Additional work and configuration of a variant's proxies, beyond its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Endpoints of further services in their configuration; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_endpoints: Option<ExtraEndpoints>,
    /// Whether they write a line for each request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub access_log: bool,
    /// The share of requests for which they send spans to a collector, 0 to 1; `None`: no tracing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<f64>,
    /// Whether they keep every statistic that they know, instead of those that the mesh configures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_stats: bool,
}

/// The kinds of options: not every data plane supports each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// [`Options::extra_endpoints`].
    ExtraEndpoints,
    /// [`ExtraEndpoints::changes_per_s`].
    Changes,
    /// [`Options::access_log`].
    AccessLog,
    /// [`Options::tracing`].
    Tracing,
    /// [`Options::all_stats`].
    AllStats,
}

impl OptionKind {
    /// The key in a variant of a spec, or in `extra-endpoints`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::ExtraEndpoints => "extra-endpoints",
            Self::Changes => "changes",
            Self::AccessLog => "access-log",
            Self::Tracing => "tracing",
            Self::AllStats => "all-stats",
        }
    }
}

impl Options {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The options that are set.
    pub fn kinds(&self) -> impl Iterator<Item = OptionKind> {
        let extra_endpoints = self.extra_endpoints.map(|_| OptionKind::ExtraEndpoints);
        let changes = self.extra_endpoints.and_then(|extra| extra.changes_per_s);
        let changes = changes.map(|_| OptionKind::Changes);
        let log = self.access_log.then_some(OptionKind::AccessLog);
        let tracing = self.tracing.map(|_| OptionKind::Tracing);
        let stats = self.all_stats.then_some(OptionKind::AllStats);
        [extra_endpoints, changes, log, tracing, stats]
            .into_iter()
            .flatten()
    }
}

/// Services in a proxy's configuration that receive no requests: each with its endpoints, all of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraEndpoints {
    /// Total number of endpoints.
    pub endpoints: u32,
    /// Endpoints per service; the last one has the remainder.
    pub per_service: u32,
    /// While the variant is measured, this many endpoints per second are replaced, one at a time; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_per_s: Option<f64>,
}

impl ExtraEndpoints {
    /// Services over which the endpoints are spread.
    #[must_use]
    pub fn services(&self) -> u32 {
        self.endpoints.div_ceil(self.per_service.max(1))
    }

    /// Endpoints of a service; services count from 0.
    #[must_use]
    pub fn endpoints_of(&self, service: u32) -> u32 {
        let before = service.saturating_mul(self.per_service);
        self.endpoints.saturating_sub(before).min(self.per_service)
    }
}

/// One mesh configuration: a data plane, its policy level and options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Unique in the experiment.
    pub id: VariantId,
    /// The data plane's name, as `meshtax dataplanes` lists it (`none`, `envoy-sidecar`).
    pub data_plane: String,
    /// `None` for the data plane `none`.
    pub level: Option<PolicyLevel>,
    /// Its role in the comparison.
    pub role: Role,
    /// A known cost, if one is injected.
    pub inject: Option<Inject>,
    /// Additional work and configuration of its proxies.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    pub options: Options,
    /// The builds of its programs that it names; the others are the run's default ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<Program, ProgramBuild>,
    /// Runtime switches of its proxies: Envoy's runtime keys, environment variables of the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtime: BTreeMap<String, String>,
    /// The most that each proxy of a role may use; roles that are absent have no limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<ProxyRole, Quantities>,
}

impl Variant {
    /// A variant without known cost, options, named builds, runtime switches and limits.
    #[must_use]
    pub fn new(id: VariantId, data_plane: &str, level: Option<PolicyLevel>, role: Role) -> Self {
        Self {
            id,
            data_plane: data_plane.to_owned(),
            level,
            role,
            inject: None,
            options: Options::default(),
            builds: BTreeMap::new(),
            runtime: BTreeMap::new(),
            limits: BTreeMap::new(),
        }
    }

    /// Whether it has neither options, nor runtime switches, nor limits, nor an injected cost.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.inject.is_none()
            && self.options.is_empty()
            && self.runtime.is_empty()
            && self.limits.is_empty()
    }

    /// The build of this program that it runs.
    #[must_use]
    pub fn choice(&self, program: Program) -> ProgramChoice {
        ProgramChoice {
            program,
            build: self.builds.get(&program).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_spread_over_services_without_loss() {
        for (endpoints, per_service, services, last) in [
            (1, 10, 1, 1),
            (100, 10, 10, 10),
            (25, 10, 3, 5),
            (7, 1, 7, 1),
        ] {
            let extra = ExtraEndpoints {
                endpoints,
                per_service,
                changes_per_s: None,
            };
            assert_eq!(extra.services(), services);
            assert_eq!(extra.endpoints_of(services - 1), last);
            let all: u32 = (0..services).map(|s| extra.endpoints_of(s)).sum();
            assert_eq!(all, endpoints);
        }
    }
}
