//! Heads that came by HTTP/2, as HTTP/1.1: the one form in which the proxy looks at heads.
//!
//! ```text
//!  :method GET  :authority a.test  :path /x       GET /x HTTP/1.1
//!  te: trailers                              -->  host: a.test
//!  cookie: a=1                                    te: trailers
//!  cookie: b=2                                    cookie: a=1; b=2
//! ```
//! Protects an HTTP/1.1 receiver from what HTTP/2 can carry and HTTP/1.1 cannot (RFC 9113 section 10.3): a line end in a value
//! would be a field, a space in a path a version. What is not well-formed is refused (RFC 9113 8.1.1), and what is composed is
//! exactly what [`crate::decode_request`] of the text gives, which a property test holds.
//!
//! A WebSocket by extended CONNECT (RFC 8441) becomes the `GET` with `Upgrade: websocket` that it is in HTTP/1.1, without
//! `Sec-WebSocket-Key`, which HTTP/2 does not have: whoever sends it to an HTTP/1.1 server adds one.
//!
//! No reason phrase but the usual ones, since HTTP/2 has none.

use bytes::{BufMut, BytesMut};

use crate::{
    connection::{ConnectionOptions, is_token},
    encode::Decimal,
    error::{FramingError, LineError, RequestError, ResponseError},
    field::{Field, Fields, Span},
    framing::{FramingFields, Version},
    kind::{FieldKind, KindSet},
    limits::{Limits, MAX_FIELDS},
    method::Method,
    request::{self, MAX_METHOD, RequestHead},
    response::{self, ResponseHead},
    target::{TargetForm, parse_host, parse_target},
};

/// What an HTTP/2 request says beside its fields (RFC 9113 8.3.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Pseudo<'a> {
    /// `:method`
    pub method: &'a [u8],
    /// `:authority`
    pub authority: Option<&'a [u8]>,
    /// `:path`
    pub path: Option<&'a [u8]>,
    /// `:scheme`
    pub scheme: Option<&'a [u8]>,
    /// `:protocol` (RFC 8441)
    pub protocol: Option<&'a [u8]>,
}

/// Fields that speak of a connection, which in HTTP/2 is not the message's (RFC 9113 8.2.2).
const CONNECTION_SPECIFIC: KindSet = KindSet::of(&[
    FieldKind::Connection,
    FieldKind::KeepAlive,
    FieldKind::ProxyConnection,
    FieldKind::TransferEncoding,
    FieldKind::Upgrade,
]);

/// Writes the head as HTTP/1.1 into `buf`, which is empty, and into `head` what decoding that would give. Returns its length.
///
/// `ends`: END_STREAM stood on the head. Then there is no body; else it is as long as `content-length` says, or chunked.
///
/// # Errors
/// When it is not well-formed, or above `limits`. `head` and `buf` hold nothing useful then.
pub fn compose_request<'f>(
    pseudo: &Pseudo<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ends: bool,
    limits: &Limits,
    buf: &mut BytesMut,
    head: &mut RequestHead,
) -> Result<usize, RequestError> {
    debug_assert!(buf.is_empty(), "spans are counted from the start of the buffer");
    head.clear();
    let is_websocket = put_start_line(pseudo, limits, buf, head)?;
    let mut lines = Lines { limits, buf, fields: &mut head.fields };
    let mut connection = ConnectionOptions::default();
    if let Some(authority) = pseudo.authority {
        lines.put(FieldKind::Host, b"host", authority)?;
    }
    if is_websocket {
        connection.upgrade = true;
        lines.put(FieldKind::Connection, b"connection", b"upgrade")?;
        lines.put(FieldKind::Upgrade, b"upgrade", b"websocket")?;
    }
    let mut framing = FramingFields::default();
    put_request_fields(pseudo, fields, &mut lines, &mut framing)?;
    let has_length = lines.fields.contains(FieldKind::ContentLength);
    if has_length && is_websocket {
        return Err(RequestError::ConnectBody);
    }
    match framing.length() {
        Some(1..) if ends => return Err(FramingError::LengthWithoutBody.into()),
        None if !ends && !is_websocket && head.method != Method::Connect => {
            framing.on_transfer_encoding(b"chunked")?;
            lines.put(FieldKind::TransferEncoding, b"transfer-encoding", b"chunked")?;
        }
        _ => {}
    }
    buf.put_slice(b"\r\n");
    let len = buf.len();
    request::conclude(buf, len, framing, connection, head)?;
    Ok(len)
}

