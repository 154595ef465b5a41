//! What a request says about time and about being a retry.

use std::time::Duration;

use plimsoll_h1::{FieldKind, RequestHead};
use plimsoll_resilience::time::Timestamp;

/// When the caller stops waiting: `grpc-timeout` or `x-envoy-expected-rq-timeout-ms`, the earlier one, from arrival.
#[must_use]
pub fn of_caller(head: &RequestHead, buf: &[u8], arrived: Timestamp) -> Option<Timestamp> {
    let value = |kind| head.fields.value(kind, buf);
    let grpc = value(FieldKind::GrpcTimeout).and_then(grpc_timeout);
    let envoy = value(FieldKind::XEnvoyExpectedRqTimeoutMs)
        .and_then(number)
        .filter(|millis| *millis > 0)
        .map(Duration::from_millis);
    let shortest = match (grpc, envoy) {
        (Some(grpc), Some(envoy)) => Some(grpc.min(envoy)),
        (grpc, envoy) => grpc.or(envoy),
    };
    shortest.map(|left| arrived + left)
}

/// Whether the call is itself a retry of somebody further up.
#[must_use]
pub fn is_retry(head: &RequestHead, buf: &[u8]) -> bool {
    let count = |kind| head.fields.value(kind, buf).and_then(number);
    // Envoy counts attempts from 1, gRPC the ones before this.
    count(FieldKind::XEnvoyAttemptCount).is_some_and(|attempt| attempt > 1) || previous_attempts(head, buf) > 0
}

/// How many attempts a gRPC caller says to have made before this one.
#[must_use]
pub fn previous_attempts(head: &RequestHead, buf: &[u8]) -> u64 {
    head.fields.value(FieldKind::GrpcPreviousRpcAttempts, buf).and_then(number).unwrap_or(0)
}

/// At most eight digits and a unit: gRPC over HTTP/2, "Requests".
fn grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let amount = Some(digits).filter(|digits| digits.len() <= 8).and_then(number)?;
    match unit {
        b'H' => Some(Duration::from_secs(amount * 3600)),
        b'M' => Some(Duration::from_secs(amount * 60)),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use plimsoll_h1::{Limits, decode_request};

    use super::*;

    fn head(fields: &str) -> (RequestHead, String) {
        let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        let mut head = RequestHead::default();
        decode_request(text.as_bytes(), &Limits::default(), &mut head).unwrap();
        (head, text)
    }

    #[test]
    fn the_earlier_deadline_holds() {
        for (fields, expected) in [
            ("", None),
            ("grpc-timeout: 2S\r\n", Some(2_000)),
            ("grpc-timeout: 100m\r\nx-envoy-expected-rq-timeout-ms: 50\r\n", Some(50)),
            ("x-envoy-expected-rq-timeout-ms: 0\r\n", None),
            ("x-envoy-expected-rq-timeout-ms: soon\r\n", None),
            ("grpc-timeout: 123456789S\r\n", None),
            ("grpc-timeout: 1\r\n", None),
            ("grpc-timeout: m\r\n", None),
        ] {
            let (head, text) = head(fields);
            let deadline = of_caller(&head, text.as_bytes(), Timestamp::ZERO);
            assert_eq!(deadline, expected.map(|millis| Timestamp::ZERO + Duration::from_millis(millis)), "{fields}");
        }
    }

    #[test]
    fn the_first_attempt_of_an_envoy_is_no_retry() {
        for (fields, expected) in [
            ("", false),
            ("x-envoy-attempt-count: 1\r\n", false),
            ("x-envoy-attempt-count: 2\r\n", true),
            ("grpc-previous-rpc-attempts: 1\r\n", true),
        ] {
            let (head, text) = head(fields);
            assert_eq!(is_retry(&head, text.as_bytes()), expected, "{fields}");
        }
    }
}
