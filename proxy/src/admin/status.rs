//! `/status`: everything that is going on, as JSON.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use plimsoll_resilience::budget::BudgetView;
use plimsoll_resilience::protection::{BreakerScope, BreakerView, BulkheadView, ConnectionRateView};
use plimsoll_resilience::window::Counts;
use plimsoll_resilience::{ProtectionView, Timestamp};
use serde::{Serialize, Serializer};

use super::control::{DependencyFacts, EndpointFacts, EndpointSource, Facts};
use crate::report::{Counted, Direction, Percentiles, Reading, timestamp};
use crate::snapshot::LookUp;

/// Unlisted destinations that are named.
const TOP: usize = 20;
/// Fewer calls than this say nothing about how many are given up.
const MIN_FOR_SHARE: u64 = 20;

#[derive(Serialize)]
pub(super) struct Status<'a> {
    version: &'static str,
    workload: Option<&'a str>,
    namespace: Option<&'a str>,
    generation: &'a str,
    state: &'static str,
    uptime_seconds: f64,
    policy: Policy<'a>,
    workers: usize,
    connections: Connections,
    dependencies: Vec<Dependency<'a>>,
    unlisted: Unlisted,
    inbound: Inbound<'a>,
    contested_addresses: usize,
}

#[derive(Serialize)]
struct Policy<'a> {
    source: &'static str,
    paths: &'a [String],
    applied_at: Option<String>,
    last_error: Option<&'a str>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Connections {
    inbound: u64,
    outbound: u64,
}

#[derive(Serialize)]
struct Dependency<'a> {
    policy: &'a str,
    mode: &'static str,
    listen: Option<String>,
    hosts: &'a [String],
    protocol: &'static str,
    upstream_protocol: &'static str,
    tls: Option<Tls<'a>>,
    #[serde(flatten)]
    counted: Calls,
    cancelled_early: Option<CancelledEarly>,
    circuits: Vec<Circuit<'a>>,
    bulkheads: Vec<Bulkhead<'a>>,
    budget: Budget,
    connections: Sockets,
    connection_rate: Option<ConnectionRate>,
    turns: Turns,
    load_balancing: &'static str,
    endpoint_source: Source<'a>,
    endpoints: Vec<Endpoint<'a>>,
    ineffective: &'a [&'static str],
    way_out: Option<&'static str>,
}

#[derive(Serialize)]
struct Tls<'a> {
    mode: &'static str,
    server_name: Option<&'a str>,
    client_certificate: bool,
}

/// Connections to the dependency, and `bulkhead.maxConnections`.
#[derive(Serialize)]
struct Sockets {
    open: usize,
    limit: Option<u32>,
    mode: Option<&'static str>,
}

/// `bulkhead.connectionRate`.
#[derive(Serialize)]
struct ConnectionRate {
    mode: &'static str,
    /// In the last interval, the refused ones too.
    asked: u32,
    limit: u32,
    #[serde(serialize_with = "millis")]
    interval_ms: Option<Duration>,
    left: u32,
}

/// Turns of the last 30 s on connections that are not opened: bytes of the application, then silence.
#[derive(Serialize)]
struct Turns {
    ended: u32,
    slow: u32,
    counted: bool,
}

/// Where the endpoints come from.
#[derive(Serialize)]
#[serde(tag = "kind")]
enum Source<'a> {
    Caller,
    Static,
    Dns {
        name: &'a str,
        records: &'static str,
        port: Option<u16>,
        #[serde(serialize_with = "millis")]
        refresh_ms: Option<Duration>,
        #[serde(serialize_with = "millis")]
        ttl_ms: Option<Duration>,
        last_error: Option<&'a str>,
    },
}

/// What is counted the same for every dependency and for the inbound side.
#[derive(Serialize)]
struct Calls {
    requests_total: u64,
    requests_per_second: f64,
    in_flight: u64,
    latency_ms: Option<Latency>,
    rejections: BTreeMap<&'static str, u64>,
    would_reject: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    samples: u64,
}

#[derive(Serialize)]
struct CancelledEarly {
    share: f64,
    typical_ms: f64,
}

/// One breaker, as `/status` and the answer to a force order show it.
#[derive(Serialize)]
pub(super) struct Circuit<'a> {
    scope: &'static str,
    route: Option<&'a str>,
    endpoint: Option<&'a str>,
    mode: &'static str,
    state: &'static str,
    failure_rate: Option<f64>,
    slow_call_rate: Option<f64>,
    calls: u32,
    minimum: u32,
    failure_threshold: u32,
    slow_threshold: u32,
    #[serde(serialize_with = "millis")]
    slow_duration_ms: Option<Duration>,
    #[serde(serialize_with = "millis")]
    next_probe_in_ms: Option<Duration>,
    #[serde(serialize_with = "millis")]
    forced_for_ms: Option<Duration>,
}

#[derive(Serialize)]
struct Bulkhead<'a> {
    route: Option<&'a str>,
    mode: &'static str,
    limit: u32,
    in_flight: u32,
    queued: u32,
    max_queued: u32,
}

