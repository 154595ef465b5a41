//! A ClientHello, read for its name.

use super::{Peek, Verdict};

/// The content type of handshake records (RFC 8446 5.1).
pub(super) const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Content type, version, length.
const RECORD_HEADER: usize = 5;
/// Handshake type, length.
const MESSAGE_HEADER: usize = 4;
/// A plaintext record holds at most this (RFC 8446 5.1).
const RECORD: usize = 1 << 14;
/// Past this much, or this many records, a hello is not read to its end: it goes on without a name.
const READ: usize = 64 * 1024;
const RECORDS: usize = 1024;
/// Extension types (RFC 6066 3, RFC 7301 3.1).
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const HOST_NAME: u8 = 0;
/// A DNS name in its text form has at most this many characters.
const NAME: usize = 253;

/// What a ClientHello says in the clear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The host that is meant, in lower case and without a final dot.
    pub server_name: Option<Box<str>>,
    /// The protocols on offer, in order of preference.
    pub alpn: Vec<Box<[u8]>>,
}

/// Says whether a connection whose first byte is [`HANDSHAKE`] carries TLS.
pub(super) fn peek(bytes: &[u8]) -> Peek {
    // TLS 1.0 to 1.3; a ClientHello of the last still says 1.0 or 1.2 here.
    if !matches!(bytes.get(1), None | Some(3)) || bytes.get(2).is_some_and(|minor| *minor > 4) {
        return Peek::Is(Verdict::Opaque);
    }
    let message = match message(bytes) {
        Message::Whole(message) => message,
        Message::Unreadable => return Peek::Is(Verdict::Tls(Hello::default())),
        Message::Other => return Peek::Is(Verdict::Opaque),
        Message::Unfinished { at_least } if bytes.len() < 3 => return Peek::maybe(Verdict::Opaque, at_least),
        Message::Unfinished { .. } if bytes.len() >= READ => return Peek::Is(Verdict::Tls(Hello::default())),
        Message::Unfinished { at_least } => return Peek::maybe(Verdict::Tls(Hello::default()), at_least),
    };
    Peek::Is(Verdict::Tls(hello(&message).unwrap_or_default()))
}

enum Message {
    /// The body of a ClientHello.
    Whole(Vec<u8>),
    Unfinished {
        at_least: usize,
    },
    /// It began as one, and is broken or too much.
    Unreadable,
    /// Some other record.
    Other,
}

/// Joins the first handshake message out of its records.
fn message(bytes: &[u8]) -> Message {
    let mut joined = Vec::new();
    let mut rest = bytes;
    for _ in 0..RECORDS {
        let used = bytes.len() - rest.len();
        let Some(header) = rest.first_chunk::<RECORD_HEADER>() else {
            return Message::Unfinished { at_least: used + RECORD_HEADER };
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > RECORD {
            return if joined.is_empty() { Message::Other } else { Message::Unreadable };
        }
        let here = &rest[RECORD_HEADER..];
        let part = &here[..length.min(here.len())];
        joined.extend_from_slice(part);
        if joined.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Message::Other;
        }
        if let Some(header) = joined.first_chunk::<MESSAGE_HEADER>() {
            let wanted = MESSAGE_HEADER + u24(&[header[1], header[2], header[3]]);
            if wanted > READ {
                return Message::Unreadable;
            }
            if joined.len() >= wanted {
                joined.truncate(wanted);
                joined.drain(..MESSAGE_HEADER);
                return Message::Whole(joined);
            }
        }
        if part.len() < length {
            return Message::Unfinished { at_least: used + RECORD_HEADER + length };
        }
        rest = &here[length..];
    }
    Message::Unreadable
}

/// RFC 8446 4.1.2. `None` for one that is cut short or contradicts itself.
fn hello(body: &[u8]) -> Option<Hello> {
    let mut body = Reader(body);
    let (_version, _random) = (body.take(2)?, body.take(32)?);
    let _session = body.vector8()?;
    let _suites = body.vector16()?;
    let _compression = body.vector8()?;
    let mut hello = Hello::default();
    if body.0.is_empty() {
        // Extensions are optional before TLS 1.3.
        return Some(hello);
    }
    let mut extensions = Reader(body.vector16()?);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = Reader(extensions.vector16()?);
        match kind {
            SERVER_NAME if hello.server_name.is_none() => hello.server_name = host_name(content),
            ALPN if hello.alpn.is_empty() => hello.alpn = protocols(content)?,
            // GREASE (RFC 8701) and all that is not ours to understand.
            _ => {}
        }
    }
    Some(hello)
}

fn host_name(mut content: Reader<'_>) -> Option<Box<str>> {
    let mut names = Reader(content.vector16()?);
    while !names.0.is_empty() {
        let kind = names.take(1)?[0];
        let name = names.vector16()?;
        if kind == HOST_NAME {
            return name_of(name);
        }
    }
    None
}

fn name_of(bytes: &[u8]) -> Option<Box<str>> {
    // The dot is forbidden (RFC 6066 3) and sent all the same.
    let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
    let is_name = (1..=NAME).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':'))
        && bytes.split(|byte| *byte == b'.').all(|label| !label.is_empty());
    is_name.then(|| str::from_utf8(bytes).ok().map(|name| name.to_ascii_lowercase().into()))?
}

fn protocols(mut content: Reader<'_>) -> Option<Vec<Box<[u8]>>> {
    let mut names = Reader(content.vector16()?);
    let mut protocols = Vec::new();
    while !names.0.is_empty() {
        protocols.push(names.vector8()?.into());
    }
    Some(protocols)
}

fn u24(bytes: &[u8; 3]) -> usize {
    bytes.iter().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Takes parts off the front; `None` where there is too little.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A vector with a length of one byte.
    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.take(1)?[0]);
        self.take(length)
    }

    /// A vector with a length of two bytes.
    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        self.take(length)
    }
}
