//! What is generated from the declarations: the table of defaults, and schemas that say the same as the parser.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use plimsoll_policy::{Kind, Source, defaults, defaults_text, parse, schema};
use serde_json::{Value, json};

#[test]
fn the_table_of_defaults() {
    insta::assert_snapshot!(defaults_text());
}

#[test]
fn every_field_is_described() {
    for kind in Kind::ALL {
        for row in defaults(kind) {
            assert!(!row.default.is_empty() && row.description.ends_with('.'), "{row:?}");
        }
    }
}

#[test]
fn the_schemas() {
    for kind in Kind::ALL {
        let text = serde_json::to_string_pretty(&schema(kind)).unwrap();
        insta::assert_snapshot!(format!("schema-{}", kind.as_str()), text);
    }
}

/// What a value breaks, for the keywords that our schemas use. A keyword that is not known here is a failure too.
fn violations(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().unwrap() {
        if !holds(keyword, rule, schema, value, path, found) {
            found.push(format!("{path}: {keyword}"));
        }
    }
}

fn holds(keyword: &str, rule: &Value, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) -> bool {
    match (keyword, value) {
        ("$schema" | "title" | "description", _) => true,
        ("type", _) => type_of(value) == rule.as_str().unwrap(),
        ("enum", _) => rule.as_array().unwrap().contains(value),
        ("anyOf", _) => rule.as_array().unwrap().iter().any(|schema| is_valid(schema, value)),
        ("minimum", Value::Number(number)) => number.as_i64() >= rule.as_i64(),
        ("maximum", Value::Number(number)) => number.as_i64() <= rule.as_i64(),
        ("minItems", Value::Array(items)) => items.len() as u64 >= rule.as_u64().unwrap(),
        ("minLength", Value::String(text)) => text.len() as u64 >= rule.as_u64().unwrap(),
        ("maxLength", Value::String(text)) => text.len() as u64 <= rule.as_u64().unwrap(),
        ("pattern", Value::String(text)) => regex_lite::Regex::new(rule.as_str().unwrap()).unwrap().is_match(text),
        ("required", Value::Object(fields)) => {
            rule.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
        }
        ("items", Value::Array(items)) => {
            items.iter().enumerate().for_each(|(index, item)| {
                violations(rule, item, &format!("{path}[{index}]"), found);
            });
            true
        }
        ("properties", Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some(rule) = rule.get(name) {
                    violations(rule, value, &format!("{path}.{name}"), found);
                }
            }
            true
        }
        ("additionalProperties", Value::Object(fields)) => {
            let known = schema.get("properties").and_then(Value::as_object);
            let other = fields.iter().filter(|(name, _)| known.is_none_or(|known| !known.contains_key(*name)));
            match rule {
                Value::Bool(allowed) => *allowed || other.count() == 0,
                rule => {
                    other.for_each(|(name, value)| {
                        violations(rule, value, &format!("{path}.{name}"), found);
                    });
                    true
                }
            }
        }
        // A keyword for another type of value says nothing.
        (
            "minimum"
            | "maximum"
            | "minItems"
            | "minLength"
            | "maxLength"
            | "pattern"
            | "required"
            | "items"
            | "properties"
            | "additionalProperties",
            _,
        ) => true,
        _ => panic!("{keyword} at {path}"),
    }
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    let mut found = Vec::new();
    violations(schema, value, "", &mut found);
    found.is_empty()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What the schema of its kind says about each document of a text.
fn verdicts(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let document: Value = serde::Deserialize::deserialize(document).unwrap();
        let kind = Kind::ALL.into_iter().find(|kind| document["kind"] == kind.as_str());
        if let Some(kind) = kind {
            violations(&schema(kind), &document, "", &mut found);
        }
    }
    found
}

fn texts(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    yaml.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn schemas_take_what_the_parser_takes() {
    for (name, text) in texts("tests/good").into_iter().chain(texts("tests/warned")) {
        let Ok(set) = parse(&[Source::new(&name, &text)]) else { panic!("{name}") };
        // As in force: the written form may hold a switched-off block that is not supported, which no editor offers.
        assert_eq!(verdicts(&set.to_yaml()), [] as [&str; 0], "{name}");
    }
    for (name, text) in texts("../../examples") {
        assert_eq!(verdicts(&text), [] as [&str; 0], "{name}");
    }
}

#[test]
fn schemas_refuse_what_one_field_alone_gets_wrong() {
    let bad = [
        "unknown-fields",
        "numbers",
        "durations",
        "modes",
        "words",
        "names",
        "kinds-of-value",
        "later-dependency",
        "later-workload",
        "limits-nothing",
    ];
    for name in bad {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/bad/{name}.yaml"))).unwrap();
        assert!(!verdicts(&text).is_empty(), "{name}");
    }
}

#[test]
fn the_checker_checks() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"], "additionalProperties": false});
    assert!(is_valid(&schema, &json!({"a": 1})));
    for wrong in [json!({"a": 0}), json!({"a": "1"}), json!({}), json!({"a": 1, "b": 1}), json!([])] {
        assert!(!is_valid(&schema, &wrong), "{wrong}");
    }
}
