//! The only place that reads real time. Everything else is told it.

use std::time::{Duration, Instant, SystemTime};

use plimsoll_resilience::time::Timestamp;

/// Monotonic time since the process began, and how it maps to the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall_origin: SystemTime,
}

impl Clock {
    /// A clock whose `Timestamp::ZERO` is a little in the past, so that "before the start" can be expressed.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now(), wall_origin: SystemTime::now() }
    }

    /// Now, in nanoseconds since the clock was started (about 30 ns to read).
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let nanos = self.origin.elapsed().as_nanos();
        Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The instant that `at` stands for, for tokio's timers.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin + Duration::from_nanos(at.as_nanos())
    }

    /// The wall-clock time of `at`: for logs only, it does not follow later corrections of the system clock.
    #[must_use]
    pub fn wall(&self, at: Timestamp) -> SystemTime {
        self.wall_origin + Duration::from_nanos(at.as_nanos())
    }
}
