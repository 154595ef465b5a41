//! What the proxy tells: metrics, status, decisions, events, logs and trace ids.

use std::io::Read;
use std::time::Duration;

use plimsoll_tests::address;
use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Step, Upstream};

fn start(server: &Upstream, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

#[test]
fn a_call_without_trace_gets_one_and_a_call_with_one_keeps_it() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, _proxy) = start(&server, "");
    let mut client = Client::connect(dependency.listen);
    client.get("/");
    client.get("/");
    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    client.call("GET", "/", &[("traceparent", given), ("tracestate", "a=b"), ("x-request-id", "mine")], b"");
    let seen = server.seen();
    let traces: Vec<&str> = seen.iter().map(|request| request.field("traceparent").expect("a trace")).collect();
    for trace in &traces {
        let parts: Vec<&str> = trace.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [2, 32, 16, 2], "{trace}");
        assert!(
            parts.iter().all(|part| part.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase())),
            "{trace}"
        );
        assert_ne!(parts[1], "0".repeat(32));
    }
    assert_ne!(traces[0], traces[1]);
    assert!(traces[2].contains("0af7651916cd43dd8448eb211c80319c"), "{}", traces[2]);
    assert!(seen[0].field("x-request-id").is_some_and(|id| id.len() >= 16));
    assert_eq!((seen[2].field("x-request-id"), seen[2].field("tracestate")), (Some("mine"), Some("a=b")));
}

#[test]
fn every_call_is_counted_once() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/500" => upstream::answer(500, &[], "no"),
        "/404" => upstream::answer(404, &[], "no"),
        "/reset" => vec![Step::Reset],
        _ => upstream::ok("ok"),
    });
    let (dependency, proxy) = start(&server, "");
    let mut client = Client::connect(dependency.listen);
    for target in ["/", "/", "/", "/404", "/500", "/500", "/reset"] {
        client.get(target);
    }
    let total = |labels: &[(&str, &str)]| proxy.admin.metric("plimsoll_requests_total", labels);
    let mine = ("dependency", "shop/fraud-api");
    assert_eq!(total(&[mine]), 7.0);
    assert_eq!(total(&[mine, ("code_class", "2xx")]), 3.0);
    assert_eq!(total(&[mine, ("code_class", "4xx")]), 1.0);
    assert_eq!(total(&[mine, ("code_class", "5xx")]), 3.0);
    assert_eq!(proxy.admin.metric("plimsoll_rejections_total", &[("reason", "UpstreamReset")]), 1.0);
    assert_eq!(proxy.admin.metric("plimsoll_request_duration_seconds_count", &[mine]), 7.0);
    assert_eq!(proxy.admin.metric("plimsoll_attempts_total", &[("attempt", "first")]), 7.0);
    assert_eq!(proxy.admin.metric("plimsoll_bugs_total", &[]), 0.0);
}

#[test]
fn metrics_are_open_metrics_without_secrets() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, proxy) = start(&server, "  circuitBreaker: {}\n  bulkhead: {maxConcurrentCalls: 5}\n  retry: {}");
    Client::connect(dependency.listen).call("GET", "/secret-path?token=abc", &[("Host", "secret-host")], b"");
    let answer = proxy.admin.request("GET", "/metrics", "");
    assert!(
        answer.field("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")),
        "{answer}"
    );
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"));
    for secret in ["secret-path", "secret-host", "abc"] {
        assert!(!text.contains(secret), "{secret}");
    }
    for name in [
        "plimsoll_requests_total",
        "plimsoll_request_duration_seconds",
        "plimsoll_bulkhead_limit",
        "plimsoll_bulkhead_in_flight",
        "plimsoll_circuit_state",
        "plimsoll_circuit_failure_rate_ratio",
        "plimsoll_circuit_slow_call_rate_ratio",
        "plimsoll_circuit_window_calls",
        "plimsoll_retry_budget_remaining_ratio",
        "plimsoll_policy_generation",
        "plimsoll_connections",
        "plimsoll_bugs_total",
    ] {
        assert!(text.contains(name), "{name} is missing");
    }
}

