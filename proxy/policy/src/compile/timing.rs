//! Clocks and deadlines.

use std::time::Duration;

use plimsoll_resilience::Mode;
use plimsoll_resilience::rules::{DeadlineRules, Timeouts};

use super::mode_of;
use crate::spec;
use crate::value::Positive;

/// HTTP calls that are not streaming end after this, where nothing is written.
pub(crate) const BUILT_IN_REQUEST: Duration = Duration::from_secs(15);

/// No byte for so long ends an HTTP call, where nothing is written.
const BUILT_IN_IDLE: Duration = Duration::from_secs(5 * 60);

/// No byte for so long ends an upgrade or a tunnel, where nothing is written.
const BUILT_IN_TUNNEL_IDLE: Duration = Duration::from_secs(60 * 60);

/// The clocks of calls to a dependency, and the idle time of its tunnels.
pub(super) fn timeouts(spec: &spec::Timeouts, policy: Mode) -> (Timeouts, Duration) {
    let written = spec.request.value().map(|Positive(request)| request);
    let (idle, tunnel_idle) = idle(spec.idle.value());
    let timeouts = Timeouts {
        mode: mode_of(&spec.mode, policy),
        connect: spec.connect.value().0,
        request: Some(written.unwrap_or(BUILT_IN_REQUEST)),
        request_written: written.is_some(),
        attempt: spec.attempt.value().map(|Positive(attempt)| attempt),
        idle,
        stream_max: unless_zero(spec.stream_max.value()),
    };
    (timeouts, tunnel_idle)
}

/// The clocks of calls to this workload.
pub(super) fn inbound_timeouts(spec: &spec::InboundTimeouts, policy: Mode) -> (Timeouts, Duration) {
    let request = spec.request.value().map(|Positive(request)| request);
    let (idle, tunnel_idle) = idle(spec.idle.value());
    let timeouts = Timeouts {
        mode: mode_of(&spec.mode, policy),
        request,
        request_written: request.is_some(),
        idle,
        stream_max: unless_zero(spec.stream_max.value()),
        ..Timeouts::default()
    };
    (timeouts, tunnel_idle)
}

fn idle(written: Option<Positive>) -> (Duration, Duration) {
    match written {
        Some(Positive(idle)) => (idle, idle),
        None => (BUILT_IN_IDLE, BUILT_IN_TUNNEL_IDLE),
    }
}

fn unless_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

pub(super) fn deadline(spec: &spec::Deadline, policy: Mode) -> DeadlineRules {
    DeadlineRules {
        mode: mode_of(&spec.mode, policy),
        propagate: spec.propagate.value(),
        reserve: spec.reserve.value(),
        when_expired: spec.when_expired.value(),
    }
}

/// A workload that does not accept deadlines serves as if none were sent.
pub(super) fn inbound_deadline(spec: &spec::InboundDeadline, policy: Mode) -> DeadlineRules {
    let mode = if spec.accept.value() { mode_of(&spec.mode, policy) } else { Mode::Disabled };
    DeadlineRules { mode, when_expired: spec.when_expired.value(), ..DeadlineRules::default() }
}
