//! Bulkheads and the breaker.

use std::time::Duration;

use plimsoll_resilience::Mode;
use plimsoll_resilience::breaker::{Scope, SlowTurn};

use crate::field::{At, block};
use crate::value::{CodePattern, Count, GrpcCode, Number, Percent, Positive, Rate, WindowSize, WindowType};

block! {
    /// How much of this workload one dependency may tie up.
    pub(crate) struct Bulkhead {
        /// Whether it refuses, only counts, or rests.
        "mode" mode: Optional<Mode> = "the policy's",
        /// Attempts in flight, exact over all workers of one sidecar.
        "maxConcurrentCalls" max_concurrent_calls: Optional<Count> = "no limit",
        /// How many may wait for a permit.
        "maxQueued" max_queued: Defaulted<Number> = "0",
        /// How long one may wait; never past the deadline. 0s = refused at once.
        "maxWaitDuration" max_wait: Defaulted<Duration> = "0s",
        /// Connections to the dependency, of all workers together.
        "maxConnections" max_connections: Optional<Count> = "no limit",
        /// New TCP connections to the dependency, of all workers together.
        "connectionRate" connection_rate: Optional<Rate> = "no limit",
    }
    later { "perKey", "holdAbandoned" unless "0s" }
}

block! {
    /// A further limit inside the dependency's.
    pub(crate) struct RouteBulkhead {
        /// Whether it refuses, only counts, or rests.
        "mode" mode: Optional<Mode> = "the policy's",
        /// Attempts of this route in flight.
        "maxConcurrentCalls" max_concurrent_calls: Required<Count> = "required",
        /// How many may wait for a permit.
        "maxQueued" max_queued: Defaulted<Number> = "0",
        /// How long one may wait; never past the deadline. 0s = refused at once.
        "maxWaitDuration" max_wait: Defaulted<Duration> = "0s",
    }
    later { "perKey", "holdAbandoned" unless "0s" }
    elsewhere {
        "connectionRate" => "`spec.bulkhead.connectionRate`: connections belong to the dependency, not to a route",
        "maxConnections" => "`spec.bulkhead.maxConnections`: connections belong to the dependency, not to a route",
    }
}

block! {
    /// How much of this workload all its callers may tie up.
    pub(crate) struct InboundBulkhead {
        /// Whether it refuses, only counts, or rests.
        "mode" mode: Optional<Mode> = "the policy's",
        /// Calls being served.
        "maxConcurrentCalls" max_concurrent_calls: Optional<Count> = "no limit",
        /// Connections from callers.
        "maxConnections" max_connections: Optional<Count> = "no limit",
    }
    later { "connectionRate", "perKey" }
    elsewhere {
        "maxQueued" => "`spec.queue` (not supported by this version)",
        "maxWaitDuration" => "`spec.queue` (not supported by this version)",
    }
}

block! {
    /// When to stop calling, and when to ask again.
    pub(crate) struct CircuitBreaker {
        /// Whether it refuses, only counts, or rests.
        "mode" mode: Optional<Mode> = "the policy's",
        /// One breaker for the dependency, for each named route, or for each endpoint.
        "scope" scope: Defaulted<Scope> = "Dependency",
        /// What the window is measured in.
        "slidingWindowType" window_type: Defaulted<WindowType> = "Time",
        /// A duration for Time, a number of calls for Count.
        "slidingWindowSize" window_size: Optional<WindowSize> = "30s for Time; required for Count",
        /// Below this many calls in the window no rate opens it.
        "minimumNumberOfCalls" minimum_calls: Defaulted<Count> = "20",
        /// Opens when at least this share of the calls failed, in percent.
        "failureRateThreshold" failure_rate: Defaulted<Percent> = "50",
        /// Opens when at least this share of the calls was slow, in percent.
        "slowCallRateThreshold" slow_call_rate: Defaulted<Percent> = "80",
        /// From this age on a call counts as slow, while it still runs.
        "slowCallDurationThreshold" slow_call_duration: Optional<Positive> =
            "60 % of the smaller of timeouts.attempt and timeouts.request where either is written, else 2s",
        /// Opens after this many failures in a row; 0 = not used.
        "consecutiveFailures" consecutive_failures: Defaulted<Number> = "0",
        /// Answers that are failures; connection errors, resets and timeouts always are.
        "failureCodes" failure_codes: Defaulted<Vec<At<CodePattern>>> = "[5xx]",
        /// gRPC statuses that are failures.
        "failureGrpcCodes" failure_grpc_codes: Defaulted<Vec<At<GrpcCode>>> =
            "[Unavailable, DeadlineExceeded, Internal, DataLoss, Unknown]",
        /// How long it stays open before it lets probes through; doubles after each failed half-open, with jitter.
        "waitDurationInOpenState" wait: Defaulted<Positive> = "10s",
        /// What the wait grows to.
        "maxWaitDurationInOpenState" max_wait: Defaulted<Positive> = "2m",
        /// Probes that must all succeed in time to close it again.
        "permittedNumberOfCallsInHalfOpenState" probes: Defaulted<Count> = "3",
        /// How long each probe may take, from its sending.
        "maxWaitDurationInHalfOpenState" probe_limit: Defaulted<Positive> = "10s",
        /// Whether a slow turn of a TCP connection counts as a slow call; a long poll looks just like one.
        "slowTurn" slow_turn: Defaulted<SlowTurn> = "Observe",
    }
}
