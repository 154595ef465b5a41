//! Messages for the property tests: mostly good, in all their variety, and then spoiled a little.

#![allow(dead_code, reason = "each user takes what it needs")]

use proptest::{collection::vec, prelude::*, sample::select};

/// A request head with the body that follows it.
pub fn request() -> impl Strategy<Value = Vec<u8>> {
    let start = (method(), target(), select(vec!["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0"]));
    let host = select(vec!["Host: a.test\r\n", "host:b.test:8080 \r\n", "HOST: [::1]:80\r\n", "Host: a,b\r\n", ""]);
    let host = prop_oneof![6 => Just("Host: a.test\r\n"), 2 => host];
    (start, host, fields(REQUEST_FIELDS), framed_body()).prop_map(
        |((method, target, version), host, fields, (framing, body))| {
            let mut bytes = format!("{method} {target} {version}\r\n{host}{fields}{framing}\r\n").into_bytes();
            bytes.extend(body);
            bytes
        },
    )
}

/// A response head with the body that follows it.
pub fn response() -> impl Strategy<Value = Vec<u8>> {
    let version = select(vec!["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]);
    let status =
        select(vec!["200 OK", "200", "200 ", "404 Not Found", "204 No Content", "304 Not Modified", "503 \u{e9}"]);
    (version, status, fields(RESPONSE_FIELDS), framed_body()).prop_map(|(version, status, fields, (framing, body))| {
        let mut bytes = format!("{version} {status}\r\n{fields}{framing}\r\n").into_bytes();
        bytes.extend(body);
        bytes
    })
}

/// `good` with a few bytes changed, taken out, put in or repeated: the bytes that parsers disagree about.
pub fn spoiled(good: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => select(b"\r\n\t \0:;,/@[]=\"0159afxAF-+\x7f\x0b\x80\xff".to_vec()), 1 => any::<u8>()];
    let change = (any::<prop::sample::Index>(), 0..4u8, byte);
    (good, prop_oneof![2 => Just(Vec::new()), 3 => vec(change, 1..3)]).prop_map(|(mut bytes, changes)| {
        for (at, how, byte) in changes {
            let at = at.index(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match how {
                _ if bytes.is_empty() => bytes.push(byte),
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => repeat_line(&mut bytes, at),
            }
        }
        bytes
    })
}

fn repeat_line(bytes: &mut Vec<u8>, at: usize) {
    let start = bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let end = bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |len| at + len + 1);
    let line = bytes[start..end].to_vec();
    bytes.splice(end..end, line);
}

/// Good and, now and then, broken chunks.
pub fn chunked_body() -> impl Strategy<Value = Vec<u8>> {
    let extension = prop_oneof![
        8 => Just(""),
        2 => select(vec![";a", ";a=b", " ; a=\"b;c\"", "\t;\t", ";", " ", ";\u{e9}"]),
    ];
    let zeros = select(vec!["", "", "", "0", "000"]);
    let chunk =
        (zeros, extension, any::<bool>(), vec(any::<u8>(), 1..40)).prop_map(|(zeros, extension, upper, data)| {
            let len = data.len();
            let size = if upper { format!("{len:X}") } else { format!("{len:x}") };
            let mut bytes = format!("{zeros}{size}{extension}\r\n").into_bytes();
            bytes.extend(data);
            bytes.extend(b"\r\n");
            bytes
        });
    let last = select(vec!["0\r\n", "0\r\n", "000\r\n", "0;a=b\r\n"]);
    let trailers = prop_oneof![
        3 => Just(String::new()),
        1 => fields(TRAILERS),
    ];
    let rest = select(vec!["", "", "GET / HTTP/1.1\r\n", "\r\n"]);
    (vec(chunk, 0..5), last, trailers, rest).prop_map(|(chunks, last, trailers, rest)| {
        let mut bytes = chunks.concat();
        bytes.extend(format!("{last}{trailers}\r\n{rest}").into_bytes());
        bytes
    })
}

fn method() -> impl Strategy<Value = &'static str> {
    select(vec![
        "GET", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "PURGE", "X-Y!",
    ])
}

