//! Room 10: what happened? Exactly once per call, whatever happened.

use plimsoll_h1::FieldKind;
use plimsoll_resilience::codes::GrpcCode;
use plimsoll_resilience::event::Event;
use plimsoll_resilience::reason::Reason;
use plimsoll_resilience::rejection::{Block, Cause, Rejected, Rejection};

use super::{End, Exchange};
use crate::reject::{Numbers, Refusal, row_of};
use crate::report::{CallFacts, CallReport};

impl Exchange {
    /// Tells the report that the call has begun.
    pub(super) fn started(&self) {
        self.worker.report.started(self.route().stats.id());
    }

    /// Tells the report how the call ended.
    pub(super) fn report(&mut self) {
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        let refusal = self.refusal();
        let report = CallReport {
            stats: self.route().stats.id(),
            facts: self.facts(),
            status: self.reply.status,
            grpc: self.grpc_code(),
            refusal: refusal.as_ref(),
            summary: self.flight.summary(),
            endpoint: self.endpoint,
            duration: self.now.saturating_since(self.arrived),
            deadline_remaining: self.caller_deadline.map(|deadline| deadline.saturating_since(self.arrived)),
            bytes_received: self.request.received(),
            bytes_sent: self.reply.body_bytes,
        };
        self.worker.report.call(&report);
    }

    /// The status that a gRPC caller was sent: the dependency's, or ours. One whose answer was cut got none.
    fn grpc_code(&self) -> Option<GrpcCode> {
        if !self.grpc || !self.reply.is_complete() {
            return None;
        }
        if let Some(rejection) = &self.rejected {
            return row_of(rejection.reason).grpc;
        }
        self.grpc_status().map(GrpcCode::of_field)
    }

    fn grpc_status(&self) -> Option<&[u8]> {
        match self.answer.trailers() {
            Some(section) => section.value(FieldKind::GrpcStatus),
            None => self.answer.head.fields.value(FieldKind::GrpcStatus, self.answer.bytes()),
        }
    }

    /// Ends a call whose connection or worker is going away.
    pub(super) fn abandon(&mut self) {
        if !self.landed {
            self.tear_tunnel();
            self.now = self.worker.now();
            let now = self.now;
            let waiter = self.flight.waiter();
            let dependency = &self.routed.find(&self.snapshot).0.dependency;
            dependency.with(|shared| {
                self.flight.handle_caller_gone(&mut shared.protection, now);
                if let Some(waiter) = waiter {
                    shared.stop_waiting(waiter);
                }
            });
            while self.flight.poll_action().is_some() {}
            self.landed = true;
            self.end.get_or_insert(End::CallerGone);
        }
        self.report();
    }

    /// What an observed block would have done to this call.
    pub(super) fn would(&self, event: &Event) {
        let stats = self.route().stats.id();
        match event {
            Event::WouldReject(rejection) => {
                self.worker.report.would_refuse(stats, &self.refusal_of(rejection), &self.facts());
            }
            Event::WouldRetry(_) => self.worker.report.would_retry(stats),
            // The view of the protection has the sums.
            Event::WouldCountSlow(_) | Event::Breaker { .. } => {}
        }
    }

    /// Counts what a limit of the shell would have done in Enforce.
    pub(super) fn would_refuse(&self, rejected: &Rejected) {
        let mut refusal = self.named(Refusal::new(rejected.reason));
        refusal.block = Some(Block::Bulkhead.as_str());
        refusal.cause = rejected.cause;
        refusal.numbers = Some(Numbers { observed: rejected.observed, limit: rejected.limit });
        self.worker.report.would_refuse(self.route().stats.id(), &refusal, &self.facts());
    }

    /// The answer that the proxy made, or the cut in one.
    fn refusal(&self) -> Option<Refusal<'_>> {
        if let Some(rejection) = &self.rejected {
            return Some(self.refusal_of(rejection));
        }
        let reason = match self.end? {
            End::CallerGone => Reason::ClientGone,
            End::Cut(reason) => reason,
            End::Malformed => Reason::MalformedRequest,
        };
        Some(self.named(Refusal::new(reason)))
    }

    pub(super) fn refusal_of(&self, rejection: &Rejection) -> Refusal<'_> {
        let mut refusal = self.named(Refusal::from_rejection(rejection, self.now));
        refusal.retries_spent = self.flight.summary().retries_over;
        let last = match rejection.cause {
            Some(Cause::Attempt(reason)) => reason,
            _ => rejection.reason,
        };
        let has_words = [Reason::ConnectFailure, Reason::DnsFailure, Reason::TlsFailure, Reason::UpstreamProtocolError];
        if has_words.contains(&last) {
            refusal.detail = self.trouble.as_deref();
        }
        refusal
    }

    pub(super) fn named<'r>(&'r self, mut refusal: Refusal<'r>) -> Refusal<'r> {
        let service = self.service();
        refusal.policy = service.policy.as_deref();
        refusal.route = self.route().name.as_deref();
        refusal.generation = Some(&self.snapshot.generation);
        refusal
    }

    fn facts(&self) -> CallFacts<'_> {
        let (head, buf) = (&self.request.head, self.request.bytes());
        CallFacts {
            time: self.worker.clock.wall(self.arrived),
            direction: self.caller.origin().direction(),
            method: head.method_name.of(buf),
            host: head.host.of(buf),
            path: head.path.of(buf),
            trace_id: self.trace.id(),
            policy: self.service().policy.as_deref(),
            route: self.route().name.as_deref(),
        }
    }
}
