//! Every answer the proxy makes itself: which status, which headers, which words.
//!
//! A refusal has exactly one [`Reason`]; [`row_of`] says how each is spoken, [`Refusal`] adds the facts of this one
//! call, and [`write_answer`] turns both into bytes. Callers on the same machine are told the numbers; strangers are
//! told the reason and nothing else, since policy names and limits are no business of theirs.

mod answer;
mod proxy_status;
mod stream;
mod table;
mod wording;

use std::time::Duration;

use plimsoll_resilience::{Block, Cause, Reason, Rejection, Timestamp};

pub use answer::{AnswerForm, write_answer};
pub use proxy_status::says_pushback;
pub use stream::{grpc_answer, stream_answer};
pub use table::{LoadHint, Pushback, Row, row_of};

/// What was observed and what was allowed, in the unit that belongs to the reason: calls for a bulkhead (connections
/// where the cause says so), what the cause says for a breaker, attempts or retries for the end of retrying, milliseconds for a clock, bytes or fields for a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// What the proxy saw.
    pub observed: u64,
    /// What the policy allows.
    pub limit: u64,
}

/// The facts of one refusal. Borrowed: a refusal under load must not allocate.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// Why.
    pub reason: Reason,
    /// What is behind it, if `reason` does not say it all.
    pub cause: Option<Cause>,
    /// Another status than the table's: 414 for a long target, the upstream's own when a kept answer was cut.
    pub status: Option<u16>,
    /// The policy in force for the call (`shop/fraud-api`).
    pub policy: Option<&'a str>,
    /// The named route of the policy.
    pub route: Option<&'a str>,
    /// The block of the policy that refused (`bulkhead`).
    pub block: Option<&'a str>,
    /// What was observed and allowed.
    pub numbers: Option<Numbers>,
    /// The generation the call was served under (`local-3`).
    pub generation: Option<&'a str>,
    /// When asking again makes sense; goes out where the table has `Retry-After`.
    pub retry_after: Option<Duration>,
    /// What exactly was wrong: for reasons that have no numbers, and for the last attempt where it got no connection. Text of
    /// ours, never of the caller's making.
    pub detail: Option<&'a str>,
    /// This side has spent, or was denied, its retries: the receiver must not add its own.
    pub retries_spent: bool,
    /// The connect ran into its time limit, rather than into a refusal.
    pub connect_timed_out: bool,
}

impl<'a> Refusal<'a> {
    /// A refusal of which only the reason is known.
    #[must_use]
    pub const fn new(reason: Reason) -> Self {
        Refusal {
            reason,
            cause: None,
            status: None,
            policy: None,
            route: None,
            block: None,
            numbers: None,
            generation: None,
            retry_after: None,
            detail: None,
            retries_spent: false,
            connect_timed_out: false,
        }
    }

    /// What a flight says when it refuses a call; policy, route and generation are the caller's to add.
    #[must_use]
    pub fn from_rejection(rejection: &Rejection, now: Timestamp) -> Self {
        Refusal {
            block: Some(rejection.block.as_str()),
            numbers: Some(Numbers { observed: rejection.observed, limit: rejection.limit }),
            retry_after: rejection.retry_at.map(|at| at.saturating_since(now)),
            cause: rejection.cause,
            connect_timed_out: rejection.reason == Reason::ConnectFailure && rejection.block == Block::Timeouts,
            ..Refusal::new(rejection.reason)
        }
    }

    /// The message breaks RFC 9112 or a rule of ours; `detail` says which.
    #[must_use]
    pub const fn malformed(detail: &'a str) -> Self {
        let mut refusal = Self::new(Reason::MalformedRequest);
        refusal.detail = Some(detail);
        refusal
    }

    /// The head has more bytes or fields than are read.
    #[must_use]
    pub const fn headers_too_large(numbers: Option<Numbers>) -> Self {
        let mut refusal = Self::new(Reason::HeadersTooLarge);
        refusal.numbers = numbers;
        refusal
    }

    /// The request target is longer than is read: 414 instead of 431.
    #[must_use]
    pub const fn target_too_long(numbers: Option<Numbers>) -> Self {
        let mut refusal = Self::headers_too_large(numbers);
        refusal.status = Some(414);
        refusal
    }

    /// The numbers, where there was a limit to measure against: no limit is zero.
    #[must_use]
    pub fn measured(&self) -> Option<Numbers> {
        self.numbers.filter(|numbers| numbers.limit > 0)
    }

    /// What is worth keeping beside reason and numbers: what exactly was wrong, or what is behind the reason.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        let behind = wording::Behind::of(self).map(|behind| behind.to_string());
        behind.or_else(|| self.detail.map(str::to_owned))
    }

    /// The status that goes out.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.unwrap_or(row_of(self.reason).status)
    }

    /// The RFC 9209 error that goes out.
    #[must_use]
    pub fn error(&self) -> &'static str {
        if self.connect_timed_out { "connection_timeout" } else { row_of(self.reason).error }
    }

    /// `Retry-After` in whole seconds, rounded up and at least one: a caller that comes back early is refused again.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        if !row_of(self.reason).retry_after {
            return None;
        }
        let wait = self.retry_after.unwrap_or(DEFAULT_RETRY_AFTER);
        let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Some(whole.max(1))
    }
}

/// Where the table promises `Retry-After` and the machine that refused could not say when.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
