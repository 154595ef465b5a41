//! Our schemas, applied: as much of JSON Schema as they use.

use plimsoll_policy::{Kind, schema};
use serde_json::Value;

/// What the schema of its kind says about each document of a text.
pub fn verdicts(text: &str) -> Vec<String> {
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

pub fn is_valid(schema: &Value, value: &Value) -> bool {
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
