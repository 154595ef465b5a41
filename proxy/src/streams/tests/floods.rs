//! Peers that cost more than they move: each is stopped, and nobody else notices.

use std::cell::Cell;

use super::frames::*;
use super::*;

/// A server whose calls are answered at once, and how many there were.
async fn server() -> (TcpStream, Rc<Cell<u32>>, tokio::task::JoinHandle<Option<ConnectionError>>) {
    let (near, far) = pair().await;
    let calls = Rc::new(Cell::new(0));
    let begun = Rc::clone(&calls);
    let serve = tokio::task::spawn_local(async move {
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        loop {
            match poll_fn(|cx| connection.poll_next(cx)).await {
                Some(Ok(mut incoming)) => {
                    begun.set(begun.get() + 1);
                    tokio::task::spawn_local(async move {
                        let body = all(&mut incoming.body).await;
                        if body.is_ok() {
                            let _ = incoming.answer.send(Response::new(()), true);
                        }
                    });
                }
                ended => {
                    // As `serve/h2` does, so that the last words arrive.
                    let mut stream = connection.into_stream().unwrap();
                    let mut buf = BytesMut::with_capacity(65536);
                    while tokio::io::AsyncReadExt::read_buf(&mut stream, &mut buf).await.is_ok_and(|len| len > 0) {
                        buf.clear();
                    }
                    return ended.and_then(Result::err);
                }
            }
        }
    });
    (near, calls, serve)
}

/// Sends `frames(n)` for n from 0 on until the server ends the connection, and says how many that took and why.
async fn flood(frames: impl Fn(u32) -> Vec<Frame> + 'static) -> (u32, Option<u32>, Option<ConnectionError>, u32) {
    let (near, calls, serve) = server().await;
    let mut raw = Raw::caller(near).await;
    // What the flood is about was begun before it.
    raw.send(&[post(1, &[])]).await;
    let sent = Rc::new(Cell::new(0));
    let (mut reads, mut writes) = raw.stream.into_split();
    let counted = Rc::clone(&sent);
    let writer = tokio::task::spawn_local(async move {
        loop {
            let mut bytes = Vec::new();
            frames(counted.get()).iter().for_each(|frame| frame.put(&mut bytes));
            if tokio::io::AsyncWriteExt::write_all(&mut writes, &bytes).await.is_err() {
                return;
            }
            counted.set(counted.get() + 1);
            tokio::task::yield_now().await;
        }
    });
    let mut code = None;
    let mut buf = BytesMut::new();
    while tokio::io::AsyncReadExt::read_buf(&mut reads, &mut buf).await.is_ok_and(|len| len > 0) {
        while buf.len() >= 9 {
            let len = u32::from_be_bytes([0, buf[0], buf[1], buf[2]]) as usize;
            if buf.len() < 9 + len {
                break;
            }
            let frame = buf.split_to(9 + len);
            if frame[3] == GOAWAY {
                code = Some(u32::from_be_bytes(frame[13..17].try_into().unwrap()));
            }
        }
    }
    writer.abort();
    drop(reads);
    drop(writer.await);
    (sent.get(), code, serve.await.unwrap(), calls.get())
}

const CALM: Option<u32> = Some(Code::ENHANCE_YOUR_CALM.0);

