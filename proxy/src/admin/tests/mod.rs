//! Both addresses over real loopback sockets, in front of a fake proxy.

mod access;
mod hostile;
mod metrics_format;
mod pages;

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_resilience::breaker::{Forced, State};
use plimsoll_resilience::budget::BudgetView;
use plimsoll_resilience::least_request::LoadView;
use plimsoll_resilience::protection::{BreakerScope, BreakerView, BulkheadView, ConnectionRateView, TurnsView};
use plimsoll_resilience::window::Counts;
use plimsoll_resilience::{EndpointKey, Mode, Moded, ProtectionView, Timestamp};

use super::*;
use crate::report::{Published, Report};
use crate::snapshot::LookUp;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A proxy that notes what it is told.
#[derive(Debug, Default)]
struct FakeControl {
    unready: AtomicBool,
    drained: AtomicBool,
    refuse: AtomicBool,
    put: Mutex<Vec<(String, String)>>,
    forced: Mutex<Vec<ForceOrder>>,
}

impl Control for FakeControl {
    fn ready(&self) -> bool {
        !self.unready.load(Ordering::SeqCst)
    }

    fn facts(&self) -> Facts {
        facts(self.forced.lock().unwrap().last().map(|order| order.state))
    }

    fn policy(&self) -> String {
        "kind: DependencyPolicy\n".to_owned()
    }

    fn config_dump(&self) -> serde_json::Value {
        serde_json::json!({"generation": "local-3"})
    }

    fn put_policy(&self, name: String, text: String) -> impl Future<Output = PutAnswer> {
        self.put.lock().unwrap().push((name, text));
        let refuse = self.refuse.load(Ordering::SeqCst);
        async move {
            if refuse {
                let errors = vec![serde_json::json!({"line": 3, "message": "unknown field"})];
                return PutAnswer::Refused { generation: "local-3".to_owned(), errors };
            }
            PutAnswer::Accepted {
                generation: "local-4".to_owned(),
                warnings: Vec::new(),
                open_circuits: vec!["shop/fraud-api".to_owned()],
            }
        }
    }

    fn force(&self, order: &ForceOrder) -> Result<(), ForceRefused> {
        match order.dependency.as_str() {
            "shop/fraud-api" | "fraud-api" => {
                self.forced.lock().unwrap().push(order.clone());
                Ok(())
            }
            "both" => Err(ForceRefused::Ambiguous(vec!["a/both".to_owned(), "b/both".to_owned()])),
            other => Err(ForceRefused::NoSuchDependency(other.to_owned())),
        }
    }

    fn drain(&self) {
        self.drained.store(true, Ordering::SeqCst);
    }

    fn published(&self, _: &Published) {}
}

/// One dependency with a breaker that never opened, one with a breaker for each endpoint.
fn facts(forced: Option<Forced>) -> Facts {
    let now = Timestamp::from_nanos(100_000_000_000);
    let forced = forced.filter(|forced| *forced != Forced::Auto);
    Facts {
        now,
        uptime: Duration::from_millis(100_500),
        workload: Some("payments".to_owned()),
        namespace: Some("shop".to_owned()),
        generation: "local-3".to_owned(),
        generation_number: 3,
        state: "Serving",
        policy: PolicyFacts {
            source: "File",
            paths: vec!["payments.yaml".to_owned()],
            applied_at: Some(std::time::SystemTime::UNIX_EPOCH),
            ..PolicyFacts::default()
        },
        workers: 2,
        dependencies: vec![fraud_api(now, forced), ledger(now)],
        inbound_policy: None,
        contested_addresses: 2,
    }
}

fn fraud_api(now: Timestamp, forced: Option<Forced>) -> DependencyFacts {
    DependencyFacts {
        listen: Some("127.0.0.1:9101".parse().unwrap()),
        hosts: vec!["fraud.internal".to_owned()],
        protection: ProtectionView {
            breakers: vec![BreakerView {
                state: match forced {
                    None => State::Closed,
                    Some(Forced::Open) => State::ForcedOpen,
                    Some(_) => State::ForcedClosed,
                },
                forced_until: forced.map(|_| now + Duration::from_secs(600)),
                given_up: 31,
                given_up_after: Some(Duration::from_millis(500)),
                counted: 19,
                ..breaker(BreakerScope::Dependency, Counts { calls: 19, failed: 2, slow: 3 })
            }],
            bulkheads: vec![BulkheadView {
                route: None,
                route_id: None,
                mode: Mode::Enforce,
                limit: 30,
                in_flight: 7,
                queued: 0,
                max_queued: 15,
            }],
            budget: BudgetView { calls: 100, retries: 5, allowed: 20 },
            ..ProtectionView::default()
        },
        slow_call_threshold: Some(Duration::from_millis(600)),
        endpoints: vec![endpoint(1, "127.0.0.1:9001", "Healthy", 1)],
        ..dependency("shop/fraud-api")
    }
}

