//! What goes out for what came in.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use plimsoll_h1::{
    BodyDecoder, BodyFraming, Decoded, FieldKind, Framing, KindSet, Limits, Method, Persistence, RequestHead,
    ResponseHead, Rewrite, decode_request, decode_response, encode_request, encode_response,
};

fn forward_request(text: &str, rewrite: &Rewrite<'_>) -> String {
    let mut head = RequestHead::default();
    let decoded = decode_request(text.as_bytes(), &Limits::default(), &mut head).expect(text);
    assert_eq!(decoded, Decoded::Complete { len: text.len() });
    let mut out = Vec::new();
    encode_request(&head, text.as_bytes(), rewrite, &mut out);
    String::from_utf8(out).unwrap()
}

fn forward_response(text: &str, rewrite: &Rewrite<'_>) -> String {
    let mut head = ResponseHead::default();
    let decoded = decode_response(text.as_bytes(), Method::Get, &Limits::default(), &mut head).expect(text);
    assert_eq!(decoded, Decoded::Complete { len: text.len() });
    let mut out = Vec::new();
    encode_response(&head, text.as_bytes(), rewrite, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_plain_request_is_left_as_it_is() {
    let text = "GET /a?b=c HTTP/1.1\r\nHost: a.test\r\nAccept:  */* \r\nX-A: \r\n\r\n";
    assert_eq!(forward_request(text, &Rewrite::default()), text);
}

#[test]
fn hop_by_hop_fields_stay_behind() {
    let text = "GET / HTTP/1.1\r\nConnection: close, X-Own\r\nHost: a\r\nKeep-Alive: timeout=5\r\nX-Own: 1\r\nA: b\r\n\
                TE: gzip\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nProxy-Connection: close\r\n\r\n";
    assert_eq!(forward_request(text, &Rewrite::default()), "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n");
}

#[test]
fn fields_are_dropped_and_added() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nx-plimsoll-x: 1\r\ngrpc-timeout: 1S\r\n\r\n";
    let rewrite = Rewrite {
        drop: KindSet::of(&[FieldKind::XPlimsoll, FieldKind::GrpcTimeout]),
        add: &[(b"grpc-timeout", b"900m")],
        ..Rewrite::default()
    };
    assert_eq!(forward_request(text, &rewrite), "GET / HTTP/1.1\r\nHost: a\r\ngrpc-timeout: 900m\r\n\r\n");
}

#[test]
fn a_target_with_a_host_supplies_it() {
    for (text, out) in [
        ("GET http://b:80/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x HTTP/1.1\r\nhost: b:80\r\n\r\n"),
        ("GET http://b?x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /?x HTTP/1.1\r\nhost: b\r\n\r\n"),
        ("CONNECT b:80 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT b:80 HTTP/1.1\r\nhost: b:80\r\n\r\n"),
        ("CONNECT b:80 HTTP/1.0\r\n\r\n", "CONNECT b:80 HTTP/1.1\r\nhost: b:80\r\n\r\n"),
        ("OPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nhost: b\r\n\r\n"),
        ("GET http://b HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nhost: b\r\n\r\n"),
    ] {
        assert_eq!(forward_request(text, &Rewrite::default()), out);
    }
}

#[test]
fn an_old_request_becomes_a_new_one() {
    let rewrite = Rewrite { host: Some(b"a"), ..Rewrite::default() };
    assert_eq!(
        forward_request("GET / HTTP/1.0\r\nB: c\r\n\r\n", &rewrite),
        "GET / HTTP/1.1\r\nB: c\r\nhost: a\r\n\r\n"
    );
    assert_eq!(forward_request("GET / HTTP/1.0\r\n\r\n", &rewrite), "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
}

#[test]
fn only_websocket_is_passed() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let out = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nconnection: upgrade\r\n\r\n";
    assert_eq!(forward_request(text, &Rewrite::default()), out);
}

#[test]
fn te_trailers_is_passed() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n";
    let out = "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nconnection: te\r\n\r\n";
    assert_eq!(forward_request(text, &Rewrite::default()), out);
}

