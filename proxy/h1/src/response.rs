//! Response heads.

use std::mem::MaybeUninit;

use httparse::Status;

use crate::{
    connection::{ConnectionOptions, EndToEnd, HOP_BY_HOP},
    error::{LineError, ResponseError},
    field::{Fields, Span},
    framing::{BodyFraming, FramingFields, Version},
    kind::FieldKind,
    limits::{Limits, MAX_FIELDS},
    lines::{self, Decoded},
    method::Method,
    request::Upgrade,
};

/// A decoded response head. Reused for the next one; spans are ranges of the buffer it was decoded from.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// 100 to 999.
    pub status: u16,
    /// What stands behind it; may be empty.
    pub reason: Span,
    /// The version.
    pub version: Version,
    /// The fields, in order.
    pub fields: Fields,
    /// How the body ends. `None` where the request or the status forbids one.
    pub framing: BodyFraming,
    /// Whether another request may be sent on the connection, once the body has ended.
    pub keep_alive: bool,
    /// Seconds that the server promises to keep the connection idle (`Keep-Alive: timeout`).
    pub keep_alive_timeout: Option<u32>,
    /// What the connection has become; with status 101 only.
    pub upgrade: Upgrade,
    /// Whether the fields that frame the body are written anew (`Fields::frame_plainly`).
    pub(crate) reframe: bool,
}

impl ResponseHead {
    /// Whether the final answer is still to come (RFC 9110 15.2). 101 is final for HTTP.
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// What is not set for every response.
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
        self.framing = BodyFraming::None;
        self.keep_alive_timeout = None;
        self.upgrade = Upgrade::None;
    }
}

/// Decodes the response head that `buf` begins with, the answer to a request with `method`.
///
/// `head` holds something only after [`Decoded::Complete`].
///
/// # Errors
/// When no continuation of `buf` is an answer that we forward.
pub fn decode_response(
    buf: &[u8],
    method: Method,
    limits: &Limits,
    head: &mut ResponseHead,
) -> Result<Decoded, ResponseError> {
    let window = limits.window(buf);
    // Only a server skips empty lines (RFC 9112 2.2): here they are left over from something else.
    match window {
        [b'\n', ..] => return Err(LineError::BareLf.into()),
        [b'\r', b'\n', ..] => return Err(LineError::StartLine.into()),
        _ => {}
    }
    let mut headers = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let headers = &mut headers[..limits.fields.min(MAX_FIELDS)];
    let mut parsed = httparse::Response::new(&mut []);
    let outcome = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, window, headers);
    match outcome {
        Ok(Status::Complete(len)) => {
            head.clear();
            head.status = parsed.code.filter(|&code| code >= 100).ok_or(ResponseError::Status)?;
            head.reason = parsed.reason.map_or(Span::default(), |reason| Span::within(window, reason.as_bytes()));
            head.version = if parsed.version == Some(0) { Version::Http10 } else { Version::Http11 };
            take_fields(window, len, method, &parsed, head)?;
            Ok(Decoded::Complete { len })
        }
        Ok(Status::Partial) => {
            limits.check_room(window)?;
            Ok(Decoded::Incomplete)
        }
        Err(httparse::Error::Status) => Err(ResponseError::Status),
        Err(error) => Err(lines::diagnose(error, window).into()),
    }
}

fn take_fields(
    buf: &[u8],
    len: usize,
    method: Method,
    parsed: &httparse::Response<'_, '_>,
    head: &mut ResponseHead,
) -> Result<(), ResponseError> {
    let mut framing = FramingFields::default();
    let mut connection = ConnectionOptions::default();
    for header in parsed.headers.iter() {
        match lines::take_field(buf, header, &mut head.fields)? {
            FieldKind::ContentLength => framing.on_content_length(header.value)?,
            FieldKind::TransferEncoding => framing.on_transfer_encoding(header.value)?,
            FieldKind::Connection => connection.on_field(header.value, EndToEnd::Keep)?,
            _ => {}
        }
    }
    lines::check_last_lines(buf, len)?;
    conclude(buf, len, method, framing, connection, head)
}

/// What the fields together say about a head of `len` bytes whose start line and fields have been taken.
pub(crate) fn conclude(
    buf: &[u8],
    len: usize,
    method: Method,
    framing: FramingFields,
    connection: ConnectionOptions,
    head: &mut ResponseHead,
) -> Result<(), ResponseError> {
    head.fields.set_end(len - 2);
    head.keep_alive = !connection.close && (head.version == Version::Http11 || connection.keep_alive);
    let said = framing.framing(head.version)?;
    if head.fields.present().meets(HOP_BY_HOP) {
        take_hop_by_hop(buf, connection, head);
    }
    if head.fields.repeats(FieldKind::ContentLength) {
        keep_one_length(head);
    }
    take_framing(method, said, head);
    head.reframe =
        matches!(head.framing, BodyFraming::Length(_) | BodyFraming::Chunked) && !head.fields.frame_plainly(buf);
    Ok(())
}

/// RFC 9112 6.3, in its order.
fn take_framing(method: Method, said: Option<BodyFraming>, head: &mut ResponseHead) {
    match head.status {
        // The connection is no longer HTTP.
        101 => {
            head.keep_alive = false;
            drop_framing_fields(head);
        }
        200..300 if method == Method::Connect => {
            head.keep_alive = false;
            drop_framing_fields(head);
        }
        100..200 | 204 => {
            // Such a field is forbidden, and a body that it may announce cannot be told from the next answer.
            head.keep_alive &= matches!(said, None | Some(BodyFraming::Length(0)));
            drop_framing_fields(head);
        }
        // What GET would have got: a statement, not a frame.
        304 => {}
        _ if method == Method::Head => {}
        _ => {
            head.framing = said.unwrap_or(BodyFraming::UntilClose);
            head.keep_alive &= head.framing != BodyFraming::UntilClose;
        }
    }
}

fn drop_framing_fields(head: &mut ResponseHead) {
    head.fields.drop_kind(FieldKind::ContentLength);
    head.fields.drop_kind(FieldKind::TransferEncoding);
}

/// Equal lengths say the same thing twice, which some applications do; one is forwarded (RFC 9110 8.6).
fn keep_one_length(head: &mut ResponseHead) {
    head.fields
        .iter_mut()
        .filter(|field| field.kind == FieldKind::ContentLength)
        .skip(1)
        .for_each(|field| field.hop = true);
}

fn take_hop_by_hop(buf: &[u8], connection: ConnectionOptions, head: &mut ResponseHead) {
    let fields = &mut head.fields;
    if head.status == 101 {
        let accepts = fields.is_only(FieldKind::Upgrade, b"websocket", buf);
        head.upgrade = if accepts && connection.upgrade { Upgrade::WebSocket } else { Upgrade::Other };
    }
    head.keep_alive_timeout = fields.value(FieldKind::KeepAlive, buf).and_then(timeout_hint);
    for field in fields.iter_mut().filter(|field| HOP_BY_HOP.contains(field.kind)) {
        field.hop = field.kind != FieldKind::Upgrade || head.upgrade != Upgrade::WebSocket;
    }
    connection.drop_nominated(buf, fields);
}

/// `timeout=5, max=100`
fn timeout_hint(value: &[u8]) -> Option<u32> {
    std::str::from_utf8(value).ok()?.split(',').find_map(|part| {
        let (name, seconds) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| seconds.trim().parse().ok())?
    })
}
