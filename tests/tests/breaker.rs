//! The breaker, from outside: what opens it, what never does, what reaches an open circuit, and how it closes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_tests::client::Client;
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Step, Upstream};
use plimsoll_tests::{address, eventually};

fn begin(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    client.write("GET / HTTP/1.1\r\nHost: fraud.internal\r\n\r\n").expect("the request is sent");
    client
}

fn ask(address: SocketAddr) -> plimsoll_tests::client::Response {
    Client::connect(address).get("/")
}

#[test]
fn a_hung_dependency_opens_it_soon_after_the_slow_threshold() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let spec = "  timeouts: {request: 10s}
  circuitBreaker: {slowCallDurationThreshold: 600ms}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let begun = Instant::now();
    let callers: Vec<Client> = (0..20).map(|_| begin(dependency.listen)).collect();
    eventually("the breaker opens", || proxy.admin.circuit("fraud-api") == "Open");
    assert!(begun.elapsed() >= Duration::from_millis(600));
    assert!(begun.elapsed() < Duration::from_secs(8), "it must not wait for the timeout: {:?}", begun.elapsed());
    let refusal = ask(dependency.listen);
    assert_eq!((refusal.status, refusal.reason()), (503, Some("CircuitOpen")), "{refusal}");
    assert_eq!(refusal.detail("block"), Some("circuitBreaker"), "{refusal}");
    let retry_after: u64 = refusal.field("retry-after").and_then(|value| value.parse().ok()).expect("Retry-After");
    assert!((1..=11).contains(&retry_after), "time to half-open: {refusal}");
    assert_eq!(server.requests(), 20);
    drop(callers);
}

#[test]
fn its_defaults_open_on_answers_of_8_seconds() {
    let server = Upstream::start(|_| upstream::after(Duration::from_secs(8), upstream::ok("late")));
    let dependency = listened("fraud-api", server.address, "  circuitBreaker: {}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let begun = Instant::now();
    let _callers: Vec<Client> = (0..20).map(|_| begin(dependency.listen)).collect();
    eventually("the breaker opens", || proxy.admin.circuit("fraud-api") == "Open");
    assert!(begun.elapsed() >= Duration::from_secs(2), "the default threshold is 2 s");
    assert!(begun.elapsed() < Duration::from_secs(8), "before any answer: {:?}", begun.elapsed());
}

/// Opens at the fifth of five outcomes and refuses without a connection: the worked number.
const COUNT_10: &str = "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 5, \
                        failureRateThreshold: 50, waitDurationInOpenState: 60s}";

#[test]
fn failures_open_it_at_the_minimum_number_of_calls() {
    let server = Upstream::start(|_| upstream::answer(500, &[], "no"));
    let dependency = listened("fraud-api", server.address, COUNT_10);
    let proxy = Setup::new().policy(&dependency.policy).start();
    for _ in 0..5 {
        assert_eq!(ask(dependency.listen).status, 500);
    }
    assert_eq!(proxy.admin.circuit("fraud-api"), "Open");
    let connections = server.connections();
    for _ in 0..20 {
        assert_eq!(ask(dependency.listen).reason(), Some("CircuitOpen"));
    }
    assert_eq!((server.requests(), server.connections()), (5, connections));
    assert_eq!(proxy.admin.metric("plimsoll_circuit_transitions_total", &[("to", "Open")]), 1.0);
}

#[test]
fn connections_that_fail_open_it() {
    let nobody = address::reserve();
    let dependency = listened("fraud-api", nobody, COUNT_10);
    let proxy = Setup::new().policy(&dependency.policy).start();
    for _ in 0..5 {
        assert_eq!(ask(dependency.listen).reason(), Some("ConnectFailure"));
    }
    assert_eq!(proxy.admin.circuit("fraud-api"), "Open");
    assert_eq!(ask(dependency.listen).reason(), Some("CircuitOpen"));
}

#[test]
fn client_errors_and_pushback_never_open_it() {
    for (status, fields) in
        [(404, &[][..]), (400, &[]), (429, &[("Retry-After", "1")]), (503, &[("x-envoy-overloaded", "true")])]
    {
        let server = Upstream::start(move |_| upstream::answer(status, fields, "no"));
        let dependency = listened("fraud-api", server.address, COUNT_10);
        let proxy = Setup::new().policy(&dependency.policy).start();
        for _ in 0..30 {
            assert_eq!(ask(dependency.listen).status, status);
        }
        assert_eq!(proxy.admin.circuit("fraud-api"), "Closed", "{status} {fields:?}");
        assert_eq!(server.requests(), 30);
    }
}

#[test]
fn a_thousand_calls_with_a_deadline_of_1_ms_leave_it_closed() {
    // Healthy, and far from done after 1 ms even on a busy machine; the threshold of the breaker is 2 s.
    let server = Upstream::start(|request| match request.field("x-envoy-expected-rq-timeout-ms") {
        Some("1") => upstream::after(Duration::from_secs(1), upstream::ok("ok")),
        _ => upstream::ok("ok"),
    });
    let dependency = listened("fraud-api", server.address, "  circuitBreaker: {}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let load = Load::start(dependency.listen, 8, &Ask::get().field("x-envoy-expected-rq-timeout-ms", "1"));
    load.wait_for_more(1_000);
    let tally = load.finish();
    assert_eq!(tally.reasons.get("DeadlineExpired"), Some(&tally.answers()), "{tally:?}");
    assert_eq!(proxy.admin.circuit("fraud-api"), "Closed");
    assert_eq!(ask(dependency.listen).status, 200);
}

#[test]
fn callers_that_leave_before_the_threshold_leave_it_closed() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let dependency = listened("fraud-api", server.address, "  circuitBreaker: {slowCallDurationThreshold: 10s}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    for round in 1..=3 {
        let callers: Vec<Client> = (0..20).map(|_| begin(dependency.listen)).collect();
        server.wait_for_requests(20 * round);
        drop(callers);
    }
    eventually("the server has lost them", || server.abandoned() == 60);
    let status = proxy.admin.dependency("fraud-api");
    assert_eq!(status["circuits"][0]["state"], "Closed");
    assert_eq!(status["circuits"][0]["calls"], 0, "cancelled calls are not in the window: {status:#}");
}

#[test]
fn who_waits_is_refused_the_moment_it_opens() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let spec = "  timeouts: {request: 15s}
  bulkhead: {maxConcurrentCalls: 10, maxQueued: 50, maxWaitDuration: 15s}
  circuitBreaker: {slowCallDurationThreshold: 500ms, minimumNumberOfCalls: 10}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let holders: Vec<Client> = (0..10).map(|_| begin(dependency.listen)).collect();
    server.wait_for_requests(10);
    let waiting: Vec<Client> = (0..30).map(|_| begin(dependency.listen)).collect();
    for mut caller in waiting {
        let refusal = caller.read_answer(false).expect("an answer");
        assert_eq!(refusal.reason(), Some("CircuitOpen"), "{refusal}");
    }
    // They were not refused because the holders ended.
    assert_eq!((server.in_flight(), server.requests()), (10, 10));
    assert_eq!(proxy.admin.dependency("fraud-api")["bulkheads"][0]["queued"], 0);
    drop(holders);
}