/// Returns whether it is a WebSocket that is asked for.
fn put_start_line(
    pseudo: &Pseudo<'_>,
    limits: &Limits,
    buf: &mut BytesMut,
    head: &mut RequestHead,
) -> Result<bool, RequestError> {
    if pseudo.method.is_empty() || !pseudo.method.iter().all(|&byte| is_token(byte)) {
        return Err(LineError::StartLine.into());
    }
    if pseudo.method.len() > MAX_METHOD {
        return Err(RequestError::MethodTooLong);
    }
    let is_connect = pseudo.method == b"CONNECT";
    let is_websocket = match pseudo.protocol {
        None => false,
        Some(_) if !is_connect => return Err(RequestError::Pseudo),
        Some(protocol) if protocol.eq_ignore_ascii_case(b"websocket") => true,
        Some(_) => return Err(RequestError::ProtocolUnsupported),
    };
    let is_tunnel = is_connect && !is_websocket;
    // CONNECT has an authority and neither scheme nor path; everything else has both.
    if is_tunnel != pseudo.scheme.is_none() || (is_connect && pseudo.authority.is_none()) {
        return Err(RequestError::Pseudo);
    }
    let target = match (is_tunnel, pseudo.path, pseudo.authority) {
        (true, None, Some(authority)) => authority,
        (false, Some(path @ [b'/' | b'*', ..]), _) => path,
        (false, Some(_), _) => return Err(RequestError::Target),
        _ => return Err(RequestError::Pseudo),
    };
    if target.len() > limits.target_bytes {
        return Err(RequestError::TargetTooLong);
    }
    if pseudo.authority.is_some_and(|authority| parse_host(authority).is_none()) {
        return Err(RequestError::Authority);
    }
    let method = if is_websocket { b"GET" } else { pseudo.method };
    buf.reserve(method.len() + target.len() + 128);
    buf.put_slice(method);
    head.method = Method::of(method);
    head.method_name = Span::new(0, buf.len());
    buf.put_u8(b' ');
    head.target = Span::new(buf.len(), buf.len() + target.len());
    buf.put_slice(target);
    buf.put_slice(b" HTTP/1.1\r\n");
    let target = parse_target(head.method, target, head.target)?;
    debug_assert!(target.form != TargetForm::Absolute, "it begins like a path");
    head.form = target.form;
    head.https = false;
    head.path = target.path;
    head.host = target.authority;
    head.version = Version::Http11;
    Ok(is_websocket)
}

fn put_request_fields<'f>(
    pseudo: &Pseudo<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    lines: &mut Lines<'_>,
    framing: &mut FramingFields,
) -> Result<(), RequestError> {
    let mut fields = fields;
    let mut has_host = false;
    while let Some((name, value)) = fields.next() {
        let kind = check_field(name, value)?;
        if is_padded(value) {
            return Err(LineError::FieldValue.into());
        }
        match kind {
            FieldKind::Host if std::mem::replace(&mut has_host, true) => return Err(RequestError::HostRepeated),
            FieldKind::Host => match pseudo.authority {
                Some(authority) if authority != value => return Err(RequestError::HostDiffers),
                Some(_) => continue,
                None => {}
            },
            FieldKind::Cookie if lines.fields.contains(FieldKind::Cookie) => continue,
            FieldKind::Cookie => {
                // RFC 9113 8.2.3: what was cut into crumbs for the sake of compression is one field again.
                let crumbs = fields.clone().filter(|(name, _)| *name == b"cookie");
                lines.put_joined(kind, name, value, crumbs.map(|(_, crumb)| crumb))?;
                continue;
            }
            FieldKind::ContentLength => framing.on_content_length(value)?,
            FieldKind::FramingLookalike => return Err(FramingError::Lookalike.into()),
            FieldKind::Te if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(RequestError::ConnectionSpecific(kind));
            }
            kind if CONNECTION_SPECIFIC.contains(kind) => return Err(RequestError::ConnectionSpecific(kind)),
            _ => {}
        }
        lines.put(kind, name, value)?;
    }
    Ok(())
}

