//! What one call holds of the shared machines.

use crate::breaker::Ticket;
use crate::bulkhead::{Permit, Place, WaiterId};
use crate::rejection::{EndpointKey, RouteId};

/// Which bulkhead: the narrower one is taken first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Route,
    Dependency,
}

/// What is held of one bulkhead.
#[derive(Debug, Default)]
pub(super) enum Hold {
    #[default]
    Nothing,
    Permit(Permit),
    /// A place in the queue: the call waits, or (in `Observe`) runs while its wait is modelled.
    Place(Place),
}

/// Which breaker a ticket belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BreakerKey {
    Dependency,
    /// By the slot of the route.
    Route(u32),
    Endpoint(EndpointKey),
}

/// A ticket and whose it is.
#[derive(Debug)]
pub(super) struct HeldTicket {
    pub(super) key: BreakerKey,
    pub(super) ticket: Ticket,
}

/// Permits, place in a queue and ticket of one call.
#[derive(Debug)]
pub(crate) struct Holdings {
    route: RouteId,
    slot: u32,
    pub(super) of_route: Hold,
    pub(super) of_dependency: Hold,
    /// The bulkhead for which the call waits.
    pub(super) waits_at: Option<Level>,
    pub(super) waiter: Option<WaiterId>,
    pub(super) ticket: Option<HeldTicket>,
    /// Where the attempt goes, or the last one went.
    pub(crate) endpoint: Option<EndpointKey>,
    /// The attempt is counted among those in flight there.
    pub(super) counted: bool,
    /// A block that only observes would have refused this attempt.
    pub(super) refused_in_model: bool,
}

impl Holdings {
    pub(super) const fn new(route: RouteId, slot: u32) -> Self {
        Self {
            route,
            slot,
            of_route: Hold::Nothing,
            of_dependency: Hold::Nothing,
            waits_at: None,
            waiter: None,
            ticket: None,
            endpoint: None,
            counted: false,
            refused_in_model: false,
        }
    }

    /// The name under which the call waits, while it does.
    pub(crate) const fn waiter(&self) -> Option<WaiterId> {
        self.waiter
    }

    /// The route that the call named.
    pub(crate) const fn route(&self) -> RouteId {
        self.route
    }

    pub(super) const fn slot(&self) -> u32 {
        self.slot
    }

    pub(super) const fn is_empty(&self) -> bool {
        let Self { of_route, of_dependency, ticket, waiter, counted, .. } = self;
        let held = (of_route, of_dependency, ticket, waiter, counted);
        matches!(held, (Hold::Nothing, Hold::Nothing, None, None, false))
    }

    /// True if the permit of the route is held.
    #[cfg(test)]
    pub(crate) const fn holds_route(&self) -> bool {
        matches!(self.of_route, Hold::Permit(_))
    }

    pub(super) const fn hold_mut(&mut self, level: Level) -> &mut Hold {
        match level {
            Level::Route => &mut self.of_route,
            Level::Dependency => &mut self.of_dependency,
        }
    }
}
