//! How streams and connections end, and what each end means.

use std::time::Duration;

use super::frames::*;
use super::*;

/// A client of ours, and its peer.
async fn called() -> (Handle, Raw) {
    let (near, far) = pair().await;
    let clock = Clock::start();
    let timers = Timers::new(clock);
    tokio::task::spawn_local(Rc::clone(&timers).drive());
    let (handle, driver) = Handle::connect(near, clock, timers.alarm()).await.unwrap();
    tokio::task::spawn_local(driver);
    (handle, Raw::endpoint(far).await)
}

fn answer(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Frame {
    Frame::new(HEADERS, END_HEADERS | flags, stream, block(fields))
}

fn go_away(last: u32, code: u32) -> Frame {
    Frame::new(GOAWAY, 0, 0, [last.to_be_bytes(), code.to_be_bytes()].concat())
}

async fn head(awaited: &mut client::Awaited) -> Result<(u16, Inflow), StreamError> {
    let (parts, body) = poll_fn(|cx| awaited.poll_head(cx)).await?;
    Ok((parts.status.as_u16(), body))
}

/// How a call of ours ends, when the peer says `frames`.
async fn ending(frames: &[Frame], closes: bool) -> Result<(u16, Vec<u8>), StreamError> {
    let (mut handle, mut raw) = called().await;
    let (mut awaited, _out) = handle.open(to("/"), false).unwrap();
    raw.find(HEADERS).await;
    raw.send(frames).await;
    if closes {
        drop(raw);
    }
    let (status, mut body) = head(&mut awaited).await?;
    Ok((status, all(&mut body).await?))
}

/// Its name, what the peer says, whether it closes then, and what that means.
type Case = (&'static str, Vec<Frame>, bool, Result<&'static str, StreamError>);

#[test]
fn each_end_of_a_call_has_its_meaning() {
    let ok = [(":status", "200")];
    let data = |flags| Frame::new(DATA, flags, 1, *b"hello");
    let update = |stream| Frame::new(WINDOW_UPDATE, 0, stream, 0x7fff_ffff_u32.to_be_bytes());
    let cases: Vec<Case> = vec![
        ("refused", vec![reset(1, 7)], false, Err(StreamError::NotProcessed)),
        ("cancelled", vec![reset(1, 8)], false, Err(StreamError::Reset(Code::CANCEL))),
        ("HTTP/1.1 wanted", vec![reset(1, 13)], false, Err(StreamError::Reset(Code::HTTP_1_1_REQUIRED))),
        ("above the last id", vec![go_away(0, 0)], false, Err(StreamError::NotProcessed)),
        ("above the last id, with a fault", vec![go_away(0, 2)], true, Err(StreamError::NotProcessed)),
        ("below it", vec![go_away(1, 11)], true, Err(StreamError::GoneAway(Code::ENHANCE_YOUR_CALM))),
        ("below it, and answered", vec![go_away(1, 0), answer(1, 0, &ok), data(END_STREAM)], true, Ok("hello")),
        ("closed", vec![], true, Err(StreamError::Lost(io::ErrorKind::BrokenPipe))),
        (
            "closed in the middle",
            vec![answer(1, 0, &ok), data(0)],
            true,
            Err(StreamError::Lost(io::ErrorKind::BrokenPipe)),
        ),
        ("early, whole", vec![answer(1, 0, &ok), data(END_STREAM), reset(1, 0)], false, Ok("hello")),
        ("early, cut", vec![answer(1, 0, &ok), data(0), reset(1, 0)], false, Err(StreamError::Reset(Code::NO_ERROR))),
        ("no status", vec![answer(1, 0, &[])], false, Err(StreamError::Protocol)),
        (
            "a field of a connection",
            vec![answer(1, 0, &[(":status", "200"), ("connection", "close")])],
            false,
            Err(StreamError::Protocol),
        ),
        (
            "too long",
            vec![answer(1, 0, &[(":status", "200"), ("content-length", "4")]), data(END_STREAM)],
            false,
            Err(StreamError::Protocol),
        ),
        (
            "too short",
            vec![answer(1, 0, &[(":status", "200"), ("content-length", "6")]), data(END_STREAM)],
            false,
            Err(StreamError::Protocol),
        ),
        (
            "as long as said",
            vec![answer(1, 0, &[(":status", "200"), ("content-length", "5")]), data(END_STREAM)],
            false,
            Ok("hello"),
        ),
        ("no content", vec![answer(1, END_STREAM, &[(":status", "204")])], false, Ok("")),
        ("not modified", vec![answer(1, END_STREAM, &[(":status", "304"), ("content-length", "5")])], false, Ok("")),
        ("a window that overflows", vec![update(1), update(1)], false, Err(StreamError::Protocol)),
        ("101", vec![answer(1, END_STREAM, &[(":status", "101")])], false, Err(StreamError::Protocol)),
        ("not HTTP/2", vec![Frame::new(DATA, 0, 0, *b"x")], false, Err(StreamError::Protocol)),
    ];
    for (name, frames, closes, expected) in cases {
        local(async move {
            let got = ending(&frames, closes).await.map(|(_, body)| String::from_utf8(body).unwrap());
            assert_eq!(got.as_deref(), expected.as_ref().map(|body| *body), "{name}");
        });
    }
}

#[test]
fn what_is_said_in_between_is_heard_and_101_is_not() {
    local(async {
        let (mut handle, mut raw) = called().await;
        let (mut awaited, _out) = handle.open(to("/"), false).unwrap();
        raw.find(HEADERS).await;
        let interim = |status| answer(1, 0, &[(":status", status)]);
        raw.send(&[interim("100"), interim("101"), interim("103"), answer(1, END_STREAM, &[(":status", "200")])]).await;
        let mut heard = Vec::new();
        while let Some((status, _)) = poll_fn(|cx| awaited.poll_interim(cx)).await {
            heard.push(status);
        }
        assert_eq!(heard, [100, 103]);
        assert_eq!(head(&mut awaited).await.unwrap().0, 200);
    });
}

#[test]
fn a_call_that_is_given_up_is_cancelled() {
    local(async {
        let (mut handle, mut raw) = called().await;
        let (awaited, out) = handle.open(to("/"), false).unwrap();
        raw.find(HEADERS).await;
        drop((awaited, out));
        let given_up = raw.find(RST_STREAM).await;
        assert_eq!((given_up.stream, given_up.code()), (1, Code::CANCEL.0));
        assert_eq!(handle.streams(), 0);
        let (_awaited, mut out) = handle.open(to("/"), false).unwrap();
        raw.find(HEADERS).await;
        out.reset(Code::INTERNAL_ERROR);
        assert_eq!(raw.find(RST_STREAM).await.code(), Code::INTERNAL_ERROR.0);
        raw.send(&[reset(5, 8)]).await;
    });
}

#[test]
fn a_connection_says_whether_it_takes_another_call() {
    local(async {
        let (mut handle, mut raw) = called().await;
        assert!(!handle.is_settled() && handle.has_room());
        let limit = [&[0, 3][..], &2u32.to_be_bytes()].concat();
        raw.send(&[Frame::new(SETTINGS, 0, 0, limit)]).await;
        let first = handle.open(to("/"), true).unwrap();
        raw.find(HEADERS).await;
        raw.find(SETTINGS).await;
        raw.send(&[answer(1, END_STREAM, &[(":status", "200")])]).await;
        let (mut awaited, _out) = first;
        head(&mut awaited).await.unwrap();
        assert!(handle.is_settled() && handle.has_room());
        let second = handle.open(to("/"), true).unwrap();
        assert!(!handle.has_room() && !handle.is_closed());
        assert!(matches!(handle.open(to("/"), true), Err(StreamError::NotProcessed)));
        drop(second);
        assert!(handle.has_room());
        raw.send(&[go_away(3, 0)]).await;
        drop(awaited);
        let (mut awaited, _out) = match handle.open(to("/"), true) {
            Ok(open) => open,
            Err(error) => panic!("{error}"),
        };
        assert!(matches!(head(&mut awaited).await, Err(StreamError::NotProcessed)));
        assert!(handle.is_closed() && !handle.has_room());
    });
}

#[test]
fn who_is_asked_to_leave_loses_nothing() {
    local(async {
        let (near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let mut raw = Raw::caller(near).await;
        raw.send(&[get(1)]).await;
        let mut first = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
        connection.drain();
        let serve = tokio::task::spawn_local(async move {
            let mut late = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
            late.answer.send(Response::new(()), true).unwrap();
            drop(late);
            poll_fn(|cx| connection.poll_next(cx)).await.is_none()
        });
        let asked = raw.find(GOAWAY).await;
        assert_eq!((asked.payload[..4].to_vec(), asked.code()), (vec![0x7f, 0xff, 0xff, 0xff], 0));
        let ping = raw.find(PING).await;
        // Was on its way before that was read.
        raw.send(&[get(3), Frame { flags: ACK, ..ping }]).await;
        let told = raw.find(GOAWAY).await;
        assert_eq!((told.payload[..4].to_vec(), told.code()), (vec![0, 0, 0, 3], 0));
        first.answer.send(Response::new(()), true).unwrap();
        drop(first);
        raw.end().await;
        assert!(serve.await.unwrap(), "it ends in order");
    });
}

#[test]
fn an_answer_before_the_end_of_the_request_is_whole_and_the_rest_unwanted() {
    local(async {
        let (near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let mut raw = Raw::caller(near).await;
        raw.send(&[post(1, &[])]).await;
        let mut incoming = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
        let mut out = incoming.answer.send(Response::new(()), false).unwrap();
        out.send(Bytes::from_static(b"no"), true).unwrap();
        drop((incoming, out));
        tokio::task::spawn_local(async move { drop(poll_fn(|cx| connection.poll_next(cx)).await) });
        let data = raw.find(DATA).await;
        assert_eq!((&data.payload[..], data.flags), (&b"no"[..], END_STREAM));
        assert_eq!(raw.find(RST_STREAM).await.code(), Code::NO_ERROR.0);
    });
}

#[test]
fn an_endpoint_that_says_nothing_is_asked_and_given_up() {
    local(async {
        let (near, far) = pair().await;
        let clock = Clock::start();
        let peer = peer::Peer::new(peer::Role::Endpoint, clock);
        let io = watch::Watched::new(near, BytesMut::new(), Rc::clone(&peer));
        let (mut streams, mut connection) = settings::client().handshake::<_, Bytes>(io).await.unwrap();
        let mut raw = Raw::endpoint(far).await;
        let at = |seconds| clock.now() + Duration::from_secs(seconds);
        let mut silence = client::Silence::new(&mut connection, &peer, at(0));
        let driver = tokio::task::spawn_local(connection);
        while !peer.is_settled() {
            tokio::task::yield_now().await;
        }
        let waker = std::task::Waker::noop();
        let cx = &mut std::task::Context::from_waker(waker);
        assert!(matches!(silence.poll(&peer, at(100), cx), client::Watch::Wait(None)), "nobody waits for anything");
        let _call = streams.send_request(to("/"), false).unwrap();
        let _known = peer::Stream::begin(&peer, 1);
        assert!(matches!(silence.poll(&peer, at(1_000), cx), client::Watch::Wait(Some(_))));
        assert!(matches!(silence.poll(&peer, at(1_029), cx), client::Watch::Wait(Some(_))));
        assert!(matches!(silence.poll(&peer, at(1_031), cx), client::Watch::Pinged));
        let ping = raw.find(PING).await;
        assert!(matches!(silence.poll(&peer, at(1_040), cx), client::Watch::Wait(Some(_))));
        raw.send(&[Frame { flags: ACK, ..ping }]).await;
        let heard = poll_fn(|cx| match silence.poll(&peer, at(1_040), cx) {
            client::Watch::Wait(Some(until)) if until > at(1_100) => std::task::Poll::Ready(until),
            _ => std::task::Poll::Pending,
        });
        assert!(heard.await > at(1_320), "a second one within five minutes would be taken for abuse");
        assert!(matches!(silence.poll(&peer, at(1_332), cx), client::Watch::Pinged));
        assert!(matches!(silence.poll(&peer, at(1_341), cx), client::Watch::Wait(Some(_))));
        assert!(matches!(silence.poll(&peer, at(1_343), cx), client::Watch::Dead));
        driver.abort();
    });
}

#[test]
fn a_call_that_is_over_before_it_was_looked_at_is_none() {
    local(async {
        let (near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let mut raw = Raw::caller(near).await;
        let longer = [post(1, &[("content-length", "3")]), Frame::new(DATA, END_STREAM, 1, *b"four")];
        let shorter = [post(3, &[("content-length", "5")]), Frame::new(DATA, END_STREAM, 3, *b"four")];
        let given_up = [get(5), reset(5, 8)];
        raw.send(&[&longer[..], &shorter, &given_up, &[get(7)]].concat()).await;
        let incoming = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
        assert!(incoming.parts.method == "GET", "the only one that is whole");
        tokio::task::spawn_local(async move { drop(poll_fn(|cx| connection.poll_next(cx)).await) });
        for stream in [1, 3] {
            let refused = raw.find(RST_STREAM).await;
            assert_eq!((refused.stream, refused.code()), (stream, Code::PROTOCOL_ERROR.0));
        }
    });
}

#[test]
fn what_was_answered_goes_out_before_the_reset() {
    local(async {
        let (near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let mut raw = Raw::caller(near).await;
        raw.send(&[post(1, &[])]).await;
        let mut incoming = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
        let mut out = incoming.answer.send(Response::new(()), false).unwrap();
        out.send(Bytes::from_static(b"so far"), false).unwrap();
        out.reset(Code::INTERNAL_ERROR);
        assert!(out.send(Bytes::new(), true).is_err(), "it is over");
        drop((incoming, out));
        tokio::task::spawn_local(async move { drop(poll_fn(|cx| connection.poll_next(cx)).await) });
        assert_eq!(raw.find(DATA).await.payload, b"so far");
        assert_eq!(raw.find(RST_STREAM).await.code(), Code::INTERNAL_ERROR.0);
    });
}

#[test]
fn what_a_caller_breaks_has_its_code() {
    let rest =
        |kind, flags, len: usize| vec![Frame::new(kind, flags, u32::from(kind % 4 == 0 && kind > 4), vec![0; len])];
    let window = |value: u32| vec![Frame::new(SETTINGS, 0, 0, [&[0, 4][..], &value.to_be_bytes()].concat())];
    let cases: Vec<(&str, Vec<Frame>, Option<Code>)> = vec![
        ("an answer to settings with a payload", rest(SETTINGS, ACK, 6), Some(Code::FRAME_SIZE_ERROR)),
        ("half a setting", rest(SETTINGS, 0, 3), Some(Code::FRAME_SIZE_ERROR)),
        ("a short PING", rest(PING, 0, 6), Some(Code::FRAME_SIZE_ERROR)),
        ("a short GOAWAY", rest(GOAWAY, 0, 4), Some(Code::FRAME_SIZE_ERROR)),
        ("a short update", rest(WINDOW_UPDATE, 0, 3), Some(Code::FRAME_SIZE_ERROR)),
        ("a short PRIORITY", vec![Frame::new(PRIORITY, 0, 3, [0; 4])], Some(Code::FRAME_SIZE_ERROR)),
        ("a short reset", vec![Frame::new(RST_STREAM, 0, 1, [0; 3])], Some(Code::FRAME_SIZE_ERROR)),
        ("a window too large", window(0x8000_0000), Some(Code::FLOW_CONTROL_ERROR)),
        ("the largest window", window(0x7fff_ffff), None),
        ("DATA after the end", vec![Frame::new(DATA, 0, 1, [0])], Some(Code::STREAM_CLOSED)),
        ("HEADERS after the end", vec![get(1)], Some(Code::STREAM_CLOSED)),
        ("a smaller id", vec![get(5), get(3)], Some(Code::PROTOCOL_ERROR)),
    ];
    for (name, frames, expected) in cases {
        // Whole, and in pieces as small as they come.
        for in_pieces in [false, true] {
            let frames = frames.clone();
            local(async move {
                let (near, far) = pair().await;
                let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
                let mut raw = Raw::caller(near).await;
                raw.send(&[get(1)]).await;
                let held = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
                let serve = tokio::task::spawn_local(async move {
                    let mut held = vec![held];
                    loop {
                        match poll_fn(|cx| connection.poll_next(cx)).await {
                            Some(Ok(incoming)) => held.push(incoming),
                            ended => return ended.and_then(Result::err),
                        }
                    }
                });
                let mut bytes = Vec::new();
                frames.iter().for_each(|frame| frame.put(&mut bytes));
                Frame::new(PING, 0, 0, [7; 8]).put(&mut bytes);
                for piece in bytes.chunks(if in_pieces { 1 } else { bytes.len() }) {
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut raw.stream, piece).await;
                    tokio::task::yield_now().await;
                }
                match expected {
                    Some(code) => {
                        assert_eq!(raw.find(GOAWAY).await.code(), code.0, "{name}");
                        assert_eq!(serve.await.unwrap(), Some(ConnectionError::Protocol(code)), "{name}");
                    }
                    None => assert_eq!(raw.find(PING).await.flags, ACK, "{name}"),
                }
            });
        }
    }
}

#[test]
fn a_preface_without_settings_is_none() {
    local(async {
        let (mut near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        get(1).put(&mut bytes);
        tokio::io::AsyncWriteExt::write_all(&mut near, &bytes).await.unwrap();
        let ended = poll_fn(|cx| connection.poll_next(cx)).await.unwrap();
        assert!(matches!(ended, Err(ConnectionError::Protocol(Code::PROTOCOL_ERROR))));
    });
}
