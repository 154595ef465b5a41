//! HTTP/2 as RFC 9113 and RFC 7541 have it: a table of frames that are sent and the answers due to them.
//!
//! The rows are the cases of h2spec, as far as each can be written down from the two RFCs, and some that it lacks.
//! nghttpd is held to the same table, so that a row which is wrong about the RFC is not blamed on the proxy.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod case;
mod connection;
mod messages;
mod streams;

use std::net::SocketAddr;
use std::process::Command;

use case::{Case, Seen};
use plimsoll_tests::h2::{Peer, Server};
use plimsoll_tests::process::{Process, require_program};
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::upstream::{self, Upstream};
use plimsoll_tests::{address, eventually};

fn table() -> Vec<Case> {
    let last = vec![streams::concurrency()];
    [connection::cases(), streams::cases(), messages::cases(), last].into_iter().flatten().collect()
}

/// Runs every row; what is wrong, one line each.
fn run_all(name: &str, server: SocketAddr) -> Vec<String> {
    let table = table();
    let (mut wrong, mut silent) = (Vec::new(), 0);
    for case in &table {
        match case::run(case, server) {
            Ok(seen)
                if std::env::var("SHOW").is_ok() && {
                    println!("{case}: {seen:?}");
                    false
                } => {}
            Ok(seen) => silent += usize::from(seen == Seen::Closed),
            Err(problem) => wrong.push(format!("{case}: {problem}")),
        }
    }
    let passed = table.len() - wrong.len();
    println!("{name}: {passed} of {} rows, {silent} of them by closing without GOAWAY", table.len());
    wrong
}

/// Where the reference itself is not as the RFC has it: it ignores a stream id that went by, and ends the stream where
/// the connection is due.
const NGHTTPD_DIFFERS: [&str; 2] = ["5.1.1 a smaller stream id", "6.9.2 settings that raise a window above 2^31-1"];

#[test]
fn nghttpd_as_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "0123456789").unwrap();
    let address = address::reserve();
    let mut command = Command::new(require_program("nghttpd"));
    command
        .args(["--no-tls", "-a", &address.ip().to_string(), "-d"])
        .arg(folder.path())
        .arg(address.port().to_string());
    let _server = Process::start(&mut command);
    eventually("nghttpd listens", || Peer::try_connect(address).is_ok());
    let mut wrong = run_all("nghttpd", address);
    wrong.retain(|line| !NGHTTPD_DIFFERS.iter().any(|row| line.starts_with(row)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs the table through a proxy before `server`.
fn proxied(server: SocketAddr, upstream_protocol: &str) {
    let mut dependency = listened("fraud-api", server, "  timeouts: {connect: 10s}");
    let target = format!("target:\n    protocol: HTTP2\n    upstreamProtocol: {upstream_protocol}");
    dependency.policy = dependency.policy.replace("target:", &target);
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let wrong = run_all(&format!("plimsoll-proxy, {upstream_protocol} behind it"), dependency.listen);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_proxy_before_http1() {
    let server = Upstream::start(|_| upstream::ok("0123456789"));
    proxied(server.address, "HTTP1");
}

#[test]
fn the_proxy_before_http2() {
    let server = Server::answering("0123456789");
    proxied(server.address, "HTTP2");
}
