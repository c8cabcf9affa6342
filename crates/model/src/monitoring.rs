//! What a monitoring system recorded during a run: context, beside what was measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Series of a monitoring system over a run's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Monitoring {
    /// Where it was asked, without credentials.
    pub url: String,
    /// From when on, in milliseconds since 1970.
    pub from_unix_ms: u64,
    /// Until when, in milliseconds since 1970.
    pub until_unix_ms: u64,
    /// Between two values of a series, in milliseconds.
    pub step_ms: u64,
    /// Each query, with what it gave.
    pub queries: Vec<MonitoringQuery>,
}

/// A query, and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MonitoringQuery {
    /// Its name in the report.
    pub name: String,
    /// Its text (PromQL).
    pub query: String,
    /// The unit of its values (`cores`, `bytes`); empty: unknown.
    pub unit: String,
    /// What it gave; empty if nothing matched.
    pub series: Vec<MonitoringSeries>,
    /// Further series that it gave, and that are not stored.
    #[serde(default)]
    pub omitted_series: u64,
    /// Why there is no answer; `None`: there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MonitoringSeries {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Milliseconds since 1970, and the value; only finite ones.
    pub values: Vec<(u64, f64)>,
}
