//! Every way in which a request is refused, and with what; where a rule has a near side, what is accepted there.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use plimsoll_h1::{
    BodyFraming, ConnectionError, Decoded, FieldKind, FramingError, Limits, LineError, RequestError, RequestHead,
    decode_request,
};

fn request(text: impl AsRef<[u8]>) -> Result<RequestHead, RequestError> {
    let mut head = RequestHead::default();
    match decode_request(text.as_ref(), &Limits::default(), &mut head)? {
        Decoded::Complete { .. } => Ok(head),
        Decoded::Incomplete => panic!("incomplete: {:?}", String::from_utf8_lossy(text.as_ref())),
    }
}

#[track_caller]
fn refuse(cases: &[(&str, RequestError)]) {
    for (text, error) in cases {
        assert_eq!(request(text).map(|_| ()), Err(*error), "{text:?}");
    }
}

#[track_caller]
fn accept(cases: &[&str]) {
    for text in cases {
        assert_eq!(request(text).map(|_| ()), Ok(()), "{text:?}");
    }
}

/// A request with these field lines.
fn with_fields(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[track_caller]
fn refuse_fields(cases: &[(&str, RequestError)]) {
    for (fields, error) in cases {
        assert_eq!(request(with_fields(fields)).map(|_| ()), Err(*error), "{fields:?}");
    }
}

#[track_caller]
fn accept_fields(cases: &[&str]) {
    for fields in cases {
        assert_eq!(request(with_fields(fields)).map(|_| ()), Ok(()), "{fields:?}");
    }
}

const fn line(error: LineError) -> RequestError {
    RequestError::Line(error)
}

const fn framing(error: FramingError) -> RequestError {
    RequestError::Framing(error)
}

/// RFC 9112 2.2 and 3.
#[test]
#[rustfmt::skip]
fn start_lines() {
    refuse(&[
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::Version)),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("GET / a HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::Version)),
        ("GET HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("/ HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::BareLf)),
        ("\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::BareLf)),
        ("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", line(LineError::BareCr)),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::MethodTooLong),
    ]);
    accept(&[
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "get / HTTP/1.1\r\nHost: a\r\n\r\n",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\nHost: a\r\n\r\n",
    ]);
}

/// RFC 9112 2.3.
#[test]
#[rustfmt::skip]
fn versions() {
    refuse(&[
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", line(LineError::UnsupportedVersion)),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", line(LineError::UnsupportedVersion)),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", line(LineError::UnsupportedVersion)),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", line(LineError::UnsupportedVersion)),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", line(LineError::Version)),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", line(LineError::StartLine)),
        ("GET / HTTP/01.1\r\nHost: a\r\n\r\n", line(LineError::Version)),
        ("GET / HTTP/1,1\r\nHost: a\r\n\r\n", line(LineError::Version)),
        ("GET / SIP/1.1 \r\nHost: a\r\n\r\n", line(LineError::Version)),
        ("GET /\r\n\r\n", line(LineError::StartLine)),
    ]);
    assert_eq!(line(LineError::UnsupportedVersion).status(), 505);
    assert_eq!(line(LineError::Version).status(), 400);
}

