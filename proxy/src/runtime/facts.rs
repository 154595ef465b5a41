//! What is known about a dependency, in the words of policy, for the admin address.

use std::net::SocketAddr;

use plimsoll_policy::Protocol;
use plimsoll_resilience::breaker::State;
use plimsoll_resilience::protection::BreakerScope;
use plimsoll_resilience::{EndpointKey, Mode, Moded, ProtectionView, Timestamp};

use crate::admin::{DependencyFacts, EndpointFacts, EndpointSource, Ineffective, TlsFacts};
use crate::pick::Endpoint;
use crate::snapshot::{Endpoints, Service, Upstreams};

/// Everything about a dependency that a policy names; `listen` as it is bound.
pub fn of(service: &Service, listen: Option<SocketAddr>, now: Timestamp) -> Option<DependencyFacts> {
    let protection = service.dependency.with(|shared| shared.protection.view(now));
    Some(DependencyFacts {
        name: service.policy.as_deref()?.to_owned(),
        mode: service.mode,
        listen,
        hosts: service.hosts.clone(),
        protocol: service.protocol.as_str(),
        upstream_protocol: match service.upstreams {
            Upstreams::AsCaller => "Same",
            Upstreams::Http1 => "HTTP1",
            Upstreams::Http2 => "HTTP2",
        },
        tls: service.security.as_ref().map(|origination| TlsFacts {
            server_name: origination.server_name().map(str::to_owned),
            client_certificate: origination.is_identified(),
        }),
        load_balancing: service.load_balancing.as_str(),
        open_sockets: service.dependency.sockets().open(),
        max_connections: service.connections.map(|limit| Moded { mode: limit.mode, config: limit.config.max }),
        slow_call_threshold: service.rest.rules.slow_call_threshold,
        source: source(service),
        endpoints: endpoints(service, &protection),
        ineffective: ineffective(service),
        protection,
    })
}

/// The endpoints as far as they are known, each once.
pub fn endpoints_of(service: &Service) -> Vec<Endpoint> {
    match &service.endpoints {
        Endpoints::AsAddressed => Vec::new(),
        Endpoints::Fixed(endpoints) => endpoints.clone(),
        Endpoints::Resolved(resolved) => resolved.each_once(),
    }
}

fn source(service: &Service) -> EndpointSource {
    match &service.endpoints {
        Endpoints::AsAddressed => EndpointSource::Caller,
        Endpoints::Fixed(_) => EndpointSource::Static,
        Endpoints::Resolved(resolved) => EndpointSource::Dns {
            name: resolved.name.clone(),
            port: resolved.port,
            refresh: resolved.refresh,
            last: resolved.last_look_up(),
        },
    }
}

fn endpoints(service: &Service, protection: &ProtectionView) -> Vec<EndpointFacts> {
    let places = |key| match &service.endpoints {
        Endpoints::AsAddressed | Endpoints::Fixed(_) => 1,
        Endpoints::Resolved(resolved) => resolved.load().iter().filter(|one| one.key == key).count(),
    };
    let facts = |Endpoint { address, key }| EndpointFacts {
        key,
        address: address.to_string(),
        state: state(key, protection),
        places: places(key),
    };
    endpoints_of(service).into_iter().map(facts).collect()
}

/// An endpoint whose own breaker is open gets no calls; one that is observed gets them all the same.
fn state(key: EndpointKey, protection: &ProtectionView) -> &'static str {
    let own = protection.breakers.iter().find(|view| view.scope == BreakerScope::Endpoint(key));
    match own.filter(|view| view.mode == Mode::Enforce).map(|view| view.state) {
        Some(State::Open | State::ForcedOpen) => "CircuitOpen",
        Some(State::HalfOpen) => "Probing",
        _ => "Healthy",
    }
}

fn ineffective(service: &Service) -> Option<Ineffective> {
    let declared = service.protocol == Protocol::Tcp;
    let is_so = !service.about_calls.is_empty() && (declared || service.dependency.has_opaque());
    is_so.then(|| Ineffective { fields: service.about_calls.clone(), declared })
}
