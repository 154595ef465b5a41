//! A limit means what it says: exact over all workers, held to the last byte, and a refusal says why.

use std::time::{Duration, Instant};

use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::load::{self, Ask, Load};
use plimsoll_tests::proxy::{Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Script, Step, Upstream};

/// A server that holds every answer until the gate opens.
fn gated() -> (Gate, Upstream) {
    let gate = Gate::default();
    let held = gate.clone();
    (gate, Upstream::start(move |_| upstream::behind(&held, upstream::ok("ok"))))
}

fn refused(proxy: &Proxy, reason: &str) -> usize {
    proxy.admin.metric("plimsoll_rejections_total", &[("reason", reason)]) as usize
}

fn queued(proxy: &Proxy) -> u64 {
    proxy.admin.dependency("fraud-api")["bulkheads"][0]["queued"].as_u64().expect("a number")
}

fn in_flight(proxy: &Proxy) -> u64 {
    proxy.admin.dependency("fraud-api")["bulkheads"][0]["in_flight"].as_u64().expect("a number")
}

/// A caller whose request is under way and whose answer nobody has read yet.
fn caller(address: std::net::SocketAddr, target: &str) -> Client {
    let mut client = Client::connect(address);
    client.write(format!("GET {target} HTTP/1.1\r\nHost: fraud.internal\r\n\r\n")).expect("the request is sent");
    client
}

#[test]
fn twenty_permits_for_200_callers_of_two_workers() {
    let (gate, server) = gated();
    let dependency = listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 20}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let listen = dependency.listen;
    let callers = std::thread::spawn(move || load::at_once(listen, 200, &Ask::get()));
    eventually("180 calls are refused", || refused(&proxy, "BulkheadFull") == 180);
    assert_eq!(server.in_flight(), 20);
    gate.open();
    let answers: Vec<_> = callers.join().unwrap().into_iter().map(|answer| answer.expect("an answer")).collect();
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 20);
    let refusals: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert_eq!(refusals.len(), 180);
    for refusal in refusals {
        assert_eq!(refusal.reason(), Some("BulkheadFull"), "{refusal}");
        assert_eq!(refusal.detail("policy"), Some("shop/fraud-api"), "{refusal}");
        assert_eq!(refusal.detail("block"), Some("bulkhead"), "{refusal}");
        assert_eq!(refusal.detail("observed"), Some("20"), "{refusal}");
        assert_eq!(refusal.detail("limit"), Some("20"), "{refusal}");
        assert!(refusal.detail("generation").is_some(), "{refusal}");
        assert!(refusal.keeps_alive(), "a refusal costs no connection: {refusal}");
        assert!(refusal.text().contains("shop/fraud-api"), "a person can act on it: {refusal}");
    }
    assert_eq!(server.most_in_flight(), 20);
}

#[test]
fn never_21_while_calls_come_and_go() {
    let server = Upstream::start(|_| upstream::after(Duration::from_millis(2), upstream::ok("ok")));
    let dependency = listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 20}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let load = Load::start(dependency.listen, 200, &Ask::get());
    load.wait_for_more(20_000);
    let tally = load.finish();
    assert!(server.most_in_flight() <= 20, "{}", server.most_in_flight());
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    // The limit was reached: somebody was refused, and nobody for another reason.
    assert_eq!(tally.reasons.keys().collect::<Vec<_>>(), ["BulkheadFull"]);
    assert_eq!(tally.ok(), server.requests());
    eventually("every permit is back", || in_flight(&proxy) == 0);
}

#[test]
fn refusals_take_milliseconds() {
    let (gate, server) = gated();
    let dependency =
        listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 1}\n  timeouts: {request: 10s}");
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let _holder = caller(dependency.listen, "/");
    server.wait_for_requests(1);
    let mut client = Client::connect(dependency.listen);
    let mut times: Vec<Duration> = (0..50)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(client.get("/").reason(), Some("BulkheadFull"));
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    // A refusal that waited for anything of the policy would take seconds.
    assert!(times[25] < Duration::from_millis(100), "{times:?}");
    gate.open();
}

#[test]
fn who_waits_is_served_in_order() {
    let (gate, server) = gated();
    let spec = "  bulkhead: {maxConcurrentCalls: 1, maxQueued: 5, maxWaitDuration: 15s}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut callers = vec![caller(dependency.listen, "/0")];
    server.wait_for_requests(1);
    for number in 1..=5 {
        callers.push(caller(dependency.listen, &format!("/{number}")));
        eventually("it waits", || queued(&proxy) == number);
    }
    let refusal = Client::connect(dependency.listen).get("/6");
    assert_eq!(refusal.reason(), Some("BulkheadFull"), "the queue is full: {refusal}");
    gate.open();
    for mut caller in callers {
        assert_eq!(caller.read_answer(false).expect("an answer").status, 200);
    }
    let order: Vec<String> = server.seen().into_iter().map(|request| request.target).collect();
    assert_eq!(order, ["/0", "/1", "/2", "/3", "/4", "/5"]);
    assert_eq!(server.most_in_flight(), 1);
}

