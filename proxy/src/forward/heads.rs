//! Heads as we send them on: what every hop must change, and the few fields that are ours.

use std::net::IpAddr;
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_h1::{
    BodyFraming, FieldKind, Framing, KindSet, Persistence, RequestHead, ResponseHead, Rewrite, Version, encode_request,
    encode_response,
};

use super::reply::Delivery;
use crate::report::Direction;
use crate::trace::Trace;

/// What goes into a request beside what the caller wrote.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// Which way the call goes.
    pub direction: Direction,
    /// Who called.
    pub peer: IpAddr,
    /// What is left of the deadline, if one is to be sent.
    pub remaining: Option<Duration>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Identifiers that the caller did not bring.
    pub trace: &'a Trace,
}

const DEADLINES: KindSet = KindSet::of(&[FieldKind::GrpcTimeout, FieldKind::XEnvoyExpectedRqTimeoutMs]);
const OURS: KindSet = KindSet::of(&[FieldKind::XPlimsoll, FieldKind::XPlimsollRetry]);

/// Appends the head of one attempt to `out`.
pub fn put_request(head: &RequestHead, buf: &[u8], facts: &RequestFacts<'_>, out: &mut BytesMut) {
    let mut added = Added::default();
    let mut drop = KindSet::EMPTY;
    let (mut millis, mut attempt) = ([0; 20], [0; 20]);
    if let Some(remaining) = facts.remaining {
        drop = drop.and(DEADLINES);
        let is_grpc = head.fields.contains(FieldKind::GrpcTimeout);
        let value = decimal(
            &mut millis,
            u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX).max(1),
            if is_grpc { b"m" } else { b"" },
        );
        added.push(if is_grpc { FieldKind::GrpcTimeout } else { FieldKind::XEnvoyExpectedRqTimeoutMs }, value);
    }
    if facts.attempt > 1 {
        drop = drop.with(FieldKind::XEnvoyAttemptCount);
        added.push(FieldKind::XEnvoyAttemptCount, decimal(&mut attempt, u64::from(facts.attempt), b""));
    }
    if let Some(traceparent) = facts.trace.traceparent() {
        added.push(FieldKind::Traceparent, traceparent);
    }
    if let Some(request_id) = facts.trace.request_id() {
        added.push(FieldKind::XRequestId, request_id);
    }
    let forwarded_for;
    if facts.direction == Direction::Inbound {
        drop = drop.and(OURS).with(FieldKind::XForwardedFor);
        forwarded_for = append_peer(head, buf, facts.peer);
        added.push(FieldKind::XForwardedFor, &forwarded_for);
    }
    encode_request(head, buf, &Rewrite { drop, add: added.as_slice(), ..Rewrite::default() }, out);
}

/// Appends the final head of an answer for the caller, and says how its body is delivered.
pub fn put_response(
    head: &ResponseHead,
    buf: &[u8],
    caller: Version,
    keep_alive: bool,
    retries_over: bool,
    out: &mut BytesMut,
) -> Delivery {
    let (framing, delivery) = match (head.framing, caller) {
        (BodyFraming::UntilClose, Version::Http11) => (Framing::Replaced(BodyFraming::Chunked), Delivery::InChunks),
        (BodyFraming::Chunked, Version::Http10) => (Framing::Replaced(BodyFraming::UntilClose), Delivery::AsTheyAre),
        _ => (Framing::Unchanged, Delivery::AsTheyAre),
    };
    let persistence = match (keep_alive, caller) {
        (false, _) => Persistence::Close,
        (true, Version::Http11) => Persistence::Silent,
        (true, Version::Http10) => Persistence::KeepAlive,
    };
    let no_retry: &[(&[u8], &[u8])] = &[(b"x-plimsoll-retry", b"no")];
    let (mut drop, add) = if retries_over { (OURS, no_retry) } else { (KindSet::EMPTY, &[][..]) };
    if caller == Version::Http10 {
        // Also where it only says what GET would have got (RFC 9112 6.1).
        drop = drop.with(FieldKind::TransferEncoding);
    }
    encode_response(head, buf, &Rewrite { drop, add, framing, persistence, ..Rewrite::default() }, out);
    delivery
}

/// Appends an interim head (RFC 9110 15.2).
pub fn put_interim(head: &ResponseHead, buf: &[u8], out: &mut BytesMut) {
    encode_response(head, buf, &Rewrite::default(), out);
}

/// Whether a body of this framing can be delivered to this caller on a connection that lives on.
#[must_use]
pub fn delimits(framing: BodyFraming, caller: Version) -> bool {
    caller == Version::Http11 || !matches!(framing, BodyFraming::UntilClose | BodyFraming::Chunked)
}

/// The fields that are added to a request: few enough to live on the stack.
#[derive(Default)]
struct Added<'a> {
    fields: [(&'a [u8], &'a [u8]); 6],
    count: usize,
}

impl<'a> Added<'a> {
    fn push(&mut self, kind: FieldKind, value: &'a [u8]) {
        self.fields[self.count] = (kind.name().as_bytes(), value);
        self.count += 1;
    }

    fn as_slice(&self) -> &[(&'a [u8], &'a [u8])] {
        &self.fields[..self.count]
    }
}

fn append_peer(head: &RequestHead, buf: &[u8], peer: IpAddr) -> Vec<u8> {
    let mut list = Vec::with_capacity(48);
    for field in head.fields.all(FieldKind::XForwardedFor).filter(|field| !field.hop) {
        list.extend_from_slice(field.value.of(buf));
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(peer.to_string().as_bytes());
    list
}

/// Writes `number` and `unit` into the end of `digits`, without a detour over `fmt`.
fn decimal<'d>(digits: &'d mut [u8; 20], mut number: u64, unit: &[u8]) -> &'d [u8] {
    // Eight digits are what `grpc-timeout` allows; three years of milliseconds are enough for the other one too.
    number = number.min(99_999_999);
    let mut start = digits.len() - unit.len();
    digits[start..].copy_from_slice(unit);
    loop {
        start -= 1;
        digits[start] = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        assert_eq!(decimal(&mut [0; 20], 0, b""), b"0");
        assert_eq!(decimal(&mut [0; 20], 1_234, b"m"), b"1234m");
        assert_eq!(decimal(&mut [0; 20], u64::MAX, b"m"), b"99999999m");
    }
}
