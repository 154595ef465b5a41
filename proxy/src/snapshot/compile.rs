//! From checked policy to a snapshot. Off the data path; changes nothing that is in force.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use plimsoll_policy::{DependencyPolicy, HostName, PolicySet, UpstreamProtocol, WorkloadPolicy};
use plimsoll_resilience::protection::ProtectionConfig;
use plimsoll_resilience::rejection::RouteId;
use plimsoll_resilience::rules::{DeadlineRules, Rules, Timeouts};
use plimsoll_resilience::time::Timestamp;
use plimsoll_resilience::{Mode, Random};

use super::{Endpoints, Resolved, Route, Service, ServiceIndex, Snapshot, Upstreams};
use crate::dependency::{Dependency, DependencyId, EventSink, UNLISTED};
use crate::pick::Endpoint;
use crate::report::{Direction, Report, Series};
use crate::tls::{Origination, Settings, TlsConfigError};

/// `timeouts.idle` of tunnels where nothing else is written.
const TUNNEL_IDLE: Duration = Duration::from_secs(3600);

/// The state of every dependency that policy or a call in flight knows, by name.
#[derive(Debug)]
pub struct Registry {
    report: Report,
    events: Arc<dyn EventSink>,
    random: Random,
    next: u32,
    /// Weak: what no snapshot holds any more has no permit out.
    known: HashMap<String, Weak<Dependency>>,
    resolved: HashMap<(String, Option<u16>, Option<Duration>), Weak<Resolved>>,
}

impl Registry {
    /// A registry that knows nothing.
    #[must_use]
    pub fn new(report: Report, events: Arc<dyn EventSink>, seed: u64) -> Self {
        Self { report, events, random: Random::new(seed), next: 0, known: HashMap::new(), resolved: HashMap::new() }
    }

    /// The state of `name`: what it was, or a new one.
    fn dependency(&mut self, name: &str, config: &ProtectionConfig, now: Timestamp) -> Arc<Dependency> {
        if let Some(known) = self.known.get(name).and_then(Weak::upgrade) {
            return known;
        }
        self.known.retain(|_, dependency| dependency.strong_count() > 0);
        let id = DependencyId(self.next);
        self.next += 1;
        let dependency =
            Dependency::new(id, name.into(), config, self.random.next_u64(), Arc::clone(&self.events), now);
        self.known.insert(name.to_owned(), Arc::downgrade(&dependency));
        dependency
    }

    fn resolved(&mut self, name: &str, port: Option<u16>, refresh: Option<Duration>) -> Arc<Resolved> {
        let key = (name.to_owned(), port, refresh);
        if let Some(known) = self.resolved.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        self.resolved.retain(|_, resolved| resolved.strong_count() > 0);
        let resolved = Resolved::new(name.to_owned(), port, refresh);
        self.resolved.insert(key, Arc::downgrade(&resolved));
        resolved
    }
}

/// A snapshot that is not in force yet, and what changes for its dependencies when it is.
#[derive(Debug)]
pub struct Compiled {
    /// The snapshot. The addresses of `listen` are yet to be filled in.
    pub snapshot: Snapshot,
    /// Where each `listen` leads.
    pub listens: Vec<(Listen, ServiceIndex)>,
    /// Names in `hosts` whose addresses belong to them, in the order of their policies.
    pub follows: Vec<Follow>,
    configs: Vec<(Arc<Dependency>, ProtectionConfig, Option<usize>)>,
}

/// A `target.listen`.
#[derive(Clone, Debug)]
pub struct Listen {
    /// As written.
    pub wanted: SocketAddr,
    /// Whose.
    pub policy: String,
}

impl Listen {
    fn of(policy: &DependencyPolicy) -> Option<Self> {
        policy.target.listen.map(|wanted| Self { wanted, policy: policy.id.to_string() })
    }
}

/// An entry of `target.hosts` with a name and a port.
#[derive(Clone, Debug)]
pub struct Follow {
    /// The name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whose.
    pub policy: Arc<str>,
}

impl Compiled {
    /// Hands the new limits to the machines. Called as the snapshot comes into force.
    pub fn put_limits_in_force(&self, now: Timestamp) {
        for (dependency, config, connections) in &self.configs {
            dependency.with(|shared| shared.protection.reconfigure(config, now));
            dependency.sockets().set_limit(*connections);
        }
    }
}

