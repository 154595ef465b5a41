//! What a connection carries is found out without a wait that anybody would notice, and a wrong guess is corrected.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_tests::client::Client;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::tcp::{End, OPAQUE, Peer, Server};
use plimsoll_tests::upstream::{self, Upstream};
use plimsoll_tests::{address, eventually};

fn start(address: SocketAddr, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("ledger", address, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

fn requests(proxy: &Proxy, class: &str) -> f64 {
    proxy.admin.metric("plimsoll_requests_total", &[("dependency", "shop/ledger"), ("code_class", class)])
}

/// Reads the head of a request.
fn read_head(peer: &mut Peer) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if peer.stream.read(&mut byte).expect("a head") == 0 {
            break;
        }
        head.push(byte[0]);
    }
    head
}

fn answer(peer: &mut Peer, body: &str) {
    read_head(peer);
    peer.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
}

#[test]
fn a_greeting_comes_unasked() {
    let server = Server::start(|mut peer, _| {
        peer.write("220 ready\r\n");
        peer.echo();
    });
    let (dependency, proxy) = start(server.address, "");
    for round in 0..3 {
        let mut client = Peer::connect(dependency.listen);
        client.expect("220 ready\r\n");
        client.write("EHLO me\r\n");
        client.expect("EHLO me\r\n");
        // Nothing that follows changes what it is.
        client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.expect("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.finish();
        client.expect_end(End::Fin);
        assert_eq!(server.connections(), round + 1, "one connection for each");
    }
    eventually("all are reported", || requests(&proxy, "none") == 3.0);
}

#[test]
fn a_caller_that_only_listens_hears_the_greeting() {
    let server = Server::start(|mut peer, _| {
        std::thread::park_timeout(Duration::from_millis(200));
        peer.write("220 ready\r\n");
    });
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Peer::connect(dependency.listen);
    server.wait_for_connections(1);
    client.finish();
    assert_eq!(client.read_to_end(), (b"220 ready\r\n".to_vec(), End::Fin));
}

#[test]
fn a_silent_caller_of_http_gets_the_connection_that_was_made_meanwhile() {
    let server = Upstream::start(|_| upstream::ok("http"));
    let (dependency, proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    eventually("the server is called", || server.connections() == 1);
    assert_eq!(client.get("/").text(), "http");
    assert_eq!(client.get("/").text(), "http");
    assert_eq!(server.connections(), 1, "it took the connection along");
    eventually("both are counted", || requests(&proxy, "2xx") == 2.0);
    assert_eq!(requests(&proxy, "none"), 0.0, "what was only tried is not reported");
    assert_eq!(proxy.admin.dependency("ledger")["ineffective"].as_array().map(Vec::len), Some(0));
}

#[test]
fn callers_that_leave_without_a_word_are_not_reported() {
    let server = Upstream::start(|_| upstream::ok("http"));
    let (dependency, proxy) = start(server.address, "");
    let silent: Vec<Peer> = (0..3).map(|_| Peer::connect(dependency.listen)).collect();
    eventually("the server is called", || server.connections() >= 1);
    drop(silent);
    eventually("they are gone", || proxy.admin.status()["connections"]["outbound"] == 0);
    assert_eq!(requests(&proxy, "none"), 0.0);
}

#[test]
fn what_is_remembered_is_corrected() {
    // The first is opaque, the next ones are HTTP, then opaque again, then a greeting.
    let server = Server::start(|mut peer, number| match number {
        0 | 2 => peer.echo(),
        1 => answer(&mut peer, "http"),
        _ => peer.write("220 ready\r\n"),
    });
    let (dependency, proxy) = start(server.address, "");
    let opaque = || {
        let mut client = Peer::connect(dependency.listen);
        client.write(OPAQUE);
        client.expect(OPAQUE);
        client.finish();
        client.expect_end(End::Fin);
    };
    opaque();
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "http");
    opaque();
    assert_eq!(server.connections(), 3);
    let mut client = Peer::connect(dependency.listen);
    client.expect("220 ready\r\n");
    drop(client);
    eventually("all are counted", || requests(&proxy, "none") == 3.0 && requests(&proxy, "2xx") == 1.0);
}

#[test]
fn a_destination_known_for_http_may_have_a_greeting_after_all() {
    let server = Server::start(|mut peer, number| match number {
        0 => answer(&mut peer, "http"),
        _ => peer.write("220 ready\r\n"),
    });
    let (dependency, _proxy) = start(server.address, "");
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "http");
    Peer::connect(dependency.listen).expect("220 ready\r\n");
}

#[test]
fn a_request_that_is_typed_slowly_is_a_request() {
    let server = Upstream::start(|request| upstream::ok(&request.method));
    let (dependency, proxy) = start(server.address, "");
    for method in ["GET", "PROPFIND"] {
        let mut client = Client::connect(dependency.listen);
        for byte in format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n").bytes() {
            client.write([byte]).unwrap();
            std::thread::sleep(Duration::from_millis(60));
        }
        assert_eq!(client.read_answer(false).unwrap().text(), method);
    }
    assert_eq!(requests(&proxy, "none"), 0.0);
}

