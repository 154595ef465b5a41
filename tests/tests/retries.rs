//! Which calls are attempted again, how often, how soon, and what the budget leaves of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plimsoll_tests::address;
use plimsoll_tests::client::{Client, Response};
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Step, Upstream};

const QUICK: &str = "  retry: {backoff: {base: 1ms, max: 5ms}}";

fn start(server: SocketAddr, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("fraud-api", server, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

fn failing(status: u16, fields: &'static [(&'static str, &'static str)]) -> Upstream {
    Upstream::start(move |_| upstream::answer(status, fields, "down"))
}

/// Fails the first request of all and answers the others.
fn failing_once(script: upstream::Script) -> Upstream {
    Upstream::start(move |request| if request.before == 0 { script.clone() } else { upstream::ok("up") })
}

fn attempts(method: &'static str, fields: &[(&str, &str)], spec: &str) -> (usize, Response) {
    let server = failing(503, &[]);
    let (dependency, _proxy) = start(server.address, spec);
    let body: &[u8] = if method == "GET" { b"" } else { b"{\"amount\":10}" };
    let answer = Client::connect(dependency.listen).call(method, "/", fields, body);
    assert_eq!((answer.status, answer.text().as_str()), (503, "down"), "the last answer goes out: {answer}");
    assert_eq!(answer.reason(), None, "an upstream's answer is no rejection: {answer}");
    for request in server.seen() {
        assert_eq!(request.body, body, "each attempt carries the whole body");
    }
    (server.requests(), answer)
}

#[test]
fn safe_and_idempotent_calls_get_max_attempts_and_post_gets_one() {
    let key = [("Idempotency-Key", "pay-1042")];
    assert_eq!(attempts("GET", &[], QUICK).0, 3);
    assert_eq!(attempts("PUT", &[], QUICK).0, 3);
    assert_eq!(attempts("DELETE", &[], QUICK).0, 3);
    assert_eq!(attempts("POST", &[], QUICK).0, 1);
    assert_eq!(attempts("PATCH", &[], QUICK).0, 1);
    assert_eq!(attempts("POST", &key, QUICK).0, 3);
    assert_eq!(attempts("GET", &[], "  retry: {maxAttempts: 5, backoff: {base: 1ms, max: 5ms}}").0, 5);
}

#[test]
fn methods_are_chosen_by_policy() {
    let safe = "  retry: {methods: Safe, backoff: {base: 1ms, max: 5ms}}";
    assert_eq!(attempts("PUT", &[], safe).0, 1);
    assert_eq!(attempts("GET", &[], safe).0, 3);
    let any = "  retry: {methods: Any, backoff: {base: 1ms, max: 5ms}}";
    assert_eq!(attempts("POST", &[], any).0, 3);
}

#[test]
fn without_a_retry_block_nothing_is_attempted_again() {
    assert_eq!(attempts("GET", &[], "  timeouts: {request: 5s}").0, 1);
}

#[test]
fn an_answer_after_spent_retries_asks_not_to_be_retried() {
    let (made, answer) = attempts("GET", &[], QUICK);
    assert_eq!((made, answer.field("x-plimsoll-retry")), (3, Some("no")), "{answer}");
}

#[test]
fn a_call_that_is_itself_a_retry_is_not_retried() {
    assert_eq!(attempts("GET", &[("x-envoy-attempt-count", "2")], QUICK).0, 1);
    assert_eq!(attempts("GET", &[("x-envoy-attempt-count", "1")], QUICK).0, 3);
    let spec = "  retry: {onRetriedInbound: Retry, backoff: {base: 1ms, max: 5ms}}";
    assert_eq!(attempts("GET", &[("x-envoy-attempt-count", "2")], spec).0, 3);
}

#[test]
fn an_answer_that_asks_not_to_be_retried_is_not() {
    let server = failing(503, &[("x-plimsoll-retry", "no")]);
    let (dependency, _proxy) = start(server.address, QUICK);
    assert_eq!(Client::connect(dependency.listen).get("/").status, 503);
    assert_eq!(server.requests(), 1);
}

#[test]
fn retries_say_which_attempt_they_are() {
    let server = failing_once(upstream::answer(503, &[], "down"));
    let (dependency, _proxy) = start(server.address, QUICK);
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "up");
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].field("x-envoy-attempt-count"), Some("2"));
    assert_eq!(seen[0].field("x-request-id"), seen[1].field("x-request-id"), "one call, one id");
}