#[test]
fn frames_that_carry_nothing_are_a_flood() {
    type Kind = (&'static str, fn(u32) -> Frame);
    let kinds: [Kind; 8] = [
        ("PING", |_| Frame::new(PING, 0, 0, [7; 8])),
        ("PING answers", |_| Frame::new(PING, ACK, 0, [7; 8])),
        ("SETTINGS", |_| Frame::new(SETTINGS, 0, 0, [])),
        ("PRIORITY", |n| Frame::new(PRIORITY, 0, 2 * n + 3, [0, 0, 0, 0, 16])),
        ("WINDOW_UPDATE", |_| Frame::new(WINDOW_UPDATE, 0, 0, 1u32.to_be_bytes())),
        ("RST_STREAM", |_| reset(1, 8)),
        ("unknown", |_| Frame::new(UNKNOWN, 0, 0, [1])),
        ("empty DATA", |_| Frame::new(DATA, 0, 1, [])),
    ];
    for (name, frame) in kinds {
        local(async move {
            let (sent, code, error, _) = flood(move |n| (0..50).map(|at| frame(50 * n + at)).collect()).await;
            assert_eq!(code, CALM, "{name}");
            assert_eq!(error, Some(ConnectionError::Flood("frames that carry nothing")), "{name}");
            assert!(sent >= 10, "{name}: a burst of {} was too many", 50 * sent);
        });
    }
}

/// CVE-2023-44487.
#[test]
fn calls_that_are_reset_at_once_are_a_flood() {
    local(async {
        let (_, code, error, calls) = flood(|n| vec![get(2 * n + 3), reset(2 * n + 3, 8)]).await;
        assert_eq!(code, CALM);
        assert!(matches!(error, Some(ConnectionError::Flood(_))), "{error:?}");
        assert!(calls < 3_000, "{calls}");
    });
}

/// Answered with a reset by ourselves: the peer opens, we close ("MadeYouReset", CVE-2025-8671).
#[test]
fn calls_that_we_have_to_reset_are_a_flood() {
    local(async {
        let broken = |n: u32| {
            let stream = 2 * n + 3;
            vec![post(stream, &[]), Frame::new(WINDOW_UPDATE, 0, stream, 0x7fff_ffff_u32.to_be_bytes())]
        };
        let (_, code, error, calls) = flood(broken).await;
        assert_eq!(code, CALM, "{error:?}");
        assert!(calls < 3_000, "{calls}");
        let (_, code, error, calls) = flood(|n| vec![post(2 * n + 3, &[("connection", "close")])]).await;
        assert_eq!((code, calls), (CALM, 1), "{error:?}");
    });
}

/// CVE-2024-27316.
#[test]
fn a_head_without_an_end_is_a_flood() {
    local(async {
        let (near, ..) = server().await;
        let mut raw = Raw::caller(near).await;
        raw.send(&[Frame { flags: END_STREAM, ..get(1) }]).await;
        let more = Frame::new(CONTINUATION, 0, 1, block(&[("a", "b")]));
        raw.send(&vec![more; 100]).await;
        assert_eq!(raw.end().await, CALM);
    });
}

/// A small table entry, meant again and again (CVE-2016-6581).
#[test]
fn a_bomb_of_compressed_fields_is_not_unpacked() {
    let bomb = |times: usize| {
        // Literal with incremental indexing, then its index: 62.
        let mut payload = vec![0x40, 1, b'a', 127];
        let long = 3_000 - 127;
        payload.extend([(long % 128) as u8 | 128, (long / 128) as u8]);
        payload.extend(vec![b'x'; 3_000]);
        payload.extend(vec![0x80 | 62; times]);
        [get(1).payload, payload].concat()
    };
    local(async move {
        let (near, calls, _) = server().await;
        let mut raw = Raw::caller(near).await;
        raw.send(&[Frame { payload: bomb(60), ..get(1) }]).await;
        let answer = raw.find(HEADERS).await;
        assert_eq!(answer.stream, 1);
        raw.send(&[get(3)]).await;
        assert_eq!(raw.find(HEADERS).await.stream, 3, "the connection goes on");
        assert_eq!(calls.get(), 1, "the crate answers the first itself: 431");
        let (near, ..) = server().await;
        let mut raw = Raw::caller(near).await;
        raw.send(&[Frame { payload: bomb(10_000), ..get(1) }]).await;
        assert_eq!(raw.end().await, CALM);
    });
}

#[test]
fn a_peer_that_does_its_part_is_never_stopped() {
    local(async {
        let (near, calls, _) = server().await;
        let mut raw = Raw::caller(near).await;
        for n in 0..3_000 {
            let stream = 2 * n + 1;
            let data = Frame::new(DATA, END_STREAM, stream, [1; 100]);
            // As many as the worst honest client sends.
            let update = Frame::new(WINDOW_UPDATE, 0, 0, 100u32.to_be_bytes());
            let empty = Frame::new(DATA, 0, stream, []);
            raw.send(&[post(stream, &[]), empty, data, Frame::new(PING, 0, 0, [7; 8]), update]).await;
            assert_eq!(raw.find(HEADERS).await.stream, stream);
        }
        assert_eq!(calls.get(), 3_000);
    });
}

/// As simple clients do: two updates for each frame of data, and all of them late.
#[test]
fn who_acknowledges_what_it_got_is_never_stopped() {
    local(async {
        let (near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let mut raw = Raw::caller(near).await;
        let wide = |stream| Frame::new(WINDOW_UPDATE, 0, stream, 0x7000_0000_u32.to_be_bytes());
        raw.send(&[post(1, &[]), wide(0), wide(1)]).await;
        let mut incoming = poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap();
        let drive = tokio::task::spawn_local(async move { poll_fn(|cx| connection.poll_next(cx)).await });
        let mut out = incoming.answer.send(Response::new(()), false).unwrap();
        tokio::task::spawn_local(async move {
            for _ in 0..1_000 {
                let mut data = Bytes::from(vec![0; 32 * 1024]);
                while !data.is_empty() {
                    let room = poll_fn(|cx| out.poll_room(data.len(), cx)).await.unwrap();
                    out.send(data.split_to(room), false).unwrap();
                }
            }
            out.send(Bytes::new(), true).unwrap();
            drop(incoming);
        });
        let mut due = Vec::new();
        loop {
            let data = raw.find(DATA).await;
            if data.flags & END_STREAM != 0 {
                break;
            }
            let len = (data.payload.len() as u32).to_be_bytes();
            due.extend([Frame::new(WINDOW_UPDATE, 0, 0, len), Frame::new(WINDOW_UPDATE, 0, 1, len)]);
        }
        assert!(due.len() >= 4_000);
        raw.send(&due).await;
        let ping = Frame::new(PING, 0, 0, [7; 8]);
        raw.send(&[ping]).await;
        assert_eq!(raw.find(PING).await.flags, ACK, "it goes on");
        assert!(!drive.is_finished());
        drive.abort();
    });
}

#[test]
fn small_data_to_a_slow_reader_fills_its_window_and_ends_nothing() {
    local(async {
        let (near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let mut raw = Raw::caller(near).await;
        let streams: Vec<u32> = (0..16).map(|n| 2 * n + 1).collect();
        let mut bytes = Vec::new();
        for &stream in &streams {
            post(stream, &[]).put(&mut bytes);
        }
        for _ in 0..settings::CALLER_STREAM / 32 {
            for &stream in &streams {
                Frame::new(DATA, 0, stream, [1; 32]).put(&mut bytes);
            }
        }
        get(101).put(&mut bytes);
        let mut writes = raw.stream;
        let writer = tokio::task::spawn_local(async move {
            tokio::io::AsyncWriteExt::write_all(&mut writes, &bytes).await.unwrap();
            writes
        });
        let mut held = Vec::new();
        while held.len() < 17 {
            held.push(poll_fn(|cx| connection.poll_next(cx)).await.unwrap().unwrap());
        }
        raw = Raw { stream: writer.await.unwrap() };
        held.pop().unwrap().answer.send(Response::new(()), true).unwrap();
        tokio::task::spawn_local(async move {
            let _ = poll_fn(|cx| connection.poll_next(cx)).await;
            drop(held);
        });
        assert_eq!(raw.find(HEADERS).await.stream, 101, "slow calls leave room for others");
    });
}

#[test]
fn streams_above_the_limit_are_refused_one_by_one() {
    local(async {
        let (near, far) = pair().await;
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        tokio::task::spawn_local(async move {
            let mut held = Vec::new();
            while let Some(Ok(incoming)) = poll_fn(|cx| connection.poll_next(cx)).await {
                held.push(incoming);
            }
        });
        let mut raw = Raw::caller(near).await;
        let limit = settings::CONCURRENT_STREAMS;
        for n in 0..=limit {
            raw.send(&[get(2 * n + 1)]).await;
        }
        let refused = raw.find(RST_STREAM).await;
        assert_eq!((refused.stream, refused.code()), (2 * limit + 1, Code::REFUSED_STREAM.0));
    });
}

/// A caller that reads nothing stalls itself: its own frames are not read any further.
#[test]
fn who_does_not_read_is_not_read() {
    local(async {
        let (near, far) = pair().await;
        // So that it is soon seen what is held here and what by the kernel.
        for socket in [&near, &far] {
            let socket = socket2::SockRef::from(socket);
            socket.set_recv_buffer_size(64 * 1024).unwrap();
            socket.set_send_buffer_size(64 * 1024).unwrap();
        }
        let mut connection = Connection::new(far, BytesMut::new(), Clock::start());
        let raw = Raw::caller(near).await;
        let mut response = Response::new(());
        response.headers_mut().insert("x", HeaderValue::from_bytes(&[b'x'; 8192]).unwrap());
        let (mut calls, mut sent, mut quiet) = (0, 0, 0);
        let mut taken = 0;
        let mut bytes = Vec::new();
        while quiet < 1_000 && calls < 100_000 {
            quiet += 1;
            if sent == bytes.len() {
                (sent, calls) = (0, calls + 1);
                bytes.clear();
                get(2 * calls + 1).put(&mut bytes);
                Frame::new(PING, 0, 0, [7; 8]).put(&mut bytes);
            }
            if let Ok(len) = raw.stream.try_write(&bytes[sent..]) {
                sent += len;
                quiet = 0;
            }
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            while let std::task::Poll::Ready(incoming) = connection.poll_next(&mut cx) {
                incoming.unwrap().unwrap().answer.send(response.clone(), true).unwrap();
                taken += 1;
                quiet = 0;
            }
            tokio::task::yield_now().await;
        }
        assert!(taken < 1_000, "{taken} answers are held for a peer that does not want them");
    });
}
