//! The inbound side: the application's own door, for callers who are strangers.

use std::time::Duration;

use plimsoll_tests::client::Client;
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::proxy::{Proxy, Setup};
use plimsoll_tests::upstream::{self, Gate, Step, Upstream};
use plimsoll_tests::{address, eventually};

fn named(name: &'static str) -> Upstream {
    Upstream::start(move |_| upstream::ok(name))
}

const WORKLOAD: &str = "apiVersion: plimsoll.dev/v1alpha1
kind: WorkloadPolicy
metadata: {name: payments, namespace: shop}
spec: {workload: payments}
";

/// The application behind a proxy with this `spec` of a WorkloadPolicy.
fn start(app: &Upstream, spec: &str) -> Proxy {
    let policy = WORKLOAD.replace("{workload: payments}", &format!("{{workload: payments, {spec}}}"));
    let setup = Setup::new().policy(&policy).arg("--workload").arg("payments");
    setup.arg("--app").arg(app.address.to_string()).start()
}

#[test]
fn inbound_goes_to_the_application() {
    let app = named("app");
    let proxy = Setup::new()
        .policy(WORKLOAD)
        .arg("--workload")
        .arg("payments")
        .arg("--app")
        .arg(app.address.to_string())
        .start();
    let fields = [("Host", "payments.shop"), ("X-Plimsoll-Anything", "1"), ("x-criticality", "CriticalPlus")];
    let answer = Client::connect(proxy.inbound).call("GET", "/pay?x=1", &fields, b"");
    assert_eq!((answer.status, answer.text().as_str()), (200, "app"), "{answer}");
    let seen = &app.seen()[0];
    assert_eq!((seen.target.as_str(), seen.field("host")), ("/pay?x=1", Some("payments.shop")));
    assert_eq!(seen.field("x-plimsoll-anything"), None);
    assert!(seen.field("x-forwarded-for").is_some_and(|value| value.contains("127.0.0.1")), "{seen:?}");
    assert_eq!(proxy.admin.status()["inbound"]["requests_total"], 1);
}

#[test]
fn inbound_is_never_a_forward_proxy() {
    let (app, elsewhere) = (named("app"), named("elsewhere"));
    let proxy = Setup::new().arg("--app").arg(app.address.to_string()).start();
    let mut client = Client::connect(proxy.inbound);
    client.write(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", elsewhere.address)).unwrap();
    let answer = client.read_answer(false).expect("an answer");
    assert!(answer.status >= 400, "{answer}");
    let answer =
        Client::connect(proxy.inbound).call("GET", &format!("http://{}/x", elsewhere.address), &[("Host", "a")], b"");
    assert_eq!(answer.text(), "app", "an absolute target only supplies the Host: {answer}");
    assert_eq!(app.seen()[0].field("host"), Some(elsewhere.address.to_string().as_str()));
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn inbound_without_an_application_refuses_what_was_not_redirected() {
    let proxy = Setup::new().start();
    let answer = Client::connect(proxy.inbound).get("/");
    assert_eq!((answer.status, answer.reason()), (502, Some("Loop")), "{answer}");
}

#[test]
fn strangers_learn_the_reason_alone() {
    let app = address::reserve();
    let proxy = Setup::new().arg("--app").arg(app.to_string()).start();
    let answer = Client::connect(proxy.inbound).get("/");
    assert_eq!(answer.reason(), Some("ConnectFailure"), "{answer}");
}

#[test]
fn the_workload_has_a_limit_of_its_own() {
    let gate = Gate::default();
    let held = gate.clone();
    let app = Upstream::start(move |_| upstream::behind(&held, upstream::ok("app")));
    let proxy = start(&app, "bulkhead: {maxConcurrentCalls: 2}");
    let mut callers: Vec<Client> = (0..2).map(|_| Client::connect(proxy.inbound)).collect();
    for caller in &mut callers {
        caller.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    app.wait_for_requests(2);
    let refusal = Client::connect(proxy.inbound).get("/");
    assert_eq!((refusal.status, refusal.reason()), (503, Some("BulkheadFull")), "{refusal}");
    assert_eq!((refusal.detail("policy"), refusal.detail("limit")), (None, None), "strangers learn no more: {refusal}");
    assert!(!refusal.text().contains("shop/payments"), "nor from the body: {refusal}");
    gate.open();
    for caller in &mut callers {
        assert_eq!(caller.read_answer(false).unwrap().status, 200);
    }
    assert_eq!(app.most_in_flight(), 2);
    assert_eq!(proxy.admin.status()["inbound"]["rejections"]["BulkheadFull"], 1);
}

#[test]
fn the_caller_may_shorten_its_call_and_the_workload_caps_it() {
    let app = Upstream::start(|_| vec![Step::Hang]);
    let proxy = start(&app, "timeouts: {request: 800ms}");
    let deadline = |value: &str| {
        let fields = [("x-envoy-expected-rq-timeout-ms", value)];
        Client::connect(proxy.inbound).call("GET", "/", &fields, b"")
    };
    let answer = deadline("200");
    assert_eq!((answer.status, answer.reason()), (504, Some("DeadlineExpired")), "{answer}");
    let answer = deadline("60000");
    assert_eq!((answer.status, answer.reason()), (504, Some("RequestTimeout")), "{answer}");
    eventually("the application is told", || app.abandoned() == 2);
}

#[test]
fn sigterm_under_load_loses_no_call() {
    let app = Upstream::start(|_| upstream::after(Duration::from_millis(3), upstream::ok("ok")));
    let mut proxy = start(&app, "drain: {delay: 500ms, grace: 20s}");
    let load = Load::start(proxy.inbound, 16, &Ask::post());
    load.wait_for_more(500);
    proxy.terminate();
    assert_eq!(proxy.process.wait(Duration::from_secs(30)).code(), Some(0), "{}", proxy.process.output());
    eventually("callers find nobody", || load.ended());
    let tally = load.finish();
    assert!(tally.failures.is_empty(), "{:?}", &tally.failures[..tally.failures.len().min(5)]);
    assert_eq!((tally.ok(), app.requests()), (tally.answers(), tally.answers()));
}
