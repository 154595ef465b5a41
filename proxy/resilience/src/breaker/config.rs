//! What a breaker is told by policy.

use std::time::Duration;

use crate::error::{ConfigError, require};

/// Which calls share one breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// All calls of the dependency.
    #[default]
    Dependency,
    /// One for each named route and one for the rest.
    Route,
    /// One for each endpoint: a filter in the choice of endpoints.
    Endpoint,
}

/// What becomes of a turn on an opaque connection that is older than the slow threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SlowTurn {
    /// It is counted beside the window: a long poll looks like one.
    #[default]
    Observe,
    /// Turns enter the window as calls do.
    Enforce,
}

/// What the rates are counted over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// The last so many calls.
    Count(u32),
    /// The calls of so long.
    Time(Duration),
}

/// The fields of the block, before they are checked; `default()` is the block's built-in default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `scope`.
    pub scope: Scope,
    /// `slidingWindowType` and `slidingWindowSize`.
    pub window: Window,
    /// `minimumNumberOfCalls`: below it no rate opens the breaker.
    pub minimum_calls: u32,
    /// `failureRateThreshold`, percent: opens at and above it.
    pub failure_rate: u32,
    /// `slowCallRateThreshold`, percent: opens at and above it.
    pub slow_call_rate: u32,
    /// `consecutiveFailures`; 0: not used.
    pub consecutive_failures: u32,
    /// `waitDurationInOpenState`.
    pub wait: Duration,
    /// `maxWaitDurationInOpenState`: what the wait grows to.
    pub max_wait: Duration,
    /// `permittedNumberOfCallsInHalfOpenState`.
    pub probes: u32,
    /// `maxWaitDurationInHalfOpenState`, of each probe from its sending.
    pub probe_limit: Duration,
    /// `slowTurn`.
    pub slow_turn: SlowTurn,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scope: Scope::Dependency,
            window: Window::Time(Duration::from_secs(30)),
            minimum_calls: 20,
            failure_rate: 50,
            slow_call_rate: 80,
            consecutive_failures: 0,
            wait: Duration::from_secs(10),
            max_wait: Duration::from_secs(120),
            probes: 3,
            probe_limit: Duration::from_secs(10),
            slow_turn: SlowTurn::Observe,
        }
    }
}

/// Checked [`Settings`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config(Settings);

impl Config {
    /// Checks the fields, alone and against one another.
    ///
    /// # Errors
    /// The first field that cannot be worked with.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        let s = &settings;
        match s.window {
            Window::Count(calls) => {
                require((1..=100_000).contains(&calls), "slidingWindowSize", "1 to 100000 calls")?;
                require(s.minimum_calls <= calls, "minimumNumberOfCalls", "at most `slidingWindowSize`")?;
            }
            Window::Time(length) => {
                let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
                require(allowed.contains(&length), "slidingWindowSize", "1s to 1h")?;
            }
        }
        require(s.minimum_calls > 0, "minimumNumberOfCalls", "1 or more")?;
        require((1..=100).contains(&s.failure_rate), "failureRateThreshold", "1 to 100 percent")?;
        require((1..=100).contains(&s.slow_call_rate), "slowCallRateThreshold", "1 to 100 percent")?;
        require(!s.wait.is_zero(), "waitDurationInOpenState", "more than 0")?;
        require(s.wait <= s.max_wait, "maxWaitDurationInOpenState", "at least `waitDurationInOpenState`")?;
        require(s.probes > 0, "permittedNumberOfCallsInHalfOpenState", "1 or more")?;
        require(!s.probe_limit.is_zero(), "maxWaitDurationInHalfOpenState", "more than 0")?;
        Ok(Self(settings))
    }

    /// The checked fields.
    pub const fn settings(&self) -> &Settings {
        &self.0
    }
}