/// Every `listen` of `set` for the proxy of one workload.
#[must_use]
pub fn listens(set: &PolicySet, namespace: Option<&str>, workload: Option<&str>) -> Vec<Listen> {
    set.dependencies.iter().filter(|policy| policy.is_for(namespace, workload)).filter_map(Listen::of).collect()
}

/// TLS of the policies for one workload, by policy.
pub type Originations = HashMap<String, Arc<Origination>>;

/// Reads what the policies of one workload need for TLS.
///
/// # Errors
/// Which policy cannot have it, and why.
pub fn originations(
    set: &PolicySet,
    namespace: Option<&str>,
    workload: Option<&str>,
    secrets_dir: Option<&Path>,
) -> Result<Originations, (String, TlsConfigError)> {
    let own = set.dependencies.iter().filter(|policy| policy.is_for(namespace, workload));
    let with_tls = own.filter_map(|policy| Some((policy.id.to_string(), policy.target.tls.as_ref()?)));
    with_tls
        .map(|(name, tls)| match Origination::new(&Settings::from(tls), secrets_dir) {
            Ok(origination) => Ok((name, origination)),
            Err(error) => Err((name, error)),
        })
        .collect()
}

/// Compiles `set` for the proxy of one workload. What may refuse a generation comes before: here it gets its series,
/// and a generation that is refused must not take the room of another one's.
pub fn compile(
    set: &PolicySet,
    namespace: Option<&str>,
    workload: Option<&str>,
    originations: Originations,
    registry: &mut Registry,
    generation: &str,
    now: Timestamp,
) -> Compiled {
    let mut builder = Builder::new(registry, originations, generation, now);
    let own = set.workloads.iter().find(|policy| policy.is_for(namespace, workload));
    builder.inbound(own);
    for policy in set.dependencies.iter().filter(|policy| policy.is_for(namespace, workload)) {
        builder.dependency(policy);
    }
    builder.finish()
}

struct Builder<'r> {
    registry: &'r mut Registry,
    originations: Originations,
    now: Timestamp,
    compiled: Compiled,
}

impl<'r> Builder<'r> {
    fn new(registry: &'r mut Registry, originations: Originations, generation: &str, now: Timestamp) -> Self {
        let config = ProtectionConfig::default();
        let dependency = registry.dependency(UNLISTED, &config, now);
        let stats = registry.report.series(Direction::Outbound, UNLISTED, None);
        let rules = Arc::new(without_policy());
        let rest = rest_route(rules, TUNNEL_IDLE, stats);
        let unlisted = Service::plain(Arc::clone(&dependency), rest);
        let mut snapshot = Snapshot::new(generation);
        snapshot.services.push(Arc::new(unlisted));
        Self {
            registry,
            originations,
            now,
            compiled: Compiled {
                snapshot,
                listens: Vec::new(),
                follows: Vec::new(),
                configs: vec![(dependency, config, None)],
            },
        }
    }

    fn inbound(&mut self, policy: Option<&WorkloadPolicy>) {
        let config = policy.map(|policy| policy.protection.clone()).unwrap_or_default();
        let dependency = self.registry.dependency("inbound", &config, self.now);
        let name = policy.map(|policy| policy.id.to_string());
        let stats = self.registry.report.series(Direction::Inbound, name.as_deref().unwrap_or("inbound"), None);
        let rules = policy.map_or_else(|| Arc::new(without_policy()), |policy| Arc::clone(&policy.rules));
        if let Some(policy) = policy {
            self.compiled.snapshot.drain = policy.drain;
        }
        let rest = rest_route(rules, policy.map_or(TUNNEL_IDLE, |policy| policy.tunnel_idle), stats);
        self.compiled.snapshot.services.push(Arc::new(Service {
            policy: name.map(Into::into),
            connections: policy.and_then(|policy| policy.connections),
            ports: policy.map(|policy| policy.ports.clone()).unwrap_or_default(),
            ..Service::plain(Arc::clone(&dependency), rest)
        }));
        // `maxConnections` of a workload is about callers' connections, which are counted where they are accepted.
        self.compiled.configs.push((dependency, config, None));
    }

