//! From HTTP/2 to HTTP/1.1, where a name or value becomes part of a text: nothing that a caller writes may become a
//! second request, a second field or another framing. What was forwarded is judged by a parser that is not ours.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use http_desync_guardian::RequestSafetyTier as Tier;
use http_desync_guardian::request_analyzer::HttpRequestData;
use plimsoll_tests::h2::{Session, frame, hpack};
use plimsoll_tests::proxy::{Setup, listened};

/// Bytes as they arrived, for each connection.
type Recorded = Arc<Mutex<Vec<Vec<u8>>>>;

/// An HTTP/1.1 server that writes down every byte, and answers once for each request that it can make out.
fn record() -> (SocketAddr, Recorded) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let recorded = Recorded::default();
    let writes = recorded.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let writes = writes.clone();
            std::thread::spawn(move || serve(stream, &writes));
        }
    });
    (address, recorded)
}

fn serve(mut stream: TcpStream, writes: &Recorded) {
    let nth = {
        let mut recorded = writes.lock().unwrap();
        recorded.push(Vec::new());
        recorded.len() - 1
    };
    let (mut buffer, mut answered) = ([0; 16 * 1024], 0);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let whole = {
            let mut recorded = writes.lock().unwrap();
            recorded[nth].extend_from_slice(&buffer[..count]);
            split(&recorded[nth]).0.len()
        };
        while answered < whole {
            answered += 1;
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

/// The whole requests in `bytes`, and what is left behind them: a reader as lenient as careless servers are. A line
/// ends with a bare LF, too, the last of several lengths counts, chunked wins.
fn split(mut bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut found = Vec::new();
    while let Some(length) = length_of_first(bytes) {
        let (message, rest) = bytes.split_at(length);
        found.push(message.to_vec());
        bytes = rest;
    }
    (found, bytes.to_vec())
}

fn length_of_first(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(2).position(|two| two == b"\n\n").map(|at| at + 2);
    let strict = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    let head = [head, strict].into_iter().flatten().min()?;
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let value = |name: &str| {
        text.lines().filter_map(|line| line.strip_prefix(name)).next_back().map(|value| value.trim().to_owned())
    };
    if value("transfer-encoding:").is_some_and(|value| value.contains("chunked")) {
        return length_of_chunks(&bytes[head..]).map(|chunks| head + chunks);
    }
    let body: usize = value("content-length:").and_then(|value| value.parse().ok()).unwrap_or(0);
    (bytes.len() >= head + body).then_some(head + body)
}

/// Chunks up to and with the empty line behind the last.
fn length_of_chunks(bytes: &[u8]) -> Option<usize> {
    let line = |from: usize| bytes[from..].windows(2).position(|two| two == b"\r\n").map(|at| from + at);
    let mut at = 0;
    loop {
        let end = line(at)?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..end]).ok()?.trim(), 16).ok()?;
        at = end + 2;
        if size == 0 {
            break;
        }
        at += size + 2;
        bytes.get(..at)?;
    }
    // Trailers end with an empty line.
    loop {
        let end = line(at)?;
        let is_last = end == at;
        at = end + 2;
        if is_last {
            return Some(at);
        }
    }
}

struct Case {
    name: &'static str,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Option<&'static [u8]>,
    due: Due,
}

#[derive(Clone, Copy, PartialEq)]
enum Due {
    Refused,
    /// Refused when the body passes its length. What fits may have arrived by then, whole and harmless.
    RefusedLate,
    /// An odd request, and harmless.
    Forwarded,
    /// What goes on is harmless, and it need not go on.
    Either,
}

/// The usual request with one of its pseudo fields changed, and further fields.
fn case(name: &'static str, changed: (&str, &[u8]), more: &[(&[u8], &[u8])], body: Option<&'static [u8]>) -> Case {
    let method: &[u8] = if body.is_some() { b"POST" } else { b"GET" };
    let usual: [(&str, &[u8]); 4] =
        [(":method", method), (":scheme", b"http"), (":path", b"/x"), (":authority", b"test.internal")];
    let value = |name: &str, usual: &[u8]| if name == changed.0 { changed.1.to_vec() } else { usual.to_vec() };
    let mut fields: Vec<_> = usual.iter().map(|(name, usual)| (name.as_bytes().to_vec(), value(name, usual))).collect();
    fields.extend(more.iter().map(|(name, value)| (name.to_vec(), value.to_vec())));
    Case { name, fields, body, due: Due::Refused }
}

fn pseudo(name: &'static str, field: &'static str, value: &[u8]) -> Case {
    case(name, (field, value), &[], None)
}

fn field(name: &'static str, field: &[u8], value: &[u8]) -> Case {
    case(name, ("", b""), &[(field, value)], None)
}

fn posted(name: &'static str, fields: &[(&[u8], &[u8])], body: &'static [u8]) -> Case {
    case(name, ("", b""), fields, Some(body))
}

fn harmless(case: Case) -> Case {
    Case { due: Due::Forwarded, ..case }
}

fn late(case: Case) -> Case {
    Case { due: Due::RefusedLate, ..case }
}