/// A server that overlooks the field would read the body as the next request.
#[test]
fn unusual_framing_is_written_the_usual_way() {
    for (field, sent) in [
        ("Transfer-Encoding:\tchunked", "transfer-encoding: chunked"),
        ("Transfer-Encoding: chunked ", "transfer-encoding: chunked"),
        ("Transfer-Encoding: Chunked", "transfer-encoding: chunked"),
        ("Transfer-Encoding:chunked", "transfer-encoding: chunked"),
        ("Content-Length:  5", "content-length: 5"),
        ("Content-Length: 5\t", "content-length: 5"),
        ("Content-Length: 005", "content-length: 5"),
        ("Content-Length: 00", "content-length: 0"),
    ] {
        let text = format!("POST / HTTP/1.1\r\n{field}\r\nHost: a\r\n\r\n");
        let out = format!("POST / HTTP/1.1\r\nHost: a\r\n{sent}\r\n\r\n");
        assert_eq!(forward_request(&text, &Rewrite::default()), out);
        let text = format!("HTTP/1.1 200 OK\r\n{field}\r\nA: b\r\n\r\n");
        let out = format!("HTTP/1.1 200 OK\r\nA: b\r\n{sent}\r\n\r\n");
        assert_eq!(forward_response(&text, &Rewrite::default()), out);
    }
    let text = "HTTP/1.1 200 OK\r\nTrailer: X\r\nContent-Length: 03\r\n\r\n";
    let out = "HTTP/1.1 200 OK\r\nTrailer: X\r\ncontent-length: 3\r\n\r\n";
    assert_eq!(forward_response(text, &Rewrite::default()), out);
    for field in ["content-length: 10", "TRANSFER-ENCODING: chunked"] {
        let text = format!("POST / HTTP/1.1\r\n{field}\r\nHost: a\r\n\r\n");
        assert_eq!(forward_request(&text, &Rewrite::default()), text);
    }
}

#[test]
fn an_answer_changes_its_framing() {
    let text = "HTTP/1.0 200 OK\r\nServer: x\r\n\r\n";
    let rewrite = Rewrite {
        framing: Framing::Replaced(BodyFraming::Chunked),
        persistence: Persistence::Close,
        ..Rewrite::default()
    };
    let out = "HTTP/1.1 200 OK\r\nServer: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    assert_eq!(forward_response(text, &rewrite), out);
    let text = "HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n";
    let rewrite = Rewrite { framing: Framing::Replaced(BodyFraming::UntilClose), ..Rewrite::default() };
    assert_eq!(forward_response(text, &rewrite), "HTTP/1.1 200 OK\r\n\r\n");
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nA: b\r\n\r\n";
    let rewrite = Rewrite { framing: Framing::Replaced(BodyFraming::Length(12)), ..Rewrite::default() };
    assert_eq!(forward_response(text, &rewrite), "HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: 12\r\n\r\n");
}

#[test]
fn one_of_equal_lengths_is_sent() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nA: b\r\ncontent-length: 7\r\ncontent-length: 7\r\n\r\n";
    let out = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nA: b\r\n\r\n";
    assert_eq!(forward_response(text, &Rewrite::default()), out);
}

#[test]
fn a_no_content_answer_has_no_length() {
    let text = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nA: b\r\n\r\n";
    assert_eq!(forward_response(text, &Rewrite::default()), "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n");
}

#[test]
fn chunks_pass_verbatim_without_extensions() {
    let mut body = BodyDecoder::verbatim(BodyFraming::Chunked, &Limits::default());
    let mut buf: &[u8] = b"3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nA: b\r\nHost: x\r\n\r\nGET";
    let mut out = Vec::new();
    loop {
        let piece = body.decode(buf).unwrap();
        out.extend_from_slice(&buf[piece.skip..piece.skip + piece.len]);
        buf = &buf[piece.skip + piece.len..];
        if piece.end {
            break;
        }
    }
    body.trailers().unwrap().put(&mut out);
    assert_eq!(out, b"3\r\nabc\r\n1\r\nd\r\n0\r\nA: b\r\n\r\n");
    assert_eq!(buf, b"GET");
    assert_eq!(body.data_bytes(), 4);
}
