use std::collections::BTreeSet;

use super::*;

#[test]
fn every_file_is_whole() {
    for text in FILES {
        let set = parse(text).unwrap_or_else(|why| panic!("{why}"));
        assert!(
            !set.rows.is_empty() && !set.caveats.is_empty(),
            "{}",
            set.name
        );
        for text in [
            &set.title,
            &set.source,
            &set.environment,
            &set.workload,
            &set.measures,
        ] {
            assert!(!text.trim().is_empty(), "{}", set.name);
        }
        assert_eq!(set.read.len(), "2026-11-22".len(), "{}", set.name);
    }
}

#[test]
fn no_file_of_the_directory_is_forgotten() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/data/results");
    let there = std::fs::read_dir(directory).unwrap().count();
    assert_eq!(there, FILES.len());
    let names: BTreeSet<&str> = results().iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), FILES.len(), "every name is there once");
    assert!(names.iter().all(|name| find(name).is_some()) && find("livewyer").is_none());
}

#[test]
fn rows_are_of_declared_variants_and_none_is_there_twice() {
    for set in results() {
        let mut seen = BTreeSet::new();
        for row in &set.rows {
            assert!(
                set.variant(&row.variant).is_some(),
                "{}: {}",
                set.name,
                row.variant
            );
            assert!(
                seen.insert((&row.variant, &row.at)),
                "{}: {row:?}",
                set.name
            );
            let says_something = row.remark.is_some() || row.figures.iter().any(Option::is_some);
            assert!(says_something, "{}: {row:?}", set.name);
        }
        for variant in &set.variants {
            let is_used = set.rows.iter().any(|row| row.variant == variant.id);
            assert!(is_used, "{}: {}", set.name, variant.id);
        }
    }
}

#[test]
fn units_are_those_of_their_metrics() {
    for set in results() {
        let mut seen = BTreeSet::new();
        for column in &set.columns {
            let is_share = column.base_unit() == BaseUnit::Ratio;
            assert!(!is_share || column.over.is_some(), "{}: of what?", set.name);
            let fits = is_share || column.base_unit() == column.metric.base_unit();
            assert!(fits, "{}: {column:?}", set.name);
            assert!(
                seen.insert(format!("{column:?}")),
                "{}: {column:?} twice",
                set.name
            );
        }
    }
}

#[test]
fn sources_on_the_web_are_addresses() {
    for set in results() {
        for url in set
            .url
            .iter()
            .chain(set.rows.iter().filter_map(|r| r.url.as_ref()))
        {
            assert!(url.starts_with("https://"), "{}: {url}", set.name);
        }
    }
}

/// The published figure of a row, and its normalised value.
fn figure(set: &str, variant: &str, at: &[&str], column: usize) -> (String, f64) {
    let set = find(set).unwrap();
    let row = set.rows.iter().find(|r| r.variant == variant && r.at == at);
    let figure = row.unwrap().figures[column].clone().unwrap();
    (figure.published, figure.value)
}

/// Variant, row and column; the figure as published, and normalised.
type Published = (
    &'static str,
    &'static [&'static str],
    usize,
    &'static str,
    f64,
);

const LIVEWYER_POD: &[Published] = &[
    ("istio", &["32"], 4, "0.3872", 387_200_000.0),
    ("baseline", &["32"], 1, "157.4456", 157.4456),
    ("cilium", &["128"], 5, "1.7041", 1_704_100_000.0),
    ("istio", &["32"], 5, "0.4350", 435_000_000.0),
];

const LIVEWYER_INGRESS: &[Published] = &[
    ("linkerd", &["64"], 2, "0.4489", 448_900_000.0),
    ("baseline", &["128"], 4, "3.0331", 3_033_100_000.0),
];

const AMBIENT_RATES: &[Published] = &[
    ("mtls-l7", &["160"], 3, "2.089", 2_089_000.0),
    ("mtls-l7-sandwich", &["16000"], 3, "1.000", 1_000_000.0),
    ("mtls", &["1600"], 0, "0.406", 406_000.0),
];

const PODS_VEGETA: &[Published] = &[
    ("linkerd", &["50", "20"], 4, "1006", 1_006_000.0),
    ("linkerd", &["90", "20"], 6, "27.51", 0.02751),
    ("linkerd", &["1", "20"], 9, "21.00", 22_020_096.0),
];

const TEASTORE_USERS: &[Published] = &[
    ("istio", &["20"], 1, "133", 1.33),
    ("bare", &["20"], 4, "9749", 9_749_000_000.0),
];

