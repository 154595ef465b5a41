//! What both kinds of head have in common: lines, their ends, and what is wrong when httparse says no.

use httparse::{Error, Header};

use crate::{
    connection::is_token,
    error::LineError,
    field::{Field, Fields, Span},
    kind::FieldKind,
};

/// Whether a head is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// More bytes are needed.
    Incomplete,
    /// The first `len` bytes of the buffer are the head; a body or the next message follows.
    Complete {
        /// Bytes, empty lines before the head included.
        len: usize,
    },
}

/// Whether decoding a head again can find more than when its first `seen` bytes were [`Decoded::Incomplete`].
///
/// Decoding starts over each time. A sender of single bytes would make that quadratic; asked this first, it costs at
/// most one decoding per line.
#[must_use]
pub fn may_complete(buf: &[u8], seen: usize, limits: &crate::Limits) -> bool {
    buf.len() >= limits.head_bytes || memchr::memchr(b'\n', &buf[seen.min(buf.len())..]).is_some()
}

/// Takes over one field that httparse found, after checking that the line before it ends with CRLF.
///
/// httparse takes LF alone for a line end (RFC 9112 2.2 allows that, and lets two readers see different messages).
#[inline]
pub(crate) fn take_field(head: &[u8], header: &Header<'_>, fields: &mut Fields) -> Result<FieldKind, LineError> {
    let name = Span::within(head, header.name.as_bytes());
    if head[name.start as usize - 2] != b'\r' {
        return Err(LineError::BareLf);
    }
    let kind = FieldKind::of(header.name.as_bytes());
    fields.push(Field { name, value: Span::within(head, header.value), kind, hop: false });
    Ok(kind)
}

/// The same check for the last line and the empty one that ends the head of `len` bytes.
#[inline]
pub(crate) fn check_last_lines(head: &[u8], len: usize) -> Result<(), LineError> {
    if head[..len].ends_with(b"\r\n\r\n") { Ok(()) } else { Err(LineError::BareLf) }
}

/// Puts a name to what httparse refused in `head`, which begins with the start line.
#[cold]
pub(crate) fn diagnose(error: Error, head: &[u8]) -> LineError {
    match error {
        Error::TooManyHeaders => LineError::TooManyFields,
        Error::Version => diagnose_version(head),
        Error::Status | Error::Token => LineError::StartLine,
        Error::HeaderName | Error::HeaderValue | Error::NewLine => {
            let fields = memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1);
            diagnose_fields(error, &head[fields..])
        }
    }
}

/// The same for field lines alone.
#[cold]
pub(crate) fn diagnose_fields(error: Error, fields: &[u8]) -> LineError {
    match error {
        Error::HeaderName => diagnose_name(fields),
        _ => diagnose_value(fields),
    }
}

/// The first byte that no value may hold.
fn diagnose_value(fields: &[u8]) -> LineError {
    let culprit = fields.iter().enumerate().find(|&(at, byte)| match byte {
        b'\r' => fields.get(at + 1) != Some(&b'\n'),
        b'\n' | b'\t' => false,
        _ => byte.is_ascii_control(),
    });
    match culprit {
        Some((_, b'\r')) => LineError::BareCr,
        Some(_) => LineError::FieldValue,
        // Then the line before was not at its end.
        None => LineError::StartLine,
    }
}

fn diagnose_version(head: &[u8]) -> LineError {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let is_version = |word: &[u8]| matches!(word, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit());
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    match words[..] {
        [_, _, version] | [version, ..] if is_version(version) => LineError::UnsupportedVersion,
        _ => LineError::Version,
    }
}

/// The first line whose name is none. Lines before it have been found good.
fn diagnose_name(fields: &[u8]) -> LineError {
    for line in fields.split(|&byte| byte == b'\n') {
        let name_len = line.iter().take_while(|&&byte| is_token(byte)).count();
        match (name_len, line.get(name_len)) {
            (0, Some(b' ' | b'\t')) => return LineError::Folded,
            (0, Some(b'\r')) if line.len() > 1 => return LineError::BareCr,
            (1.., Some(b' ' | b'\t')) => return LineError::SpaceBeforeColon,
            (1.., Some(b':')) => {}
            _ => return LineError::FieldName,
        }
    }
    LineError::FieldName
}
