//! What a decoded head says: parts of the target, fields by kind, upgrades, and what is left from the message before.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use plimsoll_h1::{
    BodyFraming, Decoded, FieldKind, Limits, Method, RequestHead, ResponseHead, TargetForm, Upgrade, Version,
    decode_request, decode_response,
};

fn request(text: &str) -> RequestHead {
    let mut head = RequestHead::default();
    decode_request(text.as_bytes(), &Limits::default(), &mut head).unwrap();
    head
}

fn response(text: &str) -> ResponseHead {
    let mut head = ResponseHead::default();
    decode_response(text.as_bytes(), Method::Get, &Limits::default(), &mut head).unwrap();
    head
}

/// RFC 9112 3.2.
#[test]
fn targets_are_taken_apart() {
    for (method, target, form, path, host) in [
        ("GET", "/a?b", TargetForm::Origin, "/a?b", "h.test"),
        ("GET", "http://b:80/a?b", TargetForm::Absolute, "/a?b", "b:80"),
        ("GET", "http://b?a/b", TargetForm::Absolute, "?a/b", "b"),
        ("GET", "http://[::1]:8080", TargetForm::Absolute, "", "[::1]:8080"),
        ("OPTIONS", "*", TargetForm::Asterisk, "*", "h.test"),
        ("CONNECT", "b:443", TargetForm::Authority, "", "b:443"),
    ] {
        let text = format!("\r\n{method} {target} HTTP/1.1\r\nHost: h.test\r\n\r\n");
        let (head, buf) = (request(&text), text.as_bytes());
        assert_eq!((head.form, head.https), (form, false), "{target}");
        assert_eq!(head.method_name.of(buf), method.as_bytes());
        assert_eq!(head.target.of(buf), target.as_bytes());
        assert_eq!(head.path.of(buf), path.as_bytes());
        assert_eq!(head.host.of(buf), host.as_bytes());
    }
    assert!(request("GET HTTPS://b/ HTTP/1.1\r\nHost: a\r\n\r\n").https);
    assert!(request("GET / HTTP/1.0\r\n\r\n").host.is_empty());
}

#[test]
fn fields_are_found_by_kind() {
    let text = "GET / HTTP/1.1\r\nvia: 1.1 a\r\nHost: a\r\nX-Other: \r\nVia:\t1.1 b \r\n\r\n";
    let (head, buf) = (request(text), text.as_bytes());
    let fields = &head.fields;
    assert_eq!((fields.len(), fields.is_empty()), (4, false));
    assert_eq!(fields.value(FieldKind::Via, buf), Some(&b"1.1 a"[..]));
    assert_eq!(fields.value(FieldKind::Other, buf), Some(&b""[..]));
    assert_eq!(fields.value(FieldKind::Cookie, buf), None);
    let all: Vec<_> = fields.all(FieldKind::Via).map(|field| field.value.of(buf)).collect();
    assert_eq!(all, [&b"1.1 a"[..], b"1.1 b"]);
    assert_eq!(fields.all(FieldKind::Cookie).count(), 0);
    assert!(fields.repeats(FieldKind::Via) && !fields.repeats(FieldKind::Host) && !fields.repeats(FieldKind::Cookie));
}

#[test]
fn a_head_holds_nothing_of_the_one_before() {
    let rich = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade, close\r\nTE: trailers\r\n\
                Expect: 100-continue\r\nVia: x\r\nVia: y\r\n\r\n";
    let mut head = request(rich);
    assert!(head.expect_continue && head.te_trailers && !head.keep_alive);
    assert_eq!(head.upgrade, Upgrade::WebSocket);
    let plain = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n";
    decode_request(plain, &Limits::default(), &mut head).unwrap();
    assert!(!head.expect_continue && !head.te_trailers && head.keep_alive);
    assert_eq!((head.upgrade, head.fields.len(), head.framing), (Upgrade::None, 1, BodyFraming::None));
    assert!(!head.fields.contains(FieldKind::Via) && !head.fields.repeats(FieldKind::Via));

    let mut head = response("HTTP/1.0 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: 5\r\n\r\n");
    assert_eq!((head.keep_alive_timeout, head.framing), (Some(5), BodyFraming::Length(5)));
    decode_response(b"HTTP/1.1 204 \r\n\r\n", Method::Get, &Limits::default(), &mut head).unwrap();
    assert_eq!((head.keep_alive_timeout, head.framing, head.version), (None, BodyFraming::None, Version::Http11));
}

/// RFC 9110 7.8, and semantics of ours: nothing but a WebSocket, asked for and granted by the book.
#[test]
fn only_a_websocket_is_an_upgrade() {
    for (start, fields, upgrade) in [
        ("GET / HTTP/1.1", "Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n", Upgrade::WebSocket),
        ("GET / HTTP/1.1", "Connection: upgrade\r\n", Upgrade::None),
        ("GET / HTTP/1.1", "Upgrade: websocket\r\n", Upgrade::Other),
        ("GET / HTTP/1.1", "Upgrade: h2c\r\nConnection: upgrade\r\n", Upgrade::Other),
        ("GET / HTTP/1.1", "Upgrade: websocket, h2c\r\nConnection: upgrade\r\n", Upgrade::Other),
        ("GET / HTTP/1.1", "Upgrade: websocket\r\nUpgrade: h2c\r\nConnection: upgrade\r\n", Upgrade::Other),
        ("POST / HTTP/1.1", "Upgrade: websocket\r\nConnection: upgrade\r\n", Upgrade::Other),
        ("GET / HTTP/1.0", "Upgrade: websocket\r\nConnection: upgrade\r\n", Upgrade::Other),
        ("GET / HTTP/1.1", "Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 0\r\n", Upgrade::Other),
    ] {
        let head = request(&format!("{start}\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(head.upgrade, upgrade, "{start} {fields}");
        let kept = head.fields.all(FieldKind::Upgrade).any(|field| !field.hop);
        assert_eq!(kept, upgrade == Upgrade::WebSocket);
    }
    for (status, fields, upgrade) in [
        ("101", "Upgrade: websocket\r\nConnection: Upgrade\r\n", Upgrade::WebSocket),
        ("101", "Upgrade: websocket\r\n", Upgrade::Other),
        ("101", "Upgrade: h2c\r\nConnection: Upgrade\r\n", Upgrade::Other),
        ("426", "Upgrade: websocket\r\nConnection: Upgrade\r\n", Upgrade::None),
    ] {
        let head = response(&format!("HTTP/1.1 {status} x\r\n{fields}\r\n"));
        assert_eq!(head.upgrade, upgrade, "{status} {fields}");
        assert!(!head.is_interim());
    }
    assert!(response("HTTP/1.1 103 x\r\n\r\n").is_interim());
}

/// RFC 9110 10.1.1.
#[test]
fn an_expectation_is_one_of_http_1_1() {
    for (text, expects, passed) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n", true, true),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: other\r\n\r\n", false, true),
        ("POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", false, false),
    ] {
        let head = request(text);
        assert_eq!((head.expect_continue, !head.fields.first(FieldKind::Expect).unwrap().hop), (expects, passed));
    }
}

/// RFC 9112 9.3.2: what follows a message stays in the buffer.
#[test]
fn messages_follow_each_other() {
    let text = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET";
    let (mut at, mut head, mut seen) = (0, RequestHead::default(), Vec::new());
    while let Decoded::Complete { len } = decode_request(&text[at..], &Limits::default(), &mut head).unwrap() {
        seen.push(head.path.of(&text[at..]));
        at += len;
    }
    assert_eq!((seen, &text[at..]), (vec![&b"/1"[..], b"/2"], &b"GET"[..]));
}
