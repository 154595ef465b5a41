//! The input is what a client sends.

#![no_main]

#[path = "../../../proxy/h1/tests/invariants/mod.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::request(bytes));
