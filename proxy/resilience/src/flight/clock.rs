//! The clock of an attempt: from its first byte sent, standing still while we wait for our caller.

use std::time::Duration;

use crate::time::Timestamp;

/// Not running until [`AttemptClock::start`].
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptClock {
    /// When it started, moved on by every pause since.
    started: Timestamp,
    /// Since when it stands still.
    waits_since: Timestamp,
}

impl AttemptClock {
    pub(super) const STOPPED: Self = Self { started: Timestamp::MAX, waits_since: Timestamp::MAX };

    #[inline]
    pub(super) fn start(&mut self, now: Timestamp) {
        self.started = now;
        if self.is_waiting() {
            self.waits_since = now;
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.started != Timestamp::MAX
    }

    /// True while we wait for our caller, also before the start.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits_since != Timestamp::MAX
    }

    pub(super) fn wait(&mut self, now: Timestamp) {
        if !self.is_waiting() {
            self.waits_since = now;
        }
    }

    pub(super) fn go_on(&mut self, now: Timestamp) {
        if self.is_running() && self.is_waiting() {
            self.started = self.started.saturating_add(now.saturating_since(self.waits_since));
        }
        self.waits_since = Timestamp::MAX;
    }

    /// How long it ran; zero before the start.
    #[inline]
    pub(super) fn elapsed(&self, now: Timestamp) -> Duration {
        now.min(self.waits_since).saturating_since(self.started)
    }

    /// When it will have run for `threshold`, if nothing stops it.
    #[inline]
    pub(super) fn reaches(&self, threshold: Duration) -> Timestamp {
        if self.is_waiting() || !self.is_running() {
            return Timestamp::MAX;
        }
        self.started.saturating_add(threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn it_stands_still_while_we_wait_for_the_caller() {
        let mut clock = AttemptClock::STOPPED;
        assert_eq!(clock.elapsed(at(5)), Duration::ZERO);
        clock.wait(at(0));
        clock.start(at(10));
        assert_eq!((clock.elapsed(at(50)), clock.reaches(Duration::from_millis(5))), (Duration::ZERO, Timestamp::MAX));
        clock.go_on(at(60));
        assert_eq!(clock.reaches(Duration::from_millis(5)), at(65));
        clock.wait(at(70));
        clock.wait(at(71));
        clock.go_on(at(100));
        clock.go_on(at(200));
        assert_eq!(clock.elapsed(at(101)), Duration::from_millis(11));
        // A clock that steps back takes nothing away.
        clock.wait(at(101));
        clock.go_on(at(1));
        assert_eq!(clock.elapsed(at(101)), Duration::from_millis(11));
    }
}
