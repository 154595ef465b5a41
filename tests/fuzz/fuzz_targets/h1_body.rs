//! The input is a chunked body and what follows it.

#![no_main]

#[path = "../../../proxy/h1/tests/invariants/mod.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| { invariants::body(plimsoll_h1::BodyFraming::Chunked, bytes) });
