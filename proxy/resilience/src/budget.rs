//! What retries may cost: a share of the calls of an interval, and a floor.
use std::time::Duration;

use crate::error::{ConfigError, require};

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
    pub const fn new(
        percent: u32,
        interval: Duration,
        min_per_second: u32,
    ) -> Result<Self, ConfigError> {
        if let Err(error) = require(percent <= 100, "percent", "0 to 100") {
            return Err(error);
        }
        let seconds = interval.as_secs();
        let holds = seconds >= 1 && interval.as_nanos() <= 600_000_000_000;
        if let Err(error) = require(holds, "interval", "1s to 10m") {
            return Err(error);
        }
        Ok(Self {
            percent,
            interval,
            min_per_second,
        })
    }
}

impl Default for Config {
    /// 20 % over 10 s, and 3 a second.
    fn default() -> Self {
        Self {
            percent: 20,
            interval: Duration::from_secs(10),
            min_per_second: 3,
        }
    }
}
