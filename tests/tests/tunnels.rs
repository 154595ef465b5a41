//! CONNECT: a tunnel to where it is addressed, and a call like any other to limits, breaker and report.

use std::sync::mpsc;

use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::h2::{Session, frame};
use plimsoll_tests::proxy::{Proxy, Setup};
use plimsoll_tests::tcp::{End, Peer, Server};

/// What the proxy answers before the tunnel begins.
const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

fn connect(proxy: &Proxy, server: &Server) -> Peer {
    let mut peer = Peer::connect(proxy.outbound);
    peer.write(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", server.address));
    peer.expect(ESTABLISHED);
    peer
}

fn policy(server: &Server, spec: &str) -> String {
    format!(
        "apiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: ledger, namespace: shop}}\nspec:\n  \
         target: {{hosts: [\"{}\"]}}\n{spec}",
        server.address
    )
}

#[test]
fn a_tunnel_carries_both_ways_and_keeps_a_half_close() {
    let server = Server::start(|mut peer, _| {
        let (heard, end) = peer.read_to_end();
        assert_eq!(end, End::Fin);
        peer.write(heard.to_ascii_uppercase());
    });
    let proxy = Setup::new().start();
    let mut peer = connect(&proxy, &server);
    peer.write(b"question");
    peer.finish();
    assert_eq!(peer.read_to_end(), (b"QUESTION".to_vec(), End::Fin));
}

/// A cut upload must not look whole to the server, nor a cut answer to the caller.
#[test]
fn a_reset_goes_through_a_tunnel_as_a_reset() {
    let (ended, ends) = mpsc::channel();
    let server = Server::start(move |mut peer, nth| {
        if nth == 0 {
            ended.send(peer.read_to_end()).unwrap();
        } else {
            peer.expect("go");
            peer.reset();
        }
    });
    let proxy = Setup::new().start();
    let mut peer = connect(&proxy, &server);
    peer.write("half of it");
    eventually("it is through", || server.connections() == 1);
    peer.write(".");
    peer.reset();
    assert_eq!(ends.recv().unwrap().1, End::Reset);
    let mut peer = connect(&proxy, &server);
    peer.write("go");
    peer.expect_end(End::Reset);
}

#[test]
fn a_tunnel_over_http_2_ends_as_its_connection_does() {
    let server = Server::start(|mut peer, _| {
        peer.expect("go");
        peer.reset();
    });
    let proxy = Setup::new().start();
    let mut session = Session::connect(proxy.outbound);
    let authority = server.address.to_string();
    let stream = session.begin(&[(":method", "CONNECT"), (":authority", authority.as_str())], false);
    assert!(session.wait(|session| session.stream(stream).field(":status") == Some("200")));
    session.send(frame::data(stream, false, b"go"));
    assert!(session.wait(|session| session.stream(stream).reset.is_some()));
    assert_eq!(session.stream(stream).reset, Some(frame::code::CONNECT_ERROR), "RFC 9113 8.5");
    assert!(session.is_alive());
}

#[test]
fn a_tunnel_holds_its_permit_to_its_end() {
    let server = Server::start(|peer, _| peer.echo());
    let policy = policy(&server, "  bulkhead: {maxConcurrentCalls: 1}");
    let proxy = Setup::new().policy(&policy).start();
    let peer = connect(&proxy, &server);
    let mut second = Client::connect(proxy.outbound);
    second.write(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", server.address)).unwrap();
    assert_eq!(second.read_answer(false).expect("an answer").reason(), Some("BulkheadFull"));
    drop(peer);
    eventually("its permit is back", || {
        proxy.admin.metric("plimsoll_bulkhead_in_flight", &[("dependency", "shop/ledger")]) == 0.0
    });
    drop(connect(&proxy, &server));
}
