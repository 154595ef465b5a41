//! TLS that the proxy begins: connections kept and given up, names, cuts, certificates, and what is said of failures.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use plimsoll_tests::PATIENCE;
use plimsoll_tests::certificates::Authority;
use plimsoll_tests::client::{Client, Failure};
use plimsoll_tests::process::Process;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::tools::script_command;
use plimsoll_tests::upstream::{self, Upstream};

/// `tests/peers/server_tls.py`.
struct Server {
    address: SocketAddr,
    _process: Process,
}

fn serve(certificates: &Authority, further: &[&str]) -> Server {
    let mut command = script_command("server_tls.py");
    command.args([certificates.file("server.pem"), certificates.file("server.key")]);
    command.args(further).current_dir(certificates.folder());
    let process = Process::start(&mut command);
    let line = process.stdout_line(PATIENCE, |line| line.starts_with("port "));
    let line = line.unwrap_or_else(|| panic!("it does not start:\n{}", process.output()));
    let port: u16 = line["port ".len()..].trim().parse().expect("it prints its port");
    Server { address: SocketAddr::from(([127, 0, 0, 1], port)), _process: process }
}

fn certificates() -> Authority {
    let authority = Authority::new("ours");
    authority.issue("server", "server", "DNS:fraud.test,DNS:other.test", 30);
    authority.issue("client", "client", "DNS:me.test", 30);
    authority
}

/// A proxy with one worker, and a dependency behind TLS.
fn start(server: SocketAddr, certificates: &Authority, tls: &str, spec: &str) -> (Listened, Proxy) {
    // Without detection, which calls the server for a caller that is slow to speak.
    let spec = format!("    protocol: HTTP1\n    tls: {{mode: Originate, caFile: ca.pem{tls}}}\n{spec}");
    let dependency = listened("fraud-api", server, &spec);
    let proxy = setup(certificates).policy(&dependency.policy).start();
    (dependency, proxy)
}

fn setup(certificates: &Authority) -> Setup {
    Setup::new().workers(1).arg("--secrets-dir").arg(certificates.folder().display().to_string())
}

const NAMED: &str = ", serverName: fraud.test";

#[test]
fn one_connection_carries_call_after_call() {
    let certificates = certificates();
    let server = serve(&certificates, &[]);
    let (dependency, _proxy) = start(server.address, &certificates, NAMED, "");
    for call in 1..=30 {
        // Another caller each time; half of the calls must not be sent twice.
        let mut client = Client::connect(dependency.listen);
        let answer = if call % 2 == 0 { client.get("/") } else { client.post("/", b"abc") };
        let bytes = if call % 2 == 0 { 0 } else { 3 };
        assert_eq!(answer.text(), format!("1 {call} fraud.test {bytes}"));
    }
}

#[test]
fn a_connection_that_the_server_ended_costs_no_call() {
    let certificates = certificates();
    let server = serve(&certificates, &[]);
    let (dependency, _proxy) = start(server.address, &certificates, NAMED, "");
    let mut client = Client::connect(dependency.listen);
    for call in 1..=20 {
        let answer = if call % 2 == 0 { client.get("/leave") } else { client.post("/leave", b"abc") };
        assert!(answer.text().starts_with(&format!("{call} 1 ")), "{answer}");
    }
}

#[test]
fn much_goes_both_ways() {
    let certificates = certificates();
    let server = serve(&certificates, &[]);
    let (dependency, _proxy) = start(server.address, &certificates, NAMED, "");
    let body: Vec<u8> = (0..5_000_000_u32).map(|index| (index * 31 % 251) as u8).collect();
    let mut client = Client::connect(dependency.listen);
    for _ in 0..2 {
        let answer = client.post("/echo", &body);
        assert!(answer.body == body, "{} bytes came back", answer.body.len());
    }
    assert_eq!(client.get("/").text(), "1 3 fraud.test 0", "and the connection is of use afterwards");
}

#[test]
fn an_answer_that_was_cut_does_not_look_whole() {
    let certificates = certificates();
    let server = serve(&certificates, &[]);
    let (dependency, _proxy) = start(server.address, &certificates, NAMED, "");
    assert_eq!(Client::connect(dependency.listen).get("/end").text(), "1 1 fraud.test 0");
    let cut = Client::connect(dependency.listen).try_call("GET", "/cut", &[], b"");
    assert!(matches!(&cut, Err(Failure::Cut { status: 200, .. })), "{cut:?}");
}

