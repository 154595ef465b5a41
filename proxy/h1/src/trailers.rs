//! Trailer sections (RFC 9112 section 7.1.2): collected, checked, and rid of what may not stand there.

use bytes::BufMut;
use httparse::EMPTY_HEADER;

use crate::{
    error::{BodyError, LineError},
    field::{Field, Span},
    kind::{FieldKind, KindSet},
    limits::MAX_FIELDS,
    lines,
};

/// The recognised fields that have a meaning after the body. Every other recognised one frames, routes, authenticates or
/// steers, so that a receiver that merges trailers into the head would be told something new too late (RFC 9110 6.5.1).
const ALLOWED: KindSet = KindSet::of(&[
    FieldKind::Other,
    FieldKind::GrpcStatus,
    FieldKind::GrpcMessage,
    FieldKind::GrpcRetryPushbackMs,
    FieldKind::ProxyStatus,
]);

/// The trailers that are passed on.
#[derive(Clone, Debug, Default)]
pub struct Trailers {
    raw: Vec<u8>,
    fields: Vec<Field>,
}

impl Trailers {
    /// Whether a field may stand behind a body.
    #[must_use]
    pub const fn may_hold(kind: FieldKind) -> bool {
        ALLOWED.contains(kind)
    }

    /// Kind, name and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (FieldKind, &[u8], &[u8])> {
        self.fields.iter().map(|field| (field.kind, field.name.of(&self.raw), field.value.of(&self.raw)))
    }

    /// The value of the first of this kind.
    #[must_use]
    pub fn value(&self, kind: FieldKind) -> Option<&[u8]> {
        self.iter().find(|(found, ..)| *found == kind).map(|(_, _, value)| value)
    }

    /// Appends them and the empty line that ends a chunked message.
    pub fn put(&self, out: &mut impl BufMut) {
        for (_, name, value) in self.iter() {
            for part in [name, b": ", value, b"\r\n"] {
                out.put_slice(part);
            }
        }
        out.put_slice(b"\r\n");
    }
}

/// Collects a trailer section that comes in pieces.
#[derive(Debug)]
pub(crate) struct TrailerReader {
    trailers: Trailers,
    line_start: usize,
    max_bytes: usize,
    max_fields: usize,
    whole: bool,
}

impl TrailerReader {
    pub(crate) fn new(max_bytes: usize, max_fields: usize) -> Self {
        Self {
            trailers: Trailers::default(),
            line_start: 0,
            max_bytes,
            max_fields: max_fields.min(MAX_FIELDS),
            whole: false,
        }
    }

    pub(crate) const fn is_whole(&self) -> bool {
        self.whole
    }

    pub(crate) const fn trailers(&self) -> &Trailers {
        &self.trailers
    }

    /// Takes `buf` up to the end of the section, and says how much that was.
    pub(crate) fn take(&mut self, buf: &[u8]) -> Result<usize, BodyError> {
        let mut at = 0;
        while at < buf.len() && !self.whole {
            let line_end = memchr::memchr(b'\n', &buf[at..]).map(|len| at + len + 1);
            let end = line_end.unwrap_or(buf.len());
            let raw = &mut self.trailers.raw;
            if raw.len() + (end - at) > self.max_bytes {
                return Err(BodyError::TrailersTooLarge);
            }
            raw.extend_from_slice(&buf[at..end]);
            at = end;
            if line_end.is_some() {
                self.take_line()?;
            }
        }
        Ok(at)
    }

    fn take_line(&mut self) -> Result<(), BodyError> {
        let raw = &self.trailers.raw;
        if !raw.ends_with(b"\r\n") {
            return Err(BodyError::Trailers(LineError::BareLf));
        }
        if raw.len() - self.line_start == 2 {
            self.whole = true;
            self.parse()?;
        }
        self.line_start = self.trailers.raw.len();
        Ok(())
    }

    fn parse(&mut self) -> Result<(), BodyError> {
        let Trailers { raw, fields } = &mut self.trailers;
        let mut headers = [EMPTY_HEADER; MAX_FIELDS];
        match httparse::parse_headers(raw, &mut headers[..self.max_fields]) {
            Ok(httparse::Status::Complete((_, found))) => {
                fields.extend(found.iter().map(|header| Field {
                    name: Span::within(raw, header.name.as_bytes()),
                    value: Span::within(raw, header.value),
                    kind: FieldKind::of(header.name.as_bytes()),
                    hop: false,
                }));
                fields.retain(|field| ALLOWED.contains(field.kind));
                Ok(())
            }
            Ok(httparse::Status::Partial) => Err(BodyError::Trailers(LineError::FieldName)),
            Err(httparse::Error::TooManyHeaders) => Err(BodyError::TrailersTooLarge),
            Err(error) => Err(BodyError::Trailers(lines::diagnose_fields(error, raw))),
        }
    }
}
