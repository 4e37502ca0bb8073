//! The JSON schema knows the same keys and words as the parser.

use serde_json::Value;

use super::super::keys;
use super::*;

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the schema is JSON")
}

fn names_in(properties: &Value) -> Vec<String> {
    let mut names: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
    names.sort();
    names
}

fn sorted(keys: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

#[test]
fn the_schema_has_exactly_the_keys_that_are_read() {
    let schema = schema();
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    assert_eq!(names_in(&schema["properties"]), sorted(&keys::TOP));
    let class = &schema["$defs"]["class"];
    assert_eq!(names_in(&class["properties"]), sorted(&keys::CLASS));
}

#[test]
fn every_word_of_the_schema_is_read() {
    let schema = schema();
    let words = |of: &Value| of["enum"].as_array().unwrap().clone();
    let class = &schema["$defs"]["class"]["properties"];
    for key in ["volumeMode", "accessMode"] {
        for word in words(&class[key]) {
            let config = super::class(&format!("  {key}: {word}"));
            assert_eq!(config.findings, [], "{key}: {word}");
        }
    }
    for word in words(&schema["$defs"]["boolean"]) {
        // As it is written, which is without quotes.
        let word = word
            .as_str()
            .map_or_else(|| word.to_string(), str::to_owned);
        assert_eq!(
            errors(&config(&[("useNodeNameOnly", &word)])),
            [""; 0],
            "{word}"
        );
    }
    for word in words(&schema["$defs"]["requirement"]["properties"]["operator"]) {
        let values = match word.as_str().unwrap() {
            "Exists" | "DoesNotExist" => "[]",
            _ => "[1]",
        };
        let term =
            format!("{{matchExpressions: [{{key: a, operator: {word}, values: {values}}}]}}");
        assert_eq!(
            super::class(&format!("  selector: [{term}]")).findings,
            [],
            "{word}"
        );
    }
}

#[test]
fn every_reference_in_the_schema_leads_somewhere() {
    fn check(value: &Value, root: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(target)) = map.get("$ref") {
                    let pointer = target.trim_start_matches('#');
                    assert!(root.pointer(pointer).is_some(), "{target}");
                }
                map.values().for_each(|value| check(value, root));
            }
            Value::Array(items) => items.iter().for_each(|value| check(value, root)),
            _ => {}
        }
    }
    check(&schema(), &schema());
}
