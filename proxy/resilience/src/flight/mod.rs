//! The life of one call: attempts, back-off, clocks, answer.
//!
//! ```text
//!             refused                      no permit: Await
//!   start --------------------> Over         |   woken
//!     | admitted                             v
//!     +-----------------> Picking <------- Queued <----+
//!                            | picked                  |
//!                            v                         | back-off over, as a retry
//!                        Connecting                    |
//!                            | connected               |
//!                            v                         |
//!                         Connected            BackingOff
//!                            | sent                    ^
//!                            v       failed, and a retry is decided:
//!                          Sent ---> permit, ticket and connection go back
//!                            | head
//!                            v
//!                        Answering --- last byte ---> Over
//!
//!   a clock of the call, or the caller gone: Over, from everywhere
//! ```
//!
//! An opaque connection ([`Call::opaque`]) goes the same way without permits and without a way back: its page is
//! `opaque`.
//!
//! It joins the machines for one call, so that the proxy and the simulator obey the same rules. *Rule*: the order of
//! protection of design.md section 3; for each attempt the breaker is asked, permits are taken, the breaker's ticket
//! last; all of it is held to the last byte of the answer and given back for the back-off. Whether a failure is tried
//! again is decided once, when it is known. A call ends exactly once, with [`Action::Done`], and holds nothing then.
//!
//! *How the shell drives it*: after each input it drains [`Flight::poll_action`] (and, under the same lock, the events
//! and woken calls of the [`Protection`]), then waits for I/O, for its waiter or for [`Flight::next_timeout`]. Inputs
//! that do not fit the phase change nothing, so that late and spurious ones do no harm.
//!
//! *Not done*: it picks no endpoint, moves no byte and keeps no answer; hedges are not there yet.

mod answer;
mod attempt;
mod call;
mod clock;
mod end;
mod opaque;
mod outbox;
mod retry;

use std::sync::Arc;
use std::time::Duration;

pub use call::{Action, Attempt, AttemptKind, Call, Failure, Head, RetryDenied, Safety, Summary};

use crate::backoff::Backoff;
use crate::breaker::Asker;
use crate::budget::Token;
use crate::bulkhead::WaiterId;
use crate::deadline::{Clock, Deadline};
use crate::outcome::Outcome;
use crate::protection::{Admitted, Holdings, Protection, Wish};
use crate::random::Random;
use crate::reason::Reason;
use crate::rejection::{Block, Rejection};
use crate::rules::{Rules, Streaming};
use crate::time::Timestamp;

use clock::AttemptClock;
use outbox::{Out, Outbox};

/// Where a call stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// Waits for a permit.
    Queued,
    /// Failed, waits to try again, holds nothing.
    BackingOff,
    /// May be sent; the shell looks for an endpoint.
    Picking,
    /// The shell looks for a connection.
    Connecting,
    /// Has a connection; nothing is sent.
    Connected,
    /// A byte of the request is sent.
    Sent,
    /// The head of the answer has gone to the caller.
    Answering,
    /// Nothing follows.
    Over,
}

/// Small facts about a call.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    idempotency_key: bool,
    retried_inbound: bool,
    /// Bytes both ways, of which nothing is understood.
    opaque: bool,
    /// The answer comes as a stream.
    streaming: bool,
    /// The body cannot be sent again.
    unrepeatable: bool,
    /// The free fresh try is spent.
    fresh_spent: bool,
    /// The attempt to come takes no pooled connection.
    fresh: bool,
    /// An attempt of this call was slow, and this one is.
    ever_slow: bool,
    slow: bool,
    /// The shell keeps an answer.
    kept: bool,
    retries_over: bool,
    /// How often an endpoint's breaker changed its mind after it was picked.
    repicked: u8,
}

/// What head or trailers said, which may weigh more than how the answer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Good,
    FailureCode,
    Pushback,
    Deadline,
}

/// One call.
#[derive(Debug)]
pub struct Flight {
    rules: Arc<Rules>,
    phase: Phase,
    asker: Asker,
    safety: Safety,
    facts: Facts,
    verdict: Verdict,
    outbox: Outbox,
    holdings: Holdings,

