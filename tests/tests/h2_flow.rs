//! Back-pressure where many calls share a connection: who does not read stops its own stream and nobody else.
//!
//! Speed is compared, never measured: the same load runs beside it without the stalled stream, and bytes are counted.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_tests::client::Client;
use plimsoll_tests::h2::frame;
use plimsoll_tests::h2::{Peer, Session, request};
use plimsoll_tests::process::{Process, require_program};
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Step, Upstream};
use plimsoll_tests::{address, eventually};

const STREAMS: usize = 100;
const BODY: usize = 512 * 1024;

/// One dependency behind a proxy with one worker, so that everything that can be shared is.
fn proxied(server: SocketAddr, upstream_protocol: &str) -> (Listened, Proxy) {
    let mut dependency = listened("fraud-api", server, "  timeouts: {connect: 10s, request: 120s}");
    let target = format!("target:\n    upstreamProtocol: {upstream_protocol}");
    dependency.policy = dependency.policy.replace("target:", &target);
    let proxy = Setup::new().workers(1).policy(&dependency.policy).start();
    (dependency, proxy)
}

/// nghttpd with a file of [`BODY`] bytes, `/large`.
fn nghttpd() -> (SocketAddr, Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("large"), vec![b'x'; BODY]).unwrap();
    let address = address::reserve();
    let mut command = Command::new(require_program("nghttpd"));
    command.args(["--no-tls", "-m", "1000", "-a", &address.ip().to_string(), "-d"]).arg(folder.path());
    let process = Process::start(command.arg(address.port().to_string()));
    eventually("nghttpd listens", || Peer::try_connect(address).is_ok());
    (address, process, folder)
}

/// Calls for `/large` on every stream of a new connection, the first of which is not read if `stalls`, until all the
/// others have their whole answers; `bytes` counts what those have.
fn read_all(address: SocketAddr, stalls: bool, bytes: &AtomicUsize) {
    let mut session = Session::connect(address);
    session.send(frame::window_update(0, 1 << 30));
    let streams: Vec<u32> = (0..STREAMS).map(|_| session.begin(&request("GET", "/large"), true)).collect();
    if stalls {
        session.stalled.insert(streams[0]);
    }
    let others = &streams[1..];
    let ended = session.wait(|session| {
        let found = || others.iter().filter_map(|stream| session.streams.get(stream));
        bytes.store(found().map(|stream| stream.data.len()).sum(), Ordering::SeqCst);
        found().filter(|stream| stream.is_over()).count() == others.len()
    });
    assert!(ended, "99 streams stand still behind one, after {} bytes", bytes.load(Ordering::SeqCst));
    for stream in others {
        let answer = session.answer(*stream);
        assert_eq!((answer.status, answer.body.len(), answer.ended), (200, BODY, true));
    }
    if stalls {
        let stalled = session.stream(streams[0]);
        assert!(!stalled.ended && stalled.data.len() <= 65_535, "{} bytes for a window of 65,535", stalled.data.len());
    }
}

/// Runs the load with a stalled stream and the same without it, side by side: the share of bytes that the streams
/// beside the stalled one had when the others had all of theirs.
fn share_beside_a_stalled_one(address: SocketAddr) -> f64 {
    let (with, without) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let stalled = scope.spawn(|| read_all(address, true, &with));
        read_all(address, false, &without);
        let share = with.load(Ordering::SeqCst) as f64 / without.load(Ordering::SeqCst) as f64;
        stalled.join().unwrap();
        share
    })
}

#[test]
fn one_stalled_stream_among_100_costs_the_others_nothing() {
    let (server, _process, _folder) = nghttpd();
    let (dependency, _proxy) = proxied(server, "HTTP2");
    let share = share_beside_a_stalled_one(dependency.listen);
    assert!(share > 0.5, "{share:.2} of the bytes of those without a stalled one beside them");
}

#[test]
fn nor_when_each_call_has_a_connection_of_its_own_behind() {
    let server = Upstream::start(|_| {
        vec![upstream::raw(&format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n")), Step::Fill(BODY)]
    });
    let (dependency, _proxy) = proxied(server.address, "HTTP1");
    let share = share_beside_a_stalled_one(dependency.listen);
    assert!(share > 0.5, "{share:.2} of the bytes of those without a stalled one beside them");
}

#[test]
fn callers_that_do_not_read_leave_a_shared_connection_to_the_rest() {
    let (server, _process, _folder) = nghttpd();
    let (dependency, _proxy) = proxied(server, "HTTP2");
    // Their answers are larger than what sockets and buffers take in.
    let stalled: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::connect(dependency.listen);
            socket2::SockRef::from(client.stream()).set_recv_buffer_size(4_096).unwrap();
            client.write("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            client
        })
        .collect();
    let mut reader = Client::connect(dependency.listen);
    for _ in 0..50 {
        assert_eq!(reader.get("/large").body.len(), BODY);
    }
    drop(stalled);
}

#[test]
fn a_body_that_nobody_takes_leaves_the_others_alone() {
    let gate = Gate::default();
    let held = gate.clone();
    // Bodies of `/held` stay in the socket; the others are read before they are answered.
    let slow = Upstream::start_early(move |_| vec![Step::Ignore(held.clone()), Step::Close]);
    let server = Upstream::start(|request| upstream::ok(&request.body.len().to_string()));
    let mut dependency = listened("fraud-api", server.address, "  timeouts: {connect: 10s, request: 120s}");
    let mut held_back = listened("slow-api", slow.address, "  timeouts: {connect: 10s, request: 120s}");
    for (one, host) in [(&mut dependency, "fast.internal"), (&mut held_back, "slow.internal")] {
        let target = format!("target:\n    upstreamProtocol: HTTP1\n    hosts: [\"{host}\"]");
        one.policy = one.policy.replace("target:", &target);
    }
    let proxy = Setup::new().workers(1).policy(&[dependency.policy, held_back.policy].join("---\n")).start();
    // One connection to the outbound listener: the authority of each call says where it goes.
    let mut session = Session::connect(proxy.outbound);
    let to = |host: &'static str| [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", host)];
    let stalled = session.begin(&to("slow.internal"), false);
    let room = session.settings.get(&frame::setting::INITIAL_WINDOW_SIZE).copied().unwrap_or(65_535) as usize;
    let block = vec![b'x'; 16_384];
    for _ in 0..room / block.len() {
        session.send(frame::data(stalled, false, &block));
    }
    for _ in 0..STREAMS {
        let mut left = 4 * block.len();
        let stream = session.begin(&to("fast.internal"), false);
        while left > 0 {
            left -= block.len();
            session.send(frame::data(stream, left == 0, &block));
        }
        assert_eq!(session.answer(stream).text(), (4 * block.len()).to_string());
    }
    assert!(!session.stream(stalled).is_over());
    gate.open();
}

#[test]
fn a_caller_that_gives_back_each_frame_at_once_is_no_flood() {
    let (server, _process, _folder) = nghttpd();
    let (dependency, _proxy) = proxied(server, "HTTP2");
    let mut session = Session::connect(dependency.listen);
    session.gives_back_at = 1;
    for _ in 0..60 {
        assert_eq!(session.get("/large").body.len(), BODY);
    }
    assert!(session.goaways.is_empty());
}
