//! Policy written back as YAML that every parser on the way reads as the same thing, YAML 1.1 ones too: what any of
//! them could take for something else than text is quoted.

use serde_yaml::{Mapping, Value as Yaml};

use crate::value::is_retyped;

/// One document.
pub(crate) fn emit(document: &Mapping) -> String {
    let mut text = String::new();
    emit_map(&mut text, document, 0);
    text
}

fn emit_map(text: &mut String, map: &Mapping, depth: usize) {
    for (index, (name, value)) in map.iter().enumerate() {
        // The first line of a list's item stands behind its dash.
        if index > 0 || !text.ends_with("- ") {
            indent(text, depth);
        }
        text.push_str(&scalar(name));
        text.push(':');
        match value {
            Yaml::Mapping(map) if !map.is_empty() => {
                text.push('\n');
                emit_map(text, map, depth + 1);
            }
            Yaml::Sequence(items) if items.iter().any(Yaml::is_mapping) => {
                text.push('\n');
                emit_items(text, items, depth);
            }
            other => {
                text.push(' ');
                text.push_str(&in_line(other));
                text.push('\n');
            }
        }
    }
}

fn emit_items(text: &mut String, items: &[Yaml], depth: usize) {
    for item in items {
        indent(text, depth);
        text.push_str("- ");
        match item {
            Yaml::Mapping(map) if !map.is_empty() => emit_map(text, map, depth + 1),
            other => {
                text.push_str(&in_line(other));
                text.push('\n');
            }
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

fn in_line(value: &Yaml) -> String {
    match value {
        Yaml::Sequence(items) => format!("[{}]", items.iter().map(in_line).collect::<Vec<_>>().join(", ")),
        Yaml::Mapping(_) => "{}".to_owned(),
        other => scalar(other),
    }
}

fn scalar(value: &Yaml) -> String {
    match value {
        Yaml::Number(number) => number.to_string(),
        Yaml::Bool(flag) => flag.to_string(),
        Yaml::String(text) if is_plain(text) => text.clone(),
        // A JSON string is a double-quoted scalar (YAML 1.2, 1.3).
        Yaml::String(text) => serde_json::Value::from(text.as_str()).to_string(),
        // No block writes anything else.
        Yaml::Null | Yaml::Sequence(_) | Yaml::Mapping(_) | Yaml::Tagged(_) => "null".to_owned(),
    }
}

fn is_plain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'_' | b'-');
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'/');
    first && text.bytes().all(inner) && !is_retyped(text)
}
