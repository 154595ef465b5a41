//! Streams: states, identifiers, concurrency, priority, windows (RFC 9113 5, 6.1 to 6.4, 6.9, 6.10).

use plimsoll_tests::h2::frame::{self, code::*, frame, setting};
use plimsoll_tests::h2::{hpack, request};

use crate::case::{
    Case, Step, alive, answered, block_with, case, check, connection, get, post, send, stream, until_answered,
};

pub fn cases() -> Vec<Case> {
    let mut cases = idle();
    cases.extend(half_closed());
    cases.extend(closed());
    cases.extend(identifiers());
    cases.extend(priority());
    cases.extend(frames());
    cases.extend(windows());
    cases.extend(window_sizes());
    cases
}

fn continuation(stream: u32, flags: u8) -> Step {
    send(frame(frame::CONTINUATION, flags, stream, hpack::block(&[("x-more", "1")])))
}

fn idle() -> Vec<Case> {
    vec![
        case("5.1", "idle: DATA", [send(frame::data(1, true, b"a"))], connection(&[PROTOCOL_ERROR, STREAM_CLOSED])),
        case("5.1", "idle: RST_STREAM", [send(frame::reset(1, CANCEL))], connection(&[PROTOCOL_ERROR])),
        case("5.1", "idle: WINDOW_UPDATE", [send(frame::window_update(1, 100))], connection(&[PROTOCOL_ERROR])),
        case("5.1", "idle: CONTINUATION", [continuation(1, frame::END_HEADERS)], connection(&[PROTOCOL_ERROR])),
        case("5.1", "idle: PRIORITY", [send(frame::priority(1, 0, 255)), send(get(3))], answered(3)),
        case(
            "5.1",
            "idle: PRIORITY, then HEADERS on the same stream",
            [send(frame::priority(1, 0, 255)), send(get(1))],
            answered(1),
        ),
    ]
}

/// The request has ended and its answer has not: the client's window keeps it back.
fn half_closed() -> Vec<Case> {
    let held = |case: Case| case.settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
    vec![
        held(case(
            "5.1",
            "half-closed: DATA",
            [send(get(1)), send(frame::data(1, true, b"a"))],
            stream(1, &[STREAM_CLOSED]),
        )),
        held(case("5.1", "half-closed: HEADERS", [send(get(1)), send(get(1))], stream(1, &[STREAM_CLOSED]))),
        held(case(
            "5.1",
            "half-closed: CONTINUATION",
            [send(get(1)), continuation(1, frame::END_HEADERS)],
            connection(&[PROTOCOL_ERROR, STREAM_CLOSED]),
        )),
        case("5.1", "half-closed: WINDOW_UPDATE", [send(get(1)), send(frame::window_update(1, 100))], answered(1))
            .settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]),
        held(case(
            "5.1",
            "half-closed: PRIORITY",
            [send(get(1)), send(frame::priority(1, 0, 7)), send(frame::window_update(1, 100))],
            answered(1),
        )),
        held(case(
            "5.1",
            "half-closed: RST_STREAM",
            [send(get(1)), send(frame::reset(1, CANCEL)), send(get(3)), send(frame::window_update(3, 100))],
            answered(3),
        )),
    ]
}

