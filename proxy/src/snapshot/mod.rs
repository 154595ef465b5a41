//! One generation of policy, compiled: immutable, shared by all workers, taken once per call.

mod compile;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use plimsoll_policy::{AddressPattern, Algorithm, ConnectionLimit, Drain, Matcher, PortPolicy, Protocol};
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::{Cause, Rejected, RouteId};
use plimsoll_resilience::rules::Rules;
use plimsoll_resilience::{Mode, Moded};

pub use self::compile::{Compiled, Follow, Listen, Originations, Registry, compile, listens, originations};
use crate::dependency::{Dependency, DependencyId};
use crate::pick::Endpoint;
use crate::report::Series;
use crate::route::hosts::Hosts;
use crate::runtime::resolver::Followed;
use crate::tls::Origination;

/// Former `listen` addresses whose connections are still served.
const MAX_RETIRED: usize = 64;

/// A service's place in its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceIndex(u32);

impl ServiceIndex {
    /// Destinations that no policy names.
    pub const UNLISTED: Self = Self(0);
    /// The workload itself.
    pub const INBOUND: Self = Self(1);

    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("policies are bounded by the size of their sources"))
    }
}

/// One generation. See the module documentation.
#[derive(Debug)]
pub struct Snapshot {
    /// Its number, given by the source: `local-3`.
    pub generation: Arc<str>,
    /// How the proxy leaves.
    pub drain: Drain,
    /// Unlisted, inbound, dependencies in the order of their policies, and behind `named` those that only old
    /// connections still call.
    services: Vec<Arc<Service>>,
    named: usize,
    hosts: Hosts<ServiceIndex>,
    addresses: Vec<(AddressPattern, ServiceIndex)>,
    /// Few enough to be looked through.
    listens: Vec<(SocketAddr, ServiceIndex)>,
    /// Keeps what `hosts` names in the address book.
    followed: Vec<Arc<Followed>>,
}

/// A dependency, or the workload itself, as one generation has it.
#[derive(Debug)]
pub struct Service {
    /// Its state, which outlives the generation.
    pub dependency: Arc<Dependency>,
    /// `namespace/name` of its policy.
    pub policy: Option<Arc<str>>,
    /// Where its calls go.
    pub endpoints: Endpoints,
    /// What its callers speak.
    pub protocol: Protocol,
    /// What is spoken at each port of the workload; other ports are `Auto`.
    pub ports: Vec<PortPolicy>,
    /// What is spoken with its endpoints.
    pub upstreams: Upstreams,
    /// How one of them is chosen.
    pub load_balancing: Algorithm,
    /// TLS that we originate.
    pub security: Option<Arc<Origination>>,
    /// `maxConnections`: to the dependency, or for the workload from its callers.
    pub connections: Option<Moded<ConnectionLimit>>,
    /// Fields of its policy that act on calls alone, and not on traffic that nothing looks into.
    pub about_calls: Vec<&'static str>,
    /// The mode of its breaker.
    pub breaker_mode: Mode,
    /// The mode of its policy.
    pub mode: Mode,
    /// The names that callers address, as written.
    pub hosts: Vec<String>,
    /// Calls that no named route is for.
    pub rest: Route,
    /// Named routes in their order.
    pub routes: Vec<Route>,
}

/// The rules of one route.
#[derive(Debug)]
pub struct Route {
    /// Its number in the dependency's protection: the same in every generation.
    pub id: RouteId,
    /// Its name; `None` for the rest.
    pub name: Option<Arc<str>>,
    /// Which calls.
    pub matcher: Matcher,
    /// What holds for them.
    pub rules: Arc<Rules>,
    /// The same for tunnels, which may be silent for longer.
    pub tunnel_rules: Arc<Rules>,
    /// Where its calls are counted.
    pub stats: Series,
}

/// What is spoken with the endpoints of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstreams {
    /// What the caller speaks.
    AsCaller,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; through TLS HTTP/1.1 as well, where the server chooses that.
    Http2,
}

