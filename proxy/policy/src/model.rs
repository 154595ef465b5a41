//! Checked policy: what a snapshot is built from.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_resilience::{Mode, Moded, ProtectionConfig, Rules};

use crate::diagnostic::Diagnostic;
use crate::matcher::Matcher;
use crate::value::{AddressPattern, Algorithm, HostPattern, Protocol, UpstreamProtocol};

/// Everything that a set of sources says.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    /// Services that are called, in the order of the sources.
    pub dependencies: Vec<DependencyPolicy>,
    /// Services that are served, in the order of the sources.
    pub workloads: Vec<WorkloadPolicy>,
    /// What was taken, but probably does not say what was meant.
    pub warnings: Vec<Diagnostic>,
    /// How many more warnings there were than are worth printing.
    pub omitted_warnings: usize,
}

/// What a policy is called; printed as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    /// Its namespace; `default` where none was written.
    pub namespace: String,
    /// Its name, unique for its kind and namespace.
    pub name: String,
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a policy was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The name of the source.
    pub file: String,
    /// Line of the policy's name, from 1.
    pub line: usize,
}

/// A service that is called (outbound).
#[derive(Clone, Debug)]
pub struct DependencyPolicy {
    /// Its name.
    pub id: PolicyId,
    /// Where it was written.
    pub origin: Origin,
    /// The mode of the policy; each block carries the one that holds for it.
    pub mode: Mode,
    /// Whose sidecars; empty = all in the namespace.
    pub workloads: Vec<String>,
    /// Which traffic it is for, and where that goes.
    pub target: Target,
    /// How an endpoint is chosen.
    pub load_balancing: Algorithm,
    /// The rules of calls that no route is for (`RouteId(0)`).
    pub rules: Arc<Rules>,
    /// `timeouts.idle` for TCP, upgrades and CONNECT, whose built-in value is longer.
    pub tunnel_idle: Duration,
    /// Narrower rules; the first that matches wins.
    pub routes: Vec<Route>,
    /// What its calls share.
    pub protection: ProtectionConfig,
    /// A limit on connections to it.
    pub connections: Option<Moded<ConnectionLimit>>,
    /// What is written, is on, and can only act on calls, such as `bulkhead.maxConcurrentCalls`: without effect on
    /// connections whose bytes are passed on unread.
    pub about_calls: Vec<&'static str>,
    pub(crate) yaml: String,
}

/// A service that is served (inbound).
#[derive(Clone, Debug)]
pub struct WorkloadPolicy {
    /// Its name.
    pub id: PolicyId,
    /// Where it was written.
    pub origin: Origin,
    /// The mode of the policy; each block carries the one that holds for it.
    pub mode: Mode,
    /// Whose sidecar.
    pub workload: String,
    /// What is spoken at which port; other ports are `Auto`.
    pub ports: Vec<PortPolicy>,
    /// Timeouts and deadline. Without a `request` timeout of its own a call may take as long as it likes.
    pub rules: Arc<Rules>,
    /// `timeouts.idle` for TCP, upgrades and CONNECT, whose built-in value is longer.
    pub tunnel_idle: Duration,
    /// What its calls share: the bulkhead; no breaker and no retries.
    pub protection: ProtectionConfig,
    /// A limit on connections from callers.
    pub connections: Option<Moded<ConnectionLimit>>,
    /// How the proxy leaves.
    pub drain: Drain,
    pub(crate) yaml: String,
}

/// Which traffic a dependency is for, and where that goes. At least one of `hosts`, `addresses` and `listen` is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What callers address.
    pub hosts: Vec<HostPattern>,
    /// Destinations without a name.
    pub addresses: Vec<AddressPattern>,
    /// A loopback address of its own; port 0 leaves the port to the system. Never without endpoints.
    pub listen: Option<SocketAddr>,
    /// What callers speak.
    pub protocol: Protocol,
    /// What is spoken to the endpoints. `Same` where `protocol` is TCP.
    pub upstream_protocol: UpstreamProtocol,
    /// Where the calls go.
    pub endpoints: Endpoints,
    /// The proxy speaks TLS to them; `None`: bytes go out as they are.
    pub tls: Option<Tls>,
}

