//! How long a call still has.
//!
//! ```text
//! arrival of the head                                    request      caller's deadline
//!   |----- queue ----- attempt 1 ----- back-off ----- attempt 2 |----------|
//!   every wait is inside                                        ^ the first one ends the call
//! ```
//!
//! It protects a dependency from work that nobody waits for any more, and the caller from waiting longer than it said.
//!
//! *Rule*: the clocks of a call run from the arrival of its head and never start again, not for a retry either.
//! `timeouts.request` holds for calls that are no streams (the built-in value never for gRPC), `streamMaxDuration` for
//! those that are, the caller's deadline for all. The first one decides what the end is called: the caller's deadline
//! says nothing about the dependency, a configured clock does. *Not done*: nothing here cuts anything; and with
//! `whenExpired: Forward` the caller's deadline is only passed on.
//!
//! Source: gRPC's deadline propagation.

use std::time::Duration;

use crate::mode::Mode;
use crate::rules::{Rules, WhenExpired};
use crate::time::Timestamp;

/// Which clock of a call ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The caller's own deadline.
    Caller,
    /// `timeouts.request`.
    Request,
    /// `timeouts.streamMaxDuration`.
    Stream,
}

/// The ends of a call; [`Timestamp::MAX`] where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    caller: Timestamp,
    request: Timestamp,
    stream: Timestamp,
}

impl Deadline {
    /// No clock at all.
    pub const NONE: Self = Self { caller: Timestamp::MAX, request: Timestamp::MAX, stream: Timestamp::MAX };

    /// The clocks of a call that arrived at `arrived`.
    pub fn new(rules: &Rules, arrived: Timestamp, caller: Option<Timestamp>, grpc: bool, streaming: bool) -> Self {
        let heeds_caller = rules.deadline.mode.is_on() && rules.deadline.when_expired == WhenExpired::Reject;
        let holds = rules.timeouts.mode.is_on() && (rules.timeouts.request_written || !grpc);
        let request = rules.timeouts.request.filter(|_| holds);
        let mut deadline = Self {
            caller: caller.filter(|_| heeds_caller).unwrap_or(Timestamp::MAX),
            request: request.map_or(Timestamp::MAX, |request| arrived.saturating_add(request)),
            stream: Timestamp::MAX,
        };
        if streaming {
            deadline.begin_streaming(rules, arrived);
        }
        deadline
    }

    /// The call has turned out to be a stream.
    pub fn begin_streaming(&mut self, rules: &Rules, arrived: Timestamp) {
        self.request = Timestamp::MAX;
        let most = rules.timeouts.stream_max.filter(|_| rules.timeouts.mode.is_on());
        self.stream = most.map_or(Timestamp::MAX, |most| arrived.saturating_add(most));
    }

    /// When the first clock runs out.
    #[inline]
    pub fn next(&self) -> Timestamp {
        self.caller.min(self.request).min(self.stream)
    }

    /// As [`Deadline::next`], without the clocks of blocks that only observe: they steer nothing.
    #[inline]
    pub fn next_enforced(&self, rules: &Rules) -> Timestamp {
        let caller = if rules.deadline.mode.enforces() { self.caller } else { Timestamp::MAX };
        let ours = if rules.timeouts.mode.enforces() { self.request.min(self.stream) } else { Timestamp::MAX };
        caller.min(ours)
    }

    /// The clock that ran out first, if one has; of two at the same moment the caller's.
    #[inline]
    pub fn passed(&self, now: Timestamp) -> Option<Clock> {
        let first = self.next();
        if now < first || first == Timestamp::MAX {
            return None;
        }
        Some(if self.caller == first {
            Clock::Caller
        } else if self.request == first {
            Clock::Request
        } else {
            Clock::Stream
        })
    }

    /// A clock that only observes has run out: it does so once.
    pub fn lift(&mut self, clock: Clock) {
        *match clock {
            Clock::Caller => &mut self.caller,
            Clock::Request => &mut self.request,
            Clock::Stream => &mut self.stream,
        } = Timestamp::MAX;
    }

    /// When `clock` runs out.
    pub const fn end(&self, clock: Clock) -> Timestamp {
        match clock {
            Clock::Caller => self.caller,
            Clock::Request => self.request,
            Clock::Stream => self.stream,
        }
    }