#[test]
fn an_attempt_that_hangs_is_cut_and_made_again() {
    let spec = "  timeouts: {attempt: 150ms, request: 10s}
  retry: {backoff: {base: 1ms, max: 5ms}}";
    let server = failing_once(vec![Step::Hang]);
    let (dependency, _proxy) = start(server.address, spec);
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "up");

    let server = failing_once(vec![Step::Hang]);
    let (dependency, _proxy) = start(server.address, spec);
    let answer = Client::connect(dependency.listen).post("/", b"{}");
    assert_eq!((answer.status, answer.reason()), (504, Some("AttemptTimeout")), "{answer}");
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_reset_after_the_request_is_repeated_only_for_calls_that_may_be() {
    let reset = failing_once(vec![Step::Reset]);
    let (dependency, _proxy) = start(reset.address, QUICK);
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "up");

    let reset = failing_once(vec![Step::Reset]);
    let (dependency, _proxy) = start(reset.address, QUICK);
    let answer = Client::connect(dependency.listen).post("/", b"{}");
    assert_eq!((answer.status, answer.reason()), (503, Some("UpstreamReset")), "{answer}");
    assert_eq!(reset.requests(), 1);
}

#[test]
fn an_endpoint_that_refuses_connections_costs_no_call_of_any_method() {
    let good = Upstream::start(|_| upstream::ok("good"));
    let nobody = address::reserve();
    let dependency = listened("fraud-api", good.address, QUICK);
    let both = format!("[\"{nobody}\", \"{}\"]", good.address);
    let policy = dependency.policy.replace(&format!("[\"{}\"]", good.address), &both);
    let _proxy = Setup::new().policy(&policy).start();
    for method in ["GET", "POST", "GET", "POST", "POST", "POST"] {
        let answer = Client::connect(dependency.listen).call(method, "/", &[], b"{}");
        assert_eq!(answer.status, 200, "{method}: {answer}");
    }
}

#[test]
fn retry_after_is_a_floor_and_a_long_one_ends_it() {
    let server = failing_once(upstream::answer(503, &[("Retry-After", "1")], "down"));
    let (dependency, _proxy) = start(server.address, QUICK);
    let begun = Instant::now();
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "up");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());

    let server = failing(503, &[("Retry-After", "60")]);
    let (dependency, _proxy) = start(server.address, QUICK);
    let answer = Client::connect(dependency.listen).get("/");
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("60")), "as it came: {answer}");
    assert_eq!(server.requests(), 1);
}

#[test]
fn retry_after_may_be_a_date() {
    let date =
        std::process::Command::new("date").args(["-u", "-d", "+3 seconds", "+%a, %d %b %Y %H:%M:%S GMT"]).output();
    let date = String::from_utf8(date.expect("date can be run").stdout).unwrap();
    let date: &'static str = Box::leak(date.trim().to_owned().into_boxed_str());
    let fields: &'static [(&str, &str)] = Box::leak(Box::new([("Retry-After", date)]));
    let server = failing_once(upstream::answer(503, fields, "down"));
    let (dependency, _proxy) = start(server.address, QUICK);
    let begun = Instant::now();
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "up");
    // A date has whole seconds; starting the proxy took a part of them.
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn a_429_is_retried_only_when_it_says_when() {
    let server = failing(429, &[]);
    let (dependency, _proxy) = start(server.address, QUICK);
    assert_eq!(Client::connect(dependency.listen).get("/").status, 429);
    assert_eq!(server.requests(), 1);

    let server = failing(429, &[("Retry-After", "0")]);
    let (dependency, _proxy) = start(server.address, QUICK);
    assert_eq!(Client::connect(dependency.listen).get("/").status, 429);
    assert_eq!(server.requests(), 3);
}

#[test]
fn a_body_above_the_buffer_streams_on_and_is_not_repeated() {
    let long = vec![b'x'; 300 * 1024];
    let short = vec![b'y'; 20 * 1024];
    for (body, made) in [(&long, 1), (&short, 3)] {
        let server = failing(503, &[]);
        let (dependency, _proxy) = start(server.address, QUICK);
        let answer = Client::connect(dependency.listen).call("PUT", "/", &[], body);
        assert_eq!(answer.status, 503, "{answer}");
        assert_eq!(server.requests(), made);
        assert!(server.seen().iter().all(|request| request.body == **body), "bodies arrive whole");
    }
}

