//! HTTP/2 as clients and servers of others speak it, through the proxy, and translated to HTTP/1.1 and back where a
//! policy says so.

use std::net::SocketAddr;
use std::process::Command;

use plimsoll_tests::namespace::as_root;
use plimsoll_tests::peers::{Stage, direct};
use plimsoll_tests::process::{Process, require_program};
use plimsoll_tests::proxy::Setup;
use plimsoll_tests::tools::{self, script_command};
use plimsoll_tests::upstream::{self, Upstream};
use plimsoll_tests::{PATIENCE, eventually};

const PROTECTED: &str = "  timeouts: {request: 20s}
  bulkhead: {maxConcurrentCalls: 1000}
  circuitBreaker: {}
  retry: {}";

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

fn curl(args: &[&str]) -> Command {
    let mut command = Command::new(require_program("curl"));
    command.args(["-sS", "--noproxy", "*", "--max-time", "20"]).args(args);
    command
}

/// What curl does with the paths that the services have in common; `version` is how it speaks.
fn exercise_with_curl(stage: &Stage, version: &str, base: &str) {
    let ask = |args: &[&str], path: &str| {
        stage.succeed(curl(&[version]).args(args).arg(format!("{base}{path}"))).trim().to_owned()
    };
    assert_eq!(ask(&[], "/hello"), "hello");
    assert_eq!(ask(&["-d", "some=body"], "/echo"), "some=body");
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(file.path(), "x".repeat(3_000_000)).expect("it can be written");
    let upload = format!("@{}", file.path().display());
    let sizes = ["-o", "/dev/null", "-w", "%{size_download} %{http_code}"];
    let said = ask(&[&sizes[..], &["--data-binary", &upload]].concat(), "/echo");
    assert_eq!(said, "3000000 200");
    assert_eq!(ask(&sizes, "/big"), "1000000 200");
    assert!(ask(&["-I"], "/hello").contains("200"));
}

fn client_h2(base: &str) -> Command {
    let mut command = script_command("client_h2.mjs");
    command.arg(base);
    if direct() {
        command.arg("direct");
    }
    command
}

#[test]
fn node_speaks_to_node() {
    let stage = Stage::loopback();
    let server = stage.serve("server_h2.mjs", &[]);
    let passage = stage.protect("node", server.address, PROTECTED);
    stage.succeed(&mut client_h2(&url(passage.address)));
    let Some(proxy) = passage.proxy else { return };
    assert_eq!(proxy.admin.circuit("node"), "Closed");
    assert_eq!(proxy.admin.dependency("node")["bulkheads"][0]["in_flight"], 0);
}

#[test]
fn curl_and_httpx_with_prior_knowledge() {
    let stage = Stage::loopback();
    let server = stage.serve("server_h2.mjs", &[]);
    let passage = stage.protect("node", server.address, PROTECTED);
    let base = url(passage.address);
    exercise_with_curl(&stage, "--http2-prior-knowledge", &base);
    let version = ["--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_version}"];
    assert_eq!(stage.succeed(curl(&version).arg(format!("{base}/hello"))).trim(), "2");
    stage.succeed(script_command("client_httpx.py").arg(&base));
}

#[test]
fn neither_side_knows_of_a_proxy_in_its_pod() {
    as_root(|| {
        let stage = Stage::redirected();
        let server = stage.serve("server_h2.mjs", &[]);
        let one = stage.serve("server_h2.mjs", &[]);
        let _proxy = stage.proxy(Default::default());
        for address in [server.address, stage.at6(server.address.port()), one.address] {
            stage.succeed(&mut client_h2(&url(address)));
        }
        exercise_with_curl(&stage, "--http2-prior-knowledge", &url(server.address));
        stage.succeed(script_command("client_httpx.py").arg(url(stage.at6(server.address.port()))));
        stage.succeed(script_command("websocket_h2.py").arg(server.address.to_string()).arg("raw"));
    });
}

