//! Heads between the canonical form and that of HTTP/2.
//!
//! A head is looked at in one form, `plimsoll_h1`'s. From HTTP/2 to HTTP/2 what was received is moved on, edited in place;
//! from and to HTTP/1.1 it is written anew. Names come out in lower case, and without what belongs to one hop (RFC 9113 8.2.2).

use bytes::{Bytes, BytesMut};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version};
use plimsoll_h1::{
    FieldKind, Fields, KindSet, Limits, Method, RequestError, RequestHead, ResponseError, ResponseHead, TargetForm,
    Trailers, Upgrade,
};

use super::server::Incoming;

/// What HTTP/2 says otherwise, or not at all.
const NOT_IN_HTTP2: KindSet = KindSet::of(&[
    FieldKind::Host,
    FieldKind::Connection,
    FieldKind::KeepAlive,
    FieldKind::ProxyConnection,
    FieldKind::TransferEncoding,
    FieldKind::Upgrade,
    FieldKind::Http2Settings,
]);
/// Fields that a WebSocket has in HTTP/1.1 only (RFC 8441 5.1).
const HANDSHAKE: [&[u8]; 2] = [b"sec-websocket-key", b"sec-websocket-accept"];

/// The fields of a map. Its own iterators cannot be cloned.
struct Pairs<'m> {
    map: &'m HeaderMap,
    rest: http::header::Iter<'m, HeaderValue>,
    passed: usize,
}

fn pairs(map: &HeaderMap) -> Pairs<'_> {
    Pairs { map, rest: map.iter(), passed: 0 }
}

impl<'m> Iterator for Pairs<'m> {
    type Item = (&'m [u8], &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.passed += 1;
        self.rest.next().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }
}

impl Clone for Pairs<'_> {
    fn clone(&self) -> Self {
        let mut rest = self.map.iter();
        for _ in 0..self.passed {
            rest.next();
        }
        Self { map: self.map, rest, passed: self.passed }
    }
}

/// Composes the head of a call that has come in, into `buf`, which is empty. Returns its length.
///
/// # Errors
/// As [`plimsoll_h1::compose_request`].
pub fn compose_request(
    incoming: &Incoming,
    limits: &Limits,
    buf: &mut BytesMut,
    head: &mut RequestHead,
) -> Result<usize, RequestError> {
    let parts = &incoming.parts;
    let protocol = incoming.protocol();
    // The crate has held that one is there, and gives it away where there is no `:authority`.
    let scheme = (parts.method != http::Method::CONNECT || protocol.is_some())
        .then(|| parts.uri.scheme_str().unwrap_or("http").as_bytes());
    let pseudo = plimsoll_h1::Pseudo {
        method: parts.method.as_str().as_bytes(),
        authority: parts.uri.authority().map(|authority| authority.as_str().as_bytes()),
        path: parts.uri.path_and_query().map(|path| path.as_str().as_bytes()),
        scheme,
        protocol: protocol.map(str::as_bytes),
    };
    plimsoll_h1::compose_request(&pseudo, pairs(&parts.headers), incoming.body.is_ended(), limits, buf, head)
}

/// Composes the final or an interim head of an answer to a request with `method`, into `buf`, which is empty. Returns its length.
///
/// # Errors
/// As [`plimsoll_h1::compose_response`].
pub fn compose_response(
    status: u16,
    fields: &HeaderMap,
    method: Method,
    ends: bool,
    limits: &Limits,
    buf: &mut BytesMut,
    head: &mut ResponseHead,
) -> Result<usize, ResponseError> {
    plimsoll_h1::compose_response(status, pairs(fields), method, ends, limits, buf, head)
}

/// The request to send for `head`, in `buf`, without the fields in `drop` and with those in `add`.
///
/// # Errors
/// When the target holds what the crate that speaks HTTP/2 takes for malformed although HTTP/1.1 servers do not (a backtick,
/// an angle bracket).
pub fn request(
    head: &RequestHead,
    buf: &[u8],
    drop: KindSet,
    add: &[(&[u8], &[u8])],
    scheme: &str,
) -> Result<Request<()>, http::Error> {
    let map = fields(&head.fields, buf, drop, add, head.upgrade == Upgrade::WebSocket);
    request_with(head, buf, map, scheme, None)
}

/// The request to send for `head`, with these fields. `uri` is the one that was received with it by HTTP/2: it is used as it
/// is where it says all.
///
/// # Errors
/// As [`request`].
pub fn request_with(
    head: &RequestHead,
    buf: &[u8],
    map: HeaderMap,
    scheme: &str,
    uri: Option<Uri>,
) -> Result<Request<()>, http::Error> {
    let mut request = Request::new(());
    *request.version_mut() = if head.host.is_empty() { Version::HTTP_11 } else { Version::HTTP_2 };
    *request.method_mut() = http::Method::from_bytes(head.method_name.of(buf))?;
    if head.upgrade == Upgrade::WebSocket {
        *request.method_mut() = http::Method::CONNECT;
        request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    }
    let says_all = |uri: &Uri| uri.authority().is_some() && uri.scheme_str().is_none_or(|said| said == scheme);
    *request.uri_mut() = match uri.filter(says_all) {
        Some(uri) => uri,
        None => target(head, buf, scheme)?,
    };
    *request.headers_mut() = map;
    Ok(request)
}

