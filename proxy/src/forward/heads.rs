//! Heads as we send them on: what every hop must change, and the few fields that are ours.

use std::net::IpAddr;
use std::time::Duration;

use bytes::BytesMut;
use http::{HeaderMap, Uri};
use plimsoll_h1::{
    BodyFraming, FieldKind, Framing, KindSet, Persistence, RequestHead, ResponseHead, Rewrite, Version, encode_request,
    encode_response,
};

use super::reply::Delivery;
use crate::deadline;
use crate::report::Direction;
use crate::streams::fields;
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
    /// The call is gRPC.
    pub grpc: bool,
    /// The `Sec-WebSocket-Key` that HTTP/1.1 wants and HTTP/2 does not have (RFC 8441 5).
    pub websocket_key: Option<[u8; 24]>,
    /// Identifiers that the caller did not bring.
    pub trace: &'a Trace,
}

const DEADLINES: KindSet = KindSet::of(&[FieldKind::GrpcTimeout, FieldKind::XEnvoyExpectedRqTimeoutMs]);
const OURS: KindSet = KindSet::of(&[FieldKind::XPlimsoll, FieldKind::XPlimsollRetry]);

/// Appends the head of one attempt to `out`; `bare`: its body comes without the framing of HTTP/1.1.
pub fn put_request(head: &RequestHead, buf: &[u8], facts: &RequestFacts<'_>, bare: bool, out: &mut BytesMut) {
    let anew = bare && head.framing == BodyFraming::Chunked;
    let framing = if anew { Framing::Replaced(BodyFraming::Chunked) } else { Framing::Unchanged };
    with_request_changes(head, buf, facts, |drop, add| {
        let mut all = [(&b""[..], &b""[..]); MOST_ADDED + 1];
        all[..add.len()].copy_from_slice(add);
        let mut count = add.len();
        if let Some(key) = &facts.websocket_key {
            all[count] = (b"sec-websocket-key", key);
            count += 1;
        }
        encode_request(head, buf, &Rewrite { drop, add: &all[..count], framing, ..Rewrite::default() }, out);
    });
}

/// The head of one attempt for HTTP/2. `received`: what HTTP/2 brought of it, if it did.
///
/// # Errors
/// When HTTP/2 has no words for it.
pub fn stream_request(
    head: &RequestHead,
    buf: &[u8],
    received: Option<(HeaderMap, Uri)>,
    facts: &RequestFacts<'_>,
    scheme: &str,
) -> Result<http::Request<()>, http::Error> {
    with_request_changes(head, buf, facts, |drop, add| match received {
        Some((mut map, uri)) => {
            fields::edit(&mut map, drop, add);
            fields::request_with(head, buf, map, scheme, Some(uri))
        }
        None => fields::request(head, buf, drop, add, scheme),
    })
}

/// Calls `put` with the kinds of fields that are left out of an attempt's head, and what is added to it.
fn with_request_changes<T>(
    head: &RequestHead,
    buf: &[u8],
    facts: &RequestFacts<'_>,
    put: impl FnOnce(KindSet, &[NewField<'_>]) -> T,
) -> T {
    let mut added = Added::default();
    let mut drop = KindSet::EMPTY;
    let (mut millis, mut attempt, mut previous) = ([0; 20], [0; 20], [0; 20]);
    if let Some(remaining) = facts.remaining {
        drop = drop.and(DEADLINES);
        let is_grpc = facts.grpc || head.fields.contains(FieldKind::GrpcTimeout);
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
        if facts.grpc {
            drop = drop.with(FieldKind::GrpcPreviousRpcAttempts);
            let before = deadline::previous_attempts(head, buf).saturating_add(u64::from(facts.attempt - 1));
            added.push(FieldKind::GrpcPreviousRpcAttempts, decimal(&mut previous, before, b""));
        }
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
    put(drop, added.as_slice())
}

/// What is said to a caller about retries, where this side has spent its own.
const NO_RETRY: &[NewField<'_>] = &[(b"x-plimsoll-retry", b"no")];

/// Name and value.
type NewField<'a> = (&'a [u8], &'a [u8]);

fn response_changes(retries_over: bool) -> (KindSet, &'static [NewField<'static>]) {
    if retries_over { (OURS, NO_RETRY) } else { (KindSet::EMPTY, &[]) }
}

/// The final head of an answer for HTTP/2. `fields`: as HTTP/2 brought them, if it did.
#[must_use]
pub fn stream_response(
    head: &ResponseHead,
    buf: &[u8],
    fields: Option<HeaderMap>,
    retries_over: bool,
) -> http::Response<()> {
    let (drop, add) = response_changes(retries_over);
    match fields {
        Some(mut map) => {
            fields::edit(&mut map, drop, add);
            fields::response_with(head, map)
        }
        None => fields::response(head, buf, drop, add),
    }
}

/// Appends the final head of an answer for the caller, and says how its body is delivered; `bare`: it comes without the
/// framing of HTTP/1.1.
pub fn put_response(
    head: &ResponseHead,
    buf: &[u8],
    bare: bool,
    caller: Version,
    keep_alive: bool,
    retries_over: bool,
    out: &mut BytesMut,
) -> Delivery {
    let (framing, delivery) = match (head.framing, caller) {
        (BodyFraming::Chunked, Version::Http11) if bare => {
            (Framing::Replaced(BodyFraming::Chunked), Delivery::InChunks)
        }
        (BodyFraming::UntilClose, Version::Http11) => (Framing::Replaced(BodyFraming::Chunked), Delivery::InChunks),
        (BodyFraming::Chunked, Version::Http10) => (Framing::Replaced(BodyFraming::UntilClose), Delivery::AsTheyAre),
        _ => (Framing::Unchanged, Delivery::AsTheyAre),
    };
    let persistence = match (keep_alive, caller) {
        (false, _) => Persistence::Close,
        (true, Version::Http11) => Persistence::Silent,
        (true, Version::Http10) => Persistence::KeepAlive,
    };
    let (mut drop, add) = response_changes(retries_over);
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

/// How many fields are added to a request at most.
const MOST_ADDED: usize = 7;

/// The fields that are added to a request: few enough to live on the stack.
#[derive(Default)]
struct Added<'a> {
    fields: [NewField<'a>; MOST_ADDED],
    count: usize,
}

impl<'a> Added<'a> {
    fn push(&mut self, kind: FieldKind, value: &'a [u8]) {
        self.fields[self.count] = (kind.name().as_bytes(), value);
        self.count += 1;
    }

    fn as_slice(&self) -> &[NewField<'a>] {
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
