//! HTTP/1.1 that speaks of something newer: offers of HTTP/2, and gRPC in the dress of the web.

use std::process::Command;

use plimsoll_tests::client::Client;
use plimsoll_tests::peers::{Stage, direct};
use plimsoll_tests::process::require_program;
use plimsoll_tests::tools::script_command;
use plimsoll_tests::upstream::{self, Step, Upstream};

const PROTECTED: &str = "  timeouts: {request: 20s}
  bulkhead: {maxConcurrentCalls: 1000}
  circuitBreaker: {}
  retry: {}";

/// Java asks for `Upgrade: h2c` on the first request of each connection: the application's own server must not see it,
/// or it would answer 101 to a proxy that does not expect it.
#[test]
fn java_and_curl_ask_for_an_upgrade_that_nobody_sees() {
    let stage = Stage::loopback();
    let server = Upstream::start(|request| match request.target.as_str() {
        "/hello" => upstream::ok("hello"),
        "/echo" => upstream::ok(&String::from_utf8_lossy(&request.body)),
        "/big" => upstream::ok(&"x".repeat(1_000_000)),
        _ => upstream::answer(404, &[], "nowhere"),
    });
    let passage = stage.protect("old", server.address, PROTECTED);
    let base = format!("http://{}", passage.address);
    stage.succeed(script_command("ClientJava.java").arg(&base));
    let mut curl = Command::new(require_program("curl"));
    assert_eq!(
        stage.succeed(curl.args(["-sS", "--max-time", "20", "--http2"]).arg(format!("{base}/hello"))).trim(),
        "hello"
    );
    if direct() {
        return;
    }
    let seen = server.seen();
    assert!(seen.len() > 70);
    for request in seen {
        for field in ["upgrade", "http2-settings", "connection"] {
            assert_eq!(request.field(field), None, "{} {}", request.method, request.target);
        }
    }
}

/// One frame of gRPC-Web: data, or with the top bit set trailers.
fn frame(kind: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[kind][..], &length, message].concat()
}

/// Its trailers are bytes of the body: nothing in it is the proxy's business.
#[test]
fn grpc_web_passes_untouched() {
    let stage = Stage::loopback();
    let body = [frame(0, b"answer \x00\xff"), frame(0x80, b"grpc-status:14\r\ngrpc-message:not now\r\n")].concat();
    let text = body.clone();
    let server = Upstream::start(move |request| {
        let kind = request.field("content-type").unwrap_or_default();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", text.len());
        vec![Step::Bytes([head.as_bytes(), &text].concat())]
    });
    let passage = stage.protect("web", server.address, PROTECTED);
    let question = frame(0, b"question");
    for kind in ["application/grpc-web+proto", "application/grpc-web", "application/grpc-web-text"] {
        let fields = [("Content-Type", kind), ("X-Grpc-Web", "1"), ("grpc-timeout", "5S"), ("TE", "trailers")];
        let answer = Client::connect(passage.address).call("POST", "/test.Peer/Unary", &fields, &question);
        assert_eq!((answer.status, answer.field("content-type")), (200, Some(kind)), "{answer}");
        assert_eq!(answer.body, body, "{kind}");
        assert_eq!(answer.field("grpc-status"), None);
    }
    for request in server.seen() {
        assert_eq!(request.body, question);
        assert_eq!(request.field("x-grpc-web"), Some("1"));
    }
    assert_eq!(server.requests(), 3, "a status in the body of an answer is not retried");
}
