//! Everything about one dependency as plain numbers, for status and metrics.

use std::time::Duration;

use crate::breaker::{SlowTurn, State};
use crate::budget::BudgetView;
use crate::least_request::LoadView;
use crate::mode::{Mode, Moded};
use crate::rejection::{EndpointKey, RouteId};
use crate::time::Timestamp;
use crate::window::Counts;

use super::Protection;
use super::breakers::{BreakerSlot, Seen};
use super::config::BulkheadSlot;
use super::connections::ConnectionRateView;
use super::turns::TurnsView;

/// Which breaker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BreakerScope {
    /// The dependency's only one.
    Dependency,
    /// That of a route.
    Route(RouteId),
    /// That of an endpoint.
    Endpoint(EndpointKey),
}

/// Everything about one dependency, as plain numbers.
#[derive(Clone, Debug, Default)]
pub struct ProtectionView {
    /// Every breaker that is in force.
    pub breakers: Vec<BreakerView>,
    /// Every bulkhead that is in force.
    pub bulkheads: Vec<BulkheadView>,
    /// How fast opaque connections may be opened, if that is limited.
    pub connection_rate: Option<ConnectionRateView>,
    /// Turns on opaque connections.
    pub turns: TurnsView,
    /// With `loadBalancing.algorithm: LeastRequest`: every endpoint of which something is known.
    pub loads: Vec<LoadView>,
    /// The retry budget.
    pub budget: BudgetView,
}

/// A breaker, as plain numbers.
#[derive(Clone, Debug)]
pub struct BreakerView {
    /// Which.
    pub scope: BreakerScope,
    /// The name of its route, if it belongs to a named one.
    pub route: Option<String>,
    /// Enforce or Observe.
    pub mode: Mode,
    /// Where it stands.
    pub state: State,
    /// What the window holds.
    pub counts: Counts,
    /// Calls that the window needs before a rate can open it.
    pub minimum_calls: u32,
    /// Percent at which it opens.
    pub failure_rate_threshold: u32,
    /// Percent at which it opens.
    pub slow_call_rate_threshold: u32,
    /// While open: when probes are let through.
    pub retry_at: Option<Timestamp>,
    /// While forced: until when.
    pub forced_until: Option<Timestamp>,
    /// Calls of the last 30 s that were counted.
    pub counted: u32,
    /// Calls of the last 30 s that the caller gave up before they could be counted: this breaker cannot see them.
    pub given_up: u32,
    /// The mean age at which those were given up.
    pub given_up_after: Option<Duration>,
}

/// A bulkhead, as plain numbers.
#[derive(Clone, Debug)]
pub struct BulkheadView {
    /// The named route it stands on; `None`: the dependency.
    pub route: Option<String>,
    /// The id of that route.
    pub route_id: Option<RouteId>,
    /// Enforce or Observe.
    pub mode: Mode,
    /// Permits.
    pub limit: u32,
    /// Permits out.
    pub in_flight: u32,
    /// Calls that wait.
    pub queued: u32,
    /// Places in the queue.
    pub max_queued: u32,
}

impl Protection {
    /// Everything as plain numbers.
    pub fn view(&self, now: Timestamp) -> ProtectionView {
        let routes = self.routes.iter().filter(|route| route.in_policy());
        let of_routes = routes.filter_map(|route| {
            let id = (route.id() != RouteId::REST).then_some(route.id());
            bulkhead_view(&route.bulkhead, route.name(), id)
        });
        let bulkheads = bulkhead_view(&self.bulkhead, None, None).into_iter().chain(of_routes).collect();
        ProtectionView {
            breakers: self.breaker_views(now),
            bulkheads,
            connection_rate: self.connections.view(now),
            turns: self.turns.view(self.breakers.slow_turn() == SlowTurn::Enforce, now),
            loads: if self.least_request { self.loads.view(now) } else { Vec::new() },
            budget: self.budget.view(now),
        }
    }

    fn breaker_views(&self, now: Timestamp) -> Vec<BreakerView> {
        let Some(Moded { mode, .. }) = self.breakers.block() else {
            return Vec::new();
        };
        let view = |scope, route: Option<&str>, slot: &BreakerSlot| {
            let breaker = &slot.breaker;
            let settings = breaker.config().settings();
            let Seen { counted, given_up, given_up_after } = slot.seen(now);
            BreakerView {
                scope,
                route: route.map(str::to_owned),
                mode,
                state: breaker.state(now),
                counts: breaker.counts(now),
                minimum_calls: settings.minimum_calls,
                failure_rate_threshold: settings.failure_rate,
                slow_call_rate_threshold: settings.slow_call_rate,
                retry_at: breaker.retry_at(),
                forced_until: breaker.forced_until(now),
                counted,
                given_up,
                given_up_after,
            }
        };
        self.keys_in_force()
            .into_iter()
            .filter_map(|key| {
                let slot = self.breakers.find(key, &self.routes)?;
                let scope = self.scope_of(key);
                let route = match scope {
                    BreakerScope::Route(id) => self.routes.slot_of(id).and_then(|slot| self.routes.slot(slot).name()),
                    _ => None,
                };
                Some(view(scope, route, slot))
            })
            .collect()
    }
}

fn bulkhead_view(slot: &BulkheadSlot, route: Option<&str>, route_id: Option<RouteId>) -> Option<BulkheadView> {
    let bulkhead = slot.in_force()?;
    Some(BulkheadView {
        route: route.map(str::to_owned),
        route_id,
        mode: slot.mode(),
        limit: bulkhead.config().max_concurrent(),
        in_flight: bulkhead.in_flight(),
        queued: bulkhead.queued(),
        max_queued: bulkhead.config().max_queued(),
    })
}