#[test]
fn words_without_an_end_are_passed_on() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, _proxy) = start(server.address, "");
    for word in ["hello", "hello again", "\r\n", "\x16\x03"] {
        let mut client = Peer::connect(dependency.listen);
        client.write(word);
        client.expect(word);
    }
}

#[test]
fn what_servers_of_http_say_first_is_not_for_callers() {
    let settings = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64".as_slice();
    for words in [settings, b"HTTP/1.1 408 Request Timeout\r\n\r\n"] {
        let words = words.to_vec();
        let server = Server::start(move |mut peer, number| match number {
            0 => {
                peer.write(&words);
                let _ = peer.read_to_end();
            }
            _ => answer(&mut peer, "http"),
        });
        let (dependency, proxy) = start(server.address, "");
        let mut client = Client::connect(dependency.listen);
        server.wait_for_connections(1);
        // The words have to be there before the request is.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(client.get("/").text(), "http");
        assert_eq!(requests(&proxy, "none"), 0.0);
    }
}

#[test]
fn a_server_that_turns_silent_callers_away_is_heard() {
    let server = Server::start(|peer, number| match number {
        0 => drop(peer),
        _ => peer.reset(),
    });
    let (dependency, _proxy) = start(server.address, "");
    Peer::connect(dependency.listen).expect_end(End::Fin);
    Peer::connect(dependency.listen).expect_end(End::Reset);
}

#[test]
fn a_silent_caller_of_nobody_is_reset() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, proxy) = start(server.address, "");
    drop(server);
    Peer::connect(dependency.listen).expect_end(End::Reset);
    assert_eq!(proxy.admin.metric("plimsoll_rejections_total", &[("reason", "ConnectFailure")]), 1.0);
}

#[test]
fn what_was_only_tried_counts_for_no_breaker() {
    let nobody = address::reserve();
    let (dependency, proxy) = start(nobody, "  circuitBreaker: {consecutiveFailures: 2, minimumNumberOfCalls: 1000}");
    let silent = |words: &str| {
        let mut client = Client::connect(dependency.listen);
        // Long enough for the endpoint to be called in vain.
        std::thread::sleep(Duration::from_millis(100));
        client.write(words).unwrap();
        client.read_answer(false).unwrap()
    };
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (reason, circuit) in [("ConnectFailure", "Closed"), ("ConnectFailure", "Open"), ("CircuitOpen", "Open")] {
        let answer = silent(request);
        assert_eq!(answer.reason(), Some(reason), "{answer}");
        assert_eq!(proxy.admin.circuit("ledger"), circuit, "one call, one failure");
    }
}

#[test]
fn a_silent_caller_of_an_open_circuit_is_reset_and_calls_nobody() {
    let server = Server::start(|mut peer, _| {
        peer.write("220 ready\r\n");
        let _ = peer.read_to_end();
    });
    let (dependency, proxy) = start(server.address, "  circuitBreaker: {}");
    Peer::connect(dependency.listen).expect("220 ready\r\n");
    let force = |state: &str| {
        let order = format!("{{\"state\":\"{state}\",\"ttl\":\"1m\"}}");
        assert_eq!(proxy.admin.request("POST", "/dependencies/ledger/circuit", &order).status, 200);
    };
    force("ForcedOpen");
    Peer::connect(dependency.listen).expect_end(End::Reset);
    assert_eq!(server.connections(), 1);
    assert_eq!(proxy.admin.metric("plimsoll_rejections_total", &[("reason", "CircuitOpen")]), 1.0);
    force("ForcedClosed");
    Peer::connect(dependency.listen).expect("220 ready\r\n");
}

#[test]
fn a_silent_caller_takes_no_socket_from_a_call() {
    let server = Upstream::start(|_| upstream::ok("http"));
    let spec = "  bulkhead: {maxConcurrentCalls: 10, maxConnections: 1, maxWaitDuration: 5s, maxQueued: 5}";
    let (dependency, _proxy) = start(server.address, spec);
    let silent = Peer::connect(dependency.listen);
    eventually("the server is called", || server.connections() == 1);
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "http");
    drop(silent);
}

#[test]
fn a_declared_protocol_is_not_looked_for() {
    let server = Server::start(|mut peer, _| {
        read_head(&mut peer);
        peer.write("as it came\r\n");
    });
    let listen = listened("ledger", server.address, "");
    let policy = listen.policy.replace("    listen:", "    protocol: TCP\n    listen:");
    let proxy = Setup::new().policy(&policy).start();
    let mut client = Peer::connect(listen.listen);
    client.write("GET / HTTP/1.1\r\n\r\n");
    client.expect("as it came\r\n");
    drop(client);
    eventually("it is reported", || requests(&proxy, "none") == 1.0);

    let listen = listened("ledger", server.address, "");
    let policy = listen.policy.replace("    listen:", "    protocol: HTTP1\n    listen:");
    let _proxy = Setup::new().policy(&policy).start();
    let mut client = Client::connect(listen.listen);
    client.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n").unwrap();
    assert_eq!(client.read_answer(false).unwrap().status, 400);
}
