//! The application's counters, and its report of a single request.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Counters since the application's start. Those of a window are the difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStats {
    /// Responses with the body or with an injected error.
    pub requests: u64,
    /// Those of them with an injected error.
    pub errors: u64,
    /// Those of them that were delayed, spinning or waiting; twice if both.
    pub delayed: u64,
    /// The configured delay of each request, in nanoseconds.
    pub configured_delay_ns: u64,
    /// The sum of the actual delays, by the application's own clock, in nanoseconds.
    pub delay_sum_ns: u64,
    /// Requests that had work done for them.
    #[serde(default)]
    pub burned: u64,
    /// CPU time of that work, by the threads' own CPU clocks, in nanoseconds.
    #[serde(default)]
    pub burned_ns: u64,
    /// Completed calls to other services.
    #[serde(default)]
    pub calls: u64,
    /// Those of them that failed: without a response, or with a status other than 2xx.
    #[serde(default)]
    pub failed_calls: u64,
    /// Connections that are open now.
    pub connections: u64,
    /// Errors requested by [`crate::FAIL_HEADER`]. Not in the other counters.
    #[serde(default)]
    pub failed_on_request: u64,
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// Its method.
    pub method: String,
    /// Its target.
    pub path: String,
    /// Its headers in order; invalid UTF-8 is replaced.
    pub headers: Vec<(String, String)>,
    /// Its sender: `ip:port`.
    pub peer: String,
}

/// One thread's counters. Only that thread writes them, so that plain loads and stores suffice;
/// the alignment avoids false sharing between threads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    requests: AtomicU64,
    errors: AtomicU64,
    delayed: AtomicU64,
    delay_sum_ns: AtomicU64,
    burned: AtomicU64,
    burned_ns: AtomicU64,
    calls: AtomicU64,
    failed_calls: AtomicU64,
    connections: AtomicU64,
    failed_on_request: AtomicU64,
}

fn add(counter: &AtomicU64, by: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

impl Counters {
    pub(crate) fn request(&self) {
        add(&self.requests, 1);
    }

    pub(crate) fn failure(&self) {
        add(&self.errors, 1);
    }

    pub(crate) fn failed_on_request(&self) {
        add(&self.failed_on_request, 1);
    }

    pub(crate) fn delay(&self, delayed_ns: u64) {
        add(&self.delayed, 1);
        add(&self.delay_sum_ns, delayed_ns);
    }

    pub(crate) fn burn(&self, cpu_ns: u64) {
        add(&self.burned, 1);
        add(&self.burned_ns, cpu_ns);
    }

    pub(crate) fn called(&self, is_good: bool) {
        add(&self.calls, 1);
        add(&self.failed_calls, u64::from(!is_good));
    }

    pub(crate) fn opened(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn closed(&self) {
        add(&self.connections, 1_u64.wrapping_neg());
    }

    /// The sum over all threads.
    pub(crate) fn sum(all: &[Self], configured_delay_ns: u64) -> AppStats {
        let total = |of: fn(&Self) -> &AtomicU64| {
            all.iter().map(|one| of(one).load(Ordering::Relaxed)).sum()
        };
        AppStats {
            requests: total(|c| &c.requests),
            errors: total(|c| &c.errors),
            delayed: total(|c| &c.delayed),
            configured_delay_ns,
            delay_sum_ns: total(|c| &c.delay_sum_ns),
            burned: total(|c| &c.burned),
            burned_ns: total(|c| &c.burned_ns),
            calls: total(|c| &c.calls),
            failed_calls: total(|c| &c.failed_calls),
            connections: total(|c| &c.connections),
            failed_on_request: total(|c| &c.failed_on_request),
        }
    }
}
