//! What the proxy's admin address answers, as far as this crate reads it.
//!
//! Lenient on purpose: an older or newer proxy may leave a field out or add one, and the rest is still worth showing.
//! States, modes and reasons stay the words the proxy used.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// `GET /status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The proxy's version.
    pub version: String,
    /// The workload it stands beside.
    pub workload: Option<String>,
    /// That workload's namespace.
    pub namespace: Option<String>,
    /// The policy in force, as its source numbers it.
    pub generation: String,
    /// `Starting`, `Serving` or `Draining`.
    pub state: String,
    /// Seconds since start.
    pub uptime_seconds: f64,
    /// Where the policy comes from.
    pub policy: PolicySource,
    /// Worker threads.
    pub workers: u64,
    /// Open connections.
    pub connections: Connections,
    /// Every dependency with a policy.
    pub dependencies: Vec<Dependency>,
    /// Destinations without one.
    pub unlisted: Unlisted,
    /// The side that serves others.
    pub inbound: Inbound,
    /// Addresses that `hosts` of several policies stand for.
    pub contested_addresses: u64,
}

/// Where the policy in force comes from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PolicySource {
    /// `File`, `Admin` or `None`.
    pub source: String,
    /// Files, when it is files.
    pub paths: Vec<String>,
    /// RFC 3339.
    pub applied_at: Option<String>,
    /// Why the last attempt to change it was refused.
    pub last_error: Option<String>,
    /// What `lint` would warn of.
    #[serde(deserialize_with = "texts")]
    pub warnings: Vec<String>,
}

/// Open connections by direction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// From callers of the workload.
    pub inbound: u64,
    /// From the workload.
    pub outbound: u64,
}

/// One dependency, live.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Dependency {
    /// `namespace/name`.
    pub policy: String,
    /// `Enforce`, `Observe` or `Disabled`.
    pub mode: String,
    /// The local port that leads to it.
    pub listen: Option<String>,
    /// What callers speak.
    pub protocol: String,
    /// What is spoken to the endpoints.
    pub upstream_protocol: String,
    /// TLS that the proxy speaks to them.
    pub tls: Option<Tls>,
    /// Calls since start.
    pub requests_total: u64,
    /// Calls a second, lately.
    pub requests_per_second: f64,
    /// Attempts in flight.
    pub in_flight: u64,
    /// Of the last 30 s; absent below 50 samples.
    pub latency_ms: Option<Latency>,
    /// Refused, by reason.
    pub rejections: BTreeMap<String, u64>,
    /// What `Observe` would have refused, by reason.
    pub would_reject: BTreeMap<String, u64>,
    /// Calls that their caller gave up before the breaker could see them.
    pub cancelled_early: Option<CancelledEarly>,
    /// Its breakers.
    pub circuits: Vec<Circuit>,
    /// Its bulkheads.
    pub bulkheads: Vec<Bulkhead>,
    /// What retries may still cost.
    pub budget: Option<Budget>,
    /// Connections to it.
    pub connections: Sockets,
    /// How fast they may be opened, where that is limited.
    pub connection_rate: Option<ConnectionRate>,
    /// Turns on connections that are not opened.
    pub turns: Turns,
    /// How an endpoint is chosen.
    pub load_balancing: String,
    /// Where its endpoints come from.
    pub endpoint_source: EndpointSource,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Fields of its policy that cannot act on this traffic.
    #[serde(deserialize_with = "texts")]
    pub ineffective: Vec<String>,
    /// What to do about them.
    pub way_out: Option<String>,
}

/// TLS that the proxy speaks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Tls {
    /// The name that the server has to prove; without one, the host that was called.
    pub server_name: Option<String>,
    /// The proxy has a certificate of its own to show.
    pub client_certificate: bool,
}

/// Connections to a dependency.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Sockets {
    /// Open ones, over all workers.
    pub open: u64,
    /// `bulkhead.maxConnections`.
    pub limit: Option<u64>,
    /// `Enforce` or `Observe`, where there is a limit.
    pub mode: Option<String>,
}

/// `bulkhead.connectionRate`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConnectionRate {
    /// `Enforce` or `Observe`.
    pub mode: String,
    /// Connections asked for in the last interval.
    pub asked: u64,
    /// Connections allowed in an interval.
    pub limit: u64,
    /// The interval.
    pub interval_ms: f64,
}

/// Turns of the last 30 s: bytes of the application, then silence of the server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Turns {
    /// Those that were answered in time or became slow.
    pub ended: u64,
    /// Those that became slow.
    pub slow: u64,
    /// Whether the breaker counts the slow ones.
    pub counted: bool,
}

/// Where endpoints come from.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointSource {
    /// `Caller`, `Static` or `Dns`.
    pub kind: String,
    /// The name that is resolved.
    pub name: Option<String>,
    /// `A/AAAA` or `SRV`.
    pub records: Option<String>,
    /// How often it is asked for, where policy says so.
    pub refresh_ms: Option<f64>,
    /// For how long the last answer holds.
    pub ttl_ms: Option<f64>,
    /// Why the last look-up brought nothing.
    pub last_error: Option<String>,
}

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// Calls that ended, by their caller's doing, before the slow threshold.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CancelledEarly {
    /// Of all calls, 0 to 1.
    pub share: f64,
    /// When callers typically gave up.
    pub typical_ms: f64,
}

