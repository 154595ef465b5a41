//! An opaque connection: bytes both ways, of which nothing is understood (TCP, TLS that is not opened).
//!
//! ```text
//!   connected --- the server's first byte ---> good, and nothing that follows changes it
//!       |  reset before it: a failure
//!       |
//!       |   bytes of the application        bytes of the server
//!       +--- turn begins ------ silence ------ turn ends ---  ... turn begins ...
//!                                  | older than the slow threshold: a slow turn
//! ```
//!
//! *Rule* (semantics.md, TCP): it needs no permit and is never retried; of its clocks only connect and idle hold. For
//! the breaker a failed connect and a reset before the server's first byte are failures; a connection that ends in
//! order before it, or (as a probe) stands for as long as a probe may, is good: many protocols have nothing to say
//! unasked. Silence is nobody's failure, since nobody knows who is to speak.
//!
//! *Turns* are measured all the same. The age of a turn runs from the application's last bytes, so that a long request
//! is not slow; whether a slow one counts is `slowTurn`'s to say, since a long poll looks like one. The turn before the
//! server's first byte is the connection's own entry in the breaker's window, each later one has its own.

use crate::outcome::Ended;
use crate::protection::Protection;
use crate::time::Timestamp;

use super::outbox::Out;
use super::{AttemptClock, Flight, Phase};

impl Flight {
    /// Opaque: bytes of the application were written to the server; a turn begins, or goes on.
    pub fn handle_turn_begins(&mut self, now: Timestamp) {
        if !self.facts.opaque || !self.is_connected() {
            return;
        }
        if self.phase == Phase::Connected {
            self.phase = Phase::Sent;
        }
        self.handle_progress(now);
        self.clock.start(now);
        self.arm_slow();
    }

    /// Opaque: bytes of the server came. The first ones make the connection a good one, and go to the application like
    /// any answer; those that follow end a turn, if [`Flight::is_in_turn`], and else need not be told but as progress.
    pub fn handle_turn_ends(&mut self, protection: &mut Protection, now: Timestamp) {
        if !self.facts.opaque || !self.is_connected() {
            return;
        }
        self.handle_progress(now);
        self.note_slow(protection, now);
        let first = self.phase != Phase::Answering;
        if self.is_in_turn() && !self.facts.slow {
            protection.end_turn(&self.holdings, now);
        }
        self.clock = AttemptClock::STOPPED;
        self.slow_at = Timestamp::MAX;
        self.facts.slow = false;
        if first {
            self.stands(protection, now);
            self.phase = Phase::Answering;
            self.outbox.push(Out::Deliver);
        }
    }

    /// Opaque: the application has asked something, and the server has said nothing since.
    pub fn is_in_turn(&self) -> bool {
        self.clock.is_running()
    }

    /// An opaque connection that has proved to be good: the breaker has no further interest in it.
    pub(super) fn stands(&mut self, protection: &mut Protection, now: Timestamp) {
        self.probe_ends = Timestamp::MAX;
        protection.record(&mut self.holdings, Ended::Whole, self.clock.elapsed(now), now);
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected | Phase::Sent | Phase::Answering)
    }
}
