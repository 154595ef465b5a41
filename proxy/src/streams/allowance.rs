//! How much a peer may send that moves nothing forward.
//!
//! A bucket that is full at first, is drawn on by frames that carry nothing, and is filled again by what is useful and, slowly,
//! by time. What we sent ourselves earns more than the bucket holds: whoever gets 50 MB at once acknowledges them later. So a peer that does its part never sees the end of it, however long the connection lives, and one that does
//! nothing else is stopped after a burst.

use plimsoll_resilience::time::Timestamp;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    most: u32,
    per_second: u32,
    filled: Timestamp,
}

impl Allowance {
    /// Full, with `most`.
    pub(super) const fn new(most: u32, per_second: u32, now: Timestamp) -> Self {
        Self { left: most, most, per_second, filled: now }
    }

    /// Draws one. False: it is used up. `now` is asked for only when it looks so.
    pub(super) fn draw(&mut self, now: impl FnOnce() -> Timestamp) -> bool {
        if self.left == 0 {
            self.refill(now());
        }
        let is_there = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_there
    }

    /// Something useful was done, worth `count`.
    pub(super) fn fill(&mut self, count: u32) {
        self.left = self.left.max(self.left.saturating_add(count).min(self.most));
    }

    /// `count` frames are due that the peer has not sent yet.
    pub(super) fn earn(&mut self, count: u32) {
        self.left = self.left.saturating_add(count);
    }

    fn refill(&mut self, now: Timestamp) {
        let nanos = u128::from(now.saturating_since(self.filled).as_nanos() as u64);
        let earned = nanos * u128::from(self.per_second) / 1_000_000_000;
        if earned > 0 {
            self.filled = now;
            self.fill(u32::try_from(earned).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn drawn(allowance: &mut Allowance, now: Timestamp) -> u32 {
        (0..).take_while(|_| allowance.draw(|| now)).count() as u32
    }

    #[test]
    fn a_burst_then_what_time_gives_back() {
        let mut allowance = Allowance::new(100, 10, at(0));
        assert_eq!(drawn(&mut allowance, at(0)), 100);
        assert_eq!(drawn(&mut allowance, at(99)), 0);
        assert_eq!(drawn(&mut allowance, at(1_000)), 10);
        assert_eq!(drawn(&mut allowance, at(999)), 0, "a clock that steps back gives nothing");
        assert_eq!(drawn(&mut allowance, at(3_600_000)), 100, "and never more than the burst");
    }

    #[test]
    fn who_is_useful_is_never_stopped() {
        let mut allowance = Allowance::new(10, 0, at(0));
        for _ in 0..1_000 {
            assert!(allowance.draw(|| at(0)) && allowance.draw(|| at(0)));
            allowance.fill(2);
        }
        allowance.fill(u32::MAX);
        assert_eq!(drawn(&mut allowance, at(0)), 10);
        allowance.earn(50);
        allowance.fill(1);
        assert_eq!(drawn(&mut allowance, at(0)), 50, "what is due is kept whole");
    }
}
