//! Callers that mean harm: each is refused with the right error or stalls itself alone, memory stays bounded, and those
//! on other connections notice nothing.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_tests::h2::frame::{self, code, frame, setting};
use plimsoll_tests::h2::{Load, PREFACE, Peer, Server, Session, hpack, request};
use plimsoll_tests::load::{self, Ask, Tally};
use plimsoll_tests::process::{Process, require_program};
use plimsoll_tests::proxy::{Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Upstream};
use plimsoll_tests::{address, eventually};

/// What an attack came to.
#[derive(Debug, PartialEq, Clone, Copy)]
enum End {
    /// GOAWAY with this code.
    Goaway(u32),
    /// Closed without a word that the attacker could read.
    Closed,
    /// Nothing more was taken from it.
    Stalled,
    /// Everything was taken.
    Taken,
}

/// How an attacker behaves.
struct Attack {
    name: &'static str,
    settings: Vec<(u16, u32)>,
    /// Sent once.
    first: Vec<u8>,
    /// Sent again and again: the bytes of each turn.
    turn: Box<dyn Fn(u32) -> Vec<u8>>,
    turns: u32,
    /// Whether it reads what it is sent.
    reads: bool,
    allowed: &'static [End],
}

const CALM: End = End::Goaway(code::ENHANCE_YOUR_CALM);

fn attack(name: &'static str, turns: u32, turn: impl Fn(u32) -> Vec<u8> + 'static, allowed: &'static [End]) -> Attack {
    Attack { name, settings: Vec::new(), first: Vec::new(), turn: Box::new(turn), turns, reads: true, allowed }
}

fn repeat(count: usize, bytes: &[u8]) -> Vec<u8> {
    bytes.repeat(count)
}

/// The stream of turn `turn`, a different one for each of `count` in a turn.
fn ids(turn: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |nth| 2 * (turn * count + nth) + 1)
}

fn get(stream: u32) -> Vec<u8> {
    frame::headers(stream, true, hpack::block(&request("GET", "/")))
}

fn post(stream: u32) -> Vec<u8> {
    frame::headers(stream, false, hpack::block(&request("POST", "/")))
}

/// The block of a request that is reset by itself: it has no path.
fn malformed() -> Vec<u8> {
    hpack::block(&[(":method", "GET"), (":scheme", "http"), (":authority", "test.internal")])
}

/// A block whose fields refer 16,000 times to one entry of 4,000 bytes: 64 MB for 16 KB.
fn bomb() -> Vec<u8> {
    let mut block = hpack::block(&request("GET", "/"));
    block.extend(hpack::literal(0x40, b"x-bomb", &[b'a'; 4_000]));
    block.extend([0xbe].repeat(12_000));
    block
}

