//! How long to wait before the next attempt.
//!
//! ```text
//! ceiling   base   2 base    4 base ...          max      max
//! Full      [0..........ceiling]            drawn evenly
//! Equal     half + [0......half]            never at once
//! Decorr.   [base.....3 x previous]         forgets the number of the attempt
//! None      ceiling                         every client at the same moment
//! ```
//!
//! It protects a dependency that comes back from the calls that failed together and would return together.
//! *Rule*: a fixed part and a drawn part; a `Retry-After` of the dependency is a floor under the fixed part, so the
//! jitter lies on top of it. *Cold start*: the first wait is drawn under `base`. *Recovery*: state belongs to one call
//! and ends with it. *Not done*: it does not bound how many retries there are; that is the budget's work.
//!
//! Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

use std::time::Duration;

use crate::error::{ConfigError, require};
use crate::random::Random;

/// How the wait is drawn under its ceiling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Jitter {
    /// Evenly from zero to the ceiling.
    #[default]
    Full,
    /// Half the ceiling, and evenly up to the other half.
    Equal,
    /// Evenly from `base` to three times the wait before.
    Decorrelated,
    /// The ceiling itself.
    None,
}

/// Valid once built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    base: Duration,
    max: Duration,
    jitter: Jitter,
}

impl Config {
    /// Waits that start at `base`, double, and never exceed `max`.
    ///
    /// # Errors
    /// If `base` is zero or above `max`.
    pub const fn new(base: Duration, max: Duration, jitter: Jitter) -> Result<Self, ConfigError> {
        if let Err(error) = require(!base.is_zero(), "base", "more than 0") {
            return Err(error);
        }
        if let Err(error) = require(base.as_nanos() <= max.as_nanos(), "max", "at least `base`") {
            return Err(error);
        }
        Ok(Self { base, max, jitter })
    }

    /// The longest wait after `exponent` doublings.
    pub fn ceiling(&self, exponent: u32) -> Duration {
        2u32.checked_pow(exponent).map_or(self.max, |factor| self.base.saturating_mul(factor).min(self.max))
    }
}

impl Default for Config {
    /// 25 ms to 1 s, full jitter.
    fn default() -> Self {
        Self { base: Duration::from_millis(25), max: Duration::from_secs(1), jitter: Jitter::Full }
    }
}

/// The waits of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    made: u32,
    previous: Option<Duration>,
}

impl Backoff {
    /// The next wait; not shorter than `floor` (zero without a `Retry-After`).
    pub fn next(&mut self, config: &Config, floor: Duration, random: &mut Random) -> Duration {
        let ceiling = config.ceiling(self.made);
        let (fixed, spread) = match config.jitter {
            Jitter::Full => (Duration::ZERO, ceiling),
            Jitter::Equal => (ceiling / 2, ceiling - ceiling / 2),
            Jitter::Decorrelated => {
                let top = self.previous.unwrap_or(config.base).saturating_mul(3).min(config.max);
                (config.base, top.saturating_sub(config.base))
            }
            Jitter::None => (ceiling, Duration::ZERO),
        };
        let drawn = random.up_to(spread);
        self.made = self.made.saturating_add(1);
        self.previous = Some(fixed + drawn);
        fixed.max(floor).saturating_add(drawn)
    }
}

#[cfg(test)]
mod tests;
