//! hyper as the second opinion: what we accept it reads the same way, and what we send on as well.
//!
//! Two readers of one stream that disagree are how requests are smuggled. So on anything generated, good or spoiled, each
//! message that we find whole has to be found by hyper too, with the same start line, fields, body and trailers, at the
//! same place in the stream. The other way round there is nothing to hold: hyper accepts more than we do.
//!
//! Differences, reviewed:
//! - hyper's `http::Uri` refuses some bytes and forms in targets that we pass (`hyper_takes`); it then answers 400, which
//!   is safe.
//! - An absolute target without a path is shown by hyper with `/` added.
//! - hyper shows all trailers; we leave out those that may not stand there (RFC 9110 6.5.1).
//! - Both of us read heads with httparse, so on these it is a check of what we make of them. The other
//!   opinion on heads is in `against_guardian.rs`.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod generate;
mod invariants;

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
};

use hyper::{
    HeaderMap, Request, Response, Uri,
    body::{Body as _, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use plimsoll_h1::{
    BodyDecoder, BodyEncoder, BodyFraming, Decoded, Fields, Framing, Limits, Method, RequestHead, ResponseHead,
    Rewrite, Upgrade, decode_request, decode_response, encode_response,
};
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

type Lines = Vec<(String, Vec<u8>)>;

/// What a reader made of a message.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    start: String,
    fields: Lines,
    body: Vec<u8>,
    trailers: Lines,
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A stream that holds `bytes` and then ends, while the other direction stays open.
async fn stream_of(bytes: &[u8]) -> (DuplexStream, DuplexStream) {
    let (mut far, near) = duplex(1 << 20);
    far.write_all(bytes).await.unwrap();
    far.shutdown().await.unwrap();
    (far, near)
}

/// The requests that hyper's server finds.
fn hyper_requests(bytes: &[u8]) -> Vec<Message> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    run(async {
        let (_far, near) = stream_of(bytes).await;
        let service = service_fn(|request: Request<Incoming>| {
            let seen = Rc::clone(&seen);
            async move {
                let (head, body) = request.into_parts();
                let (body, trailers) = collect(body).await?;
                let start = format!("{} {}", head.method, head.uri);
                seen.borrow_mut().push(Message { start, fields: lines(&head.headers), body, trailers });
                Ok::<_, hyper::Error>(Response::new(String::new()))
            }
        });
        let mut server = hyper::server::conn::http1::Builder::new();
        let connection = server.half_close(true).max_headers(200).serve_connection(TokioIo::new(near), service);
        // How it ends does not matter: what was found before does.
        drop(connection.with_upgrades().await);
    });
    Rc::into_inner(seen).unwrap().into_inner()
}

/// The answer that hyper's client finds, if any.
fn hyper_response(method: &str, bytes: &[u8]) -> Option<Message> {
    run(async {
        let (near, mut far) = duplex(1 << 20);
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_headers(200)
            .handshake::<_, String>(TokioIo::new(near))
            .await
            .unwrap();
        let request = Request::builder().method(method).uri(if method == "CONNECT" { "a:80" } else { "/" });
        let answer = sender.send_request(request.header("host", "a").body(String::new()).unwrap());
        let mut connection = pin!(connection.with_upgrades());
        let mut exchange = pin!(async {
            let (head, body) = answer.await.ok()?.into_parts();
            let (body, trailers) = collect(body).await.ok()?;
            let start = head.status.as_u16().to_string();
            Some(Message { start, fields: lines(&head.headers), body, trailers })
        });
        // The request goes out before the answer comes in.
        poll_fn(|context| {
            assert!(exchange.as_mut().poll(context).is_pending());
            drop(connection.as_mut().poll(context));
            std::task::Poll::Ready(())
        })
        .await;
        far.write_all(bytes).await.unwrap();
        far.shutdown().await.unwrap();
        tokio::select! {
            biased;
            seen = &mut exchange => seen,
            _ = async { drop(connection.await); std::future::pending::<()>().await } => None,
        }
    })
}

async fn collect(mut body: Incoming) -> Result<(Vec<u8>, Lines), hyper::Error> {
    let (mut data, mut trailers) = (Vec::new(), Lines::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame?.into_data() {
            Ok(bytes) => data.extend_from_slice(&bytes),
            Err(frame) => trailers = lines(&frame.into_trailers().unwrap()),
        }
    }
    Ok((data, trailers))
}

/// Sorted by name, since a `HeaderMap` does not tell the order between names.
fn lines(fields: &HeaderMap) -> Lines {
    sorted(fields.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect())
}

fn sorted(mut lines: Lines) -> Lines {
    lines.sort_by(|(left, _), (right, _)| left.cmp(right));
    lines
}

fn our_lines(fields: &Fields, buf: &[u8]) -> Lines {
    let name = |name: &[u8]| String::from_utf8(name.to_ascii_lowercase()).unwrap();
    sorted(fields.iter().map(|field| (name(field.name.of(buf)), field.value.of(buf).to_vec())).collect())
}

/// The body that `bytes` begins with, if it is whole, and its length.
fn our_body(framing: BodyFraming, bytes: &[u8]) -> Option<(Vec<u8>, Lines, usize)> {
    let mut decoder = BodyDecoder::new(framing, &Limits::default());
    let body = invariants::decode_body(&mut decoder, bytes, usize::MAX).ok()?;
    decoder.close().ok()?;
    let trailers =
        body.trailers.into_iter().map(|(name, value)| (String::from_utf8(name).unwrap().to_lowercase(), value));
    Some((body.data, sorted(trailers.collect()), body.used))
}

/// The requests that we find, each with whether hyper can show its target.
fn our_requests(mut bytes: &[u8]) -> Vec<(Message, bool)> {
    let mut found = Vec::new();
    let mut head = RequestHead::default();
    while let Ok(Decoded::Complete { len }) = decode_request(bytes, &Limits::default(), &mut head) {
        let Some((body, trailers, used)) = our_body(head.framing, &bytes[len..]) else {
            break;
        };
        let target = std::str::from_utf8(head.target.of(bytes)).unwrap();
        let method = std::str::from_utf8(head.method_name.of(bytes)).unwrap();
        let shown = target.parse::<Uri>().map_or_else(|_| target.to_owned(), |uri| uri.to_string());
        let start = format!("{method} {shown}");
        found.push((Message { start, fields: our_lines(&head.fields, bytes), body, trailers }, hyper_takes(target)));
        if !head.keep_alive || head.method == Method::Connect || head.upgrade == Upgrade::WebSocket {
            break;
        }
        bytes = &bytes[len + used..];
    }
    found
}

/// Whether `http::Uri` shows this target as what it is.
fn hyper_takes(target: &str) -> bool {
    target.parse::<Uri>().is_ok_and(|uri| {
        let shown = uri.to_string();
        shown == target
            || uri.path_and_query().is_some_and(|path| shown.eq_ignore_ascii_case(&with_path(target, path.as_str())))
    })
}

/// `target` with the path that hyper adds where an absolute one has none.
fn with_path(target: &str, path: &str) -> String {
    let authority = target.split(['/', '?']).take(3).collect::<Vec<_>>().join("/");
    format!("{authority}{path}")
}

/// How many there were to compare.
fn requests_read_the_same(bytes: &[u8]) -> usize {
    let theirs = hyper_requests(bytes);
    let mut compared = 0;
    for (at, (ours, takes)) in our_requests(bytes).into_iter().enumerate() {
        if !takes {
            break;
        }
        let Some(theirs) = theirs.get(at) else { panic!("hyper does not find {ours:?}\nin {}", bytes.escape_ascii()) };
        compare(theirs, &ours, bytes);
        compared += 1;
    }
    compared
}

fn compare(theirs: &Message, ours: &Message, bytes: &[u8]) {
    assert_eq!(theirs.start, ours.start, "{}", bytes.escape_ascii());
    assert_eq!(theirs.fields, ours.fields, "{}", bytes.escape_ascii());
    assert_eq!(theirs.body, ours.body, "{}", bytes.escape_ascii());
    let missing: Vec<_> = ours.trailers.iter().filter(|line| !theirs.trailers.contains(line)).collect();
    assert!(missing.is_empty(), "{missing:?} {}", bytes.escape_ascii());
}

/// What we would send on is the same stream to hyper.
fn sent_requests_read_the_same(bytes: &[u8]) -> usize {
    let mut head = RequestHead::default();
    let Ok(Decoded::Complete { len }) = decode_request(bytes, &Limits::default(), &mut head) else {
        return 0;
    };
    let mut sent = invariants::sent_request(&head, bytes);
    let mut body = BodyDecoder::verbatim(head.framing, &Limits::default());
    let Ok(raw) = invariants::decode_body(&mut body, &bytes[len..], usize::MAX) else {
        return 0;
    };
    sent.extend(raw.data);
    if let Some(trailers) = body.trailers() {
        trailers.put(&mut sent);
    }
    if raw.ended { requests_read_the_same(&sent) } else { 0 }
}

fn responses_read_the_same(method: (Method, &str), bytes: &[u8]) -> usize {
    let mut head = ResponseHead::default();
    let Ok(Decoded::Complete { len }) = decode_response(bytes, method.0, &Limits::default(), &mut head) else {
        return 0;
    };
    let Some((body, trailers, _)) = our_body(head.framing, &bytes[len..]) else {
        return 0;
    };
    if head.is_interim() {
        return 0;
    }
    let ours = Message { start: head.status.to_string(), fields: our_lines(&head.fields, bytes), body, trailers };
    let Some(theirs) = hyper_response(method.1, bytes) else {
        panic!("hyper does not find {ours:?}\nin {}", bytes.escape_ascii())
    };
    compare(&theirs, &ours, bytes);
    1
}

/// What we would send on to an HTTP/1.1 client is the same answer to hyper.
fn sent_responses_read_the_same(method: (Method, &str), bytes: &[u8]) -> usize {
    let mut head = ResponseHead::default();
    let Ok(Decoded::Complete { len }) = decode_response(bytes, method.0, &Limits::default(), &mut head) else {
        return 0;
    };
    let Some((data, trailers, _)) = our_body(head.framing, &bytes[len..]) else { return 0 };
    let until_close = head.framing == BodyFraming::UntilClose;
    let framing = if until_close { Framing::Replaced(BodyFraming::Chunked) } else { Framing::Unchanged };
    let mut sent = Vec::new();
    encode_response(&head, bytes, &Rewrite { framing, ..Rewrite::default() }, &mut sent);
    let sent_head = sent.len();
    if until_close {
        let mut body = BodyEncoder::new(BodyFraming::Chunked);
        data.chunks(7).for_each(|piece| body.put(piece, &mut sent).unwrap());
        body.finish(None, &mut sent).unwrap();
    } else {
        let mut body = BodyDecoder::verbatim(head.framing, &Limits::default());
        sent.extend(invariants::decode_body(&mut body, &bytes[len..], usize::MAX).unwrap().data);
        if let Some(trailers) = body.trailers() {
            trailers.put(&mut sent);
        }
    }
    decode_response(&sent, method.0, &Limits::default(), &mut head).unwrap();
    let read_back = our_body(head.framing, &sent[sent_head..]).unwrap();
    assert_eq!(read_back, (data, trailers, sent.len() - sent_head), "{}", bytes.escape_ascii());
    responses_read_the_same(method, &sent)
}

/// Runs `compared`, which says how many messages it compared, on what `strategy` makes.
fn for_all<S: Strategy>(strategy: S, compared: impl Fn(S::Value) -> usize) {
    let config = ProptestConfig::default();
    let config = ProptestConfig { cases: config.cases * 16, failure_persistence: None, ..config };
    let (cases, count) = (config.cases as usize, Cell::new(0));
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        count.set(count.get() + compared(value));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(count.get() > cases / 10, "{} of {cases} cases had something to compare", count.get());
}

#[test]
fn requests() {
    let stream = prop::collection::vec(generate::spoiled(generate::request()), 1..4);
    for_all(stream, |requests| requests_read_the_same(&requests.concat()));
}

#[test]
fn requests_that_we_send() {
    for_all(generate::spoiled(generate::request()), |bytes| sent_requests_read_the_same(&bytes));
}

fn methods() -> impl Strategy<Value = (Method, &'static str)> {
    prop::sample::select(vec![(Method::Get, "GET"), (Method::Head, "HEAD"), (Method::Connect, "CONNECT")])
}

#[test]
fn responses() {
    let answers = (generate::spoiled(generate::response()), methods());
    for_all(answers, |(bytes, method)| responses_read_the_same(method, &bytes));
}

#[test]
fn responses_that_we_send() {
    let answers = (generate::spoiled(generate::response()), methods());
    for_all(answers, |(bytes, method)| sent_responses_read_the_same(method, &bytes));
}

/// The harness finds what is there: without this, a hyper that never answers would agree with everything.
#[test]
fn the_second_opinion_speaks() {
    let requests =
        hyper_requests(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!(requests.iter().map(|request| request.start.as_str()).collect::<Vec<_>>(), ["POST /a", "GET /b"]);
    assert_eq!(requests[0].body, b"hi");
    let response =
        hyper_response("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n")
            .unwrap();
    assert_eq!((response.body, response.trailers), (b"hi".to_vec(), vec![("a".to_owned(), b"b".to_vec())]));
}
