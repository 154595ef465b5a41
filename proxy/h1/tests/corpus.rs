//! The inputs of the fuzz targets, replayed.

mod invariants;

use std::{fs, path::Path};

use plimsoll_h1::BodyFraming;

/// Every input of `target`: what reaches much code, and what once showed a fault.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz");
    let inputs: Vec<_> = ["corpus", "findings"]
        .iter()
        .filter_map(|folder| fs::read_dir(fuzz.join(folder).join(target)).ok())
        .flatten()
        .map(|file| fs::read(file.expect("it is listed").path()).expect("it is a file"))
        .collect();
    assert!(inputs.len() > 30, "{target} has {} inputs", inputs.len());
    inputs
}

#[test]
fn requests() {
    for bytes in corpus("h1_request") {
        invariants::request(&bytes);
    }
}

#[test]
fn responses() {
    for bytes in corpus("h1_response") {
        let Some((&choice, bytes)) = bytes.split_first() else {
            continue;
        };
        invariants::response(invariants::method(choice), bytes);
    }
}

#[test]
fn bodies() {
    for bytes in corpus("h1_body") {
        invariants::body(BodyFraming::Chunked, &bytes);
    }
}
