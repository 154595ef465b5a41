//! What the admin address needs from the rest of the proxy, and nothing more: the rest can be a fake in tests.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_resilience::breaker::Forced;
use plimsoll_resilience::{EndpointKey, Mode, Moded, ProtectionView, Timestamp};

use crate::report::Published;
use crate::snapshot::LookUp;

/// The proxy as the admin address sees it. Called on the admin thread only; nothing here may block for longer than a
/// lock is held, except where a future is returned.
pub trait Control: 'static {
    /// Whether callers may be sent here: started, and not draining. Never about a dependency.
    fn ready(&self) -> bool;

    /// Everything `/status` and `/metrics` show that is not counted by workers.
    fn facts(&self) -> Facts;

    /// The policy in force as YAML, documents separated by `---`.
    fn policy(&self) -> String;

    /// The compiled snapshot, for `/config-dump`.
    fn config_dump(&self) -> serde_json::Value;

    /// Puts policy in force or refuses it, whole. `name` is what messages call the text (`X-Plimsoll-File`, or `-`).
    fn put_policy(&self, name: String, text: String) -> impl Future<Output = PutAnswer>;

    /// Forces a breaker, or takes that back.
    ///
    /// # Errors
    /// See [`ForceRefused`]; nothing changed.
    fn force(&self, order: &ForceOrder) -> Result<(), ForceRefused>;

    /// Begins the drain, as SIGTERM does.
    fn drain(&self);

    /// Once a second: percentiles of the last 30 s, for what decides by them.
    fn published(&self, published: &Published);
}

/// What the proxy knows about itself at one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The moment, on the clock of the views below.
    pub now: Timestamp,
    /// Time since the process began.
    pub uptime: Duration,
    /// `--workload`.
    pub workload: Option<String>,
    /// `--namespace`.
    pub namespace: Option<String>,
    /// The generation in force, as its source numbers it (`local-3`).
    pub generation: String,
    /// The number in it.
    pub generation_number: u64,
    /// `Starting`, `Serving` or `Draining`.
    pub state: &'static str,
    /// Where policy came from.
    pub policy: PolicyFacts,
    /// Worker threads.
    pub workers: usize,
    /// Every dependency that a policy names, in the order of the policies.
    pub dependencies: Vec<DependencyFacts>,
    /// The workload policy in force.
    pub inbound_policy: Option<String>,
    /// Addresses that `hosts` of several policies stand for: connections that name nobody are a guess there.
    pub contested_addresses: usize,
}

/// Where the policy in force came from.
#[derive(Clone, Debug, Default)]
pub struct PolicyFacts {
    /// `File`, `Admin` or `None`.
    pub source: &'static str,
    /// Files and folders it was read from.
    pub paths: Vec<String>,
    /// When it was put in force.
    pub applied_at: Option<SystemTime>,
    /// Why the last attempt to change it was refused; gone with the next that succeeds.
    pub last_error: Option<String>,
    /// What is allowed but looks wrong.
    pub warnings: Vec<String>,
}

/// One dependency.
#[derive(Clone, Debug)]
pub struct DependencyFacts {
    /// `namespace/name` of its policy.
    pub name: String,
    /// The mode of the policy.
    pub mode: Mode,
    /// Its local address.
    pub listen: Option<SocketAddr>,
    /// The names callers address.
    pub hosts: Vec<String>,
    /// What callers speak, as policy writes it.
    pub protocol: &'static str,
    /// What is spoken to the endpoints, as policy writes it.
    pub upstream_protocol: &'static str,
    /// TLS that we speak to the endpoints.
    pub tls: Option<TlsFacts>,
    /// How an endpoint is chosen, as policy writes it.
    pub load_balancing: &'static str,
    /// Sockets to it that are open, over all workers.
    pub open_sockets: usize,
    /// `bulkhead.maxConnections`.
    pub max_connections: Option<Moded<u32>>,
    /// Its machines as plain numbers.
    pub protection: ProtectionView,
    /// From when on a call counts as slow.
    pub slow_call_threshold: Option<Duration>,
    /// Where the endpoints come from.
    pub source: EndpointSource,
    /// Its endpoints, as far as they are known; none twice.
    pub endpoints: Vec<EndpointFacts>,
    /// What its policy says about calls, where there is traffic that it cannot act on: connections that are not opened.
    pub ineffective: Option<Ineffective>,
}

/// TLS to the endpoints of a dependency. Nothing of it is secret.
#[derive(Clone, Debug)]
pub struct TlsFacts {
    /// `tls.serverName`.
    pub server_name: Option<String>,
    /// Whether we have a certificate to show.
    pub client_certificate: bool,
}

/// Where endpoints come from.
#[derive(Clone, Debug)]
pub enum EndpointSource {
    /// Where the caller was going.
    Caller,
    /// Policy lists them.
    Static,
    /// The records of a name.
    Dns {
        /// The name.
        name: String,
        /// The port at each of its addresses; without one, its SRV records say.
        port: Option<u16>,
        /// How often it is asked for, where policy says so.
        refresh: Option<Duration>,
        /// What the last look-up came to.
        last: Arc<LookUp>,
    },
}

/// What cannot act, and where.
#[derive(Clone, Debug)]
pub struct Ineffective {
    /// The fields of policy.
    pub fields: Vec<&'static str>,
    /// Policy says that nothing else than such connections is to be expected.
    pub declared: bool,
}

/// One endpoint of a dependency.
#[derive(Clone, Debug)]
pub struct EndpointFacts {
    /// What its breaker is kept under.
    pub key: EndpointKey,
    /// `ip:port`.
    pub address: String,
    /// `Healthy`, or why it gets no calls.
    pub state: &'static str,
    /// Places in the order in which endpoints take turns: more than one by the weights of SRV records.
    pub places: usize,
}

/// What became of a `PUT /policy`.
#[derive(Clone, Debug)]
pub enum PutAnswer {
    /// In force.
    Accepted {
        /// Its generation.
        generation: String,
        /// Diagnostics, as the policy crate serializes them.
        warnings: Vec<serde_json::Value>,
        /// Breakers that are open at this moment (`shop/fraud-api`).
        open_circuits: Vec<String>,
    },
    /// Nothing changed.
    Refused {
        /// The generation that stays in force.
        generation: String,
        /// Diagnostics, as the policy crate serializes them.
        errors: Vec<serde_json::Value>,
    },
}

/// An operator's word on a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForceOrder {
    /// `namespace/name`, or the name alone where only one namespace has it.
    pub dependency: String,
    /// The route, for a breaker of scope `Route`.
    pub route: Option<String>,
    /// What it is to be.
    pub state: Forced,
    /// For how long; always there unless the state is `Auto`.
    pub ttl: Option<Duration>,
}

/// Why a breaker was not forced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForceRefused {
    /// Nothing has this name.
    #[error("no dependency is called {0}; `plimsoll status` lists them")]
    NoSuchDependency(String),
    /// The name alone fits several.
    #[error("several namespaces have a dependency of this name: {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// The dependency has no such route.
    #[error("{0} has no route {1}")]
    NoSuchRoute(String, String),
    /// There is no breaker where one was named.
    #[error("{0}")]
    NoBreaker(String),
}
