//! Room 10 for opaque connections: each is reported once, and its bytes as they move.

use plimsoll_resilience::event::Event;
use plimsoll_resilience::flight::{Flight, Summary};
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::{Block, Rejected, Rejection};

use super::connection::{Connection, End};
use super::wire::reset_on_close;
use crate::capture::{Origin, Purpose};
use crate::reject::{Numbers, Refusal};
use crate::report::{CallFacts, CallReport, Direction, StatsId};
use crate::runtime::worker::Worker;
use crate::serve::Downstream;

/// Where the access log has the method.
const METHOD: &[u8] = b"TCP";

impl Connection {
    /// Adds what has moved since the last time.
    pub(super) fn count(&mut self) {
        let now = (self.relay.sent().bytes_in(), self.relay.received().bytes_out());
        let moved = (now.0 - self.counted.0, now.1 - self.counted.1);
        if moved != (0, 0) {
            self.counted = now;
            self.worker.report.moved(self.route().stats.id(), moved.0, moved.1);
        }
    }

    /// Tells the report how the connection ended.
    pub(super) fn report(&mut self) {
        self.count();
        let host = host(self.name.as_deref(), &self.down.origin);
        let refusal = self.refusal();
        self.worker.report.call(&CallReport {
            stats: self.route().stats.id(),
            facts: self.facts(&host),
            status: 0,
            grpc: None,
            refusal: refusal.as_ref(),
            summary: self.flight.as_ref().map(Flight::summary).unwrap_or_default(),
            endpoint: self.endpoint,
            duration: self.now.saturating_since(self.arrived),
            deadline_remaining: None,
            bytes_received: self.relay.sent().bytes_in(),
            bytes_sent: self.relay.received().bytes_out(),
        });
    }

    /// What an observed block would have done to this connection.
    pub(super) fn would(&self, event: &Event) {
        if let Event::WouldReject(rejection) = event {
            let host = host(self.name.as_deref(), &self.down.origin);
            let refusal = self.refusal_of(rejection);
            self.worker.report.would_refuse(self.route().stats.id(), &refusal, &self.facts(&host));
        }
    }

    /// Counts what a limit of the shell would have done in Enforce.
    pub(super) fn would_refuse(&self, rejected: &Rejected) {
        let mut refusal = self.named(Refusal::new(rejected.reason));
        refusal.block = Some(Block::Bulkhead.as_str());
        refusal.cause = rejected.cause;
        refusal.numbers = Some(Numbers { observed: rejected.observed, limit: rejected.limit });
        let host = host(self.name.as_deref(), &self.down.origin);
        self.worker.report.would_refuse(self.route().stats.id(), &refusal, &self.facts(&host));
    }

    fn refusal(&self) -> Option<Refusal<'_>> {
        if let Some(rejection) = &self.rejected {
            return Some(self.refusal_of(rejection));
        }
        let reason = match self.end? {
            End::Whole => return None,
            End::CallerGone => Reason::ClientGone,
            End::Cut(reason) => reason,
        };
        Some(self.named(Refusal::new(reason)))
    }

    fn refusal_of(&self, rejection: &Rejection) -> Refusal<'_> {
        let mut refusal = self.named(Refusal::from_rejection(rejection, self.now));
        if matches!(rejection.reason, Reason::ConnectFailure | Reason::DnsFailure | Reason::TlsFailure) {
            refusal.detail = self.no_way.as_deref();
        }
        refusal
    }

    fn named<'r>(&'r self, mut refusal: Refusal<'r>) -> Refusal<'r> {
        refusal.policy = self.service().policy.as_deref();
        refusal.route = self.route().name.as_deref();
        refusal.generation = Some(&self.snapshot.generation);
        refusal
    }

    fn facts<'a>(&'a self, host: &'a str) -> CallFacts<'a> {
        CallFacts {
            time: self.worker.clock.wall(self.arrived),
            direction: self.down.origin.direction(),
            method: METHOD,
            host: host.as_bytes(),
            path: b"",
            trace_id: "",
            policy: self.service().policy.as_deref(),
            route: self.route().name.as_deref(),
        }
    }
}

/// Resets and reports a connection that belongs to no dependency.
pub(super) fn refuse(worker: &Worker, down: &Downstream, name: Option<&str>, refusal: &Refusal<'_>) {
    reset_on_close(&down.stream);
    let snapshot = worker.snapshot();
    let stats = match down.origin.direction() {
        Direction::Outbound => StatsId::UNLISTED,
        Direction::Inbound => snapshot.inbound().rest.stats.id(),
    };
    let host = host(name, &down.origin);
    worker.report.started(stats);
    worker.report.call(&CallReport {
        stats,
        facts: CallFacts {
            time: worker.clock.wall(worker.now()),
            direction: down.origin.direction(),
            method: METHOD,
            host: host.as_bytes(),
            path: b"",
            trace_id: "",
            policy: None,
            route: None,
        },
        status: 0,
        grpc: None,
        refusal: Some(refusal),
        summary: Summary::default(),
        endpoint: None,
        duration: std::time::Duration::ZERO,
        deadline_remaining: None,
        bytes_received: 0,
        bytes_sent: 0,
    });
}

/// The name or address that was meant.
fn host(name: Option<&str>, origin: &Origin) -> String {
    let address = match origin.purpose {
        Purpose::Listen(address) => Some(address),
        Purpose::Inbound | Purpose::Outbound => origin.destination,
    };
    match (name, address) {
        (Some(name), Some(address)) => format!("{name}:{}", address.port()),
        (Some(name), None) => name.to_owned(),
        (None, address) => address.map(|address| address.to_string()).unwrap_or_default(),
    }
}
