//! Policy from its source into force, and everything an operator asks of a running proxy.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use plimsoll_policy::{Diagnostic, Diagnostics, Source};
use plimsoll_resilience::Timestamp;
use plimsoll_resilience::breaker::State;
use plimsoll_resilience::protection::{BreakerScope, ForceError, Protection};
use tokio_util::sync::CancellationToken;

use super::drain::Phase;
use super::facts::{self, endpoints_of};
use super::listeners::{self, Bound};
use super::process::{Accepting, Process};
use super::worker::Message;
use crate::admin::{Control, DependencyFacts, Facts, ForceOrder, ForceRefused, PolicyFacts, PutAnswer};
use crate::capture::Purpose;
use crate::pick::Endpoint;
use crate::report::{PolicyChange, Published};
use crate::snapshot::{
    Compiled, Endpoints, Follow, Listen, Registry, Service, Snapshot, compile, listens, originations,
};
use crate::tls::TlsConfigError;

/// How often a `listen` that is in use is tried again, and how long between.
const BIND_TRIES: u32 = 30;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// The one place that changes what is in force: one change at a time.
#[derive(Debug)]
pub struct Controller {
    process: Arc<Process>,
    state: Mutex<InForce>,
}

#[derive(Debug)]
struct InForce {
    registry: Registry,
    generation: u64,
    listening: Vec<Listening>,
    policy: PolicyFacts,
    yaml: String,
    /// Ports of the admin and health addresses.
    admin_ports: [u16; 2],
}

/// A listening address and the token that closes it.
#[derive(Debug)]
struct Listening {
    /// As written.
    wanted: SocketAddr,
    /// As bound.
    bound: SocketAddr,
    /// Whose it is; `None` for our own.
    policy: Option<String>,
    closing: CancellationToken,
}

/// What is worth saying of a generation that is in force.
#[derive(Debug)]
struct Taken {
    /// What is probably not meant so.
    warnings: Vec<Diagnostic>,
    /// Which of its documents are for others.
    left_out: Vec<String>,
}