/// Writes the head of an answer to a request with `method` as HTTP/1.1 into `buf`, which is empty, and into `head` what
/// decoding that would give. Returns its length.
///
/// `ends`: END_STREAM stood on the head. For status 101, which HTTP/2 does not have, the answer is one that lets a WebSocket
/// begin: it is what 2xx to an extended CONNECT means.
///
/// White space around values is taken away rather than refused: servers do send it, and in HTTP/1.1 it is none of the value.
///
/// # Errors
/// When it is not well-formed, or above `limits`. `head` and `buf` hold nothing useful then.
pub fn compose_response<'f>(
    status: u16,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    method: Method,
    ends: bool,
    limits: &Limits,
    buf: &mut BytesMut,
    head: &mut ResponseHead,
) -> Result<usize, ResponseError> {
    debug_assert!(buf.is_empty(), "spans are counted from the start of the buffer");
    if !(100..1000).contains(&status) {
        return Err(ResponseError::Status);
    }
    head.clear();
    head.status = status;
    head.version = Version::Http11;
    buf.reserve(256);
    buf.put_slice(b"HTTP/1.1 ");
    buf.put_slice(Decimal::of(status.into()).as_bytes());
    buf.put_u8(b' ');
    let reason = reason(status);
    head.reason = if reason.is_empty() { Span::default() } else { Span::new(buf.len(), buf.len() + reason.len()) };
    buf.put_slice(reason);
    buf.put_slice(b"\r\n");
    let mut lines = Lines { limits, buf, fields: &mut head.fields };
    let mut connection = ConnectionOptions::default();
    if status == 101 {
        connection.upgrade = true;
        lines.put(FieldKind::Connection, b"connection", b"upgrade")?;
        lines.put(FieldKind::Upgrade, b"upgrade", b"websocket")?;
    }
    let mut framing = FramingFields::default();
    for (name, value) in fields {
        let kind = check_field(name, value)?;
        let value = value.trim_ascii();
        if kind == FieldKind::ContentLength {
            framing.on_content_length(value)?;
        }
        if CONNECTION_SPECIFIC.contains(kind) {
            return Err(ResponseError::ConnectionSpecific(kind));
        }
        lines.put(kind, name, value)?;
    }
    let may_have_body = !matches!(status, 100..200 | 204 | 304)
        && method != Method::Head
        && !(method == Method::Connect && (200..300).contains(&status));
    match framing.length() {
        Some(1..) if ends && may_have_body => return Err(FramingError::LengthWithoutBody.into()),
        // Without it, an HTTP/1.1 caller would wait for the end of the connection.
        None if ends && may_have_body => {
            framing.on_content_length(b"0")?;
            lines.put(FieldKind::ContentLength, b"content-length", b"0")?;
        }
        None if may_have_body => {
            framing.on_transfer_encoding(b"chunked")?;
            lines.put(FieldKind::TransferEncoding, b"transfer-encoding", b"chunked")?;
        }
        _ => {}
    }
    buf.put_slice(b"\r\n");
    let len = buf.len();
    response::conclude(buf, len, method, framing, connection, head)?;
    Ok(len)
}

