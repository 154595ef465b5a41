//! Heads that came by HTTP/2: composed, they are what decoding the text gives; what is malformed is refused.

use bytes::BytesMut;
use plimsoll_h1::{
    BodyFraming, Decoded, FramingError, Limits, LineError, Method, Pseudo, RequestError, RequestHead, ResponseError,
    ResponseHead, Rewrite, Upgrade, compose_request, compose_response, decode_request, decode_response, encode_request,
};
use proptest::prelude::*;

type Field<'a> = (&'a str, &'a str);

fn pairs<'f>(fields: &'f [(&'f [u8], &'f [u8])]) -> impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone {
    fields.iter().copied()
}

fn request(pseudo: &Pseudo<'_>, fields: &[Field<'_>], ends: bool) -> Result<(String, RequestHead), RequestError> {
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let (mut buf, mut head) = (BytesMut::new(), RequestHead::default());
    let len = compose_request(pseudo, pairs(&fields), ends, &Limits::default(), &mut buf, &mut head)?;
    assert_eq!(len, buf.len());
    Ok((String::from_utf8_lossy(&buf).into_owned(), head))
}

fn response(
    status: u16,
    fields: &[Field<'_>],
    method: Method,
    ends: bool,
) -> Result<(String, ResponseHead), ResponseError> {
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let (mut buf, mut head) = (BytesMut::new(), ResponseHead::default());
    compose_response(status, pairs(&fields), method, ends, &Limits::default(), &mut buf, &mut head)?;
    Ok((String::from_utf8_lossy(&buf).into_owned(), head))
}

const GET: Pseudo<'_> =
    Pseudo { method: b"GET", authority: Some(b"a.test"), path: Some(b"/x?y"), scheme: Some(b"http"), protocol: None };
const POST: Pseudo<'_> = Pseudo { method: b"POST", ..GET };

fn refused(pseudo: &Pseudo<'_>, fields: &[Field<'_>]) -> RequestError {
    match request(pseudo, fields, false) {
        Err(error) => error,
        Ok((text, _)) => panic!("taken: {text:?}"),
    }
}

#[test]
fn a_request_as_text() {
    let fields = [("accept", "*/*"), ("cookie", "a=1"), ("te", "trailers"), ("cookie", "b=2"), ("cookie", "c=3")];
    let (text, head) = request(&GET, &fields, true).unwrap();
    assert_eq!(
        text,
        "GET /x?y HTTP/1.1\r\nhost: a.test\r\naccept: */*\r\ncookie: a=1; b=2; c=3\r\nte: trailers\r\n\r\n"
    );
    assert_eq!(head.framing, BodyFraming::None);
    assert!(head.te_trailers && head.keep_alive);
    let mut out = Vec::new();
    encode_request(&head, text.as_bytes(), &Rewrite::default(), &mut out);
    assert!(out.ends_with(b"connection: te\r\n\r\n"));
}

#[test]
fn the_body_is_as_long_as_was_said_or_chunked() {
    let (text, head) = request(&POST, &[("content-length", "5")], false).unwrap();
    assert_eq!((head.framing, text.contains("transfer-encoding")), (BodyFraming::Length(5), false));
    let (text, head) = request(&POST, &[], false).unwrap();
    assert_eq!((head.framing, text.ends_with("transfer-encoding: chunked\r\n\r\n")), (BodyFraming::Chunked, true));
    let (_, head) = request(&POST, &[("content-length", "0")], true).unwrap();
    assert_eq!(head.framing, BodyFraming::Length(0));
    let cut = request(&POST, &[("content-length", "5")], true).unwrap_err();
    assert_eq!(cut, RequestError::Framing(FramingError::LengthWithoutBody));
}

