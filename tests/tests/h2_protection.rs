//! What is promised for HTTP/1.1 holds for calls that share a connection: limits, breakers, policy that changes, the
//! end of a proxy.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plimsoll_tests::eventually;
use plimsoll_tests::h2::{Answer, Load, Server, Session, request};
use plimsoll_tests::load::Tally;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Step, Upstream};

/// A dependency of this protocol.
fn dependency(server: SocketAddr, upstream_protocol: &str, spec: &str) -> Listened {
    let mut dependency = listened("fraud-api", server, spec);
    let target = format!("target:\n    upstreamProtocol: {upstream_protocol}");
    dependency.policy = dependency.policy.replace("target:", &target);
    dependency
}

fn refused(proxy: &Proxy, reason: &str) -> usize {
    proxy.admin.metric("plimsoll_rejections_total", &[("reason", reason)]) as usize
}

fn in_flight(proxy: &Proxy) -> u64 {
    proxy.admin.dependency("fraud-api")["bulkheads"][0]["in_flight"].as_u64().expect("a number")
}

/// Every call was answered with 200, and no connection was lost.
fn assert_unharmed(tally: &Tally, what: &str) {
    assert!(tally.failures.is_empty(), "{what}: {:?}", &tally.failures[..tally.failures.len().min(3)]);
    assert_eq!((tally.ok(), tally.closed), (tally.answers(), 0), "{what}: {tally:?}");
}

#[test]
fn twenty_permits_for_200_streams_of_two_workers() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start(move |_| upstream::behind(&held, upstream::ok("ok")));
    let dependency = dependency(server.address, "HTTP1", "  bulkhead: {maxConcurrentCalls: 20}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut sessions: Vec<Session> = (0..8).map(|_| Session::connect(dependency.listen)).collect();
    let streams: Vec<Vec<u32>> = sessions
        .iter_mut()
        .map(|session| (0..25).map(|_| session.begin(&request("GET", "/"), true)).collect())
        .collect();
    eventually("180 calls are refused", || refused(&proxy, "BulkheadFull") == 180);
    eventually("20 are at the server", || server.in_flight() == 20);
    gate.open();
    let mut answers: Vec<Answer> = Vec::new();
    for (session, streams) in sessions.iter_mut().zip(&streams) {
        answers.extend(streams.iter().map(|stream| session.answer(*stream)));
        assert!(session.goaways.is_empty(), "a refusal costs no connection");
    }
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 20);
    let refusals: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert_eq!(refusals.len(), 180);
    for refusal in refusals {
        assert_eq!(refusal.reason(), Some("BulkheadFull"), "{refusal:?}");
        assert!(refusal.text().contains("shop/fraud-api"), "a person can act on it: {refusal:?}");
    }
    assert_eq!(server.most_in_flight(), 20);
}

