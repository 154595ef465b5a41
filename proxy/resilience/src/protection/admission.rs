//! From a call that wants to make an attempt to one that may: breaker, permits, ticket; and all the way back.

use std::time::Duration;

use crate::breaker::{Asker, Breaker, Ticket};
use crate::bulkhead::{Claim, Turn, WaiterId};
use crate::event::Event;
use crate::mode::Mode;
use crate::outcome::Ended;
use crate::rejection::{Block, EndpointKey, Rejected, Rejection};
use crate::time::Timestamp;

use super::Protection;
use super::breakers::Refusal;
use super::config::BulkheadSlot;
use super::holdings::{BreakerKey, HeldTicket, Hold, Holdings, Level};

/// What became of a wish to make an attempt.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// Permits and ticket are held.
    Yes,
    /// It waits, under its name, until then at most.
    Queued { until: Timestamp },
    /// Nothing is held.
    Refused(Rejection),
}

/// Who wishes, and how long it may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) asker: Asker,
    pub(crate) latest: Timestamp,
}

impl Protection {
    /// Permits and ticket for an attempt, or a place in a queue for them, or a refusal.
    #[inline]
    pub(crate) fn admit(&mut self, holdings: &mut Holdings, wish: Wish, now: Timestamp) -> Admitted {
        holdings.refused_in_model = false;
        if let Err(rejection) = self.ask_breaker(holdings, wish.asker, now) {
            return Admitted::Refused(rejection);
        }
        self.take_permits(Level::Route, holdings, wish, now)
    }

    /// A call that waits was woken, or its wait is over.
    pub(crate) fn resume(&mut self, holdings: &mut Holdings, wish: Wish, now: Timestamp) -> Admitted {
        let Some(level) = holdings.waits_at else {
            return Admitted::Yes;
        };
        if let Err(rejection) = self.ask_breaker(holdings, wish.asker, now) {
            self.release_permits(holdings, now);
            return Admitted::Refused(rejection);
        }
        let slot = self.bulkhead_slot(level, holdings);
        let mode = slot.mode();
        let hold = std::mem::take(holdings.hold_mut(level));
        let (Hold::Place(place), Some(bulkhead)) = (hold, slot.bulkhead_mut()) else {
            unreachable!("who waits has a place in a bulkhead's queue");
        };
        match bulkhead.claim(place, now) {
            Claim::Granted(permit) => *holdings.hold_mut(level) = Hold::Permit(permit),
            Claim::Waiting(place) => {
                let until = bulkhead.waits_until(&place);
                *holdings.hold_mut(level) = Hold::Place(place);
                if mode.enforces() {
                    return Admitted::Queued { until };
                }
                // The block has ceased to make anyone wait: in Observe the place goes on as a model.
                holdings.waits_at = None;
                if !mode.is_on() {
                    self.release(level, holdings, now);
                }
            }
            Claim::Expired(rejected) => {
                let rejection = bulkhead_rejection(rejected, level, holdings);
                if mode.enforces() {
                    self.release_permits(holdings, now);
                    return Admitted::Refused(rejection);
                }
                self.refuse_in_model(rejection, holdings, now);
            }
        }
        holdings.waits_at = None;
        match level {
            Level::Route => self.take_permits(Level::Dependency, holdings, wish, now),
            Level::Dependency => self.take_ticket(holdings, wish.asker, now),
        }
    }

    /// The breaker may have changed its state since the call was admitted, which has sent nothing yet: then its ticket
    /// has no say any more, and it needs another one. True if it got one.
    ///
    /// # Errors
    /// If the breaker refuses; permits are kept.
    #[inline]
    pub(crate) fn renew_ticket(
        &mut self,
        holdings: &mut Holdings,
        asker: Asker,
        now: Timestamp,
    ) -> Result<bool, Rejection> {
        let Some(held) = &holdings.ticket else { return Ok(false) };
        let breaker = self.breakers.find(held.key, &self.routes).map(|slot| &slot.breaker);
        if breaker.is_none_or(|breaker| breaker.is_current(&held.ticket)) {
            return Ok(false);
        }
        let key = held.key;
        self.record(holdings, Ended::Refused, Duration::ZERO, now);
        // One that was admitted under another scope had its answer there.
        if self.breakers.key_for(holdings.slot()) == Some(key) {
            self.acquire_ticket(key, holdings, asker, now)?;
        }
        Ok(true)
    }

