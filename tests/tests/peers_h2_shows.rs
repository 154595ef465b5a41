//! What was shown for HTTP/1.1 holds for streams: exact limits, a breaker that sees calls that hang, policy that
//! changes under open streams, a drain that loses none, and a slow reader that costs nobody else.

use std::process::Command;

use plimsoll_tests::peers::{Passage, Server, Stage};
use plimsoll_tests::process::{Process, require_program};
use plimsoll_tests::tools::script_command;
use plimsoll_tests::{PATIENCE, eventually};

fn server(stage: &Stage) -> Server {
    stage.serve("server_h2.mjs", &[])
}

/// One request with prior knowledge; the status and the body.
fn get(url: &str) -> (u16, String) {
    let said = Stage::loopback().succeed(&mut curl(url, "\n%{http_code}"));
    let (body, status) = said.trim().rsplit_once('\n').expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

fn curl(url: &str, write: &str) -> Command {
    let mut command = Command::new(require_program("curl"));
    command.args(["-sS", "--noproxy", "*", "--max-time", "30", "--http2-prior-knowledge", "-w", write, url]);
    command
}

/// What the server itself says, not through the proxy.
fn ask(server: &Server, path: &str) -> String {
    get(&format!("http://{}{path}", server.address)).1
}

fn url(passage: &Passage, path: &str) -> String {
    format!("http://{}{path}", passage.address)
}

#[test]
fn a_bulkhead_counts_streams_exactly() {
    let stage = Stage::loopback();
    let server = server(&stage);
    let passage = stage.protect("slow", server.address, "  bulkhead: {maxConcurrentCalls: 20}");
    let mut h2load = Command::new(require_program("h2load"));
    // 256 at once, on eight connections that both workers share.
    let said = stage.succeed(h2load.args(["-n3000", "-c8", "-m32", "-t2"]).arg(url(&passage, "/slow")));
    assert!(said.contains("3000 total") && said.contains("0 errored"), "{said}");
    let Some(proxy) = passage.proxy else { return };
    assert_eq!(ask(&server, "/most"), "20");
    let refused = proxy.admin.metric("plimsoll_rejections_total", &[("reason", "BulkheadFull")]);
    assert!(refused > 0.0);
    assert!(said.contains(&format!("{refused} 5xx")), "{refused}: {said}");
    assert_eq!(proxy.admin.dependency("slow")["bulkheads"][0]["in_flight"], 0);
}

#[test]
fn a_breaker_opens_on_streams_that_hang() {
    let stage = Stage::loopback();
    let server = server(&stage);
    let spec = "  circuitBreaker: {slowCallDurationThreshold: 300ms, minimumNumberOfCalls: 10}";
    let passage = stage.protect("hung", server.address, spec);
    let Some(proxy) = &passage.proxy else { return };
    let gate = url(&passage, "/gate");
    let hung: Vec<Process> = (0..10).map(|_| Process::start(&mut curl(&gate, ""))).collect();
    eventually("the breaker has opened under them", || proxy.admin.circuit("hung") == "Open");
    assert_eq!(ask(&server, "/waiting"), "10", "not one has ended");
    let (status, refusal) = get(&url(&passage, "/hello"));
    assert_eq!(status, 503);
    assert!(refusal.contains("CircuitOpen"), "{refusal}");
    ask(&server, "/open");
    for mut process in hung {
        let status = process.wait(PATIENCE);
        assert!(status.success(), "{status}: {}", process.output());
    }
}

#[test]
fn policy_changes_under_open_streams() {
    let stage = Stage::loopback();
    let server = server(&stage);
    let (policy, address) = stage.dependency("swapped", server.address, "  bulkhead: {maxConcurrentCalls: 10}");
    let Some(proxy) = stage.proxy(plimsoll_tests::proxy::Setup::new().policy(&policy)) else { return };
    let held: Vec<Process> = (0..5).map(|_| Process::start(&mut curl(&format!("http://{address}/gate"), ""))).collect();
    eventually("all have arrived", || ask(&server, "/waiting") == "5");
    let (status, said) = proxy.admin.put_policy(&policy.replace("Calls: 10", "Calls: 3"));
    assert_eq!(status, 200, "{said}");
    let (status, refusal) = get(&format!("http://{address}/hello"));
    assert!(status == 503 && refusal.contains("BulkheadFull"), "those that run are over the new limit: {refusal}");
    assert_eq!(ask(&server, "/waiting"), "5");
    ask(&server, "/open");
    for mut process in held {
        let status = process.wait(PATIENCE);
        assert!(status.success(), "{status}: {}", process.output());
        let line = process.stdout_line(PATIENCE, |line| line == "through");
        assert!(line.is_some(), "{}", process.output());
    }
    eventually("their places are given back", || get(&format!("http://{address}/hello")).0 == 200);
}

#[test]
fn a_drain_loses_no_stream() {
    let stage = Stage::loopback();
    let server = server(&stage);
    let mut passage = stage.protect("leaving", server.address, "  circuitBreaker: {}");
    let Some(proxy) = &mut passage.proxy else { return };
    let gate = format!("http://{}/gate", passage.address);
    let mut client = script_command("drain_h2.mjs");
    let mut client = Process::start(client.arg(&gate));
    eventually("all have arrived", || ask(&server, "/waiting") == "20");
    proxy.terminate();
    assert!(client.stdout_line(PATIENCE, |line| line == "goaway").is_some(), "{}", client.output());
    assert_eq!(ask(&server, "/waiting"), "20");
    ask(&server, "/open");
    assert!(client.wait(PATIENCE).success(), "{}", client.output());
    let status = proxy.process.wait(PATIENCE);
    assert_eq!(status.code(), Some(0), "{}", proxy.process.output());
}

#[test]
fn a_stream_that_nobody_reads_stops_no_other() {
    let stage = Stage::loopback();
    let server = server(&stage);
    let passage = stage.protect("big", server.address, "  circuitBreaker: {}");
    println!("{}", stage.succeed(script_command("stall_h2.mjs").arg(url(&passage, ""))));
}