    fn dependency(&mut self, policy: &DependencyPolicy) {
        let name = policy.id.to_string();
        let index = ServiceIndex::new(self.compiled.snapshot.services.len());
        let dependency = self.registry.dependency(&name, &policy.protection, self.now);
        let endpoints = match &policy.target.endpoints {
            plimsoll_policy::Endpoints::AsAddressed => Endpoints::AsAddressed,
            plimsoll_policy::Endpoints::Static(addresses) => {
                Endpoints::Fixed(addresses.iter().copied().map(Endpoint::new).collect())
            }
            plimsoll_policy::Endpoints::Dns { name, port, refresh } => {
                Endpoints::Resolved(self.registry.resolved(name, *port, *refresh))
            }
        };
        let connections = policy.connections.filter(|limit| limit.mode.enforces()).map(|limit| limit.config);
        self.names(policy, index);
        let stats = |route: Option<&str>| self.registry.report.series(Direction::Outbound, &name, route);
        let id_of = |route: &str| dependency.with(|shared| shared.protection.route_id(route));
        let routes = policy.routes.iter().map(|route| Route {
            id: id_of(&route.name),
            name: Some(route.name.as_str().into()),
            matcher: route.matcher.clone(),
            rules: Arc::clone(&route.rules),
            tunnel_rules: for_tunnels(&route.rules, route.tunnel_idle),
            stats: stats(Some(&route.name)),
        });
        let rest = rest_route(Arc::clone(&policy.rules), policy.tunnel_idle, stats(None));
        let service = Service {
            policy: Some(name.as_str().into()),
            endpoints,
            protocol: policy.target.protocol,
            upstreams: match policy.target.upstream_protocol {
                UpstreamProtocol::Same => Upstreams::AsCaller,
                UpstreamProtocol::Http1 => Upstreams::Http1,
                UpstreamProtocol::Http2 => Upstreams::Http2,
            },
            load_balancing: policy.load_balancing,
            security: self.originations.remove(&name),
            connections: policy.connections,
            about_calls: policy.about_calls.clone(),
            breaker_mode: policy.protection.breaker.as_ref().map_or(Mode::Disabled, |breaker| breaker.mode),
            mode: policy.mode,
            hosts: policy.target.hosts.iter().map(ToString::to_string).collect(),
            routes: routes.collect(),
            ..Service::plain(Arc::clone(&dependency), rest)
        };
        self.compiled.snapshot.services.push(Arc::new(service));
        self.compiled.configs.push((
            dependency,
            policy.protection.clone(),
            connections.map(|limit| limit.max as usize),
        ));
    }

    fn names(&mut self, policy: &DependencyPolicy, index: ServiceIndex) {
        let snapshot = &mut self.compiled.snapshot;
        for host in &policy.target.hosts {
            match &host.name {
                HostName::Exact(name) => {
                    snapshot.hosts.insert_exact(name, host.port, index);
                    let policy = policy.id.to_string().into();
                    let follow = host.port.map(|port| Follow { host: name.clone(), port, policy });
                    self.compiled.follows.extend(follow);
                }
                HostName::Wildcard(parent) => snapshot.hosts.insert_below(parent, host.port, index),
            }
        }
        snapshot.addresses.extend(policy.target.addresses.iter().map(|pattern| (*pattern, index)));
        self.compiled.listens.extend(Listen::of(policy).map(|listen| (listen, index)));
    }

    fn finish(self) -> Compiled {
        let mut compiled = self.compiled;
        compiled.snapshot.named = compiled.snapshot.services.len();
        compiled
            .snapshot
            .addresses
            .sort_by_key(|(pattern, _)| std::cmp::Reverse((pattern.cidr.prefix(), pattern.port.is_some())));
        compiled
    }
}

impl Snapshot {
    /// Says what is listened on, once it is known.
    pub fn listen_on(&mut self, address: SocketAddr, service: ServiceIndex) {
        self.listens.push((address, service));
    }
}

/// The route of calls that no named one is for.
fn rest_route(rules: Arc<Rules>, tunnel_idle: Duration, stats: Series) -> Route {
    Route {
        id: RouteId::REST,
        name: None,
        matcher: plimsoll_policy::Matcher::default(),
        tunnel_rules: for_tunnels(&rules, tunnel_idle),
        rules,
        stats,
    }
}

/// `rules` with the idle time of tunnels.
fn for_tunnels(rules: &Arc<Rules>, idle: Duration) -> Arc<Rules> {
    let mut rules = Rules::clone(rules);
    rules.timeouts.idle = idle;
    Arc::new(rules)
}

/// With no policy a proxy forwards everything and refuses nothing: no clock but the ones without which a dead
/// connection would be held for ever, and deadlines are the business of those who set them.
fn without_policy() -> Rules {
    Rules {
        timeouts: Timeouts { request: None, ..Timeouts::default() },
        deadline: DeadlineRules { mode: Mode::Disabled, ..DeadlineRules::default() },
        ..Rules::default()
    }
}
