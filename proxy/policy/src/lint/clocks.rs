//! Clocks that cannot all run out, for one route or the rest.

use std::time::Duration;

use plimsoll_resilience::backoff;

use crate::compile::slow_threshold;
use crate::field::Optional;
use crate::report::{Problem, Reader};
use crate::spec::{DependencySpec, Retry, Timeouts};
use crate::value::{Positive, duration_text};

use super::{breaker, is_on, request};

pub(super) fn check(
    reader: &mut Reader<'_>,
    spec: &DependencySpec,
    timeouts: &Optional<Timeouts>,
    retry: &Optional<Retry>,
) {
    let timeouts = timeouts.value().unwrap_or_default();
    if !is_on(&timeouts.mode, spec) {
        return;
    }
    never_slow(reader, spec, &timeouts);
    let Some(request) = request(spec, timeouts.request.value()) else {
        return;
    };
    above_request(reader, &timeouts, request);
    if let Some(retry) = retry.value().filter(|retry| is_on(&retry.mode, spec)) {
        attempts_fit(reader, &timeouts, request, &retry);
    }
}

fn above_request(reader: &mut Reader<'_>, timeouts: &Timeouts, request: Duration) {
    for (name, written) in [("attempt", timeouts.attempt.written()), ("connect", timeouts.connect.written())] {
        let Some(written) = written.filter(|written| written.value.0 > request) else {
            continue;
        };
        let message = format!("this never runs out: `request` ends the call after {}", duration_text(request));
        reader.warn(written.node, Problem::new(message).expected(format!("`{name}` below `request`")));
    }
}

fn never_slow(reader: &mut Reader<'_>, spec: &DependencySpec, timeouts: &Timeouts) {
    let Some(breaker) = breaker(spec) else { return };
    let Some(written) = breaker.slow_call_duration.written() else {
        return;
    };
    let threshold = slow_threshold(breaker, timeouts);
    let request = timeouts.request.value().map(|Positive(request)| ("request", request));
    let attempt = timeouts.attempt.value().map(|Positive(attempt)| ("attempt", attempt));
    let shortest = request.into_iter().chain(attempt).min_by_key(|(_, timeout)| *timeout);
    let Some((name, timeout)) = shortest.filter(|(_, timeout)| *timeout <= threshold) else {
        return;
    };
    let message = format!("no attempt can be slow: `timeouts.{name}` ends it after {}", duration_text(timeout));
    reader.warn(written.node, Problem::new(message).expected(format!("less than {}", duration_text(timeout))));
}

/// What happens when every attempt times out: do they all fit, back-off at its longest included?
fn attempts_fit(reader: &mut Reader<'_>, timeouts: &Timeouts, request: Duration, retry: &Retry) {
    let Some(written) = timeouts.attempt.written() else {
        return;
    };
    let at = retry.max_attempts.written().map_or(written.node, |attempts| attempts.node);
    let backoff = retry.backoff.value().unwrap_or_default();
    let Ok(backoff) = backoff::Config::new(backoff.base.value().0, backoff.max.value().0, backoff.jitter.value())
    else {
        return;
    };
    let Positive(attempt) = written.value;
    if !retry.timeouts.value() || attempt > request {
        return;
    }
    // When the next attempt begins: without any back-off, and with the longest.
    let (mut least, mut most) = (Duration::ZERO, Duration::ZERO);
    for number in 1..=retry.max_attempts.value().0 {
        let what = if least >= request {
            format!("can never run after timeouts: those before it take {}", duration_text(least))
        } else if most + attempt > request {
            format!("is cut short after timeouts: it begins after up to {}", duration_text(most))
        } else {
            least += attempt;
            most += attempt + backoff.ceiling(number - 1);
            continue;
        };
        let message = format!("attempt {number} {what}, and `request` is {}", duration_text(request));
        let expected = "fewer attempts, a shorter `attempt`, or a longer `request`";
        reader.warn(at, Problem::new(message).expected(expected));
        return;
    }
}