/// RFC 9112 3.2.
#[test]
#[rustfmt::skip]
fn targets() {
    refuse(&[
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET http:/a HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET ?a HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
        ("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("GET http://a:b/ HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("GET http://a\\b/ HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("GET http://a:/ HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT u@a:80 HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT http://a:80 HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT * HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Authority),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", RequestError::ConnectBody),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", RequestError::ConnectBody),
    ]);
    accept(&[
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET //a/../b;c?\"<>[]^`{|}\\ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET HTTPS://A:65535?x HTTP/1.1\r\nHost: other\r\n\r\n", "GET http://[::1]:80/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT [::1]:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    ]);
}

/// RFC 9112 3.2 and RFC 3986 3.2.2, narrowed.
#[test]
#[rustfmt::skip]
fn hosts() {
    for host in [
        "", "a b", "a,b", "a/b", "a?b", "a#b", "u@a", "a\\b", "a%20b", "a:", "a:x", "a:-1", "a:65536", "a:000080",
        "a:80:80", ":80", "[::1", "::1", "[::1]x", "[1.2.3.4]", "[fe80::1%25eth0]", "[v1.a]", "a\"", "<a>",
        "a\u{e9}", "http://a", "a;b",
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(
            request(&text).map(|_| ()),
            Err(RequestError::HostMalformed),
            "{host:?}"
        );
    }
    let (longest, too_long) = ("a".repeat(254), "a".repeat(255));
    for host in [
        "a", "A.b-c_d.", "a:0", "a:80", "127.0.0.1:65535", "[::1]", "[::ffff:1.2.3.4]:80", longest.as_str(),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let head = request(&text).unwrap();
        assert_eq!(head.host.of(text.as_bytes()), host.as_bytes());
    }
    let text = format!("GET / HTTP/1.1\r\nHost: {too_long}\r\n\r\n");
    assert_eq!(request(text).map(|_| ()), Err(RequestError::HostMalformed));
    refuse(&[
        ("GET / HTTP/1.1\r\n\r\n", RequestError::HostMissing),
        ("GET http://a/ HTTP/1.1\r\n\r\n", RequestError::HostMissing),
        ("CONNECT a:80 HTTP/1.1\r\n\r\n", RequestError::HostMissing),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", RequestError::HostRepeated),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhOST: b\r\n\r\n", RequestError::HostRepeated),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", RequestError::HostRepeated),
        ("GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", RequestError::HostMalformed),
    ]);
    accept(&["GET / HTTP/1.0\r\n\r\n"]);
}

/// RFC 9112 5.
#[test]
#[rustfmt::skip]
fn field_lines() {
    refuse_fields(&[
        ("A: b\r\n c\r\n", line(LineError::Folded)),
        ("A: b\r\n\tc: d\r\n", line(LineError::Folded)),
        (" A: b\r\n", line(LineError::Folded)),
        (" \r\n", line(LineError::Folded)),
        ("A : b\r\n", line(LineError::SpaceBeforeColon)),
        ("A\t: b\r\n", line(LineError::SpaceBeforeColon)),
        ("Content-Length : 5\r\n", line(LineError::SpaceBeforeColon)),
        (": b\r\n", line(LineError::FieldName)),
        ("A\r\n", line(LineError::FieldName)),
        ("A(b: c\r\n", line(LineError::FieldName)),
        ("A\0: b\r\n", line(LineError::FieldName)),
        ("A\u{e9}: b\r\n", line(LineError::FieldName)),
        ("\u{b}A: b\r\n", line(LineError::FieldName)),
        ("A\r: b\r\n", line(LineError::FieldName)),
        ("A: b\0c\r\n", line(LineError::FieldValue)),
        ("A: b\x01\r\n", line(LineError::FieldValue)),
        ("A: b\x7f\r\n", line(LineError::FieldValue)),
        ("A: b\rc\r\n", line(LineError::BareCr)),
        ("A: b\r\r\n", line(LineError::BareCr)),
        ("A: \rb\r\n", line(LineError::BareCr)),
        ("\rA: b\r\n", line(LineError::BareCr)),
        ("A: b\nC: d\r\n", line(LineError::BareLf)),
        ("A: b\n", line(LineError::BareLf)),
        ("A:\nC: d\r\n", line(LineError::BareLf)),
    ]);
    refuse(&[
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", line(LineError::BareLf)),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", line(LineError::BareLf)),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", line(LineError::BareLf)),
        ("GET / HTTP/1.0\n\n", line(LineError::BareLf)),
        ("GET / HTTP/1.0\r\n\n", line(LineError::BareLf)),
        ("GET / HTTP/1.0\n\r\n", line(LineError::BareLf)),
    ]);
    accept_fields(&[
        "A:b\r\n", "A:\r\n", "A: \t b \t \r\n", "A: \u{e9}\r\n", "!#$%&'*+-.^_`|~09azAZ: b\r\n", "A: b:c\r\n",
    ]);
}

/// RFC 9112 6.1 to 6.3.
#[test]
#[rustfmt::skip]
fn lengths() {
    for value in [
        "", "+5", "-5", "5 5", "5,5", "5, 5", "5,6", "0x5", "5.0", "5a", "a", "\"5\"", "5;",
        "\u{b2}", "1_0", "5\u{a0}",
    ] {
        let fields = format!("Content-Length: {value}\r\n");
        refuse_fields(&[(fields.as_str(), framing(FramingError::LengthMalformed))]);
    }
    refuse_fields(&[
        ("Content-Length: 9223372036854775808\r\n", framing(FramingError::LengthTooLarge)),
        ("Content-Length: 18446744073709551621\r\n", framing(FramingError::LengthTooLarge)),
        ("Content-Length: 99999999999999999999999999\r\n", framing(FramingError::LengthTooLarge)),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", framing(FramingError::LengthRepeated)),
        ("Content-Length: 5\r\ncontent-length: 6\r\n", framing(FramingError::LengthRepeated)),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", framing(FramingError::LengthAndCoding)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", framing(FramingError::LengthAndCoding)),
    ]);
    for name in [
        "Content_Length",
        "ContentLength",
        "Transfer_Encoding",
        "transfer--encoding",
    ] {
        let fields = format!("{name}: 5\r\n");
        refuse_fields(&[(fields.as_str(), framing(FramingError::Lookalike))]);
    }
    for (value, length) in [
        ("0", 0),
        ("007", 7),
        ("9223372036854775807", i64::MAX as u64),
    ] {
        let head = request(with_fields(&format!("Content-Length: {value}\r\n"))).unwrap();
        assert_eq!(head.framing, BodyFraming::Length(length));
    }
    assert_eq!(request(with_fields("")).unwrap().framing, BodyFraming::None);
}

