//! Request heads.

use std::mem::MaybeUninit;

use httparse::Status;

use crate::{
    connection::{ConnectionOptions, EndToEnd, HOP_BY_HOP},
    error::{FramingError, LineError, RequestError},
    field::{Fields, Span},
    framing::{BodyFraming, FramingFields, Version},
    kind::{FieldKind, KindSet},
    limits::{Limits, MAX_FIELDS},
    lines::{self, Decoded},
    method::Method,
    target::{TargetForm, parse_host, parse_target},
};

/// What a message wants its connection to become (RFC 9110 7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upgrade {
    /// Nothing else.
    #[default]
    None,
    /// A WebSocket; the fields that ask for it are forwarded.
    WebSocket,
    /// Something we do not pass; the fields that ask for it are dropped.
    Other,
}

/// A decoded request head. Reused for the next one; spans are ranges of the buffer it was decoded from.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// Its name.
    pub method_name: Span,
    /// The request target as sent.
    pub target: Span,
    /// Its form.
    pub form: TargetForm,
    /// Whether an absolute target begins with `https:`.
    pub https: bool,
    /// Path and query. Empty for CONNECT; in absolute form it may be empty or begin with `?` (a `/` is missing then).
    pub path: Span,
    /// Host and optional port: of the target where that has one (RFC 9112 3.2.2), else of `Host`; empty if neither is
    /// there, which only HTTP/1.0 may do.
    pub host: Span,
    /// The version.
    pub version: Version,
    /// The fields, in order.
    pub fields: Fields,
    /// How the body ends; never `UntilClose`.
    pub framing: BodyFraming,
    /// Whether another request may follow on the connection.
    pub keep_alive: bool,
    /// Whether the sender waits for 100 (Continue) before its body.
    pub expect_continue: bool,
    /// What the connection is to become.
    pub upgrade: Upgrade,
    /// Whether `TE: trailers` is there, alone.
    pub te_trailers: bool,
    /// Whether the fields that frame the body are written anew (`Fields::frame_plainly`).
    pub(crate) reframe: bool,
}

impl RequestHead {
    /// What is not set for every request. In place: moving the fields out and back costs more than decoding two of them.
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
        self.expect_continue = false;
        self.upgrade = Upgrade::None;
        self.te_trailers = false;
    }
}

/// Longer than any registered method (RFC 9110 16.1), the longest of which has 17.
pub(crate) const MAX_METHOD: usize = 32;

/// The fields that are between the sender and us, or may be.
const FOR_US: KindSet = HOP_BY_HOP.with(FieldKind::Expect);

/// Decodes the request head that `buf` begins with. Empty lines before it are skipped (RFC 9112 2.2).
///
/// `head` holds something only after [`Decoded::Complete`].
///
/// # Errors
/// When no continuation of `buf` is a request that we forward.
pub fn decode_request(buf: &[u8], limits: &Limits, head: &mut RequestHead) -> Result<Decoded, RequestError> {
    let window = limits.window(buf);
    let skipped = skip_empty_lines(window)?;
    let mut headers = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let headers = &mut headers[..limits.fields.min(MAX_FIELDS)];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(&window[skipped..], headers) {
        Ok(Status::Complete(len)) => {
            let len = skipped + len;
            head.clear();
            take_start_line(window, &parsed, limits, head)?;
            take_fields(window, len, &parsed, head)?;
            Ok(Decoded::Complete { len })
        }
        Ok(Status::Partial) => check_incomplete(window, skipped, limits).map(|()| Decoded::Incomplete),
        Err(error) => Err(lines::diagnose(error, &window[skipped..]).into()),
    }
}

/// Length of the empty lines that `window` begins with: some old clients send one after a body.
fn skip_empty_lines(window: &[u8]) -> Result<usize, RequestError> {
    let mut at = 0;
    while let Some(b'\r' | b'\n') = window.get(at) {
        match &window[at..] {
            [b'\r', b'\n', ..] => at += 2,
            [b'\r'] => break,
            [b'\n', ..] => return Err(LineError::BareLf.into()),
            _ => return Err(LineError::BareCr.into()),
        }
    }
    Ok(at)
}

#[cold]
fn check_incomplete(window: &[u8], skipped: usize, limits: &Limits) -> Result<(), RequestError> {
    let head = &window[skipped..];
    let line = memchr::memchr(b'\n', head).map_or(head, |end| &head[..end]);
    let method = memchr::memchr(b' ', line).unwrap_or(line.len());
    if method > MAX_METHOD {
        return Err(RequestError::MethodTooLong);
    }
    // Method, two spaces, version, line end.
    if line.len() > limits.target_bytes + method + 12 {
        return Err(RequestError::TargetTooLong);
    }
    limits.check_room(window)?;
    Ok(())
}

