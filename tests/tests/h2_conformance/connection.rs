//! The connection: preface, frame format and size, settings, ping, goaway, what is unknown (RFC 9113 3 to 5, 6.5 to 6.8).

use plimsoll_tests::h2::frame::{self, code::*, frame, setting};
use plimsoll_tests::h2::{PREFACE, hpack, request};

use crate::case::{Case, alive, answered, block_with, case, check, connection, get, post, send, stream};

pub fn cases() -> Vec<Case> {
    let mut cases = opening();
    cases.extend(framing());
    cases.extend(settings());
    cases.extend(others());
    cases
}

fn opening() -> Vec<Case> {
    vec![
        case("3.4", "the preface, then a request", [send(get(1))], answered(1)),
        case("3.4", "an invalid preface", [], connection(&[PROTOCOL_ERROR]))
            .opening(*b"INVALID CONNECTION PREFACE\r\n\r\n"),
        case("3.4", "a preface not followed by SETTINGS", [send(get(1))], connection(&[PROTOCOL_ERROR]))
            .opening(PREFACE),
        case("3.4", "requests before the server's settings came", [], answered(1))
            .opening([PREFACE, &frame::settings(&[]), &get(1)].concat()),
        case(
            "3.4",
            "the server's first frame is SETTINGS",
            [],
            check(|session| {
                session.wait(|session| session.acknowledged > 0);
                let first = session.first_frame.ok_or("nothing came")?;
                if first == (frame::SETTINGS, 0) { Ok(()) } else { Err(format!("the first frame was {first:?}")) }
            }),
        ),
    ]
}

