//! Turns on opaque connections: what a breaker sees of a dependency whose protocol it does not speak.

use std::time::Duration;

use crate::breaker::SlowTurn;
use crate::event::Event;
use crate::time::Timestamp;
use crate::window::TimeWindow;

use super::Protection;
use super::holdings::{BreakerKey, Holdings};

const ENDED: usize = 0;
const SLOW: usize = 1;

/// The turns of the last 30 s, whether they count or not.
#[derive(Debug)]
pub(super) struct Turns(TimeWindow<2>);

/// Turns, as plain numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TurnsView {
    /// Those of the last 30 s that were answered in time or became slow.
    pub turns: u32,
    /// Those that became slow.
    pub slow: u32,
    /// Whether slow ones count in the breaker (`slowTurn: Enforce`).
    pub counted: bool,
}

impl Default for Turns {
    fn default() -> Self {
        Self(TimeWindow::new(Duration::from_secs(30)))
    }
}

impl Turns {
    fn add(&mut self, slow: bool, now: Timestamp) {
        let place = self.0.roll(now);
        self.0.add(place, ENDED);
        if slow {
            self.0.add(place, SLOW);
        }
    }

    pub(super) fn view(&self, counted: bool, now: Timestamp) -> TurnsView {
        let totals = self.0.totals(now);
        TurnsView { turns: totals[ENDED], slow: totals[SLOW], counted }
    }

    pub(super) fn check_invariants(&self) {
        self.0.check_invariants();
    }
}

impl Protection {
    /// A turn was answered before it was slow.
    pub(crate) fn end_turn(&mut self, holdings: &Holdings, now: Timestamp) {
        self.turns.add(false, now);
        // The first turn of a connection is the connection's own entry.
        if holdings.ticket.is_none() && self.breakers.slow_turn() == SlowTurn::Enforce {
            self.record_turn(holdings, false, now);
        }
    }

    /// A turn that still runs has become slow.
    pub(crate) fn mark_turn_slow(&mut self, holdings: &mut Holdings, now: Timestamp) {
        self.turns.add(true, now);
        match (self.breakers.slow_turn(), &holdings.ticket) {
            (SlowTurn::Observe, _) => self.events.push_back(Event::WouldCountSlow(holdings.route())),
            (SlowTurn::Enforce, Some(_)) => self.mark_slow(holdings, now),
            (SlowTurn::Enforce, None) => self.record_turn(holdings, true, now),
        }
    }

    fn record_turn(&mut self, holdings: &Holdings, slow: bool, now: Timestamp) {
        let of_endpoint = holdings.endpoint.filter(|_| self.breakers.is_by_endpoint()).map(BreakerKey::Endpoint);
        let Some(key) = self.breakers.key_for(holdings.slot()).or(of_endpoint) else { return };
        if let Some(slot) = self.breakers.find_mut(key, &mut self.routes) {
            slot.breaker.record_turn(slow, now);
        }
        self.drain_breaker(key);
        self.debug_check();
    }
}