fn target(head: &RequestHead, buf: &[u8], scheme: &str) -> Result<Uri, http::Error> {
    let authority = || Authority::from_maybe_shared(Bytes::copy_from_slice(head.host.of(buf)));
    let mut parts = http::uri::Parts::default();
    if head.form == TargetForm::Authority {
        parts.authority = Some(authority()?);
        return Ok(Uri::from_parts(parts)?);
    }
    // In absolute form the path may be missing (RFC 9112 3.2.4).
    let path = match head.path.of(buf) {
        b"" if head.method == Method::Options => Bytes::from_static(b"*"),
        path @ (b"*" | [b'/', ..]) => Bytes::copy_from_slice(path),
        path => Bytes::from([b"/", path].concat()),
    };
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(path)?);
    if !head.host.is_empty() {
        parts.authority = Some(authority()?);
        parts.scheme = Some(Scheme::try_from(scheme)?);
    }
    Ok(Uri::from_parts(parts)?)
}

/// The answer to send for `head`, in `buf`, without the fields in `drop` and with those in `add`. One that lets a WebSocket
/// begin is 200 here.
#[must_use]
pub fn response(head: &ResponseHead, buf: &[u8], drop: KindSet, add: &[(&[u8], &[u8])]) -> Response<()> {
    let map = fields(&head.fields, buf, drop, add, head.upgrade == Upgrade::WebSocket);
    response_with(head, map)
}

/// The answer to send for `head`, with these fields.
#[must_use]
pub fn response_with(head: &ResponseHead, map: HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    let status = if head.upgrade == Upgrade::WebSocket { 200 } else { head.status };
    *response.status_mut() = StatusCode::from_u16(status).expect("a head has a status from 100 to 999");
    *response.headers_mut() = map;
    response
}

/// The fields of a head as HTTP/2 has them, without those in `drop` and with those in `add`.
#[must_use]
pub fn header_map(list: &Fields, buf: &[u8], drop: KindSet, add: &[(&[u8], &[u8])]) -> HeaderMap {
    fields(list, buf, drop, add, false)
}

fn fields(list: &Fields, buf: &[u8], drop: KindSet, add: &[(&[u8], &[u8])], is_websocket: bool) -> HeaderMap {
    let drop = drop.and(NOT_IN_HTTP2);
    let mut map = HeaderMap::with_capacity(list.len() + add.len());
    for field in list {
        let name = field.name.of(buf);
        let is_handshake = is_websocket && HANDSHAKE.iter().any(|own| name.eq_ignore_ascii_case(own));
        if !field.hop && !is_handshake && !drop.contains(field.kind) {
            append(&mut map, name, field.value.of(buf));
        }
    }
    add.iter().for_each(|(name, value)| append(&mut map, name, value));
    map
}

/// Rids trailers that were received of what may not stand there.
pub fn edit_trailers(map: &mut HeaderMap) {
    remove_if(map, |kind| !Trailers::may_hold(kind));
    trim(map);
}

/// Removes the fields in `drop` and those of one hop from what was received by HTTP/2, and adds those in `add`.
pub fn edit(map: &mut HeaderMap, drop: KindSet, add: &[(&[u8], &[u8])]) {
    /// Kinds that are not one name.
    const NAMELESS: KindSet = KindSet::of(&[FieldKind::Other, FieldKind::XPlimsoll, FieldKind::FramingLookalike]);
    for kind in drop.and(NOT_IN_HTTP2).iter().filter(|kind| !NAMELESS.contains(*kind)) {
        map.remove(kind.name());
    }
    if drop.meets(NAMELESS) {
        remove_if(map, |kind| NAMELESS.contains(kind) && drop.contains(kind));
    }
    trim(map);
    add.iter().for_each(|(name, value)| append(map, name, value));
}

fn remove_if(map: &mut HeaderMap, is_out: impl Fn(FieldKind) -> bool) {
    while let Some(name) = map.keys().find(|name| is_out(FieldKind::of(name.as_str().as_bytes()))).cloned() {
        map.remove(name);
    }
}

/// White space around a value is malformed in HTTP/2 (RFC 9113 8.2.1), and some servers send it.
fn trim(map: &mut HeaderMap) {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    for value in map.values_mut() {
        let bytes = value.as_bytes();
        if (is_space(bytes.first()) || is_space(bytes.last()))
            && let Ok(trimmed) = HeaderValue::from_bytes(bytes.trim_ascii())
        {
            *value = trimmed;
        }
    }
}