fn target() -> impl Strategy<Value = String> {
    let known = select(vec![
        "/",
        "/a",
        "/a?b=c&d",
        "//a",
        "/%zz",
        "/a;b",
        "*",
        "http://h.test/a",
        "http://h.test",
        "http://h.test?q",
        "a:80",
        "https://h.test:443/",
        "http://u@h/",
        "http://[::1]/x",
        "/#f",
        "",
        "/{a}|b",
        "?a",
    ])
    .prop_map(str::to_owned);
    prop_oneof![4 => known, 2 => "/[!-~]{0,20}"]
}

const REQUEST_FIELDS: &[&str] = &[
    "Accept: */*\r\n",
    "accept:\r\n",
    "X-Empty:  \r\n",
    "Cookie: a=b; c=d\r\n",
    "X-Latin: \u{e9}\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: x-own, TE\r\n",
    "X-Own: \t1\t\r\n",
    "TE: trailers\r\n",
    "TE: gzip\r\n",
    "Upgrade: websocket\r\nConnection: Upgrade\r\n",
    "Upgrade: h2c\r\n",
    "HTTP2-Settings: AAMAAABk\r\n",
    "Expect: 100-continue\r\n",
    "Keep-Alive: timeout=5\r\n",
    "Proxy-Connection: close\r\n",
    "Connection: host\r\n",
    "x-plimsoll-x: y\r\n",
    "Trailer: X-Sum\r\n",
    "grpc-timeout: 5S\r\n",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
    "Host: a.test\r\n",
    "X_Under: 1\r\n",
    "A: b: c\r\n",
    "Via: 1.1 x\r\n",
];

const RESPONSE_FIELDS: &[&str] = &[
    "Server: x\r\n",
    "Date: Mon, 30 Nov 2026 13:40:24 GMT\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Keep-Alive: timeout=5, max=100\r\n",
    "Connection: Transfer-Encoding\r\n",
    "X-Empty:\r\n",
    "Set-Cookie: a=b\r\n",
    "Set-Cookie: c=d\r\n",
    "Retry-After: 3\r\n",
    "Upgrade: h2c\r\n",
    "Connection: x-own\r\n",
    "X-Own: 1\r\n",
    "Trailer: X-Sum\r\n",
    "Content-Type: text/plain\r\n",
];

const TRAILERS: &[&str] =
    &["X-Sum: 1\r\n", "Host: a\r\n", "Content-Length: 3\r\n", "grpc-status: 0\r\n", "A:\r\n", "A : b\r\n", "A: b\n"];

fn fields(from: &'static [&'static str]) -> impl Strategy<Value = String> {
    vec(select(from), 0..6).prop_map(|lines| lines.concat())
}

/// The fields that frame a body, and the body.
fn framed_body() -> impl Strategy<Value = (String, Vec<u8>)> {
    let sized = vec(any::<u8>(), 0..40);
    prop_oneof![
        3 => Just((String::new(), Vec::new())),
        3 => sized.clone().prop_map(|data| (format!("Content-Length: {}\r\n", data.len()), data)),
        4 => chunked_body().prop_map(|body| ("Transfer-Encoding: chunked\r\n".to_owned(), body)),
        1 => (select(ODD_FRAMING), sized).prop_map(|(framing, data)| (framing.to_owned(), data)),
    ]
}

const ODD_FRAMING: &[&str] = &[
    "Content-Length: 3\r\nContent-Length: 3\r\n",
    "Content-Length: 3\r\nContent-Length: 4\r\n",
    "Content-Length: 3, 3\r\n",
    "Content-Length: +3\r\n",
    "Content-Length: 03\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Content-Length:\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding: CHUNKED\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Content-Length: 18446744073709551619\r\n",
];
