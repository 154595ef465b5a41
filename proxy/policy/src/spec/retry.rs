//! Retries.

use std::time::Duration;

use plimsoll_resilience::Mode;
use plimsoll_resilience::backoff::Jitter;
use plimsoll_resilience::rules::{DifferentEndpoint, Methods, OnRetriedInbound};

use crate::field::{At, block};
use crate::value::{Attempts, CodePattern, ConnectionError, GrpcCode, Number, Positive, Share, Size};

block! {
    /// Which failures are tried again, and how.
    pub(crate) struct Retry {
        /// Whether retries are made, only counted, or neither.
        "mode" mode: Optional<Mode> = "the policy's",
        /// Attempts of one call, the first included.
        "maxAttempts" max_attempts: Defaulted<Attempts> = "3",
        /// Which calls may be repeated; one with Idempotency-Key counts as idempotent.
        "methods" methods: Defaulted<Methods> = "Idempotent",
        /// Answers that are retried.
        "codes" codes: Optional<Vec<At<CodePattern>>> = "502, 503, 504, and 429 when it carries Retry-After",
        /// gRPC statuses that are retried.
        "grpcCodes" grpc_codes: Defaulted<Vec<At<GrpcCode>>> = "[Unavailable]",
        /// Connection errors that are retried.
        "connectionErrors" connection_errors: Defaulted<Vec<At<ConnectionError>>> =
            "[ConnectFailure, RefusedStream, ResetBeforeRequest, Reset]",
        /// Whether an attempt that timed out may be retried.
        "timeouts" timeouts: Defaulted<bool> = "true",
        /// How long to wait between attempts.
        "backoff" backoff: Optional<Backoff> = "as its fields",
        /// What the dependency says about when to come back.
        "retryAfter" retry_after: Optional<RetryAfter> = "as its fields",
        /// A longer request body streams on and is not retried.
        "bodyBuffer" body_buffer: Defaulted<Size> = "64Ki",
        /// Whether the next attempt goes to another endpoint.
        "differentEndpoint" different_endpoint: Defaulted<DifferentEndpoint> = "Prefer",
        /// For a call that serves one which is itself a retry.
        "onRetriedInbound" on_retried_inbound: Defaulted<OnRetriedInbound> = "NoRetry",
        /// What retries may cost; one for the dependency, whatever the route.
        "budget" budget: Optional<Budget> = "as its fields",
    }
}

block! {
    /// How long to wait between attempts: doubles from `base` up to `max`.
    pub(crate) struct Backoff {
        /// The first ceiling.
        "base" base: Defaulted<Positive> = "25ms",
        /// The last one.
        "max" max: Defaulted<Positive> = "1s",
        /// How the wait is drawn under its ceiling.
        "jitter" jitter: Defaulted<Jitter> = "Full",
    }
}

block! {
    /// A `Retry-After` of the dependency.
    pub(crate) struct RetryAfter {
        /// Whether it is a floor for the back-off.
        "honor" honor: Defaulted<bool> = "true",
        /// Above this the call is not retried.
        "max" max: Defaulted<Duration> = "10s",
    }
}

block! {
    /// What retries may cost: a share of the calls of an interval, and a floor.
    pub(crate) struct Budget {
        /// Retries as a percentage of the calls in the interval.
        "percent" percent: Defaulted<Share> = "20",
        /// Over which both are counted.
        "interval" interval: Defaulted<Positive> = "10s",
        /// Retries that are always allowed, for each second.
        "minPerSecond" min_per_second: Defaulted<Number> = "3",
    }
}
