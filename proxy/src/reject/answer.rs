//! A refusal as a whole HTTP/1.1 answer.

use std::fmt::Write as _;
use std::time::SystemTime;

use plimsoll_h1::{FieldKind, Method, Persistence, RequestHead, Version};

use super::{LoadHint, Refusal, proxy_status, row_of, wording};

/// How the answer is to be written for this caller and this connection.
#[derive(Clone, Copy, Debug)]
pub struct AnswerForm {
    /// The request was a HEAD: the same head, no body (RFC 9110 section 9.3.2).
    pub head_request: bool,
    /// What becomes of the connection.
    pub persistence: Persistence,
    /// `Accept` names `application/problem+json` ([`AnswerForm::accepts_problem`]).
    pub problem: bool,
    /// The caller is on this machine and may see policy names and numbers.
    pub local: bool,
    /// Wall-clock time for `Date` (RFC 9110 section 6.6.1).
    pub date: SystemTime,
}

impl AnswerForm {
    /// The form for this request, or for bytes that were none.
    #[must_use]
    pub fn of(request: Option<(&RequestHead, &[u8])>, keep_alive: bool, local: bool, date: SystemTime) -> Self {
        let accept = request.and_then(|(head, buf)| head.fields.value(FieldKind::Accept, buf));
        let persistence = match request {
            Some((head, _)) if keep_alive && head.version == Version::Http10 => Persistence::KeepAlive,
            _ if keep_alive => Persistence::Silent,
            _ => Persistence::Close,
        };
        Self {
            head_request: request.is_some_and(|(head, _)| head.method == Method::Head),
            persistence,
            problem: accept.is_some_and(Self::accepts_problem),
            local,
            date,
        }
    }

    /// Whether an `Accept` value asks for `application/problem+json` by name. A wildcard does not: every client
    /// sends one, and a person in front of curl reads a line of text more easily.
    #[must_use]
    pub fn accepts_problem(accept: &[u8]) -> bool {
        accept.split(|&byte| byte == b',').any(|range| {
            let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"application/problem+json"));
            named && !parts.any(|parameter| matches!(parameter, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"))
        })
    }
}

/// Appends the whole answer, head and body, to `out`.
pub fn write_answer(out: &mut Vec<u8>, refusal: &Refusal<'_>, form: &AnswerForm) {
    let mut body = String::with_capacity(256);
    if form.problem {
        wording::push_problem(&mut body, refusal, form.local);
    } else {
        wording::push_line(&mut body, refusal, form.local);
    }
    let mut head = String::with_capacity(512);
    push_head(&mut head, refusal, form, body.len());
    out.reserve(head.len() + body.len());
    out.extend_from_slice(head.as_bytes());
    if !form.head_request {
        out.extend_from_slice(body.as_bytes());
    }
}

fn push_head(head: &mut String, refusal: &Refusal<'_>, form: &AnswerForm, body_length: usize) {
    let status = refusal.status();
    let media = if form.problem { "application/problem+json" } else { "text/plain; charset=utf-8" };
    // Writing to a String cannot fail.
    let _ = write!(
        head,
        "HTTP/1.1 {status} {}\r\nDate: {}\r\nContent-Type: {media}\r\nContent-Length: {body_length}\r\nProxy-Status: ",
        phrase(status),
        httpdate::HttpDate::from(form.date),
    );
    proxy_status::push_value(head, refusal, form.local);
    head.push_str("\r\n");
    if let Some(seconds) = refusal.retry_after_seconds() {
        let _ = write!(head, "Retry-After: {seconds}\r\n");
    }
    if status == 429 {
        head.push_str("Cache-Control: no-store\r\n");
    }
    match row_of(refusal.reason).hint {
        LoadHint::None => {}
        LoadHint::Overloaded => head.push_str("x-envoy-overloaded: true\r\n"),
        LoadHint::RateLimited => head.push_str("x-envoy-ratelimited: true\r\n"),
    }
    if refusal.retries_spent {
        head.push_str("x-plimsoll-retry: no\r\n");
    }
    match form.persistence {
        Persistence::Silent => {}
        Persistence::Close => head.push_str("Connection: close\r\n"),
        Persistence::KeepAlive => head.push_str("Connection: keep-alive\r\n"),
    }
    head.push_str("\r\n");
}

