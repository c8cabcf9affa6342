//! The OpenMetrics document keeps to the rules of its specification, whatever is in a run.

use std::collections::{BTreeMap, BTreeSet};

use meshtax_model::analysis::Analysis;
use meshtax_model::experiment::VariantId;

use crate::fixtures;

/// A sample: its name, its labels and its value.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

#[derive(Debug, Default)]
struct Family {
    kind: String,
    unit: String,
    samples: Vec<Sample>,
}

fn is_name(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// `NAME{a="b",c="d"} VALUE`
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (key, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(key), "{line}");
            let (value, after) = quoted(after);
            assert_eq!(labels.insert(key.to_owned(), value), None, "{line}");
            match after.split_at(1) {
                (",", more) => rest = more,
                ("}", more) => {
                    rest = more;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().unwrap_or_else(|e| panic!("{line}: {e}")),
    }
}

/// A value up to its quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (escaped, c) {
            (true, 'n') => value.push('\n'),
            (true, '\\' | '"') => value.push(c),
            (true, other) => panic!("\\{other} in {text}"),
            (false, '\\') => {}
            (false, '"') => return (value, &text[at + 1..]),
            (false, c) => value.push(c),
        }
        escaped = !escaped && c == '\\';
    }
    panic!("no end: {text}");
}

/// Its families, each in one piece and described before its samples.
fn parsed(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("an end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        let Some(meta) = line.strip_prefix("# ") else {
            let sample = sample(line);
            let family = families.get_mut(&current).expect("a family");
            let expected = match family.kind.as_str() {
                "info" => format!("{current}_info"),
                _ => current.clone(),
            };
            assert_eq!(sample.name, expected, "{line}");
            family.samples.push(sample);
            continue;
        };
        let words: Vec<&str> = meta.splitn(3, ' ').collect();
        let [what, name, content] = words[..] else {
            panic!("{line}");
        };
        match what {
            "TYPE" => {
                current = name.to_owned();
                let family = Family {
                    kind: content.to_owned(),
                    ..Family::default()
                };
                let earlier = families.insert(current.clone(), family);
                assert!(earlier.is_none(), "{name} is in several pieces");
            }
            "UNIT" => {
                assert!(name.ends_with(&format!("_{content}")), "{line}");
                families.get_mut(name).expect("its type first").unit = content.to_owned();
            }
            "HELP" => assert_eq!(name, current, "{line}"),
            _ => panic!("{line}"),
        }
    }
    families
}

fn check(analysis: &Analysis) -> BTreeMap<String, Family> {
    let families = parsed(&meshtax_report::openmetrics(analysis));
    for (name, family) in &families {
        assert!(is_name(name) && name.starts_with("meshtax_"), "{name}");
        let labels: BTreeSet<_> = family.samples.iter().map(|s| &s.labels).collect();
        assert_eq!(
            labels.len(),
            family.samples.len(),
            "{name}: the same labels twice"
        );
        if family.kind == "stateset" {
            let is_state =
                |s: &Sample| s.labels.contains_key(name) && [0.0, 1.0].contains(&s.value);
            assert!(family.samples.iter().all(is_state), "{name}");
        }
        assert!(family.samples.iter().all(|s| s.value.is_finite()), "{name}");
    }
    families
}

#[test]
fn every_run_is_a_document_that_a_strict_reader_takes() {
    for (_, analysis) in fixtures::all() {
        check(&analysis);
    }
}

#[test]
fn estimates_lie_within_their_interval_in_base_units() {
    let analysis = fixtures::quick();
    let families = check(&analysis);
    let of = |bound: &str| {
        let mut samples = families["meshtax_difference_seconds"].samples.iter();
        let wanted = [
            ("variant", "envoy-sidecar-l7"),
            ("load_point", "steady"),
            ("metric", "response_p50"),
            ("bound", bound),
        ];
        let is_it = |s: &&Sample| wanted.iter().all(|(key, value)| s.labels[*key] == *value);
        samples.find(is_it).map(|s| s.value).expect("a sample")
    };
    assert!(of("low") <= of("estimate") && of("estimate") <= of("high"));
    assert!(
        (1e-6..1e-2).contains(&of("estimate")),
        "seconds: {}",
        of("estimate")
    );
    assert_eq!(families["meshtax_difference_seconds"].unit, "seconds");
}

#[test]
fn names_cannot_break_the_document() {
    let mut analysis = fixtures::quick();
    analysis.run.id = "a\"b\\c\nd\u{1b}".to_owned();
    let strange = VariantId("x\"} 1\n# EOF".to_owned());
    analysis.experiment.variants[2].id = strange.clone();
    analysis.variants[2].variant = strange;
    let families = check(&analysis);
    let run = &families["meshtax_run"].samples[0];
    assert_eq!(run.labels["run"], "a\"b\\c\nd");
}

#[test]
fn openmetrics_of_a_run() {
    insta::assert_snapshot!(
        "openmetrics_quick",
        meshtax_report::openmetrics(&fixtures::quick())
    );
}
