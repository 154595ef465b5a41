//! The words of a refusal: what happened, the numbers, what can be done.

use std::fmt::{self, Write as _};

use plimsoll_resilience::{Cause, Reason, breaker};
use serde::Serialize;

use super::{Numbers, Refusal};

/// Appends one line of text, with its line feed.
pub(super) fn push_line(out: &mut String, refusal: &Refusal<'_>, local: bool) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "plimsoll: {}: {}", refusal.reason.as_str(), Sentence { refusal, local });
}

/// Appends an RFC 9457 problem document.
pub(super) fn push_problem(out: &mut String, refusal: &Refusal<'_>, local: bool) {
    let shown = |value| if local { value } else { None };
    let numbers = if local { refusal.measured() } else { None };
    let problem = Problem {
        title: refusal.reason.as_str(),
        status: refusal.status(),
        detail: Sentence { refusal, local }.to_string(),
        reason: refusal.reason.as_str(),
        policy: shown(refusal.policy),
        route: shown(refusal.route),
        block: shown(refusal.block),
        observed: numbers.map(|numbers| numbers.observed),
        limit: numbers.map(|numbers| numbers.limit),
        generation: shown(refusal.generation),
        retry_after: refusal.retry_after_seconds(),
    };
    out.push_str(&serde_json::to_string(&problem).expect("text and numbers always serialize"));
}

/// RFC 9457; `type` is left out, which means `about:blank`, since no page stands behind one.
#[derive(Serialize)]
struct Problem<'a> {
    title: &'a str,
    status: u16,
    detail: String,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// What happened and what can be done about it; for strangers without names and numbers.
struct Sentence<'a> {
    refusal: &'a Refusal<'a>,
    local: bool,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusal {
            _ if self.local => self.local_sentence(f),
            Refusal { cause: Some(Cause::Connections), .. } => {
                f.write_str("as many connections as are allowed are open; nothing was sent")
            }
            refusal => f.write_str(stranger_sentence(refusal.reason)),
        }
    }
}

