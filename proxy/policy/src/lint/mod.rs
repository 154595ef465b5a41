//! Warnings: what is valid, and probably not what was meant.

mod bulkheads;
mod clocks;
mod grpc;
mod opaque;
mod routes;
mod targets;

use std::time::Duration;

use plimsoll_resilience::Mode;
use plimsoll_resilience::breaker::SlowTurn;
use plimsoll_resilience::rules::Streaming;

use crate::compile::{BUILT_IN_REQUEST, slow_threshold, with_inherited};
use crate::document::Documents;
use crate::field::Optional;
use crate::report::{Problem, Reader};
use crate::spec::{CircuitBreaker, DependencySpec};
use crate::value::{Positive, Protocol, WindowSize, WindowType, duration_text};

/// A breaker that needs more calls a second than this to say anything is worth a word.
const QUIET_CALLS_PER_SECOND: u32 = 5;

pub(crate) fn check(reader: &mut Reader<'_>, documents: &Documents) {
    for document in &documents.dependencies {
        if let Some(spec) = document.spec.written() {
            dependency(reader, &spec.value);
        }
    }
}

fn dependency(reader: &mut Reader<'_>, spec: &DependencySpec) {
    nobody_chose_slow(reader, spec);
    quiet_breaker(reader, spec);
    opaque::check(reader, spec);
    if let Some(target) = spec.target.written() {
        targets::check(reader, &target.value);
    }
    if protocol(spec) != Protocol::Tcp {
        calls(reader, spec);
    }
}

/// What is about calls and their clocks, for dependencies that have any.
fn calls(reader: &mut Reader<'_>, spec: &DependencySpec) {
    bulkheads::check(reader, spec);
    clocks::check(reader, spec, &spec.timeouts, &spec.retry);
    for route in spec.routes.value().unwrap_or_default() {
        let whole = with_inherited(&route.value, spec);
        // A route that writes neither has the clocks that were looked at above; one of streams has others.
        let own_clocks = route.value.timeouts.is_written() || route.value.retry.is_written();
        if own_clocks && route.value.streaming.value() != Streaming::Always {
            clocks::check(reader, spec, &whole.timeouts, &whole.retry);
        }
    }
    routes::check(reader, spec);
    grpc::check(reader, spec);
}

fn protocol(spec: &DependencySpec) -> Protocol {
    spec.target.written().map(|target| target.value.protocol.value()).unwrap_or_default()
}

/// `timeouts.request` as it holds: what is written, else the built-in value, which gRPC does not have.
fn request(spec: &DependencySpec, written: Option<Positive>) -> Option<Duration> {
    let built_in = (protocol(spec) != Protocol::Grpc).then_some(BUILT_IN_REQUEST);
    written.map(|Positive(request)| request).or(built_in)
}

/// Whether a block does, or at least models, anything.
fn is_on(block: &Optional<Mode>, spec: &DependencySpec) -> bool {
    block.value().unwrap_or(spec.mode.value()).is_on()
}

fn breaker(spec: &DependencySpec) -> Option<&CircuitBreaker> {
    let breaker = &spec.circuit_breaker.written()?.value;
    is_on(&breaker.mode, spec).then_some(breaker)
}

fn nobody_chose_slow(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let Some(breaker) = breaker(spec) else { return };
    let Some(written) = spec.circuit_breaker.written() else {
        return;
    };
    // Where no call is slow, and no turn does anything by it, it need not be chosen.
    let acts = protocol(spec) != Protocol::Tcp || breaker.slow_turn.value() == SlowTurn::Enforce;
    if acts && !breaker.slow_call_duration.is_written() {
        let threshold = slow_threshold(breaker, &spec.timeouts.value().unwrap_or_default());
        let what = if protocol(spec) == Protocol::Tcp { "a turn" } else { "an attempt" };
        let message = format!("nobody chose what is slow: {what} older than {} is", duration_text(threshold));
        reader.warn(written.node, Problem::new(message).expected("`slowCallDurationThreshold`"));
    }
}

fn quiet_breaker(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let Some(breaker) = breaker(spec) else { return };
    let seconds = match (breaker.window_type.value(), breaker.window_size.value()) {
        (WindowType::Count, _) | (_, Some(WindowSize::Calls(_))) => return,
        (WindowType::Time, Some(WindowSize::Time(size))) => size,
        (WindowType::Time, None) => Duration::from_secs(30),
    }
    .as_secs_f64();
    let minimum = breaker.minimum_calls.value().0;
    if seconds > 0.0 && f64::from(minimum) / seconds > f64::from(QUIET_CALLS_PER_SECOND) {
        let needed = (f64::from(minimum) / seconds).ceil();
        let at = breaker.minimum_calls.written().map(|written| written.node);
        let Some(at) = at.or(breaker.window_size.written().map(|written| written.node)) else {
            return;
        };
        let message = format!(
            "below {needed} calls a second the window never holds {minimum} calls, and no rate opens the circuit"
        );
        reader.warn(
            at,
            Problem::new(message).expected("a longer `slidingWindowSize`, or a lower `minimumNumberOfCalls`"),
        );
    }
}
