//! What the tests and the benchmark share: real processes, scripted servers, and clients that see every byte.
//!
//! Everything here talks to the proxy from outside, over sockets and signals, as its users do. Nothing waits for a
//! fixed time: a test names the condition it waits for ([`eventually`]), or holds a server's answer behind a
//! [`upstream::Gate`] until it has seen what it wants to see.

pub mod address;
pub mod admin;
pub mod certificates;
pub mod client;
pub mod h2;
pub mod load;
pub mod names;
pub mod namespace;
pub mod peers;
pub mod process;
pub mod proxy;
pub mod random;
pub mod tcp;
pub mod tools;
pub mod upstream;

use std::time::{Duration, Instant};

/// How long a condition may take before a test fails: long enough for a busy machine, never the reason to pass.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds; panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "gave up waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
