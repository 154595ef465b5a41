//! What the calls of one dependency share, behind one short lock.
//!
//! ```text
//!             +--------------------- Protection ----------------------+
//!   call ---> | breaker?  route's permit -> dependency's permit       | ---> attempt
//!             |           breaker's ticket                            |
//!             | budget of retries        events    calls to be woken  |
//!             +--------------------------------------------------------+
//! ```
//!
//! It protects the rest of the service from this dependency, and this dependency from the service. Each machine has
//! its own page ([`crate::breaker`], [`crate::bulkhead`], [`crate::budget`]); here is only what joins them:
//!
//! - *Order.* The breaker is asked, then the narrower permit is taken before the wider one, then the breaker's ticket.
//!   Who waits holds only narrower permits, and a probe's ticket exists only with its permits in hand.
//! - *Opening.* When a breaker opens, all who wait, for a permit or with one for a socket, are woken, ask it again, and
//!   are refused.
//! - *Observe.* A block that only observes models what it would do, with the same machine, and tells of it. It steers
//!   no other block.
//! - *Swap.* State is keyed by what it belongs to (dependency, name of the route, endpoint) and outlives its block for
//!   as long as a permit or ticket is out.
//!
//! *Not done*: it starts no call and holds no timer; whoever changes something drains events and woken calls after it.

mod admission;
mod balance;
mod breakers;
mod circuits;
mod config;
mod connections;
mod holdings;
mod routes;
mod turns;
mod view;

pub use circuits::ForceError;
pub use config::{ProtectionConfig, RouteProtection};
pub use connections::ConnectionRateView;
pub use turns::TurnsView;
pub use view::{BreakerScope, BreakerView, BulkheadView, ProtectionView};

pub(crate) use admission::{Admitted, Wish};
pub(crate) use holdings::Holdings;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::budget::{Budget, BudgetView, Token};
use crate::bulkhead::WaiterId;
use crate::event::Event;
use crate::least_request::Loads;
use crate::random::Random;
use crate::rejection::{Rejected, Rejection, RouteId};
use crate::time::Timestamp;

use breakers::Breakers;
use config::BulkheadSlot;
use connections::ConnectionRate;
use routes::Routes;
use turns::Turns;

/// Everything that the calls of one dependency share.
#[derive(Debug)]
pub struct Protection {
    bulkhead: BulkheadSlot,
    connections: ConnectionRate,
    routes: Routes,
    breakers: Breakers,
    budget: Budget,
    turns: Turns,
    /// `loadBalancing.algorithm: LeastRequest`.
    least_request: bool,
    loads: Loads,
    median_latency: Option<Duration>,
    last_waiter: u64,
    /// Calls that have their permits and wait for a socket.
    wait_for_socket: BTreeSet<WaiterId>,
    events: VecDeque<Event>,
    woken: VecDeque<WaiterId>,
}

impl Protection {
    /// Everything closed, empty and counted from now on; `seed` is for the jitter of breakers.
    pub fn new(config: &ProtectionConfig, seed: u64, now: Timestamp) -> Self {
        let mut protection = Self {
            bulkhead: BulkheadSlot::default(),
            connections: ConnectionRate::default(),
            routes: Routes::default(),
            breakers: Breakers::new(Random::new(seed)),
            budget: Budget::new(config.budget),
            turns: Turns::default(),
            least_request: false,
            loads: Loads::default(),
            median_latency: None,
            last_waiter: 0,
            wait_for_socket: BTreeSet::new(),
            events: VecDeque::new(),
            woken: VecDeque::new(),
        };
        protection.reconfigure(config, now);
        protection
    }

    /// The next thing worth telling. Whoever changed something drains it under the same lock.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next call to be woken, after the lock is released.
    pub fn poll_woken(&mut self) -> Option<WaiterId> {
        self.woken.pop_front()
    }

    /// The median latency of the last 30 s as the shell publishes it once a second; `None` below 50 samples. A retry
    /// is not begun when less than this is left for it.
    pub const fn set_median_latency(&mut self, median: Option<Duration>) {
        self.median_latency = median;
    }

    /// Panics if a number does not add up.
    pub fn check_invariants(&self) {
        self.bulkhead.check_invariants();
        self.connections.check_invariants();
        self.turns.check_invariants();
        self.loads.check_invariants();
        self.routes.check_invariants();
        self.breakers.check_invariants();
        self.budget.check_invariants();
    }

    /// A call begins.
    pub(crate) fn enter(&mut self, route: RouteId) -> Holdings {
        Holdings::new(route, self.routes.enter(route))
    }

    /// A call is over and holds nothing any more.
    pub(crate) fn exit(&mut self, holdings: &Holdings) {
        debug_assert!(holdings.is_empty(), "a call ended with permits or tickets: {holdings:?}");
        self.routes.exit(holdings.slot());
        self.debug_check();
    }

    /// A first attempt may be sent: it earns its share of a retry.
    pub(crate) fn on_call(&mut self, now: Timestamp) {
        self.budget.on_call(now);
    }

    pub(crate) fn try_spend(&mut self, now: Timestamp) -> Result<Token, Rejected> {
        self.budget.try_acquire(now)
    }

    /// Whether the budget would have had a token for a retry block that only observes.
    pub(crate) fn would_spend(&mut self, now: Timestamp) -> bool {
        self.budget.try_model(now)
    }

    pub(crate) fn give_back_token(&mut self, token: Token, now: Timestamp) {
        self.budget.give_back(token, now);
    }

    pub(crate) fn budget_view(&self, now: Timestamp) -> BudgetView {
        self.budget.view(now)
    }

    pub(crate) const fn median_latency(&self) -> Option<Duration> {
        self.median_latency
    }

    /// A block in `Observe` would have refused or cut a call.
    pub(crate) fn would_reject(&mut self, rejection: Rejection) {
        self.events.push_back(Event::WouldReject(rejection));
    }

    pub(crate) fn would_retry(&mut self, route: RouteId) {
        self.events.push_back(Event::WouldRetry(route));
    }

    fn debug_check(&self) {
        #[cfg(debug_assertions)]
        self.check_invariants();
    }
}

#[cfg(test)]
mod tests;
