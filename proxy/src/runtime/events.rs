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
            BreakerScope::Route(id) => (service.and_then(|service| service.route_name(id)), None),
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

#[cfg(test)]
mod tests {
    use plimsoll_policy::{Source, parse};
    use plimsoll_resilience::Timestamp;
    use plimsoll_resilience::breaker::Forced;

    use super::*;
    use crate::snapshot::{Compiled, Originations, Registry, compile};

    fn policy(routes: &[&str]) -> String {
        let routes = routes.iter().map(|name| format!("{{name: {name}, match: {{path: {{prefix: /{name}}}}}}}"));
        format!(
            "apiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: fraud-api, namespace: shop}}\n\
             spec: {{target: {{hosts: [fraud.internal]}}, circuitBreaker: {{scope: Route}}, routes: [{}]}}\n",
            routes.collect::<Vec<_>>().join(", ")
        )
    }

    /// A breaker may speak before the snapshot that put its route into another place is there, and after.
    #[test]
    fn an_event_names_its_own_route_whatever_the_order_of_the_generation_in_force() {
        let report = Report::new(None).unwrap().0;
        let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::empty()));
        let desk = EventDesk { report: report.clone(), snapshot: Arc::clone(&snapshot), clock: Clock::start() };
        let mut told = report.events().subscribe();
        let mut registry = Registry::new(report, Arc::new(desk), 1);
        let mut next = |generation: &str, routes: &[&str]| -> Compiled {
            let set = parse(&[Source::new("test", policy(routes))]).unwrap();
            let compiled =
                compile(&set, Some("shop"), None, Originations::default(), &mut registry, generation, Timestamp::ZERO);
            compiled.put_limits_in_force(Timestamp::ZERO);
            compiled
        };
        let charge_of = |snapshot: &Snapshot| {
            let service = snapshot.dependencies().next().expect("the only one");
            let charge = service.routes.iter().find(|route| route.name.as_deref() == Some("charge")).expect("named");
            (Arc::clone(&service.dependency), charge.id)
        };
        let mut force = |forced, before: &str| {
            let (dependency, charge) = charge_of(&snapshot.load());
            let force = |shared: &mut crate::dependency::Shared| {
                shared.protection.force(Some(charge), forced, Timestamp::MAX, Timestamp::ZERO)
            };
            dependency.with(force).unwrap();
            let told = told.try_recv().expect("told");
            assert!(told.data.contains(r#""route":"charge""#), "{before}: {}", told.data);
        };
        snapshot.store(Arc::new(next("local-1", &["charge"]).snapshot));
        force(Forced::Open, "as it was");
        let compiled = next("local-2", &["refund", "charge"]);
        force(Forced::Closed, "new limits, old snapshot");
        snapshot.store(Arc::new(compiled.snapshot));
        force(Forced::Auto, "all new");
    }
}
