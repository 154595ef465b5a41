//! Exact permits, and a bounded queue for those who wait for one.
//!
//! ```text
//!  calls --> [ permits: in flight <= limit ] --> dependency
//!              |  none left
//!              v
//!            [ first attempts, first in first out ]  <= maxQueued together,
//!            [ retries,        first in first out ]     each at most maxWaitDuration
//! ```
//!
//! It protects the caller from a dependency that has turned slow: the calls that wait for it are bounded, so they
//! cannot hold all of the caller's threads, sockets or memory, and the other dependencies feel nothing.
//!
//! *Rule*: a permit for each attempt, given back exactly once. A permit that is given back goes straight to the one
//! who has waited longest, first attempts before retries, and is never free in between, so nobody overtakes the queue.
//! Who leaves with a permit granted but not yet taken passes it on. *Cold start*: all permits are there. *Recovery*:
//! at once, with each permit that comes back. A lower limit is paid back as calls end.
//!
//! *Not done*: no fairness between callers, no estimate of the right limit (that is the adaptive limit's work), and no
//! clock of its own: the one who waits owns the timer, and nobody is granted a permit after its wait is over.
//!
//! Source: Nygard, "Release It!"; Resilience4j `SemaphoreBulkhead`, here with a queue that is exact.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::{ConfigError, require};
use crate::reason::Reason;
use crate::rejection::Rejected;
use crate::time::Timestamp;

mod queue;

use queue::{Index, Queue, Standing};

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
    /// If `max_concurrent` is 0 (a dependency that may not be called is switched off in another way), or one of the
    /// numbers is above a million.
    pub fn new(max_concurrent: u32, max_queued: u32, max_wait: Duration) -> Result<Self, ConfigError> {
        require((1..=1_000_000).contains(&max_concurrent), "maxConcurrentCalls", "1 to 1000000")?;
        require(max_queued <= 1_000_000, "maxQueued", "0 to 1000000")?;
        Ok(Self { max_concurrent, max_queued, max_wait })
    }

    /// Permits.
    pub const fn max_concurrent(&self) -> u32 {
        self.max_concurrent
    }

    /// Places in the queue; 0 also if nobody may wait.
    pub const fn max_queued(&self) -> u32 {
        if self.max_wait.is_zero() { 0 } else { self.max_queued }
    }

    /// The longest wait.
    pub const fn max_wait(&self) -> Duration {
        self.max_wait
    }
}

/// A call that waits for a permit or a socket: a name that is never given twice in the life of a [`Protection`](crate::Protection).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId(pub(crate) u64);

impl WaiterId {
    /// All those whose wait is only modelled: nobody is to be woken.
    pub(crate) const MODELLED: Self = Self(0);

    pub(crate) fn is_modelled(self) -> bool {
        self == Self::MODELLED
    }
}

/// Whose turn it is among those who wait. A class of priority would be one more of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// First attempts.
    First,
    /// Retries, when no first attempt waits.
    Retry,
}

/// The right to be in flight. Goes back by [`Bulkhead::release`].
#[must_use]
#[derive(Debug)]
pub struct Permit(());

/// A place in the queue. Ends by [`Bulkhead::claim`] or [`Bulkhead::leave`].
#[must_use]
#[derive(Debug)]
pub struct Place(Index);

/// What a place has come to.
#[derive(Debug)]
pub enum Claim {
    /// The permit is there.
    Granted(Permit),
    /// Not yet.
    Waiting(Place),
    /// The wait is over, without one.
    Expired(Rejected),
}

/// Permits and queue.
#[derive(Debug)]
pub struct Bulkhead {
    config: Config,
    /// Permits out, granted ones that nobody has taken yet included.
    in_flight: u32,
    queue: Queue,
    granted: VecDeque<WaiterId>,
}

impl Bulkhead {
    /// All permits there.
    pub fn new(config: Config) -> Self {
        Self { config, in_flight: 0, queue: Queue::default(), granted: VecDeque::new() }
    }

