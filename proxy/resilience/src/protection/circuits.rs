//! What others see of the breakers and do to them: the filter on endpoints, an operator's word, the telling of changes.

use crate::breaker::{Asker, Forced, Scope, State, Transition};
use crate::event::Event;
use crate::reason::Reason;
use crate::rejection::{EndpointKey, Rejected, RouteId};
use crate::time::Timestamp;

use super::Protection;
use super::config::BulkheadSlot;
use super::holdings::BreakerKey;
use super::view::BreakerScope;

/// Nothing can be forced: no such route, or no breaker there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForceError {
    /// The dependency has no breaker in force.
    NoBreaker,
    /// The dependency has no such route.
    NoSuchRoute,
    /// A route was named, and the breaker has another scope.
    NotByRoute,
}

impl std::fmt::Display for ForceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoBreaker => "the dependency has no circuitBreaker in force",
            Self::NoSuchRoute => "the dependency has no such route",
            Self::NotByRoute => "the circuitBreaker's scope is not Route",
        })
    }
}

impl std::error::Error for ForceError {}

impl Protection {
    /// With `scope: Endpoint`: whether an attempt may go to this endpoint; a retry is never a probe. Always true
    /// otherwise.
    pub fn endpoint_allows(&mut self, endpoint: EndpointKey, asker: Asker, now: Timestamp) -> bool {
        if !self.breakers.is_by_endpoint() {
            return true;
        }
        self.breakers.meet_endpoint(endpoint, now);
        let key = BreakerKey::Endpoint(endpoint);
        let answer = self.breakers.check(key, asker, &mut self.routes, now);
        self.drain_breaker(key);
        !answer.is_err_and(|refusal| !refusal.only_observed)
    }

    /// Every endpoint's breaker refuses: what the first one that lets probes through says.
    pub(crate) fn endpoints_refusal(&self) -> Rejected {
        let refusals = self.breakers.endpoints().filter_map(|(_, slot)| slot.breaker.refusal());
        let first = refusals.min_by_key(|refusal| refusal.retry_at.unwrap_or(Timestamp::MAX));
        first.unwrap_or(Rejected::new(Reason::CircuitOpen, 0, 0))
    }

    /// The endpoint is gone; what is in flight there ends as it began.
    pub fn forget_endpoint(&mut self, endpoint: EndpointKey) {
        self.breakers.leave_endpoint(endpoint, &mut self.routes);
    }

    /// An operator's word on the breaker, valid until `until`, whatever the block's mode. `route`: on that route's
    /// only; without it, on every one that is in force.
    ///
    /// # Errors
    /// If there is no such breaker.
    pub fn force(
        &mut self,
        route: Option<RouteId>,
        forced: Forced,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), ForceError> {
        let Some(scope) = self.breakers.block().and(self.breakers.scope()) else {
            return Err(ForceError::NoBreaker);
        };
        match (scope, route) {
            (Scope::Route, Some(route)) => {
                let key = self.routes.slot_of(route).map(BreakerKey::Route);
                let key = key.filter(|&key| self.breakers.is_in_force(key, &self.routes));
                self.force_one(key.ok_or(ForceError::NoSuchRoute)?, forced, until, now);
            }
            (_, Some(_)) => return Err(ForceError::NotByRoute),
            (_, None) => {
                for key in self.keys_in_force() {
                    self.force_one(key, forced, until, now);
                }
                self.breakers.force_later_endpoints(forced, until);
            }
        }
        self.debug_check();
        Ok(())
    }

    fn force_one(&mut self, key: BreakerKey, forced: Forced, until: Timestamp, now: Timestamp) {
        if let Some(slot) = self.breakers.find_mut(key, &mut self.routes) {
            slot.breaker.force(forced, until, now);
        }
        self.drain_breaker(key);
    }

    /// Every breaker in force.
    pub(super) fn keys_in_force(&self) -> Vec<BreakerKey> {
        let routes = (0..).zip(self.routes.iter()).map(|(slot, _)| BreakerKey::Route(slot));
        let endpoints = self.breakers.endpoints().map(|(endpoint, _)| BreakerKey::Endpoint(endpoint));
        let keys = std::iter::once(BreakerKey::Dependency).chain(routes).chain(endpoints);
        keys.filter(|&key| self.breakers.is_in_force(key, &self.routes)).collect()
    }

    /// Tells what breakers have done; when one opens, those who wait are woken to be refused.
    #[inline]
    pub(super) fn drain_breaker(&mut self, key: BreakerKey) {
        let Some(slot) = self.breakers.find_mut(key, &mut self.routes) else {
            return;
        };
        if let Some(transition) = slot.breaker.poll_event() {
            self.tell(key, transition);
        }
    }

    #[cold]
    fn tell(&mut self, key: BreakerKey, first: Transition) {
        let in_force = self.breakers.is_in_force(key, &self.routes);
        let mut next = Some(first);
        while let Some(transition) = next {
            if in_force {
                let scope = self.scope_of(key);
                self.events.push_back(Event::Breaker { scope, transition });
            }
            if matches!(transition.to, State::Open | State::ForcedOpen) {
                self.wake_all();
            }
            next = self.breakers.find_mut(key, &mut self.routes).and_then(|slot| slot.breaker.poll_event());
        }
    }

    pub(super) fn drain_breakers(&mut self) {
        for key in self.keys_in_force() {
            self.drain_breaker(key);
        }
    }

    fn wake_all(&mut self) {
        let Self { bulkhead, routes, wait_for_socket, woken, .. } = self;
        let slots = routes.iter().map(|route| &route.bulkhead).chain([&*bulkhead]);
        woken.extend(slots.flat_map(BulkheadSlot::waiting).chain(wait_for_socket.iter().copied()));
    }

    pub(super) fn scope_of(&self, key: BreakerKey) -> BreakerScope {
        match key {
            BreakerKey::Dependency => BreakerScope::Dependency,
            BreakerKey::Route(slot) => BreakerScope::Route(self.routes.slot(slot).id()),
            BreakerKey::Endpoint(endpoint) => BreakerScope::Endpoint(endpoint),
        }
    }
}
