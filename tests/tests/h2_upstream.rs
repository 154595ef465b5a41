//! Servers of HTTP/2 that break off, break rules or do what is allowed and seldom: what a caller must see of it.
//!
//! Each row is a dependency of its own, behind one proxy, called over HTTP/2 and over HTTP/1.1.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_tests::client::{Client, Failure};
use plimsoll_tests::eventually;
use plimsoll_tests::h2::frame::{self, code, frame, setting};
use plimsoll_tests::h2::{Server, Session, hpack, request};
use plimsoll_tests::proxy::{Listened, Setup, listened};

/// What a caller sees.
#[derive(Debug, PartialEq)]
enum Seen {
    /// A whole answer of the server.
    Whole(u16),
    /// An answer of the proxy, with its reason.
    Reason(String),
    /// An answer that began and visibly did not end.
    Cut,
    /// No answer at all.
    Nothing,
}

/// What a caller must see.
enum Due {
    Whole(u16),
    /// One of these reasons.
    Reason(&'static [&'static str]),
    /// Cut, or one of these reasons where the proxy looked before it sent the head on.
    CutOr(&'static [&'static str]),
}

const BROKEN: &[&str] = &["UpstreamProtocolError"];
/// The connection ended, or its end was ordered: which of the two is seen first is no fault.
const BROKEN_OR_LOST: &[&str] = &["UpstreamProtocolError", "UpstreamReset"];
const LOST: &[&str] = &["UpstreamReset"];

type Script = fn(&mut Session, u32);

struct Row {
    name: &'static str,
    settings: &'static [(u16, u32)],
    /// What the server does once a request's head is there.
    script: Script,
    /// Only the first connection does so; later ones have a good server.
    once: bool,
    due: Due,
}

fn row(name: &'static str, script: Script, due: Due) -> Row {
    Row { name, settings: &[], script, once: false, due }
}

fn head(stream: u32, ends: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    frame::headers(stream, ends, hpack::block(fields))
}

fn answer(stream: u32) -> Vec<u8> {
    [head(stream, false, &[(":status", "200"), ("content-length", "2")]), frame::data(stream, true, b"ok")].concat()
}

/// Sends, and stays to the end of the connection: what the proxy does next is its own decision.
fn say(session: &mut Session, bytes: Vec<u8>) {
    session.send(bytes);
    session.wait(|_| false);
}

fn heads() -> Vec<Row> {
    vec![
        row("an answer", |session, stream| say(session, answer(stream)), Due::Whole(200)),
        row("no :status", |session, stream| say(session, head(stream, true, &[("x-a", "1")])), Due::Reason(BROKEN)),
        row(
            "a status that is no number",
            |session, stream| say(session, head(stream, true, &[(":status", "2x0")])),
            Due::Reason(BROKEN),
        ),
        row(
            "a status of two digits",
            |session, stream| say(session, head(stream, true, &[(":status", "20")])),
            Due::Reason(BROKEN),
        ),
        row(
            "two statuses",
            |session, stream| say(session, head(stream, true, &[(":status", "200"), (":status", "200")])),
            Due::Reason(BROKEN),
        ),
        row(
            "a pseudo field after a field",
            |session, stream| say(session, head(stream, true, &[("x-a", "1"), (":status", "200")])),
            Due::Reason(BROKEN),
        ),
        row(
            "a name in upper case",
            |session, stream| say(session, head(stream, true, &[(":status", "200"), ("X-A", "1")])),
            Due::Reason(BROKEN),
        ),
        row(
            "connection",
            |session, stream| say(session, head(stream, true, &[(":status", "200"), ("connection", "close")])),
            Due::Reason(BROKEN),
        ),
        row(
            "transfer-encoding",
            |session, stream| say(session, head(stream, true, &[(":status", "200"), ("transfer-encoding", "chunked")])),
            Due::Reason(BROKEN),
        ),
        row(
            "CR LF in a value",
            |session, stream| say(session, head(stream, true, &[(":status", "200"), ("x-a", "1\r\nx-b: 2")])),
            Due::Reason(BROKEN),
        ),
        row("101", |session, stream| say(session, head(stream, true, &[(":status", "101")])), Due::Reason(BROKEN)),
        row(
            "an interim head that ends the stream",
            |session, stream| say(session, head(stream, true, &[(":status", "103")])),
            Due::Reason(BROKEN),
        ),
        row(
            "a head that is far too large",
            |session, stream| {
                let value = "v".repeat(8_000);
                let fields: Vec<(String, &str)> = (0..40).map(|nth| (format!("x-{nth}"), value.as_str())).collect();
                let block = [hpack::block(&[(":status", "200")]), hpack::block(&fields)].concat();
                let mut frames = frame(frame::HEADERS, frame::END_STREAM, stream, &block[..16_000]);
                for part in block[16_000..].chunks(16_000) {
                    frames.extend(frame(frame::CONTINUATION, 0, stream, part));
                }
                frames.extend(frame(frame::CONTINUATION, frame::END_HEADERS, stream, []));
                say(session, frames);
            },
            Due::Reason(&["UpstreamProtocolError", "UpstreamReset", "HeadersTooLarge"]),
        ),
    ]
}