/// Why a generation was refused. Nothing of it is in force.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The text.
    #[error("{0}")]
    Policy(Diagnostics),
    /// A file.
    #[error("{0}")]
    Load(#[from] plimsoll_policy::LoadError),
    /// Two policies for one destination.
    #[error(transparent)]
    Ambiguous(#[from] plimsoll_policy::Ambiguous),
    /// The files or the name of `target.tls`.
    #[error("{policy}: spec.target.tls: {error}")]
    Tls {
        /// Whose.
        policy: String,
        /// What is wrong.
        error: TlsConfigError,
    },
    /// The proxy is on its way out and begins nothing new.
    #[error("the proxy is draining: no policy is taken any more")]
    Draining,
    /// An address of `target.listen`.
    #[error("{policy}: cannot listen on {address}: {error}; another process may hold the port")]
    Listen {
        /// Whose.
        policy: String,
        /// Which.
        address: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
}

impl Controller {
    /// A controller for a process that has no policy yet.
    #[must_use]
    pub fn new(process: Arc<Process>, registry: Registry, admin_ports: [u16; 2]) -> Arc<Self> {
        let policy = PolicyFacts { source: "None", ..PolicyFacts::default() };
        let state =
            InForce { registry, generation: 0, listening: Vec::new(), policy, yaml: String::new(), admin_ports };
        Arc::new(Self { process, state: Mutex::new(state) })
    }

    /// Starts to listen on an address of our own. Returns it as bound.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn listen(&self, wanted: SocketAddr, purpose: Purpose) -> io::Result<SocketAddr> {
        let bound = listeners::bind(wanted, self.process.workers.len())?;
        let address = bound.address;
        let state = &mut *self.lock();
        self.own_ports(state, std::iter::once(address.port()));
        let listening = self.start(bound, wanted, None, purpose);
        state.listening.push(listening);
        Ok(address)
    }

    /// Reads the files again and puts what they say in force.
    ///
    /// # Errors
    /// [`Refused`]; what was in force stays.
    pub fn load_files(&self) -> Result<(), Refused> {
        let paths = &self.process.options.policy;
        let result =
            plimsoll_policy::load(paths).map_err(Refused::from).and_then(|sources| self.apply(&sources, "File"));
        if result.is_ok() {
            self.lock().policy.paths = paths.iter().map(|path| path.display().to_string()).collect();
        }
        result.map(drop)
    }

    /// Puts `sources` in force, all or nothing.
    fn apply(&self, sources: &[Source], source: &'static str) -> Result<Taken, Refused> {
        let result = self.try_apply(sources, source);
        let now = SystemTime::now();
        let mut state = self.lock();
        let generation = generation_name(state.generation);
        let change = match &result {
            Ok(taken) => {
                PolicyChange::Applied { generation: &generation, warnings: taken.warnings.len() + taken.left_out.len() }
            }
            Err(error) => {
                state.policy.last_error = Some(error.to_string());
                PolicyChange::Refused {
                    generation: &generation,
                    error: state.policy.last_error.as_deref().unwrap_or(""),
                }
            }
        };
        self.process.report.events().policy(now, change);
        result
    }

    fn try_apply(&self, sources: &[Source], source: &'static str) -> Result<Taken, Refused> {
        if self.process.drain.phase() == Phase::Closing {
            return Err(Refused::Draining);
        }
        let set = plimsoll_policy::parse(sources).map_err(Refused::Policy)?;
        let options = &self.process.options;
        let (namespace, workload) = (options.namespace.as_deref(), options.workload.as_deref());
        set.check_for(namespace, workload)?;
        let originations = originations(&set, namespace, workload, options.secrets_dir.as_deref())
            .map_err(|(policy, error)| Refused::Tls { policy, error })?;
        let now = self.process.clock.now();
        let state = &mut *self.lock();
        let number = state.generation + 1;
        let bound = self.bind_new(&listens(&set, namespace, workload), &state.listening)?;
        let compiled =
            compile(&set, namespace, workload, originations, &mut state.registry, &generation_name(number), now);
        self.put_in_force(compiled, bound, state, now);
        state.generation = number;
        state.yaml = set.to_yaml();
        let left_out = set.left_out(namespace, workload);
        for others in &left_out {
            tracing::warn!("policy: {others}");
        }
        state.policy = PolicyFacts {
            source,
            paths: Vec::new(),
            applied_at: Some(SystemTime::now()),
            last_error: None,
            warnings: set.warnings.iter().map(ToString::to_string).chain(left_out.iter().cloned()).collect(),
        };
        Ok(Taken { warnings: set.warnings, left_out })
    }

    /// Binds every address that is not listened on yet; one failure refuses the generation.
    fn bind_new(&self, listens: &[Listen], listening: &[Listening]) -> Result<Vec<(Listen, Bound)>, Refused> {
        let is_new = |listen: &&Listen| !listening.iter().any(|known| known.serves(listen));
        let bind = |listen: &Listen| {
            let refused = |error| Refused::Listen { policy: listen.policy.clone(), address: listen.wanted, error };
            Ok((listen.clone(), self.bind(listen.wanted).map_err(refused)?))
        };
        listens.iter().filter(is_new).map(bind).collect()
    }

    /// A `listen` that was taken away a moment ago and is put back may still be closing on some worker.
    fn bind(&self, address: SocketAddr) -> io::Result<Bound> {
        let mut result = listeners::bind(address, self.process.workers.len());
        for _ in 0..BIND_TRIES {
            match &result {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => std::thread::sleep(BIND_PAUSE),
                _ => break,
            }
            result = listeners::bind(address, self.process.workers.len());
        }
        result
    }

    /// The swap: from here on nothing can fail.
    fn put_in_force(&self, mut compiled: Compiled, bound: Vec<(Listen, Bound)>, state: &mut InForce, now: Timestamp) {
        let stay = |known: &Listening| {
            known.policy.is_none() || compiled.listens.iter().any(|(listen, _)| known.serves(listen))
        };
        let (staying, leaving): (Vec<_>, Vec<_>) = std::mem::take(&mut state.listening).into_iter().partition(stay);
        for (listen, service) in &compiled.listens {
            let known = staying.iter().find(|known| known.serves(listen)).map(|known| known.bound);
            let fresh = bound
                .iter()
                .find(|(new, _)| new.wanted == listen.wanted && new.policy == listen.policy)
                .map(|(_, bound)| bound.address);
            if let Some(address) = known.or(fresh) {
                compiled.snapshot.listen_on(address, *service);
            }
        }
        // Connections on an address that is no longer listened on live on; their calls go where they went.
        compiled.snapshot.inherit_listens(&self.process.snapshot.load());
        state.listening = staying;
        for known in &mut state.listening {
            if let Some((listen, _)) = compiled.listens.iter().find(|(listen, _)| known.serves(listen)) {
                known.policy = Some(listen.policy.clone());
            }
        }
        self.own_ports(state, bound.iter().map(|(_, bound)| bound.address.port()));
        compiled.put_limits_in_force(now);
        let callers = compiled.snapshot.inbound().connections.filter(|limit| limit.mode.enforces());
        self.process.callers.set_limit(callers.map(|limit| limit.config.max as usize));
        self.watch_names(&compiled.snapshot);
        let follow = |follow: &Follow| self.process.resolver.follow(&follow.host, follow.port, &follow.policy);
        compiled.snapshot.hold(compiled.follows.iter().map(follow).collect());
        self.process.snapshot.store(Arc::new(compiled.snapshot));
        for (listen, bound) in bound {
            let purpose = Purpose::Listen(bound.address);
            let listening = self.start(bound, listen.wanted, Some(listen.policy), purpose);
            state.listening.push(listening);
        }
        leaving.iter().for_each(|listening| listening.closing.cancel());
        self.process.tell_all(|| Message::Swapped);
    }

    /// Nothing is ever sent to a port of ours. Known before a socket accepts on it.
    fn own_ports(&self, state: &InForce, fresh: impl Iterator<Item = u16>) {
        let listening = state.listening.iter().map(|known| known.bound.port());
        let ports = listening.chain(fresh).chain(state.admin_ports);
        self.process.own.set_ports(ports.collect());
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        // Whatever a panic interrupted, the snapshot in force is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch_names(&self, snapshot: &Snapshot) {
        let before = self.process.snapshot.load();
        for service in snapshot.services() {
            let Endpoints::Resolved(resolved) = &service.endpoints else { continue };
            let known = before
                .services()
                .any(|old| matches!(&old.endpoints, Endpoints::Resolved(old) if Arc::ptr_eq(old, resolved)));
            if !known {
                self.process.resolver.watch(resolved);
            }
        }
    }

    fn start(&self, bound: Bound, wanted: SocketAddr, policy: Option<String>, purpose: Purpose) -> Listening {
        let closing = CancellationToken::new();
        for (worker, socket) in self.process.workers.iter().zip(bound.sockets) {
            // A worker that has ended listens no more.
            let accepting = Accepting::new(&self.process);
            let _ = worker.send(Message::Listen { socket, purpose, closing: closing.clone(), accepting });
        }
        Listening { wanted, bound: bound.address, policy, closing }
    }

    /// Closes every listener once its accept queue is empty.
    pub fn close_listeners(&self) {
        self.lock().listening.iter().for_each(|listening| listening.closing.cancel());
    }

    /// What the proxy listens on for dependencies: policy and address.
    #[must_use]
    pub fn listens(&self) -> Vec<(String, SocketAddr)> {
        let state = self.lock();
        state.listening.iter().filter_map(|known| Some((known.policy.clone()?, known.bound))).collect()
    }

    fn dependency_facts(&self, service: &Service, now: Timestamp) -> Option<DependencyFacts> {
        let state = self.lock();
        let listening = state.listening.iter().find(|known| known.policy.as_deref() == service.policy.as_deref());
        facts::of(service, listening.map(|known| known.bound), now)
    }
}

/// The dependency called `namespace/name`, or `name` where that is enough to tell.
fn find<'s>(snapshot: &'s Snapshot, name: &str) -> Result<&'s Arc<Service>, ForceRefused> {
    let full = |service: &Service| service.policy.clone().unwrap_or_default();
    let is_meant = |service: &&Arc<Service>| {
        let policy = full(service);
        *policy == *name || policy.split('/').nth(1) == Some(name)
    };
    let found: Vec<_> = snapshot.dependencies().filter(is_meant).collect();
    match found[..] {
        [] => Err(ForceRefused::NoSuchDependency(name.to_owned())),
        [one] => Ok(one),
        _ => match found.iter().find(|service| *full(service) == *name) {
            Some(exact) => Ok(exact),
            None => Err(ForceRefused::Ambiguous(found.iter().map(|service| full(service).to_string()).collect())),
        },
    }
}