/// A database behind a name, and breakers of its own for each endpoint.
fn ledger(now: Timestamp) -> DependencyFacts {
    let open = BreakerView {
        state: State::Open,
        retry_at: Some(now + Duration::from_millis(2_500)),
        ..breaker(BreakerScope::Endpoint(EndpointKey(2)), Counts { calls: 30, failed: 20, slow: 0 })
    };
    DependencyFacts {
        mode: Mode::Observe,
        protocol: "TCP",
        tls: Some(TlsFacts { server_name: Some("ledger.example.com".to_owned()), client_certificate: true }),
        load_balancing: "LeastRequest",
        open_sockets: 40,
        max_connections: Some(Moded::enforced(64)),
        protection: ProtectionView {
            breakers: vec![
                open,
                breaker(BreakerScope::Endpoint(EndpointKey(3)), Counts { calls: 30, failed: 1, slow: 3 }),
            ],
            connection_rate: Some(ConnectionRateView {
                mode: Mode::Enforce,
                asked: 120,
                amount: 100,
                interval: Duration::from_secs(1),
                left: 0,
            }),
            turns: TurnsView { turns: 200, slow: 12, counted: false },
            loads: vec![LoadView { endpoint: EndpointKey(3), in_flight: 4, ended: 30, bad: 2 }],
            ..ProtectionView::default()
        },
        source: EndpointSource::Dns {
            name: "_ledger._tcp.internal".to_owned(),
            port: None,
            refresh: None,
            last: Arc::new(LookUp::Answered(Duration::from_secs(30))),
        },
        endpoints: vec![endpoint(2, "10.0.0.2:80", "CircuitOpen", 3), endpoint(3, "10.0.0.3:80", "Healthy", 1)],
        ineffective: Some(Ineffective { fields: vec!["timeouts.request", "retry"], declared: true }),
        ..dependency("shop/ledger")
    }
}

/// One with nothing to tell.
fn dependency(name: &str) -> DependencyFacts {
    DependencyFacts {
        name: name.to_owned(),
        mode: Mode::Enforce,
        listen: None,
        hosts: Vec::new(),
        protocol: "Auto",
        upstream_protocol: "Same",
        tls: None,
        load_balancing: "RoundRobin",
        open_sockets: 0,
        max_connections: None,
        protection: ProtectionView::default(),
        slow_call_threshold: None,
        source: EndpointSource::Static,
        endpoints: Vec::new(),
        ineffective: None,
    }
}

fn endpoint(key: u64, address: &str, state: &'static str, places: usize) -> EndpointFacts {
    EndpointFacts { key: EndpointKey(key), address: address.to_owned(), state, places }
}

fn breaker(scope: BreakerScope, counts: Counts) -> BreakerView {
    BreakerView {
        scope,
        route: None,
        mode: Mode::Enforce,
        state: State::Closed,
        counts,
        minimum_calls: 20,
        failure_rate_threshold: 50,
        slow_call_rate_threshold: 60,
        retry_at: None,
        forced_until: None,
        given_up: 0,
        given_up_after: None,
        counted: 0,
    }
}

/// Both addresses, served.
struct Served {
    admin: SocketAddr,
    health: SocketAddr,
    control: Arc<FakeControl>,
    report: Report,
    _thread: AdminThread,
}

fn served() -> Served {
    let (report, collector) = Report::new(None).unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let listeners = Listeners::bind(loopback, loopback).unwrap();
    let (admin, health) = (listeners.admin_address().unwrap(), listeners.health_address().unwrap());
    let control = Arc::<FakeControl>::default();
    let thread = listeners.start(control.clone(), report.clone(), collector, Token::known(TOKEN)).unwrap();
    Served { admin, health, control, report, _thread: thread }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    // Nothing here takes long; without a limit a fault would hang the test instead of failing it.
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Everything that comes back for these bytes, until the connection ends.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// One request with `Host` and `Connection: close`; status and body of its answer.
fn ask(address: SocketAddr, line: &str, fields: &[&str], body: &str) -> (u16, String) {
    let mut request = format!("{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for field in fields {
        request.push_str(field);
        request.push_str("\r\n");
    }
    if !body.is_empty() {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    request.push_str(body);
    split(&exchange(address, request.as_bytes()))
}

fn split(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {answer:?}"));
    let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    (status, body.to_owned())
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}")
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}