fn bodies() -> Vec<Row> {
    vec![
        row(
            "interim heads, then an answer",
            |session, stream| {
                let interim = [
                    head(stream, false, &[(":status", "103"), ("link", "</a>")]),
                    head(stream, false, &[(":status", "103")]),
                ];
                say(session, [interim.concat(), answer(stream)].concat());
            },
            Due::Whole(200),
        ),
        row(
            "trailers",
            |session, stream| {
                say(
                    session,
                    [
                        head(stream, false, &[(":status", "200")]),
                        frame::data(stream, false, b"ok"),
                        head(stream, true, &[("x-sum", "1")]),
                    ]
                    .concat(),
                );
            },
            Due::Whole(200),
        ),
        row(
            "trailers without END_STREAM",
            |session, stream| {
                say(
                    session,
                    [
                        head(stream, false, &[(":status", "200")]),
                        frame::data(stream, false, b"ok"),
                        head(stream, false, &[("x-sum", "1")]),
                    ]
                    .concat(),
                );
            },
            Due::CutOr(BROKEN),
        ),
        row(
            "DATA before a head",
            |session, stream| say(session, frame::data(stream, true, b"ok")),
            Due::Reason(BROKEN_OR_LOST),
        ),
        row(
            "a body longer than its content-length",
            |session, stream| {
                say(
                    session,
                    [
                        head(stream, false, &[(":status", "200"), ("content-length", "2")]),
                        frame::data(stream, true, b"okay"),
                    ]
                    .concat(),
                );
            },
            Due::CutOr(BROKEN),
        ),
        row(
            "a body shorter than its content-length",
            |session, stream| {
                say(
                    session,
                    [
                        head(stream, false, &[(":status", "200"), ("content-length", "9")]),
                        frame::data(stream, true, b"ok"),
                    ]
                    .concat(),
                );
            },
            Due::CutOr(BROKEN),
        ),
        row(
            "a content-length, and no body",
            |session, stream| {
                say(session, head(stream, true, &[(":status", "200"), ("content-length", "9")]));
            },
            Due::CutOr(BROKEN),
        ),
        row(
            "two content-lengths",
            |session, stream| {
                say(
                    session,
                    [
                        head(stream, false, &[(":status", "200"), ("content-length", "2"), ("content-length", "3")]),
                        frame::data(stream, true, b"ok"),
                    ]
                    .concat(),
                );
            },
            Due::CutOr(BROKEN),
        ),
        row(
            "the connection ends before END_STREAM",
            |session, stream| {
                session.send([head(stream, false, &[(":status", "200")]), frame::data(stream, false, b"ok")].concat());
            },
            Due::CutOr(LOST),
        ),
        row(
            "a reset after the head",
            |session, stream| {
                say(
                    session,
                    [
                        head(stream, false, &[(":status", "200")]),
                        frame::data(stream, false, b"ok"),
                        frame::reset(stream, code::INTERNAL_ERROR),
                    ]
                    .concat(),
                );
            },
            Due::CutOr(LOST),
        ),
        row(
            "a reset without error before the end",
            |session, stream| {
                say(
                    session,
                    [
                        head(stream, false, &[(":status", "200")]),
                        frame::data(stream, false, b"ok"),
                        frame::reset(stream, code::NO_ERROR),
                    ]
                    .concat(),
                );
            },
            Due::CutOr(LOST),
        ),
        row(
            "a whole answer, then a reset without error",
            |session, stream| {
                say(session, [answer(stream), frame::reset(stream, code::NO_ERROR)].concat());
            },
            Due::Whole(200),
        ),
        row("204", |session, stream| say(session, head(stream, true, &[(":status", "204")])), Due::Whole(204)),
        row(
            "padding everywhere",
            |session, stream| {
                let block = hpack::block(&[(":status", "200")]);
                let padded = |content: &[u8]| [&[3], content, &[0, 0, 0]].concat();
                say(
                    session,
                    [
                        frame(frame::HEADERS, frame::END_HEADERS | frame::PADDED, stream, padded(&block)),
                        frame(frame::DATA, frame::PADDED, stream, padded(b"o")),
                        frame(frame::DATA, frame::PADDED | frame::END_STREAM, stream, padded(b"k")),
                    ]
                    .concat(),
                );
            },
            Due::Whole(200),
        ),
        row(
            "a body of a byte in each frame",
            |session, stream| {
                let body: Vec<u8> = (0..2_000).flat_map(|_| frame::data(stream, false, b"x")).collect();
                say(
                    session,
                    [head(stream, false, &[(":status", "200")]), body, frame::data(stream, true, b"")].concat(),
                );
            },
            Due::Whole(200),
        ),
    ]
}