fn attacks() -> Vec<Attack> {
    let open = frame(frame::HEADERS, frame::END_STREAM, 1, hpack::block(&request("GET", "/")));
    vec![
        attack(
            "rapid reset",
            400,
            |turn| ids(turn, 100).flat_map(|id| [get(id), frame::reset(id, code::CANCEL)].concat()).collect(),
            &[CALM],
        ),
        Attack {
            reads: false,
            ..attack(
                "rapid reset, nothing read",
                400,
                |turn| ids(turn, 100).flat_map(|id| [get(id), frame::reset(id, code::CANCEL)].concat()).collect(),
                &[CALM, End::Closed, End::Stalled],
            )
        },
        // CVE-2025-8671: the server is made to reset, by frames that are wrong on a good stream.
        attack(
            "made you reset",
            400,
            |turn| ids(turn, 100).flat_map(|id| [get(id), frame::window_update(id, 0)].concat()).collect(),
            &[CALM, End::Goaway(code::PROTOCOL_ERROR)],
        ),
        attack(
            "made you reset, by bodies too long",
            400,
            |turn| {
                let fields = |length| [&request("POST", "/")[..], &[("content-length", length)]].concat();
                let calls = ids(turn, 100).map(|id| {
                    [frame::headers(id, false, hpack::block(&fields("1"))), frame::data(id, false, b"abc")].concat()
                });
                calls.flatten().collect()
            },
            &[CALM],
        ),
        attack(
            "malformed requests",
            400,
            |turn| ids(turn, 100).flat_map(|id| frame::headers(id, true, malformed())).collect(),
            &[CALM],
        ),
        Attack {
            reads: false,
            ..attack(
                "malformed requests, nothing read",
                2_000,
                |turn| ids(turn, 100).flat_map(|id| frame::headers(id, true, malformed())).collect(),
                &[CALM, End::Closed, End::Stalled],
            )
        },
        Attack {
            first: open.clone(),
            ..attack(
                "CONTINUATION flood",
                4_000,
                |turn| {
                    frame(frame::CONTINUATION, 0, 1, hpack::literal(0, format!("x-{turn}").as_bytes(), &[b'a'; 8_000]))
                },
                &[CALM],
            )
        },
        Attack {
            first: open.clone(),
            ..attack(
                "empty CONTINUATION flood",
                1_000,
                |_| repeat(1_000, &frame(frame::CONTINUATION, 0, 1, [])),
                &[CALM],
            )
        },
        Attack {
            first: post(1),
            ..attack("empty DATA flood", 1_000, |_| repeat(1_000, &frame::data(1, false, b"")), &[CALM])
        },
        Attack {
            first: post(1),
            ..attack(
                "empty padded DATA flood",
                1_000,
                |_| repeat(1_000, &frame(frame::DATA, frame::PADDED, 1, [0])),
                &[CALM],
            )
        },
        attack("SETTINGS flood", 1_000, |_| repeat(1_000, &frame::settings(&[(0xfff0, 1)])), &[CALM]),
        Attack {
            reads: false,
            ..attack(
                "SETTINGS flood, nothing read",
                4_000,
                |_| repeat(1_000, &frame::settings(&[(0xfff0, 1)])),
                &[CALM, End::Closed, End::Stalled],
            )
        },
        attack("PING flood", 1_000, |_| repeat(1_000, &frame::ping(*b"pingping")), &[CALM]),
        Attack {
            reads: false,
            ..attack(
                "PING flood, nothing read",
                4_000,
                |_| repeat(1_000, &frame::ping(*b"pingping")),
                &[CALM, End::Closed, End::Stalled],
            )
        },
        attack("WINDOW_UPDATE flood", 1_000, |_| repeat(1_000, &frame::window_update(0, 1)), &[CALM]),
        attack("PRIORITY flood", 1_000, |turn| repeat(1_000, &frame::priority(2 * turn + 1, 0, 7)), &[CALM]),
        attack("flood of unknown frames", 1_000, |_| repeat(1_000, &frame(0x42, 0, 0, b"")), &[CALM]),
        Attack {
            first: get(1),
            ..attack(
                "RST_STREAM flood on one stream",
                1_000,
                |_| repeat(1_000, &frame::reset(1, code::CANCEL)),
                &[CALM, End::Goaway(code::STREAM_CLOSED)],
            )
        },
        // Refused one by one with 431 is as good as the end of the connection, as long as memory holds.
        attack(
            "header bombs",
            200,
            |turn| {
                if turn == 0 {
                    frame::headers(1, true, bomb())
                } else {
                    frame::headers(
                        2 * turn + 1,
                        true,
                        [hpack::block(&request("GET", "/")), [0xbe].repeat(15_000)].concat(),
                    )
                }
            },
            &[CALM, End::Goaway(code::COMPRESSION_ERROR), End::Goaway(code::PROTOCOL_ERROR), End::Taken],
        ),
        Attack {
            first: (0..100).flat_map(|nth| get(2 * nth + 1)).collect(),
            settings: vec![(setting::INITIAL_WINDOW_SIZE, 0)],
            ..attack(
                "windows that go up and down",
                1_000,
                |_| {
                    repeat(
                        500,
                        &[
                            frame::settings(&[(setting::INITIAL_WINDOW_SIZE, 1)]),
                            frame::settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]),
                        ]
                        .concat(),
                    )
                },
                &[CALM],
            )
        },
    ]
}

