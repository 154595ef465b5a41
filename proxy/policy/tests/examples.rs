//! The examples of the repository are policy.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use plimsoll_policy::{PolicySet, load, parse};

fn example(name: &str) -> PolicySet {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    parse(&load(&[path]).unwrap()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn examples_are_taken_without_a_warning() {
    for name in ["payments.yaml", "minimal.yaml", "inbound.yaml"] {
        assert_eq!(example(name).warnings, [], "{name}");
    }
}