#[test]
fn waiting_ends_at_its_maximum() {
    let (gate, server) = gated();
    let spec = "  bulkhead: {maxConcurrentCalls: 1, maxQueued: 5, maxWaitDuration: 100ms}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    let mut holder = caller(dependency.listen, "/held");
    server.wait_for_requests(1);
    let begun = Instant::now();
    let refusal = Client::connect(dependency.listen).get("/");
    assert_eq!((refusal.status, refusal.reason()), (503, Some("BulkheadWaitTimeout")), "{refusal}");
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(queued(&proxy), 0);
    gate.open();
    assert_eq!(holder.read_answer(false).expect("an answer").status, 200);
    assert_eq!(server.requests(), 1, "a call that gave up waiting is not sent");
}

#[test]
fn a_caller_that_leaves_gives_its_place_back() {
    let (gate, server) = gated();
    let spec = "  bulkhead: {maxConcurrentCalls: 1, maxQueued: 2, maxWaitDuration: 15s}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let holder = caller(dependency.listen, "/holder");
    server.wait_for_requests(1);
    let waiting = caller(dependency.listen, "/leaves");
    eventually("it waits", || queued(&proxy) == 1);
    drop(waiting);
    eventually("its place in the queue is free", || queued(&proxy) == 0);
    let mut next = caller(dependency.listen, "/next");
    eventually("it waits", || queued(&proxy) == 1);
    drop(holder);
    server.wait_for_requests(2);
    gate.open();
    assert_eq!(next.read_answer(false).expect("an answer").status, 200);
    let order: Vec<String> = server.seen().into_iter().map(|request| request.target).collect();
    assert_eq!(order, ["/holder", "/next"]);
}

#[test]
fn a_permit_is_held_to_the_last_byte_of_the_answer() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start(move |_| -> Script {
        let head = upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        vec![head, Step::Gate(held.clone()), upstream::raw("done")]
    });
    let dependency = listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 1}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let mut first = caller(dependency.listen, "/");
    let (status, _) = first.read_head().expect("a head");
    assert_eq!(status, 200);
    assert_eq!(Client::connect(dependency.listen).get("/").reason(), Some("BulkheadFull"));
    gate.open();
    eventually("the permit is back", || in_flight(&proxy) == 0);
    assert_eq!(Client::connect(dependency.listen).get("/").status, 200);
}

#[test]
fn a_route_has_a_further_limit_inside_its_dependency() {
    let (gate, server) = gated();
    let spec = "  bulkhead: {maxConcurrentCalls: 5}
  routes:
  - {name: charge, match: {path: {prefix: /v1/charge}}, bulkhead: {maxConcurrentCalls: 2}}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut callers: Vec<Client> = (0..2).map(|_| caller(dependency.listen, "/v1/charge/1")).collect();
    server.wait_for_requests(2);
    let refusal = Client::connect(dependency.listen).get("/v1/charge/2");
    assert_eq!((refusal.reason(), refusal.detail("limit")), (Some("BulkheadFull"), Some("2")), "{refusal}");
    callers.extend((0..3).map(|_| caller(dependency.listen, "/v1/other")));
    server.wait_for_requests(5);
    let refusal = Client::connect(dependency.listen).get("/v1/other");
    assert_eq!((refusal.reason(), refusal.detail("limit")), (Some("BulkheadFull"), Some("5")), "{refusal}");
    gate.open();
    for caller in &mut callers {
        assert_eq!(caller.read_answer(false).expect("an answer").status, 200);
    }
    eventually("every permit is back", || in_flight(&proxy) == 0);
}

#[test]
fn a_lower_limit_is_paid_back_as_calls_end() {
    let (gate, server) = gated();
    let dependency = listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 5}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut callers: Vec<Client> = (0..5).map(|_| caller(dependency.listen, "/")).collect();
    server.wait_for_requests(5);
    let (status, said) = proxy.admin.put_policy(&dependency.policy.replace("Calls: 5", "Calls: 2"));
    assert_eq!(status, 200, "{said}");
    let refusal = Client::connect(dependency.listen).get("/");
    assert_eq!((refusal.detail("observed"), refusal.detail("limit")), (Some("5"), Some("2")), "{refusal}");
    gate.open();
    for caller in &mut callers {
        assert_eq!(caller.read_answer(false).expect("an answer").status, 200);
    }
    let load = Load::start(dependency.listen, 20, &Ask::get());
    load.wait_for_more(500);
    load.finish();
    assert_eq!(server.most_in_flight(), 5, "5 before the change, and never more");
    eventually("every permit is back", || in_flight(&proxy) == 0);
}

#[test]
fn observe_refuses_nothing_and_counts() {
    let (gate, server) = gated();
    let dependency = listened("fraud-api", server.address, "  bulkhead: {mode: Observe, maxConcurrentCalls: 2}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut callers: Vec<Client> = (0..5).map(|_| caller(dependency.listen, "/")).collect();
    server.wait_for_requests(5);
    gate.open();
    for caller in &mut callers {
        assert_eq!(caller.read_answer(false).expect("an answer").status, 200);
    }
    let status = proxy.admin.dependency("fraud-api");
    assert_eq!(status["would_reject"]["BulkheadFull"], 3, "{status:#}");
    assert!(status["rejections"].as_object().is_none_or(serde_json::map::Map::is_empty), "{status:#}");
    assert_eq!(
        proxy.admin.metric("plimsoll_rejections_total", &[("mode", "Observe"), ("reason", "BulkheadFull")]),
        3.0
    );
}