#[test]
fn host_stands_in_for_authority() {
    let bare = Pseudo { authority: None, ..GET };
    let (text, head) = request(&bare, &[("accept", "*/*"), ("host", "b.test:80")], true).unwrap();
    assert_eq!(head.host.of(text.as_bytes()), b"b.test:80");
    assert_eq!(request(&bare, &[], true).unwrap_err(), RequestError::HostMissing);
    let (text, _) = request(&GET, &[("host", "a.test")], true).unwrap();
    assert_eq!(text.matches("host").count(), 1);
    assert_eq!(refused(&GET, &[("host", "b.test")]), RequestError::HostDiffers);
    assert_eq!(refused(&GET, &[("host", "a.test"), ("host", "a.test")]), RequestError::HostRepeated);
    assert_eq!(refused(&bare, &[("host", "a.test"), ("host", "a.test")]), RequestError::HostRepeated);
}

#[test]
fn tunnels_and_websockets() {
    let connect =
        Pseudo { method: b"CONNECT", authority: Some(b"a.test:443"), path: None, scheme: None, protocol: None };
    let (text, head) = request(&connect, &[], false).unwrap();
    assert_eq!(text, "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n");
    assert_eq!((head.method, head.framing), (Method::Connect, BodyFraming::None));
    assert_eq!(refused(&connect, &[("content-length", "5")]), RequestError::ConnectBody);
    assert_eq!(refused(&Pseudo { authority: Some(b"a.test"), ..connect }, &[]), RequestError::Authority);
    for broken in [
        Pseudo { authority: None, ..connect },
        Pseudo { path: Some(b"/"), ..connect },
        Pseudo { scheme: Some(b"http"), ..connect },
        Pseudo { protocol: Some(b"websocket"), ..connect },
        Pseudo { protocol: Some(b"websocket"), ..GET },
        Pseudo { path: None, ..GET },
        Pseudo { scheme: None, ..GET },
    ] {
        assert_eq!(refused(&broken, &[]), RequestError::Pseudo, "{broken:?}");
    }
    let websocket = Pseudo { method: b"CONNECT", protocol: Some(b"websocket"), ..GET };
    let (text, head) = request(&websocket, &[("sec-websocket-version", "13")], false).unwrap();
    assert_eq!(
        text,
        "GET /x?y HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\r\n"
    );
    assert_eq!(head.upgrade, Upgrade::WebSocket);
    assert_eq!(refused(&websocket, &[("content-length", "0")]), RequestError::ConnectBody);
    let other = Pseudo { protocol: Some(b"connect-udp"), ..websocket };
    assert_eq!((refused(&other, &[]), refused(&other, &[]).status()), (RequestError::ProtocolUnsupported, 501));
    let (text, head) = response(101, &[], Method::Get, false).unwrap();
    assert_eq!(text, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(head.upgrade, Upgrade::WebSocket);
}

#[test]
fn what_would_be_something_else_in_http1_is_refused() {
    for name in ["", "Accept", "a b", "a:", ":path", "a\r\nb", "ä", "a\0"] {
        assert_eq!(refused(&GET, &[(name, "x")]), RequestError::Line(LineError::FieldName), "{name:?}");
    }
    for value in ["a\r\nb: c", "a\n", "\r", "a\0b", " a", "a ", "\ta", "a\t", " ", "\u{7f}", "\u{1}"] {
        assert_eq!(refused(&GET, &[("x", value)]), RequestError::Line(LineError::FieldValue), "{value:?}");
        assert_eq!(refused(&GET, &[("cookie", "a"), ("cookie", value)]), RequestError::Line(LineError::FieldValue));
    }
    for path in ["", "x", "http://b.test/", "?x"] {
        assert_eq!(refused(&Pseudo { path: Some(path.as_bytes()), ..GET }, &[]), RequestError::Target, "{path:?}");
    }
    for path in ["/a b", "/\r\n", "/ HTTP/1.1\r\nx: y", "/ä", "/#", "/\0", "*", "*x"] {
        assert_eq!(refused(&Pseudo { path: Some(path.as_bytes()), ..GET }, &[]), RequestError::Target, "{path:?}");
    }
    for authority in ["", "a b", "user@a.test", "a.test:", "a.test:99999", "a\r\nx: y", "[::1"] {
        let pseudo = Pseudo { authority: Some(authority.as_bytes()), ..GET };
        assert_eq!(refused(&pseudo, &[]), RequestError::Authority, "{authority:?}");
    }
    for method in ["", "G T", "GET\r\n", "GET /"] {
        let pseudo = Pseudo { method: method.as_bytes(), ..GET };
        assert_eq!(refused(&pseudo, &[]), RequestError::Line(LineError::StartLine), "{method:?}");
    }
    let (_, head) = request(&Pseudo { method: b"OPTIONS", path: Some(b"*"), ..GET }, &[], true).unwrap();
    assert_eq!(head.form, plimsoll_h1::TargetForm::Asterisk);
}

#[test]
fn fields_of_the_connection_are_refused() {
    for field in [
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ] {
        assert!(matches!(refused(&GET, &[field]), RequestError::ConnectionSpecific(_)), "{field:?}");
    }
    assert!(matches!(
        response(200, &[("transfer-encoding", "chunked")], Method::Get, false),
        Err(ResponseError::ConnectionSpecific(_))
    ));
    assert_eq!(refused(&GET, &[("content_length", "5")]), RequestError::Framing(FramingError::Lookalike));
    let twice = [("content-length", "5"), ("content-length", "5")];
    assert_eq!(refused(&POST, &twice), RequestError::Framing(FramingError::LengthRepeated));
    for length in ["", "+5", "5,5", "0x5", "-1"] {
        let error = refused(&POST, &[("content-length", length)]);
        assert_eq!(error, RequestError::Framing(FramingError::LengthMalformed), "{length:?}");
    }
}

#[test]
fn a_head_is_bounded() {
    let long = "x".repeat(17_000);
    let target = format!("/{long}");
    let pseudo = Pseudo { path: Some(target.as_bytes()), ..GET };
    assert_eq!(refused(&pseudo, &[]).status(), 414);
    assert_eq!(refused(&GET, &[("a", &long), ("b", &long), ("c", &long), ("d", &long)]).status(), 431);
    let crumbs: Vec<Field<'_>> = (0..5).map(|_| ("cookie", long.as_str())).collect();
    assert_eq!(refused(&GET, &crumbs).status(), 431);
    let many: Vec<Field<'_>> = (0..128).map(|_| ("a", "b")).collect();
    assert_eq!(refused(&GET, &many), RequestError::Line(LineError::TooManyFields));
    assert!(request(&GET, &many[..127], true).is_ok());
    assert_eq!(refused(&Pseudo { method: &[b'A'; 33], ..GET }, &[]), RequestError::MethodTooLong);
}

#[test]
fn answers_end_where_they_end() {
    let framing =
        |status, fields: &[Field<'_>], method, ends| response(status, fields, method, ends).unwrap().1.framing;
    assert_eq!(framing(200, &[], Method::Get, false), BodyFraming::Chunked);
    assert_eq!(framing(200, &[], Method::Get, true), BodyFraming::Length(0));
    assert_eq!(framing(200, &[("content-length", "7")], Method::Get, false), BodyFraming::Length(7));
    for (status, method) in [(204, Method::Get), (304, Method::Get), (200, Method::Head), (103, Method::Get)] {
        assert_eq!(framing(status, &[], method, true), BodyFraming::None);
        let (text, _) = response(status, &[], method, false).unwrap();
        assert!(!text.contains("transfer-encoding"), "{text}");
    }
    assert_eq!(framing(304, &[("content-length", "7")], Method::Get, true), BodyFraming::None);
    assert_eq!(framing(200, &[], Method::Connect, false), BodyFraming::None);
    assert!(matches!(
        response(200, &[("content-length", "7")], Method::Get, true),
        Err(ResponseError::Framing(FramingError::LengthWithoutBody))
    ));
    let (text, _) = response(200, &[("x", " padded\t")], Method::Get, true).unwrap();
    assert_eq!(text, "HTTP/1.1 200 OK\r\nx: padded\r\ncontent-length: 0\r\n\r\n");
    assert!(matches!(response(99, &[], Method::Get, true), Err(ResponseError::Status)));
    assert!(matches!(response(1000, &[], Method::Get, true), Err(ResponseError::Status)));
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "keep-alive",
        "http2-settings",
        "proxy-connection",
        "expect",
        "cookie",
        "content-type",
        "x-plimsoll-retry",
        "grpc-timeout",
        "x-request-id",
        "accept",
        "traceparent",
    ];
    prop_oneof![
        8 => prop::sample::select(known.map(|name| name.as_bytes().to_vec()).to_vec()),
        4 => "[a-z][a-z0-9-]{0,12}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    let known = ["trailers", "100-continue", "a.test", "5", "0", "007", "chunked", "websocket", "upgrade", ""];
    prop_oneof![
        6 => prop::sample::select(known.map(|value| value.as_bytes().to_vec()).to_vec()),
        6 => "[!-~]([ -~]{0,20}[!-~])?".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ]
}

fn maybe(known: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        8 => prop::sample::select(known).prop_map(|value| Some(value.as_bytes().to_vec())),
        1 => Just(None),
        1 => prop::collection::vec(any::<u8>(), 0..8).prop_map(Some),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, it is refused or has exactly one reading.
    #[test]
    fn a_composed_request_is_what_decoding_it_gives(
        method in maybe(&["GET", "POST", "HEAD", "CONNECT", "OPTIONS", "BREW"]),
        authority in maybe(&["a.test", "a.test:443", "[::1]:80"]),
        path in maybe(&["/", "/a?b=c", "*"]),
        scheme in maybe(&["http", "https"]),
        protocol in prop_oneof![5 => Just(None), 1 => Just(Some(b"websocket".to_vec()))],
        fields in prop::collection::vec((names(), values()), 0..12),
        ends in any::<bool>(),
    ) {
        let method = method.unwrap_or_default();
        let pseudo = Pseudo {
            method: &method,
            authority: authority.as_deref(),
            path: path.as_deref(),
            scheme: scheme.as_deref(),
            protocol: protocol.as_deref(),
        };
        let lines: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let (mut buf, mut head) = (BytesMut::new(), RequestHead::default());
        let composed = compose_request(&pseudo, pairs(&lines), ends, &Limits::default(), &mut buf, &mut head);
        if let Ok(len) = composed {
            let mut decoded = RequestHead::default();
            let outcome = decode_request(&buf, &Limits::default(), &mut decoded);
            prop_assert_eq!(outcome, Ok(Decoded::Complete { len }), "{:?}", buf);
            prop_assert_eq!(format!("{head:?}"), format!("{decoded:?}"), "{:?}", buf);
            prop_assert_eq!(len, buf.len());
            let lengths = lines.iter().any(|(name, _)| *name == b"content-length");
            prop_assert!(!ends || lengths || head.framing == BodyFraming::None);
        }
    }

    #[test]
    fn a_composed_answer_is_what_decoding_it_gives(
        status in prop_oneof![prop::sample::select(vec![100u16, 101, 103, 200, 204, 304, 404, 599]), 0u16..1200],
        method in prop::sample::select(vec![Method::Get, Method::Head, Method::Connect]),
        fields in prop::collection::vec((names(), values()), 0..12),
        ends in any::<bool>(),
    ) {
        let lines: Vec<(&[u8], &[u8])> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let (mut buf, mut head) = (BytesMut::new(), ResponseHead::default());
        let composed = compose_response(status, pairs(&lines), method, ends, &Limits::default(), &mut buf, &mut head);
        if let Ok(len) = composed {
            let mut decoded = ResponseHead::default();
            let outcome = decode_response(&buf, method, &Limits::default(), &mut decoded);
            prop_assert_eq!(outcome, Ok(Decoded::Complete { len }), "{:?}", buf);
            prop_assert_eq!(format!("{head:?}"), format!("{decoded:?}"), "{:?}", buf);
            prop_assert!(head.framing != BodyFraming::UntilClose, "its end would be that of the connection");
        }
    }
}
