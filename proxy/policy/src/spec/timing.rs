//! Clocks and deadlines.

use std::time::Duration;

use plimsoll_resilience::Mode;
use plimsoll_resilience::rules::WhenExpired;

use crate::field::block;
use crate::value::Positive;

block! {
    /// The clocks of a call.
    pub(crate) struct Timeouts {
        /// Whether these clocks cut, are only counted, or rest.
        "mode" mode: Optional<Mode> = "the policy's",
        /// From choosing an endpoint to a connection with it.
        "connect" connect: Defaulted<Positive> = "1s",
        /// The whole call: every attempt, back-off and queueing.
        "request" request: Optional<Positive> = "15s for HTTP that is not streaming; none for gRPC",
        /// One attempt.
        "attempt" attempt: Optional<Positive> = "none: as long as the request",
        /// No byte either way for so long; starts again with every byte, so never the only timeout.
        "idle" idle: Optional<Positive> = "5m; 1h for TCP, upgrades and CONNECT",
        /// Replaces `request` for streaming calls; 0s = unlimited.
        "streamMaxDuration" stream_max: Defaulted<Duration> = "0s",
    }
}

block! {
    /// The clocks of calls to this workload.
    pub(crate) struct InboundTimeouts {
        /// Whether these clocks cut, are only counted, or rest.
        "mode" mode: Optional<Mode> = "the policy's",
        /// The whole call: a cap on what callers may ask for.
        "request" request: Optional<Positive> = "none",
        /// No byte either way for so long; starts again with every byte.
        "idle" idle: Optional<Positive> = "5m; 1h for TCP, upgrades and CONNECT",
        /// Replaces `request` for streaming calls; 0s = unlimited.
        "streamMaxDuration" stream_max: Defaulted<Duration> = "0s",
    }
    elsewhere {
        "connect" => "`request` and `idle`: the way to the workload itself is never far",
        "attempt" => "`request` and `idle`: calls to the workload are attempted once",
    }
}

block! {
    /// The deadline that callers send.
    pub(crate) struct Deadline {
        /// Whether deadlines cut, are only counted, or rest.
        "mode" mode: Optional<Mode> = "the policy's",
        /// Tell the dependency how long is left.
        "propagate" propagate: Defaulted<bool> = "true",
        /// Kept for ourselves: what goes out is this much shorter.
        "reserve" reserve: Defaulted<Duration> = "0s",
        /// What becomes of a call whose deadline has passed: refused, or sent all the same.
        "whenExpired" when_expired: Defaulted<WhenExpired> = "Reject",
    }
    later { "correlate" unless "Disabled" }
    elsewhere { "accept" => "`accept` in a WorkloadPolicy" }
}

block! {
    /// The deadline that callers send to this workload.
    pub(crate) struct InboundDeadline {
        /// Whether deadlines cut, are only counted, or rest.
        "mode" mode: Optional<Mode> = "the policy's",
        /// Believe what callers say about how long they wait.
        "accept" accept: Defaulted<bool> = "true",
        /// What becomes of a call whose deadline has passed: refused, or served all the same.
        "whenExpired" when_expired: Defaulted<WhenExpired> = "Reject",
    }
    elsewhere {
        "propagate" => "`propagate` in a DependencyPolicy",
        "reserve" => "`reserve` in a DependencyPolicy",
        "correlate" => "`correlate` in a DependencyPolicy (not supported by this version)",
    }
}
