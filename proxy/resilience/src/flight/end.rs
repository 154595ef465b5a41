//! How a call ends: once, with nothing held.

use crate::deadline::Clock;
use crate::outcome::Ended;
use crate::protection::Protection;
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::time::Timestamp;

use super::call::RetryDenied;
use super::outbox::Out;
use super::{Flight, Phase};

impl Flight {
    /// The caller went away, or the shell is dropping the call. Harmless after the end.
    pub fn handle_caller_gone(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.phase == Phase::Over {
            return;
        }
        self.outbox.clear();
        self.stop(Ended::Caller, protection, now);
        self.reason = Some(Reason::ClientGone);
        self.end(None, protection);
    }

    /// A clock of the call ran out. Its answer, if one has begun, is cut; if one is kept and no attempt runs, that one
    /// goes out after all.
    pub(super) fn end_by(&mut self, clock: Clock, protection: &mut Protection, now: Timestamp) {
        let rejection = self.clock_rejection(clock);
        let answering = self.phase == Phase::Answering;
        let kept = self.facts.kept && !self.is_running();
        let ended = match clock {
            Clock::Caller => Ended::Deadline,
            // A stream that has gone on for as long as it may has not failed.
            Clock::Stream if answering => Ended::Caller,
            Clock::Request | Clock::Stream => self.clock_ran_out(),
        };
        self.stop(ended, protection, now);
        if answering {
            self.reason = Some(rejection.reason);
            self.end(Some(Out::Cut), protection);
        } else if kept {
            self.end(Some(Out::DeliverKept), protection);
        } else {
            self.end_unanswered(Some(rejection), protection);
        }
    }

    /// The proxy answers.
    pub(super) fn end_unanswered(&mut self, rejection: Option<Rejection>, protection: &mut Protection) {
        self.trouble = rejection;
        self.reason = rejection.map(|rejection| rejection.reason);
        self.end(Some(Out::Reject), protection);
    }

    /// The last words; everything has been given back.
    pub(super) fn end(&mut self, last: Option<Out>, protection: &mut Protection) {
        if let Some(out) = last {
            self.outbox.push(out);
        }
        self.outbox.push(Out::Done);
        self.phase = Phase::Over;
        self.phase_ends = Timestamp::MAX;
        protection.exit(&self.holdings);
    }

    /// Ends whatever goes on: an attempt, a wait, a back-off.
    fn stop(&mut self, ended: Ended, protection: &mut Protection, now: Timestamp) {
        match self.phase {
            Phase::Queued | Phase::BackingOff | Phase::Picking => {
                if self.phase == Phase::Picking {
                    self.outbox.push(Out::Abandon);
                } else if self.token.is_some() {
                    self.deny(RetryDenied::Over);
                }
                protection.give_up(&mut self.holdings, now);
                self.give_token_back(protection, now);
            }
            Phase::Connecting | Phase::Connected | Phase::Sent | Phase::Answering => {
                self.finish_attempt(ended, protection, now);
                self.outbox.push(Out::Abandon);
            }
            Phase::Over => {}
        }
        if self.queued_since != Timestamp::MAX {
            self.queued += now.saturating_since(self.queued_since);
            self.queued_since = Timestamp::MAX;
        }
    }
}
