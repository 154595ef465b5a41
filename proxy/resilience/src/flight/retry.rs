//! Whether a failure is tried again: decided once, when it is known.

use std::time::Duration;

use crate::breaker::Asker;
use crate::mode::{Mode, Moded};
use crate::protection::Protection;
use crate::reason::Reason;
use crate::rejection::{Block, Cause, Rejected, Rejection};
use crate::rules::{Methods, OnRetriedInbound, RetryRules};
use crate::time::Timestamp;

use super::call::{Failure, Head, RetryDenied, Safety};
use super::outbox::Out;
use super::{Flight, Phase};

/// What went wrong, as far as it matters for trying again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    kind: Kind,
    /// A byte of the request was written: part of it may have been done.
    sent: bool,
    /// When the dependency wants to be asked again.
    retry_after: Option<Duration>,
    /// The answer forbids a retry.
    forbidden: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// An answer with a code that is retried.
    RetryCode { status: u16 },
    /// No answer.
    Failure(Failure),
    /// A clock ran out while we waited for the dependency.
    Timeout,
    /// Nothing that a retry could mend.
    Final,
}

impl Trouble {
    pub(super) fn answer(head: &Head) -> Self {
        let kind = if head.retry_code { Kind::RetryCode { status: head.status } } else { Kind::Final };
        Self { kind, sent: true, retry_after: head.retry_after, forbidden: head.no_retry }
    }

    pub(super) const fn failure(failure: Failure, sent: bool) -> Self {
        // HTTP/2 says itself that it had not begun.
        let sent = sent && !matches!(failure, Failure::RefusedStream);
        Self { kind: Kind::Failure(failure), sent, retry_after: None, forbidden: false }
    }

    /// A request that our caller has not sent whole cannot be hurried by sending it again.
    pub(super) const fn timeout(sent: bool, waiting_for_caller: bool) -> Self {
        let kind = if waiting_for_caller { Kind::Final } else { Kind::Timeout };
        Self { kind, sent, retry_after: None, forbidden: false }
    }

    /// Whether policy names this kind of failure at all.
    const fn is_named_by(&self, rules: &RetryRules) -> bool {
        match self.kind {
            Kind::RetryCode { status: 429 } => !rules.retry_429_only_with_retry_after || self.retry_after.is_some(),
            Kind::RetryCode { .. } => true,
            Kind::Failure(failure) => match failure {
                Failure::Connect | Failure::ConnectTimeout | Failure::Dns | Failure::Tls => rules.on_connect_failure,
                Failure::NotSent => rules.on_reset_before_request,
                Failure::RefusedStream => rules.on_refused_stream,
                Failure::Reset => rules.on_reset,
                Failure::Protocol => false,
            },
            Kind::Timeout => rules.timeouts,
            Kind::Final => false,
        }
    }
}

impl Flight {
    /// Whether the call could be sent again, so that its body is worth keeping.
    pub fn may_be_retried(&self) -> bool {
        let Some(retry) = self.rules.retry.as_ref().filter(|retry| retry.mode.enforces() && !self.facts.opaque) else {
            return false;
        };
        let left = self.attempt_number().max(1) < retry.config.max_attempts;
        left && !self.facts.unrepeatable && !self.is_left_to_others(&retry.config) && self.is_repeatable(&retry.config)
    }

    /// How long to back off before another attempt; `None`: there is none. A token is paid.
    pub(super) fn consider_retry(
        &mut self,
        trouble: &Trouble,
        protection: &mut Protection,
        now: Timestamp,
    ) -> Option<Duration> {
        let named =
            |retry: &&Moded<RetryRules>| retry.mode.is_on() && trouble.is_named_by(&retry.config) && !self.facts.opaque;
        let retry = *self.rules.retry.as_ref().filter(named)?;
        let decided = self.decide(trouble, &retry.config, protection, now);
        if retry.mode != Mode::Enforce {
            if decided.is_ok() && protection.would_spend(now) {
                protection.would_retry(self.holdings.route());
            }
            return None;
        }
        let paid = decided.and_then(|wait| Ok((wait, protection.try_spend(now).map_err(|_| RetryDenied::Budget)?)));
        match paid {
            Ok((wait, token)) => {
                self.token = Some(token);
                Some(wait)
            }
            Err(denied) => {
                self.deny(denied);
                None
            }
        }
    }