fn framing() -> Vec<Case> {
    let most = 1 << 14;
    vec![
        case("4.1", "a frame of unknown type", [send(frame(0x16, 0, 0, *b"12345678"))], alive()),
        case("4.1", "a frame with undefined flags", [send(frame(frame::PING, 0xfe & !frame::ACK, 0, *b"12345678"))], {
            check(|session| {
                if session.wait(|session| session.pongs.iter().any(|pong| pong == b"12345678")) {
                    Ok(())
                } else {
                    Err("no answer".to_owned())
                }
            })
        }),
        case("4.1", "a frame with the reserved bit set", [send(frame(frame::PING, 0, 1 << 31, *b"12345678"))], {
            check(|session| {
                if session.wait(|session| session.pongs.iter().any(|pong| pong == b"12345678")) {
                    Ok(())
                } else {
                    Err("no answer".to_owned())
                }
            })
        }),
        case("4.2", "DATA of 2^14 bytes", [send(post(1)), send(frame::data(1, true, vec![b'a'; most]))], answered(1)),
        case(
            "4.2",
            "DATA longer than SETTINGS_MAX_FRAME_SIZE",
            [send(post(1)), send(frame::data(1, true, vec![b'a'; most + 1]))],
            stream(1, &[FRAME_SIZE_ERROR]),
        ),
        case(
            "4.2",
            "HEADERS longer than SETTINGS_MAX_FRAME_SIZE",
            [send(frame::headers(1, true, block_with(&[("x-long", &"a".repeat(most))])))],
            connection(&[FRAME_SIZE_ERROR]),
        ),
        case(
            "4.2",
            "SETTINGS longer than SETTINGS_MAX_FRAME_SIZE",
            [send(frame::settings(&vec![(0xfff0, 1); most / 6 + 1]))],
            connection(&[FRAME_SIZE_ERROR]),
        ),
        case(
            "4.3",
            "a PRIORITY frame inside a header block",
            [send(frame(frame::HEADERS, frame::END_STREAM, 1, block_with(&[]))), send(frame::priority(1, 0, 0))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "4.3",
            "HEADERS of another stream inside a header block",
            [send(frame(frame::HEADERS, frame::END_STREAM, 1, block_with(&[]))), send(get(3))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "4.3",
            "DATA inside a header block",
            [send(frame(frame::HEADERS, 0, 1, block_with(&[]))), send(frame::data(1, true, b"a"))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "5.5",
            "an unknown frame type on a stream",
            [send(post(1)), send(frame(0x42, 0xff, 1, b"abc")), send(frame::data(1, true, b"a"))],
            answered(1),
        ),
        case(
            "5.5",
            "an unknown frame type inside a header block",
            [send(frame(frame::HEADERS, frame::END_STREAM, 1, block_with(&[]))), send(frame(0x16, 0, 0, b"abc"))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case("7", "GOAWAY with an unknown code", [send(frame::goaway(0, 0xff))], alive().or_closed()),
        case("7", "RST_STREAM with an unknown code", [send(post(1)), send(frame::reset(1, 0xff))], alive()),
    ]
}

fn settings() -> Vec<Case> {
    let one = |key, value| send(frame::settings(&[(key, value)]));
    vec![
        case(
            "6.5",
            "SETTINGS with ACK and a payload",
            [send(frame(frame::SETTINGS, frame::ACK, 0, [0; 6]))],
            connection(&[FRAME_SIZE_ERROR]),
        ),
        case(
            "6.5",
            "SETTINGS on a stream",
            [send(frame(frame::SETTINGS, 0, 1, [0, 3, 0, 0, 0, 100]))],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.5",
            "SETTINGS of 3 bytes",
            [send(frame(frame::SETTINGS, 0, 0, [0, 3, 0]))],
            connection(&[FRAME_SIZE_ERROR]),
        ),
        case("6.5.2", "ENABLE_PUSH of 2", [one(setting::ENABLE_PUSH, 2)], connection(&[PROTOCOL_ERROR])),
        case(
            "6.5.2",
            "INITIAL_WINDOW_SIZE above 2^31-1",
            [one(setting::INITIAL_WINDOW_SIZE, 1 << 31)],
            connection(&[FLOW_CONTROL_ERROR]),
        ),
        case(
            "6.5.2",
            "MAX_FRAME_SIZE below 2^14",
            [one(setting::MAX_FRAME_SIZE, (1 << 14) - 1)],
            connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "6.5.2",
            "MAX_FRAME_SIZE above 2^24-1",
            [one(setting::MAX_FRAME_SIZE, 1 << 24)],
            connection(&[PROTOCOL_ERROR]),
        ),
        case("6.5.2", "an unknown setting", [one(0xfff0, 1), send(get(1))], answered(1)),
        case("6.5.2", "HEADER_TABLE_SIZE of 0", [one(setting::HEADER_TABLE_SIZE, 0), send(get(1))], answered(1)),
        case(
            "6.5.3",
            "INITIAL_WINDOW_SIZE twice: the last holds",
            [
                send(frame::settings(&[(setting::INITIAL_WINDOW_SIZE, 100), (setting::INITIAL_WINDOW_SIZE, 1)])),
                send(get(1)),
            ],
            check(|session| {
                session.wait(|session| !session.stream(1).data.is_empty());
                let quiet = session.is_alive();
                let length = session.stream(1).data.len();
                if quiet && length == 1 { Ok(()) } else { Err(format!("{length} bytes of DATA")) }
            }),
        ),
        case(
            "6.5.3",
            "SETTINGS are acknowledged",
            [one(setting::MAX_CONCURRENT_STREAMS, 100)],
            check(|session| {
                // The first acknowledges those of the opening.
                if session.wait(|session| session.acknowledged == 2) { Ok(()) } else { Err("no ACK".to_owned()) }
            }),
        ),
        case("6.5.3", "SETTINGS without values", [one(0xfff0, 0), send(frame::settings(&[]))], alive()),
    ]
}

fn others() -> Vec<Case> {
    vec![
        case(
            "6.7",
            "PING is answered with its payload",
            [send(frame::ping(*b"payload!"))],
            check(|session| {
                if session.wait(|session| session.pongs.iter().any(|pong| pong == b"payload!")) {
                    Ok(())
                } else {
                    Err("no answer".to_owned())
                }
            }),
        ),
        case(
            "6.7",
            "PING with ACK is not answered",
            [send(frame(frame::PING, frame::ACK, 0, *b"noanswer"))],
            check(|session| {
                let alive = session.is_alive();
                let answered = session.pongs.iter().any(|pong| pong == b"noanswer");
                if alive && !answered { Ok(()) } else { Err(format!("alive {alive}, answered {answered}")) }
            }),
        ),
        case("6.7", "PING on a stream", [send(frame(frame::PING, 0, 1, *b"12345678"))], connection(&[PROTOCOL_ERROR])),
        case("6.7", "PING of 6 bytes", [send(frame(frame::PING, 0, 0, *b"123456"))], connection(&[FRAME_SIZE_ERROR])),
        case("6.8", "GOAWAY on a stream", [send(frame(frame::GOAWAY, 0, 1, [0; 8]))], connection(&[PROTOCOL_ERROR])),
        case("6.8", "GOAWAY of 4 bytes", [send(frame(frame::GOAWAY, 0, 0, [0; 4]))], connection(&[FRAME_SIZE_ERROR])),
        case(
            "6.8",
            "GOAWAY, and the request that was begun is answered",
            [send([get(1), frame::goaway(0, NO_ERROR)].concat())],
            check(|session| {
                let over = session.wait(|session| session.stream(1).is_over());
                if over && session.stream(1).ended { Ok(()) } else { Err("no answer".to_owned()) }
            }),
        ),
        case(
            "8.4",
            "PUSH_PROMISE from a client",
            [
                send(get(1)),
                send(frame(
                    frame::PUSH_PROMISE,
                    frame::END_HEADERS,
                    1,
                    [&[0, 0, 0, 2], &hpack::block(&request("GET", "/"))[..]].concat(),
                )),
            ],
            connection(&[PROTOCOL_ERROR]),
        ),
    ]
}