/// Runs it: writes without waiting, reads between turns if it reads at all.
fn run(attack: &Attack, target: SocketAddr) -> End {
    let mut session = Session::open(target, &attack.settings).unwrap();
    session.wait(|session| !session.settings.is_empty());
    session.peer.stream().set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    session.reads = false;
    session.send(&attack.first);
    for turn in 0..attack.turns {
        match write(session.peer.stream(), &(attack.turn)(turn)) {
            Written::All => {}
            Written::Some => return end(&mut session).unwrap_or(End::Stalled),
            Written::Gone => return end(&mut session).unwrap_or(End::Closed),
        }
        if attack.reads {
            session.wait_for(Duration::ZERO, |_| false);
        }
        if !session.goaways.is_empty() {
            break;
        }
    }
    session.is_alive();
    end(&mut session).unwrap_or(End::Taken)
}

enum Written {
    All,
    Some,
    Gone,
}

fn write(mut stream: &TcpStream, bytes: &[u8]) -> Written {
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Written::Some,
            Err(_) => return Written::Gone,
        }
    }
    Written::All
}

/// How the other side has ended the connection, if it has.
fn end(session: &mut Session) -> Option<End> {
    session.wait_for(Duration::from_secs(2), |session| !session.goaways.is_empty());
    match session.goaways.iter().find(|(_, code)| *code != code::NO_ERROR) {
        Some((_, code)) => Some(End::Goaway(*code)),
        None if session.peer.is_closed() => Some(End::Closed),
        None => None,
    }
}

fn resident(proxy: &Proxy) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// A proxy before an HTTP/1.1 server, with callers of both protocols beside the attackers.
struct Scene {
    _server: Upstream,
    listen: SocketAddr,
    policy: String,
    proxy: Proxy,
    http1: load::Load,
    http2: Load,
}

impl Scene {
    fn start(handler: impl Fn(&upstream::Request) -> upstream::Script + Send + Sync + 'static) -> Scene {
        let server = Upstream::start(handler);
        let mut dependency = listened("fraud-api", server.address, "  timeouts: {connect: 10s, request: 30s}");
        dependency.policy = dependency.policy.replace("target:", "target:\n    upstreamProtocol: HTTP1");
        let proxy = Setup::new().workers(1).policy(&dependency.policy).start();
        let http1 = load::Load::start(dependency.listen, 2, &Ask::get());
        let http2 = Load::start(dependency.listen, 2, 2);
        http2.wait_for_more(100);
        Scene { _server: server, listen: dependency.listen, policy: dependency.policy, proxy, http1, http2 }
    }

    /// Ends it: the neighbours have noticed nothing.
    fn finish(self) {
        self.http1.wait_for_more(20);
        self.http2.wait_for_more(20);
        assert_unharmed(&self.http1.finish());
        assert_unharmed(&self.http2.finish());
    }
}

/// Two connections of neighbours: every call was answered, and nobody had to connect again.
fn assert_unharmed(tally: &Tally) {
    assert!(tally.failures.is_empty(), "{:?}", &tally.failures[..tally.failures.len().min(3)]);
    assert_eq!((tally.ok(), tally.closed, tally.connections), (tally.answers(), 0, 2), "{tally:?}");
}

/// What the proxy may grow by: some megabytes of buffers and tables, and nothing that grows with the length of an attack.
const MOST_GROWN: u64 = 24 << 20;

