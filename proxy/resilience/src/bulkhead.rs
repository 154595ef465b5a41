//! Exact permits, and a bounded queue for those who wait for one.
use std::time::Duration;

use crate::error::{ConfigError, require};

/// Valid once built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    max_concurrent: u32,
    max_queued: u32,
    max_wait: Duration,
}

impl Config {
    /// `max_concurrent` permits, and a queue of `max_queued` calls that each wait at most `max_wait`.
    ///
    /// A queue without a wait, or a wait without a queue, refuses at once.
    ///
    /// # Errors
    /// If `max_concurrent` is 0: a dependency that may not be called is switched off in another way.
    pub const fn new(
        max_concurrent: u32,
        max_queued: u32,
        max_wait: Duration,
    ) -> Result<Self, ConfigError> {
        if let Err(error) = require(max_concurrent > 0, "maxConcurrentCalls", "1 or more") {
            return Err(error);
        }
        Ok(Self {
            max_concurrent,
            max_queued,
            max_wait,
        })
    }

    /// Permits.
    pub const fn max_concurrent(&self) -> u32 {
        self.max_concurrent
    }

    /// Places in the queue; 0 also if nobody may wait.
    pub const fn max_queued(&self) -> u32 {
        if self.max_wait.is_zero() {
            0
        } else {
            self.max_queued
        }
    }

    /// The longest wait.
    pub const fn max_wait(&self) -> Duration {
        self.max_wait
    }
}

/// A call that waits for a permit: a name that is never given twice in the life of a [`Protection`](crate::Protection).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId(pub(crate) u64);

impl WaiterId {
    /// The number, for the shell's own table.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}