/// TLS to the endpoints. File names are relative and stay below the folder for secrets (no `..`); a policy of
/// [`Provenance::CommandLine`](crate::Provenance::CommandLine) may have absolute ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tls {
    /// The name or address that is asked for and must be in the certificate, in lower case; `None`: the host that was
    /// addressed.
    pub server_name: Option<String>,
    /// Certificates that are trusted; `None`: those that the system trusts.
    pub ca_file: Option<String>,
    /// Our own certificate. Never without `key_file`.
    pub cert_file: Option<String>,
    /// Its key. Never without `cert_file`.
    pub key_file: Option<String>,
}

/// Where calls go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// Where the caller was going.
    AsAddressed,
    /// These; at least one, no two the same.
    Static(Vec<SocketAddr>),
    /// The records of a name.
    Dns {
        /// The name, in lower case and without a final dot.
        name: String,
        /// The port at each address of its A and AAAA records; `None`: its SRV records say.
        port: Option<u16>,
        /// How often the name is asked for again; `None`: as the TTLs of the records say.
        refresh: Option<Duration>,
    },
}

/// Narrower rules.
#[derive(Clone, Debug)]
pub struct Route {
    /// Unique in its policy; also the name of its [`RouteProtection`](plimsoll_resilience::RouteProtection).
    pub name: String,
    /// Which calls.
    pub matcher: Matcher,
    /// The dependency's rules with what the route replaces.
    pub rules: Arc<Rules>,
    /// As [`DependencyPolicy::tunnel_idle`].
    pub tunnel_idle: Duration,
}

/// How many connections, over all workers, and how long to wait for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// At most so many.
    pub max: u32,
    /// Zero = refused at once.
    pub max_wait: Duration,
}

/// A port of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPolicy {
    /// The port.
    pub port: u16,
    /// What callers speak there.
    pub protocol: Protocol,
}

/// How the proxy leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Already not ready, still serving.
    pub delay: Duration,
    /// How long calls in flight may take to end.
    pub grace: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { delay: Duration::ZERO, grace: Duration::from_secs(25) }
    }
}

impl DependencyPolicy {
    /// Whether it is for the sidecar of this workload. A proxy that was told no workload (or no namespace) takes
    /// every policy in that respect: on a laptop a file says all there is to say.
    #[must_use]
    pub fn is_for(&self, namespace: Option<&str>, workload: Option<&str>) -> bool {
        let own = |workload: &str| self.workloads.is_empty() || self.workloads.iter().any(|name| name == workload);
        namespace.is_none_or(|namespace| namespace == self.id.namespace) && workload.is_none_or(own)
    }

    /// The document, with the defaults of the blocks that are written.
    #[must_use]
    pub fn to_yaml(&self) -> &str {
        &self.yaml
    }
}

impl WorkloadPolicy {
    /// As [`DependencyPolicy::is_for`].
    #[must_use]
    pub fn is_for(&self, namespace: Option<&str>, workload: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| namespace == self.id.namespace)
            && workload.is_none_or(|workload| workload == self.workload)
    }

    /// The document, with the defaults of the blocks that are written.
    #[must_use]
    pub fn to_yaml(&self) -> &str {
        &self.yaml
    }
}

impl PolicySet {
    /// All documents, with the defaults of the blocks that are written. Parsing it gives the same policy again.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let dependencies = self.dependencies.iter().map(DependencyPolicy::to_yaml);
        let documents: Vec<_> = dependencies.chain(self.workloads.iter().map(WorkloadPolicy::to_yaml)).collect();
        documents.join("---\n")
    }
}
