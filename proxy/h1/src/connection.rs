//! The `Connection` field and what it takes away (RFC 9110 7.6.1).

use crate::{
    error::ConnectionError,
    field::{Field, Fields},
    kind::{FieldKind, KindSet},
};

/// More than any honest sender has, and a bound on the work: each option is compared with each field.
const MAX_OPTIONS: usize = 32;

/// Never forwarded, nominated or not. `Transfer-Encoding` belongs here too but is the encoder's: it keeps the line when
/// the framing stays the same.
pub(crate) const HOP_BY_HOP: KindSet = KindSet::of(&[
    FieldKind::Connection,
    FieldKind::KeepAlive,
    FieldKind::ProxyConnection,
    FieldKind::Te,
    FieldKind::Upgrade,
    FieldKind::Http2Settings,
]);

/// May be nominated: what is not ours to protect, and what goes anyway.
const MAY_BE_NOMINATED: KindSet = HOP_BY_HOP.and(KindSet::of(&[
    FieldKind::Other,
    FieldKind::Trailer,
    FieldKind::ProxyAuthenticate,
    FieldKind::ProxyAuthorization,
]));

/// Whether a nomination of a field that is meant for the receiver is refused or not obeyed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndToEnd {
    /// From a caller it is an attempt to have us remove what the receiver relies on.
    Refuse,
    /// Servers in use do nominate `Transfer-Encoding`; their answer is delivered with the field in place.
    Keep,
}

/// The options seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionOptions {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
    count: usize,
    nominates: bool,
}

impl ConnectionOptions {
    pub(crate) fn on_field(&mut self, value: &[u8], end_to_end: EndToEnd) -> Result<(), ConnectionError> {
        for option in options(value) {
            self.count += 1;
            if self.count > MAX_OPTIONS {
                return Err(ConnectionError::TooMany);
            }
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.on_nomination(option, end_to_end)?;
            }
        }
        Ok(())
    }

    fn on_nomination(&mut self, option: &[u8], end_to_end: EndToEnd) -> Result<(), ConnectionError> {
        if !option.iter().all(|&byte| is_token(byte)) {
            return Err(ConnectionError::Malformed);
        }
        let kind = FieldKind::of(option);
        if MAY_BE_NOMINATED.contains(kind) {
            self.nominates |= !HOP_BY_HOP.contains(kind);
        } else if end_to_end == EndToEnd::Refuse {
            return Err(ConnectionError::EndToEnd(kind));
        }
        Ok(())
    }

    /// Marks the fields that were nominated.
    pub(crate) fn drop_nominated(self, buf: &[u8], fields: &mut Fields) {
        if !self.nominates {
            return;
        }
        let lines: Vec<Field> = fields.all(FieldKind::Connection).copied().collect();
        for option in lines.iter().flat_map(|line| options(line.value.of(buf))) {
            fields
                .iter_mut()
                .filter(|field| MAY_BE_NOMINATED.contains(field.kind) && !HOP_BY_HOP.contains(field.kind))
                .filter(|field| field.name.of(buf).eq_ignore_ascii_case(option))
                .for_each(|field| field.hop = true);
        }
    }
}

/// The members of a list, empty ones left out (RFC 9110 5.6.1.2).
fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// RFC 9110 5.6.2.
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}