    /// The call has its permits and waits for a socket: it gets a name, to be woken when a breaker opens.
    pub(crate) fn begin_socket_wait(&mut self, holdings: &mut Holdings) {
        self.end_socket_wait(holdings);
        self.last_waiter += 1;
        let waiter = WaiterId(self.last_waiter);
        holdings.waiter = Some(waiter);
        self.wait_for_socket.insert(waiter);
    }

    /// It waits no longer. Harmless if it did not.
    pub(crate) fn end_socket_wait(&mut self, holdings: &mut Holdings) {
        if let Some(waiter) = holdings.waiter.take() {
            self.wait_for_socket.remove(&waiter);
        }
    }

    /// With `scope: Endpoint`: asks the breaker of the endpoint without a ticket.
    ///
    /// # Errors
    /// If it refuses; permits are kept.
    pub(crate) fn ask_endpoint(
        &mut self,
        holdings: &mut Holdings,
        endpoint: EndpointKey,
        asker: Asker,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        if !self.breakers.is_by_endpoint() || holdings.ticket.is_some() {
            return Ok(());
        }
        self.breakers.meet_endpoint(endpoint, now);
        self.ask(BreakerKey::Endpoint(endpoint), holdings, asker, now)
    }

    /// With `scope: Endpoint` the ticket is taken when the endpoint is known.
    ///
    /// # Errors
    /// If that endpoint's breaker refuses; permits are kept.
    pub(crate) fn take_endpoint_ticket(
        &mut self,
        holdings: &mut Holdings,
        endpoint: EndpointKey,
        asker: Asker,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        // An attempt that was admitted under another scope keeps the ticket it has.
        if self.breakers.is_by_endpoint() && holdings.ticket.is_none() {
            self.breakers.meet_endpoint(endpoint, now);
            self.acquire_ticket(BreakerKey::Endpoint(endpoint), holdings, asker, now)?;
        }
        Ok(())
    }

    /// The attempt is over: what it came to, and how old it was.
    #[inline]
    pub(crate) fn finish(&mut self, holdings: &mut Holdings, ended: Ended, age: Duration, now: Timestamp) {
        self.record(holdings, ended, age, now);
        self.leave_endpoint(holdings, ended, now);
        self.release_permits(holdings, now);
        self.debug_check();
    }

    /// What the attempt came to is known, though its answer has not ended: the breaker hears of it, permits stay.
    #[inline]
    pub(crate) fn record(&mut self, holdings: &mut Holdings, ended: Ended, age: Duration, now: Timestamp) {
        if let Some(HeldTicket { key, ticket }) = holdings.ticket.take() {
            self.breakers.record(key, ticket, ended, age, &mut self.routes, now);
            self.drain_breaker(key);
            self.breakers.sweep(key, &mut self.routes, now);
        }
    }

    /// Nothing was sent: permits and ticket, or the place in a queue, go back.
    pub(crate) fn give_up(&mut self, holdings: &mut Holdings, now: Timestamp) {
        self.finish(holdings, Ended::Refused, Duration::ZERO, now);
    }

    /// A pooled connection was dead: the endpoint and its ticket are given back, the permits stay.
    pub(crate) fn give_back_endpoint(&mut self, holdings: &mut Holdings, now: Timestamp) {
        let by_endpoint = |held: &mut HeldTicket| matches!(held.key, BreakerKey::Endpoint(_));
        if let Some(HeldTicket { key, ticket }) = holdings.ticket.take_if(by_endpoint) {
            self.breakers.record(key, ticket, Ended::Refused, Duration::ZERO, &mut self.routes, now);
            self.breakers.sweep(key, &mut self.routes, now);
        }
        self.leave_endpoint(holdings, Ended::Refused, now);
        holdings.endpoint = None;
        self.debug_check();
    }

    /// The limit of a probe, if the attempt is one.
    pub(crate) fn probe_limit(&self, holdings: &Holdings) -> Option<Duration> {
        let held = holdings.ticket.as_ref()?;
        let breaker = &self.breakers.find(held.key, &self.routes)?.breaker;
        breaker.is_probe(&held.ticket).then(|| breaker.config().settings().probe_limit)
    }

    /// The attempt has become slow.
    pub(crate) fn mark_slow(&mut self, holdings: &mut Holdings, now: Timestamp) {
        self.mark(holdings, Breaker::mark_slow, now);
    }

