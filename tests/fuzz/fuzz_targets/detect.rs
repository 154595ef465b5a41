//! The input is what a connection begins with.

#![no_main]

#[path = "../../../proxy/tests/invariants/mod.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::detect(bytes));
