//! Changes of state, as they happen: to `/events`, to the log, and into `circuit_transitions_total`.
//!
//! They are rare, so a short lock and an allocation are fine here; I/O is not, since a change happens on the thread
//! of whichever call caused it. The log goes through a [`super::spool`], subscribers through a bounded channel: who
//! reads too slowly misses events and is told how many.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use plimsoll_resilience::Mode;
use plimsoll_resilience::breaker::{Cause, State, Transition};
use serde::Serialize;
use tokio::sync::broadcast;
use tracing::{info, warn};

/// Events a subscriber may lag behind before it misses some.
const BACKLOG: usize = 256;

/// Dependencies whose transitions are counted under their own name; the rest is `other`.
const MAX_COUNTED: usize = super::MAX_SERIES;

/// One event as `/events` sends it.
#[derive(Debug)]
pub struct Message {
    /// The `event:` field: `circuit`, `policy`, `drain`.
    pub kind: &'static str,
    /// The `data:` field: one line of JSON.
    pub data: String,
}

/// A breaker that changed its state.
#[derive(Clone, Copy, Debug)]
pub struct CircuitChange<'a> {
    /// When, by the wall clock.
    pub time: SystemTime,
    /// The policy, which is also the dependency's name.
    pub policy: &'a str,
    /// The route, for a breaker of a named route.
    pub route: Option<&'a str>,
    /// The address, for a breaker of an endpoint.
    pub endpoint: Option<&'a str>,
    /// Whether it acts or only counts.
    pub mode: Mode,
    /// From where to where, and why.
    pub transition: &'a Transition,
    /// The generation in force.
    pub generation: &'a str,
}

/// What became of a policy that somebody wanted to put in force.
#[derive(Clone, Copy, Debug)]
pub enum PolicyChange<'a> {
    /// It is in force.
    Applied {
        /// Its generation.
        generation: &'a str,
        /// How many warnings it has.
        warnings: usize,
    },
    /// It was refused, and nothing changed.
    Refused {
        /// The generation that stays.
        generation: &'a str,
        /// The first error.
        error: &'a str,
    },
}

/// How often each breaker changed in each way. The key: dependency, from, to, cause.
pub(crate) type TransitionCounts = BTreeMap<(String, State, State, Cause), u64>;

/// Tells whoever wants to know. Usable from every thread.
#[derive(Debug)]
pub struct Events {
    sender: broadcast::Sender<Arc<Message>>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    transitions: TransitionCounts,
    policies_applied: u64,
    policies_refused: u64,
}

impl Events {
    pub(super) fn new() -> Self {
        Events { sender: broadcast::Sender::new(BACKLOG), counts: Mutex::default() }
    }

    /// Events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Message>> {
        self.sender.subscribe()
    }

    /// A breaker changed its state.
    pub fn circuit(&self, change: &CircuitChange<'_>) {
        let line = CircuitLine::new(change);
        line.log();
        self.count(change);
        self.send("circuit", &line);
    }

    /// A policy was put in force or refused.
    pub fn policy(&self, time: SystemTime, change: PolicyChange<'_>) {
        let line = match change {
            PolicyChange::Applied { generation, warnings } => {
                info!(generation, warnings, "policy applied");
                self.lock().policies_applied += 1;
                PolicyLine { time, result: "applied", generation, warnings: Some(warnings), error: None }
            }
            PolicyChange::Refused { generation, error } => {
                warn!(generation, error, "policy refused, nothing changed");
                self.lock().policies_refused += 1;
                PolicyLine { time, result: "refused", generation, warnings: None, error: Some(error) }
            }
        };
        self.send("policy", &line);
    }

    /// The drain went on to another phase.
    pub fn drain(&self, time: SystemTime, phase: &str) {
        info!(phase, "drain");
        self.send("drain", &DrainLine { time, phase });
    }

    pub(super) fn transitions(&self) -> TransitionCounts {
        self.lock().transitions.clone()
    }

    /// Policies applied and refused.
    pub(super) fn policies(&self) -> (u64, u64) {
        let counts = self.lock();
        (counts.policies_applied, counts.policies_refused)
    }

    fn count(&self, change: &CircuitChange<'_>) {
        let Transition { from, to, cause, .. } = *change.transition;
        let transitions = &mut self.lock().transitions;
        let own = (change.policy.to_owned(), from, to, cause);
        let key = if transitions.len() < MAX_COUNTED || transitions.contains_key(&own) {
            own
        } else {
            ("other".to_owned(), from, to, cause)
        };
        *transitions.entry(key).or_default() += 1;
    }

    fn send(&self, kind: &'static str, line: &impl Serialize) {
        if self.sender.receiver_count() == 0 {
            return;
        }
        let data = serde_json::to_string(line).expect("text and numbers always serialize");
        // Fails only when the last subscriber has just gone.
        let _ = self.sender.send(Arc::new(Message { kind, data }));
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Serialize)]
struct CircuitLine<'a> {
    #[serde(serialize_with = "super::text::rfc3339")]
    time: SystemTime,
    policy: &'a str,
    scope: &'static str,
    route: Option<&'a str>,
    endpoint: Option<&'a str>,
    mode: &'static str,
    from: &'static str,
    to: &'static str,
    cause: &'static str,
    failure_rate: u32,
    slow_call_rate: u32,
    calls: u32,
    retry_in_ms: Option<u64>,
    generation: &'a str,
}