#[test]
fn h2load_and_nghttpd() {
    let stage = Stage::loopback();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    std::fs::write(folder.path().join("hello"), "hello").expect("it can be written");
    std::fs::write(folder.path().join("big"), "x".repeat(100_000)).expect("it can be written");
    let address = stage.reserve();
    let mut nghttpd = Command::new(require_program("nghttpd"));
    nghttpd.args(["--no-tls", "--echo-upload", "-a", &address.ip().to_string(), "-d"]).arg(folder.path());
    let server = stage.serve_at(address, nghttpd.arg(address.port().to_string()));
    let passage = stage.protect("nghttpd", server.address, PROTECTED);
    let load = |args: &[&str], path: &str, count: usize| {
        let mut command = Command::new(require_program("h2load"));
        command.args(["-n", &count.to_string()]).args(args).arg(format!("{}{path}", url(passage.address)));
        let said = stage.succeed(&mut command);
        assert!(said.contains(&format!("{count} succeeded, 0 failed, 0 errored")), "{said}");
        assert!(said.contains(&format!("status codes: {count} 2xx")), "{said}");
    };
    load(&["-c10", "-m16"], "/hello", 20_000);
    load(&["-c1", "-m100"], "/big", 1_000);
    let file = folder.path().join("upload");
    std::fs::write(&file, "y".repeat(50_000)).expect("it can be written");
    load(&["-c4", "-m8", "-d", &file.display().to_string()], "/echo", 1_000);
    let Some(proxy) = passage.proxy else { return };
    assert_eq!(proxy.admin.circuit("nghttpd"), "Closed");
    assert_eq!(proxy.admin.metric("plimsoll_requests_total", &[("dependency", "shop/nghttpd")]), 22_000.0);
}

#[test]
fn web_sockets_over_http_2() {
    let stage = Stage::loopback();
    let server = stage.serve("server_h2.mjs", &[]);
    let passage = stage.protect("chat", server.address, PROTECTED);
    stage.succeed(script_command("websocket_h2.py").arg(passage.address.to_string()).arg("raw"));
    // To a server of HTTP/1.1, for which it becomes an upgrade.
    let old = tools::serve("websocket_server.py");
    let back = stage.protect("old", old.address, &format!("    upstreamProtocol: HTTP1\n{PROTECTED}"));
    if direct() {
        return;
    }
    stage.succeed(script_command("websocket_h2.py").arg(back.address.to_string()).arg("messages"));
}

#[test]
fn http_1_callers_reach_an_http_2_server() {
    let stage = Stage::loopback();
    let server = stage.serve("server_h2.mjs", &[]);
    let passage = stage.protect("node", server.address, &format!("    upstreamProtocol: HTTP2\n{PROTECTED}"));
    let base = url(passage.address);
    exercise_with_curl(&stage, "--http1.1", &base);
    stage.succeed(script_command("client_requests.py").arg(&base));
    stage.succeed(script_command("client_fetch.mjs").arg(&base));
    stage.succeed(script_command("ClientJava.java").arg(&base));
    let said = stage
        .succeed(curl(&["--http1.1", "-H", "X-One: 1", "-H", "Host: fraud.internal"]).arg(format!("{base}/fields")));
    for wanted in ["\":authority\":\"fraud.internal\"", "\":scheme\":\"http\"", "\"x-one\":\"1\""] {
        assert!(said.contains(wanted), "{said}");
    }
    let hinted = stage.succeed(curl(&["--http1.1", "-i"]).arg(format!("{base}/hints")));
    assert!(hinted.starts_with("HTTP/1.1 103") && hinted.trim_end().ends_with("hinted"), "{hinted}");
    // HTTP/2 callers go on as they were.
    stage.succeed(&mut client_h2(&base));
}