#[test]
fn without_server_name_the_host_of_the_call_is_asked_for() {
    let certificates = certificates();
    let server = serve(&certificates, &[]);
    let (dependency, _proxy) = start(server.address, &certificates, "", "");
    let mut client = Client::connect(dependency.listen);
    let mut ask = |host: &str| client.call("GET", "/", &[("host", host)], b"");
    assert_eq!(ask("fraud.test").text(), "1 1 fraud.test 0");
    // What was proven to be one name is not used for another.
    assert_eq!(ask("other.test:8443").text(), "2 1 other.test 0");
    assert_eq!(ask("fraud.test").text(), "1 2 fraud.test 0");
    let answer = ask("third.test");
    assert_eq!((answer.status, answer.reason()), (503, Some("TlsFailure")), "{answer}");
}

#[test]
fn a_client_certificate_that_is_missing_is_a_failure_of_tls() {
    let certificates = certificates();
    for (protocol, target) in [("http/1.1", ""), ("h2", "\n    upstreamProtocol: HTTP2")] {
        let server = serve(&certificates, &["ca.pem", protocol]);
        let tls = format!("{{mode: Originate, caFile: ca.pem, serverName: fraud.test}}{target}");
        let dependency = listened("fraud-api", server.address, &format!("    tls: {tls}"));
        let proxy = setup(&certificates).policy(&dependency.policy).start();
        let mut client = Client::connect(dependency.listen);
        for _ in 0..5 {
            // With TLS 1.3 the handshake is over by the time that the server says so.
            let answer = client.post("/", b"abc");
            assert_eq!((answer.status, answer.reason()), (503, Some("TlsFailure")), "{protocol}: {answer}");
            assert!(answer.text().contains("wants a client certificate"), "{protocol}: {answer}");
        }
        let told = |line: &str| line.contains("wants a client certificate; set tls.certFile and tls.keyFile");
        proxy.process.stderr_line(PATIENCE, told).expect("it is told what to do");
    }

    let server = serve(&certificates, &["ca.pem"]);
    let (dependency, _proxy) =
        start(server.address, &certificates, ", serverName: fraud.test, certFile: client.pem, keyFile: client.key", "");
    assert_eq!(Client::connect(dependency.listen).post("/", b"abc").status, 200);
}

#[test]
fn what_is_wrong_is_said_and_where_to_look() {
    let certificates = certificates();
    let plain = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = plain.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in plain.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (dependency, proxy) = start(address, &certificates, NAMED, "");
    let answer = Client::connect(dependency.listen).get("/");
    assert_eq!((answer.status, answer.reason()), (503, Some("TlsFailure")), "{answer}");
    let words = "does not speak TLS on this port";
    assert!(answer.text().contains(words), "{answer}");
    let decision = proxy.admin.json("/decisions")["decisions"][0].clone();
    assert!(decision["detail"].as_str().is_some_and(|detail| detail.contains(words)), "{decision:#}");
    let told = |line: &str| line.contains(words);
    proxy.process.stderr_line(PATIENCE, told).expect("it is told what to do");

    // One that waits for more of what it takes for a request.
    let silent = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, proxy) = start(silent.address, &certificates, NAMED, "  timeouts: {connect: 100ms}");
    let answer = Client::connect(dependency.listen).get("/");
    assert_eq!((answer.status, answer.reason()), (503, Some("ConnectFailure")), "{answer}");
    let told = |line: &str| line.contains("given up in the middle of the TLS handshake; is it the right port?");
    proxy.process.stderr_line(PATIENCE, told).expect("it is told that it was TLS");
}

#[test]
fn files_that_cannot_be_used_refuse_the_policy() {
    let certificates = certificates();
    let policy = |tls: &str| {
        listened("fraud-api", SocketAddr::from(([127, 0, 0, 1], 1)), &format!("    tls: {{mode: Originate, {tls}}}"))
            .policy
    };
    let mismatch = "caFile: ca.pem, certFile: client.pem, keyFile: server.key";
    let (code, said) = setup(&certificates).policy(&policy(mismatch)).run_to_end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("server.key is not the key of the first certificate in client.pem"), "{said}");
    let (code, said) = Setup::new().policy(&policy("caFile: ca.pem")).run_to_end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--secrets-dir"), "{said}");

    // Pushed, it changes nothing.
    let proxy = setup(&certificates).policy(&policy("caFile: ca.pem")).start();
    let answer = proxy.admin.request("PUT", "/policy", &policy("caFile: missing.pem"));
    assert_eq!(answer.status, 422, "{answer}");
    assert!(answer.text().contains("tls.caFile: missing.pem: No such file"), "{answer}");
    let absolute = format!("caFile: {}", certificates.file("ca.pem").display());
    assert_eq!(proxy.admin.request("PUT", "/policy", &policy(&absolute)).status, 422);
    assert_eq!(proxy.admin.status()["generation"], "local-1");
}
