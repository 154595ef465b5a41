//! The breakers of one dependency: one, one for each route, or one for each endpoint.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::breaker::{self, Asker, Breaker, Forced, Scope, State, Ticket};
use crate::event::Event;
use crate::mode::Moded;
use crate::outcome::{Ended, classify};
use crate::random::Random;
use crate::rejection::{EndpointKey, Rejected, RouteId};
use crate::time::Timestamp;
use crate::window::TimeWindow;

use super::Protection;
use super::config::Routes;
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

/// What a breaker says to a call.
#[derive(Debug)]
pub(super) enum Answer {
    Passes,
    /// It would have refused, and only observes.
    Observed(Rejected),
    Refused(Rejected),
}

/// A breaker, and what it could not see.
#[derive(Debug)]
pub(super) struct BreakerSlot {
    pub(super) breaker: Breaker,
    seen: TimeWindow<3>,
    /// Its endpoint was forgotten while a ticket was out.
    gone: bool,
}

/// The columns of `seen`: calls that counted, calls that the caller gave up first, and the sum of their ages in ms.
const COUNTED: usize = 0;
const GIVEN_UP: usize = 1;
const GIVEN_UP_MS: usize = 2;

/// How many calls of the last 30 s the breaker could not see, and how old they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) counted: u32,
    pub(super) given_up: u32,
    pub(super) given_up_after: Option<Duration>,
}

impl BreakerSlot {
    fn new(config: breaker::Config, seed: u64) -> Self {
        Self { breaker: Breaker::new(config, seed), seen: TimeWindow::new(Duration::from_secs(30)), gone: false }
    }

    #[inline]
    fn record(&mut self, ticket: Ticket, ended: Ended, age: Duration, now: Timestamp) {
        let outcome = classify(ended);
        let given_up = matches!(ended, Ended::Deadline | Ended::Caller) && !ticket.is_counted();
        let place = self.seen.roll(now);
        if given_up && !age.is_zero() {
            self.seen.add(place, GIVEN_UP);
            self.seen.add_many(place, GIVEN_UP_MS, u32::try_from(age.as_millis()).unwrap_or(u32::MAX));
        } else if outcome.counts().is_some() {
            self.seen.add(place, COUNTED);
        }
        self.breaker.record(ticket, outcome, now);
    }

    pub(super) fn seen(&self, now: Timestamp) -> Seen {
        let totals = self.seen.totals(now);
        let given_up_after = totals[GIVEN_UP_MS].checked_div(totals[GIVEN_UP]);
        Seen {
            counted: totals[COUNTED],
            given_up: totals[GIVEN_UP],
            given_up_after: given_up_after.map(|ms| Duration::from_millis(ms.into())),
        }
    }

    pub(super) fn check_invariants(&self) {
        self.breaker.check_invariants();
        self.seen.check_invariants();
    }

    fn is_idle(&self) -> bool {
        self.breaker.tickets_out() == 0 && !self.breaker.is_forced()
    }
}

/// The block in force, and the breakers that do not belong to a route.
#[derive(Debug)]
pub(super) struct Breakers {
    block: Option<Moded<breaker::Config>>,
    dependency: Option<BreakerSlot>,
    endpoints: BTreeMap<EndpointKey, BreakerSlot>,
    /// An operator's word on all endpoints, for those that come later too.
    endpoints_forced: Option<(Forced, Timestamp)>,
    random: Random,
}

impl Breakers {
    pub(super) const fn new(random: Random) -> Self {
        Self { block: None, dependency: None, endpoints: BTreeMap::new(), endpoints_forced: None, random }
    }

    /// The block that acts or observes.
    pub(super) fn block(&self) -> Option<Moded<breaker::Config>> {
        self.block.filter(|block| block.mode.is_on())
    }

    fn scope(&self) -> Option<Scope> {
        self.block.map(|block| block.config.settings().scope)
    }

    pub(super) fn is_by_endpoint(&self) -> bool {
        self.block().is_some() && self.scope() == Some(Scope::Endpoint)
    }

    /// The breaker that a call of this route asks before it has an endpoint.
    #[inline]
    pub(super) fn key_for(&self, slot: u32) -> Option<BreakerKey> {
        let block = self.block.as_ref().filter(|block| block.mode.is_on())?;
        match block.config.settings().scope {
            Scope::Dependency => Some(BreakerKey::Dependency),
            Scope::Route => Some(BreakerKey::Route(slot)),
            Scope::Endpoint => None,
        }
    }