const LINKERD_BENCH: &[Published] = &[("istio-ambient", &["2000"], 3, "262.6", 262_600_000.0)];

const ISTIO_RESOURCES: &[Published] = &[("ztunnel", &["1000 requests/s"], 0, "0.06", 0.06)];

const ISTIO_LATENCY: &[Published] = &[("ambient-l4", &["1.22", "even"], 1, "0.20", 200_000.0)];

#[test]
fn figures_are_those_of_their_sources() {
    for (set, rows) in [
        ("livewyer-pod", LIVEWYER_POD),
        ("livewyer-ingress", LIVEWYER_INGRESS),
        ("ambient-rates", AMBIENT_RATES),
        ("pods-vegeta", PODS_VEGETA),
        ("teastore-users", TEASTORE_USERS),
        ("linkerd-bench-2025", LINKERD_BENCH),
        ("istio-docs-resources", ISTIO_RESOURCES),
        ("istio-docs-latency", ISTIO_LATENCY),
    ] {
        for (variant, at, column, published, value) in rows {
            let found = figure(set, variant, at, *column);
            let expected = ((*published).to_owned(), *value);
            assert_eq!(found, expected, "{set} {variant} {at:?}");
        }
    }
}

#[test]
fn differences_match_those_of_the_source() {
    let p99 = |variant: &str, rate: &str| figure("linkerd-bench-2025", variant, &[rate], 3).1;
    let apart = |a: &str, b: &str, rate: &str| ((p99(a, rate) - p99(b, rate)) / 1e4).round() / 1e2;
    assert_eq!(apart("istio-sidecar", "linkerd", "200"), 22.83);
    assert_eq!(apart("istio-sidecar", "baseline", "200"), 19.9);
    assert_eq!(apart("istio-sidecar", "istio-ambient", "200"), 18.5);
    assert_eq!(apart("istio-sidecar", "linkerd", "2000"), 163.0);
    assert_eq!(apart("istio-ambient", "linkerd", "2000"), 11.2);
}

#[test]
fn failed_rows_have_a_remark() {
    let failed = |name: &str| {
        let rows = &find(name).unwrap().rows;
        let remarks = rows.iter().filter_map(|r| r.remark.as_deref());
        remarks.filter(|r| r.starts_with("failed")).count()
    };
    assert_eq!(failed("livewyer-ingress"), 2);
    assert_eq!(failed("livewyer-pod"), 0);
    assert_eq!(failed("teastore-users"), 1);
}

#[test]
fn values_are_normalised() {
    let set = find("ambient-rates").unwrap();
    let row = set.rows.last().unwrap();
    let variant = set.variant(&row.variant).unwrap();
    assert_eq!(
        variant.data_plane.as_deref(),
        Some("ztunnel-waypoint-sandwich")
    );
    assert_eq!(variant.level, Some(PolicyLevel::L7));
    let p99 = set
        .values(row)
        .find(|v| v.metric == Metric::LatencyP99)
        .unwrap();
    assert_eq!((p99.value, p99.unit), (1_000_000.0, BaseUnit::Nanoseconds));
    let teastore = find("teastore-users").unwrap();
    let missing = teastore.rows.iter().find(|r| r.remark.is_some()).unwrap();
    assert_eq!(teastore.values(missing).count(), 0);
}

fn rejected(from: &str, to: &str) -> DataError {
    let good = FILES[0];
    let bad = good.replacen(from, to, 1);
    assert_ne!(good, bad, "{from} is in the file");
    parse(&bad).unwrap_err()
}

#[test]
fn invalid_files_are_rejected() {
    for (from, to) in [
        ("title:", "tilte:"),
        ("unit: 1/s", "unit: furlongs"),
        ("metric: throughput", "metric: speed"),
        ("kind: closed-loop", "kind: closed"),
    ] {
        let error = rejected(from, to);
        assert!(
            matches!(error, DataError::Yaml(_)),
            "{from} -> {to}: {error}"
        );
    }
    let error = rejected("2494.2895,", "2494.2895, 1,");
    assert!(
        matches!(&error, DataError::RowLength { row, .. } if row == "istio at 32"),
        "{error}"
    );
    let error = rejected("at: [32], values: [2494", "at: [32, 1], values: [2494");
    assert!(
        matches!(&error, DataError::RowLength { row, .. } if row == "istio at 32, 1"),
        "{error}"
    );
    let error = rejected("2494.2895", "fast");
    assert!(
        matches!(&error, DataError::NotANumber { text, .. } if text == "fast"),
        "{error}"
    );
}
