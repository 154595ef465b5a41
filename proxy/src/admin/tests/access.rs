//! Who may do what.

use std::sync::atomic::Ordering;

use super::*;

#[test]
fn state_is_free() {
    let proxy = served();
    for path in ["/", "/ready", "/live", "/status", "/metrics"] {
        assert_eq!(ask(proxy.admin, &format!("GET {path}"), &[], "").0, 200, "{path}");
    }
}

const GUARDED: [&str; 7] =
    ["GET /policy", "HEAD /policy", "GET /config-dump", "GET /decisions", "GET /events", "PUT /policy", "POST /drain"];

#[test]
fn configuration_callers_and_changes_need_the_token() {
    let proxy = served();
    for line in GUARDED.into_iter().chain(["POST /dependencies/fraud-api/circuit"]) {
        for fields in [&[][..], &["Authorization: Bearer wrong"], &["Authorization: Basic abc"]] {
            assert_eq!(ask(proxy.admin, line, fields, "").0, 401, "{line} {fields:?}");
        }
        let twice = bearer();
        assert_eq!(ask(proxy.admin, line, &[&twice, "Authorization: Bearer wrong"], "").0, 401, "{line} with two");
    }
    assert!(proxy.control.put.lock().unwrap().is_empty());
    assert!(proxy.control.forced.lock().unwrap().is_empty());
    assert!(!proxy.control.drained.load(Ordering::SeqCst));
    for line in ["GET /policy", "GET /config-dump", "GET /decisions"] {
        assert_eq!(ask(proxy.admin, line, &[&bearer()], "").0, 200, "{line}");
    }
}

#[test]
fn a_refusal_for_want_of_the_token_says_where_it_is() {
    let proxy = served();
    let (_, body) = ask(proxy.admin, "GET /policy", &[], "");
    assert!(json(&body)["error"].as_str().unwrap().contains("admin.token"), "{body}");
    let whole = exchange(proxy.admin, b"GET /policy HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(whole.contains("\r\nWWW-Authenticate: Bearer "), "{whole}");
}

#[test]
fn a_web_page_gets_nothing_even_with_the_token() {
    let proxy = served();
    let token = bearer();
    for path in ["/status", "/ready", "/policy"] {
        for field in ["Origin: http://evil.example", "Origin: null"] {
            assert_eq!(ask(proxy.admin, &format!("GET {path}"), &[&token, field], "").0, 403, "{path} {field}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:15000", "localhost.evil.example"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\nConnection: close\r\n\r\n");
            assert_eq!(split(&exchange(proxy.admin, request.as_bytes())).0, 403, "{path} {host}");
        }
    }
    // HTTP/1.0 may leave Host out; a browser never does, but nothing is gained by trusting that.
    assert_eq!(split(&exchange(proxy.admin, b"GET /status HTTP/1.0\r\n\r\n")).0, 403);
    for host in ["localhost", "LOCALHOST:1", "[::1]:15000", "10.0.0.1"] {
        let request = format!("GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(split(&exchange(proxy.admin, request.as_bytes())).0, 200, "{host}");
    }
}

#[test]
fn the_health_address_serves_health_and_nothing_else() {
    let proxy = served();
    assert_eq!(ask(proxy.health, "GET /live", &[], ""), (200, "live\n".to_owned()));
    assert_eq!(ask(proxy.health, "GET /ready", &["Origin: http://somewhere"], ""), (200, "ready\n".to_owned()));
    for path in ["/", "/status", "/metrics", "/policy", "/ready/", "//ready"] {
        assert_eq!(ask(proxy.health, &format!("GET {path}"), &[&bearer()], "").0, 404, "{path}");
    }
    assert_eq!(ask(proxy.health, "POST /ready", &[], "").0, 405);
    // A balancer in front may call it by any name.
    assert_eq!(
        split(&exchange(proxy.health, b"GET /live HTTP/1.1\r\nHost: pod.example\r\nConnection: close\r\n\r\n")).0,
        200
    );
    proxy.control.unready.store(true, Ordering::SeqCst);
    for address in [proxy.health, proxy.admin] {
        assert_eq!(ask(address, "GET /ready", &[], "").0, 503);
        assert_eq!(ask(address, "GET /live", &[], "").0, 200);
    }
}

#[test]
fn unknown_pages_and_methods() {
    let proxy = served();
    assert_eq!(ask(proxy.admin, "GET /nothing", &[&bearer()], "").0, 404);
    assert_eq!(ask(proxy.admin, "GET /status/", &[], "").0, 404);
    assert_eq!(ask(proxy.admin, "PUT /status", &[], "x").0, 405);
    assert_eq!(ask(proxy.admin, "GET /drain", &[&bearer()], "").0, 405);
    let whole = exchange(proxy.admin, b"DELETE /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(whole.contains("\r\nAllow: GET, HEAD\r\n"), "{whole}");
}
