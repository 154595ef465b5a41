//! The states of the named routes: found again by name, known to calls by a number.
//!
//! A call takes the number of its route from the generation under which it began, which may not be the one in force
//! here. So a number stands for one name and is never given to another one: whatever a swap inserts, removes or puts
//! into another order, the number leads to its own route's limits.
//!
//! A removed route keeps its slot while a call knows it or an operator's word on its breaker holds. After that the slot,
//! and not the number, goes to the next new route.

use crate::rejection::RouteId;
use crate::time::Timestamp;

use super::Protection;
use super::breakers::BreakerSlot;
use super::config::{BulkheadSlot, RouteProtection};

impl Protection {
    /// The number of the route called `name`, also of one that is in no configuration yet: whoever prepares the next
    /// one asks first. Routes that are new to [`Protection::new`] or [`Protection::reconfigure`] get the next numbers in
    /// their order, so those of the first configuration are 1, 2, and so on.
    ///
    /// It stays the same for as long as the route is in the configuration, and never becomes another's.
    pub fn route_id(&mut self, name: &str) -> RouteId {
        let slot = self.routes.find(name).unwrap_or_else(|| self.routes.add(name));
        self.routes.slots[slot].id
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

    /// Nothing would be lost with it.
    fn is_free(&self, now: Timestamp) -> bool {
        !self.in_policy && self.calls == 0 && self.breaker.as_ref().is_none_or(|breaker| breaker.is_idle(now))
    }
}

/// The states of all routes: a slot stays where it is while a call knows it.
#[derive(Debug)]
pub(super) struct Routes {
    /// The first is that of the rest.
    slots: Vec<RouteSlot>,
    /// Where each number leads, in the order of numbers.
    numbers: Vec<(RouteId, u32)>,
    last: RouteId,
}

impl Default for Routes {
    /// Only the rest.
    fn default() -> Self {
        let rest = RouteSlot { in_policy: true, ..RouteSlot::default() };
        Self { slots: vec![rest], numbers: vec![(RouteId::REST, 0)], last: RouteId::REST }
    }
}

impl Routes {
    pub(super) fn configure(&mut self, routes: &[RouteProtection], now: Timestamp) {
        let in_policy = |slot: &RouteSlot| routes.iter().any(|route| route.name == slot.name);
        // Those that leave only now are not free yet: calls that began with them are about to enter.
        let free: Vec<usize> =
            (1..self.slots.len()).filter(|&at| self.slots[at].is_free(now) && !in_policy(&self.slots[at])).collect();
        let mut free = free.into_iter();
        for slot in self.slots.iter_mut().skip(1) {
            slot.in_policy = false;
        }
        for route in routes {
            let index = self.find(&route.name).unwrap_or_else(|| match free.next() {
                Some(index) => self.replace(index, &route.name),
                None => self.add(&route.name),
            });
            let slot = &mut self.slots[index];
            slot.in_policy = true;
            slot.bulkhead.configure(route.bulkhead, now);
        }
        for slot in self.slots.iter_mut().filter(|slot| !slot.in_policy) {
            slot.bulkhead.configure(None, now);
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        (1..self.slots.len()).find(|&index| self.slots[index].name == name)
    }

    fn add(&mut self, name: &str) -> usize {
        self.slots.push(RouteSlot::default());
        self.replace(self.slots.len() - 1, name)
    }

    /// A new route with a new number in the place of one that nobody knows any more.
    fn replace(&mut self, index: usize, name: &str) -> usize {
        let slot = u32::try_from(index).expect("there are fewer routes than 2^32");
        self.last = RouteId(self.last.0 + 1);
        self.numbers.retain(|&(_, known)| known != slot);
        self.numbers.push((self.last, slot));
        self.slots[index] = RouteSlot { name: name.to_owned(), id: self.last, ..RouteSlot::default() };
        index
    }

    /// The slot of a route; one that is not known any more counts among the rest.
    #[inline]
    pub(super) fn enter(&mut self, route: RouteId) -> u32 {
        let slot = self.slot_of(route).unwrap_or(0);
        self.slots[slot as usize].calls += 1;
        slot
    }

    pub(super) fn exit(&mut self, slot: u32) {
        self.slots[slot as usize].calls -= 1;
    }

    #[inline]
    pub(super) fn slot_of(&self, route: RouteId) -> Option<u32> {
        if route == RouteId::REST {
            return Some(0);
        }
        let found = self.numbers.binary_search_by_key(&route, |&(number, _)| number).ok()?;
        Some(self.numbers[found].1)
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
        assert_eq!(self.numbers.len(), self.slots.len(), "each slot has one number");
        assert!(self.numbers.is_sorted_by(|(one, _), (next, _)| one < next));
        assert!(self.numbers.iter().all(|&(number, slot)| self.slot(slot).id == number));
        for slot in &self.slots {
            slot.bulkhead.check_invariants();
            slot.breaker.iter().for_each(BreakerSlot::check_invariants);
        }
    }
}