#[derive(Serialize)]
struct Budget {
    remaining_ratio: f64,
    calls: u64,
    retries: u64,
}

#[derive(Serialize)]
struct Endpoint<'a> {
    address: &'a str,
    state: &'static str,
    places: usize,
    load: Option<Load>,
}

/// What `LeastRequest` weighs an endpoint by.
#[derive(Serialize)]
struct Load {
    in_flight: u32,
    /// In the last 10 s.
    ended: u32,
    bad: u32,
}

#[derive(Serialize)]
struct Unlisted {
    requests_total: u64,
    top: Vec<Destination>,
}

#[derive(Serialize)]
struct Destination {
    destination: String,
    requests: u64,
}

#[derive(Serialize)]
struct Inbound<'a> {
    policy: Option<&'a str>,
    #[serde(flatten)]
    counted: Calls,
}

impl<'a> Status<'a> {
    pub fn new(facts: &'a Facts, reading: &Reading<'_>) -> Self {
        let (inbound, outbound) = reading.connections();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            workload: facts.workload.as_deref(),
            namespace: facts.namespace.as_deref(),
            generation: &facts.generation,
            state: facts.state,
            uptime_seconds: rounded(facts.uptime.as_secs_f64(), 1e3),
            policy: Policy {
                source: facts.policy.source,
                paths: &facts.policy.paths,
                applied_at: facts.policy.applied_at.map(|at: SystemTime| timestamp(at)),
                last_error: facts.policy.last_error.as_deref(),
                warnings: &facts.policy.warnings,
            },
            workers: facts.workers,
            connections: Connections { inbound, outbound },
            dependencies: facts.dependencies.iter().map(|one| dependency(one, facts.now, reading)).collect(),
            unlisted: Unlisted {
                requests_total: reading.counted(Direction::Outbound, Some("unlisted")).requests_total,
                top: reading
                    .unlisted(TOP)
                    .map(|(destination, requests)| Destination { destination, requests })
                    .collect(),
            },
            inbound: Inbound {
                policy: facts.inbound_policy.as_deref(),
                counted: calls(reading.counted(Direction::Inbound, None)),
            },
            contested_addresses: facts.contested_addresses,
        }
    }
}

fn dependency<'a>(facts: &'a DependencyFacts, now: Timestamp, reading: &Reading<'_>) -> Dependency<'a> {
    let protection = &facts.protection;
    Dependency {
        policy: &facts.name,
        mode: facts.mode.as_str(),
        listen: facts.listen.map(|address| address.to_string()),
        hosts: &facts.hosts,
        protocol: facts.protocol,
        upstream_protocol: facts.upstream_protocol,
        tls: facts.tls.as_ref().map(|tls| Tls {
            mode: "Originate",
            server_name: tls.server_name.as_deref(),
            client_certificate: tls.client_certificate,
        }),
        counted: calls(reading.counted(Direction::Outbound, Some(&facts.name))),
        cancelled_early: cancelled_early(&protection.breakers),
        circuits: protection.breakers.iter().map(|view| circuit(facts, view, now)).collect(),
        bulkheads: protection.bulkheads.iter().map(bulkhead).collect(),
        budget: Budget {
            remaining_ratio: rounded(budget_remaining(&protection.budget), 1e3),
            calls: protection.budget.calls,
            retries: protection.budget.retries,
        },
        connections: Sockets {
            open: facts.open_sockets,
            limit: facts.max_connections.map(|limit| limit.config),
            mode: facts.max_connections.map(|limit| limit.mode.as_str()),
        },
        connection_rate: protection.connection_rate.as_ref().map(connection_rate),
        turns: Turns { ended: protection.turns.turns, slow: protection.turns.slow, counted: protection.turns.counted },
        load_balancing: facts.load_balancing,
        endpoint_source: source(&facts.source),
        endpoints: facts.endpoints.iter().map(|one| endpoint(one, protection)).collect(),
        ineffective: facts.ineffective.as_ref().map_or(&[], |ineffective| &ineffective.fields),
        way_out: facts.ineffective.as_ref().map(|ineffective| way_out(ineffective.declared)),
    }
}

fn connection_rate(view: &ConnectionRateView) -> ConnectionRate {
    ConnectionRate {
        mode: view.mode.as_str(),
        asked: view.asked,
        limit: view.amount,
        interval_ms: Some(view.interval),
        left: view.left,
    }
}

fn source(source: &EndpointSource) -> Source<'_> {
    match source {
        EndpointSource::Caller => Source::Caller,
        EndpointSource::Static => Source::Static,
        EndpointSource::Dns { name, port, refresh, last } => Source::Dns {
            name,
            records: if port.is_some() { "A/AAAA" } else { "SRV" },
            port: *port,
            refresh_ms: *refresh,
            ttl_ms: match **last {
                LookUp::Answered(holds) => Some(holds),
                LookUp::Pending | LookUp::Failed(_) => None,
            },
            last_error: match &**last {
                LookUp::Failed(why) => Some(why),
                LookUp::Pending | LookUp::Answered(_) => None,
            },
        },
    }
}