/// Makes every attack on `listen`, whose calls go in `direction`, and holds that each has ended as it should.
fn make_all(proxy: &Proxy, listen: SocketAddr, direction: &str) {
    let (mut wrong, mut calmed) = (Vec::new(), 0.0);
    for attack in attacks() {
        let before = resident(proxy);
        let begun = Instant::now();
        let end = run(&attack, listen);
        let grown = resident(proxy).saturating_sub(before);
        println!("{:34} {end:?}, {} KiB more, {:?}", attack.name, grown >> 10, begun.elapsed());
        calmed += f64::from(u8::from(end == CALM));
        if !attack.allowed.contains(&end) {
            wrong.push(format!("{}: {end:?} instead of one of {:?}", attack.name, attack.allowed));
        }
        if grown > MOST_GROWN {
            wrong.push(format!("{}: {} MiB more memory", attack.name, grown >> 20));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let counted = || proxy.admin.metric("plimsoll_http2_floods_total", &[("direction", direction)]);
    eventually("each flood is counted", || counted() >= calmed);
}

#[test]
fn floods_are_refused_and_harm_nobody() {
    let scene = Scene::start(|_| upstream::ok("ok"));
    make_all(&scene.proxy, scene.listen, "outbound");
    scene.finish();
}

#[test]
fn floods_of_strangers_are_refused_and_harm_nobody() {
    let app = Server::answering("ok");
    let proxy = Setup::new().workers(1).arg("--app").arg(app.address.to_string()).start();
    let neighbours = Load::start(proxy.inbound, 2, 2);
    neighbours.wait_for_more(100);
    make_all(&proxy, proxy.inbound, "inbound");
    neighbours.wait_for_more(20);
    assert_unharmed(&neighbours.finish());
}

#[test]
fn answers_that_nobody_reads_are_not_kept() {
    const SIZE: usize = 8 << 20;
    let scene = Scene::start(|request| {
        if request.target == "/large" {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
            vec![upstream::raw(&head), upstream::Step::Fill(SIZE)]
        } else {
            upstream::ok("ok")
        }
    });
    let before = resident(&scene.proxy);
    let closed_windows = [(setting::INITIAL_WINDOW_SIZE, 0)];
    // 800 calls of 8 MiB each, whose callers have no room for a byte.
    let mut attackers: Vec<Session> = (0..8).map(|_| Session::connect_with(scene.listen, &closed_windows)).collect();
    for attacker in &mut attackers {
        let streams: Vec<u32> = (0..100).map(|_| attacker.begin(&request("GET", "/large"), true)).collect();
        let headed = |session: &Session| streams.iter().all(|stream| !session.stream(*stream).blocks.is_empty());
        assert!(attacker.wait(headed), "heads need no window");
    }
    let grown = resident(&scene.proxy).saturating_sub(before);
    // 800 times a read buffer of 64 KiB, at most.
    assert!(grown < 100 << 20, "{} MiB for 800 stalled calls", grown >> 20);
    scene.finish();
    drop(attackers);
}

#[test]
fn calls_that_nobody_reads_do_not_hold_a_shared_connection() {
    const SIZE: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("large"), vec![b'x'; SIZE]).unwrap();
    let address = address::reserve();
    let mut command = Command::new(require_program("nghttpd"));
    command.args(["--no-tls", "-m", "1000", "-a", &address.ip().to_string(), "-d"]).arg(folder.path());
    let _server = Process::start(command.arg(address.port().to_string()));
    eventually("nghttpd listens", || Peer::try_connect(address).is_ok());
    let mut dependency = listened("fraud-api", address, "  timeouts: {connect: 10s, request: 30s}");
    dependency.policy = dependency.policy.replace("target:", "target:\n    upstreamProtocol: HTTP2");
    let proxy = Setup::new().workers(1).policy(&dependency.policy).start();
    let before = resident(&proxy);
    let mut attackers: Vec<Session> =
        (0..4).map(|_| Session::connect_with(dependency.listen, &[(setting::INITIAL_WINDOW_SIZE, 0)])).collect();
    for attacker in &mut attackers {
        let streams: Vec<u32> = (0..100).map(|_| attacker.begin(&request("GET", "/large"), true)).collect();
        let headed = |session: &Session| streams.iter().all(|stream| !session.stream(*stream).blocks.is_empty());
        assert!(attacker.wait(headed), "heads need no window");
        // Each could fill its window at the proxy by now; who reads is served beside them.
        let answer = Session::connect(dependency.listen).get("/large");
        assert_eq!((answer.status, answer.body.len(), answer.ended), (200, SIZE, true));
    }
    let grown = resident(&proxy).saturating_sub(before);
    assert!(grown < 100 << 20, "{} MiB for 400 stalled calls", grown >> 20);
}

/// What a server floods with: the frames of a turn, sent again and again once a call is there.
type Flood = fn(u32) -> Vec<u8>;

fn floods_of_servers() -> Vec<(&'static str, Vec<u8>, Flood)> {
    let head = |fields: &[(&str, &str)]| frame::headers(1, false, hpack::block(fields));
    let open = frame(frame::HEADERS, 0, 1, hpack::block(&[(":status", "200")]));
    vec![
        ("PING", Vec::new(), |_| repeat(1_000, &frame::ping(*b"pingping"))),
        ("SETTINGS", Vec::new(), |_| repeat(1_000, &frame::settings(&[(0xfff0, 1)]))),
        ("WINDOW_UPDATE", Vec::new(), |_| repeat(1_000, &frame::window_update(0, 1))),
        ("unknown frames", Vec::new(), |_| repeat(1_000, &frame(0x42, 0, 0, b""))),
        ("1xx", Vec::new(), |_| repeat(100, &frame::headers(1, false, hpack::block(&[(":status", "103")])))),
        ("empty DATA", head(&[(":status", "200")]), |_| repeat(1_000, &frame::data(1, false, b""))),
        ("CONTINUATION", open.clone(), |turn| {
            frame(frame::CONTINUATION, 0, 1, hpack::literal(0, format!("x-{turn}").as_bytes(), &[b'a'; 8_000]))
        }),
        ("empty CONTINUATION", open, |_| repeat(1_000, &frame(frame::CONTINUATION, 0, 1, []))),
        ("header bombs", Vec::new(), |_| {
            let bomb = hpack::literal(0x40, b"x-bomb", &[b'a'; 4_000]);
            frame::headers(1, true, [hpack::block(&[(":status", "200")]), bomb, [0xbe].repeat(12_000)].concat())
        }),
    ]
}

#[test]
fn servers_that_flood_end_their_own_calls_alone() {
    let scene = Scene::start(|_| upstream::ok("ok"));
    let mut policy = scene.policy.clone();
    let mut servers = Vec::new();
    for (nth, (name, first, turn)) in floods_of_servers().into_iter().enumerate() {
        let ended = Arc::new(AtomicBool::new(false));
        let told = ended.clone();
        let server = Server::start(&[], move |session, _| {
            session.wait(|session| !session.streams.is_empty());
            session.send(&first);
            let refused = (0..4_000).any(|nth| !session.send(turn(nth)) || session.peer.is_closed());
            told.store(refused || !session.is_alive(), Ordering::SeqCst);
        });
        let mut dependency = listened(&format!("flood-{nth}"), server.address, "  timeouts: {request: 3s}");
        dependency.policy = dependency.policy.replace("target:", "target:\n    upstreamProtocol: HTTP2");
        policy.push_str("---\n");
        policy.push_str(&dependency.policy);
        servers.push((name, server, dependency.listen, ended));
    }
    assert_eq!(scene.proxy.admin.put_policy(&policy).0, 200);
    let mut wrong = Vec::new();
    for (name, _server, listen, ended) in &servers {
        let before = resident(&scene.proxy);
        let mut session = Session::connect(*listen);
        let stream = session.begin(&request("GET", "/"), true);
        session.wait(|session| session.stream(stream).is_over());
        let seen = session.stream(stream);
        let cut = seen.reset.is_some() || seen.answer().is_some_and(|answer| answer.reason().is_some());
        let grown = resident(&scene.proxy).saturating_sub(before);
        println!("{name:20} cut {cut}, {:?}, {} KiB more", seen.answer().map(|answer| answer.status), grown >> 10);
        if !cut || grown > MOST_GROWN {
            wrong.push(format!("{name}: {seen:?}, {} MiB more memory", grown >> 20));
        }
        eventually("the connection of the server is ended", || ended.load(Ordering::SeqCst));
    }
    scene.finish();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn heads_that_never_end_are_timed_out() {
    let scene = Scene::start(|_| upstream::ok("ok"));
    let unfinished = frame(frame::HEADERS, frame::END_STREAM, 1, hpack::block(&request("GET", "/")));
    let preface = [PREFACE, &frame::settings(&[])].concat();
    let begun = Instant::now();
    let mut slow: Vec<Session> = Vec::new();
    for (nth, opening) in
        [preface.clone(), [preface.clone(), unfinished].concat(), PREFACE.to_vec(), PREFACE[..10].to_vec()]
            .iter()
            .enumerate()
    {
        for _ in 0..25 {
            let mut session = Session::raw(scene.listen).unwrap();
            session.send(opening);
            // A connection without a call is idle, and idle connections are kept.
            if nth > 0 {
                slow.push(session);
            }
        }
    }
    for session in &mut slow {
        session.wait_for(Duration::from_secs(20), |session| session.peer.is_closed());
        assert!(session.peer.is_closed(), "{}", session.describe());
    }
    assert!(begun.elapsed() >= Duration::from_secs(9), "not before its 10 s: {:?}", begun.elapsed());
    assert!(Peer::try_connect(scene.listen).is_ok());
    scene.finish();
}