impl<'a> CircuitLine<'a> {
    fn new(change: &CircuitChange<'a>) -> Self {
        let transition = change.transition;
        let scope = match (change.route, change.endpoint) {
            (_, Some(_)) => "Endpoint",
            (Some(_), None) => "Route",
            (None, None) => "Dependency",
        };
        let retry_in = transition.retry_at.map(|at| at.saturating_since(transition.at));
        CircuitLine {
            time: change.time,
            policy: change.policy,
            scope,
            route: change.route,
            endpoint: change.endpoint,
            mode: change.mode.as_str(),
            from: transition.from.as_str(),
            to: transition.to.as_str(),
            cause: transition.cause.as_str(),
            failure_rate: transition.counts.failure_percent(),
            slow_call_rate: transition.counts.slow_percent(),
            calls: transition.counts.calls,
            retry_in_ms: retry_in.map(|wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            generation: change.generation,
        }
    }

    fn log(&self) {
        // One event at two levels: an open breaker is what somebody on call greps for.
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    policy = self.policy,
                    scope = self.scope,
                    route = self.route,
                    endpoint = self.endpoint,
                    mode = self.mode,
                    from = self.from,
                    to = self.to,
                    cause = self.cause,
                    failure_rate = self.failure_rate,
                    slow_call_rate = self.slow_call_rate,
                    calls = self.calls,
                    retry_in_ms = self.retry_in_ms,
                    generation = self.generation,
                    "circuit"
                )
            };
        }
        if self.to == State::Open.as_str() || self.to == State::ForcedOpen.as_str() {
            line!(warn);
        } else {
            line!(info);
        }
    }
}

#[derive(Serialize)]
struct PolicyLine<'a> {
    #[serde(serialize_with = "super::text::rfc3339")]
    time: SystemTime,
    result: &'static str,
    generation: &'a str,
    warnings: Option<usize>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct DrainLine<'a> {
    #[serde(serialize_with = "super::text::rfc3339")]
    time: SystemTime,
    phase: &'a str,
}

#[cfg(test)]
mod tests {
    use plimsoll_resilience::Timestamp;
    use plimsoll_resilience::window::Counts;

    use super::*;

    fn opened() -> Transition {
        Transition {
            from: State::Closed,
            to: State::Open,
            cause: Cause::SlowCallRate,
            counts: Counts { calls: 20, failed: 1, slow: 13 },
            retry_at: Some(Timestamp::from_nanos(12_000_000_000)),
            at: Timestamp::from_nanos(2_000_000_000),
        }
    }

    fn change<'a>(policy: &'a str, transition: &'a Transition) -> CircuitChange<'a> {
        CircuitChange {
            time: SystemTime::UNIX_EPOCH,
            policy,
            route: None,
            endpoint: None,
            mode: Mode::Enforce,
            transition,
            generation: "local-3",
        }
    }

    #[test]
    fn a_subscriber_sees_what_happened_and_why() {
        let events = Events::new();
        let mut subscriber = events.subscribe();
        events.circuit(&change("shop/fraud-api", &opened()));
        let message = subscriber.try_recv().unwrap();
        assert_eq!(message.kind, "circuit");
        insta::assert_snapshot!(message.data);
    }

    #[test]
    fn transitions_are_counted_with_nobody_listening_and_past_the_cap() {
        let events = Events::new();
        let opened = opened();
        for n in 0..MAX_COUNTED + 2 {
            events.circuit(&change(&format!("shop/{n}"), &opened));
        }
        events.circuit(&change("shop/0", &opened));
        let counts = events.transitions();
        let of = |name: &str| counts.get(&(name.to_owned(), State::Closed, State::Open, Cause::SlowCallRate)).copied();
        assert_eq!((of("shop/0"), of("shop/1"), of("other")), (Some(2), Some(1), Some(2)));
    }

    #[test]
    fn policies_are_counted_by_result() {
        let events = Events::new();
        let mut subscriber = events.subscribe();
        let time = SystemTime::UNIX_EPOCH;
        events.policy(time, PolicyChange::Applied { generation: "local-2", warnings: 1 });
        events.policy(time, PolicyChange::Refused { generation: "local-2", error: "unknown field" });
        assert_eq!(events.policies(), (1, 1));
        assert_eq!(subscriber.try_recv().unwrap().kind, "policy");
        assert!(subscriber.try_recv().unwrap().data.contains("unknown field"));
    }
}
