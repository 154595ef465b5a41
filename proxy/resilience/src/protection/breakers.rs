//! The breakers of one dependency: one, one for each route, or one for each endpoint.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::breaker::{self, Asker, Breaker, Forced, Scope, SlowTurn, State, Ticket};
use crate::mode::Moded;
use crate::outcome::{Ended, classify};
use crate::random::Random;
use crate::rejection::{EndpointKey, Rejected};
use crate::time::Timestamp;
use crate::window::TimeWindow;

use super::holdings::BreakerKey;
use super::routes::Routes;

/// A breaker's no.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) rejected: Rejected,
    /// It would have refused, and only observes.
    pub(super) only_observed: bool,
}

/// A breaker, and what it could not see.
#[derive(Debug)]
pub(super) struct BreakerSlot {
    pub(super) breaker: Breaker,
    seen: TimeWindow<3>,
    /// Its endpoint was forgotten while a ticket was out.
    gone: bool,
}

/// Endpoints with a breaker of their own. Where destinations are not listed anybody may name one more.
const MOST_ENDPOINTS: usize = 4096;

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

    /// An operator's word is no policy: it acts in Observe too.
    fn refusal(&self, rejected: Rejected, observes: bool) -> Refusal {
        Refusal { rejected, only_observed: observes && !self.breaker.is_forced() }
    }

    /// Nobody will come back to it, and no operator has spoken.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.breaker.tickets_out() == 0 && self.breaker.forced_until(now).is_none()
    }

    /// Nothing would be lost with it.
    fn is_as_new(&self, now: Timestamp) -> bool {
        self.is_idle(now) && self.breaker.state(now) == State::Closed && self.breaker.counts(now).calls == 0
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
    /// When the table of endpoints was last found full.
    full_at: Option<Timestamp>,
    random: Random,
}

impl Breakers {
    pub(super) const fn new(random: Random) -> Self {
        Self {
            block: None,
            dependency: None,
            endpoints: BTreeMap::new(),
            endpoints_forced: None,
            full_at: None,
            random,
        }
    }

    /// The block that acts or observes.
    pub(super) fn block(&self) -> Option<Moded<breaker::Config>> {
        self.block.filter(|block| block.mode.is_on())
    }

    pub(super) fn scope(&self) -> Option<Scope> {
        self.block.as_ref().map(|block| block.config.settings().scope)
    }

    pub(super) fn is_by_endpoint(&self) -> bool {
        self.scope() == Some(Scope::Endpoint) && self.block.as_ref().is_some_and(|block| block.mode.is_on())
    }

    /// What a slow turn does; it only observes without a block.
    pub(super) fn slow_turn(&self) -> SlowTurn {
        self.block().map_or(SlowTurn::Observe, |block| block.config.settings().slow_turn)
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
                self.endpoints.retain(|_, slot| !slot.is_idle(now));
                self.endpoints_forced = self.endpoints_forced.filter(|&(_, until)| now < until);
            }
        }
    }

    /// An endpoint is about to be called: it gets its breaker, unless the table is full of ones that hold something.
    pub(super) fn meet_endpoint(&mut self, endpoint: EndpointKey, now: Timestamp) {
        let Some(config) = self.block.filter(|_| self.is_by_endpoint()).map(|block| block.config) else { return };
        if let Some(slot) = self.endpoints.get_mut(&endpoint) {
            slot.gone = false;
            return;
        }
        if self.endpoints.len() >= MOST_ENDPOINTS {
            self.make_room(now);
        }
        if self.endpoints.len() < MOST_ENDPOINTS {
            let mut slot = BreakerSlot::new(config, self.random.next_u64());
            if let Some((forced, until)) = self.endpoints_forced.filter(|&(_, until)| now < until) {
                slot.breaker.force(forced, until, now);
            }
            self.endpoints.insert(endpoint, slot);
        }
    }

    /// Forgets what is as good as new; looks through the table once a second at most.
    fn make_room(&mut self, now: Timestamp) {
        let again = self.full_at.map_or(Timestamp::ZERO, |at| at.saturating_add(Duration::from_secs(1)));
        if now >= again {
            self.full_at = Some(now);
            self.endpoints.retain(|_, slot| !slot.is_as_new(now));
        }
    }

    /// An endpoint is gone; its breaker stays while a ticket is out.
    pub(super) fn leave_endpoint(&mut self, endpoint: EndpointKey, routes: &mut Routes) {
        if let Some(slot) = self.endpoints.get_mut(&endpoint) {
            slot.gone = true;
        }
        // Without the time a forced one stays, and goes with the next swap.
        self.sweep(BreakerKey::Endpoint(endpoint), routes, Timestamp::ZERO);
    }

    /// An operator's word holds for endpoints that come later too.
    pub(super) fn force_later_endpoints(&mut self, forced: Forced, until: Timestamp) {
        if self.scope() == Some(Scope::Endpoint) {
            self.endpoints_forced = (forced != Forced::Auto).then_some((forced, until));
        }
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = (EndpointKey, &BreakerSlot)> {
        self.endpoints.iter().map(|(&endpoint, slot)| (endpoint, slot))
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

    /// Whether the breaker lets a call pass now.
    #[inline]
    pub(super) fn check(
        &mut self,
        key: BreakerKey,
        asker: Asker,
        routes: &mut Routes,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let observes = !self.enforces();
        let Some(slot) = self.find_mut(key, routes) else { return Ok(()) };
        let answer = slot.breaker.check(asker, now);
        answer.map_err(|rejected| slot.refusal(rejected, observes))
    }

    /// A ticket; `None` if there is no breaker.
    #[inline]
    pub(super) fn try_acquire(
        &mut self,
        key: BreakerKey,
        asker: Asker,
        routes: &mut Routes,
        now: Timestamp,
    ) -> Result<Option<Ticket>, Refusal> {
        let observes = !self.enforces();
        let Some(slot) = self.find_mut(key, routes) else { return Ok(None) };
        let answer = slot.breaker.try_acquire(asker, now);
        answer.map(Some).map_err(|rejected| slot.refusal(rejected, observes))
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
    pub(super) fn sweep(&mut self, key: BreakerKey, routes: &mut Routes, now: Timestamp) {
        if self.is_in_force(key, routes) || !self.find(key, routes).is_some_and(|slot| slot.is_idle(now)) {
            return;
        }
        match key {
            BreakerKey::Dependency => self.dependency = None,
            BreakerKey::Route(slot) => routes.slot_mut(slot).breaker = None,
            BreakerKey::Endpoint(endpoint) => _ = self.endpoints.remove(&endpoint),
        }
    }

    #[inline]
    pub(super) fn is_in_force(&self, key: BreakerKey, routes: &Routes) -> bool {
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
        (Some(old), None) if old.is_idle(now) => *slot = None,
        (_, None) => {}
    }
}
