//! Bytes that the proxy does not look into, through TLS of its own.

use std::io::Write;
use std::net::SocketAddr;

use plimsoll_tests::certificates::Authority;
use plimsoll_tests::process::Process;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::tcp::{End, OPAQUE, Peer, Server};
use plimsoll_tests::tools::script_command;
use plimsoll_tests::{PATIENCE, eventually};

fn serve(certificates: &Authority) -> (SocketAddr, Process) {
    let mut command = script_command("echo_tls.py");
    command.args([certificates.file("server.pem"), certificates.file("server.key")]);
    let process = Process::start(&mut command);
    let line = process.stdout_line(PATIENCE, |line| line.starts_with("port "));
    let line = line.unwrap_or_else(|| panic!("it does not start:\n{}", process.output()));
    let port: u16 = line["port ".len()..].trim().parse().expect("it prints its port");
    (SocketAddr::from(([127, 0, 0, 1], port)), process)
}

fn start(server: SocketAddr, certificates: &Authority, protocol: &str) -> (Listened, Proxy) {
    let spec =
        format!("    protocol: {protocol}\n    tls: {{mode: Originate, caFile: ca.pem, serverName: fraud.test}}");
    let dependency = listened("ledger", server, &spec);
    let setup = Setup::new().arg("--secrets-dir").arg(certificates.folder().display().to_string());
    let proxy = setup.policy(&dependency.policy).start();
    (dependency, proxy)
}

#[test]
fn bytes_go_both_ways_and_an_end_is_an_end() {
    let certificates = Authority::new("ours");
    certificates.issue("server", "server", "DNS:fraud.test", 30);
    let (server, _process) = serve(&certificates);
    for protocol in ["TCP", "Auto"] {
        let (dependency, proxy) = start(server, &certificates, protocol);
        let mut client = Peer::connect(dependency.listen);
        client.write(OPAQUE);
        client.expect(OPAQUE);
        let bulk: Vec<u8> = (0..8 << 20).map(|at: u32| at.wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect();
        let mut writes = client.stream.try_clone().unwrap();
        let (heard, end) = std::thread::scope(|scope| {
            scope.spawn(|| {
                writes.write_all(&bulk).unwrap();
                writes.shutdown(std::net::Shutdown::Write).unwrap();
            });
            client.read_to_end()
        });
        assert!(heard == [&bulk, &b"end"[..]].concat(), "{} bytes, or others", heard.len());
        assert_eq!(end, End::Fin);
        let moved = || proxy.admin.metric("plimsoll_tcp_received_bytes_total", &[("dependency", "shop/ledger")]);
        eventually("all is counted", || moved() == (OPAQUE.len() + bulk.len()) as f64);
    }
}

#[test]
fn who_cannot_prove_its_name_is_told_nothing() {
    let certificates = Authority::new("ours");
    certificates.issue("server", "server", "DNS:other.test", 30);
    let (server, _process) = serve(&certificates);
    let (dependency, proxy) = start(server, &certificates, "TCP");
    let mut client = Peer::connect(dependency.listen);
    client.write(OPAQUE);
    client.expect_end(End::Reset);
    assert_eq!(proxy.admin.metric("plimsoll_rejections_total", &[("reason", "TlsFailure")]), 1.0);
}

#[test]
fn tls_of_the_callers_own_is_not_wrapped_again() {
    let certificates = Authority::new("ours");
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, _proxy) = start(server.address, &certificates, "Auto");
    // An alert would be the answer to a hello inside a hello.
    let hello = [&[22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, 0]].concat();
    let mut client = Peer::connect(dependency.listen);
    client.write(&hello);
    client.expect(&hello);
}