    /// A permit, now.
    ///
    /// # Errors
    /// [`Reason::BulkheadFull`]; whoever may wait goes on with [`Bulkhead::enqueue`].
    pub fn try_acquire(&mut self) -> Result<Permit, Rejected> {
        // Free permits and a queue exclude each other, so this overtakes nobody.
        if self.in_flight >= self.config.max_concurrent {
            return Err(self.rejected(Reason::BulkheadFull));
        }
        self.in_flight += 1;
        Ok(Permit(()))
    }

    /// A place in the queue, until `maxWaitDuration` is over and at most until `latest`.
    ///
    /// # Errors
    /// [`Reason::BulkheadFull`] if there is no room.
    pub fn enqueue(
        &mut self,
        waiter: WaiterId,
        turn: Turn,
        latest: Timestamp,
        now: Timestamp,
    ) -> Result<Place, Rejected> {
        if self.queue.len() >= self.config.max_queued() {
            self.queue.expire(now);
        }
        if self.queue.len() >= self.config.max_queued() {
            return Err(self.rejected(Reason::BulkheadFull));
        }
        let until = now.saturating_add(self.config.max_wait).min(latest);
        let index = self.queue.push(waiter, turn, until);
        self.grant(now);
        self.debug_check();
        Ok(Place(index))
    }

    /// When the wait at `place` is over.
    pub fn waits_until(&self, place: &Place) -> Timestamp {
        self.queue.until(place.0)
    }

    /// Asks what a place has come to.
    pub fn claim(&mut self, place: Place, now: Timestamp) -> Claim {
        match self.queue.standing(place.0, now) {
            Standing::Waiting => Claim::Waiting(place),
            Standing::Granted => {
                self.queue.remove(place.0);
                Claim::Granted(Permit(()))
            }
            Standing::Expired => {
                self.queue.remove(place.0);
                Claim::Expired(self.rejected(Reason::BulkheadWaitTimeout))
            }
        }
    }

    /// Gives a place up; a permit that was granted to it goes on to the next. Says so if its wait was over by `now`
    /// without one.
    pub fn leave(&mut self, place: Place, now: Timestamp) -> Option<Rejected> {
        let standing = self.queue.standing(place.0, now);
        self.queue.remove(place.0);
        if standing == Standing::Granted {
            self.release(Permit(()), now);
        }
        self.debug_check();
        (standing == Standing::Expired).then(|| self.rejected(Reason::BulkheadWaitTimeout))
    }

    /// Gives a permit back.
    pub fn release(&mut self, permit: Permit, now: Timestamp) {
        let Permit(()) = permit;
        self.in_flight -= 1;
        self.grant(now);
        self.debug_check();
    }

    /// Other numbers, from now on: free permits are granted at once, missing ones are paid back as calls end. Who
    /// waits keeps its place and its time.
    pub fn resize(&mut self, config: Config, now: Timestamp) {
        self.config = config;
        self.grant(now);
        self.debug_check();
    }

    /// The next one who was granted a permit and does not know it yet.
    pub fn poll_granted(&mut self) -> Option<WaiterId> {
        self.granted.pop_front()
    }

    /// All who wait without a permit.
    pub fn waiting(&self) -> impl Iterator<Item = WaiterId> + '_ {
        self.queue.waiting()
    }

    /// The configuration in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Permits out.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls that wait.
    pub const fn queued(&self) -> u32 {
        self.queue.len()
    }

    /// Panics if a number does not add up.
    pub fn check_invariants(&self) {
        self.queue.check_invariants();
        let someone_waits = self.queue.len() > 0;
        assert!(!someone_waits || self.in_flight >= self.config.max_concurrent, "a free permit beside a queue");
        assert!(self.queue.granted() <= self.in_flight, "more granted than out");
    }

    /// Passes free permits to those who wait.
    fn grant(&mut self, now: Timestamp) {
        while self.in_flight < self.config.max_concurrent {
            let Some(waiter) = self.queue.grant_next(now) else {
                return;
            };
            self.in_flight += 1;
            self.granted.push_back(waiter);
        }
    }

    fn rejected(&self, reason: Reason) -> Rejected {
        Rejected::new(reason, self.in_flight.into(), self.config.max_concurrent.into())
    }

    fn debug_check(&self) {
        #[cfg(debug_assertions)]
        self.check_invariants();
    }
}

#[cfg(test)]
mod tests;
