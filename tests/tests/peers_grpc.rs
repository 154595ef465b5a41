//! gRPC as its two great libraries speak it, through the proxy: every kind of call, deadlines, retries by status,
//! refusals, and the clocks that hold for streams.

use std::net::SocketAddr;
use std::process::Command;

use plimsoll_tests::certificates::Authority;
use plimsoll_tests::namespace::as_root;
use plimsoll_tests::peers::{Passage, Server, Stage, direct};
use plimsoll_tests::proxy::Setup;
use plimsoll_tests::tools::script_command;

/// What most dependencies have.
const PROTECTED: &str = "    protocol: GRPC
  bulkhead: {maxConcurrentCalls: 1000}
  circuitBreaker: {}
  retry: {}";

fn grpcio(stage: &Stage) -> Server {
    stage.serve("grpc_server.py", &[])
}

fn grpc_js(stage: &Stage) -> Server {
    stage.serve("grpc_server.mjs", &[])
}

fn client(cases: &str, address: SocketAddr) -> Command {
    let mut command = script_command("grpc_client.py");
    command.arg(cases).arg(address.to_string());
    command
}

/// One dependency on loopback with this much policy.
fn protected(server: &Server, spec: &str) -> Passage {
    Stage::loopback().protect("peer", server.address, spec)
}

const EVERY_KIND: &str = "messages,compressed,many,cancel";

#[test]
fn grpcio_speaks_to_grpcio() {
    let stage = Stage::loopback();
    let server = grpcio(&stage);
    let passage = protected(&server, PROTECTED);
    stage.succeed(&mut client(&format!("{EVERY_KIND},services"), passage.address));
    let Some(proxy) = passage.proxy else { return };
    assert_eq!(proxy.admin.circuit("peer"), "Closed");
    assert_eq!(proxy.admin.dependency("peer")["bulkheads"][0]["in_flight"], 0);
}

#[test]
fn grpcio_and_grpc_js_speak_to_each_other_and_themselves() {
    let stage = Stage::loopback();
    let (python, node) = (grpcio(&stage), grpc_js(&stage));
    let (to_python, to_node) = (protected(&python, PROTECTED), protected(&node, PROTECTED));
    for passage in [&to_python, &to_node] {
        stage.succeed(script_command("grpc_client.mjs").arg(passage.address.to_string()));
    }
    stage.succeed(&mut client(EVERY_KIND, to_node.address));
}

#[test]
fn neither_side_knows_of_a_proxy_in_its_pod() {
    as_root(|| {
        let stage = Stage::redirected();
        let server = grpcio(&stage);
        let proxy = stage.proxy(Default::default());
        for address in [server.address, stage.at6(server.address.port())] {
            stage.succeed(&mut client(&format!("{EVERY_KIND},services"), address));
            stage.succeed(client("deadline", address).arg("301"));
            stage.succeed(script_command("grpc_client.mjs").arg(address.to_string()));
        }
        let Some(proxy) = proxy else { return };
        assert_eq!(stage.among_clients(|| proxy.admin.metric("plimsoll_bugs_total", &[])), 0.0);
    });
}

#[test]
fn a_deadline_ends_the_call_and_what_is_left_of_it_travels() {
    let stage = Stage::loopback();
    for server in [grpcio(&stage), grpc_js(&stage)] {
        // In milliseconds, what the handler has at most: all of it, or 100 less.
        for (deadline, left) in [("", "300"), ("\n  deadline: {reserve: 100ms}", "210")] {
            let passage = protected(&server, &format!("{PROTECTED}{deadline}"));
            let left = if direct() { "301" } else { left };
            println!("{}", stage.succeed(client("deadline", passage.address).arg(left)));
            let Some(proxy) = passage.proxy else { continue };
            let circuit = &proxy.admin.dependency("peer")["circuits"][0];
            assert_eq!(circuit["failure_rate"].as_f64().unwrap_or_default(), 0.0, "{circuit:#}");
        }
    }
}

#[test]
fn a_policy_is_found_by_authority_and_a_tunnel_is_no_call_of_its_own() {
    as_root(|| {
        let stage = Stage::redirected();
        let server = grpcio(&stage);
        let policy = "apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {name: ledger, namespace: shop}
spec:
  target: {hosts: [ledger.internal]}
  bulkhead: {maxConcurrentCalls: 1}
";
        let Some(proxy) = stage.proxy(Setup::new().policy(policy)) else { return };
        stage.succeed(client("full", server.address).env("AUTHORITY", "ledger.internal"));
        stage.succeed(&mut client("cancel", server.address));
        // Through CONNECT, where the proxy is asked to carry bytes.
        let tunnel = format!("http://{}", proxy.outbound);
        stage.succeed(client(EVERY_KIND, server.address).env("grpc_proxy", tunnel).env_remove("no_grpc_proxy"));
    });
}

