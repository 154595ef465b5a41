//! What the head of an answer means for breaker, retries and back-off: the only place that reads it for them.

use std::time::{Duration, SystemTime};

use plimsoll_h1::{FieldKind, ResponseHead};
use plimsoll_resilience::codes::GrpcCode;
use plimsoll_resilience::flight::Head;
use plimsoll_resilience::rules::Rules;

use crate::forward::trailers::TrailerSection;
use crate::reject::says_pushback;

/// What `head` means under `rules`. `wall` is now, for dates.
#[must_use]
pub fn judge(head: &ResponseHead, buf: &[u8], rules: &Rules, wall: SystemTime) -> Head {
    let fields = &head.fields;
    let status = head.status;
    let retry_after = fields.value(FieldKind::RetryAfter, buf).and_then(|value| retry_after(value, wall));
    let is_refusal = status == 429 || status >= 500;
    let marked = fields.contains(FieldKind::XEnvoyOverloaded)
        || fields.all(FieldKind::ProxyStatus).any(|field| says_pushback(field.value.of(buf)));
    Head {
        failure: rules.failure_codes.contains(status),
        // What 429 needs beside its code, the flight knows.
        retry_code: rules.retry.as_ref().is_some_and(|retry| retry.config.codes.contains(status)),
        status,
        retry_after,
        pushback: status == 429 || is_refusal && marked,
        no_retry: fields.value(FieldKind::XPlimsollRetry, buf).is_some_and(|value| value.eq_ignore_ascii_case(b"no")),
        streaming: status == 101 || fields.value(FieldKind::ContentType, buf).is_some_and(is_event_stream),
        deadline_exceeded: false,
    }
}

/// The same for a gRPC answer, whose status stands in its trailers, or in its head where there is nothing else;
/// `is_whole`: nothing of it is to come.
#[must_use]
pub fn judge_grpc(
    head: &ResponseHead,
    buf: &[u8],
    trailers: Option<TrailerSection<'_>>,
    is_whole: bool,
    rules: &Rules,
    wall: SystemTime,
) -> Head {
    let of_http = judge(head, buf, rules, wall);
    let value = |kind| trailers.and_then(|section| section.value(kind)).or_else(|| head.fields.value(kind, buf));
    let status = match value(FieldKind::GrpcStatus) {
        Some(status) => GrpcCode::of_field(status),
        // Whoever ends without a status has failed in a way that nobody knows.
        None if is_whole && head.status == 200 => GrpcCode::Unknown,
        // Not there yet; or not gRPC at all, and then HTTP's word counts.
        None => return of_http,
    };
    let pushback = value(FieldKind::GrpcRetryPushbackMs).map(pushback);
    let asked_to_wait = pushback.flatten().filter(|wait| !wait.is_zero());
    Head {
        failure: rules.failure_grpc_codes.contains(status),
        retry_code: rules.retry.as_ref().is_some_and(|retry| retry.config.grpc_codes.contains(status)),
        retry_after: asked_to_wait.or(of_http.retry_after),
        pushback: status == GrpcCode::ResourceExhausted || asked_to_wait.is_some() || of_http.pushback,
        // Below zero, and whatever is no number (gRFC A6).
        no_retry: of_http.no_retry || pushback == Some(None),
        deadline_exceeded: status == GrpcCode::DeadlineExceeded,
        ..of_http
    }
}

/// When a gRPC server wants to be asked again; `None`: never.
fn pushback(value: &[u8]) -> Option<Duration> {
    let millis = str::from_utf8(value).ok()?.parse::<u32>().ok()?;
    Some(Duration::from_millis(millis.into()))
}

/// Seconds or a date (RFC 9110 10.2.3); a date in the past is now.
fn retry_after(value: &[u8], wall: SystemTime) -> Option<Duration> {
    let text = str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(wall).unwrap_or(Duration::ZERO))
}

fn is_event_stream(content_type: &[u8]) -> bool {
    content_type
        .split(|byte| *byte == b';')
        .next()
        .is_some_and(|media| media.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(retry_after(b"120", wall), Some(Duration::from_secs(120)));
        assert_eq!(retry_after(b"Sun, 06 Nov 1994 08:49:57 GMT", wall), Some(Duration::from_secs(20)));
        assert_eq!(retry_after(b"Sun, 06 Nov 1994 08:49:17 GMT", wall), Some(Duration::ZERO));
        assert_eq!(retry_after(b"99999999999999999999999", wall), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(retry_after(b"soon", wall), None);
        assert_eq!(retry_after(b"-1", wall), None);
    }
}
