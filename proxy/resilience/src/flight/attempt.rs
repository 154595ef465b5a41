//! One attempt, from its endpoint to its end; what the answer says is in `answer`.

use std::time::Duration;

use crate::breaker::Asker;
use crate::outcome::{Ended, Outcome, classify};
use crate::protection::Protection;
use crate::reason::Reason;
use crate::rejection::{Block, EndpointKey, Rejected, Rejection};
use crate::time::Timestamp;

use super::call::Failure;
use super::outbox::Out;
use super::retry::Trouble;
use super::{AttemptClock, Flight, Phase, Verdict};

/// Endpoints that are picked in vain, because their breaker had opened meanwhile, before the attempt is given up.
const REPICKS: u8 = 3;

impl Flight {
    /// After [`Action::Attempt`](super::Action::Attempt), and before [`Flight::handle_picked`]: this endpoint was picked,
    /// and no socket to it is left for now (`maxConnections`). While it waits for one, the call has a [`Flight::waiter`]
    /// and is woken when a breaker opens, to be refused: an [`Action::Abandon`](super::Action::Abandon) then says that
    /// it wants none any more.
    pub fn handle_socket_wait(&mut self, endpoint: EndpointKey, protection: &mut Protection, now: Timestamp) {
        if self.phase != Phase::Picking {
            return;
        }
        self.holdings.endpoint = Some(endpoint);
        protection.begin_socket_wait(&mut self.holdings);
        // One that opened a moment ago has woken those who were waiting then.
        self.reconsider_pick(protection, now);
    }

    /// A breaker may have opened while the call waits for a socket.
    pub(super) fn reconsider_pick(&mut self, protection: &mut Protection, now: Timestamp) {
        if let Err(rejection) = self.renew_ticket(protection, now) {
            self.outbox.push(Out::Abandon);
            return self.refuse_pick(rejection, protection, now);
        }
        let Some(endpoint) = self.holdings.endpoint else { return };
        if let Err(rejection) = protection.ask_endpoint(&mut self.holdings, endpoint, self.asker, now) {
            self.outbox.push(Out::Abandon);
            self.pick_again(rejection, protection, now);
        }
    }

    /// After [`Action::Attempt`](super::Action::Attempt): this endpoint was picked, and a connection is looked for.
    /// A breaker may have changed its mind since it was asked; with `scope: Endpoint` another endpoint is asked for.
    pub fn handle_picked(&mut self, endpoint: EndpointKey, protection: &mut Protection, now: Timestamp) {
        if self.phase != Phase::Picking {
            return;
        }
        self.holdings.endpoint = Some(endpoint);
        protection.end_socket_wait(&mut self.holdings);
        if let Err(rejection) = self.renew_ticket(protection, now) {
            return self.refuse_pick(rejection, protection, now);
        }
        if let Err(rejection) = protection.take_endpoint_ticket(&mut self.holdings, endpoint, self.asker, now) {
            return self.pick_again(rejection, protection, now);
        }
        protection.enter_endpoint(&mut self.holdings, endpoint, now);
        self.arm_probe(protection, now);
        self.count_attempt();
        self.phase = Phase::Connecting;
        let connect = self.rules.timeouts.connect;
        self.phase_ends = self.ends_after(Some(connect), now);
    }

    fn renew_ticket(&mut self, protection: &mut Protection, now: Timestamp) -> Result<(), Rejection> {
        if protection.renew_ticket(&mut self.holdings, self.asker, now)? {
            self.probe_ends = Timestamp::MAX;
            self.arm_probe(protection, now);
        }
        Ok(())
    }

    /// The endpoint's breaker refuses: another endpoint may do.
    fn pick_again(&mut self, rejection: Rejection, protection: &mut Protection, now: Timestamp) {
        self.facts.repicked += 1;
        if self.call_is_over(protection, now) {
            return;
        }
        if self.facts.repicked < REPICKS {
            protection.end_socket_wait(&mut self.holdings);
            self.outbox.push(Out::Attempt);
        } else {
            self.refuse_pick(rejection, protection, now);
        }
    }

    fn refuse_pick(&mut self, rejection: Rejection, protection: &mut Protection, now: Timestamp) {
        protection.give_up(&mut self.holdings, now);
        self.on_refused(rejection, protection, now);
    }

