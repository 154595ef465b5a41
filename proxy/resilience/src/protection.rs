//! What the calls of one dependency share.
use std::time::Duration;

use crate::breaker::{self, Forced};
use crate::budget::BudgetView;
use crate::bulkhead::WaiterId;
use crate::event::Event;
use crate::mode::{Mode, Moded};
use crate::rejection::{EndpointKey, RouteId};
use crate::time::Timestamp;
use crate::window::Counts;
use crate::{budget, bulkhead};

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
    pub state: breaker::State,
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
    /// Calls that ended before they could be counted because the caller gave up, since the breaker was made.
    pub given_up: u64,
    /// The mean age of those calls when they ended.
    pub given_up_after: Option<Duration>,
    /// Calls that were counted, since the breaker was made.
    pub counted: u64,
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

/// Everything that the calls of one dependency share.
#[derive(Debug)]
pub struct Protection {}

impl Protection {
    /// Everything closed, empty and counted from now on.
    pub fn new(_config: &ProtectionConfig, _seed: u64, _now: Timestamp) -> Self {
        Self {}
    }

    /// Takes over another configuration; state goes along as the table of design.md section 5 has it.
    pub fn reconfigure(&mut self, _config: &ProtectionConfig, _now: Timestamp) {}

    /// The next thing worth telling. Whoever changed something drains it under the same lock.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// The next call to be woken, after the lock is released.
    pub fn poll_woken(&mut self) -> Option<WaiterId> {
        None
    }

    /// The median latency of the last 30 s as the shell publishes it once a second; `None` below 50 samples.
    pub fn set_median_latency(&mut self, _median: Option<Duration>) {}

    /// With `scope: Endpoint`: whether a first attempt may go to this endpoint. Always true otherwise.
    pub fn endpoint_allows(&mut self, _endpoint: EndpointKey, _now: Timestamp) -> bool {
        true
    }

    /// As [`Protection::endpoint_allows`], for a retry: it is never a probe.
    pub fn endpoint_allows_retry(&mut self, _endpoint: EndpointKey, _now: Timestamp) -> bool {
        true
    }

    /// The endpoint is gone; what is in flight there ends as it began.
    pub fn forget_endpoint(&mut self, _endpoint: EndpointKey) {}

    /// An operator's word on the breaker (`route`: on that route's), valid until `until`.
    ///
    /// # Errors
    /// If there is no such breaker.
    pub fn force(
        &mut self,
        _route: Option<RouteId>,
        _forced: Forced,
        _until: Timestamp,
        _now: Timestamp,
    ) -> Result<(), ForceError> {
        Ok(())
    }

    /// Everything as plain numbers.
    pub fn view(&self, _now: Timestamp) -> ProtectionView {
        ProtectionView::default()
    }

    /// Panics if a number does not add up.
    pub fn check_invariants(&self) {}
}
