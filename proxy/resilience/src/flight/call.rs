//! The words in which the shell and a flight speak: what goes in, what comes out.

use std::time::Duration;

use crate::outcome::Outcome;
use crate::reason::Reason;
use crate::rejection::{EndpointKey, Rejection, RouteId};
use crate::time::Timestamp;

/// What is known of a call when its head has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When the head of the request arrived: both clocks of the call run from here.
    pub arrived: Timestamp,
    /// When the caller stops waiting, if it said so or the call being served says so.
    pub caller_deadline: Option<Timestamp>,
    /// What its method promises.
    pub safety: Safety,
    /// It carries an `Idempotency-Key`.
    pub idempotency_key: bool,
    /// The inbound call that it serves is itself a retry.
    pub retried_inbound: bool,
    /// It is gRPC.
    pub grpc: bool,
    /// It is a connection of which nothing is understood (TCP, TLS that is not opened); CONNECT is a call.
    pub opaque: bool,
    /// It is known to be a stream before it is answered (CONNECT, an upgrade).
    pub streaming: bool,
    /// Its route.
    pub route: RouteId,
    /// For jitter.
    pub seed: u64,
}

/// What a method promises about being repeated (RFC 9110 section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Safety {
    /// GET, HEAD, OPTIONS, TRACE.
    Safe,
    /// PUT, DELETE.
    Idempotent,
    /// Everything else.
    Unsafe,
}

/// What a final answer says of itself, never a 1xx: its head, and for gRPC its status, in the head or in trailers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// The code is in `failureCodes` or `failureGrpcCodes`.
    pub failure: bool,
    /// The code is in the retry block's `codes` or `grpcCodes`.
    pub retry_code: bool,
    /// The HTTP code.
    pub status: u16,
    /// When the dependency wants to be asked again (`Retry-After`, pushback above 0).
    pub retry_after: Option<Duration>,
    /// 429, RESOURCE_EXHAUSTED, or a refusal marked as one.
    pub pushback: bool,
    /// The answer forbids a retry (`x-plimsoll-retry: no`, pushback -1).
    pub no_retry: bool,
    /// The answer is a stream (`text/event-stream`, 101, 2xx to CONNECT).
    pub streaming: bool,
    /// The gRPC status is DEADLINE_EXCEEDED.
    pub deadline_exceeded: bool,
}

/// How an attempt failed without a final answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No connection.
    Connect,
    /// No connection in the time that the system allows.
    ConnectTimeout,
    /// The name could not be resolved.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// The pooled connection was dead before the first byte of the request was written on it.
    NotSent,
    /// HTTP/2: REFUSED_STREAM, or a stream above GOAWAY's last id.
    RefusedStream,
    /// The connection ended after a byte of the request was written.
    Reset,
    /// The answer was not valid.
    Protocol,
}

impl Failure {
    /// The word for it when the caller hears of it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Connect | Self::ConnectTimeout => Reason::ConnectFailure,
            Self::Dns => Reason::DnsFailure,
            Self::Tls => Reason::TlsFailure,
            Self::NotSent | Self::RefusedStream | Self::Reset => Reason::UpstreamReset,
            Self::Protocol => Reason::UpstreamProtocolError,
        }
    }
}

/// One try of a call at one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// First or retry.
    pub kind: AttemptKind,
    /// Do not take a pooled connection: the last one was dead before a byte was written.
    pub fresh_connection: bool,
    /// The endpoint of the attempt before; what to make of it is in `RetryRules::different_endpoint`.
    pub avoid: Option<EndpointKey>,
}

/// What an attempt is to its call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttemptKind {
    /// The first.
    First,
    /// One after a failure.
    Retry,
}

/// What the shell does next. After every input it drains [`Flight::poll_action`](crate::Flight::poll_action).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The call is queued for a permit under [`Flight::waiter`](crate::Flight::waiter).
    Await,
    /// Pick an endpoint, connect, send.
    Attempt(Attempt),
    /// Close the running attempt's connection, or reset its stream, now.
    Abandon,
    /// A retry is decided: keep the head and up to 16 KiB of this answer, read the rest away or reset, and give the
    /// connection back. It replaces what was kept before.
    Keep,
    /// The running attempt's answer goes to the caller: the head now, the body as it comes.
    Deliver,
    /// The kept answer goes out after all.
    DeliverKept {
        /// What to say if the answer was cut, and so cannot go out as it came.
        if_cut: Reason,
    },
    /// No byte of an answer has gone out: the proxy answers.
    Reject(Rejection),
    /// An answer has begun: cut it so that it never looks whole.
    Cut(Reason),
    /// All permits and tickets are back. Nothing follows.
    Done,
}

/// Why a retry that was worth a thought was not made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RetryDenied {
    /// `maxAttempts` are spent.
    Attempts,
    /// Something was sent and the call may not be repeated.
    Unsafe,
    /// The body outgrew the buffer.
    Body,
    /// Not enough time is left.
    Deadline,
    /// The dependency wants a longer wait than `retryAfter.max`.
    RetryAfter,
    /// The answer forbids it.
    Forbidden,
    /// The call serves one that is itself a retry.
    RetriedInbound,
    /// The budget is empty.
    Budget,
    /// The breaker is not closed.
    CircuitOpen,
    /// No permit for it after the back-off.
    Bulkhead,
    /// No endpoint for it after the back-off.
    NoEndpoint,
    /// A clock of the call ran out, or the caller went, before it was made.
    Over,
}

impl RetryDenied {
    /// The label of `retries_denied_total`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "Attempts",
            Self::Unsafe => "Unsafe",
            Self::Body => "Body",
            Self::Deadline => "Deadline",
            Self::RetryAfter => "RetryAfter",
            Self::Forbidden => "Forbidden",
            Self::RetriedInbound => "RetriedInbound",
            Self::Budget => "Budget",
            Self::CircuitOpen => "CircuitOpen",
            Self::Bulkhead => "Bulkhead",
            Self::NoEndpoint => "NoEndpoint",
            Self::Over => "Over",
        }
    }
}

/// What a call came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Attempts that were made (a dead pooled connection is none).
    pub attempts: u32,
    /// Why the proxy answered, cut or gave up; `None` if the dependency's answer went out whole.
    pub reason: Option<Reason>,
    /// Why there was no (further) retry, if one was worth a thought.
    pub retry_denied: Option<RetryDenied>,
    /// This side has spent, or was denied, its retries: the answer carries `x-plimsoll-retry: no`.
    pub retries_over: bool,
    /// What the first attempt came to.
    pub first: Option<Outcome>,
    /// How many retries came to each outcome, in the order of `Outcome::ALL`.
    pub retries: [u8; 5],
    /// An attempt was slow.
    pub slow: bool,
    /// The clock of the last attempt that ended with an answer: from its first byte sent to the last byte of its
    /// answer, without the time that we waited for our caller. Absent for what gives no sample.
    pub latency: Option<Duration>,
    /// Time spent in queues for permits.
    pub queued: Duration,
    /// The call is a stream.
    pub streaming: bool,
}