#[test]
fn a_refusal_is_in_decisions_with_its_numbers_and_without_secrets() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let (dependency, proxy) = start(&server, "  bulkhead: {maxConcurrentCalls: 1}");
    let mut holder = Client::connect(dependency.listen);
    holder.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let given = format!("00-{trace}-b7ad6b7169203331-01");
    let fields = [("traceparent", given.as_str()), ("Authorization", "Basic c2VjcmV0")];
    let refusal = Client::connect(dependency.listen).call("GET", "/pay?card=4111", &fields, b"");
    assert_eq!(refusal.reason(), Some("BulkheadFull"));
    let answer = proxy.admin.request("GET", "/decisions", "");
    for secret in ["4111", "c2VjcmV0"] {
        assert!(!answer.text().contains(secret), "{answer}");
    }
    let decision = proxy.admin.json("/decisions")["decisions"][0].clone();
    assert_eq!(decision["reason"], "BulkheadFull", "{decision:#}");
    assert_eq!(decision["policy"], "shop/fraud-api", "{decision:#}");
    assert_eq!((&decision["observed"], &decision["limit"]), (&1.into(), &1.into()), "{decision:#}");
    assert_eq!((&decision["status"], &decision["method"]), (&503.into(), &"GET".into()), "{decision:#}");
    assert_eq!(decision["trace_id"], trace, "{decision:#}");
    let id = decision["id"].as_str().expect("an id");
    assert_eq!(proxy.admin.json(&format!("/decisions?id={id}"))["decisions"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_behind_a_reason_is_said_in_the_answer_and_in_the_decision() {
    let nobody = address::reserve();
    let retries = listened("fraud-api", nobody, "  retry: {maxAttempts: 3, backoff: {base: 1ms, max: 5ms}}");
    let proxy = Setup::new().policy(&retries.policy).start();
    let answer = Client::connect(retries.listen).get("/");
    assert_eq!((answer.status, answer.reason()), (503, Some("RetriesExhausted")), "{answer}");
    let said = answer.field("proxy-status").unwrap_or_default();
    assert!(said.contains("block=retry cause=ConnectFailure observed=3 limit=3"), "{said}");
    let behind = format!("the last attempt: ConnectFailure, no connection could be made: {nobody}: Connection refused");
    let sentence = format!("shop/fraud-api: 3 of 3 attempts failed; {behind}");
    assert!(answer.text().contains(&sentence), "{answer}");
    let decision = proxy.admin.json("/decisions")["decisions"][0].clone();
    assert_eq!(decision["block"], "retry", "{decision:#}");
    assert!(decision["detail"].as_str().is_some_and(|detail| detail.starts_with(&behind)), "{decision:#}");

    let server = Upstream::start(|_| upstream::answer(500, &[], "no"));
    let breaker = "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 4, minimumNumberOfCalls: 4}";
    let (dependency, proxy) = start(&server, breaker);
    for _ in 0..4 {
        Client::connect(dependency.listen).get("/");
    }
    let answer = Client::connect(dependency.listen).get("/");
    let behind = "100 % of the calls had failed, and it opens at 50 %";
    assert!(answer.text().contains(&format!("the breaker of shop/fraud-api is open ({behind})")), "{answer}");
    let decision = proxy.admin.json("/decisions")["decisions"][0].clone();
    assert_eq!((&decision["reason"], &decision["detail"]), (&"CircuitOpen".into(), &behind.into()), "{decision:#}");
}

#[test]
fn a_refusal_is_json_for_who_wants_it() {
    let (dependency, _proxy) = start(&Upstream::start(|_| vec![Step::Reset]), "");
    let answer = Client::connect(dependency.listen).call("GET", "/", &[("Accept", "application/problem+json")], b"");
    assert_eq!(answer.field("content-type"), Some("application/problem+json"), "{answer}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(problem["status"], 503, "{problem}");
    let answer = Client::connect(dependency.listen).get("/");
    assert!(answer.field("content-type").is_some_and(|kind| kind.starts_with("text/plain")), "{answer}");
    assert_eq!(answer.text().trim_end().lines().count(), 1, "one line: {answer}");
    assert!(answer.field("proxy-status").is_some_and(|value| value.starts_with("plimsoll; error=")), "{answer}");
}

#[test]
fn state_changes_are_events_and_log_lines() {
    let server = Upstream::start(|_| upstream::answer(500, &[], "no"));
    let breaker = "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 5, waitDurationInOpenState: 60s}";
    let (dependency, proxy) = start(&server, breaker);
    let mut events = Client::connect(proxy.admin.address);
    let head =
        format!("GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", proxy.admin.token());
    events.write(head).unwrap();
    let (status, fields) = events.read_head().unwrap();
    assert_eq!(status, 200, "{fields:?}");
    for _ in 0..5 {
        Client::connect(dependency.listen).get("/");
    }
    let mut text = String::new();
    eventually("the event comes", || {
        let mut buffer = [0; 4096];
        let count = events.stream().read(&mut buffer).expect("bytes");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        text.contains("event: circuit")
    });
    assert!(text.contains("Open") && text.contains("shop/fraud-api"), "{text}");
    let logged =
        proxy.process.stderr_line(Duration::from_secs(5), |line| line.contains("fraud-api") && line.contains("Open"));
    assert!(logged.is_some(), "{}", proxy.process.output());
}

#[test]
fn the_access_log_has_a_line_for_each_call() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/reset" => vec![Step::Reset],
        _ => upstream::ok("ok"),
    });
    let dependency = listened("fraud-api", server.address, "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let proxy = Setup::new().policy(&dependency.policy).arg("--access-log").arg(file.to_str().unwrap()).start();
    let mut client = Client::connect(dependency.listen);
    client.get("/one");
    client.get("/reset");
    let lines = || std::fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    eventually("both lines are written", || lines().len() == 2);
    let lines = lines();
    assert!(lines[0].contains("200"), "{}", lines[0]);
    assert!(lines[1].contains("UpstreamReset") && lines[1].contains("503"), "{}", lines[1]);
    let trace = server.seen()[0].field("traceparent").unwrap()[3..35].to_owned();
    assert!(lines[0].contains(&trace), "{}", lines[0]);
    drop(proxy);
}

#[test]
fn latency_is_shown_from_fifty_samples_on() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, proxy) = start(&server, "");
    let mut client = Client::connect(dependency.listen);
    for _ in 0..60 {
        client.get("/");
    }
    eventually("percentiles are published", || proxy.admin.dependency("fraud-api")["latency_ms"]["p99"].is_number());
}