/// RFC 9112 6.1 and 7.
#[test]
#[rustfmt::skip]
fn codings() {
    for value in [
        "", "identity", "gzip", "chunked, gzip", "chunked, identity", "chunked,", "chunked, chunked", ",chunked",
        "chunke", "chunkedx", "xchunked", "\"chunked\"", "chunked;a=b", "chunked chunked",
        ", gzip, chunked, chunked", "\u{b}chunked",
    ] {
        let error = request(with_fields(&format!("Transfer-Encoding: {value}\r\n")))
            .map(|_| ())
            .unwrap_err();
        let is_control = value.contains('\u{b}');
        let expected = if is_control {
            line(LineError::FieldValue)
        } else {
            framing(FramingError::CodingMalformed)
        };
        assert_eq!(error, expected, "{value:?}");
        assert_eq!(error.status(), 400);
    }
    for value in [
        "gzip, chunked",
        "gzip,chunked",
        "identity, chunked",
        "x-own;q=1, Chunked",
    ] {
        let error = request(with_fields(&format!("Transfer-Encoding: {value}\r\n")))
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error, framing(FramingError::CodingUnsupported), "{value:?}");
        assert_eq!(error.status(), 501);
    }
    refuse_fields(&[
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", framing(FramingError::CodingRepeated)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", framing(FramingError::CodingRepeated)),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", framing(FramingError::CodingMalformed)),
        ("Transfer-Encoding:\tchunked\r\nTransfer-Encoding : x\r\n", line(LineError::SpaceBeforeColon)),
    ]);
    refuse(&[("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", framing(FramingError::CodingInHttp10))]);
    for value in ["chunked", "CHUNKED", " \tchunked\t "] {
        let head = request(with_fields(&format!("Transfer-Encoding:{value}\r\n"))).unwrap();
        assert_eq!(head.framing, BodyFraming::Chunked);
    }
}

