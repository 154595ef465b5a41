//! What acts on connections that nothing looks into, and how they end with the process.

use std::time::Duration;

use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::tcp::{End, OPAQUE, Peer, Server};

fn start(server: &Server, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("ledger", server.address, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

fn rejections(proxy: &Proxy, reason: &str, mode: &str) -> f64 {
    let labels = [("dependency", "shop/ledger"), ("reason", reason), ("mode", mode)];
    proxy.admin.metric("plimsoll_rejections_total", &labels)
}

/// What `explain` is told of the newest refusal: the reason's cause, what was seen and what is allowed.
#[track_caller]
fn newest_refusal(proxy: &Proxy) -> (String, u64, u64) {
    let decision = &proxy.admin.json("/decisions?limit=1")["decisions"][0];
    let number = |key: &str| decision[key].as_u64().unwrap_or_else(|| panic!("no {key} in {decision}"));
    (decision["cause"].as_str().unwrap_or_default().to_owned(), number("observed"), number("limit"))
}

/// A connection that has been answered, and so is certain to be through.
#[track_caller]
fn echoed(dependency: &Listened) -> Peer {
    let mut client = Peer::connect(dependency.listen);
    client.write(OPAQUE);
    client.expect(OPAQUE);
    client
}

#[track_caller]
fn refused(dependency: &Listened) {
    let mut client = Peer::connect(dependency.listen);
    client.write(OPAQUE);
    client.expect_end(End::Reset);
}

#[test]
fn connections_are_limited_exactly() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, proxy) = start(&server, "  bulkhead: {maxConcurrentCalls: 9, maxConnections: 2}");
    let first = echoed(&dependency);
    let _second = echoed(&dependency);
    refused(&dependency);
    assert_eq!(server.connections(), 2);
    assert_eq!(newest_refusal(&proxy), ("Connections".to_owned(), 2, 2));
    assert_eq!(proxy.admin.dependency("ledger")["connections"]["open"], 2);
    drop(first);
    eventually("a place is free", || {
        let mut client = Peer::connect(dependency.listen);
        client.write(OPAQUE);
        client.try_expect(OPAQUE)
    });
    assert!(rejections(&proxy, "BulkheadFull", "Enforce") >= 1.0);
}

#[test]
fn who_may_wait_gets_the_place_that_becomes_free() {
    let server = Server::start(|peer, _| peer.echo());
    let spec = "  bulkhead: {maxConcurrentCalls: 9, maxConnections: 1, maxQueued: 9, maxWaitDuration: 10s}";
    let (dependency, proxy) = start(&server, spec);
    let first = echoed(&dependency);
    let mut waits = Peer::connect(dependency.listen);
    waits.write(OPAQUE);
    eventually("both are there", || proxy.admin.status()["connections"]["outbound"] == 2);
    drop(first);
    waits.expect(OPAQUE);
}

#[test]
fn in_observe_nobody_is_refused() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, proxy) = start(&server, "  bulkhead: {mode: Observe, maxConcurrentCalls: 9, maxConnections: 1}");
    let _both = (echoed(&dependency), echoed(&dependency));
    eventually("it is counted", || rejections(&proxy, "BulkheadFull", "Observe") == 1.0);
    assert_eq!(rejections(&proxy, "BulkheadFull", "Enforce"), 0.0);
}

#[test]
fn new_connections_have_a_rate() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, proxy) = start(&server, "  bulkhead: {maxConcurrentCalls: 9, connectionRate: 2/h}");
    // What a second allows may come at once: that is one here.
    let _one = echoed(&dependency);
    refused(&dependency);
    assert_eq!(rejections(&proxy, "RateLimited", "Enforce"), 1.0);
    assert_eq!(newest_refusal(&proxy), ("ConnectionRate".to_owned(), 2, 2));
    let rate = proxy.admin.dependency("ledger")["connection_rate"].clone();
    assert_eq!((&rate["asked"], &rate["limit"], &rate["interval_ms"]), (&2.into(), &2.into(), &3_600_000.into()));
}

