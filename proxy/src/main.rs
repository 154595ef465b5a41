//! The plimsoll-proxy binary.
fn main() {}
