//! What is configured, where its state lives, and how a swap joins the two (design.md section 5).

use std::collections::VecDeque;

use crate::breaker;
use crate::budget;
use crate::bulkhead::{self, Bulkhead, WaiterId};
use crate::mode::{Mode, Moded};
use crate::rejection::RouteId;
use crate::time::Timestamp;

use super::Protection;
use super::breakers::BreakerSlot;

/// What the calls of one dependency share, as policy has it.
#[derive(Clone, Debug, Default)]
pub struct ProtectionConfig {
    /// The dependency's own bulkhead: all its calls draw from it.
    pub bulkhead: Option<Moded<bulkhead::Config>>,
    /// The breaker, with its scope.
    pub breaker: Option<Moded<breaker::Config>>,
    /// The retry budget; there is one without a retry block too.
    pub budget: budget::Config,
    /// The named routes in their order: the first is `RouteId(1)`.
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
    ///
    /// A `RouteId` belongs to the configuration in force when its call began.
    pub fn reconfigure(&mut self, config: &ProtectionConfig, now: Timestamp) {
        self.bulkhead.configure(config.bulkhead, now);
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
    fn configure(&mut self, block: Option<Moded<bulkhead::Config>>, now: Timestamp) {
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

/// The state of one route.
#[derive(Debug, Default)]
pub(super) struct RouteSlot {
    name: String,
    id: RouteId,
    in_policy: bool,
    /// Calls in progress, which know the route by its slot.
    calls: u32,
    pub(super) bulkhead: BulkheadSlot,
    pub(super) breaker: Option<BreakerSlot>,
}

impl RouteSlot {
    pub(super) fn name(&self) -> Option<&str> {
        (self.id != RouteId::REST).then_some(&self.name)
    }

    pub(super) const fn id(&self) -> RouteId {
        self.id
    }

    pub(super) const fn in_policy(&self) -> bool {
        self.in_policy
    }
}

/// The states of all routes: a slot stays where it is while a call knows it, whatever the policy's order becomes.
#[derive(Debug)]
pub(super) struct Routes {
    slots: Vec<RouteSlot>,
    /// The slot of each `RouteId`.
    order: Vec<u32>,
}

impl Default for Routes {
    /// Only the rest.
    fn default() -> Self {
        Self { slots: vec![RouteSlot { in_policy: true, ..RouteSlot::default() }], order: vec![0] }
    }
}

impl Routes {
    fn configure(&mut self, routes: &[RouteProtection], now: Timestamp) {
        for slot in self.slots.iter_mut().skip(1) {
            slot.in_policy = false;
        }
        self.order.truncate(1);
        for (id, route) in (1..).zip(routes) {
            let index = self.slot_for(&route.name);
            let slot = &mut self.slots[index];
            slot.id = RouteId(id);
            slot.in_policy = true;
            slot.bulkhead.configure(route.bulkhead, now);
            self.order.push(u32::try_from(index).expect("there are fewer routes than 2^32"));
        }
        for slot in self.slots.iter_mut().filter(|slot| !slot.in_policy) {
            slot.bulkhead.configure(None, now);
        }
    }

    /// The slot of that name, else one that nobody knows any more, else a new one.
    fn slot_for(&mut self, name: &str) -> usize {
        let named = |slot: &RouteSlot| slot.name == name;
        let unused = |slot: &RouteSlot| !slot.in_policy && slot.calls == 0;
        let found = |test: &dyn Fn(&RouteSlot) -> bool| self.slots.iter().skip(1).position(test).map(|at| at + 1);
        if let Some(index) = found(&named) {
            return index;
        }
        let slot = RouteSlot { name: name.to_owned(), ..RouteSlot::default() };
        match found(&unused) {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    /// The slot of a route; an unknown one counts among the rest.
    pub(super) fn enter(&mut self, route: RouteId) -> u32 {
        let slot = self.order.get(route.0 as usize).copied().unwrap_or(0);
        self.slots[slot as usize].calls += 1;
        slot
    }

    pub(super) fn exit(&mut self, slot: u32) {
        self.slots[slot as usize].calls -= 1;
    }

    pub(super) fn slot_of(&self, route: RouteId) -> Option<u32> {
        self.order.get(route.0 as usize).copied()
    }

    pub(super) fn slot(&self, slot: u32) -> &RouteSlot {
        &self.slots[slot as usize]
    }

    pub(super) fn slot_mut(&mut self, slot: u32) -> &mut RouteSlot {
        &mut self.slots[slot as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RouteSlot> {
        self.slots.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RouteSlot> {
        self.slots.iter_mut()
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.order.iter().all(|&slot| self.slots[slot as usize].in_policy));
        for slot in &self.slots {
            slot.bulkhead.check_invariants();
            slot.breaker.iter().for_each(BreakerSlot::check_invariants);
        }
    }
}
