//! What retries may cost: a share of the calls of the last interval, and a floor for quiet times.
//!
//! ```text
//! calls of the last 10 s    |####################|  x 20 %  + 3/s x 10 s  =  allowed
//! retries of the last 10 s  |####|                                           at most that many
//! ```
//!
//! It protects a dependency that fails from being called several times as often as when it was well, which is how a
//! short failure becomes a long one. *Rule*: a retry is made if the retries of the interval, this one included, are no
//! more than `percent` of its calls plus `minPerSecond` for each of its seconds. Calls are *counted* over the interval,
//! not those in progress: those are few when the dependency is fast. *Cold start*: only the floor. *Recovery*: as
//! retries leave the window. *Not done*: it does not say which call deserves a retry; who asks first gets it. A call
//! counts when its first attempt may be sent, so that calls that were refused here earn nothing. Retries that a block in
//! Observe would have made count among themselves and take none from those that are made.
//!
//! Source: Finagle's `RetryBudget`; TigerBeetle's `repair_budget.zig`.

use std::time::Duration;

use crate::error::{ConfigError, require};
use crate::reason::Reason;
use crate::rejection::Rejected;
use crate::time::Timestamp;
use crate::window::{Place, TimeWindow};

/// Valid once built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    percent: u32,
    interval: Duration,
    min_per_second: u32,
}

impl Config {
    /// Retries of the last `interval` may be `percent` of its calls plus `min_per_second` for each of its seconds.
    ///
    /// # Errors
    /// If `percent` is above 100 or `interval` is under 1 s or above 10 min.
    pub fn new(percent: u32, interval: Duration, min_per_second: u32) -> Result<Self, ConfigError> {
        require(percent <= 100, "percent", "0 to 100")?;
        let allowed = Duration::from_secs(1)..=Duration::from_secs(600);
        require(allowed.contains(&interval), "interval", "1s to 10m")?;
        Ok(Self { percent, interval, min_per_second })
    }

    fn allowed(&self, calls: u32) -> u64 {
        // At most 4e9 x 6e5: far from the end of 64 bits.
        let floor = u64::from(self.min_per_second) * (self.interval.as_millis() as u64) / 1000;
        u64::from(calls) * u64::from(self.percent) / 100 + floor
    }
}

impl Default for Config {
    /// 20 % over 10 s, and 3 a second.
    fn default() -> Self {
        Self { percent: 20, interval: Duration::from_secs(10), min_per_second: 3 }
    }
}

const CALLS: usize = 0;
const RETRIES: usize = 1;
/// Those that a block in Observe would have made.
const MODELLED: usize = 2;

/// The right to make one retry: spent by making it, else given back.
#[must_use]
#[derive(Debug)]
pub struct Token(Place);

/// Calls and retries of the last interval.
#[derive(Clone, Debug)]
pub struct Budget {
    config: Config,
    window: TimeWindow<3>,
}

/// The budget, as plain numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BudgetView {
    /// Calls of the interval.
    pub calls: u64,
    /// Retries of the interval.
    pub retries: u64,
    /// Retries that the interval allows.
    pub allowed: u64,
}

impl Budget {
    /// Nothing counted yet.
    pub fn new(config: Config) -> Self {
        Self { config, window: TimeWindow::new(config.interval) }
    }

    /// Another percentage or floor holds at once; another interval starts counting afresh.
    pub fn reconfigure(&mut self, config: Config) {
        if config.interval != self.config.interval {
            self.window = TimeWindow::new(config.interval);
        }
        self.config = config;
    }

    /// A call that may be sent.
    pub fn on_call(&mut self, now: Timestamp) {
        let place = self.window.roll(now);
        self.window.add(place, CALLS);
    }

    /// A token for one retry.
    ///
    /// # Errors
    /// If the interval allows no further one.
    pub fn try_acquire(&mut self, now: Timestamp) -> Result<Token, Rejected> {
        let place = self.window.roll(now);
        let view = self.view(now);
        if view.retries >= view.allowed {
            return Err(Rejected::new(Reason::RetryBudgetExhausted, view.retries, view.allowed));
        }
        self.window.add(place, RETRIES);
        Ok(Token(place))
    }

    /// Whether a retry would have been made by a block that only observes: as if each that would have been had been.
    pub fn try_model(&mut self, now: Timestamp) -> bool {
        let place = self.window.roll(now);
        let view = self.view(now);
        let modelled = u64::from(self.window.totals(now)[MODELLED]);
        let granted = view.retries + modelled < view.allowed;
        if granted {
            self.window.add(place, MODELLED);
        }
        granted
    }

    /// The retry was not made.
    pub fn give_back(&mut self, token: Token, now: Timestamp) {
        let Token(place) = token;
        self.window.roll(now);
        self.window.take_back(place, RETRIES);
    }

    /// Plain numbers.
    pub fn view(&self, now: Timestamp) -> BudgetView {
        let totals = self.window.totals(now);
        BudgetView {
            calls: u64::from(totals[CALLS]),
            retries: u64::from(totals[RETRIES]),
            allowed: self.config.allowed(totals[CALLS]),
        }
    }

    /// Panics if a sum does not add up.
    pub fn check_invariants(&self) {
        self.window.check_invariants();
    }
}

#[cfg(test)]
mod tests;