fn either(case: Case) -> Case {
    Case { due: Due::Either, ..case }
}

/// What every smuggled request would ask for; it must never arrive as a request.
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

fn pseudo_fields() -> Vec<Case> {
    vec![
        pseudo("CR LF in the method", ":method", b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"),
        pseudo("space in the method", ":method", b"GET /smuggled"),
        pseudo("NUL in the method", ":method", b"GE\0T"),
        pseudo("an empty method", ":method", b""),
        pseudo("colon in the method", ":method", b"GE:T"),
        pseudo("CR LF in the path", ":path", b"/ HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled"),
        pseudo("LF in the path", ":path", b"/ HTTP/1.1\nHost: a\n\nGET /smuggled"),
        pseudo("space in the path", ":path", b"/x /smuggled"),
        pseudo("a version in the path", ":path", b"/x HTTP/1.0"),
        pseudo("tab in the path", ":path", b"/x\ty"),
        pseudo("NUL in the path", ":path", b"/x\0"),
        // It is no part of a target (RFC 9110 7.1): refused, or left out.
        either(pseudo("fragment in the path", ":path", b"/x#y")),
        pseudo("absolute form in the path", ":path", b"http://other.internal/x"),
        pseudo("authority form in the path", ":path", b"other.internal:80"),
        pseudo("a path without slash", ":path", b"x"),
        pseudo("an asterisk for GET", ":path", b"*"),
        pseudo("CR LF in the authority", ":authority", b"a\r\nx-injected: 1"),
        pseudo("LF in the authority", ":authority", b"a\nx-injected: 1"),
        pseudo("NUL in the authority", ":authority", b"a\0b"),
        pseudo("space in the authority", ":authority", b"a b"),
        pseudo("a path in the authority", ":authority", b"a/b"),
        pseudo("userinfo in the authority", ":authority", b"user@a"),
        pseudo("an empty authority", ":authority", b""),
        pseudo("CR LF in the scheme", ":scheme", b"http\r\nx-injected: 1"),
        pseudo("a URI in the scheme", ":scheme", b"http://a/x?"),
        case("host that differs from the authority", ("", b""), &[(b"host", b"other.internal")], None),
        case("two hosts", ("", b""), &[(b"host", b"test.internal"), (b"host", b"other.internal")], None),
        harmless(case("host that equals the authority", ("", b""), &[(b"host", b"test.internal")], None)),
        case("a pseudo field after a field", ("", b""), &[(b"x-a", b"1"), (b":path", b"/smuggled")], None),
        case("a second path", ("", b""), &[(b":path", b"/smuggled")], None),
        case("an unknown pseudo field", ("", b""), &[(b":host", b"other.internal")], None),
        case("CONNECT", (":method", b"CONNECT"), &[], None),
    ]
}

fn names_and_values() -> Vec<Case> {
    let injected = b"v\r\nx-injected: 1";
    vec![
        field("CR LF in a value", b"x-a", injected),
        field("LF in a value", b"x-a", b"v\nx-injected: 1"),
        field("CR in a value", b"x-a", b"v\rx-injected: 1"),
        field("NUL in a value", b"x-a", b"v\0v"),
        field("a request in a value", b"x-a", &[b"v\r\n\r\n", SMUGGLED].concat()),
        field("CR LF at the end of a value", b"x-a", b"v\r\n"),
        field("space before a value", b"x-a", b" v"),
        field("space behind a value", b"x-a", b"v "),
        field("CR LF in a name", b"x-a: 1\r\nx-injected", b"v"),
        field("LF in a name", b"x-a: 1\nx-injected", b"v"),
        field("a colon in a name", b"x-a:b", b"v"),
        field("a length in a name", b"content-length: 5", b"v"),
        field("a space in a name", b"x a", b"v"),
        field("a space behind a name", b"transfer-encoding ", b"chunked"),
        field("a tab behind a name", b"transfer-encoding\t", b"chunked"),
        field("a NUL in a name", b"x\0a", b"v"),
        field("upper case in a name", b"Transfer-Encoding", b"chunked"),
        field("an empty name", b"", b"v"),
        field("obs-text in a name", b"x-\xe9", b"v"),
        harmless(field("obs-text in a value", b"x-a", b"caf\xe9")),
        field("connection", b"connection", b"content-length"),
        field("connection that closes", b"connection", b"close"),
        field("keep-alive", b"keep-alive", b"timeout=1"),
        field("proxy-connection", b"proxy-connection", b"close"),
        field("te", b"te", b"chunked"),
        field("upgrade", b"upgrade", b"websocket"),
        case(
            "upgrade to h2c",
            ("", b""),
            &[
                (b"connection", b"upgrade, http2-settings"),
                (b"upgrade", b"h2c"),
                (b"http2-settings", b"AAMAAABkAAQAAP__"),
            ],
            None,
        ),
        field("upgrade alone", b"upgrade", b"h2c"),
    ]
}

fn framings() -> Vec<Case> {
    vec![
        posted(
            "transfer-encoding",
            &[(b"transfer-encoding", b"chunked")],
            b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        posted("transfer-encoding in mixed case", &[(b"transfer-encoding", b"Chunked")], b"0\r\n\r\n"),
        posted(
            "transfer-encoding and a length",
            &[(b"content-length", b"5"), (b"transfer-encoding", b"chunked")],
            b"0\r\n\r\n",
        ),
        late(posted(
            "a length of 0 with a request behind it",
            &[(b"content-length", b"0")],
            b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        )),
        late(posted(
            "a length shorter than the body",
            &[(b"content-length", b"3")],
            b"abcGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        )),
        posted("a length longer than the body", &[(b"content-length", b"100")], b"abc"),
        posted("two lengths that differ", &[(b"content-length", b"3"), (b"content-length", b"38")], b"abc"),
        posted("two lengths in one field", &[(b"content-length", b"3, 38")], b"abc"),
        posted("a length with a sign", &[(b"content-length", b"+3")], b"abc"),
        posted("a negative length", &[(b"content-length", b"-3")], b"abc"),
        posted("a length in hex", &[(b"content-length", b"0x3")], b"abc"),
        posted("a length with a space", &[(b"content-length", b"3 8")], b"abc"),
        posted("a length that overflows", &[(b"content-length", b"18446744073709551619")], b"abc"),
        posted("an empty length", &[(b"content-length", b"")], b"abc"),
        posted("a length with CR LF", &[(b"content-length", b"3\r\nx-injected: 1")], b"abc"),
        case("a length without a body", ("", b""), &[(b"content-length", b"38")], None),
        either(posted("two lengths that agree", &[(b"content-length", b"3"), (b"content-length", b"3")], b"abc")),
        harmless(posted("a body that looks like a request", &[], b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")),
        harmless(posted("a body that looks like chunks", &[], b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")),
        harmless(case("a length of 0 for GET", ("", b""), &[(b"content-length", b"0")], None)),
    ]
}

/// Whether it was refused: reset, or answered with 4xx by the proxy.
fn is_refused(session: &mut Session, case: &Case) -> bool {
    let stream = session.next_id();
    let mut bytes = frame::headers(stream, case.body.is_none(), hpack::block(&case.fields));
    if let Some(body) = case.body {
        bytes.extend(frame::data(stream, true, body));
    }
    session.send(bytes);
    session.wait(|session| session.stream(stream).is_over() || !session.goaways.is_empty());
    let found = session.stream(stream);
    match found.answer() {
        Some(answer) => (400..500).contains(&answer.status) || answer.status == 501,
        None => found.reset.is_some() || !session.goaways.is_empty(),
    }
}

fn contains(bytes: &[u8], word: &str) -> bool {
    String::from_utf8_lossy(bytes).to_lowercase().contains(word)
}

/// What is wrong with what has arrived so far, if anything: it must be `expected` plain requests and nothing else.
fn judge(recorded: &Recorded, expected: usize) -> Option<String> {
    let mut found = 0;
    for bytes in recorded.lock().unwrap().iter() {
        let (messages, rest) = split(bytes);
        found += messages.len();
        // What is left is a request that was cut, which harms nobody unless something can follow it.
        if contains(&rest, "smuggled") || contains(&rest, "x-injected") {
            return Some(format!("left over: {}", rest.escape_ascii()));
        }
        for message in messages {
            let verdict = HttpRequestData::analyze_raw_request(&message);
            let head = message.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(message.len());
            // Only as part of a body may it be there.
            let head = &message[..head];
            if verdict.tier > Tier::Acceptable || contains(head, "smuggled") || contains(head, "x-injected") {
                return Some(format!("{:?} {:?}: {}", verdict.tier, verdict.reason, message.escape_ascii()));
            }
        }
    }
    (found != expected).then(|| format!("{found} requests arrived, {expected} were let through"))
}

#[test]
fn nothing_becomes_what_it_was_not() {
    let (address, recorded) = record();
    let mut dependency = listened("old-api", address, "  timeouts: {request: 5s}");
    dependency.policy = dependency.policy.replace("target:", "target:\n    upstreamProtocol: HTTP1");
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let mut session = Session::connect(dependency.listen);
    let (mut let_through, mut wrong) = (0, Vec::new());
    for case in [pseudo_fields(), names_and_values(), framings()].into_iter().flatten() {
        if session.peer.is_closed() || !session.goaways.is_empty() {
            session = Session::connect(dependency.listen);
        }
        let refused = is_refused(&mut session, &case);
        let_through += usize::from(!refused);
        if case.due != Due::Either && refused != matches!(case.due, Due::Refused | Due::RefusedLate) {
            wrong.push(format!("{}: refused {refused}", case.name));
        }
        let_through += usize::from(case.due == Due::RefusedLate && judge(&recorded, let_through + 1).is_none());
        if let Some(problem) = judge(&recorded, let_through) {
            wrong.push(format!("{}: {problem}", case.name));
            // Each is judged by itself.
            recorded.lock().unwrap().iter_mut().for_each(Vec::clear);
            let_through = 0;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(let_through >= 6, "the harmless ones arrived: {let_through}");
    session = Session::connect(dependency.listen);
    assert_eq!(session.get("/").status, 200, "and others are served");
}