impl Sentence<'_> {
    fn local_sentence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = self.refusal;
        let who = refusal.policy.unwrap_or("the destination");
        match (refusal.reason, refusal.measured()) {
            (reason, Some(numbers)) if matches!(refusal.cause, Some(Cause::Connections | Cause::ConnectionRate)) => {
                connections(f, who, reason, numbers)
            }
            (Reason::BulkheadFull, Some(Numbers { observed, limit })) => write!(
                f,
                "{who}{} has {observed} calls in flight and {limit} are allowed; nothing was sent. If the dependency can take more, raise bulkhead.maxConcurrentCalls",
                Route(refusal.route)
            ),
            (Reason::BulkheadWaitTimeout, Some(Numbers { observed, limit })) => write!(
                f,
                "{who}{} has {observed} calls in flight, {limit} are allowed, and none of them ended within bulkhead.maxWaitDuration; nothing was sent. Raise bulkhead.maxConcurrentCalls, or make the dependency faster",
                Route(refusal.route)
            ),
            (Reason::CircuitOpen, _) => self.circuit_open(f, who),
            (
                Reason::RequestTimeout | Reason::AttemptTimeout | Reason::IdleTimeout | Reason::DeadlineExpired,
                Some(Numbers { observed, limit }),
            ) => write!(
                f,
                "{}{who}: {observed} ms of {limit} ms used. {}",
                prefix(refusal.reason),
                advice(refusal.reason)
            ),
            (Reason::RetriesExhausted | Reason::RetryBudgetExhausted, _) => self.retries_over(f, who),
            (Reason::HeadersTooLarge, _) if refusal.status == Some(414) => {
                f.write_str("the request target is too long")?;
                self.size(f)
            }
            (Reason::HeadersTooLarge | Reason::BodyTooLarge, _) => {
                f.write_str(stranger_sentence(refusal.reason))?;
                self.size(f)
            }
            (reason, _) => {
                if refusal.policy.is_some() {
                    write!(f, "{who}: ")?;
                }
                match (reason, refusal.detail) {
                    (Reason::ConnectFailure | Reason::DnsFailure | Reason::TlsFailure, Some(detail)) => {
                        write!(f, "{}: {detail}", stranger_sentence(reason))?;
                    }
                    (reason, detail) => f.write_str(detail.unwrap_or(stranger_sentence(reason)))?,
                }
                let advice = advice(reason);
                if advice.is_empty() { Ok(()) } else { write!(f, ". {advice}") }
            }
        }
    }

    fn retries_over(&self, f: &mut fmt::Formatter<'_>, who: &str) -> fmt::Result {
        write!(f, "{who}{}: ", Route(self.refusal.route))?;
        match (self.refusal.reason, self.refusal.measured()) {
            (Reason::RetriesExhausted, Some(Numbers { observed, limit })) => {
                write!(f, "{observed} of {limit} attempts failed")?;
            }
            (Reason::RetryBudgetExhausted, Some(Numbers { observed, limit })) => {
                write!(f, "the attempt failed and the budget is spent: {observed} retries, and it allows {limit}")?;
            }
            (reason, _) => f.write_str(stranger_sentence(reason))?,
        }
        let Some(behind) = Behind::of(self.refusal) else { return Ok(()) };
        write!(f, "; {behind}")?;
        match behind.cause {
            Cause::Attempt(reason) if !advice(reason).is_empty() => write!(f, ". {}", advice(reason)),
            _ => Ok(()),
        }
    }

    fn circuit_open(&self, f: &mut fmt::Formatter<'_>, who: &str) -> fmt::Result {
        write!(f, "the breaker of {who}{} is open", Route(self.refusal.route))?;
        if let Some(behind) = Behind::of(self.refusal) {
            write!(f, " ({behind})")?;
        }
        f.write_str("; nothing was sent. ")?;
        if let Some(seconds) = self.refusal.retry_after_seconds() {
            write!(f, "It is tried again in about {seconds} s; ")?;
        }
        f.write_str("`plimsoll circuits` shows how it stands")
    }

    fn size(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusal.measured() {
            Some(Numbers { observed, limit }) => {
                write!(f, ": {observed}, and at most {limit} are read")
            }
            None => Ok(()),
        }
    }
}

/// Limits on connections. They refuse opaque connections as well, for which only the decision log has words.
fn connections(f: &mut fmt::Formatter<'_>, who: &str, reason: Reason, numbers: Numbers) -> fmt::Result {
    let Numbers { observed, limit } = numbers;
    match reason {
        Reason::RateLimited => write!(
            f,
            "new connections to {who} came too fast: {observed} in the interval of bulkhead.connectionRate, which allows {limit}; this one was not made. If it can take them faster, raise the rate"
        ),
        Reason::BulkheadWaitTimeout => write!(
            f,
            "{who} has {observed} of at most {limit} connections open, and none became free within bulkhead.maxWaitDuration; nothing was sent. If the dependency can take more, raise bulkhead.maxConnections"
        ),
        _ => write!(
            f,
            "{who} has {observed} of at most {limit} connections open; nothing was sent. If the dependency can take more, raise bulkhead.maxConnections"
        ),
    }
}

/// What is behind a reason, with the numbers in its own unit.
pub(super) struct Behind<'a> {
    cause: Cause,
    numbers: Option<Numbers>,
    detail: Option<&'a str>,
}