    fn decide(
        &mut self,
        trouble: &Trouble,
        rules: &RetryRules,
        protection: &mut Protection,
        now: Timestamp,
    ) -> Result<Duration, RetryDenied> {
        if trouble.forbidden {
            return Err(RetryDenied::Forbidden);
        }
        if self.is_left_to_others(rules) {
            return Err(RetryDenied::RetriedInbound);
        }
        if self.attempts >= rules.max_attempts {
            return Err(RetryDenied::Attempts);
        }
        if trouble.sent && !self.is_repeatable(rules) {
            return Err(RetryDenied::Unsafe);
        }
        if self.facts.unrepeatable {
            return Err(RetryDenied::Body);
        }
        let floor = trouble.retry_after.filter(|_| rules.retry_after.honor).unwrap_or_default();
        if floor > rules.retry_after.max {
            return Err(RetryDenied::RetryAfter);
        }
        let wait = self.backoff.next(&rules.backoff, floor, &mut self.random);
        let needed = wait.saturating_add(protection.median_latency().unwrap_or_default());
        if now.saturating_add(needed) >= self.deadline.next_enforced(&self.rules) {
            return Err(RetryDenied::Deadline);
        }
        if protection.breaker_refuses(&self.holdings, Asker::Retry, now) {
            return Err(RetryDenied::CircuitOpen);
        }
        Ok(wait)
    }

    /// Another attempt after this failure, or the end.
    pub(super) fn retry_or_conclude(
        &mut self,
        rejection: Rejection,
        trouble: &Trouble,
        protection: &mut Protection,
        now: Timestamp,
    ) {
        self.trouble = Some(rejection);
        match self.consider_retry(trouble, protection, now) {
            Some(wait) => self.back_off(wait, now),
            None => self.conclude(protection, now),
        }
    }

    /// Nothing is held any more; the retry's turn comes in `wait`.
    pub(super) fn back_off(&mut self, wait: Duration, now: Timestamp) {
        self.phase = Phase::BackingOff;
        self.phase_ends = now.saturating_add(wait);
    }

    /// No further attempt: the last answer goes out if there is one, else what went wrong.
    pub(super) fn conclude(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.facts.kept {
            self.end(Some(Out::DeliverKept), protection);
            return;
        }
        let exhausted = self.exhausted(protection, now);
        let rejection = self.trouble.map(|trouble| match exhausted {
            Some(Rejected { reason, observed, limit, .. }) => {
                let cause = Some(Cause::Attempt(trouble.reason));
                Rejection { reason, cause, block: Block::Retry, observed, limit, ..trouble }
            }
            None => trouble,
        });
        self.end_unanswered(rejection, protection);
    }

    /// That retrying itself came to its end: the attempts that were made of those allowed, or the budget as it stands.
    fn exhausted(&self, protection: &Protection, now: Timestamp) -> Option<Rejected> {
        match self.denied? {
            RetryDenied::Attempts if self.attempts > 1 => {
                let allowed = self.rules.retry.as_ref().map_or(0, |retry| retry.config.max_attempts);
                Some(Rejected::new(Reason::RetriesExhausted, self.attempts.into(), allowed.into()))
            }
            RetryDenied::Budget => {
                let budget = protection.budget_view(now);
                Some(Rejected::new(Reason::RetryBudgetExhausted, budget.retries, budget.allowed))
            }
            _ => None,
        }
    }

    pub(super) fn give_token_back(&mut self, protection: &mut Protection, now: Timestamp) {
        if let Some(token) = self.token.take() {
            protection.give_back_token(token, now);
        }
    }

    /// Notes why there is no further attempt, and whether others should not try either.
    pub(super) fn deny(&mut self, denied: RetryDenied) {
        self.denied = Some(denied);
        self.facts.retries_over |= match denied {
            RetryDenied::Attempts => self.attempts > 1,
            RetryDenied::Unsafe | RetryDenied::Body | RetryDenied::RetriedInbound | RetryDenied::Over => false,
            RetryDenied::Deadline
            | RetryDenied::RetryAfter
            | RetryDenied::Forbidden
            | RetryDenied::Budget
            | RetryDenied::CircuitOpen
            | RetryDenied::Bulkhead
            | RetryDenied::NoEndpoint => true,
        };
    }

    fn is_left_to_others(&self, rules: &RetryRules) -> bool {
        self.facts.retried_inbound && rules.on_retried_inbound == OnRetriedInbound::NoRetry
    }

    /// Whether the call may be sent again after something of it was sent.
    pub(super) fn is_repeatable(&self, rules: &RetryRules) -> bool {
        let level = match self.safety {
            Safety::Safe => Methods::Safe,
            Safety::Idempotent => Methods::Idempotent,
            Safety::Unsafe if self.facts.idempotency_key => Methods::Idempotent,
            Safety::Unsafe => Methods::Any,
        };
        level <= rules.methods
    }
}
