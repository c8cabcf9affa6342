//! The results of `meshtax load`, as text and JSON.

use meshtax_model::load::{
    FinishedLoad, LevelsFinding, LoadLevels, LoadProgress, LoadSettings, RateVerdict,
};
use meshtax_model::trial::LoadResult;
use meshtax_model::{FORMAT_VERSION, LatencyHistogram};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::json::pretty;
use crate::view;

/// The summary of one load.
#[must_use]
pub fn terminal(load: &FinishedLoad) -> String {
    view::load::summary(load)
}

/// A running load in one line.
#[must_use]
pub fn progress(settings: &LoadSettings, progress: &LoadProgress<'_>) -> String {
    view::load::progress(settings, progress)
}

/// Loads at several levels: a table and what they show together.
#[must_use]
pub fn levels_terminal(levels: &LoadLevels) -> String {
    view::load::levels(levels)
}

/// A level that has just been measured, in one line.
#[must_use]
pub fn level_progress(load: &FinishedLoad, verdict: Option<RateVerdict>) -> String {
    view::load::level_progress(load, verdict)
}

/// One load as JSON. `docs/schema/load-v2.json` describes it.
#[must_use]
pub fn json(load: &FinishedLoad) -> String {
    pretty(&Document::of(load))
}

/// Loads at several levels as JSON.
#[must_use]
pub fn levels_json(levels: &LoadLevels) -> String {
    #[derive(Serialize)]
    struct Levels<'a> {
        format_version: u32,
        meshtax_version: &'static str,
        url: &'a str,
        search: &'a LevelsFinding,
        levels: Vec<Document<'a>>,
    }
    pretty(&Levels {
        format_version: FORMAT_VERSION,
        meshtax_version: VERSION,
        url: &levels.url,
        search: &levels.finding,
        levels: levels.levels.iter().map(Document::of).collect(),
    })
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Serialize)]
struct Document<'a> {
    format_version: u32,
    meshtax_version: &'static str,
    url: &'a str,
    started_unix_ms: u64,
    spec: &'a LoadSettings,
    achieved_per_s: f64,
    goodput_per_s: f64,
    queued: u64,
    verdict: GeneratorVerdict,
    response_ns: Value,
    service_ns: Value,
    first_byte_ns: Value,
    send_lag_ns: Value,
    generator_lag_ns: Value,
    connect_ns: Value,
    tls_handshake_ns: Value,
    result: &'a LoadResult,
}

/// Whether the load generator kept up; if not, the reason is in the result's audit.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum GeneratorVerdict {
    Fine,
    GeneratorBound,
}

impl<'a> Document<'a> {
    fn of(load: &'a FinishedLoad) -> Self {
        let result = &load.result;
        Self {
            format_version: FORMAT_VERSION,
            meshtax_version: VERSION,
            url: &load.url,
            started_unix_ms: load.started_unix_ms,
            spec: &load.settings,
            achieved_per_s: result.achieved_per_s(),
            goodput_per_s: result.goodput_per_s(),
            queued: result.queued,
            verdict: match result.audit.generator_bound {
                Some(_) => GeneratorVerdict::GeneratorBound,
                None => GeneratorVerdict::Fine,
            },
            response_ns: percentiles(&result.response),
            service_ns: percentiles(&result.service),
            first_byte_ns: percentiles(&result.first_byte),
            send_lag_ns: percentiles(&result.send_lag),
            generator_lag_ns: percentiles(&result.generator_lag),
            connect_ns: percentiles(&result.connect),
            tls_handshake_ns: percentiles(&result.tls_handshake),
            result,
        }
    }
}