#[test]
fn never_21_while_calls_come_and_go() {
    let server = Upstream::start(|_| upstream::after(Duration::from_millis(2), upstream::ok("ok")));
    let dependency = dependency(server.address, "HTTP1", "  bulkhead: {maxConcurrentCalls: 20}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let load = Load::start(dependency.listen, 8, 16);
    load.wait_for_more(10_000);
    let tally = load.finish();
    assert!(server.most_in_flight() <= 20, "{}", server.most_in_flight());
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    assert_eq!(tally.reasons.keys().collect::<Vec<_>>(), ["BulkheadFull"]);
    assert_eq!(tally.ok(), server.requests());
    assert_eq!(tally.connections, 8);
    eventually("every permit is back", || in_flight(&proxy) == 0);
}

/// A worker that has no connection has its turn even while the other one's is in use.
#[test]
fn one_socket_serves_the_calls_of_two_workers() {
    let server = Server::answering("ok");
    let dependency = dependency(
        server.address,
        "HTTP2",
        "  bulkhead: {maxConnections: 1, maxWaitDuration: 10s}\n  timeouts: {connect: 20s}",
    );
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let load = Load::start(dependency.listen, 8, 8);
    load.wait_for_more(4_000);
    assert_unharmed(&load.finish(), "with one socket");
    assert_eq!(refused(&proxy, "BulkheadWaitTimeout"), 0);
}

#[test]
fn permits_of_streams_that_are_reset_come_back() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let dependency = dependency(server.address, "HTTP1", "  bulkhead: {maxConcurrentCalls: 20}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut session = Session::connect(dependency.listen);
    let streams: Vec<u32> = (0..20).map(|_| session.begin(&request("GET", "/"), true)).collect();
    server.wait_for_requests(20);
    assert_eq!(session.get("/").reason(), Some("BulkheadFull"));
    for stream in &streams[..10] {
        session.send(plimsoll_tests::h2::frame::reset(*stream, plimsoll_tests::h2::frame::code::CANCEL));
    }
    eventually("ten permits are back", || in_flight(&proxy) == 10);
    eventually("the server sees ten callers leave", || server.abandoned() == 10);
    drop(session);
    eventually("the rest come back with the connection", || in_flight(&proxy) == 0);
}

#[test]
fn a_hung_dependency_opens_the_breaker_soon_after_the_slow_threshold() {
    // It takes requests and never answers them.
    let server = Server::start(&[], |session, _| {
        session.wait_for(Duration::from_secs(60), |_| false);
    });
    let spec = "  timeouts: {request: 10s}\n  circuitBreaker: {slowCallDurationThreshold: 600ms}";
    let dependency = dependency(server.address, "HTTP2", spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let begun = Instant::now();
    let mut session = Session::connect(dependency.listen);
    let streams: Vec<u32> = (0..20).map(|_| session.begin(&request("GET", "/"), true)).collect();
    eventually("the breaker opens", || proxy.admin.circuit("fraud-api") == "Open");
    assert!(begun.elapsed() >= Duration::from_millis(600));
    assert!(begun.elapsed() < Duration::from_secs(8), "it must not wait for the timeout: {:?}", begun.elapsed());
    let refusal = session.get("/");
    assert_eq!((refusal.status, refusal.reason()), (503, Some("CircuitOpen")), "{refusal:?}");
    assert!(refusal.field("retry-after").is_some(), "{refusal:?}");
    assert!(streams.iter().all(|stream| !session.stream(*stream).is_over()), "those in flight are not cut");
}

#[test]
fn forty_swaps_under_load_fail_no_call_and_close_no_connection() {
    for upstream_protocol in ["HTTP1", "HTTP2"] {
        let (old, new) = (Upstream::start(|_| upstream::ok("ok")), Server::answering("ok"));
        let address = if upstream_protocol == "HTTP1" { old.address } else { new.address };
        let spec = |round: usize| {
            let breaker = if round.is_multiple_of(2) { "  circuitBreaker: {}\n" } else { "" };
            let seconds = 5 + round % 7;
            format!(
                "  timeouts: {{request: {seconds}s}}\n  bulkhead: {{maxConcurrentCalls: {}}}\n{breaker}",
                100 + round
            )
        };
        let dependency = dependency(address, upstream_protocol, &spec(0));
        let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
        let load = Load::start(dependency.listen, 4, 8);
        for round in 1..=20 {
            let policy = dependency.policy.replace(spec(0).trim_matches('\n'), spec(round).trim_matches('\n'));
            let (status, said) = proxy.admin.put_policy(&policy);
            assert_eq!((status, &said["accepted"]), (200, &serde_json::json!(true)), "{said}");
            load.wait_for_more(50);
        }
        let tally = load.finish();
        assert_unharmed(&tally, upstream_protocol);
        assert_eq!(tally.connections, 4, "each caller kept its one connection");
    }
}

#[test]
fn sigterm_under_load_loses_no_call() {
    for (upstream_protocol, drain) in [
        ("HTTP1", "{delay: 1s, grace: 20s}"),
        ("HTTP2", "{delay: 0s, grace: 20s}"),
        ("HTTP2", "{delay: 1s, grace: 20s}"),
    ] {
        let old = Upstream::start(|_| upstream::after(Duration::from_millis(3), upstream::ok("ok")));
        let new = Server::answering("ok");
        let address = if upstream_protocol == "HTTP1" { old.address } else { new.address };
        let dependency = dependency(address, upstream_protocol, "  timeouts: {request: 60s}");
        let workload = format!(
            "---\napiVersion: plimsoll.dev/v1alpha1\nkind: WorkloadPolicy\nmetadata: {{name: payments, namespace: shop}}\n\
             spec: {{workload: payments, drain: {drain}}}\n"
        );
        let setup = Setup::new().workers(2).policy(&(dependency.policy.clone() + &workload));
        let mut proxy = setup.arg("--workload").arg("payments").start();
        let load = Load::start(dependency.listen, 8, 8);
        load.wait_for_more(1_000);
        proxy.terminate();
        let status = proxy.process.wait(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{}", proxy.process.output());
        eventually("callers find nobody", || load.ended());
        let tally = load.finish();
        assert_unharmed(&tally, drain);
        assert_eq!(tally.refused, 8, "each caller stopped because nobody listened");
    }
}

#[test]
fn a_draining_proxy_says_goaway_twice_and_answers_what_it_took() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start(move |_| upstream::behind(&held, upstream::ok("ok")));
    let dependency = dependency(server.address, "HTTP1", "  timeouts: {request: 60s}");
    let mut proxy = Setup::new().policy(&dependency.policy).start();
    let mut session = Session::connect(dependency.listen);
    let first = session.begin(&request("GET", "/"), true);
    server.wait_for_requests(1);
    proxy.terminate();
    assert!(session.wait(|session| !session.goaways.is_empty()), "{}", session.describe());
    assert_eq!(session.goaways[0], (0x7fff_ffff, 0), "the first names no last stream (RFC 9113 6.8)");
    // What was on its way before the caller read it is served too.
    let second = session.begin(&request("GET", "/"), true);
    session.wait(|session| session.goaways.len() > 1);
    let (last, code) = session.goaways[1];
    assert!(code == 0 && (last == first || last == second), "{:?}", session.goaways);
    gate.open();
    assert_eq!(session.answer(first).status, 200);
    if last == second {
        assert_eq!(session.answer(second).status, 200);
    }
    session.wait(|session| session.peer.is_closed());
    assert_eq!(proxy.process.wait(Duration::from_secs(20)).code(), Some(0), "{}", proxy.process.output());
}
