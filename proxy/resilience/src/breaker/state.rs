//! The words of a breaker: where it stands, why it moved, what it told.

use crate::time::Timestamp;
use crate::window::Counts;

/// Where a breaker stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Calls pass and are counted.
    Closed,
    /// Calls are refused until the wait is over.
    Open,
    /// A few probes pass.
    HalfOpen,
    /// Calls are refused because an operator said so.
    ForcedOpen,
    /// Calls pass because an operator said so.
    ForcedClosed,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Closed, Self::Open, Self::HalfOpen, Self::ForcedOpen, Self::ForcedClosed];

    /// The word of metric and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "Closed",
            Self::Open => "Open",
            Self::HalfOpen => "HalfOpen",
            Self::ForcedOpen => "ForcedOpen",
            Self::ForcedClosed => "ForcedClosed",
        }
    }
}

/// What an operator may say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Forced {
    /// Refuse every call.
    Open,
    /// Let every call pass.
    Closed,
    /// Decide by what is seen, as before.
    Auto,
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Too large a share of the calls failed.
    FailureRate,
    /// Too large a share of the calls was slow.
    SlowCallRate,
    /// Too many failures without a success between them.
    ConsecutiveFailures,
    /// The wait in open is over.
    WaitOver,
    /// A probe failed.
    ProbeFailed,
    /// A probe was slow.
    ProbeSlow,
    /// A probe was not finished in time.
    ProbeOverdue,
    /// Every probe succeeded in time.
    ProbesSucceeded,
    /// An operator forced it.
    Forced,
    /// The operator's word ended, or was taken back.
    ForceEnded,
}

impl Cause {
    /// The word of metric and log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailureRate => "FailureRate",
            Self::SlowCallRate => "SlowCallRate",
            Self::ConsecutiveFailures => "ConsecutiveFailures",
            Self::WaitOver => "WaitOver",
            Self::ProbeFailed => "ProbeFailed",
            Self::ProbeSlow => "ProbeSlow",
            Self::ProbeOverdue => "ProbeOverdue",
            Self::ProbesSucceeded => "ProbesSucceeded",
            Self::Forced => "Forced",
            Self::ForceEnded => "ForceEnded",
        }
    }
}

/// A change of state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Before.
    pub from: State,
    /// After.
    pub to: State,
    /// Why.
    pub cause: Cause,
    /// What the window held at that moment.
    pub counts: Counts,
    /// For a change to open: when probes are let through.
    pub retry_at: Option<Timestamp>,
    /// When it happened.
    pub at: Timestamp,
}
