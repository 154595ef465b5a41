//! Which dependency a call belongs to, and where nobody may get.

use std::net::SocketAddr;

use plimsoll_tests::address;
use plimsoll_tests::client::{Client, Response};
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::upstream::{self, Upstream};

fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "apiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  target: {target}\n{spec}\n---\n"
    )
}

fn named(name: &'static str) -> Upstream {
    Upstream::start(move |_| upstream::ok(name))
}

/// As to a forward proxy: the whole URL in the request line.
fn absolute(proxy: SocketAddr, url: &str) -> Response {
    let authority = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("a URL");
    Client::connect(proxy).call("GET", url, &[("Host", authority)], b"")
}

#[test]
fn the_forward_proxy_routes_by_host() {
    let (fraud, ledger, wild) = (named("fraud"), named("ledger"), named("wild"));
    let to = |server: &Upstream, hosts: &str| {
        format!("{{hosts: [{hosts}], endpoints: {{static: [\"{}\"]}}}}", server.address)
    };
    let text = policy("fraud", &to(&fraud, "\"fraud.internal\""), "")
        + &policy("ledger", &to(&ledger, "\"ledger.internal:8443\""), "")
        + &policy("wild", &to(&wild, "\"*.internal\""), "");
    let proxy = Setup::new().policy(&text).start();
    for (url, expected) in [
        ("http://fraud.internal/a", "fraud"),
        ("http://FRAUD.internal/a", "fraud"),
        ("http://fraud.internal:8080/a", "fraud"),
        ("http://ledger.internal:8443/", "ledger"),
        ("http://ledger.internal:9000/", "wild"),
        ("http://deep.er.internal/", "wild"),
    ] {
        let answer = absolute(proxy.outbound, url);
        assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{url}: {answer}");
    }
    let seen = &fraud.seen()[0];
    assert_eq!(seen.target, "/a", "origin form goes to the origin");
    assert_eq!(seen.field("host"), Some("fraud.internal"));
    let in_status = proxy.admin.dependency("fraud");
    assert_eq!(in_status["requests_total"], 3, "{in_status:#}");
}

#[test]
fn the_target_of_a_forwarded_request_decides_not_its_host_field() {
    let (fraud, other) = (named("fraud"), named("other"));
    let to =
        |server: &Upstream, host: &str| format!("{{hosts: [{host}], endpoints: {{static: [\"{}\"]}}}}", server.address);
    let text = policy("fraud", &to(&fraud, "fraud.internal"), "") + &policy("other", &to(&other, "other.internal"), "");
    let proxy = Setup::new().policy(&text).start();
    let answer =
        Client::connect(proxy.outbound).call("GET", "http://fraud.internal/", &[("Host", "other.internal")], b"");
    assert_eq!(answer.text(), "fraud", "RFC 9112 3.2.2: {answer}");
    assert_eq!(fraud.seen()[0].field("host"), Some("fraud.internal"));
}

#[test]
fn without_a_policy_everything_is_forwarded_and_nothing_refused() {
    let server = named("plain");
    let proxy = Setup::new().start();
    let url = format!("http://{}/x", server.address);
    for _ in 0..10 {
        assert_eq!(absolute(proxy.outbound, &url).text(), "plain");
    }
    assert_eq!(proxy.admin.status()["unlisted"]["requests_total"], 10);
    assert_eq!(proxy.admin.metric("plimsoll_requests_total", &[("dependency", "unlisted")]), 10.0);
}

#[test]
fn a_forwarded_call_to_nobody_is_connect_failure() {
    let proxy = Setup::new().start();
    let answer = absolute(proxy.outbound, &format!("http://{}/", address::reserve()));
    assert_eq!((answer.status, answer.reason()), (503, Some("ConnectFailure")), "{answer}");
}

#[test]
fn routes_match_in_order_by_method_path_and_header() {
    let server = named("ok");
    let spec = "  routes:
  - {name: one, match: {methods: [POST], path: {prefix: /v1/charge}}}
  - {name: two, match: {path: {prefix: /v1}}}
  - {name: three, match: {headers: [{name: x-tier, exact: gold}]}}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    let mut client = Client::connect(dependency.listen);
    client.post("/v1/charge/17", b"");
    client.get("/v1/charge/17");
    client.get("/v1chargeless");
    client.call("GET", "/other", &[("X-Tier", "gold")], b"");
    client.get("/%76%31/./charge");
    let count = |route: &str| proxy.admin.metric("plimsoll_requests_total", &[("route", route)]);
    assert_eq!((count("one"), count("two"), count("three")), (1.0, 2.0, 1.0), "prefixes match whole segments");
    let targets: Vec<String> = server.seen().into_iter().map(|request| request.target).collect();
    assert!(targets.contains(&"/%76%31/./charge".to_owned()), "what is forwarded is untouched: {targets:?}");
}

#[test]
fn nothing_leads_to_the_proxys_own_listeners() {
    let server = named("ok");
    let dependency = listened("fraud-api", server.address, "");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let port = |address: SocketAddr| address.port();
    let own = [proxy.admin.address, proxy.outbound, proxy.inbound, proxy.health, dependency.listen];
    for listener in own {
        for host in [
            listener.ip().to_string(),
            "127.0.0.1".to_owned(),
            "127.9.9.9".to_owned(),
            "0.0.0.0".to_owned(),
            "localhost".to_owned(),
            "[::1]".to_owned(),
            "[::ffff:127.0.0.1]".to_owned(),
            "[::]".to_owned(),
        ] {
            let authority = format!("{host}:{}", port(listener));
            let answer = absolute(proxy.outbound, &format!("http://{authority}/status"));
            assert_eq!((answer.status, answer.reason()), (502, Some("Loop")), "{authority}: {answer}");
            let mut client = Client::connect(proxy.outbound);
            client.write(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).unwrap();
            let answer = client.read_answer(false).expect("an answer");
            assert!(answer.status >= 400, "CONNECT {authority}: {answer}");
        }
    }
    assert_eq!(proxy.admin.metric("plimsoll_bugs_total", &[]), 0.0);
}

#[test]
fn a_policy_cannot_name_the_proxys_own_listener_as_an_endpoint() {
    let (admin, health) = (address::reserve(), address::reserve());
    for target in [admin, health] {
        let dependency = listened("fraud-api", target, "");
        let proxy = Setup::new()
            .policy(&dependency.policy)
            .arg("--admin")
            .arg(admin.to_string())
            .arg("--health")
            .arg(health.to_string())
            .start();
        let answer = Client::connect(dependency.listen).get("/status");
        assert_eq!((answer.status, answer.reason()), (502, Some("Loop")), "{answer}");
        drop(proxy);
    }
}