/// The percentiles that the samples resolve, with count, mean and maximum.
fn percentiles(histogram: &LatencyHistogram) -> Value {
    let mut values = Map::new();
    values.insert("count".into(), histogram.count().into());
    values.insert("mean".into(), histogram.mean_ns().into());
    for (name, quantile) in LatencyHistogram::PERCENTILES {
        values.insert(name.into(), histogram.resolved_quantile_ns(quantile).into());
    }
    values.insert("max".into(), histogram.max_ns().into());
    values.into()
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load::finished;
    use meshtax_model::experiment::Arrivals;
    use meshtax_model::load::{OfferedLoad, Protocol, Rate, TlsSettings};
    use meshtax_model::trial::{GeneratorBound, GeneratorLimit};
    use serde_json::json;

    use super::*;

    #[test]
    fn document_of_one_load() {
        insta::assert_snapshot!(super::json(&finished(|_, _| {})));
    }

    const SCHEMA: &str = include_str!("../../../docs/schema/load-v2.json");

    /// Violations of the schema.
    fn problems(text: &str) -> Vec<String> {
        let schema = serde_json::from_str(SCHEMA).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let document = serde_json::from_str(text).unwrap();
        let errors = validator.iter_errors(&document);
        errors
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect()
    }

    #[test]
    fn every_load_matches_the_schema() {
        type Change = fn(&mut LoadSettings, &mut LoadResult);
        let changes: [Change; 8] = [
            |_, _| {},
            |settings, _| settings.model = OfferedLoad::Closed { think_ns: 0 },
            |settings, _| settings.model = OfferedLoad::Replay { times: 1 },
            |settings, result| {
                settings.model = OfferedLoad::Users {
                    rate_per_s: 1.5,
                    arrivals: Arrivals::Poisson,
                };
                result.intervals.clear();
            },
            |settings, result| {
                settings.protocol = Protocol::Grpc { streams: 3 };
                settings.tls = Some(TlsSettings::default());
                result.grpc_status = [(0, 3)].into();
            },
            |settings, _| {
                settings.protocol = Protocol::Tcp;
                settings.requests_per_connection = Some(3);
                settings.max_requests = Some(10);
                settings.cores = vec![0, 1];
                settings.seed = u64::MAX;
            },
            |settings, result| {
                let rate = Rate::Steps {
                    from_per_s: 1.0,
                    to_per_s: 2.0,
                    steps: 2,
                };
                let arrivals = Arrivals::Poisson;
                settings.model = OfferedLoad::Open { rate, arrivals };
                settings.interval_ns = None;
                settings.timeout_ns = None;
                result.audit.generator_bound = Some(GeneratorBound {
                    worker: Some("10.0.0.2:7000".to_owned()),
                    limit: GeneratorLimit::LateSends {
                        quantile: 0.95,
                        lag_ns: 3_000_000,
                        max_lag_ns: 1_000_000,
                    },
                });
            },
            |_, result| *result = LoadResult::default(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let text = super::json(&finished(change));
            assert_eq!(problems(&text), [""; 0], "{number}: {text}");
        }
    }

    #[test]
    fn schema_rejects_unknown_and_missing_fields() {
        let text = super::json(&finished(|_, _| {}));
        let good: Value = serde_json::from_str(&text).unwrap();
        for path in [
            "",
            "/spec",
            "/spec/model",
            "/result",
            "/result/audit",
            "/result/intervals/0",
            "/response_ns",
        ] {
            let mut unknown = good.clone();
            let fields = unknown.pointer_mut(path).unwrap().as_object_mut().unwrap();
            fields.insert("surprise".into(), 1.into());
            assert_ne!(problems(&unknown.to_string()), [""; 0], "{path}");
            let mut missing = good.clone();
            let fields = missing.pointer_mut(path).unwrap().as_object_mut().unwrap();
            let first = fields.keys().next().unwrap().clone();
            fields.remove(&first);
            assert_ne!(
                problems(&missing.to_string()),
                [""; 0],
                "{path} without {first}"
            );
        }
    }

    #[test]
    fn load_without_responses_has_no_percentiles() {
        let value = percentiles(&LatencyHistogram::new());
        assert_eq!(
            (&value["count"], &value["p50"], &value["max"]),
            (&json!(0), &Value::Null, &Value::Null)
        );
    }
}