impl<'a> Behind<'a> {
    pub(super) fn of(refusal: &Refusal<'a>) -> Option<Self> {
        Some(Behind { cause: refusal.cause?, numbers: refusal.measured(), detail: refusal.detail })
    }
}

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::Attempt(reason) => {
                write!(f, "the last attempt: {reason}, {}", stranger_sentence(reason))?;
                return self.detail.map_or(Ok(()), |detail| write!(f, ": {detail}"));
            }
            Cause::Connections => return f.write_str("bulkhead.maxConnections: connections are counted, not calls"),
            Cause::ConnectionRate => {
                return f.write_str("bulkhead.connectionRate: new connections are counted, not calls");
            }
            Cause::Breaker(cause) => cause,
        };
        match (cause, self.numbers) {
            (breaker::Cause::FailureRate, Some(Numbers { observed, limit })) => {
                write!(f, "{observed} % of the calls had failed, and it opens at {limit} %")
            }
            (breaker::Cause::SlowCallRate, Some(Numbers { observed, limit })) => {
                write!(f, "{observed} % of the calls were slow, and it opens at {limit} %")
            }
            (breaker::Cause::ConsecutiveFailures, Some(Numbers { observed, limit })) => {
                write!(f, "{observed} calls in a row had failed, and it opens at {limit}")
            }
            (breaker::Cause::WaitOver, Some(Numbers { observed, limit })) => {
                write!(f, "half-open, {observed} of {limit} places for probes are taken")
            }
            (breaker::Cause::ProbeFailed, _) => f.write_str("the last probe failed"),
            (breaker::Cause::ProbeSlow, _) => f.write_str("the last probe was slow"),
            (breaker::Cause::ProbeOverdue, _) => f.write_str("the last probe had not ended in time"),
            (breaker::Cause::Forced, _) => f.write_str("an operator has forced it open"),
            (other, _) => f.write_str(other.as_str()),
        }
    }
}

/// ` (route charge)`, or nothing.
struct Route<'a>(Option<&'a str>);

impl fmt::Display for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(route) => write!(f, " (route {route})"),
            None => Ok(()),
        }
    }
}

const fn prefix(reason: Reason) -> &'static str {
    match reason {
        Reason::RequestTimeout => "the call took too long at ",
        Reason::AttemptTimeout => "the last attempt took too long at ",
        Reason::IdleTimeout => "no byte moved for too long at ",
        _ => "the caller's own deadline has passed at ",
    }
}

/// What the reader can do; empty where the sentence has said it.
const fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::RequestTimeout => "See why it is slow, or raise timeouts.request",
        Reason::AttemptTimeout => "See why it is slow, or raise timeouts.attempt",
        Reason::IdleTimeout => "Raise timeouts.idle if such silence is normal here",
        Reason::DeadlineExpired => "The caller gave less time than this takes",
        Reason::NoHealthyEndpoint => "`plimsoll endpoints` lists them",
        Reason::ConnectFailure => "Is it running, and is the address right?",
        Reason::DnsFailure => "Check the name in the policy or in the request",
        Reason::UpstreamReset => "It may have been acted on: look at the dependency's log before you send it again",
        Reason::NoRoute => "Check the host that is called, or add it to a policy's target.hosts",
        Reason::Loop => "The destination is a listener of this proxy itself; check the address that is called",
        _ => "",
    }
}

