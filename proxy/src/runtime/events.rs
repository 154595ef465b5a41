//! State changes of the machines, with the names that only the snapshot knows.

use std::sync::Arc;

use arc_swap::ArcSwap;
use plimsoll_resilience::event::Event;
use plimsoll_resilience::protection::BreakerScope;
use plimsoll_resilience::rejection::EndpointKey;

use super::clock::Clock;
use crate::dependency::EventSink;
use crate::report::{CircuitChange, Report};
use crate::snapshot::{Endpoints, Service, Snapshot};

/// Tells the report of every change.
#[derive(Debug)]
pub struct EventDesk {
    /// Where they are told.
    pub report: Report,
    /// Where names are looked up.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// When they happened.
    pub clock: Clock,
}

impl EventSink for EventDesk {
    fn on_event(&self, dependency: &str, event: &Event) {
        let Event::Breaker { scope, transition } = event else { return };
        let snapshot = self.snapshot.load();
        let service = snapshot.services().find(|service| &*service.dependency.name == dependency);
        let (route, endpoint) = match *scope {
            BreakerScope::Dependency => (None, None),
            BreakerScope::Route(id) => (service.and_then(|service| service.route(id.0 as usize).name.as_deref()), None),
            BreakerScope::Endpoint(key) => (None, service.and_then(|service| address_of(service, key))),
        };
        self.report.events().circuit(&CircuitChange {
            time: self.clock.wall(transition.at),
            policy: dependency,
            route,
            endpoint: endpoint.as_deref(),
            mode: service.map_or(plimsoll_resilience::Mode::Enforce, |service| service.breaker_mode),
            transition,
            generation: &snapshot.generation,
        });
    }
}

/// The address that `key` stands for, if it is one of the service's own.
#[must_use]
pub fn address_of(service: &Service, key: EndpointKey) -> Option<String> {
    let find = |endpoints: &[crate::pick::Endpoint]| {
        endpoints.iter().find(|endpoint| endpoint.key == key).map(|endpoint| endpoint.address.to_string())
    };
    match &service.endpoints {
        Endpoints::AsAddressed => None,
        Endpoints::Fixed(endpoints) => find(endpoints),
        Endpoints::Resolved(resolved) => find(&resolved.load()),
    }
}