fn closed() -> Vec<Case> {
    let after_reset = |step| [send(post(1)), send(frame::reset(1, CANCEL)), step];
    let after_end = |step| [send(get(1)), until_answered(), step];
    vec![
        // Whoever has received RST_STREAM may discard what was on its way (5.1, "closed").
        case(
            "5.1",
            "closed by RST_STREAM: DATA",
            after_reset(send(frame::data(1, true, b"a"))),
            stream(1, &[STREAM_CLOSED]).or_alive(),
        ),
        case(
            "5.1",
            "closed by RST_STREAM: HEADERS",
            after_reset(send(get(1))),
            stream(1, &[STREAM_CLOSED, PROTOCOL_ERROR]),
        ),
        case(
            "5.1",
            "closed by RST_STREAM: CONTINUATION",
            after_reset(continuation(1, frame::END_HEADERS)),
            connection(&[PROTOCOL_ERROR, STREAM_CLOSED]),
        ),
        case(
            "5.1",
            "closed by RST_STREAM: another",
            after_reset(send(frame::reset(1, CANCEL))),
            alive().or_connection(&[STREAM_CLOSED]),
        ),
        case("5.1", "closed: DATA", after_end(send(frame::data(1, true, b"a"))), stream(1, &[STREAM_CLOSED])),
        case("5.1", "closed: HEADERS", after_end(send(get(1))), stream(1, &[STREAM_CLOSED, PROTOCOL_ERROR])),
        case(
            "5.1",
            "closed: CONTINUATION",
            after_end(continuation(1, frame::END_HEADERS)),
            connection(&[PROTOCOL_ERROR, STREAM_CLOSED]),
        ),
        case("5.1", "closed: PRIORITY", after_end(send(frame::priority(1, 0, 7))), alive()),
        case(
            "5.1",
            "closed: WINDOW_UPDATE",
            after_end(send(frame::window_update(1, 7))),
            alive().or_connection(&[STREAM_CLOSED]),
        ),
        case(
            "5.1",
            "closed: RST_STREAM",
            after_end(send(frame::reset(1, NO_ERROR))),
            alive().or_connection(&[STREAM_CLOSED]),
        ),
    ]
}

fn identifiers() -> Vec<Case> {
    vec![
        case("5.1.1", "an even stream id", [send(get(2))], connection(&[PROTOCOL_ERROR])),
        case(
            "5.1.1",
            "a smaller stream id",
            [send(get(5)), Step::Until(|session| session.stream(5).is_over()), send(get(3))],
            connection(&[PROTOCOL_ERROR, STREAM_CLOSED]),
        ),
        case("5.1.1", "stream ids may leave gaps", [send(get(7))], answered(7)),
        case("5.1.1", "HEADERS on stream 0", [send(get(0))], connection(&[PROTOCOL_ERROR])),
    ]
}

/// RFC 9113 5.3.2 has deprecated priorities: what is in them may be ignored, and what RFC 7540 asked for is as good.
fn priority() -> Vec<Case> {
    let block = hpack::block(&request("GET", "/"));
    let with_priority = |depends_on: u32| {
        let payload = [&depends_on.to_be_bytes()[..], &[15], &block].concat();
        send(frame(frame::HEADERS, frame::END_STREAM | frame::END_HEADERS | frame::WITH_PRIORITY, 1, payload))
    };
    vec![
        case("5.3", "HEADERS with priority", [with_priority(0)], answered(1)),
        case("5.3", "HEADERS with exclusive priority", [with_priority(1 << 31)], answered(1)),
        case(
            "5.3",
            "HEADERS that depend on their own stream",
            [with_priority(1)],
            stream(1, &[PROTOCOL_ERROR]).or_answered(),
        ),
        case(
            "5.3",
            "PRIORITY that depends on its own stream",
            [send(post(1)), send(frame::priority(1, 1, 7))],
            stream(1, &[PROTOCOL_ERROR]).or_alive(),
        ),
        case("6.3", "PRIORITY on stream 0", [send(frame::priority(0, 0, 7))], connection(&[PROTOCOL_ERROR])),
        case(
            "6.3",
            "PRIORITY of 4 bytes",
            [send(post(1)), send(frame(frame::PRIORITY, 0, 1, [0; 4]))],
            stream(1, &[FRAME_SIZE_ERROR]),
        ),
    ]
}