/// `count` dependencies nobody calls, named after `push`.
fn uncalled(push: usize, count: usize) -> String {
    let one = |n| {
        let name = format!("push{push}-{n}");
        format!(
            "---\napiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  target:\n    hosts: [{name}.internal]\n"
        )
    };
    (0..count).map(one).collect()
}

/// A dependency that nobody heard of before is counted under its own name.
#[track_caller]
fn assert_counts_a_new_one(proxy: &Proxy, server: &Upstream) {
    let fresh = listened("fresh", server.address, "");
    assert_eq!(proxy.admin.put_policy(&fresh.policy).0, 200);
    let mut client = Client::connect(fresh.listen);
    (0..3).for_each(|_| drop(client.get("/")));
    assert_eq!(proxy.admin.metric("plimsoll_requests_total", &[("dependency", "shop/fresh")]), 3.0);
    assert_eq!(proxy.admin.metric("plimsoll_requests_total", &[("dependency", "other")]), 0.0);
    assert_eq!(proxy.admin.dependency("fresh")["requests_total"], 3);
    assert_eq!(proxy.admin.metric("plimsoll_metric_series_dropped_total", &[]), 0.0);
}

#[test]
fn names_of_refused_policies_take_no_series() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let gone = listened("gone", server.address, "");
    let by_host = gone.policy.replace(&format!("listen: {}", gone.listen), "hosts: [gone.internal]");
    let proxy = Setup::new().policy(&by_host).start();
    Client::connect(proxy.outbound).get("http://gone.internal/");
    assert_eq!(proxy.admin.put_policy(&uncalled(0, 1)).0, 200);
    let taken = std::net::TcpListener::bind(address::reserve()).unwrap();
    let refused = listened("refused", server.address, "");
    let refused = refused.policy.replace(&refused.listen.to_string(), &taken.local_addr().unwrap().to_string());
    for push in 1..7 {
        let (status, said) = proxy.admin.put_policy(&format!("{refused}{}", uncalled(push, 200)));
        assert_eq!(status, 422, "{said}");
    }
    // The room that they would have needed is still that of a dependency that may come back.
    assert_eq!(proxy.admin.metric("plimsoll_requests_total", &[("dependency", "shop/gone")]), 1.0);
    assert_counts_a_new_one(&proxy, &server);
}

#[test]
fn names_that_are_gone_make_room_for_new_ones() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (_, proxy) = start(&server, "");
    for push in 0..24 {
        let (status, said) = proxy.admin.put_policy(&uncalled(push, 50));
        assert_eq!(status, 200, "{said}");
    }
    assert_counts_a_new_one(&proxy, &server);
}

#[test]
fn a_dependency_that_is_put_back_counts_on() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, proxy) = start(&server, "");
    let mut client = Client::connect(dependency.listen);
    (0..2).for_each(|_| drop(client.get("/")));
    for policy in [uncalled(0, 300), uncalled(1, 300), dependency.policy] {
        let (status, said) = proxy.admin.put_policy(&policy);
        assert_eq!(status, 200, "{said}");
    }
    Client::connect(dependency.listen).get("/");
    assert_eq!(proxy.admin.metric("plimsoll_requests_total", &[("dependency", "shop/fraud-api")]), 3.0);
}
