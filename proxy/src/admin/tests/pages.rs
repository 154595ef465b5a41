//! What the pages say.

use std::io::{BufRead as _, BufReader};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use plimsoll_resilience::breaker::{Cause, Transition};
use plimsoll_resilience::{Outcome, Reason, Summary};

use super::*;
use crate::reject::{Numbers, Refusal};
use crate::report::{CallFacts, CallReport, CircuitChange, Direction, StatsId};

#[test]
fn a_policy_is_handed_over_with_its_name() {
    let proxy = served();
    let yaml = "kind: DependencyPolicy\n";
    let (status, body) = ask(proxy.admin, "PUT /policy", &[&bearer(), "x-plimsoll-file: payments.yaml"], yaml);
    assert_eq!(status, 200);
    assert_eq!(
        json(&body),
        serde_json::json!({"accepted": true, "generation": "local-4", "warnings": [], "open_circuits": ["shop/fraud-api"]})
    );
    assert_eq!(*proxy.control.put.lock().unwrap(), [("payments.yaml".to_owned(), yaml.to_owned())]);
}

#[test]
fn a_refused_policy_is_422_with_the_errors_and_the_generation_that_stays() {
    let proxy = served();
    proxy.control.refuse.store(true, Ordering::SeqCst);
    let (status, body) = ask(proxy.admin, "PUT /policy", &[&bearer()], "x");
    let body = json(&body);
    assert_eq!((status, &body["accepted"], &body["generation"]), (422, &false.into(), &"local-3".into()));
    assert_eq!(body["errors"][0]["line"], 3);
}