fn endpoint<'a>(facts: &'a EndpointFacts, protection: &ProtectionView) -> Endpoint<'a> {
    let load = protection.loads.iter().find(|load| load.endpoint == facts.key);
    Endpoint {
        address: &facts.address,
        state: facts.state,
        places: facts.places,
        load: load.map(|load| Load { in_flight: load.in_flight, ended: load.ended, bad: load.bad }),
    }
}

/// What a person can do about blocks that cannot act.
fn way_out(declared: bool) -> &'static str {
    if declared {
        "`protocol: TCP` says that there are no calls; with HTTP1, HTTP2 or GRPC in its place they act"
    } else {
        "where the application speaks https:// itself, have it say http:// (to this host, or to `listen`) and the policy `tls: {mode: Originate}`; what is not HTTP has no calls"
    }
}

fn calls(counted: Counted) -> Calls {
    Calls {
        requests_total: counted.requests_total,
        requests_per_second: rounded(counted.requests_per_second, 1e2),
        in_flight: counted.in_flight,
        latency_ms: counted.latency.map(latency),
        rejections: counted.rejections,
        would_reject: counted.would_reject,
    }
}

fn latency(percentiles: Percentiles) -> Latency {
    let ms = |value: Duration| rounded(value.as_secs_f64() * 1e3, 1e3);
    Latency {
        p50: ms(percentiles.p50),
        p90: ms(percentiles.p90),
        p99: ms(percentiles.p99),
        samples: percentiles.samples,
    }
}

/// The breaker as people read it.
pub(super) fn circuit<'a>(facts: &'a DependencyFacts, view: &'a BreakerView, now: Timestamp) -> Circuit<'a> {
    let endpoint = match view.scope {
        BreakerScope::Endpoint(key) => facts.endpoints.iter().find(|e| e.key == key).map(|e| e.address.as_str()),
        _ => None,
    };
    let Counts { calls, failed, slow } = view.counts;
    // Below the minimum a rate is chance, and the breaker does not look at it either.
    let rate = |part: u32| (calls > 0 && calls >= view.minimum_calls).then(|| percent(part, calls));
    Circuit {
        scope: match view.scope {
            BreakerScope::Dependency => "Dependency",
            BreakerScope::Route(_) => "Route",
            BreakerScope::Endpoint(_) => "Endpoint",
        },
        route: view.route.as_deref(),
        endpoint,
        mode: view.mode.as_str(),
        state: view.state.as_str(),
        failure_rate: rate(failed),
        slow_call_rate: rate(slow),
        calls,
        minimum: view.minimum_calls,
        failure_threshold: view.failure_rate_threshold,
        slow_threshold: view.slow_call_rate_threshold,
        slow_duration_ms: facts.slow_call_threshold,
        next_probe_in_ms: view.retry_at.map(|at| at.saturating_since(now)),
        forced_for_ms: view.forced_until.map(|at| at.saturating_since(now)),
    }
}

fn bulkhead(view: &BulkheadView) -> Bulkhead<'_> {
    Bulkhead {
        route: view.route.as_deref(),
        mode: view.mode.as_str(),
        limit: view.limit,
        in_flight: view.in_flight,
        queued: view.queued,
        max_queued: view.max_queued,
    }
}

/// Over all breakers of a dependency: the share of calls that their callers gave up before the breaker could count
/// them, and when (the mean, weighted).
fn cancelled_early(breakers: &[BreakerView]) -> Option<CancelledEarly> {
    let given_up: u64 = breakers.iter().map(|view| u64::from(view.given_up)).sum();
    let counted: u64 = breakers.iter().map(|view| u64::from(view.counted)).sum();
    if given_up == 0 || given_up + counted < MIN_FOR_SHARE {
        return None;
    }
    let total_seconds: f64 =
        breakers.iter().filter_map(|view| Some(view.given_up_after?.as_secs_f64() * view.given_up as f64)).sum();
    Some(CancelledEarly {
        share: rounded(given_up as f64 / (given_up + counted) as f64, 1e3),
        typical_ms: rounded(total_seconds / given_up as f64 * 1e3, 1.0),
    })
}

/// What is left of the budget, as a share of 1; 0 where no retry is allowed at all.
pub(super) fn budget_remaining(budget: &BudgetView) -> f64 {
    if budget.allowed == 0 { 0.0 } else { budget.allowed.saturating_sub(budget.retries) as f64 / budget.allowed as f64 }
}

fn percent(part: u32, whole: u32) -> f64 {
    rounded(f64::from(part) * 100.0 / f64::from(whole), 10.0)
}

/// Figures for people: what is beyond the last digit kept is noise.
fn rounded(value: f64, per_unit: f64) -> f64 {
    (value * per_unit).round() / per_unit
}

fn millis<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX)),
        None => serializer.serialize_none(),
    }
}