    /// After [`Action::Attempt`](super::Action::Attempt): there is no endpoint; `all_open`: every breaker refused.
    pub fn handle_no_endpoint(&mut self, all_open: bool, protection: &mut Protection, now: Timestamp) {
        if self.phase != Phase::Picking {
            return;
        }
        let (rejected, block) = match all_open {
            true => (protection.endpoints_refusal(), Block::CircuitBreaker),
            false => (Rejected::new(Reason::NoHealthyEndpoint, 0, 0), Block::Target),
        };
        self.handle_refused(rejected, block, protection, now);
    }

    /// The shell itself refuses the attempt before anything is sent (no socket left under `maxConnections`, the way
    /// leads back to us): permits and ticket go back, and no machine counts it.
    pub fn handle_refused(&mut self, rejected: Rejected, block: Block, protection: &mut Protection, now: Timestamp) {
        if !(Phase::Picking..Phase::Sent).contains(&self.phase) {
            return;
        }
        self.attempts -= u32::from(self.phase > Phase::Picking);
        self.stop_clocks();
        protection.give_up(&mut self.holdings, now);
        let rejection = Rejection::new(rejected, block, self.holdings.route(), false);
        self.on_refused(rejection, protection, now);
    }

    /// A connection, new or pooled, is ours: the clock of the attempt starts.
    pub fn handle_connected(&mut self, now: Timestamp) {
        if self.phase != Phase::Connecting {
            return;
        }
        self.phase = Phase::Connected;
        self.phase_ends = self.ends_after(self.rules.timeouts.attempt.filter(|_| !self.facts.opaque), now);
        if self.facts.opaque && self.probe_ends != Timestamp::MAX {
            self.probe_ends = now.saturating_add(self.probe_limit);
        }
        if self.rules.timeouts.mode.is_on() {
            self.idle_since = now;
        }
    }

    /// The first byte of the request was written: the latency clock starts.
    #[inline]
    pub fn handle_sent(&mut self, now: Timestamp) {
        if self.facts.opaque {
            return self.handle_turn_begins(now);
        }
        if self.phase != Phase::Connected {
            return;
        }
        self.phase = Phase::Sent;
        // A retry that is made is paid for; until now it might have been refused.
        self.token = None;
        self.clock.start(now);
        self.arm_slow();
        if self.probe_ends != Timestamp::MAX {
            self.probe_ends = now.saturating_add(self.probe_limit);
        }
    }

    /// The attempt failed.
    pub fn handle_failed(&mut self, failure: Failure, protection: &mut Protection, now: Timestamp) {
        if !self.is_running() {
            return;
        }
        let untouched = match failure {
            Failure::NotSent => self.phase < Phase::Sent,
            Failure::RefusedStream => self.phase < Phase::Answering,
            _ => false,
        };
        if untouched && !self.facts.fresh_spent && !self.facts.opaque {
            self.try_afresh(protection, now);
            return;
        }
        if self.phase == Phase::Picking {
            self.count_attempt();
        }
        let answering = self.phase == Phase::Answering;
        let sent = self.phase >= Phase::Sent;
        // Whoever says so after a byte was written is mistaken.
        let failure = if sent && failure == Failure::NotSent { Failure::Reset } else { failure };
        let reason = failure.reason();
        let age = now.saturating_since(self.arrived);
        let rejection = self.rejection(reason, Block::Target, age, Duration::ZERO);
        self.finish_attempt(Ended::Transport, protection, now);
        if answering {
            self.reason = Some(reason);
            self.end(Some(Out::Cut), protection);
            return;
        }
        self.retry_or_conclude(rejection, &Trouble::failure(failure, sent), protection, now);
    }

    /// The dependency has not begun: one fresh try, at once, with the same permit.
    fn try_afresh(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.call_is_over(protection, now) {
            return;
        }
        protection.give_back_endpoint(&mut self.holdings, now);
        protection.end_socket_wait(&mut self.holdings);
        self.stop_clocks();
        // That one was none.
        self.attempts -= u32::from(self.phase > Phase::Picking);
        self.facts.fresh_spent = true;
        self.facts.fresh = true;
        self.phase = Phase::Picking;
        self.outbox.push(Out::Attempt);
    }

    pub(super) fn handle_connect_timeout(&mut self, protection: &mut Protection, now: Timestamp) {
        let limit = self.rules.timeouts.connect;
        let rejection = self.rejection(Reason::ConnectFailure, Block::Timeouts, limit, limit);
        self.phase_ends = Timestamp::MAX;
        if self.is_only_observed(rejection, protection) {
            return;
        }
        self.finish_attempt(Ended::Clock, protection, now);
        self.outbox.push(Out::Abandon);
        self.retry_or_conclude(rejection, &Trouble::failure(Failure::ConnectTimeout, false), protection, now);
    }

