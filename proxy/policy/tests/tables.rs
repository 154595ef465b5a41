//! What is generated from the declarations: the table of defaults, and schemas that say the same as the parser.
#![allow(clippy::unwrap_used)]

mod checker;

use std::fs;
use std::path::Path;

use checker::{is_valid, verdicts};
use plimsoll_policy::{Kind, Source, defaults, defaults_text, parse, schema};
use serde_json::json;

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
        "rates",
        "tls",
        "protocols",
        "grpc-matches",
    ];
    for name in bad {
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/bad/{name}.yaml"))).unwrap();
        assert!(!verdicts(&text).is_empty(), "{name}");
    }
}

#[test]
fn the_checker_checks() {
    let properties = json!({"a": {"type": "integer", "minimum": 1}});
    let schema = json!({"type": "object", "properties": properties, "required": ["a"], "additionalProperties": false});
    assert!(is_valid(&schema, &json!({"a": 1})));
    for wrong in [json!({"a": 0}), json!({"a": "1"}), json!({}), json!({"a": 1, "b": 1}), json!([])] {
        assert!(!is_valid(&schema, &wrong), "{wrong}");
    }
}