fn frames() -> Vec<Case> {
    let block = hpack::block(&request("GET", "/"));
    let whole = frame::END_STREAM | frame::END_HEADERS;
    let padded = |padding: u8, rest: usize| [&[padding], &block[..], &vec![0; rest]].concat();
    vec![
        case(
            "6.1",
            "several DATA frames",
            [send(post(1)), send(frame::data(1, false, b"a")), send(frame::data(1, true, b"b"))],
            answered(1),
        ),
        case(
            "6.1",
            "DATA with padding",
            [send(post(1)), send(frame(frame::DATA, frame::END_STREAM | frame::PADDED, 1, b"\x03abc\0\0\0"))],
            answered(1),
        ),
        case("6.1", "DATA on stream 0", [send(frame::data(0, true, b"a"))], connection(&[PROTOCOL_ERROR])),
        case(
            "6.1",
            "DATA with padding as long as its payload",
            [send(post(1)), send(frame(frame::DATA, frame::END_STREAM | frame::PADDED, 1, b"\x06abcde"))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.1",
            "DATA without room for the length of its padding",
            [send(post(1)), send(frame(frame::DATA, frame::END_STREAM | frame::PADDED, 1, b""))],
            connection(&[FRAME_SIZE_ERROR, PROTOCOL_ERROR]),
        ),
        case(
            "6.2",
            "HEADERS with padding",
            [send(frame(frame::HEADERS, whole | frame::PADDED, 1, padded(8, 8)))],
            answered(1),
        ),
        case(
            "6.2",
            "HEADERS with padding as long as its payload",
            [send(frame(frame::HEADERS, whole | frame::PADDED, 1, padded(u8::try_from(block.len() + 1).unwrap(), 0)))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case("6.4", "RST_STREAM on stream 0", [send(frame::reset(0, CANCEL))], connection(&[PROTOCOL_ERROR])),
        case(
            "6.4",
            "RST_STREAM of 3 bytes",
            [send(post(1)), send(frame(frame::RST_STREAM, 0, 1, [0; 3]))],
            connection(&[FRAME_SIZE_ERROR]),
        ),
        case(
            "6.4",
            "RST_STREAM of an open stream",
            [send(post(1)), send(frame::reset(1, CANCEL)), send(get(3))],
            answered(3),
        ),
        case(
            "6.10",
            "one CONTINUATION",
            [send(frame(frame::HEADERS, frame::END_STREAM, 1, &block)), continuation(1, frame::END_HEADERS)],
            answered(1),
        ),
        case(
            "6.10",
            "three CONTINUATIONs",
            [
                send(frame(frame::HEADERS, frame::END_STREAM, 1, &block)),
                continuation(1, 0),
                continuation(1, 0),
                continuation(1, frame::END_HEADERS),
            ],
            answered(1),
        ),
        case(
            "6.10",
            "a block that is cut anywhere",
            [send(
                [
                    frame(frame::HEADERS, frame::END_STREAM, 1, &block[..1]),
                    frame(frame::CONTINUATION, 0, 1, &block[1..9]),
                    frame(frame::CONTINUATION, frame::END_HEADERS, 1, &block[9..]),
                ]
                .concat(),
            )],
            answered(1),
        ),
        case(
            "6.10",
            "CONTINUATION, then another frame",
            [
                send(frame(frame::HEADERS, frame::END_STREAM, 1, &block)),
                continuation(1, 0),
                send(frame::data(1, true, b"a")),
            ],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.10",
            "CONTINUATION on stream 0",
            [send(frame(frame::HEADERS, frame::END_STREAM, 1, &block)), continuation(0, frame::END_HEADERS)],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.10",
            "CONTINUATION of another stream",
            [send(frame(frame::HEADERS, frame::END_STREAM, 1, &block)), continuation(3, frame::END_HEADERS)],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.10",
            "CONTINUATION after the end of a block",
            [send(post(1)), continuation(1, frame::END_HEADERS)],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.10",
            "CONTINUATION after the end of a continued block",
            [
                send(frame(frame::HEADERS, 0, 1, &block)),
                continuation(1, frame::END_HEADERS),
                continuation(1, frame::END_HEADERS),
            ],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.10",
            "CONTINUATION after DATA",
            [send(post(1)), send(frame::data(1, false, b"a")), continuation(1, frame::END_HEADERS)],
            connection(&[PROTOCOL_ERROR]),
        ),
    ]
}

fn windows() -> Vec<Case> {
    let most = (1 << 31) - 1;
    vec![
        case(
            "6.9",
            "WINDOW_UPDATE of 0 on the connection",
            [send(frame::window_update(0, 0))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.9",
            "WINDOW_UPDATE of 0 on a stream",
            [send(post(1)), send(frame::window_update(1, 0))],
            stream(1, &[PROTOCOL_ERROR]),
        ),
        case(
            "6.9",
            "WINDOW_UPDATE of 3 bytes",
            [send(frame(frame::WINDOW_UPDATE, 0, 0, [0; 3]))],
            connection(&[FRAME_SIZE_ERROR]),
        ),
        case(
            "6.9.1",
            "a connection window above 2^31-1",
            [send(frame::window_update(0, most)), send(frame::window_update(0, most))],
            connection(&[FLOW_CONTROL_ERROR]),
        ),
        case(
            "6.9.1",
            "a stream window above 2^31-1",
            [send(post(1)), send(frame::window_update(1, most)), send(frame::window_update(1, most))],
            stream(1, &[FLOW_CONTROL_ERROR]),
        ),
        case(
            "6.9.2",
            "settings that raise a window above 2^31-1",
            [
                send(post(1)),
                send(frame::window_update(1, most - 65_535)),
                send(frame::settings(&[(setting::INITIAL_WINDOW_SIZE, most)])),
            ],
            connection(&[FLOW_CONTROL_ERROR]),
        ),
    ]
}

/// Waits for `wanted` bytes of DATA on stream 1, and holds that no more come.
fn exactly(session: &mut plimsoll_tests::h2::Session, wanted: usize) -> Result<(), String> {
    session.wait(|session| session.stream(1).data.len() >= wanted || session.stream(1).is_over());
    let alive = session.is_alive();
    let length = session.stream(1).data.len();
    if alive && length == wanted { Ok(()) } else { Err(format!("{length} bytes of DATA instead of {wanted}")) }
}

fn window_sizes() -> Vec<Case> {
    let one_byte = [(setting::INITIAL_WINDOW_SIZE, 1)];
    vec![
        case("6.9.1", "a window of 1: one byte of DATA", [send(get(1))], check(|session| exactly(session, 1)))
            .settings(&one_byte),
        case(
            "6.9.1",
            "a window of 1 that grows by 2",
            [send(get(1)), send(frame::window_update(1, 2))],
            check(|session| exactly(session, 3)),
        )
        .settings(&one_byte),
        case(
            "6.9.2",
            "settings raise the window of a stream that waits",
            [send(get(1)), Step::Until(|session| !session.stream(1).blocks.is_empty())],
            check(|session| {
                exactly(session, 0)?;
                session.send(frame::settings(&[(setting::INITIAL_WINDOW_SIZE, 1)]));
                exactly(session, 1)
            }),
        )
        .settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]),
        case(
            "6.9.2",
            "settings make a window negative",
            [send(get(1))],
            check(|session| {
                exactly(session, 3)?;
                session.send(frame::settings(&[(setting::INITIAL_WINDOW_SIZE, 2)]));
                // 3 of 2 are spent: the first of these two bytes pays that back.
                session.send(frame::window_update(1, 2));
                exactly(session, 4)
            }),
        )
        .settings(&[(setting::INITIAL_WINDOW_SIZE, 3)]),
        case(
            "6.9",
            "HEADERS need no window",
            [
                send(frame::headers(1, true, block_with(&[]))),
                Step::Until(|session| !session.stream(1).blocks.is_empty()),
            ],
            alive(),
        )
        .settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]),
    ]
}

/// It opens hundreds of calls, which all go on: the last of all rows.
pub fn concurrency() -> Case {
    case(
        "5.1.2",
        "more streams than SETTINGS_MAX_CONCURRENT_STREAMS",
        [Step::Until(|session| session.acknowledged > 0)],
        check(|session| {
            let most = *session.settings.get(&setting::MAX_CONCURRENT_STREAMS).ok_or("it announces no limit")?;
            let streams: Vec<u8> = (0..=most).flat_map(|nth| post(2 * nth + 1)).collect();
            session.send(streams);
            let last = 2 * most + 1;
            session.wait(|session| session.stream(last).is_over() || !session.goaways.is_empty());
            match (session.stream(last).reset, session.goaways.first()) {
                (Some(REFUSED_STREAM | PROTOCOL_ERROR), _) | (_, Some((_, PROTOCOL_ERROR | REFUSED_STREAM))) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        }),
    )
}
