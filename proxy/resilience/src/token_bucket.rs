//! So many a second, and so many at once.
//!
//! ```text
//!   one token each emission interval  -->  [ * * * . . ]  at most `burst`
//!                                              |
//!                                              v  one for each that passes; none left: refused
//! ```
//!
//! It protects whoever is called from arrivals that come faster than it can take them on, and lets a quiet caller have
//! its burst. *Rule*: the bucket gains a token each `interval / amount` and holds `burst` at most; whoever takes one
//! passes, and is never made to wait here. *Cold start*: full. *Recovery*: the time of the next token is known, and told.
//! *Not done*: it does not smooth a burst, and refuses without remembering who was refused.
//!
//! Tokens are counted in nanoseconds of the emission interval, so that nothing is lost to rounding and the decisions are
//! those of GCRA. The interval itself is rounded up: never more than was written.
//!
//! Source: Turner, "New directions in communications" (1986); ITU-T I.371 for GCRA.

use std::time::Duration;

use crate::error::{ConfigError, require};
use crate::reason::Reason;
use crate::rejection::Rejected;
use crate::time::{Timestamp, nanos};

/// Valid once built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    amount: u32,
    interval: Duration,
    burst: u32,
}

impl Config {
    /// `amount` each `interval`, and `burst` at once after a quiet time.
    ///
    /// # Errors
    /// If one of them is 0, if `interval` is above a day, or if there is more than one a nanosecond.
    pub fn new(amount: u32, interval: Duration, burst: u32) -> Result<Self, ConfigError> {
        require(amount > 0, "rate", "1 or more")?;
        let allowed = Duration::from_nanos(u64::from(amount))..=Duration::from_secs(86_400);
        require(allowed.contains(&interval), "rate", "an interval of a day at most")?;
        require((1..=1_000_000).contains(&burst), "burst", "1 to 1000000")?;
        Ok(Self { amount, interval, burst })
    }

    /// As [`Config::new`], with what one second brings as the burst, and at least one.
    ///
    /// # Errors
    /// As [`Config::new`].
    pub fn smooth(amount: u32, interval: Duration) -> Result<Self, ConfigError> {
        let each_second = u128::from(amount) * 1_000_000_000 / interval.as_nanos().max(1);
        Self::new(amount, interval, u32::try_from(each_second).unwrap_or(u32::MAX).clamp(1, amount.max(1)))
    }

    /// Tokens of one interval.
    pub const fn amount(&self) -> u32 {
        self.amount
    }

    /// The interval of that amount.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Tokens of a full bucket.
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// Nanoseconds that a token takes.
    fn emission(&self) -> u64 {
        nanos(self.interval).div_ceil(self.amount.into())
    }

    /// Nanoseconds that a full bucket takes, as far as 64 bits can hold them: 584 years.
    fn capacity(&self) -> u64 {
        self.emission().saturating_mul(self.burst.into())
    }
}

/// One bucket.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    config: Config,
    /// What is in it, in nanoseconds of emission.
    level: u64,
    /// Until when it was filled.
    filled: Timestamp,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(config: Config, now: Timestamp) -> Self {
        Self { config, level: config.capacity(), filled: now }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// [`Reason::RateLimited`] with the time of the next token, if there is none.
    pub fn try_take(&mut self, now: Timestamp) -> Result<(), Rejected> {
        self.fill(now);
        let emission = self.config.emission();
        if self.level < emission {
            let retry_at = Some(self.filled.saturating_add(Duration::from_nanos(emission - self.level)));
            return Err(Rejected { retry_at, ..Rejected::new(Reason::RateLimited, 0, 0) });
        }
        self.level -= emission;
        Ok(())
    }

    /// Other numbers. Tokens are cut to a lower burst, and a higher one is not filled by it.
    pub fn reconfigure(&mut self, config: Config, now: Timestamp) {
        self.fill(now);
        let tokens = u128::from(self.level) * u128::from(config.emission()) / u128::from(self.config.emission());
        self.level = u64::try_from(tokens).unwrap_or(u64::MAX).min(config.capacity());
        self.config = config;
    }

    /// Whole tokens at `now`.
    pub fn tokens(&self, now: Timestamp) -> u32 {
        u32::try_from(self.level_at(now) / self.config.emission()).unwrap_or(u32::MAX)
    }

    /// The configuration in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Panics if it holds more than it can.
    pub fn check_invariants(&self) {
        assert!(self.level <= self.config.capacity(), "more tokens than the bucket holds");
    }

    fn fill(&mut self, now: Timestamp) {
        self.level = self.level_at(now);
        self.filled = self.filled.max(now);
    }

    fn level_at(&self, now: Timestamp) -> u64 {
        self.level.saturating_add(nanos(now.saturating_since(self.filled))).min(self.config.capacity())
    }
}

#[cfg(test)]
mod tests;
