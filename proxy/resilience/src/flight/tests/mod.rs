mod balance;
mod clocks;
mod good;
mod grpc;
mod observe;
mod opaque;
mod random;
mod retry;
mod sockets;
mod table;

use std::collections::BTreeMap;

use super::*;
use crate::breaker::{self, Settings};
use crate::bulkhead;
use crate::event::Event;
use crate::mode::Moded;
use crate::protection::{ProtectionConfig, RouteProtection};
use crate::rejection::{Cause, EndpointKey, Rejected, RouteId};
use crate::rules::{RetryRules, Timeouts};

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn call(arrived: u64) -> Call {
    Call {
        arrived: at(arrived),
        caller_deadline: None,
        safety: Safety::Safe,
        idempotency_key: false,
        retried_inbound: false,
        grpc: false,
        opaque: false,
        streaming: false,
        route: RouteId::REST,
        seed: 1,
    }
}

pub(super) fn bulkhead(permits: u32, queued: u32, wait_ms: u64) -> Option<Moded<bulkhead::Config>> {
    Some(Moded::enforced(bulkhead::Config::new(permits, queued, ms(wait_ms)).unwrap()))
}

/// Count 10, minimum 5, 50 % failed or 80 % slow, open for 10 s, 3 probes.
pub(super) fn breaker() -> Option<Moded<breaker::Config>> {
    breaker_with(|_| {})
}

pub(super) fn breaker_with(change: impl Fn(&mut Settings)) -> Option<Moded<breaker::Config>> {
    let mut settings = Settings { window: breaker::WindowKind::Count(10), minimum_calls: 5, ..Settings::default() };
    change(&mut settings);
    Some(Moded::enforced(breaker::Config::new(settings).unwrap()))
}

/// One call that needs 1 s and tries three times, at once.
pub(super) fn rules_with(change: impl Fn(&mut Rules)) -> Arc<Rules> {
    let backoff = crate::backoff::Config::new(ms(100), ms(100), crate::backoff::Jitter::None).unwrap();
    let mut rules = Rules {
        timeouts: Timeouts { request: Some(ms(10_000)), request_written: true, ..Timeouts::default() },
        retry: Some(Moded::enforced(RetryRules { backoff, ..RetryRules::default() })),
        ..Rules::default()
    };
    change(&mut rules);
    Arc::new(rules)
}

/// Calls by name, the protection that they share, and the time.
pub(super) struct World {
    pub(super) protection: Protection,
    pub(super) rules: Arc<Rules>,
    pub(super) now: u64,
    flights: BTreeMap<&'static str, Flight>,
    pub(super) events: Vec<Event>,
}

impl World {
    pub(super) fn new(config: &ProtectionConfig, rules: Arc<Rules>) -> Self {
        let protection = Protection::new(config, 1, at(0));
        Self { protection, rules, now: 0, flights: BTreeMap::new(), events: Vec::new() }
    }

    /// Starts a call and says what it asks for.
    pub(super) fn start(&mut self, name: &'static str, change: impl Fn(&mut Call)) -> Vec<Action> {
        let mut call = call(self.now);
        change(&mut call);
        let flight = Flight::start(Arc::clone(&self.rules), call, &mut self.protection, at(self.now));
        self.flights.insert(name, flight);
        self.drain(name)
    }

    /// An input, and the actions that follow from it.
    pub(super) fn tell(
        &mut self,
        name: &'static str,
        input: impl FnOnce(&mut Flight, &mut Protection, Timestamp),
    ) -> Vec<Action> {
        let flight = self.flights.get_mut(name).expect("started");
        input(flight, &mut self.protection, at(self.now));
        self.drain(name)
    }

    pub(super) fn drain(&mut self, name: &'static str) -> Vec<Action> {
        self.protection.check_invariants();
        self.events.extend(std::iter::from_fn(|| self.protection.poll_event()));
        let flight = self.flights.get_mut(name).expect("started");
        std::iter::from_fn(|| flight.poll_action()).collect()
    }

    pub(super) fn picked(&mut self, name: &'static str) -> Vec<Action> {
        self.tell(name, |flight, protection, now| {
            flight.handle_picked(EndpointKey(1), protection, now);
        })
    }

    /// The shell finds no socket to endpoint 1.
    pub(super) fn waits_for_socket(&mut self, name: &'static str) -> Vec<Action> {
        self.tell(name, |flight, protection, now| {
            flight.handle_socket_wait(EndpointKey(1), protection, now);
        })
    }