#[test]
fn who_waits_for_a_socket_is_refused_the_moment_it_opens() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let spec = "  timeouts: {request: 15s}
  bulkhead: {maxConcurrentCalls: 50, maxQueued: 50, maxWaitDuration: 15s, maxConnections: 10}
  circuitBreaker: {slowCallDurationThreshold: 500ms, minimumNumberOfCalls: 10}";
    let dependency = listened("fraud-api", server.address, spec);
    let _proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let holders: Vec<Client> = (0..10).map(|_| begin(dependency.listen)).collect();
    server.wait_for_requests(10);
    let waiting: Vec<Client> = (0..20).map(|_| begin(dependency.listen)).collect();
    for mut caller in waiting {
        let refusal = caller.read_answer(false).expect("an answer");
        assert_eq!(refusal.reason(), Some("CircuitOpen"), "{refusal}");
    }
    assert_eq!((server.in_flight(), server.requests()), (10, 10));
    drop(holders);
}

#[test]
fn only_probes_reach_an_open_circuit_and_good_ones_close_it() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = broken.clone();
    let server = Upstream::start(move |_| {
        if state.load(Ordering::SeqCst) { upstream::answer(503, &[], "down") } else { upstream::ok("up") }
    });
    let spec = "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 5,
    waitDurationInOpenState: 150ms, maxWaitDurationInOpenState: 600ms, permittedNumberOfCallsInHalfOpenState: 3}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let transitions = |to: &str| proxy.admin.metric("plimsoll_circuit_transitions_total", &[("to", to)]) as usize;
    for _ in 0..5 {
        assert_eq!(ask(dependency.listen).status, 503);
    }
    let load = Load::start(dependency.listen, 16, &Ask::get());
    eventually("it has probed three times", || transitions("HalfOpen") >= 3);
    let half_opens = transitions("HalfOpen");
    let probes = server.requests() - 5;
    assert!(probes >= 3, "probes were made");
    // One more half-open may begin between the two questions.
    assert!(probes <= 3 * (half_opens + 1), "{probes} requests in {half_opens} half-opens");
    broken.store(false, Ordering::SeqCst);
    eventually("it closes", || proxy.admin.circuit("fraud-api") == "Closed");
    load.wait_for_more(200);
    let tally = load.finish();
    assert!(tally.ok() > 0 && tally.failures.is_empty(), "{tally:?}");
    assert_eq!(transitions("Closed"), 1);
}

