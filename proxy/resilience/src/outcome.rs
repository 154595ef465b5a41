//! What an attempt came to. One table, one function; every machine reads it and nothing else.

/// What an attempt came to. *Slow* is a mark beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Outcome {
    /// A whole answer that is no failure.
    Success,
    /// The dependency failed.
    Failure,
    /// A configured clock ran out.
    Timeout,
    /// The dependency asked for less: not a failure, and no success either.
    Pushback,
    /// Someone else ended it: says nothing about the dependency.
    Cancelled,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [Self::Success, Self::Failure, Self::Timeout, Self::Pushback, Self::Cancelled];

    /// The label of `attempts_total`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Timeout => "timeout",
            Self::Pushback => "pushback",
            Self::Cancelled => "cancelled",
        }
    }

    /// What the breaker makes of it: `Some(failed)`, or `None` if it does not count.
    pub const fn counts(self) -> Option<bool> {
        match self {
            Self::Success => Some(false),
            Self::Failure | Self::Timeout => Some(true),
            Self::Pushback | Self::Cancelled => None,
        }
    }
}

/// How an attempt ended: the rows of the table of outcomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The whole answer, with no failure code.
    Whole,
    /// An answer whose code is in `failureCodes` or `failureGrpcCodes`.
    FailureCode,
    /// Connect, TLS, reset, protocol error.
    Transport,
    /// A *configured* clock ran out: connect, attempt, request, idle.
    Clock,
    /// The caller's deadline ran out first, or the dependency said so (gRPC DEADLINE_EXCEEDED because of it).
    Deadline,
    /// The caller went away, a clock ran out while we waited for the caller, or a stream has lasted as long as it may.
    Caller,
    /// 429, RESOURCE_EXHAUSTED, or a refusal that asks us to come back later.
    Pushback,
    /// We refused it ourselves before anything was sent: the ticket is given back.
    Refused,
}

/// The table of outcomes (design.md section 3).
pub const fn classify(ended: Ended) -> Outcome {
    match ended {
        Ended::Whole => Outcome::Success,
        Ended::FailureCode | Ended::Transport => Outcome::Failure,
        Ended::Clock => Outcome::Timeout,
        Ended::Pushback => Outcome::Pushback,
        Ended::Deadline | Ended::Caller | Ended::Refused => Outcome::Cancelled,
    }
}