/// Where calls go.
#[derive(Debug)]
pub enum Endpoints {
    /// Where the caller was going.
    AsAddressed,
    /// These.
    Fixed(Vec<Endpoint>),
    /// What a name stands for at the moment.
    Resolved(Arc<Resolved>),
}

/// The addresses of a name, kept up to date in the background.
#[derive(Debug)]
pub struct Resolved {
    /// The name.
    pub name: String,
    /// The port at each address; without one the name stands for services (SRV), which say theirs.
    pub port: Option<u16>,
    /// How often the name is asked for again; without it, when the answer has had its time.
    pub refresh: Option<Duration>,
    endpoints: ArcSwap<Vec<Endpoint>>,
    last: ArcSwap<LookUp>,
}

/// What the last look-up of a name came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// There was none yet.
    Pending,
    /// Its answer holds for so long, within our bounds.
    Answered(Duration),
    /// There was no answer, or none of use. The endpoints may be those of one before.
    Failed(Box<str>),
}

impl Resolved {
    /// A name that has not been asked for yet.
    #[must_use]
    pub fn new(name: String, port: Option<u16>, refresh: Option<Duration>) -> Arc<Self> {
        let (endpoints, last) = (ArcSwap::default(), ArcSwap::from_pointee(LookUp::Pending));
        Arc::new(Self { name, port, refresh, endpoints, last })
    }

    /// The addresses as last heard, in the order in which they take turns. Those of services come as often as their
    /// weight says.
    #[must_use]
    pub fn load(&self) -> arc_swap::Guard<Arc<Vec<Endpoint>>> {
        self.endpoints.load()
    }

    /// The same, each once.
    #[must_use]
    pub fn each_once(&self) -> Vec<Endpoint> {
        let mut known = HashSet::new();
        self.load().iter().copied().filter(|endpoint| known.insert(endpoint.address)).collect()
    }

    /// New addresses.
    pub fn store(&self, endpoints: Vec<Endpoint>) {
        self.endpoints.store(Arc::new(endpoints));
    }

    /// What the last look-up came to, for people.
    #[must_use]
    pub fn last_look_up(&self) -> Arc<LookUp> {
        self.last.load_full()
    }

    /// A look-up has ended.
    pub fn looked_up(&self, last: LookUp) {
        self.last.store(Arc::new(last));
    }
}

impl Snapshot {
    /// A snapshot without any service, for the moment in which a process is put together. Nothing is served with it.
    #[must_use]
    pub fn empty() -> Self {
        Self::new("local-0")
    }

    fn new(generation: &str) -> Self {
        Self {
            generation: generation.into(),
            drain: Drain::default(),
            services: Vec::new(),
            named: 0,
            hosts: Hosts::default(),
            addresses: Vec::new(),
            listens: Vec::new(),
            followed: Vec::new(),
        }
    }

    /// The service at `index`.
    #[must_use]
    pub fn service(&self, index: ServiceIndex) -> &Service {
        &self.services[index.0 as usize]
    }