fn connections() -> Vec<Row> {
    vec![
        Row {
            once: true,
            ..row(
                "GOAWAY below the stream",
                |session, _| say(session, frame::goaway(0, code::NO_ERROR)),
                Due::Whole(200),
            )
        },
        Row {
            once: true,
            ..row(
                "GOAWAY below the stream, and the end",
                |session, _| {
                    session.send(frame::goaway(0, code::NO_ERROR));
                },
                Due::Whole(200),
            )
        },
        row(
            "a connection window above 2^31-1",
            |session, _| {
                say(session, [frame::window_update(0, 0x7fff_ffff), frame::window_update(0, 0x7fff_ffff)].concat());
            },
            Due::Reason(BROKEN_OR_LOST),
        ),
        row(
            "REFUSED_STREAM, and the next is taken",
            |session, stream| {
                session.send(frame::reset(stream, code::REFUSED_STREAM));
                session.streams.remove(&stream);
                while session.wait(|session| session.streams.values().any(|stream| stream.ended)) {
                    let (stream, _) = session.streams.pop_first().unwrap();
                    session.send(answer(stream));
                }
            },
            Due::Whole(200),
        ),
        row(
            "GOAWAY that covers the stream, and the answer",
            |session, stream| {
                say(session, [frame::goaway(stream, code::NO_ERROR), answer(stream)].concat());
            },
            Due::Whole(200),
        ),
        row(
            "GOAWAY in two steps, and the answer",
            |session, stream| {
                say(
                    session,
                    [frame::goaway(0x7fff_ffff, code::NO_ERROR), frame::goaway(stream, code::NO_ERROR), answer(stream)]
                        .concat(),
                );
            },
            Due::Whole(200),
        ),
        row(
            "GOAWAY that covers the stream, and the end",
            |session, stream| {
                session.send(frame::goaway(stream, code::NO_ERROR));
            },
            Due::Reason(LOST),
        ),
        row(
            "GOAWAY with an error, and the end",
            |session, stream| {
                session.send(frame::goaway(stream, code::INTERNAL_ERROR));
            },
            Due::Reason(LOST),
        ),
        row(
            "CANCEL before a head",
            |session, stream| say(session, frame::reset(stream, code::CANCEL)),
            Due::Reason(LOST),
        ),
        row(
            "INTERNAL_ERROR before a head",
            |session, stream| say(session, frame::reset(stream, code::INTERNAL_ERROR)),
            Due::Reason(LOST),
        ),
        row(
            "ENHANCE_YOUR_CALM before a head",
            |session, stream| say(session, frame::reset(stream, code::ENHANCE_YOUR_CALM)),
            Due::Reason(LOST),
        ),
        row("the end before a head", |_, _| {}, Due::Reason(LOST)),
        row(
            "HTTP/1.1 in its place",
            |session, _| say(session, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()),
            Due::Reason(BROKEN_OR_LOST),
        ),
        row(
            "a frame that is too large",
            |session, stream| {
                say(
                    session,
                    [head(stream, false, &[(":status", "200")]), frame::data(stream, true, vec![0; 20_000])].concat(),
                );
            },
            Due::CutOr(BROKEN_OR_LOST),
        ),
        row(
            "a block that cannot be decoded",
            |session, stream| say(session, frame::headers(stream, true, [0xff, 0xff, 0x7f])),
            Due::Reason(BROKEN_OR_LOST),
        ),
        row(
            "a head on a stream nobody opened",
            |session, stream| say(session, answer(stream + 8)),
            Due::Reason(BROKEN_OR_LOST),
        ),
        row(
            "PUSH_PROMISE",
            |session, stream| {
                let promise = [&[0, 0, 0, 2], &hpack::block(&request("GET", "/"))[..]].concat();
                say(session, frame(frame::PUSH_PROMISE, frame::END_HEADERS, stream, promise));
            },
            Due::Reason(BROKEN_OR_LOST),
        ),
        row(
            "settings that are out of range",
            |session, _| say(session, frame::settings(&[(setting::MAX_FRAME_SIZE, 1)])),
            Due::Reason(BROKEN_OR_LOST),
        ),
        row(
            "more than the window allows",
            |session, stream| {
                session.send(head(stream, false, &[(":status", "200")]));
                // The settings of the proxy say how much; twice that on one stream, whatever it gives back meanwhile.
                let window = session.settings.get(&setting::INITIAL_WINDOW_SIZE).copied().unwrap_or(65_535);
                let block = frame::data(stream, false, vec![0; 16_384]);
                for _ in 0..window / 16_384 * 64 {
                    if !session.send(&block) {
                        break;
                    }
                }
                session.wait(|_| false);
            },
            Due::CutOr(BROKEN_OR_LOST),
        ),
        Row {
            settings: &[(setting::INITIAL_WINDOW_SIZE, 0)],
            ..row(
                "a window of 0 that opens later",
                |session, stream| {
                    // Only the head can have come: the body waits for the window.
                    assert_eq!(session.stream(stream).data, b"");
                    session.send(frame::window_update(stream, 100));
                    session.wait(|session| session.stream(stream).ended);
                    say(session, answer(stream));
                },
                Due::Whole(200),
            )
        },
        Row {
            settings: &[(setting::INITIAL_WINDOW_SIZE, 0)],
            ..row(
                "an early answer while the window is 0",
                |session, stream| {
                    say(
                        session,
                        [head(stream, true, &[(":status", "413")]), frame::reset(stream, code::NO_ERROR)].concat(),
                    );
                },
                Due::Whole(413),
            )
        },
        Row {
            settings: &[(setting::MAX_CONCURRENT_STREAMS, 1)],
            ..row("one stream at a time", |session, stream| say(session, answer(stream)), Due::Whole(200))
        },
        Row {
            settings: &[(setting::HEADER_TABLE_SIZE, 0)],
            ..row("no table for compression", |session, stream| say(session, answer(stream)), Due::Whole(200))
        },
        Row {
            settings: &[(setting::MAX_FRAME_SIZE, 1 << 20)],
            ..row("larger frames allowed", |session, stream| say(session, answer(stream)), Due::Whole(200))
        },
    ]
}