#[test]
fn a_probe_that_never_returns_fails_at_its_limit() {
    let hang = Arc::new(AtomicBool::new(false));
    let state = hang.clone();
    let server =
        Upstream::start(
            move |_| {
                if state.load(Ordering::SeqCst) { vec![Step::Hang] } else { upstream::answer(500, &[], "no") }
            },
        );
    let spec = "  timeouts: {request: 60s}
  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 5,
    slowCallDurationThreshold: 50s, waitDurationInOpenState: 100ms, maxWaitDurationInOpenState: 60s,
    maxWaitDurationInHalfOpenState: 300ms}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    for _ in 0..5 {
        ask(dependency.listen);
    }
    hang.store(true, Ordering::SeqCst);
    let mut probe = None;
    eventually("a probe is sent", || {
        probe = Some(begin(dependency.listen));
        std::thread::park_timeout(Duration::from_millis(20));
        server.in_flight() == 1
    });
    let reopened = || proxy.admin.metric("plimsoll_circuit_transitions_total", &[("to", "Open")]) >= 2.0;
    eventually("the unfinished probe opens it again", reopened);
    drop(probe);
}

#[test]
fn an_endpoint_breaker_takes_one_endpoint_out() {
    let good = Upstream::start(|_| upstream::ok("good"));
    let bad = Upstream::start(|_| upstream::answer(500, &[], "bad"));
    let spec = "  circuitBreaker: {scope: Endpoint, slidingWindowType: Count, slidingWindowSize: 10,
    minimumNumberOfCalls: 5, waitDurationInOpenState: 60s}";
    let dependency = listened("fraud-api", good.address, spec);
    let both = format!("[\"{}\", \"{}\"]", good.address, bad.address);
    let policy = dependency.policy.replace(&format!("[\"{}\"]", good.address), &both);
    let _proxy = Setup::new().workers(1).policy(&policy).start();
    eventually("the bad endpoint has had its five calls", || {
        assert_ne!(ask(dependency.listen).status, 503, "a good endpoint is left");
        bad.requests() == 5
    });
    for _ in 0..30 {
        assert_eq!(ask(dependency.listen).status, 200);
    }
    assert_eq!(bad.requests(), 5);
}

#[test]
fn a_route_breaker_leaves_other_routes_alone() {
    let server = Upstream::start(|request| {
        if request.target.starts_with("/v1/charge") { upstream::answer(500, &[], "no") } else { upstream::ok("ok") }
    });
    let spec =
        "  circuitBreaker: {scope: Route, slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 5}
  routes: [{name: charge, match: {path: {prefix: /v1/charge}}}]";
    let dependency = listened("fraud-api", server.address, spec);
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let mut client = Client::connect(dependency.listen);
    for _ in 0..5 {
        assert_eq!(client.get("/v1/charge").status, 500);
    }
    assert_eq!(client.get("/v1/charge").reason(), Some("CircuitOpen"));
    assert_eq!(client.get("/v1/other").status, 200);
}

#[test]
fn observe_lets_everything_through_and_counts() {
    let server = Upstream::start(|_| upstream::answer(500, &[], "no"));
    let dependency = listened("fraud-api", server.address, &COUNT_10.replace('{', "{mode: Observe, "));
    let proxy = Setup::new().policy(&dependency.policy).start();
    for _ in 0..30 {
        assert_eq!(ask(dependency.listen).status, 500);
    }
    assert_eq!(server.requests(), 30);
    let status = proxy.admin.dependency("fraud-api");
    assert_eq!(status["would_reject"]["CircuitOpen"], 25, "{status:#}");
}

#[test]
fn an_operator_can_force_it_for_a_time() {
    let gate = Gate::default();
    gate.open();
    let server = Upstream::start(move |_| upstream::behind(&gate, upstream::ok("ok")));
    let dependency = listened("fraud-api", server.address, "  circuitBreaker: {}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let force = |body: &str| proxy.admin.request("POST", "/dependencies/fraud-api/circuit", body);
    let answer = force(r#"{"state":"ForcedOpen","ttl":"10m"}"#);
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(ask(dependency.listen).reason(), Some("CircuitOpen"));
    assert_eq!(proxy.admin.circuit("fraud-api"), "ForcedOpen");
    assert_eq!(force(r#"{"state":"Auto"}"#).status, 200);
    assert_eq!(ask(dependency.listen).status, 200);
    assert_eq!(force(r#"{"state":"ForcedOpen","ttl":"100ms"}"#).status, 200);
    eventually("its time is over", || ask(dependency.listen).status == 200);
    assert_eq!(force(r#"{"state":"Sideways"}"#).status, 400);
    assert_eq!(proxy.admin.request("POST", "/dependencies/nobody/circuit", r#"{"state":"Auto"}"#).status, 404);
}