    /// The answer of a stream has begun.
    pub(crate) fn mark_begun(&mut self, holdings: &mut Holdings, now: Timestamp) {
        self.mark(holdings, Breaker::mark_begun, now);
    }

    /// The probe has reached its limit.
    pub(crate) fn mark_overdue(&mut self, holdings: &mut Holdings, now: Timestamp) {
        self.mark(holdings, Breaker::mark_overdue, now);
    }

    fn mark(&mut self, holdings: &mut Holdings, mark: fn(&mut Breaker, &mut Ticket, Timestamp), now: Timestamp) {
        let Some(held) = &mut holdings.ticket else { return };
        if let Some(slot) = self.breakers.find_mut(held.key, &mut self.routes) {
            mark(&mut slot.breaker, &mut held.ticket, now);
        }
        self.drain_breaker(held.key);
    }

    /// True if the breaker would refuse an attempt now; one that only observes refuses nothing.
    pub(crate) fn breaker_refuses(&mut self, holdings: &Holdings, asker: Asker, now: Timestamp) -> bool {
        let Some(key) = self.breakers.key_for(holdings.slot()) else { return false };
        let answer = self.breakers.check(key, asker, &mut self.routes, now);
        self.drain_breaker(key);
        answer.is_err_and(|refusal| !refusal.only_observed)
    }

    /// Asks the breaker without a ticket, to refuse early.
    #[inline]
    pub(super) fn ask_breaker(
        &mut self,
        holdings: &mut Holdings,
        asker: Asker,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        match self.breakers.key_for(holdings.slot()) {
            Some(key) => self.ask(key, holdings, asker, now),
            None => Ok(()),
        }
    }

    #[inline]
    fn ask(&mut self, key: BreakerKey, holdings: &mut Holdings, asker: Asker, now: Timestamp) -> Result<(), Rejection> {
        let answer = self.breakers.check(key, asker, &mut self.routes, now);
        self.drain_breaker(key);
        match answer {
            Ok(()) => Ok(()),
            Err(refusal) => self.heed(refusal, key, holdings, now),
        }
    }

    /// A refusal of a breaker that acts is one; of one that only observes, it is told.
    #[cold]
    fn heed(
        &mut self,
        refusal: Refusal,
        key: BreakerKey,
        holdings: &mut Holdings,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let of_route = matches!(key, BreakerKey::Route(_));
        let rejection = Rejection::new(refusal.rejected, Block::CircuitBreaker, holdings.route(), of_route);
        if !refusal.only_observed {
            return Err(rejection);
        }
        self.refuse_in_model(rejection, holdings, now);
        Ok(())
    }

    /// A block that only observes would have refused the attempt: that is told once, and no other such block models
    /// what would not have come to it.
    #[cold]
    pub(super) fn refuse_in_model(&mut self, rejection: Rejection, holdings: &mut Holdings, now: Timestamp) {
        if std::mem::replace(&mut holdings.refused_in_model, true) {
            return;
        }
        self.would_reject(rejection);
        for level in [Level::Dependency, Level::Route] {
            if self.bulkhead_slot(level, holdings).mode() == Mode::Observe && holdings.waits_at != Some(level) {
                self.release(level, holdings, now);
            }
        }
    }

    fn take_permits(&mut self, from: Level, holdings: &mut Holdings, wish: Wish, now: Timestamp) -> Admitted {
        let levels: &[Level] = match from {
            Level::Route => &[Level::Route, Level::Dependency],
            Level::Dependency => &[Level::Dependency],
        };
        for &level in levels {
            match self.take_permit(level, holdings, wish, now) {
                Admitted::Yes => {}
                queued @ Admitted::Queued { .. } => return queued,
                refused @ Admitted::Refused(_) => {
                    self.release_permits(holdings, now);
                    return refused;
                }
            }
        }
        self.take_ticket(holdings, wish.asker, now)
    }

