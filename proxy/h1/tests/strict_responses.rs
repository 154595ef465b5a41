//! Every way in which an answer is refused, and where the others end.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use plimsoll_h1::{
    BodyFraming, ConnectionError, Decoded, FieldKind, FramingError, Limits, LineError, Method, ResponseError,
    ResponseHead, Version, decode_response,
};

fn response_to(method: Method, text: &str) -> Result<ResponseHead, ResponseError> {
    let mut head = ResponseHead::default();
    match decode_response(text.as_bytes(), method, &Limits::default(), &mut head)? {
        Decoded::Complete { .. } => Ok(head),
        Decoded::Incomplete => panic!("incomplete: {text:?}"),
    }
}

fn response(text: &str) -> Result<ResponseHead, ResponseError> {
    response_to(Method::Get, text)
}

#[test]
#[rustfmt::skip]
fn answers_are_refused() {
    for (text, error) in [
        ("HTTP/1.1 20 OK\r\n\r\n", ResponseError::Status),
        ("HTTP/1.1 2000 OK\r\n\r\n", ResponseError::Status),
        ("HTTP/1.1 099 OK\r\n\r\n", ResponseError::Status),
        ("HTTP/1.1 2x0 OK\r\n\r\n", ResponseError::Status),
        ("HTTP/1.1 +20 OK\r\n\r\n", ResponseError::Status),
        ("HTTP/2.0 200 OK\r\n\r\n", LineError::UnsupportedVersion.into()),
        ("ICY 200 OK\r\n\r\n", LineError::Version.into()),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", LineError::StartLine.into()),
        ("\nHTTP/1.1 200 OK\r\n\r\n", LineError::BareLf.into()),
        ("HTTP/1.1 200 OK\n\r\n", LineError::BareLf.into()),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", LineError::BareLf.into()),
        ("HTTP/1.1 200 O\0K\r\n\r\n", ResponseError::Status),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", LineError::Folded.into()),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", LineError::SpaceBeforeColon.into()),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", FramingError::LengthMalformed.into()),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", FramingError::LengthRepeated.into()),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", FramingError::LengthAndCoding.into()),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", FramingError::CodingInHttp10.into()),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", FramingError::CodingUnsupported.into()),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", FramingError::CodingMalformed.into()),
        ("HTTP/1.1 200 OK\r\nConnection: a b\r\n\r\n", ConnectionError::Malformed.into()),
    ] {
        assert_eq!(response(text).map(|_| ()), Err(error), "{text:?}");
    }
}

/// RFC 9112 6.3, in its order: what ends the body of which answer.
#[test]
#[rustfmt::skip]
fn answers_are_framed() {
    use BodyFraming::{Chunked, Length, None, UntilClose};
    let (get, head, connect) = (Method::Get, Method::Head, Method::Connect);
    for (method, text, framing, keep_alive) in [
        (get, "200 OK\r\nContent-Length: 5\r\n", Length(5), true),
        (get, "200 OK\r\nContent-Length: 5\r\nConnection: close\r\n", Length(5), false),
        (get, "200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n", Length(5), true),
        (get, "200 OK\r\nTransfer-Encoding: Chunked\r\n", Chunked, true),
        (get, "200 OK\r\n", UntilClose, false),
        (get, "200\r\n", UntilClose, false),
        (get, "999 \r\nContent-Length: 0\r\n", Length(0), true),
        (head, "200 OK\r\n", None, true),
        (head, "200 OK\r\nContent-Length: 5\r\n", None, true),
        (head, "200 OK\r\nTransfer-Encoding: chunked\r\n", None, true),
        (get, "304 Not Modified\r\nContent-Length: 5\r\n", None, true),
        (get, "304 Not Modified\r\n", None, true),
        (get, "204 No Content\r\n", None, true),
        (get, "204 No Content\r\nContent-Length: 0\r\n", None, true),
        (get, "204 No Content\r\nContent-Length: 5\r\n", None, false),
        (get, "204 No Content\r\nTransfer-Encoding: chunked\r\n", None, false),
        (get, "100 Continue\r\n", None, true),
        (get, "103 Early Hints\r\nContent-Length: 5\r\n", None, false),
        (get, "101 Switching Protocols\r\n", None, false),
        (connect, "200 OK\r\nContent-Length: 5\r\n", None, false),
        (connect, "299 OK\r\nTransfer-Encoding: chunked\r\n", None, false),
        (connect, "403 Forbidden\r\nContent-Length: 5\r\n", Length(5), true),
    ] {
        let text = format!("HTTP/1.1 {text}\r\n");
        let decoded = response_to(method, &text).unwrap();
        assert_eq!(
            (decoded.framing, decoded.keep_alive),
            (framing, keep_alive),
            "{method:?} {text:?}"
        );
    }
    let old = response("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n").unwrap();
    assert_eq!((old.version, old.keep_alive), (Version::Http10, false));
    let old = response(
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\nKeep-Alive: max=9, timeout=7\r\n\r\n",
    );
    let old = old.unwrap();
    assert_eq!((old.keep_alive, old.keep_alive_timeout), (true, Some(7)));
}

/// A server that nominates `Transfer-Encoding` (some do) is answered for, not refused.
#[test]
#[rustfmt::skip]
fn answers_keep_what_is_end_to_end() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: Transfer-Encoding, Retry-After, X-Own\r\nX-Own: a\r\n\r\n";
    let head = response(text).unwrap();
    assert_eq!(head.framing, BodyFraming::Chunked);
    let stays: Vec<_> = head
        .fields
        .iter()
        .filter(|field| !field.hop)
        .map(|field| field.kind)
        .collect();
    assert_eq!(stays, [FieldKind::TransferEncoding]);
}
