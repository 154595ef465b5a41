//! YAML in, and what becomes of it: `good` to the policy in force, `bad` to the exact messages, `warned` to warnings.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_policy::{PolicySet, Source, parse};

/// The texts of a folder beside this file, by name.
fn texts(folder: &str) -> Vec<(String, Source)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let text = |file: PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let source = Source::new(format!("{name}.yaml"), fs::read_to_string(file).unwrap());
        (name, source)
    };
    files.into_iter().map(text).collect()
}

/// Everything of the model, without the texts that it keeps.
fn model(set: &PolicySet) -> String {
    let all = format!("{:#?}\n{:#?}", set.dependencies, set.workloads);
    all.lines().filter(|line| !line.trim_start().starts_with("yaml: ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn good_policy_becomes_what_is_in_force() {
    for (name, source) in texts("good") {
        let set = parse(std::slice::from_ref(&source)).unwrap_or_else(|wrong| panic!("{name}:\n{wrong}"));
        insta::assert_snapshot!(format!("good-{name}"), set.to_yaml());
    }
}

#[test]
fn policy_in_force_is_the_same_policy() {
    for (name, source) in texts("good") {
        let set = parse(&[source]).unwrap();
        let again = Source::new(format!("{name}.yaml"), set.to_yaml());
        let again = parse(&[again]).unwrap_or_else(|wrong| panic!("{name}:\n{wrong}"));
        assert_eq!(again.to_yaml(), set.to_yaml(), "{name}");
        let lines = |set: &PolicySet| {
            let model = model(set);
            model.lines().filter(|line| !line.trim_start().starts_with("line: ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(&again), lines(&set), "{name}");
    }
}

/// The second opinion: another parser reads what is written as the same tree of text, numbers and truths.
#[test]
fn policy_in_force_is_read_alike_by_others() {
    for (name, source) in texts("good") {
        let set = parse(&[source]).unwrap();
        for document in set.to_yaml().split("---\n") {
            let tree: serde_yaml::Value = serde_yaml::from_str(document).unwrap();
            let again = Source::new(&name, serde_json::to_string(&tree).unwrap());
            assert_eq!(parse(&[again]).unwrap().to_yaml(), document, "{name}");
        }
    }
}

#[test]
fn bad_policy_is_refused_with_all_that_is_wrong() {
    for (name, source) in texts("bad") {
        let wrong = parse(&[source]).expect_err(&name);
        assert!(wrong.errors().count() > 0, "{name}");
        insta::assert_snapshot!(format!("bad-{name}"), wrong.to_string());
    }
}

#[test]
fn doubtful_policy_is_taken_with_warnings() {
    for (name, source) in texts("warned") {
        let set = parse(&[source]).unwrap_or_else(|wrong| panic!("{name}:\n{wrong}"));
        let warnings: Vec<_> = set.warnings.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(format!("warned-{name}"), warnings.join("\n\n"));
    }
}