fn no_breaker(dependency: &str, error: ForceError) -> ForceRefused {
    ForceRefused::NoBreaker(match error {
        ForceError::NoBreaker => format!("{dependency} has no circuitBreaker in force"),
        ForceError::NoSuchRoute => format!("{dependency} has no such route"),
        ForceError::NotByRoute => {
            format!("the circuitBreaker of {dependency} has not scope: Route; leave the route out")
        }
    })
}

/// A service as it is in force, with every rule that holds for a call of it.
fn dump(service: &Service) -> serde_json::Value {
    let endpoints: Vec<_> = endpoints_of(service).iter().map(|endpoint| endpoint.address.to_string()).collect();
    let routes = std::iter::once(&service.rest).chain(&service.routes).map(|route| {
        serde_json::json!({
            "name": route.name.as_deref(),
            "match": format!("{:?}", route.matcher),
            "rules": format!("{:?}", route.rules),
        })
    });
    serde_json::json!({
        "dependency": &*service.dependency.name,
        "policy": service.policy.as_deref(),
        "mode": service.mode.as_str(),
        "hosts": service.hosts,
        "endpoints": endpoints,
        "max_connections": service.connections.map(|limit| limit.config.max),
        "routes": routes.collect::<Vec<_>>(),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Breakers of endpoints that policy or DNS no longer names. Without a list of its own a dependency has any endpoint.
fn forget_gone(endpoints: &[Endpoint], protection: &mut Protection, now: Timestamp) {
    if endpoints.is_empty() {
        return;
    }
    for breaker in protection.view(now).breakers {
        if let BreakerScope::Endpoint(key) = breaker.scope
            && !endpoints.iter().any(|endpoint| endpoint.key == key)
        {
            protection.forget_endpoint(key);
        }
    }
}

impl Listening {
    /// Whether this is the socket of `listen`: the same address, or any address where the same policy asks for any.
    fn serves(&self, listen: &Listen) -> bool {
        self.wanted == listen.wanted
            && self.policy.is_some()
            && (listen.wanted.port() != 0 || self.policy.as_deref() == Some(&listen.policy))
    }
}

fn generation_name(number: u64) -> String {
    format!("local-{number}")
}

impl Control for Controller {
    fn ready(&self) -> bool {
        self.process.drain.phase() == Phase::Serving
    }

    fn facts(&self) -> Facts {
        let now = self.process.clock.now();
        let snapshot = self.process.snapshot.load();
        let policy = self.lock().policy.clone();
        let generation_number = self.lock().generation;
        Facts {
            now,
            uptime: now.saturating_since(Timestamp::ZERO),
            workload: self.process.options.workload.clone(),
            namespace: self.process.options.namespace.clone(),
            generation: snapshot.generation.to_string(),
            generation_number,
            state: self.process.drain.phase().as_str(),
            policy,
            workers: self.process.workers.len(),
            dependencies: snapshot.services().filter_map(|service| self.dependency_facts(service, now)).collect(),
            inbound_policy: snapshot.inbound().policy.as_deref().map(str::to_owned),
            contested_addresses: self.process.resolver.book().contested(),
        }
    }

    fn policy(&self) -> String {
        self.lock().yaml.clone()
    }

    fn config_dump(&self) -> serde_json::Value {
        let snapshot = self.process.snapshot.load_full();
        serde_json::json!({
            "generation": &*snapshot.generation,
            "drain": { "delay_ms": millis(snapshot.drain.delay), "grace_ms": millis(snapshot.drain.grace) },
            "listen": self.listens().into_iter().map(|(policy, address)| (policy, address.to_string())).collect::<BTreeMap<_, _>>(),
            "services": snapshot.services().map(|service| dump(service)).collect::<Vec<_>>(),
        })
    }

    async fn put_policy(&self, name: String, text: String) -> PutAnswer {
        let before = self.process.snapshot.load().generation.to_string();
        match self.apply(&[Source::new(name, text)], "Admin") {
            Ok(Taken { warnings, left_out }) => PutAnswer::Accepted {
                generation: self.process.snapshot.load().generation.to_string(),
                warnings: warnings.iter().map(diagnostic).chain(left_out.iter().map(|others| remark(others))).collect(),
                open_circuits: self.open_circuits(),
            },
            Err(Refused::Policy(diagnostics)) => {
                PutAnswer::Refused { generation: before, errors: diagnostics.errors().map(diagnostic).collect() }
            }
            Err(error) => PutAnswer::Refused {
                generation: before,
                errors: vec![serde_json::json!({ "message": error.to_string(), "text": error.to_string() })],
            },
        }
    }

    fn force(&self, order: &ForceOrder) -> Result<(), ForceRefused> {
        // Between the look-up of a name and the order no other policy comes into force.
        let _in_force = self.lock();
        let snapshot = self.process.snapshot.load();
        let service = find(&snapshot, &order.dependency)?;
        let route = match &order.route {
            None => None,
            Some(name) => {
                let number =
                    service.routes.iter().find(|route| route.name.as_deref() == Some(name)).map(|route| route.id);
                Some(number.ok_or_else(|| ForceRefused::NoSuchRoute(order.dependency.clone(), name.clone()))?)
            }
        };
        let now = self.process.clock.now();
        let until = order.ttl.map_or(Timestamp::MAX, |ttl| now + ttl);
        service
            .dependency
            .with(|shared| shared.protection.force(route, order.state, until, now))
            .map_err(|error| no_breaker(&order.dependency, error))
    }

    fn drain(&self) {
        self.process.drain.ask();
    }

    fn published(&self, published: &Published) {
        let snapshot = self.process.snapshot.load();
        for service in snapshot.services() {
            let median = published.of(service.rest.stats.id()).map(|percentiles| percentiles.p50);
            let endpoints = endpoints_of(service);
            service.dependency.with(|shared| {
                shared.protection.set_median_latency(median);
                forget_gone(&endpoints, &mut shared.protection, self.process.clock.now());
            });
        }
    }
}

impl Controller {
    fn open_circuits(&self) -> Vec<String> {
        let now = self.process.clock.now();
        let snapshot = self.process.snapshot.load();
        let is_open = |service: &&Arc<Service>| {
            service
                .dependency
                .with(|shared| shared.protection.view(now))
                .breakers
                .iter()
                .any(|breaker| matches!(breaker.state, State::Open | State::ForcedOpen))
        };
        snapshot
            .dependencies()
            .filter(is_open)
            .filter_map(|service| service.policy.as_deref().map(str::to_owned))
            .collect()
    }
}

fn remark(message: &str) -> serde_json::Value {
    serde_json::json!({ "message": message, "text": format!("warning: {message}") })
}

fn diagnostic(diagnostic: &Diagnostic) -> serde_json::Value {
    serde_json::to_value(diagnostic).unwrap_or_else(|_| serde_json::json!({ "message": diagnostic.to_string() }))
}