fn rows() -> Vec<Row> {
    [heads(), bodies(), connections()].into_iter().flatten().collect()
}

/// A server that plays the script of a row.
fn serve(row: &Row) -> Server {
    let (script, once) = (row.script, row.once);
    Server::start(row.settings, move |session, nth| {
        // A head is enough: some scripts answer before the request has ended.
        if once && nth > 0 {
            while let Some((stream, _)) = session.next_request() {
                session.send(answer(stream));
            }
        } else if session.wait(|session| session.streams.values().any(|stream| !stream.blocks.is_empty())) {
            let stream = *session.streams.keys().next().unwrap();
            script(session, stream);
        }
    })
}

/// A dependency that is called over HTTP/2.
fn called(server: SocketAddr, name: &str) -> Listened {
    let mut dependency = listened(name, server, "  timeouts: {request: 5s}");
    dependency.policy = dependency.policy.replace("target:", "target:\n    upstreamProtocol: HTTP2");
    dependency
}

fn over_http2(address: SocketAddr) -> Seen {
    let mut session = Session::connect(address);
    let stream = session.begin(&request("POST", "/"), false);
    session.send(frame::data(stream, true, b"{}"));
    session.wait(|session| session.stream(stream).is_over());
    let found = session.stream(stream);
    // A reset may overtake the head of what it cuts.
    let Some(answer) = found.answer() else { return if found.reset.is_some() { Seen::Cut } else { Seen::Nothing } };
    match (answer.reason(), answer.ended) {
        (Some(reason), true) => Seen::Reason(reason.to_owned()),
        (None, true) => Seen::Whole(answer.status),
        (_, false) => Seen::Cut,
    }
}

