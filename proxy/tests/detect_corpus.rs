//! The inputs of the fuzz target `detect`, replayed.

mod invariants;

use std::{fs, path::Path};

#[test]
fn first_bytes() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz");
    let mut inputs = 0;
    for folder in ["corpus/detect", "findings/detect"] {
        for file in fs::read_dir(fuzz.join(folder)).into_iter().flatten() {
            invariants::detect(&fs::read(file.expect("it is listed").path()).expect("it is a file"));
            inputs += 1;
        }
    }
    assert!(inputs > 30, "{inputs} inputs");
}