    pub(super) fn configure(&mut self, block: Option<Moded<breaker::Config>>, routes: &mut Routes, now: Timestamp) {
        self.block = block;
        let scope = self.scope();
        let config = block.map(|block| block.config);
        let wanted = |here: Scope| config.filter(|_| scope == Some(here));
        update(&mut self.dependency, wanted(Scope::Dependency), &mut self.random, now);
        for route in routes.iter_mut() {
            let config = wanted(Scope::Route).filter(|_| route.in_policy());
            update(&mut route.breaker, config, &mut self.random, now);
        }
        match wanted(Scope::Endpoint) {
            Some(config) => self.endpoints.values_mut().for_each(|slot| slot.breaker.reconfigure(config, now)),
            None => {
                self.endpoints.retain(|_, slot| !slot.is_idle());
                self.endpoints_forced = self.endpoints_forced.filter(|&(_, until)| now < until);
            }
        }
    }

    /// An endpoint is about to be called: it gets its breaker.
    pub(super) fn meet_endpoint(&mut self, endpoint: EndpointKey, now: Timestamp) {
        let Some(block) = self.block().filter(|_| self.is_by_endpoint()) else {
            return;
        };
        let Self { endpoints, random, endpoints_forced, .. } = self;
        let slot = endpoints.entry(endpoint).or_insert_with(|| {
            let mut slot = BreakerSlot::new(block.config, random.next_u64());
            if let Some((forced, until)) = endpoints_forced.filter(|&(_, until)| now < until) {
                slot.breaker.force(forced, until, now);
            }
            slot
        });
        slot.gone = false;
    }

    pub(super) fn find<'a>(&'a self, key: BreakerKey, routes: &'a Routes) -> Option<&'a BreakerSlot> {
        match key {
            BreakerKey::Dependency => self.dependency.as_ref(),
            BreakerKey::Route(slot) => routes.slot(slot).breaker.as_ref(),
            BreakerKey::Endpoint(endpoint) => self.endpoints.get(&endpoint),
        }
    }

    #[inline]
    pub(super) fn find_mut<'a>(&'a mut self, key: BreakerKey, routes: &'a mut Routes) -> Option<&'a mut BreakerSlot> {
        match key {
            BreakerKey::Dependency => self.dependency.as_mut(),
            BreakerKey::Route(slot) => routes.slot_mut(slot).breaker.as_mut(),
            BreakerKey::Endpoint(endpoint) => self.endpoints.get_mut(&endpoint),
        }
    }

    #[inline]
    pub(super) fn check(&mut self, key: BreakerKey, asker: Asker, routes: &mut Routes, now: Timestamp) -> Answer {
        let observes = !self.enforces();
        let Some(slot) = self.find_mut(key, routes) else {
            return Answer::Passes;
        };
        match slot.breaker.check(asker, now) {
            Ok(()) => Answer::Passes,
            // An operator's word is no policy: it acts in Observe too.
            Err(rejected) if observes && !slot.breaker.is_forced() => Answer::Observed(rejected),
            Err(rejected) => Answer::Refused(rejected),
        }
    }

    #[inline]
    pub(super) fn try_acquire(
        &mut self,
        key: BreakerKey,
        asker: Asker,
        routes: &mut Routes,
        now: Timestamp,
    ) -> Result<Ticket, Answer> {
        match self.check(key, asker, routes, now) {
            Answer::Passes => {}
            refused => return Err(refused),
        }
        let Some(slot) = self.find_mut(key, routes) else {
            return Err(Answer::Passes);
        };
        slot.breaker.try_acquire(asker, now).map_err(Answer::Refused)
    }

    #[inline]
    pub(super) fn record(
        &mut self,
        key: BreakerKey,
        ticket: Ticket,
        ended: Ended,
        age: Duration,
        routes: &mut Routes,
        now: Timestamp,
    ) {
        if let Some(slot) = self.find_mut(key, routes) {
            slot.record(ticket, ended, age, now);
        }
    }

    /// Forgets a breaker that no policy wants any more, once its last ticket is back.
    #[inline]
    pub(super) fn sweep(&mut self, key: BreakerKey, routes: &mut Routes) {
        if self.is_in_force(key, routes) || !self.find(key, routes).is_some_and(BreakerSlot::is_idle) {
            return;
        }
        match key {
            BreakerKey::Dependency => self.dependency = None,
            BreakerKey::Route(slot) => routes.slot_mut(slot).breaker = None,
            BreakerKey::Endpoint(endpoint) => _ = self.endpoints.remove(&endpoint),
        }
    }