    /// Every service, those without a policy first.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services.iter()
    }

    /// Whose `target.hosts` names this host and port.
    #[must_use]
    pub fn by_host(&self, host: &str, port: u16) -> Option<ServiceIndex> {
        self.hosts.find(host, port)
    }

    /// Whose `target.addresses` holds this address; the longest prefix, with a port before without.
    #[must_use]
    pub fn by_address(&self, address: SocketAddr) -> Option<ServiceIndex> {
        self.addresses.iter().find(|(pattern, _)| pattern.matches(address)).map(|(_, index)| *index)
    }

    /// Whose `target.listen` this is.
    #[must_use]
    pub fn by_listen(&self, address: SocketAddr) -> Option<ServiceIndex> {
        self.listens.iter().find(|(listen, _)| *listen == address).map(|(_, index)| *index)
    }

    /// Keeps these names in the address book for as long as it lives.
    pub fn hold(&mut self, followed: Vec<Arc<Followed>>) {
        self.followed = followed;
    }

    /// The workload itself.
    #[must_use]
    pub fn inbound(&self) -> &Service {
        self.service(ServiceIndex::INBOUND)
    }

    /// Every dependency that a policy names.
    pub fn dependencies(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services[2..self.named].iter()
    }

    /// Keeps serving connections on addresses that `before` listened on and this one does not: they go to the same
    /// dependency if it still has a policy, else to what it was.
    pub fn inherit_listens(&mut self, before: &Self) {
        let own = self.listens.len();
        for (address, old) in &before.listens {
            let retired = self.listens.len() - own;
            if self.by_listen(*address).is_some() || retired >= MAX_RETIRED {
                continue;
            }
            let old = &before.services[old.0 as usize];
            let known = self.services.iter().position(|service| service.dependency.id == old.dependency.id);
            let index = known.unwrap_or_else(|| {
                self.services.push(Arc::clone(old));
                self.services.len() - 1
            });
            self.listen_on(*address, ServiceIndex::new(index));
        }
    }

    /// Whether idle connections of `dependency` to `address` may still be of use.
    #[must_use]
    pub fn keeps_connections_to(&self, dependency: DependencyId, address: SocketAddr) -> bool {
        self.services.iter().any(|service| {
            service.dependency.id == dependency
                && match &service.endpoints {
                    Endpoints::AsAddressed => true,
                    Endpoints::Fixed(endpoints) => endpoints.iter().any(|endpoint| endpoint.address == address),
                    Endpoints::Resolved(resolved) => resolved.load().iter().any(|endpoint| endpoint.address == address),
                }
        })
    }
}

impl Service {
    /// A service that goes where its callers were going, with no limit of its own.
    fn plain(dependency: Arc<Dependency>, rest: Route) -> Self {
        Self {
            dependency,
            policy: None,
            endpoints: Endpoints::AsAddressed,
            protocol: Protocol::Auto,
            ports: Vec::new(),
            upstreams: Upstreams::AsCaller,
            load_balancing: Algorithm::RoundRobin,
            security: None,
            connections: None,
            about_calls: Vec::new(),
            breaker_mode: Mode::Disabled,
            mode: Mode::Enforce,
            hosts: Vec::new(),
            rest,
            routes: Vec::new(),
        }
    }

    /// What `maxConnections` says of one more connection, with so many `open` of `max`.
    #[must_use]
    pub fn too_many_connections(&self, open: usize, max: usize) -> Rejected {
        let waits = self.connections.is_some_and(|limit| !limit.config.max_wait.is_zero());
        let reason = if waits { Reason::BulkheadWaitTimeout } else { Reason::BulkheadFull };
        Rejected { cause: Some(Cause::Connections), ..Rejected::new(reason, open as u64, max as u64) }
    }

    /// What `maxConnections` would have refused now, were it not in Observe.
    #[must_use]
    pub fn would_be_too_many_connections(&self) -> Option<Rejected> {
        let limit = self.connections.filter(|limit| limit.mode == Mode::Observe)?;
        let (open, max) = (self.dependency.sockets().open(), limit.config.max as usize);
        (open >= max).then(|| self.too_many_connections(open, max))
    }

    /// The route for a request: the first named one that matches, else the rest. 0 is the rest.
    #[must_use]
    pub fn route_for(&self, request: &impl plimsoll_policy::Request) -> usize {
        self.routes.iter().position(|route| route.matcher.matches(request)).map_or(0, |index| index + 1)
    }

    /// The name of the route with this number in the dependency's protection; `None` for the rest.
    #[must_use]
    pub fn route_name(&self, id: RouteId) -> Option<&str> {
        self.routes.iter().find(|route| route.id == id)?.name.as_deref()
    }

    /// The route that [`Self::route_for`] numbered.
    #[must_use]
    pub fn route(&self, number: usize) -> &Route {
        number.checked_sub(1).map_or(&self.rest, |index| &self.routes[index])
    }
}