/// Reason phrases of the statuses that the table or a kept answer may bring; any other goes out without one, which
/// RFC 9112 section 4 allows.
fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        499 => "Client Closed Request",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_resilience::Reason;

    use super::super::Numbers;
    use super::*;

    const FORM: AnswerForm = AnswerForm {
        head_request: false,
        persistence: Persistence::Silent,
        problem: false,
        local: true,
        date: SystemTime::UNIX_EPOCH,
    };

    fn circuit_open() -> Refusal<'static> {
        Refusal {
            policy: Some("shop/fraud-api"),
            block: Some("circuitBreaker"),
            generation: Some("local-7"),
            retry_after: Some(Duration::from_millis(3_001)),
            ..Refusal::new(Reason::CircuitOpen)
        }
    }

    fn answer(refusal: &Refusal<'_>, form: &AnswerForm) -> String {
        let mut out = Vec::new();
        write_answer(&mut out, refusal, form);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_of_text_for_people() {
        insta::assert_snapshot!(answer(&circuit_open(), &FORM));
    }

    #[test]
    fn problem_json_when_it_is_named() {
        insta::assert_snapshot!(answer(
            &circuit_open(),
            &AnswerForm { problem: true, persistence: Persistence::Close, ..FORM }
        ));
    }

    #[test]
    fn strangers_learn_no_names_and_no_numbers() {
        let refusal = Refusal { numbers: Some(Numbers { observed: 77, limit: 50 }), ..circuit_open() };
        for problem in [false, true] {
            let text = answer(&refusal, &AnswerForm { local: false, problem, ..FORM });
            for secret in ["shop", "fraud", "circuitBreaker", "local-7", "77"] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
            assert!(text.contains("reason=CircuitOpen"));
        }
    }

    #[test]
    fn head_has_the_length_but_not_the_body() {
        let whole = answer(&circuit_open(), &FORM);
        let head = answer(&circuit_open(), &AnswerForm { head_request: true, ..FORM });
        let (want, body) = whole.split_once("\r\n\r\n").unwrap();
        assert_eq!(head, format!("{want}\r\n\r\n"));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    }

    #[test]
    fn retry_after_is_whole_seconds_rounded_up_and_never_zero() {
        for (wait, want) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (3_000, 3)] {
            let refusal = Refusal { retry_after: Some(Duration::from_millis(wait)), ..circuit_open() };
            assert_eq!(refusal.retry_after_seconds(), Some(want), "{wait} ms");
        }
        let silent = Refusal { retry_after: Some(Duration::from_secs(9)), ..Refusal::new(Reason::BulkheadFull) };
        assert_eq!(silent.retry_after_seconds(), None);
    }

    #[test]
    fn only_limits_and_shedding_are_marked_as_overload() {
        let marked = |reason| answer(&Refusal::new(reason), &FORM).contains("x-envoy-overloaded: true");
        assert!(marked(Reason::BulkheadFull) && marked(Reason::BulkheadWaitTimeout) && marked(Reason::Shed));
        assert!(!marked(Reason::CircuitOpen) && !marked(Reason::RateLimited) && !marked(Reason::RequestTimeout));
    }

    #[test]
    fn every_answer_is_framed_whatever_the_reason() {
        for &reason in Reason::ALL.iter() {
            for problem in [false, true] {
                let text = answer(&Refusal::new(reason), &AnswerForm { problem, ..FORM });
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                assert!(head.starts_with(&format!("HTTP/1.1 {} ", row_of(reason).status)), "{reason:?}");
                assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{reason:?}");
                assert_eq!(head.contains("\r\nRetry-After: "), row_of(reason).retry_after, "{reason:?}");
                if !problem {
                    assert_eq!(body.matches('\n').count(), 1, "one line: {body:?}");
                }
            }
        }
    }

    #[test]
    fn accept_names_problem_json_or_does_not() {
        assert!(AnswerForm::accepts_problem(b"text/html, Application/Problem+JSON;q=0.5"));
        assert!(!AnswerForm::accepts_problem(b"*/*"));
        assert!(!AnswerForm::accepts_problem(b"application/problem+json;q=0"));
        assert!(!AnswerForm::accepts_problem(b"application/json"));
    }
}
