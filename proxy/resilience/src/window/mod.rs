//! Counts over the last calls ([`CountWindow`]) or over the last seconds ([`TimeWindow`]).
//!
//! A breaker's entry goes in when its call ends, or while the call still runs if that makes it slow, and may gain
//! *failed* later: so a window hands out the [`Place`] of what it took, and says no once that place has left it.

mod count;
mod time;

pub use count::CountWindow;
pub use time::TimeWindow;

use std::time::Duration;

use crate::time::Timestamp;

/// Where in a window something was counted: the number of a call, or of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(u64);

/// What a breaker's window holds: `slow` and `failed` are parts of `calls` and may overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Calls counted.
    pub calls: u32,
    /// Those that failed.
    pub failed: u32,
    /// Those that were slow, also while they still run.
    pub slow: u32,
}

impl Counts {
    /// Percent of the calls that failed, rounded down; 0 without calls.
    pub const fn failure_percent(&self) -> u32 {
        percent(self.failed, self.calls)
    }

    /// Percent of the calls that were slow, rounded down; 0 without calls.
    pub const fn slow_percent(&self) -> u32 {
        percent(self.slow, self.calls)
    }
}

const fn percent(part: u32, whole: u32) -> u32 {
    if whole == 0 { 0 } else { (part as u64 * 100 / whole as u64) as u32 }
}

const CALLS: usize = 0;
const FAILED: usize = 1;
const SLOW: usize = 2;

/// The window of a breaker, of either kind.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a breaker has one; a box would cost each call a step")]
pub enum Window {
    /// The last so many calls.
    Count(CountWindow),
    /// The calls of the last so long: counted, failed, slow.
    Time(TimeWindow<3>),
}

impl Window {
    /// The last `calls` calls.
    pub fn count(calls: u32) -> Self {
        Self::Count(CountWindow::new(calls))
    }

    /// The calls of the last `length`.
    pub fn time(length: Duration) -> Self {
        Self::Time(TimeWindow::new(length))
    }

    /// Counts a call.
    pub fn record(&mut self, failed: bool, slow: bool, now: Timestamp) -> Place {
        match self {
            Self::Count(window) => window.record(failed, slow),
            Self::Time(window) => {
                let place = window.roll(now);
                window.add(place, CALLS);
                if failed {
                    window.add(place, FAILED);
                }
                if slow {
                    window.add(place, SLOW);
                }
                place
            }
        }
    }

    /// The call at `place`, counted before as not failed, has failed after all; false if it has left the window.
    pub fn fail(&mut self, place: Place, now: Timestamp) -> bool {
        match self {
            Self::Count(window) => window.fail(place),
            Self::Time(window) => {
                window.roll(now);
                window.add(place, FAILED)
            }
        }
    }

    /// What the window holds.
    pub fn counts(&self, now: Timestamp) -> Counts {
        match self {
            Self::Count(window) => window.counts(),
            Self::Time(window) => {
                let totals = window.totals(now);
                Counts { calls: totals[CALLS], failed: totals[FAILED], slow: totals[SLOW] }
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        match self {
            Self::Count(window) => window.clear(),
            Self::Time(window) => window.clear(),
        }
    }

    /// Panics if a sum does not add up.
    pub fn check_invariants(&self) {
        match self {
            Self::Count(window) => window.check_invariants(),
            Self::Time(window) => window.check_invariants(),
        }
    }
}

#[cfg(test)]
mod tests;
