//! A refusal with the numbers that explain it, and the small names that calls and machines share.

use std::fmt;

use crate::breaker;
use crate::reason::Reason;
use crate::time::Timestamp;

/// A route of a dependency, by the number that its [`Protection`](crate::Protection) gave to its name and never gives to
/// another one. `RouteId::REST` is for what no named route matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RouteId(pub u32);

impl RouteId {
    /// The calls that no named route matches.
    pub const REST: Self = Self(0);
}

/// An endpoint, by a number that the shell chose and never gives to another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointKey(pub u64);

/// The block of policy that refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Block {
    /// `target`: no endpoint, no connection, a broken answer.
    Target,
    /// `timeouts`.
    Timeouts,
    /// `deadline`.
    Deadline,
    /// `bulkhead`.
    Bulkhead,
    /// `circuitBreaker`.
    CircuitBreaker,
    /// `retry`.
    Retry,
}

impl Block {
    /// The field of the YAML.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Timeouts => "timeouts",
            Self::Deadline => "deadline",
            Self::Bulkhead => "bulkhead",
            Self::CircuitBreaker => "circuitBreaker",
            Self::Retry => "retry",
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is behind a reason that does not say it all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// What the last attempt came to, where the reason only says that there is no further one.
    Attempt(Reason),
    /// Why the breaker stands where it does: it says what the numbers are.
    Breaker(breaker::Cause),
    /// `bulkhead.maxConnections`: the numbers are connections and not calls.
    Connections,
    /// `bulkhead.connectionRate`: the numbers are connections of the last interval.
    ConnectionRate,
}

impl Cause {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attempt(reason) => reason.as_str(),
            Self::Breaker(cause) => cause.as_str(),
            Self::Connections => "Connections",
            Self::ConnectionRate => "ConnectionRate",
        }
    }
}

/// A call that the proxy answers itself (or, in `Observe`, would have answered).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// What is behind it, if the reason does not say it all.
    pub cause: Option<Cause>,
    /// The block of policy that refused.
    pub block: Block,
    /// The route whose rules held.
    pub route: RouteId,
    /// True if the block stands on the route and not on the dependency.
    pub route_block: bool,
    /// What was measured: permits out, percent of calls failed or slow or failures in a row, milliseconds, attempts,
    /// retries of the budget's interval.
    pub observed: u64,
    /// What would have been allowed, in the same unit.
    pub limit: u64,
    /// When asking again makes sense, if anyone knows.
    pub retry_at: Option<Timestamp>,
}

impl Rejection {
    pub(crate) const fn new(rejected: Rejected, block: Block, route: RouteId, route_block: bool) -> Self {
        let Rejected { reason, cause, retry_at, observed, limit } = rejected;
        Self { reason, cause, block, route, route_block, observed, limit, retry_at }
    }
}

/// What a machine says when it refuses, with the numbers that explain it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// Why.
    pub reason: Reason,
    /// What is behind it, if the reason does not say it all.
    pub cause: Option<Cause>,
    /// When asking again makes sense, if the machine knows.
    pub retry_at: Option<Timestamp>,
    /// What was measured.
    pub observed: u64,
    /// What would have been allowed, in the same unit.
    pub limit: u64,
}

impl Rejected {
    /// A refusal that does not know when asking again makes sense.
    pub const fn new(reason: Reason, observed: u64, limit: u64) -> Self {
        Self { reason, cause: None, retry_at: None, observed, limit }
    }
}