/// Callers from elsewhere, to an application that speaks gRPC.
#[test]
fn inbound_calls_reach_the_application() {
    let stage = Stage::loopback();
    let server = grpcio(&stage);
    let Some(proxy) = stage.proxy(Setup::new().arg("--app").arg(server.address.to_string())) else { return };
    stage.succeed(&mut client(&format!("{EVERY_KIND},services"), proxy.inbound));
    stage.succeed(client("deadline", proxy.inbound).arg("301"));
    stage.succeed(script_command("grpc_client.mjs").arg(proxy.inbound.to_string()));
    assert!(proxy.admin.status()["inbound"]["requests_total"].as_u64() > Some(450));
}

/// Servers end connections when they are old, so that load finds its way to new ones: with GOAWAY in two steps. No call
/// is lost by it, also without a policy that retries.
#[test]
fn connections_that_their_server_ends_cost_no_call() {
    let stage = Stage::loopback();
    let server = stage.serve_with("grpc_server.py", &[], &[("CONNECTION_AGE", "100")]);
    let passage = protected(&server, "    protocol: GRPC\n  circuitBreaker: {}");
    println!("{}", stage.succeed(&mut client("steady", passage.address)));
}

/// The application speaks in clear text and has all of a policy, or speaks TLS itself and passes unopened.
#[test]
fn a_server_with_tls() {
    let stage = Stage::loopback();
    let authority = Authority::new("the test's own");
    authority.issue("server", "secure.internal", "DNS:secure.internal", 30);
    let file = |name: &str| authority.file(name).display().to_string();
    let server = stage.serve("grpc_server.py", &[&file("server.pem"), &file("server.key")]);
    let policy = |spec: &str| stage.dependency("peer", server.address, spec);
    let (opaque, unopened) = policy("  circuitBreaker: {}");
    let begun = "    protocol: GRPC
    tls: {mode: Originate, serverName: secure.internal, caFile: ca.pem}
  retry: {methods: Any, maxAttempts: 3, backoff: {base: 1ms, max: 2ms}, budget: {minPerSecond: 1000}}";
    let (originated, clear) = policy(begun);
    let start = |policy: &str| {
        stage.proxy(Setup::new().policy(policy).arg("--secrets-dir").arg(authority.folder().display().to_string()))
    };
    let (Some(_one), Some(_other)) = (start(&opaque), start(&originated)) else { return };
    let mut by_itself = client(&format!("{EVERY_KIND},services"), unopened);
    stage.succeed(by_itself.env("CA", authority.file("ca.pem")).env("AUTHORITY", "secure.internal"));
    stage.succeed(&mut client(&format!("{EVERY_KIND},services,retried"), clear));
    stage.succeed(client("deadline", clear).arg("301"));
}

const RETRIED: &str = "    protocol: GRPC
  retry: {methods: Any, maxAttempts: 3, backoff: {base: 1ms, max: 2ms}, budget: {minPerSecond: 1000}}";

#[test]
fn unavailable_in_trailers_is_retried_by_policy_until_an_answer_has_begun() {
    let stage = Stage::loopback();
    let python = grpcio(&stage);
    let passage = protected(&python, RETRIED);
    println!("{}", stage.succeed(&mut client("retried", passage.address)));
}

#[test]
fn what_the_proxy_refuses_is_a_status_with_words() {
    let stage = Stage::loopback();
    let server = grpcio(&stage);
    let passage = protected(&server, "  bulkhead: {maxConcurrentCalls: 1}");
    println!("{}", stage.succeed(&mut client("full", passage.address)));
    let nobody = stage.dependency("nobody", stage.reserve(), "  circuitBreaker: {}");
    let proxy = stage.proxy(Setup::new().policy(&nobody.0));
    println!("{}", stage.succeed(client("refused", nobody.1).arg("ConnectFailure")));
    let Some(proxy) = proxy else { return };
    let force =
        proxy.admin.request("POST", "/dependencies/nobody/circuit", "{\"state\":\"ForcedOpen\",\"ttl\":\"1m\"}");
    assert_eq!(force.status, 200, "{force}");
    println!("{}", stage.succeed(client("refused", nobody.1).arg("CircuitOpen")));
}

/// The issue's own durations: the subject is what does not happen within them.
#[test]
fn a_stream_that_pauses_is_not_cut_and_a_call_over_its_time_is() {
    let stage = Stage::loopback();
    let server = grpcio(&stage);
    let unlimited = protected(&server, "    protocol: GRPC\n  circuitBreaker: {}");
    let limited = protected(&server, "    protocol: GRPC\n  timeouts: {request: 1s}");
    let streaming = "  timeouts: {request: 1s}\n  routes:\n  - {name: stream, match: {grpc: {service: test.Peer, method: Stream}}, streaming: Always}";
    let by_route = protected(&server, streaming);
    std::thread::scope(|scope| {
        let run = |case, passage: &Passage| {
            let mut command = client(case, passage.address);
            scope.spawn(move || println!("{}", Stage::loopback().succeed(&mut command)))
        };
        run("paused", &unlimited);
        run("idle", &unlimited);
        run("limited", &limited);
        run("limited,briefly", &by_route);
    });
}