/// semantics.md "Messages": what `Connection` may not take away.
#[test]
#[rustfmt::skip]
fn nominations() {
    for kind in [
        FieldKind::Host, FieldKind::ContentLength, FieldKind::TransferEncoding, FieldKind::Authorization,
        FieldKind::Cookie, FieldKind::Traceparent, FieldKind::B3, FieldKind::XRequestId, FieldKind::XCriticality,
        FieldKind::IdempotencyKey, FieldKind::GrpcTimeout, FieldKind::GrpcRetryPushbackMs,
        FieldKind::GrpcPreviousRpcAttempts, FieldKind::XEnvoyExpectedRqTimeoutMs, FieldKind::XEnvoyAttemptCount,
        FieldKind::XEnvoyOverloaded, FieldKind::XEnvoyRatelimited, FieldKind::XPlimsollRetry, FieldKind::RetryAfter,
        FieldKind::RateLimit, FieldKind::RateLimitPolicy, FieldKind::XRateLimitLimit,
        FieldKind::XRateLimitRemaining, FieldKind::XRateLimitReset, FieldKind::ProxyStatus, FieldKind::Via,
        FieldKind::XForwardedFor, FieldKind::Forwarded,
    ] {
        let error = RequestError::Connection(ConnectionError::EndToEnd(kind));
        let name = kind.name();
        for fields in [
            format!("Connection: {name}\r\n"),
            format!("Connection: close, {}\r\n", name.to_ascii_uppercase()),
            format!("Connection: x\r\nConnection: ,{name}\t,\r\n"),
        ] {
            refuse_fields(&[(fields.as_str(), error)]);
        }
    }
    let many = format!("Connection: {}\r\n", "a, ".repeat(33));
    refuse_fields(&[
        ("Connection: x-plimsoll-own\r\n", RequestError::Connection(ConnectionError::EndToEnd(FieldKind::XPlimsoll))),
        ("Connection: a b\r\n", RequestError::Connection(ConnectionError::Malformed)),
        ("Connection: close;x\r\n", RequestError::Connection(ConnectionError::Malformed)),
        ("Connection: \"close\"\r\n", RequestError::Connection(ConnectionError::Malformed)),
        (
            many.as_str(),
            RequestError::Connection(ConnectionError::TooMany),
        ),
    ]);
    let many = format!("Connection: {}\r\n", "a, ".repeat(32));
    accept_fields(&[
        "Connection: ,,close , x-own\r\n",
        "Connection: TE, Upgrade, HTTP2-Settings\r\n",
        &many,
    ]);
}

/// RFC 9112 9.3.
#[test]
#[rustfmt::skip]
fn persistence() {
    for (text, keep_alive) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: x, close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\n\r\n", true),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive, close\r\n\r\n", false),
    ] {
        assert_eq!(request(text).unwrap().keep_alive, keep_alive, "{text:?}");
    }
}

#[test]
fn sizes() {
    let limits = Limits::default();
    let decode = |text: &str| decode_request(text.as_bytes(), &limits, &mut RequestHead::default());
    let target = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(len - 1));
    assert!(matches!(decode(&target(16 * 1024)), Ok(Decoded::Complete { .. })));
    assert_eq!(decode(&target(16 * 1024 + 1)), Err(RequestError::TargetTooLong));
    assert_eq!(decode(&target(60_000)[..50_000]), Err(RequestError::TargetTooLong));
    assert_eq!(RequestError::TargetTooLong.status(), 414);

    let fields = |count: usize| with_fields(&"a: b\r\n".repeat(count - 1));
    assert!(matches!(decode(&fields(128)), Ok(Decoded::Complete { .. })));
    assert_eq!(decode(&fields(129)), Err(line(LineError::TooManyFields)));
    assert_eq!(line(LineError::TooManyFields).status(), 431);

    let bare = with_fields("a: \r\n").len();
    let sized = |len: usize| with_fields(&format!("a: {}\r\n", "b".repeat(len - bare)));
    assert_eq!(decode(&sized(64 * 1024)), Ok(Decoded::Complete { len: 64 * 1024 }));
    assert_eq!(decode(&sized(64 * 1024 + 1)), Err(line(LineError::HeadTooLarge)));
    assert_eq!(decode(&sized(100_000)[..65_535]), Ok(Decoded::Incomplete));
    assert_eq!(decode(&sized(100_000)[..65_536]), Err(line(LineError::HeadTooLarge)));
    assert_eq!(decode(&"\r\n".repeat(40_000)), Err(line(LineError::HeadTooLarge)));
    assert_eq!(line(LineError::HeadTooLarge).status(), 431);
    assert_eq!(decode(&"A".repeat(40)), Err(RequestError::MethodTooLong));

    let few = Limits { fields: 1, ..limits };
    let text = "GET / HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n";
    let decoded = decode_request(text.as_bytes(), &few, &mut RequestHead::default());
    assert_eq!(decoded, Err(line(LineError::TooManyFields)));
}
