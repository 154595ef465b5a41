//! A refusal as an answer on a stream of HTTP/2: of HTTP, or of gRPC.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use plimsoll_h1::{Decoded, FieldKind, KindSet, Limits, Method, ResponseHead, decode_response};
use plimsoll_resilience::codes::GrpcCode;

use super::{AnswerForm, Pushback, Refusal, proxy_status, row_of, wording, write_answer};
use crate::streams::fields;

/// The answer and its body, in the words of [`write_answer`].
#[must_use]
pub fn stream_answer(refusal: &Refusal<'_>, form: &AnswerForm) -> (Response<()>, Bytes) {
    let mut text = Vec::new();
    write_answer(&mut text, refusal, form);
    let mut head = ResponseHead::default();
    let Ok(Decoded::Complete { len }) = decode_response(&text, Method::Get, &Limits::default(), &mut head) else {
        unreachable!("an answer of ours is one")
    };
    let response = fields::response(&head, &text, KindSet::EMPTY, &[]);
    (response, Bytes::from(text).slice(len..))
}

/// An answer of gRPC with nothing but its end (gRPC over HTTP/2, "Trailers-Only"). `repeatable`: the caller may safely
/// send the call again.
#[must_use]
pub fn grpc_answer(refusal: &Refusal<'_>, local: bool, repeatable: bool) -> Response<()> {
    let row = row_of(refusal.reason);
    let mut fields = HeaderMap::with_capacity(6);
    fields.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    // A reason without a code of gRPC comes before anything is known of the request.
    let code = row.grpc.unwrap_or(GrpcCode::Internal).number();
    fields.insert(FieldKind::GrpcStatus.name(), HeaderValue::from(u16::from(code)));
    let mut line = String::with_capacity(128);
    wording::push_line(&mut line, refusal, local);
    insert(&mut fields, FieldKind::GrpcMessage, &percent_encoded(line.trim_end()));
    let mut status = String::with_capacity(160);
    proxy_status::push_value(&mut status, refusal, local);
    insert(&mut fields, FieldKind::ProxyStatus, &status);
    if let Some(pushback) = pushback(row.pushback, refusal, repeatable) {
        insert(&mut fields, FieldKind::GrpcRetryPushbackMs, &pushback);
    }
    let mut response = Response::new(());
    *response.headers_mut() = fields;
    response
}

fn pushback(rule: Pushback, refusal: &Refusal<'_>, repeatable: bool) -> Option<String> {
    let never = || Some("-1".to_owned());
    match rule {
        _ if refusal.retries_spent => never(),
        Pushback::Silent => None,
        Pushback::Never => never(),
        Pushback::NeverUnlessRepeatable => (!repeatable).then(never).flatten(),
        Pushback::After => {
            let wait = refusal.retry_after.map_or(1000, |wait| wait.as_millis().clamp(1, u128::from(u32::MAX)));
            Some(wait.to_string())
        }
    }
}

fn insert(fields: &mut HeaderMap, kind: FieldKind, value: &str) {
    // Text of ours, in ASCII; one that is none all the same is left out rather than the whole answer.
    if let Ok(value) = HeaderValue::from_str(value) {
        fields.insert(kind.name(), value);
    }
}

/// As gRPC wants its messages: every byte outside of printable ASCII, and the percent sign, as `%XX`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use plimsoll_h1::Persistence;
    use plimsoll_resilience::Reason;

    use super::*;

    fn field(response: &Response<()>, name: &str) -> Option<String> {
        response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn grpc_is_told_status_message_and_what_to_do() {
        let refusal = Refusal { policy: Some("shop/fraud-api"), ..Refusal::new(Reason::BulkheadFull) };
        let answer = grpc_answer(&refusal, true, false);
        assert_eq!(answer.status(), 200);
        assert_eq!(field(&answer, "grpc-status").as_deref(), Some("14"));
        assert_eq!(field(&answer, "grpc-retry-pushback-ms").as_deref(), Some("-1"));
        assert!(field(&answer, "grpc-message").unwrap().contains("shop/fraud-api"));
        assert!(field(&answer, "proxy-status").unwrap().contains("reason=BulkheadFull"));
    }

    #[test]
    fn pushback_follows_the_table() {
        let after = Refusal { retry_after: Some(Duration::from_millis(250)), ..Refusal::new(Reason::Shed) };
        let spent = Refusal { retries_spent: true, ..Refusal::new(Reason::ConnectFailure) };
        for (refusal, repeatable, expected) in [
            (after, false, Some("250")),
            (Refusal::new(Reason::Shed), false, Some("1000")),
            (Refusal::new(Reason::UpstreamReset), false, Some("-1")),
            (Refusal::new(Reason::UpstreamReset), true, None),
            (Refusal::new(Reason::ConnectFailure), false, None),
            (spent, true, Some("-1")),
        ] {
            let answer = grpc_answer(&refusal, true, repeatable);
            assert_eq!(field(&answer, "grpc-retry-pushback-ms").as_deref(), expected, "{refusal:?}");
        }
    }

    #[test]
    fn http_is_told_the_same_as_over_a_connection() {
        let form = AnswerForm {
            head_request: false,
            persistence: Persistence::Silent,
            problem: false,
            local: true,
            date: SystemTime::UNIX_EPOCH,
        };
        let (answer, body) = stream_answer(&Refusal::new(Reason::CircuitOpen), &form);
        assert_eq!(answer.status(), 503);
        assert_eq!(field(&answer, "content-length"), Some(body.len().to_string()));
        assert_eq!(field(&answer, "retry-after").as_deref(), Some("1"));
        assert!(body.ends_with(b"\n"));
    }

    #[test]
    fn messages_are_encoded() {
        assert_eq!(percent_encoded("50% of é"), "50%25 of %C3%A9");
    }
}
