//! Heads as they are sent on: the fields that stay, in as few copies as there are gaps, then ours.

use bytes::BufMut;

use crate::{
    field::{Fields, Span},
    framing::{BodyFraming, Version},
    kind::{FieldKind, KindSet},
    method::Method,
    request::{RequestHead, Upgrade},
    response::ResponseHead,
    target::TargetForm,
};

/// How the body that follows is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// As it was received; its fields stay. Not for `UntilClose` towards a receiver that keeps the connection.
    #[default]
    Unchanged,
    /// Otherwise; its fields are taken out and new ones written.
    Replaced(BodyFraming),
}

impl Framing {
    /// The framing to write, if what was received does not stay. Usual framing stays, unusual is said in the usual way.
    fn anew(self, received: BodyFraming, reframe: bool) -> Option<BodyFraming> {
        match self {
            Self::Replaced(framing) => Some(framing),
            Self::Unchanged => reframe.then_some(received),
        }
    }
}

/// What `Connection` says on this hop; a WebSocket upgrade and `TE: trailers` add themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing: HTTP/1.1 stays open.
    #[default]
    Silent,
    /// `close`
    Close,
    /// `keep-alive`, for an HTTP/1.0 client.
    KeepAlive,
}

/// What to change in a head. The default changes nothing but what every hop must.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rewrite<'a> {
    /// Fields to leave out beside those that are never forwarded.
    pub drop: KindSet,
    /// Fields to add behind the others: name and value, without line ends.
    pub add: &'a [(&'a [u8], &'a [u8])],
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the connection lives on.
    pub persistence: Persistence,
    /// Replaces `Host`; requests only. Needed where an HTTP/1.0 client sent none.
    pub host: Option<&'a [u8]>,
}

/// Appends the head to send for `head`, which was decoded from `buf`.
pub fn encode_request(head: &RequestHead, buf: &[u8], rewrite: &Rewrite<'_>, out: &mut impl BufMut) {
    let framing = rewrite.framing.anew(head.framing, head.reframe);
    let mut drop = rewrite.drop.and(framing_kinds(head.framing, framing));
    // RFC 9112 3.2.2: where the target names a host, the received `Host` is ignored.
    let is_named = matches!(head.form, TargetForm::Absolute | TargetForm::Authority);
    let is_lacking = is_named || !head.fields.contains(FieldKind::Host);
    let host = rewrite.host.or_else(|| is_lacking.then(|| head.host.of(buf)));
    if host.is_some() {
        drop = drop.with(FieldKind::Host);
    }
    let is_as_sent = head.version == Version::Http11 && head.form != TargetForm::Absolute;
    let start = if is_as_sent {
        head.method_name.start
    } else {
        put_request_line(head, buf, out);
        fields_start(&head.fields)
    };
    put_fields(&head.fields, buf, start, drop, out);
    if let Some(host) = host {
        put_field(b"host", host, out);
    }
    put_framing(framing, out);
    put_connection(rewrite.persistence, head.upgrade, head.te_trailers, out);
    put_end(rewrite.add, out);
}

/// Absolute form loses scheme and authority, which become `Host` (RFC 9112 3.2.1); the others stay.
fn put_request_line(head: &RequestHead, buf: &[u8], out: &mut impl BufMut) {
    out.put_slice(head.method_name.of(buf));
    out.put_u8(b' ');
    match head.path.of(buf) {
        _ if head.form != TargetForm::Absolute => out.put_slice(head.target.of(buf)),
        // RFC 9112 3.2.4.
        b"" if head.method == Method::Options => out.put_u8(b'*'),
        path => {
            if path.first() != Some(&b'/') {
                out.put_u8(b'/');
            }
            out.put_slice(path);
        }
    }
    out.put_slice(b" HTTP/1.1\r\n");
}

/// Appends the head to send for `head`, which was decoded from `buf`.
pub fn encode_response(head: &ResponseHead, buf: &[u8], rewrite: &Rewrite<'_>, out: &mut impl BufMut) {
    let framing = rewrite.framing.anew(head.framing, head.reframe);
    let drop = rewrite.drop.and(framing_kinds(head.framing, framing));
    let start = if head.version == Version::Http11 {
        0
    } else {
        // RFC 9110 6.2: the version is the sender's own.
        out.put_slice(b"HTTP/1.1");
        b"HTTP/1.0".len() as u32
    };
    put_fields(&head.fields, buf, start, drop, out);
    put_framing(framing, out);
    put_connection(rewrite.persistence, head.upgrade, false, out);
    put_end(rewrite.add, out);
}

/// What goes for a new framing. Without chunks there is no room for what `Trailer` announces.
fn framing_kinds(received: BodyFraming, anew: Option<BodyFraming>) -> KindSet {
    const LENGTHS: KindSet = KindSet::of(&[FieldKind::ContentLength, FieldKind::TransferEncoding]);
    match anew {
        None => KindSet::EMPTY,
        Some(framing) if received == BodyFraming::Chunked && framing != received => LENGTHS.with(FieldKind::Trailer),
        Some(_) => LENGTHS,
    }
}

fn fields_start(fields: &Fields) -> u32 {
    fields.iter().next().map_or(fields.end(), |field| field.name.start)
}

/// Copies from `start` to the end of the fields, around those that are left out. Usually that is one copy.
fn put_fields(fields: &Fields, buf: &[u8], start: u32, drop: KindSet, out: &mut impl BufMut) {
    let mut start = start;
    let lines = fields.as_slice();
    for (at, field) in lines.iter().enumerate() {
        if field.hop || drop.contains(field.kind) {
            out.put_slice(Span { start, end: field.name.start }.of(buf));
            start = lines.get(at + 1).map_or(fields.end(), |next| next.name.start);
        }
    }
    out.put_slice(Span { start, end: fields.end() }.of(buf));
}

fn put_framing(framing: Option<BodyFraming>, out: &mut impl BufMut) {
    match framing {
        None | Some(BodyFraming::None | BodyFraming::UntilClose) => {}
        Some(BodyFraming::Chunked) => out.put_slice(b"transfer-encoding: chunked\r\n"),
        Some(BodyFraming::Length(length)) => put_field(b"content-length", Decimal::of(length).as_bytes(), out),
    }
}

fn put_connection(persistence: Persistence, upgrade: Upgrade, te: bool, out: &mut impl BufMut) {
    let line: &[u8] = match (upgrade == Upgrade::WebSocket, te, persistence) {
        (true, ..) => b"connection: upgrade\r\n",
        (_, false, Persistence::Silent) => return,
        (_, false, Persistence::Close) => b"connection: close\r\n",
        (_, false, Persistence::KeepAlive) => b"connection: keep-alive\r\n",
        (_, true, Persistence::Silent | Persistence::KeepAlive) => b"connection: te\r\n",
        (_, true, Persistence::Close) => b"connection: close, te\r\n",
    };
    out.put_slice(line);
}

fn put_end(add: &[(&[u8], &[u8])], out: &mut impl BufMut) {
    for (name, value) in add {
        put_field(name, value, out);
    }
    out.put_slice(b"\r\n");
}

fn put_field(name: &[u8], value: &[u8], out: &mut impl BufMut) {
    debug_assert!(
        ![name, value].iter().any(|part| part.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))),
        "a field of ours would end its line early"
    );
    for part in [name, b": ", value, b"\r\n"] {
        out.put_slice(part);
    }
}

/// A number in decimal, without a detour over `fmt`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { digits, start };
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}
