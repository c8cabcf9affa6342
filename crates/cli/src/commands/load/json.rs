//! The figures as JSON. `docs/schema/load-v1.json` describes it.

use meshtax_load::{LoadModel, LoadSpec};
use meshtax_model::LatencyHistogram;
use serde_json::{Map, Value, json};

use super::figures::{Finished, QUANTILES, resolved};

/// Headers whose values are secrets: results are passed on.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// What stands in a secret's place.
const HIDDEN: &str = "(hidden)";

/// The whole document.
pub(crate) fn json(finished: &Finished<'_>) -> String {
    format!("{:#}\n", document(finished))
}

/// The document as a value, for those that hold several.
pub(crate) fn document(finished: &Finished<'_>) -> Value {
    let result = finished.result;
    let mut document = Map::from_iter([
        (
            "format_version".into(),
            meshtax_model::FORMAT_VERSION.into(),
        ),
        ("meshtax_version".into(), env!("CARGO_PKG_VERSION").into()),
        ("url".into(), finished.url.into()),
        ("started_unix_ms".into(), finished.started_unix_ms.into()),
        ("spec".into(), spec(finished.spec)),
        ("achieved_per_s".into(), result.achieved_per_s().into()),
        ("goodput_per_s".into(), result.goodput_per_s().into()),
        ("queued".into(), result.queued.into()),
        (
            "verdict".into(),
            verdict(result.audit.generator_bound.is_some()).into(),
        ),
    ]);
    for (name, histogram) in [
        ("response_ns", &result.response),
        ("service_ns", &result.service),
        ("first_byte_ns", &result.first_byte),
        ("send_lag_ns", &result.send_lag),
        ("generator_lag_ns", &result.generator_lag),
        ("connect_ns", &result.connect),
        ("tls_handshake_ns", &result.tls_handshake),
    ] {
        document.insert(name.into(), quantiles(histogram));
    }
    document.insert("result".into(), json!(result));
    document.into()
}

/// In one word; the reason is in the audit.
fn verdict(is_bound: bool) -> &'static str {
    if is_bound { "generator-bound" } else { "fine" }
}

/// The percentiles that the samples resolve, and mean and maximum.
pub(crate) fn quantiles(histogram: &LatencyHistogram) -> Value {
    let mut values = Map::new();
    values.insert("count".into(), histogram.count().into());
    values.insert("mean".into(), histogram.mean_ns().into());
    for (name, quantile) in QUANTILES {
        values.insert(name.into(), resolved(histogram, quantile).into());
    }
    values.insert("max".into(), histogram.max_ns().into());
    values.into()
}

/// What was asked for, without what is secret and what is long: keys, credentials in headers,
/// bodies and replayed times.
pub(crate) fn spec(spec: &LoadSpec) -> Value {
    let mut shown = spec.clone();
    if let Some(tls) = &mut shown.tls {
        let credentials = &mut tls.credentials;
        for text in [
            &mut credentials.key_pem,
            &mut credentials.chain_pem,
            &mut credentials.roots_pem,
        ] {
            if text.is_some() {
                *text = Some(HIDDEN.into());
            }
        }
    }
    for (name, value) in shown.requests.iter_mut().flat_map(|r| &mut r.headers) {
        if SECRET_HEADERS
            .iter()
            .any(|secret| name.eq_ignore_ascii_case(secret))
        {
            *value = HIDDEN.into();
        }
    }
    let bodies: Vec<_> = shown
        .requests
        .iter_mut()
        .map(|request| std::mem::take(&mut request.body).len())
        .collect();
    let times = match &mut shown.model {
        LoadModel::Replay { times_ns } => Some(std::mem::take(times_ns).len()),
        _ => None,
    };
    let mut value = json!(shown);
    for (at, bytes) in bodies.into_iter().enumerate() {
        if let Some(request) = value["requests"][at].as_object_mut() {
            request.remove("body");
            request.insert("body_bytes".into(), bytes.into());
        }
    }
    if let (Some(times), Some(model)) = (times, value["model"].as_object_mut()) {
        model.remove("times_ns");
        model.insert("times".into(), times.into());
    }
    value
}

#[cfg(test)]
mod tests {
    use meshtax_load::{Protocol, Rate};
    use meshtax_model::experiment::Arrivals;
    use meshtax_model::trial::LoadResult;

    use super::super::figures::example;
    use super::*;

    #[test]
    fn the_whole_document() {
        insta::assert_snapshot!(example::written(|_, _| {}, json));
    }

    const SCHEMA: &str = include_str!("../../../../../docs/schema/load-v1.json");

    /// What the schema does not know, or misses.
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
    fn every_load_is_of_the_schema() {
        type Change = fn(&mut LoadSpec, &mut LoadResult);
        let changes: [Change; 8] = [
            |_, _| {},
            |spec, _| spec.model = LoadModel::closed(),
            |spec, _| spec.model = LoadModel::Replay { times_ns: vec![1] },
            |spec, result| {
                spec.model = LoadModel::Users {
                    rate_per_s: 1.5,
                    arrivals: Arrivals::Poisson,
                };
                result.intervals.clear();
            },
            |spec, result| {
                spec.protocol = Protocol::Grpc { streams: 3 };
                spec.tls = Some(meshtax_load::Tls::default());
                result.grpc_status = [(0, 3)].into();
            },
            |spec, _| {
                spec.protocol = Protocol::Tcp;
                spec.requests_per_connection = Some(3);
                spec.max_requests = Some(10);
                spec.cores = vec![0, 1];
                spec.seed = u64::MAX;
            },
            |spec, result| {
                let rate = Rate::Steps {
                    from_per_s: 1.0,
                    to_per_s: 2.0,
                    steps: 2,
                };
                let arrivals = Arrivals::Poisson;
                spec.model = LoadModel::Open { rate, arrivals };
                spec.interval_ns = None;
                spec.timeout_ns = None;
                result.audit.generator_bound = Some("slow".into());
            },
            |_, result| *result = LoadResult::default(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let text = example::written(change, json);
            assert_eq!(problems(&text), [""; 0], "{number}: {text}");
        }
    }

    #[test]
    fn the_schema_knows_each_field_and_misses_each() {
        let text = example::written(|_, _| {}, json);
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
    fn no_secret_and_nothing_long_is_written() {
        let text = example::written(
            |spec, _| {
                let mut tls = meshtax_load::Tls::default();
                tls.credentials.key_pem = Some("KEY-SECRET".into());
                spec.tls = Some(tls);
                let request = &mut spec.requests[0];
                request
                    .headers
                    .push(("Authorization".into(), "Bearer SECRET".into()));
                request.headers.push(("x-a".into(), "shown".into()));
                request.body = b"BODY".repeat(1000);
                spec.model = LoadModel::Replay {
                    times_ns: vec![0, 987_654_321],
                };
            },
            json,
        );
        for absent in ["SECRET", "Qk9E", "987654321"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        for present in ["\"body_bytes\": 4000", "\"times\": 2", "shown", "(hidden)"] {
            assert!(text.contains(present), "no {present} in {text}");
        }
    }

    #[test]
    fn a_load_without_answers_has_no_percentiles() {
        let value = quantiles(&LatencyHistogram::new());
        assert_eq!(
            (&value["count"], &value["p50"], &value["max"]),
            (&json!(0), &Value::Null, &Value::Null)
        );
    }
}
