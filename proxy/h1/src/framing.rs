//! Where a message ends (RFC 9112 section 6.3).

use crate::error::FramingError;

/// HTTP version of a message. There is no third (RFC 9112 2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// What delimits a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none.
    #[default]
    None,
    /// This many bytes; never 0 for a request or answer without a body of its own, which is `Length(0)` only when said.
    Length(u64),
    /// Chunks (RFC 9112 7.1).
    Chunked,
    /// All until the connection is closed; answers only.
    UntilClose,
}

/// The two fields that frame a message, collected while its fields are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FramingFields {
    length: Option<u64>,
    chunked: bool,
}

impl FramingFields {
    pub(crate) fn on_content_length(&mut self, value: &[u8]) -> Result<(), FramingError> {
        let length = parse_length(value)?;
        match self.length.replace(length) {
            Some(before) if before != length => Err(FramingError::LengthRepeated),
            _ => Ok(()),
        }
    }

    /// Exactly `chunked` is understood (RFC 9112 6.1): a proxy that passes another coding on unread could not find the
    /// end of the message.
    pub(crate) fn on_transfer_encoding(&mut self, value: &[u8]) -> Result<(), FramingError> {
        if std::mem::replace(&mut self.chunked, true) {
            return Err(FramingError::CodingRepeated);
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            return Ok(());
        }
        let mut codings = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        let ends_chunked = codings.next_back().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
        if ends_chunked && codings.all(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"chunked")) {
            Err(FramingError::CodingUnsupported)
        } else {
            Err(FramingError::CodingMalformed)
        }
    }

    pub(crate) const fn length(&self) -> Option<u64> {
        self.length
    }

    /// RFC 9112 6.1 and 6.3: a message with both is an attempt at smuggling, and HTTP/1.0 knows no codings.
    pub(crate) fn framing(self, version: Version) -> Result<Option<BodyFraming>, FramingError> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(FramingError::LengthAndCoding),
            (None, true) if version == Version::Http10 => Err(FramingError::CodingInHttp10),
            (None, true) => Ok(Some(BodyFraming::Chunked)),
            (Some(length), false) => Ok(Some(BodyFraming::Length(length))),
            (None, false) => Ok(None),
        }
    }
}

/// RFC 9110 8.6: digits and nothing else. A list of equal numbers is grammatical for a recipient that repairs it; none
/// that we know of sends one, so it is refused.
fn parse_length(value: &[u8]) -> Result<u64, FramingError> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(FramingError::LengthMalformed);
    }
    value
        .iter()
        .try_fold(0u64, |length, digit| length.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        // Others count in signed 64 bits.
        .filter(|&length| length <= MAX_LENGTH)
        .ok_or(FramingError::LengthTooLarge)
}

/// 2^63 - 1: the largest length that every implementation can hold.
pub(crate) const MAX_LENGTH: u64 = i64::MAX.unsigned_abs();
