//! Connections that nothing looks into: what one side says the other hears, its end and its reset included.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::random::Random;
use plimsoll_tests::tcp::{End, OPAQUE, Peer, Server};

fn start(server: &Server, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("ledger", server.address, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

#[test]
fn what_is_said_is_heard_and_counted() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, proxy) = start(&server, "");
    let mut client = Peer::connect(dependency.listen);
    for message in [OPAQUE, b"and more", b"\0"] {
        client.write(message);
        client.expect(message);
    }
    client.finish();
    client.expect_end(End::Fin);
    let bytes = (OPAQUE.len() + 9) as f64;
    let dependency = [("dependency", "shop/ledger")];
    eventually("it is reported", || proxy.admin.metric("plimsoll_requests_total", &dependency) == 1.0);
    assert_eq!(proxy.admin.metric("plimsoll_tcp_received_bytes_total", &dependency), bytes);
    assert_eq!(proxy.admin.metric("plimsoll_tcp_sent_bytes_total", &dependency), bytes);
}

#[test]
fn a_side_that_has_said_all_still_hears() {
    let server = Server::start(|mut peer, _| {
        let (heard, end) = peer.read_to_end();
        assert_eq!(end, End::Fin);
        peer.write(heard.to_ascii_uppercase());
    });
    let (dependency, _proxy) = start(&server, "");
    let mut client = Peer::connect(dependency.listen);
    client.write(b"\0question");
    client.finish();
    assert_eq!(client.read_to_end(), (b"\0QUESTION".to_vec(), End::Fin));

    // And the other way round.
    let (heard, hears) = mpsc::channel();
    let server = Server::start(move |mut peer, _| {
        peer.write("greeting");
        peer.finish();
        heard.send(peer.read_to_end()).unwrap();
    });
    let (dependency, _proxy) = start(&server, "");
    let mut client = Peer::connect(dependency.listen);
    assert_eq!(client.read_to_end(), (b"greeting".to_vec(), End::Fin));
    client.write("late");
    client.write("r");
    drop(client);
    assert_eq!(hears.recv().unwrap(), (b"later".to_vec(), End::Fin));
}

#[test]
fn a_reset_is_passed_on_as_a_reset_both_ways() {
    let (ended, ends) = mpsc::channel();
    let server = Server::start(move |mut peer, _| {
        let mut first = [0; OPAQUE.len()];
        peer.stream.read_exact(&mut first).unwrap();
        peer.write("ok");
        let mut order = [0];
        match peer.stream.read(&mut order) {
            Ok(1) if order == *b"r" => peer.reset(),
            Ok(0) => {
                // Half closed: a reset may follow all the same.
                ended.send(peer.stream.read(&mut order).map(|_| End::Fin).unwrap_or(End::Reset)).unwrap();
                std::thread::park_timeout(Duration::from_secs(20));
            }
            Err(_) => ended.send(End::Reset).unwrap(),
            other => panic!("{other:?}"),
        }
    });
    let (dependency, proxy) = start(&server, "");
    let connect = || {
        let mut client = Peer::connect(dependency.listen);
        client.write(OPAQUE);
        client.expect("ok");
        client
    };
    let mut client = connect();
    client.write("r");
    client.expect_end(End::Reset);
    connect().reset();
    assert_eq!(ends.recv().unwrap(), End::Reset);
    let reasons = |reason: &str| proxy.admin.metric("plimsoll_rejections_total", &[("reason", reason)]);
    eventually("the cut is counted", || reasons("UpstreamReset") == 1.0);
    assert_eq!(reasons("ClientGone"), 0.0, "nobody was refused");
}

/// The kernel tells nobody who reads about a reset that follows an end.
#[test]
fn a_reset_after_an_end_is_passed_on_too() {
    let (lost, loses) = mpsc::channel();
    let server = Server::start(move |mut peer, _| {
        let (_, end) = peer.read_to_end();
        assert_eq!(end, End::Fin);
        // Nothing to read any more: only writing or asking shows it.
        eventually("the reset arrives", || peer.stream.take_error().unwrap().is_some());
        lost.send(()).unwrap();
    });
    let (dependency, _proxy) = start(&server, "");
    let mut client = Peer::connect(dependency.listen);
    client.write(OPAQUE);
    client.finish();
    server.wait_for_connections(1);
    client.reset();
    loses.recv_timeout(Duration::from_secs(20)).unwrap();
}

/// Bytes that show what was lost, doubled or moved: they repeat after a prime number.
fn pattern(at: usize, length: usize) -> &'static [u8] {
    const PERIOD: usize = 1_000_003;
    static BYTES: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
        let byte = |at: usize| ((at % PERIOD) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        (0..2 * PERIOD).map(byte).collect()
    });
    &BYTES[at % PERIOD..][..length]
}

fn send_pattern(peer: &mut impl Write, total: usize, piece: usize) {
    for at in (0..total).step_by(piece) {
        peer.write_all(pattern(at, piece.min(total - at))).expect("the peer reads on");
    }
}

fn expect_pattern(peer: &mut impl Read, total: usize, piece: usize) {
    let (mut buffer, mut at) = (vec![0; piece], 0);
    while at < total {
        let count = peer.read(&mut buffer).expect("the peer writes on");
        assert!(count > 0, "it ended after {at} of {total}");
        assert!(buffer[..count] == *pattern(at, count), "wrong bytes between {at} and {}", at + count);
        at += count;
    }
    assert_eq!(at, total);
}