#[test]
fn why_there_is_no_connection_is_kept_for_who_asks() {
    let address = plimsoll_tests::address::reserve();
    let dependency = listened("ledger", address, "");
    let proxy = Setup::new().policy(&dependency.policy).start();
    refused(&dependency);
    let decision = proxy.admin.json("/decisions?limit=1")["decisions"][0].clone();
    let detail = decision["detail"].as_str().unwrap_or_default();
    assert!(decision["reason"] == "ConnectFailure" && detail.starts_with(&format!("{address}: ")), "{decision}");
}

const BREAKER: &str = "minimumNumberOfCalls: 3, failureRateThreshold: 50, waitDurationInOpenState: 60s";

#[test]
fn early_resets_and_failed_connects_open_the_circuit() {
    let server = Server::start(|mut peer, number| {
        if number < 2 {
            // A good one, and one that ends badly after it has begun well: neither is the dependency's failure.
            peer.expect(OPAQUE);
            peer.write(OPAQUE);
        } else {
            peer.expect(OPAQUE);
        }
        if number > 0 {
            peer.reset();
        }
    });
    let (dependency, proxy) = start(&server, &format!("  circuitBreaker: {{{BREAKER}}}"));
    let mut good = echoed(&dependency);
    good.expect_end(End::Fin);
    drop(good);
    echoed(&dependency).expect_end(End::Reset);
    assert_eq!(proxy.admin.circuit("ledger"), "Closed");
    for _ in 0..2 {
        refused(&dependency);
    }
    eventually("it opens", || proxy.admin.circuit("ledger") == "Open");
    let connections = server.connections();
    refused(&dependency);
    assert_eq!(server.connections(), connections, "nothing is sent to an open circuit");
    assert!(rejections(&proxy, "CircuitOpen", "Enforce") >= 1.0);
    let answer = Client::connect(dependency.listen).get("/");
    assert_eq!(answer.reason(), Some("CircuitOpen"), "the same for HTTP, in its words: {answer}");
}

#[test]
fn silence_ends_a_connection_after_its_idle_timeout() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, proxy) = start(&server, "  timeouts: {idle: 400ms}");
    let mut client = echoed(&dependency);
    // Each byte begins it anew.
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(200));
        client.write("a");
        client.expect("a");
    }
    client.expect_end(End::Reset);
    eventually("it is reported", || rejections(&proxy, "IdleTimeout", "Enforce") == 1.0);
}

#[test]
fn slow_turns_count_when_policy_says_so() {
    let spec = |turns| {
        format!(
            "  circuitBreaker: {{{BREAKER}, slowCallRateThreshold: 60, slowCallDurationThreshold: 150ms, slowTurn: {turns}}}"
        )
    };
    for (turns, opens) in [("Enforce", true), ("Observe", false)] {
        let server = Server::start(|mut peer, _| {
            // The answer to what comes first is there at once, all others take their time.
            peer.expect(OPAQUE);
            peer.write(OPAQUE);
            while peer.try_expect("?") {
                std::thread::sleep(Duration::from_millis(300));
                peer.write("!");
            }
        });
        let (dependency, proxy) = start(&server, &spec(turns));
        let mut client = echoed(&dependency);
        for _ in 0..4 {
            client.write("?");
            client.expect("!");
        }
        let turns = proxy.admin.dependency("ledger")["turns"].clone();
        assert_eq!((turns["slow"].as_u64() >= Some(3), &turns["counted"]), (true, &opens.into()), "{turns}");
        let state = || proxy.admin.circuit("ledger");
        if opens {
            eventually("it opens", || state() == "Open");
            client.write("?");
            client.expect("!");
        } else {
            assert_eq!(state(), "Closed");
        }
    }
}