#[test]
fn a_client_that_waits_for_100_continue_is_told_to_go_on() {
    let proxy = served();
    let mut stream = connect(proxy.admin);
    let head = format!(
        "PUT /policy HTTP/1.1\r\nHost: localhost\r\n{}\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n",
        bearer()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    stream.write_all(b"kind").unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(split(rest.trim_start()).0, 200);
    assert_eq!(proxy.control.put.lock().unwrap()[0].1, "kind");
}

#[test]
fn requests_follow_one_another_on_a_connection() {
    let proxy = served();
    let token = bearer();
    let two = format!(
        "PUT /policy HTTP/1.1\r\nHost: localhost\r\n{token}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nki\r\n2\r\nnd\r\n0\r\n\r\n\
         HEAD /status HTTP/1.1\r\nHost: localhost\r\n\r\n\
         GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    );
    let answers = exchange(proxy.admin, two.as_bytes());
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{answers}");
    // The HEAD has a length and no body: what follows its head is the next answer.
    assert!(answers.contains("nosniff\r\nContent-Length: "));
    assert!(answers.ends_with("\r\n\r\nlive\n"), "{answers}");
    assert_eq!(proxy.control.put.lock().unwrap()[0].1, "kind");
}

#[test]
fn a_breaker_is_forced_and_shown() {
    let proxy = served();
    let path = "POST /dependencies/shop/fraud-api/circuit";
    let (status, body) = ask(proxy.admin, path, &[&bearer()], r#"{"state":"ForcedOpen","ttl":"10m"}"#);
    let circuit = json(&body);
    assert_eq!((status, &circuit["state"], &circuit["forced_for_ms"]), (200, &"ForcedOpen".into(), &600_000.into()));
    let (_, status) = ask(proxy.admin, "GET /status", &[], "");
    assert_eq!(json(&status)["dependencies"][0]["circuits"][0], circuit);

    let bare = "POST /dependencies/fraud-api/circuit";
    assert_eq!(ask(proxy.admin, bare, &[&bearer()], r#"{"state":"Auto"}"#).0, 200);
    let orders = proxy.control.forced.lock().unwrap();
    assert_eq!((orders[0].state, orders[0].ttl), (Forced::Open, Some(Duration::from_secs(600))));
    assert_eq!((orders[1].state, orders[1].ttl), (Forced::Auto, None));
}

#[test]
fn an_order_that_cannot_be_followed_says_why() {
    let proxy = served();
    let order = r#"{"state":"ForcedOpen","ttl":"10m"}"#;
    for (name, body, want, hint) in [
        ("nowhere", order, 404, "plimsoll status"),
        ("both", order, 409, "a/both, b/both"),
        ("fraud-api", r#"{"state":"ForcedOpen"}"#, 400, "ttl"),
        ("fraud-api", "", 400, "ForcedOpen"),
    ] {
        let (status, answer) = ask(proxy.admin, &format!("POST /dependencies/{name}/circuit"), &[&bearer()], body);
        assert!(status == want && json(&answer)["error"].as_str().unwrap().contains(hint), "{status} {answer}");
    }
}

#[test]
fn events_arrive_as_they_happen() {
    let proxy = served();
    let mut stream = connect(proxy.admin);
    stream.write_all(format!("GET /events HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", bearer()).as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    // The comment is sent once the subscription stands: nothing after it can be missed.
    assert!(lines.by_ref().any(|line| line == ": connected"));
    let transition = Transition {
        from: State::Closed,
        to: State::Open,
        cause: Cause::SlowCallRate,
        counts: Counts { calls: 20, failed: 0, slow: 12 },
        retry_at: None,
        at: Timestamp::ZERO,
    };
    proxy.report.events().circuit(&CircuitChange {
        time: SystemTime::UNIX_EPOCH,
        policy: "shop/fraud-api",
        route: None,
        endpoint: None,
        mode: Mode::Enforce,
        transition: &transition,
        generation: "local-3",
    });
    let event: Vec<_> = lines.skip_while(String::is_empty).take(3).collect();
    assert_eq!((event[0].as_str(), event[2].as_str()), ("event: circuit", ""));
    let data = json(event[1].strip_prefix("data: ").unwrap());
    assert_eq!(
        (&data["to"], &data["cause"], &data["slow_call_rate"]),
        (&"Open".into(), &"SlowCallRate".into(), &60.into())
    );
}

/// Reports from a worker on a thread of its own, as in the proxy.
fn with_worker(proxy: &Served, work: impl FnOnce(&crate::report::WorkerReport) + Send, then: impl FnOnce()) {
    let report = proxy.report.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (began, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (worker, collection) = report.worker();
                work(&worker);
                began.send(()).unwrap();
                tokio::select! { () = collection.drive() => {}, _ = stopped => {} }
            });
        });
        begun.recv().unwrap();
        then();
        drop(stop);
    });
}

fn call(stats: StatsId, policy: Option<&'static str>) -> CallReport<'static> {
    CallReport {
        stats,
        facts: CallFacts {
            time: SystemTime::UNIX_EPOCH,
            direction: Direction::Outbound,
            method: b"POST",
            host: b"fraud.internal",
            path: b"/score?card=4111",
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736",
            policy,
            route: None,
        },
        status: 200,
        grpc: None,
        refusal: None,
        summary: Summary { attempts: 1, first: Some(Outcome::Success), ..Summary::default() },
        endpoint: None,
        duration: Duration::from_millis(7),
        deadline_remaining: None,
        bytes_received: 0,
        bytes_sent: 0,
    }
}

/// A bit of everything: good calls, refusals made and observed, an unlisted destination, open connections.
fn busy(proxy: &Served, worker: &crate::report::WorkerReport) {
    let fraud = proxy.report.series(Direction::Outbound, "shop/fraud-api", None).id();
    let charge = proxy.report.series(Direction::Outbound, "shop/fraud-api", Some("charge")).id();
    worker.connection_opened(Direction::Outbound);
    worker.connection_opened(Direction::Outbound);
    worker.connection_closed(Direction::Outbound);
    worker.detected(crate::detect::Detected::Http2);
    worker.flooded(Direction::Inbound);
    for millis in 1..=60 {
        worker.started(fraud);
        let latency = Some(Duration::from_millis(millis));
        let report = call(fraud, Some("shop/fraud-api"));
        worker.call(&CallReport { summary: Summary { latency, ..report.summary }, ..report });
    }
    worker.started(charge);
    worker.started(charge);
    let refusal = Refusal {
        policy: Some("shop/fraud-api"),
        route: Some("charge"),
        block: Some("bulkhead"),
        numbers: Some(Numbers { observed: 30, limit: 30 }),
        generation: Some("local-3"),
        ..Refusal::new(Reason::BulkheadFull)
    };
    let refused = CallReport {
        status: 503,
        refusal: Some(&refusal),
        summary: Summary::default(),
        duration: Duration::from_micros(400),
        ..call(charge, Some("shop/fraud-api"))
    };
    worker.call(&refused);
    let observed = Refusal { policy: Some("shop/fraud-api"), ..Refusal::new(Reason::CircuitOpen) };
    worker.would_refuse(fraud, &observed, &call(fraud, None).facts);
    worker.would_retry(fraud);
    worker.started(StatsId::UNLISTED);
    worker.call(&call(StatsId::UNLISTED, None));
}

#[test]
fn status_shows_what_is_going_on() {
    let proxy = served();
    with_worker(
        &proxy,
        |worker| busy(&proxy, worker),
        || {
            let (code, body) = ask(proxy.admin, "GET /status", &[], "");
            assert_eq!(code, 200);
            let mut status = json(&body);
            // Depends on how many seconds have passed.
            status["dependencies"][0]["requests_per_second"] = serde_json::Value::Null;
            insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
        },
    );
}

#[test]
fn decisions_are_listed_newest_first_and_found_again() {
    let proxy = served();
    with_worker(
        &proxy,
        |worker| busy(&proxy, worker),
        || {
            let ask = |query: &str| ask(proxy.admin, &format!("GET /decisions{query}"), &[&bearer()], "");
            let (_, body) = ask("");
            let all = json(&body);
            let decisions = all["decisions"].as_array().unwrap();
            assert_eq!((&decisions[0]["reason"], &decisions[0]["mode"]), (&"CircuitOpen".into(), &"Observe".into()));
            assert_eq!((&decisions[1]["reason"], &decisions[1]["mode"]), (&"BulkheadFull".into(), &"Enforce".into()));
            assert!(!body.contains("4111"), "no query in any output: {body}");
            let id = decisions[1]["id"].as_str().unwrap();
            assert_eq!(json(&ask(&format!("?id={id}")).1)["decisions"], serde_json::json!([decisions[1]]));
            let by_trace = json(&ask("?id=4bf92f3577b34da6a3ce929d0e0e4736&limit=1").1);
            assert_eq!(by_trace["decisions"], serde_json::json!([decisions[0]]));
            assert_eq!(ask("?limit=many").0, 400);
            assert_eq!(ask("?colour=red").0, 400);
            let mut shape = decisions[1].clone();
            shape["id"] = "..".into();
            insta::assert_snapshot!(serde_json::to_string_pretty(&shape).unwrap());
        },
    );
}

#[test]
fn metrics_are_valid_and_say_the_same() {
    let proxy = served();
    with_worker(
        &proxy,
        |worker| busy(&proxy, worker),
        || {
            let (_, page) = ask(proxy.admin, "GET /metrics", &[], "");
            metrics_format::check(&page);
            for line in [
                r#"plimsoll_requests_total{direction="outbound",dependency="shop/fraud-api",route="",code_class="2xx"} 60"#,
                r#"plimsoll_requests_total{direction="outbound",dependency="unlisted",route="",code_class="2xx"} 1"#,
                r#"plimsoll_attempts_total{direction="outbound",dependency="shop/fraud-api",route="",attempt="first",outcome="success"} 60"#,
                r#"plimsoll_rejections_total{direction="outbound",dependency="shop/fraud-api",route="charge",reason="BulkheadFull",policy="shop/fraud-api",mode="Enforce"} 1"#,
                r#"plimsoll_rejections_total{direction="outbound",dependency="shop/fraud-api",route="",reason="CircuitOpen",policy="shop/fraud-api",mode="Observe"} 1"#,
                r#"plimsoll_retries_denied_total{direction="outbound",dependency="shop/fraud-api",route="",cause="Observe"} 1"#,
                r#"plimsoll_circuit_state{dependency="shop/fraud-api",route="",mode="Enforce",state="Closed"} 1"#,
                r#"plimsoll_circuit_state{dependency="shop/fraud-api",route="",mode="Enforce",state="Open"} 0"#,
                r#"plimsoll_circuit_state{dependency="shop/ledger",route="",mode="Enforce",state="Open"} 1"#,
                r#"plimsoll_circuit_window_calls{dependency="shop/ledger",route="",mode="Enforce"} 60"#,
                r#"plimsoll_circuit_failure_rate_ratio{dependency="shop/ledger",route="",mode="Enforce"} 0.35"#,
                r#"plimsoll_circuit_slow_call_rate_ratio{dependency="shop/ledger",route="",mode="Enforce"} 0.05"#,
                r#"plimsoll_bulkhead_in_flight{dependency="shop/fraud-api",route="",mode="Enforce"} 7"#,
                r#"plimsoll_retry_budget_remaining_ratio{dependency="shop/fraud-api"} 0.75"#,
                r#"plimsoll_endpoints{dependency="shop/ledger",state="Healthy"} 1"#,
                r#"plimsoll_endpoints{dependency="shop/ledger",state="CircuitOpen"} 1"#,
                r#"plimsoll_policy_fields_ineffective{dependency="shop/fraud-api"} 0"#,
                r#"plimsoll_policy_fields_ineffective{dependency="shop/ledger"} 2"#,
                r#"plimsoll_connections{direction="outbound"} 1"#,
                r#"plimsoll_protocol_detections_total{result="HTTP2"} 1"#,
                r#"plimsoll_http2_floods_total{direction="inbound"} 1"#,
                r#"plimsoll_http2_floods_total{direction="outbound"} 0"#,
                "plimsoll_policy_generation 3",
                "plimsoll_contested_addresses 2",
                "plimsoll_metric_series_dropped_total 0",
            ] {
                assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
            }
        },
    );
}