    /// From the attempt to its first byte sent.
    pub(super) fn send(&mut self, name: &'static str) {
        let actions = self.tell(name, |flight, protection, now| {
            flight.handle_picked(EndpointKey(1), protection, now);
            flight.handle_connected(now);
            flight.handle_sent(now);
        });
        assert_eq!(actions, []);
    }

    pub(super) fn head(&mut self, name: &'static str, head: Head) -> Vec<Action> {
        self.tell(name, |flight, protection, now| {
            flight.handle_head(head, protection, now);
        })
    }

    /// What the trailers say.
    pub(super) fn status(&mut self, name: &'static str, status: Head) -> Vec<Action> {
        self.tell(name, |flight, protection, now| {
            flight.handle_status(status, protection, now);
        })
    }

    pub(super) fn stream_begins(&mut self, name: &'static str) {
        assert_eq!(self.tell(name, Flight::handle_stream_begins), []);
    }

    pub(super) fn ended(&mut self, name: &'static str) -> Vec<Action> {
        self.tell(name, Flight::handle_ended)
    }

    pub(super) fn failed(&mut self, name: &'static str, failure: Failure) -> Vec<Action> {
        self.tell(name, |flight, protection, now| {
            flight.handle_failed(failure, protection, now);
        })
    }

    pub(super) fn gone(&mut self, name: &'static str) -> Vec<Action> {
        self.tell(name, Flight::handle_caller_gone)
    }

    /// Moves the time to the call's next timeout and lets it run out.
    pub(super) fn time_out(&mut self, name: &'static str) -> Vec<Action> {
        let next = self.flight(name).next_timeout().expect("a timeout is set");
        self.now = self.now.max(next.as_nanos().div_ceil(1_000_000));
        self.tell(name, Flight::handle_timeout)
    }

    /// A call that is answered well after `took` ms.
    pub(super) fn good_call(&mut self, name: &'static str, took: u64) -> Vec<Action> {
        let mut actions = self.start(name, |_| {});
        if matches!(actions[..], [Action::Attempt(_)]) {
            self.send(name);
            self.now += took;
            actions.extend(self.head(name, ok()));
            actions.extend(self.ended(name));
        }
        actions
    }

    /// A call that ends with a 500, which is a failure and not retried.
    pub(super) fn bad_call(&mut self, name: &'static str) -> Vec<Action> {
        let mut actions = self.start(name, |_| {});
        if matches!(actions[..], [Action::Attempt(_)]) {
            self.send(name);
            actions.extend(self.head(name, Head { failure: true, status: 500, ..Head::default() }));
            actions.extend(self.ended(name));
        }
        actions
    }

    /// Those whose waiters are to be woken.
    pub(super) fn woken(&mut self) -> Vec<&'static str> {
        let mut names = Vec::new();
        while let Some(waiter) = self.protection.poll_woken() {
            names.extend(
                self.flights.iter().filter(|(_, flight)| flight.waiter() == Some(waiter)).map(|(&name, _)| name),
            );
        }
        names
    }

    pub(super) fn flight(&self, name: &'static str) -> &Flight {
        &self.flights[name]
    }

    pub(super) fn summary(&self, name: &'static str) -> Summary {
        self.flight(name).summary()
    }

    /// Permits out of the dependency's bulkhead.
    pub(super) fn in_flight(&self) -> u32 {
        self.protection.view(at(self.now)).bulkheads[0].in_flight
    }

    pub(super) fn state(&self) -> breaker::State {
        self.protection.view(at(self.now)).breakers[0].state
    }
}

/// Every call of a test has ended, so that a forgotten permit shows.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for flight in self.flights.values_mut() {
            flight.handle_caller_gone(&mut self.protection, at(self.now));
        }
        let view = self.protection.view(at(self.now));
        assert!(view.bulkheads.iter().all(|bulkhead| bulkhead.in_flight == 0 && bulkhead.queued == 0), "{view:?}");
    }
}

pub(super) fn ok() -> Head {
    Head { status: 200, ..Head::default() }
}

pub(super) fn unavailable() -> Head {
    Head { status: 503, failure: true, retry_code: true, ..Head::default() }
}

pub(super) fn first() -> Action {
    Action::Attempt(Attempt { number: 1, kind: AttemptKind::First, fresh_connection: false, avoid: None })
}

pub(super) fn again(number: u32) -> Action {
    let avoid = Some(EndpointKey(1));
    Action::Attempt(Attempt { number, kind: AttemptKind::Retry, fresh_connection: false, avoid })
}

/// The reason of the only rejection.
pub(super) fn rejected(actions: &[Action]) -> Reason {
    match actions {
        [.., Action::Reject(rejection), Action::Done] => rejection.reason,
        other => panic!("no rejection at the end of {other:?}"),
    }
}
