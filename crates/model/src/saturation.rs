//! The rate at which an application is to saturate, and the calibration that found its services' CPU times.

use serde::{Deserialize, Serialize};

use crate::topology::Topology;

/// The rate at which the application is to saturate without a mesh. Before the first round, bursts against the baseline
/// find the work that each service needs for that; [`crate::topology::Work::burn_steps`] then has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// Requests per second that the baseline is to reach at the experiment's first closed loop.
    pub rate_per_s: f64,
    /// What was measured to get there, in order; empty: nothing yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bursts: Vec<Burst>,
    /// What was chosen, in the topology's order; empty: nothing yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ChosenWork>,
}

/// A burst of the calibration: what the baseline reached with so much work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Steps of work that all services together did for one request of a client, on average.
    pub steps_per_request: f64,
    /// Responses per second.
    pub rate_per_s: f64,
    /// CPU of all services' processes per request of a client, in nanoseconds; `None`: it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_cpu_ns: Option<f64>,
}

/// The work that was chosen for a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChosenWork {
    /// The service.
    pub service: String,
    /// Its steps of work for each request that it receives.
    pub burn_steps: u64,
    /// CPU time that these steps took in the chosen burst, in nanoseconds per request that it receives; `None`: it
    /// was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_cpu_ns: Option<f64>,
}

impl Saturation {
    /// Nothing is measured yet.
    #[must_use]
    pub fn at(rate_per_s: f64) -> Self {
        Self {
            rate_per_s,
            bursts: Vec::new(),
            services: Vec::new(),
        }
    }

    /// Whether the work is still to be found.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.services.is_empty()
    }

    /// The burst with the chosen work; `None`: nothing was measured yet.
    #[must_use]
    pub fn reached(&self) -> Option<&Burst> {
        let distance = |burst: &Burst| (burst.rate_per_s / self.rate_per_s).ln().abs();
        let mut bursts = self.bursts.iter();
        let first = bursts.next()?;
        Some(bursts.fold(first, |best, burst| {
            match distance(burst) < distance(best) {
                true => burst,
                false => best,
            }
        }))
    }
}

/// Steps of work that all services together do for one request of a client, on average.
#[must_use]
pub fn steps_per_request(topology: &Topology) -> f64 {
    let services = topology.services.iter();
    let of_service = |service: &crate::topology::Service| {
        service.work.burn_steps as f64 * topology.requests_per_request(&service.name)
    };
    services.map(of_service).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_nearest_to_the_rate_is_the_one_that_was_chosen() {
        let mut saturation = Saturation::at(100.0);
        assert!(saturation.is_open());
        assert_eq!(saturation.reached(), None);
        let burst = |rate_per_s| Burst {
            steps_per_request: 0.0,
            rate_per_s,
            app_cpu_ns: None,
        };
        saturation.bursts = [5000.0, 140.0, 98.0, 103.0].map(burst).to_vec();
        assert_eq!(saturation.reached(), Some(&burst(98.0)));
    }
}
