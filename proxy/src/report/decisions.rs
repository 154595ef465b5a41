//! The decision log: what was refused lately, with the numbers that explain it. Behind `/decisions` and `explain`.
//!
//! It keeps the last [`CAPACITY`] decisions. Under a storm of refusals copying each one would cost more than the
//! refusal, and one loud dependency would push all others out, so of each series and reason a worker copies only the
//! first [`KEPT_PER_HAND_OVER`] between two hand-overs (about a second). The rest is counted: `dropped`, and of
//! course `rejections_total`, which misses none.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use plimsoll_resilience::codes::GrpcCode;
use plimsoll_resilience::{Cause, Mode};
use serde::Serialize;

use super::text::printable;
use super::{CallFacts, CallReport, Direction};
use crate::reject::Refusal;

/// Decisions kept for the whole process: about half a megabyte when full.
pub const CAPACITY: usize = 1_024;

/// See the module's page.
pub(super) const KEPT_PER_HAND_OVER: u16 = 10;

/// One decision against a call, made or observed.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// What `explain` is asked for; given by [`DecisionLog::push`].
    pub id: String,
    #[serde(serialize_with = "super::text::rfc3339")]
    time: SystemTime,
    trace_id: Option<String>,
    direction: &'static str,
    policy: Option<String>,
    route: Option<String>,
    dependency: String,
    reason: &'static str,
    cause: Option<&'static str>,
    status: u16,
    grpc_code: Option<&'static str>,
    block: Option<String>,
    observed: Option<u64>,
    limit: Option<u64>,
    mode: &'static str,
    generation: String,
    method: String,
    host: String,
    attempts: u32,
    elapsed_ms: f64,
    retry_after_ms: Option<u64>,
    endpoint: Option<String>,
    detail: Option<String>,
}

impl Decision {
    /// The proxy answered the call itself, or cut its answer.
    pub(super) fn made(refusal: &Refusal<'_>, report: &CallReport<'_>) -> Self {
        Decision {
            attempts: report.summary.attempts,
            elapsed_ms: millis(report.duration),
            endpoint: report.endpoint.map(|address| address.to_string()),
            grpc_code: report.grpc.map(GrpcCode::as_str),
            status: if report.status == 0 { refusal.status() } else { report.status },
            ..Decision::new(Mode::Enforce, refusal, &report.facts)
        }
    }

    /// The call went on, and would not have in `Enforce`.
    pub(super) fn observed(refusal: &Refusal<'_>, facts: &CallFacts<'_>) -> Self {
        Decision::new(Mode::Observe, refusal, facts)
    }

    /// The word of the reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    fn new(mode: Mode, refusal: &Refusal<'_>, facts: &CallFacts<'_>) -> Self {
        let policy = refusal.policy.or(facts.policy);
        let without_policy = match facts.direction {
            Direction::Inbound => "inbound",
            Direction::Outbound => "unlisted",
        };
        Decision {
            id: String::new(),
            time: facts.time,
            trace_id: Some(facts.trace_id).filter(|id| !id.is_empty()).map(str::to_owned),
            direction: facts.direction.as_str(),
            policy: policy.map(str::to_owned),
            route: refusal.route.or(facts.route).map(str::to_owned),
            dependency: policy.unwrap_or(without_policy).to_owned(),
            reason: refusal.reason.as_str(),
            cause: refusal.cause.map(Cause::as_str),
            status: refusal.status(),
            grpc_code: None,
            block: refusal.block.map(str::to_owned),
            observed: refusal.measured().map(|numbers| numbers.observed),
            limit: refusal.measured().map(|numbers| numbers.limit),
            mode: mode.as_str(),
            generation: refusal.generation.unwrap_or_default().to_owned(),
            method: printable(facts.method),
            host: printable(facts.host),
            attempts: 0,
            elapsed_ms: 0.0,
            retry_after_ms: refusal.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            endpoint: None,
            detail: refusal.detail(),
        }
    }
}

/// The last decisions of the process. Locked for a push or a copy, never across I/O.
#[derive(Debug)]
pub struct DecisionLog {
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    decisions: VecDeque<Decision>,
    next_id: u64,
}

impl DecisionLog {
    pub(super) fn new() -> Self {
        // A random start, so that an id written down before a restart does not name another decision after it.
        let start = RandomState::new().build_hasher().finish() >> 24;
        DecisionLog { ring: Mutex::new(Ring { decisions: VecDeque::new(), next_id: start }) }
    }

    pub(super) fn push(&self, mut decision: Decision) {
        let mut ring = self.lock();
        decision.id = format!("{:010x}", ring.next_id);
        ring.next_id = ring.next_id.wrapping_add(1) & 0xff_ffff_ffff;
        if ring.decisions.len() == CAPACITY {
            ring.decisions.pop_front();
        }
        ring.decisions.push_back(decision);
    }

    /// The newest `limit` decisions, newest first; with `id`, only those with this id or this trace id.
    #[must_use]
    pub fn newest(&self, limit: usize, id: Option<&str>) -> Vec<Decision> {
        let wanted =
            |decision: &&Decision| id.is_none_or(|id| decision.id == id || decision.trace_id.as_deref() == Some(id));
        self.lock().decisions.iter().rev().filter(wanted).take(limit).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Every state of the ring is a valid one, also after a panic of whoever held it.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn millis(duration: Duration) -> f64 {
    // Microseconds are as fine as any reader needs, and keep the figures short.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