/// One breaker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Circuit {
    /// `Dependency`, `Route` or `Endpoint`.
    pub scope: String,
    /// The route, for that scope.
    pub route: Option<String>,
    /// The endpoint, for that scope.
    pub endpoint: Option<String>,
    /// `Enforce`, `Observe` or `Disabled`.
    pub mode: String,
    /// `Closed`, `Open`, `HalfOpen`, `ForcedOpen` or `ForcedClosed`.
    pub state: String,
    /// Percent; absent below `minimum`.
    pub failure_rate: Option<f64>,
    /// Percent; absent below `minimum`.
    pub slow_call_rate: Option<f64>,
    /// Calls in the window.
    pub calls: u64,
    /// Calls it needs to judge.
    pub minimum: u64,
    /// Percent at which failures open it.
    pub failure_threshold: Option<f64>,
    /// Percent at which slow calls open it.
    pub slow_threshold: Option<f64>,
    /// From when on a call is slow.
    pub slow_duration_ms: Option<f64>,
    /// When an open one asks again.
    pub next_probe_in_ms: Option<f64>,
    /// How long a forced state still holds.
    pub forced_for_ms: Option<f64>,
}

/// One bulkhead.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Bulkhead {
    /// The route it is for, or the whole dependency.
    pub route: Option<String>,
    /// Permits.
    pub limit: u64,
    /// Permits out.
    pub in_flight: u64,
    /// Calls that wait for one.
    pub queued: u64,
}

/// What retries may still cost.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// 0 to 1.
    pub remaining_ratio: f64,
    /// Calls in the window.
    pub calls: u64,
    /// Retries in the window.
    pub retries: u64,
}

/// One address of a dependency.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// `ip:port`.
    pub address: String,
    /// `Healthy` or why it gets no calls.
    pub state: String,
    /// Places in the order of turns: more than one by the weights of SRV records.
    pub places: u64,
    /// What least request weighs it by.
    pub load: Option<Load>,
}

/// What least request weighs an endpoint by.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Attempts in flight there.
    pub in_flight: u64,
    /// Attempts that ended in the last 10 s.
    pub ended: u64,
    /// Those of them that failed, timed out or were pushed back.
    pub bad: u64,
}

/// Destinations without a policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Unlisted {
    /// Calls since start.
    pub requests_total: u64,
    /// The busiest.
    pub top: Vec<Destination>,
}

/// One destination without a policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Destination {
    /// `host:port`.
    pub destination: String,
    /// Calls since start.
    pub requests: u64,
}

/// The side that serves others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Inbound {
    /// `namespace/name`.
    pub policy: Option<String>,
    /// Calls since start.
    pub requests_total: u64,
    /// Calls in progress.
    pub in_flight: u64,
    /// Refused, by reason.
    pub rejections: BTreeMap<String, u64>,
}

/// One entry of `GET /decisions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Decision {
    /// What `explain ID` takes.
    pub id: String,
    /// RFC 3339.
    pub time: String,
    /// To find the call elsewhere.
    pub trace_id: Option<String>,
    /// `inbound` or `outbound`.
    pub direction: String,
    /// `namespace/name` of the policy that decided.
    pub policy: Option<String>,
    /// The route within it.
    pub route: Option<String>,
    /// The dependency, or `unlisted`.
    pub dependency: Option<String>,
    /// One of contract.md's reasons.
    pub reason: String,
    /// What is behind it, where the reason does not say it all.
    pub cause: Option<String>,
    /// The HTTP status that was answered.
    pub status: Option<u16>,
    /// The gRPC status, where it was a gRPC call that was answered.
    pub grpc_code: Option<String>,
    /// The block of the policy that decided.
    pub block: Option<String>,
    /// What was seen.
    pub observed: Option<u64>,
    /// What was allowed.
    pub limit: Option<u64>,
    /// `Enforce`, or `Observe`: it would have been refused.
    pub mode: String,
    /// Policy generation of the call.
    pub generation: String,
    /// The request's method.
    pub method: Option<String>,
    /// The host that the caller addressed.
    pub host: Option<String>,
    /// Attempts made before.
    pub attempts: u64,
    /// From the call's arrival to the refusal.
    pub elapsed_ms: Option<f64>,
    /// What `Retry-After` said.
    pub retry_after_ms: Option<f64>,
    /// The endpoint, where one was involved.
    pub endpoint: Option<String>,
    /// What else there is to say, such as what was wrong with a request.
    pub detail: Option<String>,
}

/// One error or warning about a policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Diagnostic {
    /// The name it was pushed under.
    pub file: Option<String>,
    /// Counted from 1.
    pub line: u64,
    /// Counted from 1.
    pub column: u64,
    /// Path of the field.
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
    /// All of it as `plimsoll lint` prints it.
    pub text: String,
}

/// The answer to `PUT /policy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PushAnswer {
    /// Taken or refused.
    pub accepted: bool,
    /// Now in force.
    pub generation: String,
    /// Why it was refused.
    pub errors: Vec<Diagnostic>,
    /// What is worth a look although it was taken.
    pub warnings: Vec<Diagnostic>,
    /// Breakers that are open at this moment.
    #[serde(deserialize_with = "texts")]
    pub open_circuits: Vec<String>,
}

/// Strings, whatever they were: objects are shown by their `text` or `message`, else as JSON.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let values = Vec::<serde_json::Value>::deserialize(deserializer)?;
    let text = |value: serde_json::Value| match &value {
        serde_json::Value::String(text) => text.clone(),
        _ => ["text", "message"]
            .iter()
            .find_map(|key| value[key].as_str().map(str::to_owned))
            .unwrap_or_else(|| value.to_string()),
    };
    Ok(values.into_iter().map(text).collect())
}
