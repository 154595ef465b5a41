//! The first byte of the input chooses the method that is answered, the rest is what a server sends.

#![no_main]

#[path = "../../../proxy/h1/tests/invariants/mod.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((&choice, bytes)) = bytes.split_first() {
        invariants::response(invariants::method(choice), bytes);
    }
});