    arrived: Timestamp,
    caller_deadline: Option<Timestamp>,
    deadline: Deadline,
    /// The clock of the phase: queue, back-off, connect or attempt.
    phase_ends: Timestamp,
    /// The last byte either way; `MAX`: the idle clock does not run.
    idle_since: Timestamp,
    clock: AttemptClock,
    slow_at: Timestamp,
    /// The limit of a probe: from its ticket, and again from its sending.
    probe_limit: Duration,
    probe_ends: Timestamp,

    backoff: Backoff,
    random: Random,
    /// Paid for a retry of which nothing is sent yet.
    token: Option<Token>,
    /// What went wrong last, or why the call ended.
    trouble: Option<Rejection>,
    denied: Option<RetryDenied>,

    attempts: u32,
    first: Option<Outcome>,
    retries: [u8; 5],
    latency: Option<Duration>,
    queued_since: Timestamp,
    queued: Duration,
    reason: Option<Reason>,
}

impl Flight {
    /// The head of a request has arrived and belongs to a dependency.
    pub fn start(rules: Arc<Rules>, call: Call, protection: &mut Protection, now: Timestamp) -> Self {
        let streaming = match rules.streaming {
            Streaming::Auto => call.streaming,
            Streaming::Always => true,
            Streaming::Never => false,
        };
        let deadline = match call.opaque {
            true => Deadline::NONE,
            false => Deadline::new(&rules, call.arrived, call.caller_deadline, call.grpc, streaming),
        };
        let facts = Facts {
            idempotency_key: call.idempotency_key,
            retried_inbound: call.retried_inbound,
            opaque: call.opaque,
            streaming: streaming || call.opaque,
            ..Facts::default()
        };
        let mut flight = Self {
            rules,
            phase: Phase::Queued,
            asker: Asker::First,
            safety: call.safety,
            facts,
            verdict: Verdict::Good,
            outbox: Outbox::default(),
            holdings: protection.enter(call.route),
            arrived: call.arrived,
            caller_deadline: call.caller_deadline.filter(|_| !call.opaque),
            deadline,
            phase_ends: Timestamp::MAX,
            idle_since: Timestamp::MAX,
            clock: AttemptClock::STOPPED,
            slow_at: Timestamp::MAX,
            probe_limit: Duration::ZERO,
            probe_ends: Timestamp::MAX,
            backoff: Backoff::default(),
            random: Random::new(call.seed),
            token: None,
            trouble: None,
            denied: None,
            attempts: 0,
            first: None,
            retries: [0; 5],
            latency: None,
            queued_since: Timestamp::MAX,
            queued: Duration::ZERO,
            reason: None,
        };
        flight.seek(protection, now);
        flight
    }

    /// Our waiter came out of [`Protection::poll_woken`]. A spurious call does no harm.
    pub fn handle_woken(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.waiter().is_none() || self.call_is_over(protection, now) {
            return;
        }
        if self.phase == Phase::Picking {
            return self.reconsider_pick(protection, now);
        }
        let wish = self.wish();
        let admitted = protection.resume(&mut self.holdings, wish, now);
        self.handle_admitted(admitted, protection, now);
    }

    /// We wait for our caller: for bytes of its request, or for room to write to it. The latency clock stands still.
    pub fn handle_caller_wait(&mut self, now: Timestamp) {
        self.clock.wait(now);
        self.slow_at = Timestamp::MAX;
    }

    /// We wait for our caller no longer.
    pub fn handle_caller_ready(&mut self, now: Timestamp) {
        self.clock.go_on(now);
        self.arm_slow();
    }

    /// Bytes moved, either way: the idle clock starts again.
    #[inline]
    pub fn handle_progress(&mut self, now: Timestamp) {
        if self.idle_since != Timestamp::MAX {
            self.idle_since = now;
        }
    }

    /// The body outgrew what is kept of it: the call cannot be sent again.
    pub const fn handle_unrepeatable(&mut self) {
        self.facts.unrepeatable = true;
    }