    #[inline]
    fn take_permit(&mut self, level: Level, holdings: &mut Holdings, wish: Wish, now: Timestamp) -> Admitted {
        let waiter = self.last_waiter + 1;
        let slot = self.bulkhead_slot(level, holdings);
        let mode = slot.mode();
        let takes_part = mode.enforces() || (mode.is_on() && !holdings.refused_in_model);
        let Some(bulkhead) = slot.bulkhead_mut().filter(|_| takes_part) else {
            return Admitted::Yes;
        };
        if let Ok(permit) = bulkhead.try_acquire() {
            *holdings.hold_mut(level) = Hold::Permit(permit);
            return Admitted::Yes;
        }
        let turn = match wish.asker {
            Asker::First => Turn::First,
            Asker::Retry => Turn::Retry,
        };
        // Whoever waited at the narrower bulkhead keeps its name at the wider one.
        let name = match mode {
            Mode::Enforce => holdings.waiter.unwrap_or(WaiterId(waiter)),
            _ => WaiterId::MODELLED,
        };
        match bulkhead.enqueue(name, turn, wish.latest, now) {
            Ok(place) => {
                let until = bulkhead.waits_until(&place);
                *holdings.hold_mut(level) = Hold::Place(place);
                if !mode.enforces() {
                    return Admitted::Yes;
                }
                self.last_waiter = self.last_waiter.max(name.0);
                holdings.waiter = Some(name);
                holdings.waits_at = Some(level);
                Admitted::Queued { until }
            }
            Err(rejected) => {
                let rejection = bulkhead_rejection(rejected, level, holdings);
                if mode.enforces() {
                    return Admitted::Refused(rejection);
                }
                self.refuse_in_model(rejection, holdings, now);
                Admitted::Yes
            }
        }
    }

    #[inline]
    pub(super) fn take_ticket(&mut self, holdings: &mut Holdings, asker: Asker, now: Timestamp) -> Admitted {
        holdings.waiter = None;
        let Some(key) = self.breakers.key_for(holdings.slot()) else {
            return Admitted::Yes;
        };
        match self.acquire_ticket(key, holdings, asker, now) {
            Ok(()) => Admitted::Yes,
            Err(rejection) => {
                self.release_permits(holdings, now);
                Admitted::Refused(rejection)
            }
        }
    }

    #[inline]
    fn acquire_ticket(
        &mut self,
        key: BreakerKey,
        holdings: &mut Holdings,
        asker: Asker,
        now: Timestamp,
    ) -> Result<(), Rejection> {
        if holdings.refused_in_model && !self.breakers.enforces() {
            return Ok(());
        }
        let answer = self.breakers.try_acquire(key, asker, &mut self.routes, now);
        self.drain_breaker(key);
        match answer {
            Ok(ticket) => holdings.ticket = ticket.map(|ticket| HeldTicket { key, ticket }),
            Err(refusal) => self.heed(refusal, key, holdings, now)?,
        }
        Ok(())
    }

    #[inline]
    fn release_permits(&mut self, holdings: &mut Holdings, now: Timestamp) {
        self.release(Level::Dependency, holdings, now);
        self.release(Level::Route, holdings, now);
        holdings.waits_at = None;
        self.end_socket_wait(holdings);
    }

    #[inline]
    fn release(&mut self, level: Level, holdings: &mut Holdings, now: Timestamp) {
        let hold = std::mem::take(holdings.hold_mut(level));
        let slot = match level {
            Level::Route => &mut self.routes.slot_mut(holdings.slot()).bulkhead,
            Level::Dependency => &mut self.bulkhead,
        };
        let Some(bulkhead) = slot.bulkhead_mut() else {
            return;
        };
        match hold {
            Hold::Nothing => return,
            Hold::Permit(permit) => bulkhead.release(permit, now),
            Hold::Place(place) => {
                let expired = bulkhead.leave(place, now);
                // Only a wait that was modelled ends here unnoticed; who really waits is told by `resume`.
                let modelled = slot.mode() == Mode::Observe && holdings.waits_at != Some(level);
                let modelled = modelled && !holdings.refused_in_model;
                if let Some(rejected) = expired.filter(|_| modelled) {
                    let rejection = bulkhead_rejection(rejected, level, holdings);
                    self.events.push_back(Event::WouldReject(rejection));
                }
            }
        }
        slot.poll_granted_into(&mut self.woken);
    }

    fn bulkhead_slot(&mut self, level: Level, holdings: &Holdings) -> &mut BulkheadSlot {
        match level {
            Level::Route => &mut self.routes.slot_mut(holdings.slot()).bulkhead,
            Level::Dependency => &mut self.bulkhead,
        }
    }
}

fn bulkhead_rejection(rejected: Rejected, level: Level, holdings: &Holdings) -> Rejection {
    Rejection::new(rejected, Block::Bulkhead, holdings.route(), level == Level::Route)
}