    pub(super) fn handle_attempt_timeout(&mut self, protection: &mut Protection, now: Timestamp) {
        let limit = self.rules.timeouts.attempt.unwrap_or_default();
        let rejection = self.rejection(Reason::AttemptTimeout, Block::Timeouts, limit, limit);
        self.phase_ends = Timestamp::MAX;
        self.time_out(rejection, protection, now);
    }

    pub(super) fn handle_idle(&mut self, protection: &mut Protection, now: Timestamp) {
        let limit = self.rules.timeouts.idle;
        let rejection = self.rejection(Reason::IdleTimeout, Block::Timeouts, limit, limit);
        self.idle_since = Timestamp::MAX;
        self.time_out(rejection, protection, now);
    }

    fn time_out(&mut self, rejection: Rejection, protection: &mut Protection, now: Timestamp) {
        if self.is_only_observed(rejection, protection) {
            return;
        }
        let trouble = Trouble::timeout(self.phase >= Phase::Sent, self.clock.is_waiting());
        let answering = self.phase == Phase::Answering;
        let ended = self.clock_ran_out();
        self.finish_attempt(ended, protection, now);
        self.outbox.push(Out::Abandon);
        if answering {
            self.reason = Some(rejection.reason);
            self.end(Some(Out::Cut), protection);
            return;
        }
        self.retry_or_conclude(rejection, &trouble, protection, now);
    }

    fn is_only_observed(&self, rejection: Rejection, protection: &mut Protection) -> bool {
        let enforces = self.rules.timeouts.mode.enforces();
        if !enforces {
            protection.would_reject(rejection);
        }
        !enforces
    }

    /// A configured clock ran out: that is the dependency's failure, unless it was our caller that we waited for.
    pub(super) fn clock_ran_out(&self) -> Ended {
        // Nor does anybody know who is to speak on an opaque connection.
        let silence = self.facts.opaque && self.is_connected();
        if self.clock.is_waiting() || silence { Ended::Caller } else { Ended::Clock }
    }

    /// Says what the attempt came to and gives back all that it held.
    pub(super) fn finish_attempt(&mut self, ended: Ended, protection: &mut Protection, now: Timestamp) {
        self.note_slow(protection, now);
        let begun = self.facts.streaming && self.phase == Phase::Answering;
        let ended = self.weigh(ended);
        let outcome = classify(ended);
        let age = self.clock.elapsed(now);
        if outcome == Outcome::Success && !begun && !self.facts.opaque {
            self.latency = Some(age);
        }
        if self.asker == Asker::First {
            self.first = Some(outcome);
        } else {
            let count = &mut self.retries[outcome as usize];
            *count = count.saturating_add(1);
        }
        if self.phase < Phase::Sent {
            // That it came to nothing makes it no cheaper.
            self.token = None;
        }
        protection.finish(&mut self.holdings, ended, age, now);
        self.stop_clocks();
    }

    /// Counts a running attempt as slow the moment it is older than the threshold.
    #[inline]
    pub(super) fn note_slow(&mut self, protection: &mut Protection, now: Timestamp) {
        let Some(threshold) = self.rules.slow_call_threshold else {
            return;
        };
        if !self.may_become_slow() || !self.clock.is_running() || self.clock.elapsed(now) < threshold {
            return;
        }
        self.facts.slow = true;
        self.facts.ever_slow = true;
        self.slow_at = Timestamp::MAX;
        match self.facts.opaque {
            true => protection.mark_turn_slow(&mut self.holdings, now),
            false => protection.mark_slow(&mut self.holdings, now),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        (Phase::Picking..Phase::Over).contains(&self.phase)
    }

    fn count_attempt(&mut self) {
        self.attempts += 1;
        self.facts.fresh = false;
    }

    fn stop_clocks(&mut self) {
        self.phase_ends = Timestamp::MAX;
        self.idle_since = Timestamp::MAX;
        self.slow_at = Timestamp::MAX;
        self.probe_ends = Timestamp::MAX;
        self.clock = AttemptClock::STOPPED;
        self.facts.slow = false;
        self.verdict = Verdict::Good;
    }

    fn ends_after(&self, limit: Option<Duration>, now: Timestamp) -> Timestamp {
        match limit {
            Some(limit) if self.rules.timeouts.mode.is_on() => now.saturating_add(limit),
            _ => Timestamp::MAX,
        }
    }
}
