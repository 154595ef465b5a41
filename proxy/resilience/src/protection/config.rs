//! What is configured, where its state lives, and how a swap joins the two (design.md section 5).

use std::collections::VecDeque;

use crate::breaker;
use crate::budget;
use crate::bulkhead::{self, Bulkhead, WaiterId};
use crate::mode::{Mode, Moded};
use crate::time::Timestamp;
use crate::token_bucket;

use super::Protection;

/// What the calls of one dependency share, as policy has it.
#[derive(Clone, Debug, Default)]
pub struct ProtectionConfig {
    /// The dependency's own bulkhead: all its calls draw from it.
    pub bulkhead: Option<Moded<bulkhead::Config>>,
    /// How fast opaque connections may be opened: `bulkhead.connectionRate`.
    pub connection_rate: Option<Moded<token_bucket::Config>>,
    /// The breaker, with its scope.
    pub breaker: Option<Moded<breaker::Config>>,
    /// The retry budget; there is one without a retry block too.
    pub budget: budget::Config,
    /// `loadBalancing.algorithm: LeastRequest`: what is in flight is counted for each endpoint.
    pub least_request: bool,
    /// The named routes; [`Protection::route_id`] has their numbers.
    pub routes: Vec<RouteProtection>,
}

/// What a named route adds.
#[derive(Clone, Debug)]
pub struct RouteProtection {
    /// The name, by which state is found again after a swap.
    pub name: String,
    /// A further bulkhead inside the dependency's.
    pub bulkhead: Option<Moded<bulkhead::Config>>,
}

impl Protection {
    /// Takes over another configuration; state goes along as the table of design.md section 5 has it.
    pub fn reconfigure(&mut self, config: &ProtectionConfig, now: Timestamp) {
        self.bulkhead.configure(config.bulkhead, now);
        self.connections.configure(config.connection_rate, now);
        self.routes.configure(&config.routes, now);
        let Self { bulkhead, routes, woken, .. } = self;
        for slot in routes.iter_mut().map(|route| &mut route.bulkhead).chain([bulkhead]) {
            if !slot.mode.enforces() {
                // Who waits for a block that no longer makes anyone wait goes on.
                woken.extend(slot.waiting());
            }
            slot.poll_granted_into(woken);
        }
        self.budget.reconfigure(config.budget);
        self.balance(config.least_request);
        self.breakers.configure(config.breaker, &mut self.routes, now);
        self.drain_breakers();
        self.debug_check();
    }
}

/// A bulkhead and whether it is in force; it outlives its block, so that permits find their way home.
#[derive(Debug)]
pub(super) struct BulkheadSlot {
    mode: Mode,
    bulkhead: Option<Bulkhead>,
}

impl Default for BulkheadSlot {
    fn default() -> Self {
        Self { mode: Mode::Disabled, bulkhead: None }
    }
}

impl BulkheadSlot {
    /// `None` and `Disabled` are the same: nobody asks, and what is out comes back.
    pub(super) fn configure(&mut self, block: Option<Moded<bulkhead::Config>>, now: Timestamp) {
        self.mode = block.map_or(Mode::Disabled, |block| block.mode);
        match (&mut self.bulkhead, block) {
            (Some(bulkhead), Some(block)) => bulkhead.resize(block.config, now),
            (None, Some(block)) => self.bulkhead = Some(Bulkhead::new(block.config)),
            (_, None) => {}
        }
    }

    pub(super) const fn mode(&self) -> Mode {
        self.mode
    }

    /// The bulkhead if its block is in force.
    pub(super) fn in_force(&self) -> Option<&Bulkhead> {
        self.bulkhead.as_ref().filter(|_| self.mode.is_on())
    }

    /// The bulkhead, also if only its state is left.
    pub(super) const fn bulkhead_mut(&mut self) -> Option<&mut Bulkhead> {
        self.bulkhead.as_mut()
    }

    /// Those who really wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = WaiterId> + '_ {
        self.bulkhead.iter().flat_map(Bulkhead::waiting).filter(|waiter| !waiter.is_modelled())
    }

    /// Those who were granted a permit and do not know it yet.
    pub(super) fn poll_granted_into(&mut self, woken: &mut VecDeque<WaiterId>) {
        let granted = std::iter::from_fn(|| self.bulkhead.as_mut()?.poll_granted());
        woken.extend(granted.filter(|waiter| !waiter.is_modelled()));
    }

    pub(super) fn check_invariants(&self) {
        self.bulkhead.iter().for_each(Bulkhead::check_invariants);
    }
}