fn over_http1(address: SocketAddr) -> Seen {
    match Client::connect(address).try_call("POST", "/", &[], b"{}") {
        Ok(answer) => answer.reason().map_or(Seen::Whole(answer.status), |reason| Seen::Reason(reason.to_owned())),
        Err(Failure::Cut { status: 200, .. }) => Seen::Cut,
        Err(_) => Seen::Nothing,
    }
}

fn is_due(seen: &Seen, due: &Due) -> bool {
    let is_one_of = |reasons: &[&str]| matches!(seen, Seen::Reason(reason) if reasons.contains(&reason.as_str()));
    match due {
        Due::Whole(status) => *seen == Seen::Whole(*status),
        Due::Reason(reasons) => is_one_of(reasons),
        Due::CutOr(reasons) => *seen == Seen::Cut || is_one_of(reasons),
    }
}

#[test]
fn whatever_a_server_does_its_caller_sees_the_truth() {
    let rows = rows();
    let servers: Vec<Server> = rows.iter().flat_map(|row| [serve(row), serve(row)]).collect();
    let named = |(nth, server): (usize, &Server)| called(server.address, &format!("server-{nth}"));
    let dependencies: Vec<Listened> = servers.iter().enumerate().map(named).collect();
    let policy: Vec<&str> = dependencies.iter().map(|dependency| dependency.policy.as_str()).collect();
    let _proxy = Setup::new().policy(&policy.join("---\n")).start();
    let mut wrong = String::new();
    for (row, pair) in rows.iter().zip(dependencies.chunks(2)) {
        for (protocol, seen) in [("HTTP/2", over_http2(pair[0].listen)), ("HTTP/1.1", over_http1(pair[1].listen))] {
            if !is_due(&seen, &row.due) {
                writeln!(wrong, "{protocol}: {}: {seen:?}", row.name).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_comes_before_and_after_an_answer_arrives() {
    let server = Server::start(&[], |session, _| {
        while let Some((stream, _)) = session.next_request() {
            let frames = [
                head(stream, false, &[(":status", "103"), ("link", "</a>; rel=preload")]),
                head(stream, false, &[(":status", "200")]),
                frame::data(stream, false, b"ok"),
                head(stream, true, &[("x-sum", "1")]),
            ];
            session.send(frames.concat());
        }
    });
    let dependency = called(server.address, "fraud-api");
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let answer = Session::connect(dependency.listen).get("/");
    assert_eq!((answer.status, answer.text().as_str(), answer.ended), (200, "ok", true), "{answer:?}");
    assert_eq!(answer.interim, [103]);
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "1".to_owned())]);
    let mut client = Client::connect(dependency.listen);
    let answer = client.call("GET", "/", &[("TE", "trailers")], b"");
    assert_eq!((answer.interim.as_slice(), answer.text().as_str()), (&[103][..], "ok"), "{answer}");
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "1".to_owned())]);
}