fn take_start_line(
    buf: &[u8],
    parsed: &httparse::Request<'_, '_>,
    limits: &Limits,
    head: &mut RequestHead,
) -> Result<(), RequestError> {
    let name = parsed.method.unwrap_or_default().as_bytes();
    let target = parsed.path.unwrap_or_default().as_bytes();
    if name.len() > MAX_METHOD {
        return Err(RequestError::MethodTooLong);
    }
    if target.len() > limits.target_bytes {
        return Err(RequestError::TargetTooLong);
    }
    head.method = Method::of(name);
    head.method_name = Span::within(buf, name);
    head.target = Span::within(buf, target);
    head.version = if parsed.version == Some(0) { Version::Http10 } else { Version::Http11 };
    let target = parse_target(head.method, target, head.target)?;
    head.form = target.form;
    head.https = target.https;
    head.path = target.path;
    head.host = target.authority;
    Ok(())
}

fn take_fields(
    buf: &[u8],
    len: usize,
    parsed: &httparse::Request<'_, '_>,
    head: &mut RequestHead,
) -> Result<(), RequestError> {
    let mut framing = FramingFields::default();
    let mut connection = ConnectionOptions::default();
    for header in parsed.headers.iter() {
        match lines::take_field(buf, header, &mut head.fields)? {
            FieldKind::ContentLength => framing.on_content_length(header.value)?,
            FieldKind::TransferEncoding => framing.on_transfer_encoding(header.value)?,
            FieldKind::Connection => connection.on_field(header.value, EndToEnd::Refuse)?,
            FieldKind::FramingLookalike => return Err(FramingError::Lookalike.into()),
            _ => {}
        }
    }
    lines::check_last_lines(buf, len)?;
    conclude(buf, len, framing, connection, head)
}

/// What the fields together say about a head of `len` bytes whose start line and fields have been taken.
pub(crate) fn conclude(
    buf: &[u8],
    len: usize,
    framing: FramingFields,
    connection: ConnectionOptions,
    head: &mut RequestHead,
) -> Result<(), RequestError> {
    head.fields.set_end(len - 2);
    // RFC 9110 8.6 lets a recipient repair it; nginx and Node refuse it too, and no sane client does it.
    if head.fields.repeats(FieldKind::ContentLength) {
        return Err(FramingError::LengthRepeated.into());
    }
    head.framing = framing.framing(head.version)?.unwrap_or(BodyFraming::None);
    if head.method == Method::Connect && !matches!(head.framing, BodyFraming::None | BodyFraming::Length(0)) {
        return Err(RequestError::ConnectBody);
    }
    head.reframe = head.framing != BodyFraming::None && !head.fields.frame_plainly(buf);
    take_host(buf, head)?;
    head.keep_alive = !connection.close && (head.version == Version::Http11 || connection.keep_alive);
    if head.fields.present().meets(FOR_US) {
        take_ours(buf, connection, head);
    }
    Ok(())
}

/// RFC 9112 3.2: exactly one `Host` in HTTP/1.1, at most one in HTTP/1.0, and it has to be a host.
fn take_host(buf: &[u8], head: &mut RequestHead) -> Result<(), RequestError> {
    if head.fields.repeats(FieldKind::Host) {
        return Err(RequestError::HostRepeated);
    }
    let Some(host) = head.fields.first(FieldKind::Host).map(|field| field.value) else {
        let may_lack = head.version == Version::Http10;
        return if may_lack { Ok(()) } else { Err(RequestError::HostMissing) };
    };
    if parse_host(host.of(buf)).is_none() {
        return Err(RequestError::HostMalformed);
    }
    if head.host.is_empty() {
        head.host = host;
    }
    Ok(())
}

fn take_ours(buf: &[u8], connection: ConnectionOptions, head: &mut RequestHead) {
    let fields = &mut head.fields;
    // RFC 9110 10.1.1: an expectation of an HTTP/1.0 client is none, and must not become one on the way.
    let is_old = head.version == Version::Http10;
    head.expect_continue = !is_old && fields.is_only(FieldKind::Expect, b"100-continue", buf);
    head.te_trailers = fields.is_only(FieldKind::Te, b"trailers", buf);
    if fields.contains(FieldKind::Upgrade) {
        let may = connection.upgrade
            && head.method == Method::Get
            && head.version == Version::Http11
            && head.framing == BodyFraming::None;
        let asks = fields.is_only(FieldKind::Upgrade, b"websocket", buf);
        head.upgrade = if asks && may { Upgrade::WebSocket } else { Upgrade::Other };
    }
    for field in fields.iter_mut() {
        field.hop = match field.kind {
            FieldKind::Te => !head.te_trailers,
            FieldKind::Upgrade => head.upgrade != Upgrade::WebSocket,
            FieldKind::Expect => is_old,
            kind => HOP_BY_HOP.contains(kind),
        };
    }
    connection.drop_nominated(buf, fields);
}
