//! The admin address: what is free, what needs the token, and what no token opens.

use plimsoll_tests::client::Client;
use plimsoll_tests::proxy::{Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Upstream};

fn start() -> (Upstream, String, Proxy) {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, "  circuitBreaker: {}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    (server, dependency.policy, proxy)
}

fn bare(proxy: &Proxy, method: &str, path: &str, fields: &[(&str, &str)]) -> u16 {
    let host = proxy.admin.address.to_string();
    let mut all = vec![("Host", host.as_str())];
    all.extend_from_slice(fields);
    Client::connect(proxy.admin.address).call(method, path, &all, b"").status
}

#[test]
fn reading_that_tells_little_is_free() {
    let (_server, _policy, proxy) = start();
    for path in ["/ready", "/live", "/metrics", "/status"] {
        assert_eq!(bare(&proxy, "GET", path, &[]), 200, "{path}");
    }
    assert_eq!(bare(&proxy, "GET", "/nowhere", &[]), 404);
}

#[test]
fn everything_else_needs_the_token() {
    let (_server, policy, proxy) = start();
    let wrong = [("Authorization", "Bearer 0000000000000000")];
    let asked = [
        ("GET", "/policy"),
        ("GET", "/config-dump"),
        ("GET", "/decisions"),
        ("GET", "/events"),
        ("PUT", "/policy"),
        ("POST", "/drain"),
        ("POST", "/dependencies/fraud-api/circuit"),
    ];
    for (method, path) in asked {
        assert_eq!(bare(&proxy, method, path, &[]), 401, "{method} {path}");
        assert_eq!(bare(&proxy, method, path, &wrong), 401, "{method} {path} with a wrong token");
    }
    let generation = proxy.admin.status()["generation"].clone();
    assert_eq!(proxy.admin.request("GET", "/policy", "").status, 200);
    assert_eq!(proxy.admin.put_policy(&policy).0, 200);
    assert_ne!(proxy.admin.status()["generation"], generation);
}

#[test]
fn the_token_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let (_server, _policy, proxy) = start();
    let folder = proxy.policy_file().parent().unwrap().join("state");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let tokens: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(".token"))
        .collect();
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(proxy.admin.token().len() >= 32);
}

#[test]
fn browsers_and_names_are_kept_out() {
    let (_server, _policy, proxy) = start();
    let token = format!("Bearer {}", proxy.admin.token());
    let authorized = ("Authorization", token.as_str());
    let mut client = Client::connect(proxy.admin.address);
    let answer = client.call("GET", "/status", &[("Host", "evil.example.com")], b"");
    assert_eq!(answer.status, 403, "DNS rebinding: {answer}");
    for host in ["localhost", "127.0.0.1", "[::1]:15000"] {
        assert_eq!(
            Client::connect(proxy.admin.address).call("GET", "/status", &[("Host", host)], b"").status,
            200,
            "{host}"
        );
    }
    for path in ["/status", "/policy"] {
        let fields = [authorized, ("Origin", "http://evil.example.com")];
        assert_eq!(bare(&proxy, "GET", path, &fields), 403, "{path}");
    }
}

#[test]
fn bodies_end_at_one_mebibyte() {
    let (_server, _policy, proxy) = start();
    let answer = proxy.admin.request("PUT", "/policy", &"#".repeat(1_100_000));
    assert_eq!(answer.status, 413, "{answer}");
    assert_eq!(proxy.admin.status()["policy"]["source"], "File");
}

#[test]
fn the_health_address_serves_health_alone() {
    let (_server, _policy, proxy) = start();
    let ask = |path: &str| Client::connect(proxy.health).get(path).status;
    assert_eq!((ask("/ready"), ask("/live")), (200, 200));
    for path in ["/status", "/metrics", "/policy", "/decisions"] {
        assert_eq!(ask(path), 404, "{path}");
    }
}

#[test]
fn methods_are_checked() {
    let (_server, _policy, proxy) = start();
    assert_eq!(proxy.admin.request("DELETE", "/policy", "").status, 405);
    assert_eq!(proxy.admin.request("POST", "/status", "").status, 405);
}
