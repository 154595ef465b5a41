//! Text that came from elsewhere, made safe to print.

use std::fmt::Write as _;
use std::time::SystemTime;

use serde::Serializer;

/// Text received from a caller, for JSON and for terminals: bad UTF-8 and control characters, which could steer a
/// terminal, become U+FFFD; long text is cut.
pub(super) fn printable(bytes: &[u8]) -> String {
    const LONGEST: usize = 300;
    let cut = &bytes[..bytes.len().min(LONGEST)];
    String::from_utf8_lossy(cut).chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The path of a request target: everything before the query or fragment, which may hold secrets.
pub(super) fn without_query(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|&byte| byte == b'?' || byte == b'#').unwrap_or(target.len());
    &target[..end]
}

/// A moment as RFC 3339 in UTC, with milliseconds.
pub fn timestamp(time: SystemTime) -> String {
    let mut out = String::with_capacity(24);
    push_timestamp(&mut out, time);
    out
}

/// Appends a moment as RFC 3339 in UTC, with milliseconds.
pub(super) fn push_timestamp(out: &mut String, time: SystemTime) {
    // Times that jiff cannot hold are thousands of years away; a clock that says so is not worth a panic.
    let time = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let _ = write!(out, "{time:.3}");
}

pub(super) fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*time))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_a_caller_sends_can_steer_a_terminal() {
        assert_eq!(printable(b"a\x1b[31mb\r\n\xff"), "a\u{fffd}[31mb\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(printable(&[b'x'; 1_000]).len(), 300);
    }

    #[test]
    fn the_query_is_cut_off() {
        assert_eq!(without_query(b"/pay?card=4111"), b"/pay");
        assert_eq!(without_query(b"/pay#x"), b"/pay");
        assert_eq!(without_query(b"*"), b"*");
    }

    #[test]
    fn times_are_utc_with_milliseconds() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_120_999);
        assert_eq!(timestamp(time), "2023-11-14T22:13:20.120Z");
        assert_eq!(timestamp(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }
}
