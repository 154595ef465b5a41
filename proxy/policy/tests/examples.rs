//! The examples of the repository are policy, and nothing about them calls for a warning.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use plimsoll_policy::{PolicySet, load, parse};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn example(path: PathBuf) -> PolicySet {
    parse(&load(&[path]).unwrap()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn every_example_is_taken_without_a_warning() {
    let mut taken = 0;
    for file in std::fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            assert_eq!(example(path.clone()).warnings, [], "{}", path.display());
            taken += 1;
        }
    }
    assert!(taken >= 3);
}

#[test]
fn the_payments_example_in_force() {
    insta::assert_snapshot!(example(folder().join("payments.yaml")).to_yaml());
}