    #[inline]
    fn is_in_force(&self, key: BreakerKey, routes: &Routes) -> bool {
        match (key, self.scope()) {
            (BreakerKey::Dependency, Some(Scope::Dependency)) => true,
            (BreakerKey::Endpoint(endpoint), Some(Scope::Endpoint)) => {
                self.endpoints.get(&endpoint).is_some_and(|slot| !slot.gone)
            }
            (BreakerKey::Route(slot), Some(Scope::Route)) => routes.slot(slot).in_policy(),
            _ => false,
        }
    }

    #[inline]
    pub(super) fn enforces(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.mode.enforces())
    }

    pub(super) fn check_invariants(&self) {
        self.dependency.iter().chain(self.endpoints.values()).for_each(BreakerSlot::check_invariants);
    }
}

/// A breaker that is wanted exists and has these numbers; one that is not stays while a ticket is out.
fn update(slot: &mut Option<BreakerSlot>, config: Option<breaker::Config>, random: &mut Random, now: Timestamp) {
    match (&mut *slot, config) {
        (Some(slot), Some(config)) => slot.breaker.reconfigure(config, now),
        (None, Some(config)) => *slot = Some(BreakerSlot::new(config, random.next_u64())),
        (Some(old), None) if old.is_idle() => *slot = None,
        (_, None) => {}
    }
}

impl Protection {
    /// With `scope: Endpoint`: whether a first attempt may go to this endpoint. Always true otherwise.
    pub fn endpoint_allows(&mut self, endpoint: EndpointKey, now: Timestamp) -> bool {
        self.endpoint_passes(endpoint, Asker::First, now)
    }

    /// As [`Protection::endpoint_allows`], for a retry: it is never a probe.
    pub fn endpoint_allows_retry(&mut self, endpoint: EndpointKey, now: Timestamp) -> bool {
        self.endpoint_passes(endpoint, Asker::Retry, now)
    }

    fn endpoint_passes(&mut self, endpoint: EndpointKey, asker: Asker, now: Timestamp) -> bool {
        if !self.breakers.is_by_endpoint() {
            return true;
        }
        self.breakers.meet_endpoint(endpoint, now);
        let key = BreakerKey::Endpoint(endpoint);
        let answer = self.breakers.check(key, asker, &mut self.routes, now);
        self.drain_breaker(key);
        !matches!(answer, Answer::Refused(_))
    }

    /// When the first of the endpoints' breakers lets probes through.
    pub(crate) fn endpoints_retry_at(&self) -> Option<Timestamp> {
        self.breakers.endpoints.values().filter_map(|slot| slot.breaker.retry_at()).min()
    }

    /// The endpoint is gone; what is in flight there ends as it began.
    pub fn forget_endpoint(&mut self, endpoint: EndpointKey) {
        if let Some(slot) = self.breakers.endpoints.get_mut(&endpoint) {
            slot.gone = true;
        }
        self.breakers.sweep(BreakerKey::Endpoint(endpoint), &mut self.routes);
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
                let slot = self.routes.slot_of(route).ok_or(ForceError::NoSuchRoute)?;
                self.force_one(BreakerKey::Route(slot), forced, until, now);
            }
            (_, Some(_)) => return Err(ForceError::NotByRoute),
            (_, None) => {
                for key in self.keys_in_force() {
                    self.force_one(key, forced, until, now);
                }
                if scope == Scope::Endpoint {
                    self.breakers.endpoints_forced = (forced != Forced::Auto).then_some((forced, until));
                }
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
        let endpoints = self.breakers.endpoints.keys().map(|&endpoint| BreakerKey::Endpoint(endpoint));
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
    fn tell(&mut self, key: BreakerKey, first: breaker::Transition) {
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
        let Self { bulkhead, routes, woken, .. } = self;
        let queues = routes.iter().map(|route| &route.bulkhead).chain([&*bulkhead]);
        woken.extend(queues.flat_map(super::config::BulkheadSlot::waiting).filter(|&w| !w.is_modelled()));
    }

    pub(super) fn scope_of(&self, key: BreakerKey) -> BreakerScope {
        match key {
            BreakerKey::Dependency => BreakerScope::Dependency,
            BreakerKey::Route(slot) => BreakerScope::Route(self.routes.slot(slot).id()),
            BreakerKey::Endpoint(endpoint) => BreakerScope::Endpoint(endpoint),
        }
    }
}
