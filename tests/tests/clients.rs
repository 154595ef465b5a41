//! Clients that people use work through the proxy unchanged, and see a cut answer as cut.

use std::process::Command;

use plimsoll_tests::process::require_program;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::tools::{run, script_command, serve, succeed};
use plimsoll_tests::upstream::{self, Step, Upstream};

/// The paths that the services in `tests/peers` have.
fn service() -> Upstream {
    Upstream::start(|request| match request.target.as_str() {
        "/hello" if request.method == "HEAD" => vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")],
        "/hello" => upstream::ok("hello"),
        "/echo" => {
            let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()).into_bytes();
            bytes.extend_from_slice(&request.body);
            vec![Step::Bytes(bytes)]
        }
        "/big" => upstream::ok(&"x".repeat(1_000_000)),
        "/chunked" => {
            let chunks = "a\r\n0123456789\r\n".repeat(100);
            vec![upstream::raw(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"))]
        }
        _ => upstream::answer(404, &[], "nowhere"),
    })
}

fn start(server: &Upstream, spec: &str) -> (Listened, Proxy, String) {
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let url = format!("http://{}", dependency.listen);
    (dependency, proxy, url)
}

const PROTECTED: &str = "  timeouts: {request: 10s}
  bulkhead: {maxConcurrentCalls: 200}
  circuitBreaker: {}
  retry: {}";

#[test]
fn curl() {
    let server = service();
    let (_dependency, proxy, url) = start(&server, PROTECTED);
    let curl = || {
        let mut command = Command::new(require_program("curl"));
        command.args(["-sS", "--fail-with-body", "--max-time", "20"]);
        command
    };
    assert_eq!(succeed(curl().arg(format!("{url}/hello"))).trim(), "hello");
    assert_eq!(succeed(curl().args(["-d", "some=body"]).arg(format!("{url}/echo"))).trim(), "some=body");
    assert!(succeed(curl().arg("-I").arg(format!("{url}/hello"))).contains("200"));
    assert!(succeed(curl().arg("--http1.0").arg(format!("{url}/hello"))).contains("hello"));
    // Above 1 MiB curl sends Expect: 100-continue and waits.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x".repeat(3_000_000)).unwrap();
    let upload = format!("@{}", file.path().display());
    let sizes = ["-o", "/dev/null", "-w", "%{size_download} %{http_code}"];
    let said = succeed(curl().args(sizes).args(["--data-binary", &upload]).arg(format!("{url}/echo")));
    assert_eq!(said.trim(), "3000000 200");
    let said = succeed(
        curl().args(["-x", &format!("http://{}", proxy.outbound)]).arg(format!("http://{}/hello", server.address)),
    );
    assert_eq!(said.trim(), "hello", "as a forward proxy");
    let (_, said) = run(curl().args(["-o", "/dev/null", "-w", "%{http_code}"]).arg(format!("{url}/nowhere")));
    assert!(said.contains("404"), "{said}");
}

#[test]
fn wrk() {
    let server = service();
    let (_dependency, proxy, url) = start(&server, PROTECTED);
    let said = succeed(Command::new(require_program("wrk")).args(["-t2", "-c50", "-d3s"]).arg(format!("{url}/hello")));
    assert!(!said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
    assert!(said.contains("requests in"), "{said}");
    assert_eq!(proxy.admin.metric("plimsoll_bugs_total", &[]), 0.0);
}

#[test]
fn h2load_with_http_1() {
    let server = service();
    let (_dependency, _proxy, url) = start(&server, PROTECTED);
    let mut command = Command::new(require_program("h2load"));
    let said = succeed(command.args(["--h1", "-n5000", "-c20", "-m1"]).arg(format!("{url}/hello")));
    assert!(said.contains("5000 succeeded, 0 failed, 0 errored"), "{said}");
}

#[test]
fn python_requests() {
    let server = service();
    let (_dependency, proxy, url) = start(&server, PROTECTED);
    let said = succeed(script_command("client_requests.py").arg(&url));
    assert!(said.contains("ok"), "{said}");
    let direct = format!("http://{}", server.address);
    succeed(script_command("client_requests.py").arg(direct).arg(format!("http://{}", proxy.outbound)));
}

#[test]
fn node_fetch() {
    let server = service();
    let (_dependency, _proxy, url) = start(&server, PROTECTED);
    let said = succeed(script_command("client_fetch.mjs").arg(&url));
    assert!(said.contains("ok"), "{said}");
}

#[test]
fn websockets() {
    let server = serve("websocket_server.py");
    let dependency = listened("chat", server.address, PROTECTED);
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let said = succeed(script_command("websocket_client.py").arg(format!("ws://{}/chat", dependency.listen)));
    assert!(said.contains("ok"), "{said}");
}

#[test]
fn a_cut_answer_is_seen_as_cut_by_curl_python_and_node() {
    let server = Upstream::start(|request| {
        let head = match request.target.as_str() {
            "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf",
            "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            _ => "HTTP/1.1 200 OK\r\n\r\nhalf",
        };
        vec![upstream::raw(head), Step::Hang]
    });
    let (_dependency, _proxy, url) = start(&server, "  timeouts: {request: 700ms}");
    for path in ["/length", "/chunked", "/close"] {
        let url = format!("{url}{path}");
        let mut curl = Command::new(require_program("curl"));
        let (code, said) = run(curl.args(["-sS", "--max-time", "20"]).arg(&url));
        assert!(matches!(code, Some(18 | 56)), "{path}: curl saw {code:?}: {said}");
        let (_, said) = run(script_command("cut_requests.py").arg(&url));
        assert!(said.starts_with("cut"), "{path}: requests saw {said}");
        let (_, said) = run(script_command("cut_fetch.mjs").arg(&url));
        assert!(said.starts_with("cut"), "{path}: fetch saw {said}");
    }
    // HTTP/1.0: only a reset can say so.
    let mut curl = Command::new(require_program("curl"));
    let (code, said) = run(curl.args(["-sS", "--http1.0", "--max-time", "20"]).arg(format!("{url}/close")));
    assert_eq!(code, Some(56), "curl saw {said}");
    // The upstream hung all the time: it is the proxy that cut.
    assert!(server.requests() >= 10);
    plimsoll_tests::eventually("the server was told each time", || server.abandoned() == server.requests());
}