/// What a stranger is told, and what everybody is told when there is nothing more to say.
const fn stranger_sentence(reason: Reason) -> &'static str {
    match reason {
        Reason::RateLimited => "too many requests; come back after the time in Retry-After",
        Reason::BulkheadFull | Reason::ConcurrencyLimited => {
            "as many calls as are allowed are in flight; nothing was sent"
        }
        Reason::BulkheadWaitTimeout => "no place became free in time; nothing was sent",
        Reason::Shed => "the service is busy with more important calls",
        Reason::Overloaded => "the proxy is out of memory or descriptors",
        Reason::CircuitOpen => "the breaker is open; nothing was sent",
        Reason::NoHealthyEndpoint => "no endpoint can take the call",
        Reason::ConnectFailure => "no connection could be made",
        Reason::DnsFailure => "the name could not be resolved",
        Reason::TlsFailure => "the TLS handshake failed",
        Reason::UpstreamReset => "the connection ended before the answer did",
        Reason::UpstreamProtocolError => "the answer was not valid HTTP",
        Reason::RequestTimeout => "the call took too long",
        Reason::AttemptTimeout => "the last attempt took too long",
        Reason::DeadlineExpired => "the caller's deadline has passed",
        Reason::IdleTimeout => "no byte moved for too long",
        Reason::RetriesExhausted => "every attempt failed",
        Reason::RetryBudgetExhausted => "the attempt failed and the retry budget is spent",
        Reason::FaultInjected => "a fault was injected on purpose",
        Reason::Draining => "the proxy is shutting down; try another instance",
        Reason::NoRoute => "nothing serves this destination",
        Reason::MalformedRequest => "the request is not valid HTTP",
        Reason::HeadersTooLarge => "the request's head is too large",
        Reason::BodyTooLarge => "the request's body is too large",
        Reason::RequestHeadTimeout => "the request's head did not arrive in time",
        Reason::Forbidden => "the caller may not do this",
        Reason::Loop => "the call would come back to this proxy",
        Reason::LimitStoreUnavailable => "the shared limit store cannot be asked",
        Reason::NotReady => "the proxy is still starting",
        Reason::ClientGone => "the caller went away",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line as people read it, with all facts present: reviewed as a whole.
    const CAUSES: &[Cause] = &[
        Cause::Attempt(Reason::ConnectFailure),
        Cause::Breaker(breaker::Cause::FailureRate),
        Cause::Breaker(breaker::Cause::SlowCallRate),
        Cause::Breaker(breaker::Cause::ConsecutiveFailures),
        Cause::Breaker(breaker::Cause::ProbeFailed),
        Cause::Breaker(breaker::Cause::ProbeSlow),
        Cause::Breaker(breaker::Cause::ProbeOverdue),
        Cause::Breaker(breaker::Cause::WaitOver),
        Cause::Breaker(breaker::Cause::Forced),
    ];

    const ON_CONNECTIONS: &[(Reason, Cause)] = &[
        (Reason::BulkheadFull, Cause::Connections),
        (Reason::BulkheadWaitTimeout, Cause::Connections),
        (Reason::RateLimited, Cause::ConnectionRate),
    ];

    #[test]
    fn every_line() {
        let mut lines = String::new();
        for &reason in Reason::ALL.iter() {
            let refusal = Refusal {
                policy: Some("shop/fraud-api"),
                route: Some("charge"),
                numbers: Some(Numbers { observed: 30, limit: 20 }),
                ..Refusal::new(reason)
            };
            push_line(&mut lines, &refusal, true);
            push_line(&mut lines, &refusal, false);
        }
        for &cause in CAUSES {
            let reason = match cause {
                Cause::Attempt(_) => Reason::RetriesExhausted,
                _ => Reason::CircuitOpen,
            };
            let numbers = Some(Numbers { observed: 3, limit: 3 });
            let policy = Some("shop/fraud-api");
            push_line(&mut lines, &Refusal { policy, cause: Some(cause), numbers, ..Refusal::new(reason) }, true);
        }
        for refusal in [
            Refusal::new(Reason::TlsFailure),
            Refusal { cause: Some(Cause::Attempt(Reason::TlsFailure)), ..Refusal::new(Reason::RetriesExhausted) },
        ] {
            let detail = Some("192.0.2.1:443: the endpoint's certificate expired on 2026-01-01T00:00:00Z");
            push_line(&mut lines, &Refusal { policy: Some("shop/fraud-api"), detail, ..refusal }, true);
            push_line(&mut lines, &Refusal { detail, ..refusal }, false);
        }
        for &(reason, cause) in ON_CONNECTIONS {
            let numbers = Some(Numbers { observed: 120, limit: 100 });
            let refusal = Refusal { cause: Some(cause), numbers, ..Refusal::new(reason) };
            push_line(&mut lines, &Refusal { policy: Some("shop/ledger"), ..refusal }, true);
            push_line(&mut lines, &refusal, false);
        }
        let detail = Some("the endpoint takes no WebSocket over HTTP/2");
        push_line(&mut lines, &Refusal { detail, ..Refusal::new(Reason::UpstreamProtocolError) }, true);
        push_line(&mut lines, &Refusal::malformed("both Content-Length and Transfer-Encoding"), true);
        push_line(&mut lines, &Refusal::target_too_long(None), true);
        push_line(
            &mut lines,
            &Refusal {
                detail: Some("no policy names it and it is not where the caller was going"),
                ..Refusal::new(Reason::NoRoute)
            },
            true,
        );
        insta::assert_snapshot!(lines);
    }
}
