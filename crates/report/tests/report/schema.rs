//! The JSON document and its committed schema agree.

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::{fixtures, limits};

const SCHEMA: &str = include_str!("../../../../docs/schema/report-v2.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the schema is JSON")
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).expect("the schema is a schema")
}

fn document(analysis: &meshtax_model::analysis::Analysis) -> Value {
    serde_json::from_str(&meshtax_report::json(analysis)).expect("a report is JSON")
}

#[test]
fn every_fixture_matches_the_schema() {
    let validator = validator();
    let limited = [("limited", limits::limited())];
    for (name, analysis) in fixtures::all().into_iter().chain(limited) {
        let document = document(&analysis);
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn unknown_or_missing_fields_are_rejected() {
    let validator = validator();
    let good = document(&fixtures::quick());
    let mut unknown = good.clone();
    unknown["variants"][0]["surprise"] = json!(1);
    let mut missing = good.clone();
    missing["run"]
        .as_object_mut()
        .expect("an object")
        .remove("seed");
    let mut newer = good.clone();
    newer["format_version"] = json!(meshtax_model::FORMAT_VERSION + 1);
    let mut misspelt = good;
    misspelt["effects"][0]["metric"] = json!("ResponseP50");
    for bad in [unknown, missing, newer, misspelt] {
        assert!(!validator.is_valid(&bad));
    }
}

#[test]
fn schema_has_the_format_version() {
    let version = &schema()["properties"]["format_version"]["const"];
    assert_eq!(*version, json!(meshtax_model::FORMAT_VERSION));
}

/// Every property is described, and no object takes what it does not name.
pub(crate) fn check(at: &str, value: &Value) {
    let Some(fields) = value.as_object() else {
        return;
    };
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        assert_eq!(
            fields.get("additionalProperties"),
            Some(&json!(false)),
            "{at}"
        );
        for (name, property) in properties {
            assert!(
                property.get("description").is_some(),
                "{at}/{name} is not described"
            );
        }
    }
    for (key, item) in fields {
        check(&format!("{at}/{key}"), item);
    }
    for key in ["oneOf", "anyOf"] {
        let items = fields.get(key).and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            check(&format!("{at}/{key}"), item);
        }
    }
}

#[test]
fn every_schema_field_has_a_description() {
    check("", &schema());
}
