//! Policy changes under load: nobody notices, and a bad one changes nothing.

use std::time::Duration;

use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::proxy::{Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Upstream};

fn generation(proxy: &Proxy) -> String {
    proxy.admin.status()["generation"].as_str().expect("a generation").to_owned()
}

/// The spec of swap number `round`: a number, an algorithm, a block, a route changes each time.
fn spec(round: usize) -> String {
    let mut spec = format!(
        "  timeouts: {{request: {}s}}\n  bulkhead: {{maxConcurrentCalls: {}, maxQueued: 100, maxWaitDuration: 5s}}\n",
        5 + round % 7,
        20 + round % 5
    );
    if round.is_multiple_of(2) {
        spec += "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 50}\n";
    }
    if round.is_multiple_of(3) {
        spec += "  retry: {maxAttempts: 3}\n";
    }
    if round.is_multiple_of(4) {
        spec += "  routes: [{name: charge, match: {path: {prefix: /}}, bulkhead: {maxConcurrentCalls: 19}}]\n";
    }
    spec
}

#[test]
fn sixty_swaps_under_load_fail_no_call_and_close_no_connection() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, &spec(0));
    let policy = |round: usize| dependency.policy.replace(spec(0).trim_matches('\n'), spec(round).trim_matches('\n'));
    assert_ne!(policy(0), policy(1));
    let proxy = Setup::new().workers(2).policy(&policy(0)).start();
    let load = Load::start(dependency.listen, 16, &Ask::get());
    for round in 1..=60 {
        let before = generation(&proxy);
        if round % 2 == 0 {
            let (status, said) = proxy.admin.put_policy(&policy(round));
            assert_eq!((status, &said["accepted"]), (200, &serde_json::json!(true)), "{said}");
        } else {
            proxy.write_policy(&policy(round));
            proxy.hang_up();
        }
        eventually("the policy is in force", || generation(&proxy) != before);
        load.wait_for_more(50);
    }
    let tally = load.finish();
    assert!(tally.failures.is_empty(), "{:?}", &tally.failures[..tally.failures.len().min(5)]);
    assert_eq!(tally.ok(), tally.answers(), "{tally:?}");
    assert_eq!((tally.closed, tally.connections), (0, 16), "each caller kept its one connection");
    assert!(tally.answers() >= 3_000);
    assert_eq!(proxy.admin.metric("plimsoll_policy_apply_total", &[("result", "applied")]), 61.0);
}

#[test]
fn a_bad_policy_is_refused_with_its_line_and_changes_nothing() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 20}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let before = generation(&proxy);
    let bad = dependency.policy.replace("maxConcurrentCalls: 20", "maxConcurrentCall: 20");
    let (status, said) = proxy.admin.put_policy(&bad);
    assert_eq!((status, &said["accepted"]), (422, &serde_json::json!(false)), "{said}");
    let errors = said["errors"].as_array().expect("errors");
    let [error] = &errors[..] else { panic!("one thing is wrong, and nothing follows from it: {said:#}") };
    assert_eq!(error["field"], "spec.bulkhead.maxConcurrentCall", "{said:#}");
    assert_eq!(error["line"], 8, "{said:#}");
    assert_eq!(error["nearest"], "maxConcurrentCalls", "{said:#}");
    assert!(error["text"].as_str().is_some_and(|text| text.contains(":8:14")), "{said:#}");
    assert_eq!(said["generation"], before.as_str());
    assert_eq!(generation(&proxy), before);

    proxy.write_policy(&bad);
    proxy.hang_up();
    eventually("status tells of it", || proxy.admin.status()["policy"]["last_error"].is_string());
    assert_eq!(generation(&proxy), before);
    assert_eq!(proxy.admin.dependency("fraud-api")["bulkheads"][0]["limit"], 20);
    assert_eq!(Client::connect(dependency.listen).get("/").status, 200);
    let refused = proxy.admin.metric("plimsoll_policy_apply_total", &[("result", "refused")]);
    assert_eq!(refused, 2.0);
}

#[test]
fn a_call_ends_under_the_policy_it_began_with() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start(move |_| upstream::behind(&held, upstream::ok("ok")));
    let dependency = listened("fraud-api", server.address, "  timeouts: {request: 15s}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    assert_eq!(proxy.admin.put_policy(&dependency.policy.replace("15s", "100ms")).0, 200);
    // The new clock rules the next call, not this one.
    assert_eq!(Client::connect(dependency.listen).get("/").reason(), Some("RequestTimeout"));
    std::thread::sleep(Duration::from_millis(200));
    gate.open();
    assert_eq!(client.read_answer(false).unwrap().status, 200);
}

#[test]
fn an_unrelated_change_leaves_an_open_breaker_open() {
    let server = Upstream::start(|_| upstream::answer(500, &[], "no"));
    let breaker = "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 5, waitDurationInOpenState: 60s}";
    let dependency = listened("fraud-api", server.address, breaker);
    let proxy = Setup::new().policy(&dependency.policy).start();
    for _ in 0..5 {
        Client::connect(dependency.listen).get("/");
    }
    assert_eq!(proxy.admin.circuit("fraud-api"), "Open");
    let changed = format!("{}\n  bulkhead: {{maxConcurrentCalls: 7}}\n", dependency.policy.trim_end());
    assert_eq!(proxy.admin.put_policy(&changed).0, 200);
    assert_eq!(proxy.admin.circuit("fraud-api"), "Open");
    assert_eq!(Client::connect(dependency.listen).get("/").reason(), Some("CircuitOpen"));
    assert_eq!(server.requests(), 5);
}

#[test]
fn listeners_come_and_go_and_the_others_stay() {
    let (one, two) = (Upstream::start(|_| upstream::ok("one")), Upstream::start(|_| upstream::ok("two")));
    let (first, second) = (listened("one", one.address, ""), listened("two", two.address, ""));
    let proxy = Setup::new().policy(&first.policy).start();
    let mut kept = Client::connect(first.listen);
    assert_eq!(kept.get("/").text(), "one");
    assert!(Client::try_connect(second.listen).is_err());
    assert_eq!(proxy.admin.put_policy(&format!("{}---\n{}", first.policy, second.policy)).0, 200);
    assert_eq!(Client::connect(second.listen).get("/").text(), "two");
    assert_eq!(kept.get("/").text(), "one");
    assert_eq!(proxy.admin.put_policy(&second.policy).0, 200);
    eventually("the removed listener is gone", || Client::try_connect(first.listen).is_err());
    assert_eq!(kept.get("/").text(), "one", "a connection of a removed listener lives on");
    assert_eq!(Client::connect(second.listen).get("/").text(), "two");
}

#[test]
fn a_listener_that_cannot_be_bound_refuses_the_whole_generation() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("one", server.address, "");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let before = generation(&proxy);
    let taken = listened("two", server.address, "");
    let _holder = std::net::TcpListener::bind(taken.listen).unwrap();
    let (status, said) = proxy.admin.put_policy(&format!("{}---\n{}", dependency.policy, taken.policy));
    assert_eq!(status, 422, "{said}");
    assert!(said.to_string().contains(&taken.listen.to_string()), "it says which: {said}");
    assert_eq!(generation(&proxy), before);
    assert_eq!(Client::connect(dependency.listen).get("/").status, 200);
}