    /// What goes out as the deadline: what is left of the caller's and of ours, less `reserve`. Never under 1 ms, since
    /// a zero means "none" to some who read it. `None`: nothing is to be said.
    pub fn remaining(&self, rules: &Rules, caller: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
        if !rules.deadline.propagate || !rules.deadline.mode.enforces() {
            return None;
        }
        let ours = if rules.timeouts.mode.enforces() { self.request } else { Timestamp::MAX };
        let end = ours.min(caller.unwrap_or(Timestamp::MAX));
        if end == Timestamp::MAX {
            return None;
        }
        let left = end.saturating_since(now).saturating_sub(rules.deadline.reserve);
        Some(left.max(Duration::from_millis(1)))
    }
}

impl Clock {
    /// The mode of the block that this clock belongs to.
    pub const fn mode(self, rules: &Rules) -> Mode {
        match self {
            Self::Caller => rules.deadline.mode,
            Self::Request | Self::Stream => rules.timeouts.mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn rules() -> Rules {
        let mut rules = Rules::default();
        rules.timeouts.request = Some(Duration::from_secs(2));
        rules.timeouts.request_written = true;
        rules
    }

    #[test]
    fn the_first_clock_decides_and_of_two_the_callers() {
        let deadline = Deadline::new(&rules(), at(0), Some(at(1500)), false, false);
        assert_eq!(deadline.passed(at(1499)), None);
        assert_eq!(deadline.passed(at(5000)), Some(Clock::Caller));
        let deadline = Deadline::new(&rules(), at(0), Some(at(2500)), false, false);
        assert_eq!(deadline.passed(at(5000)), Some(Clock::Request));
        let deadline = Deadline::new(&rules(), at(0), Some(at(2000)), false, false);
        assert_eq!(deadline.passed(at(2000)), Some(Clock::Caller));
    }

    #[test]
    fn the_built_in_request_timeout_is_not_for_grpc_and_none_is_for_streams() {
        let unwritten = Rules::default();
        assert_eq!(Deadline::new(&unwritten, at(0), None, false, false).next(), at(15_000));
        assert_eq!(Deadline::new(&unwritten, at(0), None, true, false).next(), Timestamp::MAX);
        assert_eq!(Deadline::new(&rules(), at(0), None, true, false).next(), at(2000));
        let mut limited = rules();
        limited.timeouts.stream_max = Some(Duration::from_secs(60));
        let stream = Deadline::new(&limited, at(0), None, false, true);
        assert_eq!(stream.passed(at(60_000)), Some(Clock::Stream));
        assert_eq!(Deadline::new(&rules(), at(0), Some(at(9)), true, true).next(), at(9), "the caller's holds for all");
    }

    #[test]
    fn what_goes_out_is_what_is_left_less_the_reserve() {
        let mut rules = rules();
        rules.deadline.reserve = Duration::from_millis(20);
        let deadline = Deadline::new(&rules, at(0), Some(at(500)), false, false);
        let left = |now| deadline.remaining(&rules, Some(at(500)), at(now)).map(|left| left.as_millis());
        assert_eq!((left(0), left(400), left(490), left(9999)), (Some(480), Some(80), Some(1), Some(1)));
        assert_eq!(deadline.remaining(&rules, None, at(0)), Some(Duration::from_millis(1980)));
        for silent in [
            Rules { deadline: crate::rules::DeadlineRules { propagate: false, ..rules.deadline }, ..rules.clone() },
            Rules { deadline: crate::rules::DeadlineRules { mode: Mode::Observe, ..rules.deadline }, ..rules.clone() },
        ] {
            assert_eq!(deadline.remaining(&silent, Some(at(500)), at(0)), None);
        }
    }

    #[test]
    fn forward_only_passes_the_deadline_on() {
        let mut rules = rules();
        rules.deadline.when_expired = WhenExpired::Forward;
        let deadline = Deadline::new(&rules, at(0), Some(at(1)), false, false);
        assert_eq!(deadline.passed(at(1)), None);
        assert_eq!(deadline.remaining(&rules, Some(at(100)), at(0)), Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_block_that_observes_steers_nothing() {
        let mut rules = rules();
        rules.timeouts.mode = Mode::Observe;
        let mut deadline = Deadline::new(&rules, at(0), None, false, false);
        assert_eq!((deadline.next(), deadline.next_enforced(&rules)), (at(2000), Timestamp::MAX));
        assert_eq!(deadline.passed(at(2000)), Some(Clock::Request));
        deadline.lift(Clock::Request);
        assert_eq!(deadline.passed(Timestamp::MAX), None);
        assert_eq!(deadline.remaining(&rules, None, at(0)), None);
    }
}