#[test]
fn a_server_that_takes_two_streams_is_sent_two_at_a_time() {
    let (most, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, counted) = (most.clone(), answered.clone());
    let server = Server::start(&[(setting::MAX_CONCURRENT_STREAMS, 2)], move |session, _| {
        // Until they have arrived, the settings bind nobody (RFC 9113 6.5.2).
        session.wait(|session| session.acknowledged > 0);
        let early = session.streams.keys().next_back().copied().unwrap_or(0);
        let open = |session: &Session| session.streams.values().filter(|stream| stream.ended).count();
        while session.wait(|session| open(session) > 0) {
            // Gives more the time to come than may.
            session.wait_for(Duration::from_millis(5), |session| open(session) > 2);
            if session.streams.keys().any(|stream| *stream > early) {
                seen.fetch_max(open(session), Ordering::SeqCst);
            }
            let (stream, _) = session.streams.pop_first().unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            session.send(answer(stream));
        }
    });
    let dependency = called(server.address, "fraud-api");
    let _proxy = Setup::new().workers(1).policy(&dependency.policy).start();
    let mut session = Session::connect(dependency.listen);
    assert_eq!(session.get("/").status, 200);
    let streams: Vec<u32> = (0..20).map(|_| session.begin(&request("POST", "/"), true)).collect();
    for stream in streams {
        assert_eq!(session.answer(stream).status, 200);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(answered.load(Ordering::SeqCst), 21, "each was made once");
}

#[test]
fn a_server_learns_that_its_caller_has_gone() {
    let reset = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = reset.clone();
    let server = Server::start(&[], move |session, _| {
        session.wait(|session| session.streams.values().any(|stream| stream.reset.is_some()));
        let code = session.streams.values().find_map(|stream| stream.reset);
        seen.store(code.map_or(usize::MAX, |code| code as usize), Ordering::SeqCst);
        assert!(session.is_alive(), "others may be on this connection");
    });
    let dependency = called(server.address, "fraud-api");
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let mut session = Session::connect(dependency.listen);
    let stream = session.begin(&request("GET", "/"), true);
    eventually("the call is on its way", || server.connections() == 1);
    session.send(frame::reset(stream, code::CANCEL));
    eventually("the server was told", || reset.load(Ordering::SeqCst) == code::CANCEL as usize);
}

/// A connection whose other end is gone without a word would otherwise take every call that comes.
#[test]
fn a_connection_that_stays_silent_takes_no_more_calls() {
    let server = Server::start(&[], |session, nth| {
        if nth == 0 {
            // Takes what comes and says nothing.
            session.wait_for(Duration::from_secs(60), |_| false);
        }
        while let Some((stream, _)) = session.next_request() {
            session.send(head(stream, true, &[(":status", "204")]));
        }
    });
    let mut dependency = listened("fraud-api", server.address, "  timeouts: {request: 300ms}");
    dependency.policy = dependency.policy.replace("target:", "target:\n    upstreamProtocol: HTTP2");
    let _proxy = Setup::new().workers(1).policy(&dependency.policy).start();
    let mut session = Session::connect(dependency.listen);
    let lost = (0..20).take_while(|_| session.get("/").status == 504).count();
    assert!((1..10).contains(&lost), "{lost} calls were lost");
    assert_eq!((session.get("/").status, server.connections()), (204, 2));
}
