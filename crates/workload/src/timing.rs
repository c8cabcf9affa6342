//! How long loads are, and the bursts before them.

use meshtax_model::experiment::{Design, LoadPoint, Regime};
use serde::{Deserialize, Serialize};

/// How long a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Load before the window.
    pub warmup_ns: u64,
    /// The measured window.
    pub window_ns: u64,
    /// The intervals in which a trial's latencies are reported; `None`: the whole window.
    pub interval_ns: Option<u64>,
    /// A closed loop ends after this many requests; `None`: it lasts its window.
    pub requests_per_trial: Option<u64>,
}

impl Timing {
    /// That of [`bursts`].
    pub const BURST: Self = Self {
        warmup_ns: 0,
        window_ns: 50_000_000,
        interval_ns: None,
        requests_per_trial: None,
    };

    /// That of an experiment's trials.
    #[must_use]
    pub fn of(design: &Design) -> Self {
        Self {
            warmup_ns: design.warmup_ns,
            window_ns: design.trial_ns,
            interval_ns: design.part_ns(),
            requests_per_trial: design.requests_per_trial,
        }
    }

    /// That of a trial at a load point.
    #[must_use]
    pub fn at(self, point: &LoadPoint) -> Self {
        match point.cold {
            true => Self {
                warmup_ns: 0,
                ..self
            },
            false => self,
        }
    }
}

/// A closed loop for each kind of connections that the load points have. Not recorded: proxies that keep connections to
/// each other have as many afterwards as the loads need.
#[must_use]
pub fn bursts(points: &[LoadPoint]) -> Vec<LoadPoint> {
    let mut bursts: Vec<LoadPoint> = Vec::new();
    for point in points {
        let burst = LoadPoint {
            connections: point.connections,
            protocol: point.protocol,
            response_bytes: point.response_bytes,
            ingress: point.ingress,
            ..LoadPoint::new("burst", Regime::Saturated)
        };
        if !bursts.contains(&burst) {
            bursts.push(burst);
        }
    }
    bursts
}