#[test]
fn bulk_arrives_as_it_was_sent_both_ways_at_once() {
    // Small reads and small socket buffers: each side blocks the other all the time, and each pipe is drained in parts.
    for (total, piece, socket) in [(384 << 20, 64 << 10, None), (48 << 20, 7_001, Some(64 << 10)), (3 << 20, 100, None)]
    {
        let both = move |peer: Peer| {
            if let Some(socket) = socket {
                let stream = socket2::SockRef::from(&peer.stream);
                stream.set_recv_buffer_size(socket).unwrap();
                stream.set_send_buffer_size(socket).unwrap();
            }
            let (mut reads, mut writes) = (peer.stream.try_clone().unwrap(), peer.stream);
            std::thread::scope(|scope| {
                scope.spawn(move || expect_pattern(&mut reads, total, piece));
                send_pattern(&mut writes, total, piece);
            });
        };
        let (done, ready) = mpsc::channel();
        let server = Server::start(move |peer, _| {
            both(peer);
            done.send(()).unwrap();
        });
        let (dependency, proxy) = start(&server, "");
        // The pattern begins with a zero byte: no protocol does.
        both(Peer::connect(dependency.listen));
        ready.recv().unwrap();
        let moved = |name: &str| proxy.admin.metric(name, &[("dependency", "shop/ledger")]);
        eventually("all is counted", || moved("plimsoll_tcp_sent_bytes_total") == total as f64);
        eventually("all is counted", || moved("plimsoll_tcp_received_bytes_total") == total as f64);
    }
}

/// However connections end, and however much is on its way: sockets, pipes and places under limits come back.
#[test]
fn nothing_is_left_behind() {
    // Talks for as long as both sides like it, and ends as it happens to.
    fn converse(mut peer: Peer, random: &mut Random) {
        let _ = peer.stream.set_read_timeout(Some(Duration::from_millis(5)));
        let _ = peer.stream.set_write_timeout(Some(Duration::from_millis(5)));
        let mut buffer = vec![0; 256 << 10];
        for _ in 0..random.below(12) {
            let _ = match random.below(4) {
                0 => peer.stream.write(&buffer[..1 + random.below(100)]),
                1 => peer.stream.write(&buffer),
                _ => peer.stream.read(&mut buffer),
            };
        }
        match random.below(4) {
            0 => peer.reset(),
            1 => {
                let _ = peer.stream.shutdown(std::net::Shutdown::Write);
                let _ = peer.stream.read(&mut buffer);
            }
            _ => drop(peer),
        }
    }
    let calm = Arc::new(AtomicBool::new(false));
    let is_calm = Arc::clone(&calm);
    let server = Server::start(move |peer, number| match is_calm.load(Ordering::SeqCst) {
        true => peer.echo(),
        false => converse(peer, &mut Random::new(number as u64)),
    });
    let (dependency, proxy) = start(&server, "  bulkhead: {maxConnections: 40, maxWaitDuration: 5s, maxQueued: 100}");
    let open = || std::fs::read_dir(format!("/proc/{}/fd", proxy.process.id())).unwrap().count();
    let before = open();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let mut random = Random::new(1_000 + thread);
                for _ in 0..60 {
                    let mut peer = Peer::connect(dependency.listen);
                    if random.below(5) > 0 {
                        let _ = peer.stream.write(OPAQUE);
                    }
                    converse(peer, &mut random);
                }
            });
        }
    });
    eventually("everybody is gone", || proxy.admin.status()["connections"]["outbound"] == 0);
    // Spare pipes stay, two descriptors each.
    eventually("descriptors are closed", || open() <= before + 2 * 2 * 16);
    calm.store(true, Ordering::SeqCst);
    // The limit is whole again: as many as it allows are there at a time.
    let mut many: Vec<Peer> = (0..40).map(|_| Peer::connect(dependency.listen)).collect();
    many.iter_mut().for_each(|client| client.write(OPAQUE));
    many.iter_mut().for_each(|client| client.expect(OPAQUE));
}

#[test]
fn the_forward_proxy_carries_http_alone() {
    let proxy = Setup::new().start();
    let mut client = Peer::connect(proxy.outbound);
    client.write(OPAQUE);
    client.expect_end(End::Reset);
    let status = proxy.admin.status();
    assert_eq!(status["unlisted"]["requests_total"], 1, "{status:#}");
    assert_eq!(proxy.admin.metric("plimsoll_rejections_total", &[("reason", "NoRoute")]), 1.0);
}

#[test]
fn the_application_gets_what_is_not_http_as_it_is() {
    let server = Server::start(|peer, _| peer.echo());
    let proxy = Setup::new().arg("--app").arg(server.address.to_string()).start();
    let mut client = Peer::connect(proxy.inbound);
    client.write(OPAQUE);
    client.expect(OPAQUE);
    drop(client);
    eventually("it is reported", || proxy.admin.status()["inbound"]["requests_total"] == 1);
    let proxy = Setup::new().start();
    let mut client = Peer::connect(proxy.inbound);
    client.write(OPAQUE);
    client.expect_end(End::Reset);
}

#[test]
fn a_connection_that_leads_nowhere_is_reset() {
    let server = Server::start(|peer, _| peer.echo());
    let (dependency, proxy) = start(&server, "");
    drop(server);
    let mut client = Peer::connect(dependency.listen);
    client.write(OPAQUE);
    client.expect_end(End::Reset);
    let refused = proxy.admin.metric("plimsoll_rejections_total", &[("reason", "ConnectFailure")]);
    assert_eq!(refused, 1.0);
    let answer = Client::connect(dependency.listen).get("/");
    assert_eq!(answer.reason(), Some("ConnectFailure"), "HTTP is told so: {answer}");
}
