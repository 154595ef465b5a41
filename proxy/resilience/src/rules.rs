//! What one route says about one call: built by `policy`, shared by all its calls as `Arc<Rules>`.

use std::time::Duration;

use crate::backoff;
use crate::codes::{CodeSet, GrpcCode, GrpcCodes};
use crate::mode::{Mode, Moded};

/// The rules of one route of one dependency. `Rules::default()` are those of a dependency without a policy.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The clocks.
    pub timeouts: Timeouts,
    /// The caller's deadline.
    pub deadline: DeadlineRules,
    /// Retries; `None`: none are made.
    pub retry: Option<Moded<RetryRules>>,
    /// HTTP codes that are failures.
    pub failure_codes: CodeSet,
    /// gRPC codes that are failures.
    pub failure_grpc_codes: GrpcCodes,
    /// From this age on an attempt is slow; `None` without a breaker.
    pub slow_call_threshold: Option<Duration>,
    /// Whether answers are streams.
    pub streaming: Streaming,
}

/// Clocks of a call and of its attempts. Zero durations stand for themselves; an absent clock is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Whether they cut, only count, or rest.
    pub mode: Mode,
    /// From the pick of an endpoint to a connection, TLS included.
    pub connect: Duration,
    /// From the arrival of the request head to the last byte of the answer.
    pub request: Option<Duration>,
    /// False for the built-in value, which never holds for gRPC.
    pub request_written: bool,
    /// One attempt, from its connection to the last byte of its answer.
    pub attempt: Option<Duration>,
    /// No byte either way for so long.
    pub idle: Duration,
    /// Replaces `request` for streaming calls; `None`: unlimited.
    pub stream_max: Option<Duration>,
}

/// What the caller's deadline means.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineRules {
    /// Whether it cuts, only counts, or rests.
    pub mode: Mode,
    /// Tell the dependency how long is left.
    pub propagate: bool,
    /// Kept for ourselves: what goes out is this much shorter.
    pub reserve: Duration,
    /// What becomes of work that nobody waits for any more.
    pub when_expired: WhenExpired,
}

/// What becomes of work whose deadline has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenExpired {
    /// Refused, dropped from queues, cut.
    #[default]
    Reject,
    /// Sent on all the same: the caller's deadline is passed on and never enforced here.
    Forward,
}

/// Which failures are tried again, and how.
#[derive(Clone, Copy, Debug)]
pub struct RetryRules {
    /// The first attempt included.
    pub max_attempts: u32,
    /// Which calls may be repeated after something was sent.
    pub methods: Methods,
    /// HTTP codes that are retried.
    pub codes: CodeSet,
    /// 429 is retried only if it says when to come back.
    pub retry_429_only_with_retry_after: bool,
    /// gRPC codes that are retried.
    pub grpc_codes: GrpcCodes,
    /// No connection: name, connect or TLS failed.
    pub on_connect_failure: bool,
    /// HTTP/2 said that it had not begun.
    pub on_refused_stream: bool,
    /// The connection ended before a byte of the request was written (after the free fresh try).
    pub on_reset_before_request: bool,
    /// The connection ended after that; only for calls that may be repeated.
    pub on_reset: bool,
    /// An attempt that timed out; only for calls that may be repeated.
    pub timeouts: bool,
    /// How long to wait between attempts.
    pub backoff: backoff::Config,
    /// What the dependency says about when to come back.
    pub retry_after: RetryAfterRules,
    /// Bytes of request body that are kept for another attempt.
    pub body_buffer: usize,
    /// Whether the next attempt goes elsewhere.
    pub different_endpoint: DifferentEndpoint,
    /// For a call that serves an inbound call which is itself a retry.
    pub on_retried_inbound: OnRetriedInbound,
}

/// What a `Retry-After` does.
#[derive(Clone, Copy, Debug)]
pub struct RetryAfterRules {
    /// It is a floor for the back-off.
    pub honor: bool,
    /// Above this the call is not retried.
    pub max: Duration,
}

/// Which calls may be repeated once something of them may have been done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Methods {
    /// GET, HEAD, OPTIONS, TRACE.
    Safe,
    /// Those, PUT, DELETE, and whatever carries an `Idempotency-Key`.
    #[default]
    Idempotent,
    /// All.
    Any,
}

/// Whether another attempt goes to another endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DifferentEndpoint {
    /// If there is one.
    #[default]
    Prefer,
    /// Or not at all.
    Require,
    /// No matter.
    Any,
}

/// What is done for a call that is itself a retry of somebody further up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnRetriedInbound {
    /// One layer retries, and it is not this one.
    #[default]
    NoRetry,
    /// Retries are made here too.
    Retry,
}

/// Whether a route's answers are streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Streaming {
    /// As the call shows it.
    #[default]
    Auto,
    /// From the start.
    Always,
    /// Held to unary.
    Never,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            connect: Duration::from_secs(1),
            request: Some(Duration::from_secs(15)),
            request_written: false,
            attempt: None,
            idle: Duration::from_secs(300),
            stream_max: None,
        }
    }
}

impl Default for DeadlineRules {
    fn default() -> Self {
        Self { mode: Mode::Enforce, propagate: true, reserve: Duration::ZERO, when_expired: WhenExpired::Reject }
    }
}

impl Default for RetryAfterRules {
    fn default() -> Self {
        Self { honor: true, max: Duration::from_secs(10) }
    }
}

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            methods: Methods::Idempotent,
            codes: CodeSet::of(&[429, 502, 503, 504]),
            retry_429_only_with_retry_after: true,
            grpc_codes: GrpcCodes::of(&[GrpcCode::Unavailable]),
            on_connect_failure: true,
            on_refused_stream: true,
            on_reset_before_request: true,
            on_reset: true,
            timeouts: true,
            backoff: backoff::Config::default(),
            retry_after: RetryAfterRules::default(),
            body_buffer: 64 * 1024,
            different_endpoint: DifferentEndpoint::Prefer,
            on_retried_inbound: OnRetriedInbound::NoRetry,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            deadline: DeadlineRules::default(),
            retry: None,
            failure_codes: CodeSet::server_errors(),
            failure_grpc_codes: GrpcCodes::server_errors(),
            slow_call_threshold: None,
            streaming: Streaming::Auto,
        }
    }
}