fn append(map: &mut HeaderMap, name: &[u8], value: &[u8]) {
    // Both have been found to be what they should be when the head was read.
    match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        (Ok(name), Ok(value)) => {
            map.append(name, value);
        }
        _ => debug_assert!(false, "no field: {}: {}", name.escape_ascii(), value.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_h1::{Decoded, decode_request, decode_response};

    use super::*;

    fn head(text: &[u8]) -> RequestHead {
        let mut head = RequestHead::default();
        assert_eq!(
            decode_request(text, &Limits::default(), &mut head),
            Ok(Decoded::Complete { len: text.len() }),
            "{}",
            text.escape_ascii()
        );
        head
    }

    fn made(text: &[u8], drop: KindSet, add: &[(&[u8], &[u8])]) -> Request<()> {
        request(&head(text), text, drop, add, "http").unwrap()
    }

    #[test]
    fn a_request_in_http1_is_one_in_http2() {
        let text = b"POST /x?y HTTP/1.1\r\nHost: a.test:80\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nHTTP2-Settings: x\r\nGrpc-Timeout: 1S\r\nX-Plimsoll-Retry: no\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let drop = KindSet::of(&[FieldKind::GrpcTimeout, FieldKind::XPlimsollRetry]);
        let made = made(text, drop, &[(b"grpc-timeout", b"500m")]);
        assert_eq!((made.uri(), made.version()), (&"http://a.test:80/x?y".parse().unwrap(), Version::HTTP_2));
        let fields: Vec<(&str, &[u8])> =
            made.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let expected: [(&str, &[u8]); 4] =
            [("te", b"trailers"), ("x-a", b"1"), ("x-a", b"2"), ("grpc-timeout", b"500m")];
        assert_eq!(fields, expected);
    }

    #[test]
    fn every_form_of_target_has_its_pseudo_fields() {
        let uri = |text: &[u8]| made(text, KindSet::EMPTY, &[]).uri().to_string();
        assert_eq!(uri(b"GET http://b.test HTTP/1.1\r\nHost: a.test\r\n\r\n"), "http://b.test/");
        assert_eq!(uri(b"GET http://b.test?x HTTP/1.1\r\nHost: a.test\r\n\r\n"), "http://b.test/?x");
        assert_eq!(uri(b"OPTIONS http://b.test HTTP/1.1\r\nHost: a.test\r\n\r\n"), "http://b.test*");
        assert_eq!(uri(b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n"), "http://a.test*");
        assert_eq!(uri(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"), "a.test:443");
        let old = made(b"GET /x HTTP/1.0\r\n\r\n", KindSet::EMPTY, &[]);
        assert_eq!((old.uri().to_string().as_str(), old.version()), ("/x", Version::HTTP_11));
        let odd = b"GET /`<> HTTP/1.1\r\nHost: a.test\r\n\r\n";
        assert!(request(&head(odd), odd, KindSet::EMPTY, &[], "http").is_err());
    }

    #[test]
    fn a_websocket_is_an_extended_connect() {
        let text = b"GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n";
        let made = made(text, KindSet::EMPTY, &[]);
        assert_eq!(made.method(), http::Method::CONNECT);
        assert_eq!(made.extensions().get::<h2::ext::Protocol>().unwrap().as_str(), "websocket");
        assert_eq!(made.headers().len(), 1);
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: y\r\n\r\n";
        let mut head = ResponseHead::default();
        decode_response(answer, Method::Get, &Limits::default(), &mut head).unwrap();
        let made = response(&head, answer, KindSet::EMPTY, &[]);
        assert_eq!(made.status(), 200);
        assert_eq!(made.headers().keys().collect::<Vec<_>>(), ["sec-websocket-protocol"]);
    }

    #[test]
    fn what_came_by_http2_is_edited_in_place() {
        let mut map = HeaderMap::new();
        for (name, value) in [
            ("host", "a"),
            ("x-plimsoll-a", "1"),
            ("x-plimsoll-b", "2"),
            ("x-plimsoll-retry", "no"),
            ("http2-settings", "x"),
            ("grpc-timeout", "1S"),
            ("x-padded", " a "),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ] {
            map.append(name, HeaderValue::from_static(value));
        }
        edit(&mut map, KindSet::of(&[FieldKind::XPlimsoll, FieldKind::GrpcTimeout]), &[(b"grpc-timeout", b"9m")]);
        let mut left: Vec<(&str, &[u8])> = map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        // Only the fields of one name have an order.
        left.sort_by_key(|(name, _)| *name);
        let expected: [(&str, &[u8]); 5] = [
            ("cookie", b"a=1"),
            ("cookie", b"b=2"),
            ("grpc-timeout", b"9m"),
            ("x-padded", b"a"),
            ("x-plimsoll-retry", b"no"),
        ];
        assert_eq!(left, expected);
        let mut map = HeaderMap::new();
        map.insert("grpc-status", HeaderValue::from_static("0"));
        map.insert("content-length", HeaderValue::from_static("5"));
        edit_trailers(&mut map);
        assert_eq!(map.keys().collect::<Vec<_>>(), ["grpc-status"]);
    }

    #[test]
    fn crumbs_are_joined_wherever_they_stand() {
        let mut map = HeaderMap::new();
        for (name, value) in [("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("y", "2")] {
            map.append(name, HeaderValue::from_static(value));
        }
        let mut rest = pairs(&map);
        rest.next();
        assert_eq!(rest.clone().collect::<Vec<_>>(), rest.collect::<Vec<_>>());
    }
}