/// Of the statuses that people look at.
fn reason(status: u16) -> &'static [u8] {
    match status {
        100 => b"Continue",
        101 => b"Switching Protocols",
        103 => b"Early Hints",
        200 => b"OK",
        201 => b"Created",
        202 => b"Accepted",
        204 => b"No Content",
        206 => b"Partial Content",
        301 => b"Moved Permanently",
        302 => b"Found",
        303 => b"See Other",
        304 => b"Not Modified",
        307 => b"Temporary Redirect",
        308 => b"Permanent Redirect",
        400 => b"Bad Request",
        401 => b"Unauthorized",
        403 => b"Forbidden",
        404 => b"Not Found",
        405 => b"Method Not Allowed",
        409 => b"Conflict",
        413 => b"Content Too Large",
        415 => b"Unsupported Media Type",
        422 => b"Unprocessable Content",
        429 => b"Too Many Requests",
        500 => b"Internal Server Error",
        501 => b"Not Implemented",
        502 => b"Bad Gateway",
        503 => b"Service Unavailable",
        504 => b"Gateway Timeout",
        _ => b"",
    }
}

/// Field lines being written.
struct Lines<'a> {
    limits: &'a Limits,
    buf: &'a mut BytesMut,
    fields: &'a mut Fields,
}

impl Lines<'_> {
    fn put(&mut self, kind: FieldKind, name: &[u8], value: &[u8]) -> Result<(), LineError> {
        self.put_joined(kind, name, value, std::iter::empty())
    }

    /// One field of all these values, with `; ` between them.
    fn put_joined<'f>(
        &mut self,
        kind: FieldKind,
        name: &[u8],
        first: &[u8],
        rest: impl Iterator<Item = &'f [u8]>,
    ) -> Result<(), LineError> {
        if self.fields.len() >= self.limits.fields.min(MAX_FIELDS) {
            return Err(LineError::TooManyFields);
        }
        self.check_room(name.len() + first.len())?;
        let start = self.buf.len();
        self.buf.put_slice(name);
        self.buf.put_slice(b": ");
        let value = self.buf.len();
        self.buf.put_slice(first);
        for more in rest {
            self.check_room(more.len())?;
            self.buf.put_slice(b"; ");
            self.buf.put_slice(more);
        }
        let end = self.buf.len();
        self.buf.put_slice(b"\r\n");
        let value = if value == end { Span::default() } else { Span::new(value, end) };
        self.fields.push(Field { name: Span::new(start, start + name.len()), value, kind, hop: false });
        Ok(())
    }

    /// Four bytes around each field, and the two at the end of a head.
    fn check_room(&self, len: usize) -> Result<(), LineError> {
        if self.buf.len() + len + 6 > self.limits.head_bytes { Err(LineError::HeadTooLarge) } else { Ok(()) }
    }
}

/// What a field is, if it may stand in a line.
fn check_field(name: &[u8], value: &[u8]) -> Result<FieldKind, LineError> {
    let is_name = |byte: &u8| LOWER_TOKEN[usize::from(*byte)];
    if name.is_empty() || !name.iter().all(is_name) {
        return Err(LineError::FieldName);
    }
    // Without an early way out, so that it is a loop without branches.
    let others = value.iter().fold(0, |others, &byte| others | u8::from(!is_value(byte)));
    if others > 0 { Err(LineError::FieldValue) } else { Ok(FieldKind::of(name)) }
}

/// RFC 9113 8.2.1.
fn is_padded(value: &[u8]) -> bool {
    matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// RFC 9110 5.5: visible characters, bytes above them, space and tab.
const fn is_value(byte: u8) -> bool {
    (byte >= 0x20 && byte != 0x7f) || byte == b'\t'
}

/// Tokens in lower case (RFC 9113 8.2.1).
static LOWER_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = is_token(byte) && !byte.is_ascii_uppercase();
        byte += 1;
    }
    table
};
