//! Text that came from elsewhere, made safe to print.

use std::io::Write as _;
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
#[must_use]
pub fn timestamp(time: SystemTime) -> String {
    // Times that jiff cannot hold are thousands of years away; a clock that says so is not worth a panic.
    let time = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// The same for many moments close to each other: the calendar is asked once a second.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    second: u64,
    /// `2026-11-30T14:30:51`; empty before the first use.
    text: String,
}

impl Stamp {
    pub fn push(&mut self, out: &mut Vec<u8>, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if since.as_secs() != self.second || self.text.is_empty() {
            self.second = since.as_secs();
            self.text = timestamp(time);
            self.text.truncate("2026-11-30T14:30:51".len());
        }
        out.extend_from_slice(self.text.as_bytes());
        // Writing to a Vec cannot fail.
        let _ = write!(out, ".{:03}Z", since.subsec_millis());
    }
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

    #[test]
    fn a_stamp_is_the_timestamp() {
        let mut stamp = Stamp::default();
        for millis in [0, 1, 999, 1_000, 1_001, 500, 1_700_000_000_120, 1_700_000_000_999, 1_700_000_001_000] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            let mut out = Vec::new();
            stamp.push(&mut out, time);
            assert_eq!(String::from_utf8(out).unwrap(), timestamp(time));
        }
    }
}