#[test]
fn a_kept_answer_beyond_16_kib_is_not_delivered_as_if_whole() {
    let server = Upstream::start(|request| match request.before {
        0 => upstream::answer(503, &[], &"x".repeat(64 * 1024)),
        _ => vec![Step::Hang],
    });
    let spec = "  timeouts: {request: 500ms}
  retry: {backoff: {base: 1ms, max: 5ms}}";
    let (dependency, _proxy) = start(server.address, spec);
    let answer = Client::connect(dependency.listen).get("/");
    assert_ne!(answer.status, 200, "{answer}");
    assert!(answer.reason().is_some(), "the proxy says what came of it: {}", answer.status);
}

#[test]
fn under_total_failure_the_budget_holds_attempts_below_1_45_a_call() {
    let server = failing(503, &[]);
    let spec = "  retry: {maxAttempts: 3, backoff: {base: 1ms, max: 5ms}, budget: {percent: 20, interval: 10s, minPerSecond: 3}}";
    let (dependency, proxy) = start(server.address, spec);
    let load = Load::start(dependency.listen, 8, &Ask::get());
    load.wait_for_more(3_000);
    let tally = load.finish();
    let calls = tally.answers() as f64;
    let each = server.requests() as f64 / calls;
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    assert!(each < 1.45, "{each} attempts a call");
    assert!(each > 1.05, "{each} attempts a call: retries were made at all");
    assert!(proxy.admin.metric("plimsoll_retries_denied_total", &[]) > 0.0);
    let retries = proxy.admin.metric("plimsoll_attempts_total", &[("attempt", "retry")]);
    assert_eq!(retries as usize, server.requests() - tally.answers());
}

/// The worked number: 27 attempts a call without protection, under 1.3 with budgets and the no-retry signal.
#[test]
fn three_layers_do_not_multiply_their_retries() {
    let server = failing(503, &[]);
    let spec = "  retry: {maxAttempts: 3, backoff: {base: 1ms, max: 5ms}}";
    let innermost = listened("c", server.address, spec);
    let middle = listened("b", innermost.listen, spec);
    let outermost = listened("a", middle.listen, spec);
    let _proxies: Vec<Proxy> =
        [&innermost, &middle, &outermost].map(|layer| Setup::new().workers(1).policy(&layer.policy).start()).into();
    let load = Load::start(outermost.listen, 8, &Ask::get());
    load.wait_for_more(1_000);
    let tally = load.finish();
    let each = server.requests() as f64 / tally.answers() as f64;
    assert_eq!(tally.statuses.keys().copied().collect::<Vec<_>>(), [503], "{tally:?}");
    assert!((1.01..1.3).contains(&each), "{each} attempts a call at the innermost server");
}

#[test]
fn observe_makes_no_retry() {
    assert_eq!(attempts("GET", &[], "  retry: {mode: Observe, backoff: {base: 1ms, max: 5ms}}").0, 1);
    assert_eq!(attempts("GET", &[], "  mode: Observe\n  retry: {backoff: {base: 1ms, max: 5ms}}").0, 1);
    assert_eq!(attempts("GET", &[], "  retry: {mode: Disabled}").0, 1);
}

/// If retries took turns of their own, each call would begin at the endpoint that the last one failed at.
#[test]
fn retries_take_no_turn_and_a_dead_endpoint_costs_every_other_call() {
    let live = Upstream::start(|_| upstream::ok("ok"));
    let dead = address::reserve();
    let spec = "  retry: {backoff: {base: 1ms, max: 5ms}, budget: {percent: 100, minPerSecond: 100}}";
    let dependency = listened("fraud-api", dead, spec);
    let both = format!("\"{dead}\", \"{}\"", live.address);
    let policy = dependency.policy.replace(&format!("\"{dead}\""), &both);
    let proxy = Setup::new().workers(1).policy(&policy).start();
    let mut client = Client::connect(dependency.listen);
    for _ in 0..40 {
        assert_eq!(client.get("/").status, 200);
    }
    let first = |outcome| proxy.admin.metric("plimsoll_attempts_total", &[("attempt", "first"), ("outcome", outcome)]);
    assert_eq!((first("failure"), first("success")), (20.0, 20.0));
    assert_eq!(live.requests(), 40);
}
