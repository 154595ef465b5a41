//! Identifiers by which a call can be followed: `traceparent` (W3C Trace Context) and `x-request-id`, made where the
//! caller brought none.

use plimsoll_h1::{FieldKind, RequestHead};
use plimsoll_resilience::random::Random;

/// Length of `00-<32 hex digits>-<16>-<2>`.
const TRACEPARENT: usize = 55;
/// Length of a UUID with its hyphens.
const REQUEST_ID: usize = 36;

/// The identifiers of one call.
#[derive(Clone, Debug)]
pub struct Trace {
    traceparent: [u8; TRACEPARENT],
    request_id: [u8; REQUEST_ID],
    makes_traceparent: bool,
    makes_request_id: bool,
}

impl Trace {
    /// Those of the call with this head, new ones where it has none.
    #[must_use]
    pub fn of(head: &RequestHead, buf: &[u8], random: &mut Random) -> Self {
        let fields = &head.fields;
        let mut trace = Self {
            traceparent: [b'0'; TRACEPARENT],
            request_id: [b'-'; REQUEST_ID],
            makes_traceparent: false,
            makes_request_id: false,
        };
        match fields.value(FieldKind::Traceparent, buf) {
            Some(theirs) if theirs.len() >= TRACEPARENT => trace.traceparent.copy_from_slice(&theirs[..TRACEPARENT]),
            // Present but no traceparent: passed on as it is, and the log has no trace id.
            Some(_) => {}
            None => trace.make_traceparent(random),
        }
        if !fields.contains(FieldKind::XRequestId) {
            trace.make_request_id(random);
        }
        trace
    }

    /// The `traceparent` to add, if the caller brought none.
    #[must_use]
    pub fn traceparent(&self) -> Option<&[u8]> {
        self.makes_traceparent.then_some(&self.traceparent[..])
    }

    /// The `x-request-id` to add, if the caller brought none.
    #[must_use]
    pub fn request_id(&self) -> Option<&[u8]> {
        self.makes_request_id.then_some(&self.request_id[..])
    }

    /// The trace id in force, as 32 hexadecimal digits; empty when what the caller sent is none.
    #[must_use]
    pub fn id(&self) -> &str {
        let id = &self.traceparent[3..35];
        let is_id =
            self.makes_traceparent || id.iter().all(u8::is_ascii_hexdigit) && id.iter().any(|digit| *digit != b'0');
        if is_id { str::from_utf8(id).unwrap_or("") } else { "" }
    }

    fn make_traceparent(&mut self, random: &mut Random) {
        self.makes_traceparent = true;
        self.traceparent[2] = b'-';
        hex(random.next_u64() | 1, &mut self.traceparent[3..19]);
        hex(random.next_u64(), &mut self.traceparent[19..35]);
        self.traceparent[35] = b'-';
        // All zeroes is not an id.
        hex(random.next_u64() | 1, &mut self.traceparent[36..52]);
        // Flags 00: whoever samples has not been asked.
        self.traceparent[52] = b'-';
    }

    fn make_request_id(&mut self, random: &mut Random) {
        self.makes_request_id = true;
        // RFC 9562 5.4: version 4, variant 10.
        let high = random.next_u64() & !0xf000 | 0x4000;
        let low = random.next_u64() & !(0b11 << 62) | 0b10 << 62;
        let id = &mut self.request_id;
        hex(high >> 32, &mut id[0..8]);
        hex(high >> 16, &mut id[9..13]);
        hex(high, &mut id[14..18]);
        hex(low >> 48, &mut id[19..23]);
        hex(low, &mut id[24..36]);
    }
}

/// The last `digits.len()` hexadecimal digits of `value`; an even number of them.
fn hex(mut value: u64, digits: &mut [u8]) {
    for pair in digits.as_rchunks_mut::<2>().1.iter_mut().rev() {
        *pair = PAIRS[(value & 0xff) as usize];
        value >>= 8;
    }
}

/// Both digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 0xf]];
        byte += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use plimsoll_h1::{Limits, decode_request};

    use super::*;

    fn trace(fields: &str) -> Trace {
        let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        let mut head = RequestHead::default();
        decode_request(text.as_bytes(), &Limits::default(), &mut head).unwrap();
        Trace::of(&head, text.as_bytes(), &mut Random::new(7))
    }

    #[test]
    fn identifiers_are_made_where_there_are_none() {
        let made = trace("");
        let traceparent = str::from_utf8(made.traceparent().unwrap()).unwrap();
        let parts: Vec<&str> = traceparent.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2]);
        assert!(parts.iter().all(|part| part.bytes().all(|digit| digit.is_ascii_hexdigit())));
        assert_eq!(made.id(), parts[1]);
        let request_id = str::from_utf8(made.request_id().unwrap()).unwrap();
        assert_eq!(request_id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&request_id[14..15], "4");
    }

    #[test]
    fn what_the_caller_brought_is_kept() {
        let theirs = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nx-request-id: mine\r\n";
        let kept = trace(theirs);
        assert_eq!(kept.traceparent(), None);
        assert_eq!(kept.request_id(), None);
        assert_eq!(kept.id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace("traceparent: rubbish\r\n").id(), "");
    }
}