    /// A clock ran out. Harmless when none has.
    pub fn handle_timeout(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.phase == Phase::Over {
            return;
        }
        if self.probe_ends <= now {
            self.probe_ends = Timestamp::MAX;
            match self.facts.opaque && self.is_connected() {
                true => self.stands(protection, now),
                false => protection.mark_overdue(&mut self.holdings, now),
            }
        }
        self.note_slow(protection, now);
        let idle_ends = self.idle_ends();
        // Of several that ran out since we last looked, the first decides.
        if self.deadline.next() <= self.phase_ends.min(idle_ends) && self.call_is_over(protection, now) {
            return;
        }
        if self.phase_ends <= now && self.phase_ends <= idle_ends {
            self.handle_phase_over(protection, now);
        } else if idle_ends <= now {
            self.handle_idle(protection, now);
        }
    }

    /// When [`Flight::handle_timeout`] is to be called next.
    #[inline]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let ours = self.phase_ends.min(self.slow_at).min(self.probe_ends).min(self.idle_ends());
        let next = ours.min(self.deadline.next());
        (next != Timestamp::MAX && self.phase != Phase::Over).then_some(next)
    }

    /// What the shell does next.
    #[inline]
    pub fn poll_action(&mut self) -> Option<Action> {
        Some(match self.outbox.pop()? {
            Out::Await => Action::Await,
            Out::Attempt => Action::Attempt(Attempt {
                number: self.attempt_number(),
                kind: match self.asker {
                    Asker::First => AttemptKind::First,
                    Asker::Retry => AttemptKind::Retry,
                },
                fresh_connection: self.facts.fresh,
                avoid: self.holdings.endpoint,
            }),
            Out::Abandon => Action::Abandon,
            Out::Keep => Action::Keep,
            Out::Deliver => Action::Deliver,
            Out::DeliverKept => Action::DeliverKept { if_cut: Reason::RetriesExhausted },
            Out::Reject => Action::Reject(self.trouble.expect("a call is rejected for something")),
            Out::Cut => Action::Cut(self.reason.expect("an answer is cut for something")),
            Out::Done => Action::Done,
        })
    }

    /// The name under which the call waits for a permit or a socket, while it does.
    pub const fn waiter(&self) -> Option<WaiterId> {
        self.holdings.waiter()
    }

    /// What goes out as the deadline: the time left, less the reserve. `None`: none is sent.
    pub fn remaining(&self, now: Timestamp) -> Option<Duration> {
        self.deadline.remaining(&self.rules, self.caller_deadline, now)
    }

    /// The rules under which the call began and will end.
    pub const fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// What the call has come to so far; final after [`Action::Done`].
    pub fn summary(&self) -> Summary {
        Summary {
            attempts: self.attempts,
            reason: self.reason,
            retry_denied: self.denied,
            retries_over: self.facts.retries_over,
            first: self.first,
            retries: self.retries,
            slow: self.facts.ever_slow,
            latency: self.latency,
            queued: self.queued,
            streaming: self.facts.streaming,
        }
    }

    /// Breaker, permits and ticket for the next attempt.
    fn seek(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.call_is_over(protection, now) {
            return;
        }
        let wish = self.wish();
        let admitted = match self.facts.opaque {
            true => protection.admit_opaque(&mut self.holdings, wish, now),
            false => protection.admit(&mut self.holdings, wish, now),
        };
        self.handle_admitted(admitted, protection, now);
    }

    fn wish(&self) -> Wish {
        Wish { asker: self.asker, latest: self.deadline.next_enforced(&self.rules) }
    }

    #[inline]
    fn handle_admitted(&mut self, admitted: Admitted, protection: &mut Protection, now: Timestamp) {
        if let Admitted::Queued { until } = admitted {
            self.phase_ends = until;
            if self.queued_since == Timestamp::MAX {
                self.phase = Phase::Queued;
                self.queued_since = now;
                self.outbox.push(Out::Await);
            }
            return;
        }
        self.phase_ends = Timestamp::MAX;
        if self.queued_since != Timestamp::MAX {
            self.queued += now.saturating_since(self.queued_since);
            self.queued_since = Timestamp::MAX;
        }
        match admitted {
            Admitted::Refused(rejection) => self.on_refused(rejection, protection, now),
            _ => self.begin_attempt(protection, now),
        }
    }

    #[inline]
    fn begin_attempt(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.asker == Asker::First && !self.facts.opaque {
            protection.on_call(now);
        }
        self.arm_probe(protection, now);
        self.phase = Phase::Picking;
        self.outbox.push(Out::Attempt);
    }

    /// Refused by ourselves, with nothing sent and nothing held: the end of a first attempt's call, or of retrying.
    fn on_refused(&mut self, rejection: Rejection, protection: &mut Protection, now: Timestamp) {
        if self.asker == Asker::First {
            self.end_unanswered(Some(rejection), protection);
            return;
        }
        self.give_token_back(protection, now);
        self.deny(match rejection.block {
            Block::Bulkhead => RetryDenied::Bulkhead,
            Block::CircuitBreaker => RetryDenied::CircuitOpen,
            _ => RetryDenied::NoEndpoint,
        });
        self.conclude(protection, now);
    }

    /// The clock of a phase ran out.
    fn handle_phase_over(&mut self, protection: &mut Protection, now: Timestamp) {
        match self.phase {
            Phase::Queued => self.handle_woken(protection, now),
            Phase::BackingOff => {
                self.phase_ends = Timestamp::MAX;
                self.asker = Asker::Retry;
                self.seek(protection, now);
            }
            Phase::Connecting => self.handle_connect_timeout(protection, now),
            Phase::Connected | Phase::Sent | Phase::Answering => {
                self.handle_attempt_timeout(protection, now);
            }
            Phase::Picking | Phase::Over => self.phase_ends = Timestamp::MAX,
        }
    }

    /// Ends the call if one of its clocks has run out; one that only observes is told, once.
    #[inline]
    fn call_is_over(&mut self, protection: &mut Protection, now: Timestamp) -> bool {
        while let Some(clock) = self.deadline.passed(now) {
            if clock.mode(&self.rules).enforces() {
                self.end_by(clock, protection, now);
                return true;
            }
            let rejection = self.clock_rejection(clock);
            protection.would_reject(rejection);
            self.deadline.lift(clock);
        }
        false
    }

    fn clock_rejection(&self, clock: Clock) -> Rejection {
        let limit = self.deadline.end(clock).saturating_since(self.arrived);
        match clock {
            Clock::Caller => self.rejection(Reason::DeadlineExpired, Block::Deadline, limit, limit),
            Clock::Request | Clock::Stream => self.rejection(Reason::RequestTimeout, Block::Timeouts, limit, limit),
        }
    }

    /// A rejection whose numbers are milliseconds.
    fn rejection(&self, reason: Reason, block: Block, observed: Duration, limit: Duration) -> Rejection {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Rejection {
            reason,
            cause: None,
            block,
            route: self.holdings.route(),
            route_block: false,
            observed: ms(observed),
            limit: ms(limit),
            retry_at: None,
        }
    }

    fn arm_probe(&mut self, protection: &Protection, now: Timestamp) {
        if let Some(limit) = protection.probe_limit(&self.holdings) {
            self.probe_limit = limit;
            self.probe_ends = now.saturating_add(limit);
        }
    }

    #[inline]
    fn arm_slow(&mut self) {
        self.slow_at = match self.rules.slow_call_threshold {
            Some(threshold) if self.may_become_slow() => self.clock.reaches(threshold),
            _ => Timestamp::MAX,
        };
    }

    /// A stream is slow by its head only, an opaque connection by each of its turns.
    fn may_become_slow(&self) -> bool {
        let streams = self.facts.streaming && self.phase == Phase::Answering && !self.facts.opaque;
        !self.facts.slow && !streams
    }

    #[inline]
    fn idle_ends(&self) -> Timestamp {
        self.idle_since.saturating_add(self.rules.timeouts.idle)
    }

    const fn attempt_number(&self) -> u32 {
        match self.phase {
            Phase::Picking => self.attempts + 1,
            _ => self.attempts,
        }
    }
}

impl Drop for Flight {
    /// The shell's guard ends each call by `handle_caller_gone`; a call dropped before its end would keep its permits.
    fn drop(&mut self) {
        debug_assert!(
            self.phase == Phase::Over || std::thread::panicking(),
            "a flight was dropped in {:?}",
            self.phase
        );
    }
}

#[cfg(test)]
mod tests;