#[test]
fn http_2_callers_reach_an_http_1_server() {
    let stage = Stage::loopback();
    let server = tools::serve("server_aiohttp.py");
    let passage = stage.protect("aiohttp", server.address, &format!("    upstreamProtocol: HTTP1\n{PROTECTED}"));
    let base = url(passage.address);
    exercise_with_curl(&stage, "--http2-prior-knowledge", &base);
    stage.succeed(script_command("client_httpx.py").arg(&base));
    let mut h2load = Command::new(require_program("h2load"));
    let said = stage.succeed(h2load.args(["-n2000", "-c4", "-m8"]).arg(format!("{base}/hello")));
    assert!(said.contains("2000 succeeded, 0 failed, 0 errored"), "{said}");
    // HTTP/1.1 callers of the same dependency too.
    stage.succeed(script_command("client_requests.py").arg(&base));
}

/// The outbound listener takes HTTP/2 as it takes HTTP/1.1: where to is in the request.
#[test]
fn a_forward_proxy_is_asked_in_http_2() {
    let stage = Stage::loopback();
    let (new, old) = (stage.serve("server_h2.mjs", &[]), tools::serve("server_node.mjs"));
    let policy = format!(
        "apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {{name: known, namespace: shop}}
spec:
  target: {{hosts: [\"known.internal:80\"], endpoints: {{static: [\"{}\"]}}}}
",
        new.address
    );
    let Some(proxy) = stage.proxy(Setup::new().policy(&policy)) else { return };
    let through = format!("::{}", proxy.outbound);
    let ask = |base: &str| {
        let mut command = curl(&["--http2-prior-knowledge", "--connect-to", &through, "-w", " %{http_version}"]);
        stage.succeed(command.arg(format!("{base}/hello"))).trim().to_owned()
    };
    assert_eq!(ask(&url(new.address)), "hello 2");
    assert_eq!(ask("http://known.internal"), "hello 2");
    assert_eq!(proxy.admin.dependency("known")["requests_total"], 1);
    let mut tunnels = script_command("connect_h2.py");
    stage.succeed(tunnels.args([proxy.outbound.to_string(), old.address.to_string()]));
}

#[test]
fn node_is_told_to_open_no_more_and_loses_no_stream() {
    let stage = Stage::loopback();
    let server = stage.serve("server_h2.mjs", &[]);
    let ask = |path: &str| {
        stage
            .succeed(curl(&["--http2-prior-knowledge"]).arg(format!("{}{path}", url(server.address))))
            .trim()
            .to_owned()
    };
    let mut passage = stage.protect("leaving", server.address, PROTECTED);
    let Some(proxy) = &mut passage.proxy else { return };
    let mut client = script_command("drain_h2.mjs");
    let mut client = Process::start(client.arg(format!("{}/gate", url(passage.address))));
    eventually("all have arrived", || ask("/waiting") == "20");
    proxy.terminate();
    assert!(client.stdout_line(PATIENCE, |line| line == "goaway").is_some(), "{}", client.output());
    assert_eq!(ask("/waiting"), "20");
    ask("/open");
    assert!(client.wait(PATIENCE).success(), "{}", client.output());
    let status = proxy.process.wait(PATIENCE);
    assert_eq!(status.code(), Some(0), "{}", proxy.process.output());
}

/// The same port serves whatever protocol a caller speaks, and asks the server in the same.
#[test]
fn a_port_takes_both_versions_and_asks_in_the_callers() {
    let stage = Stage::loopback();
    let server = Upstream::start(|_| upstream::ok("one"));
    let passage = stage.protect("both", server.address, PROTECTED);
    let hello = format!("{}/hello", url(passage.address));
    assert_eq!(stage.succeed(curl(&["--http1.1"]).arg(&hello)).trim(), "one");
    if direct() {
        return;
    }
    // This server does not know HTTP/2: what it answers to the preface is none, and the caller is told.
    let said = stage.succeed(curl(&["--http2-prior-knowledge", "-i"]).arg(&hello));
    assert!(said.starts_with("HTTP/2 502") && said.contains("reason=UpstreamProtocolError"), "{said}");
}
