//! What the application counts, and what it says of a request.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Counts since the application's start. A window's figures are the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStats {
    /// Requests answered with the body, or with an error that was asked for.
    pub requests: u64,
    /// Those of them that were answered with an error.
    pub errors: u64,
    /// Those of them that were delayed, spinning or waiting; twice if both.
    pub delayed: u64,
    /// The delay that is spun for each, in nanoseconds.
    pub delay_asked_ns: u64,
    /// The delays that there were, by the application's own clock, in nanoseconds.
    pub delay_sum_ns: u64,
    /// Requests that were worked for.
    #[serde(default)]
    pub burned: u64,
    /// The CPU that this work took, by the threads' own CPU clocks, in nanoseconds.
    #[serde(default)]
    pub burned_ns: u64,
    /// Calls of other services that ended.
    #[serde(default)]
    pub calls: u64,
    /// Those of them that failed: no answer, or none of success.
    #[serde(default)]
    pub failed_calls: u64,
    /// Connections that are open now.
    pub connections: u64,
    /// Requests that asked for an error (see [`crate::FAIL_HEADER`]) and got it. Not among the others.
    #[serde(default)]
    pub failed_as_asked: u64,
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// Its method.
    pub method: String,
    /// Its target.
    pub path: String,
    /// Its headers in their order; what is not UTF-8 is replaced.
    pub headers: Vec<(String, String)>,
    /// Who sent it: `ip:port`.
    pub peer: String,
}

/// One thread's counters. Only that thread writes them, so that a plain load and store do,
/// and a cache line of their own keeps the threads apart.
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
    failed_as_asked: AtomicU64,
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

    pub(crate) fn failed_as_asked(&self) {
        add(&self.failed_as_asked, 1);
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
    pub(crate) fn sum(all: &[Self], delay_asked_ns: u64) -> AppStats {
        let total = |of: fn(&Self) -> &AtomicU64| {
            all.iter().map(|one| of(one).load(Ordering::Relaxed)).sum()
        };
        AppStats {
            requests: total(|c| &c.requests),
            errors: total(|c| &c.errors),
            delayed: total(|c| &c.delayed),
            delay_asked_ns,
            delay_sum_ns: total(|c| &c.delay_sum_ns),
            burned: total(|c| &c.burned),
            burned_ns: total(|c| &c.burned_ns),
            calls: total(|c| &c.calls),
            failed_calls: total(|c| &c.failed_calls),
            connections: total(|c| &c.connections),
            failed_as_asked: total(|c| &c.failed_as_asked),
        }
    }
}
