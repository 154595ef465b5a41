//! What the answer says: its head, its status where that comes last (gRPC), and whether it is a stream.
//!
//! ```text
//!   head ------------------------------> last byte      a call: one answer, judged whole
//!   head --- a stream begins --- .. ---> last byte      a stream: good when it begins, until it fails
//!                            trailers ---^              gRPC: the status, which weighs more than the head
//! ```

use std::time::Duration;

use crate::outcome::Ended;
use crate::protection::Protection;
use crate::rules::Streaming;
use crate::time::Timestamp;

use super::call::Head;
use super::outbox::Out;
use super::retry::Trouble;
use super::{Flight, Phase, Verdict};

/// What goes out as a deadline is whole milliseconds, so that a dependency may end a call that much before its time.
const DEADLINE_GRAIN: Duration = Duration::from_millis(1);

impl Flight {
    /// The head of the final answer; never a 1xx. It carries the gRPC status too if that is known before a message: the
    /// answer has not begun then, and may be tried again.
    pub fn handle_head(&mut self, head: Head, protection: &mut Protection, now: Timestamp) {
        if self.facts.opaque {
            return self.handle_turn_ends(protection, now);
        }
        // A server may answer before it has read anything.
        self.handle_sent(now);
        if self.phase != Phase::Sent {
            return;
        }
        self.note_slow(protection, now);
        self.handle_progress(now);
        self.judge(&head, protection, now);
        if let Some(wait) = self.consider_retry(&Trouble::answer(&head), protection, now) {
            self.finish_attempt(Ended::Whole, protection, now);
            self.facts.kept = true;
            self.outbox.push(Out::Keep);
            self.back_off(wait, now);
            return;
        }
        self.phase = Phase::Answering;
        if head.streaming && self.rules.streaming != Streaming::Never && !self.facts.streaming {
            self.facts.streaming = true;
            self.deadline.begin_streaming(&self.rules, self.arrived);
        }
        if self.facts.streaming {
            self.handle_stream_begun(protection, now);
        }
        self.outbox.push(Out::Deliver);
    }

    /// gRPC: what the trailers of an answer said that has begun. It is never tried again.
    pub fn handle_status(&mut self, status: Head, protection: &mut Protection, now: Timestamp) {
        // A head that told of a failure has said what there is to say.
        if self.phase != Phase::Answering || self.verdict != Verdict::Good {
            return;
        }
        self.note_slow(protection, now);
        self.judge(&status, protection, now);
    }

    /// gRPC: from this moment on the call is a stream, since a second message has begun in either direction or the
    /// answer begins before the request has ended; `streaming: Never` holds it to unary. For breaker and latency an
    /// answer that has begun already begins now.
    pub fn handle_stream_begins(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.facts.streaming || self.rules.streaming == Streaming::Never || self.phase == Phase::Over {
            return;
        }
        self.note_slow(protection, now);
        self.facts.streaming = true;
        self.deadline.begin_streaming(&self.rules, self.arrived);
        if self.phase == Phase::Answering {
            self.handle_stream_begun(protection, now);
        }
    }

    /// The last byte of the answer was received.
    pub fn handle_ended(&mut self, protection: &mut Protection, now: Timestamp) {
        // An opaque connection may end in order before the server has said anything.
        let ends = self.phase == Phase::Answering || self.facts.opaque && self.is_connected();
        if !ends {
            return;
        }
        self.finish_attempt(Ended::Whole, protection, now);
        self.end(None, protection);
    }

    /// What head or trailers said stands, unless the answer then broke off. An opaque connection was good when its
    /// first byte came.
    pub(super) fn weigh(&self, ended: Ended) -> Ended {
        if self.facts.opaque && self.phase == Phase::Answering {
            return Ended::Whole;
        }
        match (ended, self.verdict) {
            (Ended::Transport | Ended::Clock, _) | (_, Verdict::Good) => ended,
            (_, Verdict::FailureCode) => Ended::FailureCode,
            (_, Verdict::Pushback) => Ended::Pushback,
            (_, Verdict::Deadline) => Ended::Deadline,
        }
    }

    fn judge(&mut self, head: &Head, protection: &mut Protection, now: Timestamp) {
        self.verdict = self.verdict_on(head, now);
        if self.verdict == Verdict::FailureCode {
            // Nothing that follows can better it, and a retry is to know what it has done to the breaker.
            protection.record(&mut self.holdings, Ended::FailureCode, self.clock.elapsed(now), now);
        }
    }

    fn verdict_on(&self, head: &Head, now: Timestamp) -> Verdict {
        let told = self.caller_deadline.unwrap_or(Timestamp::MAX);
        // The dependency was told of a deadline that is shorter by the reserve.
        let over = now.saturating_add(self.rules.deadline.reserve).saturating_add(DEADLINE_GRAIN) >= told;
        if head.pushback {
            Verdict::Pushback
        } else if head.deadline_exceeded && over {
            Verdict::Deadline
        } else if head.failure {
            Verdict::FailureCode
        } else {
            Verdict::Good
        }
    }

    /// For breaker and latency a stream has succeeded when its answer begins, and there the clock of its attempt ends.
    fn handle_stream_begun(&mut self, protection: &mut Protection, now: Timestamp) {
        if self.verdict == Verdict::Good {
            self.latency = Some(self.clock.elapsed(now));
            protection.mark_begun(&mut self.holdings, now);
        }
        self.phase_ends = Timestamp::MAX;
        self.slow_at = Timestamp::MAX;
        self.probe_ends = Timestamp::MAX;
    }
}