#[test]
fn what_cannot_act_on_opaque_traffic_is_said() {
    let server = Server::start(|peer, _| peer.echo());
    let spec = "  bulkhead: {maxConcurrentCalls: 9, maxConnections: 9}\n  retry: {maxAttempts: 2}";
    let (dependency, proxy) = start(&server, spec);
    let count = || proxy.admin.metric("plimsoll_policy_fields_ineffective", &[("dependency", "shop/ledger")]);
    assert_eq!(count(), 0.0, "it may yet be HTTP");
    let _client = echoed(&dependency);
    let status = proxy.admin.dependency("ledger");
    let said: Vec<&str> = status["ineffective"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
    assert_eq!(said, ["bulkhead.maxConcurrentCalls", "retry"]);
    assert!(status["way_out"].as_str().unwrap().contains("listen"), "{status}");
    assert_eq!(count(), 2.0);
}

fn drained(server: &Server, grace: &str) -> (Listened, Proxy) {
    let dependency = listened("ledger", server.address, "");
    let workload = format!(
        "---\napiVersion: plimsoll.dev/v1alpha1\nkind: WorkloadPolicy\nmetadata: {{name: payments, namespace: shop}}\n\
         spec: {{workload: payments, drain: {{delay: 0s, grace: {grace}}}}}\n"
    );
    let setup = Setup::new().policy(&(dependency.policy.clone() + &workload));
    let proxy = setup.arg("--workload").arg("payments").start();
    (dependency, proxy)
}

#[test]
fn a_drain_waits_for_what_ends_in_time() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, mut proxy) = drained(&server, "30s");
    let mut client = echoed(&dependency);
    proxy.terminate();
    eventually("the door is closed", || Client::try_connect(dependency.listen).is_err());
    client.write("still here");
    client.expect("still here");
    client.finish();
    client.expect_end(End::Fin);
    assert_eq!(proxy.process.wait(Duration::from_secs(10)).code(), Some(0), "{}", proxy.process.output());
}

#[test]
fn what_outlives_the_grace_is_reset_on_both_sides() {
    let (ended, ends) = std::sync::mpsc::channel();
    let server = Server::start(move |mut peer, _| {
        peer.expect(OPAQUE);
        peer.write(OPAQUE);
        ended.send(peer.read_to_end().1).unwrap();
    });
    let (dependency, mut proxy) = drained(&server, "1s");
    let mut client = echoed(&dependency);
    proxy.terminate();
    client.expect_end(End::Reset);
    assert_eq!(ends.recv().unwrap(), End::Reset);
    proxy.process.wait(Duration::from_secs(10));
}

#[test]
fn a_silent_caller_does_not_hold_up_a_drain() {
    let server = Server::start(|mut peer, _| drop(peer.read_to_end()));
    let (dependency, mut proxy) = drained(&server, "60s");
    let mut client = Peer::connect(dependency.listen);
    server.wait_for_connections(1);
    proxy.terminate();
    client.expect_end(End::Fin);
    assert_eq!(proxy.process.wait(Duration::from_secs(20)).code(), Some(0));
}

#[test]
fn callers_of_the_workload_that_are_too_many_are_turned_away() {
    let server = Server::start(|peer, _| peer.echo());
    let policy = "apiVersion: plimsoll.dev/v1alpha1\nkind: WorkloadPolicy\nmetadata: {name: payments, namespace: shop}\n\
                  spec: {workload: payments, bulkhead: {maxConcurrentCalls: 9, maxConnections: 1}}\n";
    let setup = Setup::new().policy(policy).arg("--workload").arg("payments");
    let proxy = setup.arg("--app").arg(server.address.to_string()).start();
    let mut client = Peer::connect(proxy.inbound);
    client.write(OPAQUE);
    client.expect(OPAQUE);
    let mut second = Peer::connect(proxy.inbound);
    second.write(OPAQUE);
    second.expect_end(End::Reset);
    let answer = Client::connect(proxy.inbound).get("/");
    assert_eq!((answer.status, answer.reason()), (503, Some("BulkheadFull")), "{answer}");
    assert_eq!(server.connections(), 1);
}
