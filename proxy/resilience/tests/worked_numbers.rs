//! The worked numbers that are stories: many calls in simulated time, driven through the public face of the crate.
//! Those of a single machine stand beside it.

#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_resilience::backoff::{Backoff, Jitter};
use plimsoll_resilience::rules::{RetryRules, Timeouts};
use plimsoll_resilience::{
    Action, Call, EndpointKey, Flight, Head, Moded, Protection, ProtectionConfig, Random, Reason, RouteId, Rules,
    Safety, Timestamp, backoff, budget, bulkhead,
};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn get(now: u64, seed: u64) -> Call {
    Call {
        arrived: at(now),
        caller_deadline: None,
        safety: Safety::Safe,
        idempotency_key: false,
        retried_inbound: false,
        grpc: false,
        opaque: false,
        streaming: false,
        route: RouteId::REST,
        seed,
    }
}

fn send(flight: &mut Flight, protection: &mut Protection, now: Timestamp) {
    flight.handle_picked(EndpointKey(1), protection, now);
    flight.handle_connected(now);
    flight.handle_sent(now);
}

/// One dependency that answers each call after `latency`, and the calls that are in flight to it.
struct Dependency {
    protection: Protection,
    rules: Arc<Rules>,
    latency: u64,
    running: BinaryHeap<Reverse<(u64, usize)>>,
    flights: Vec<Flight>,
    refused: u32,
    in_flight: u32,
}

impl Dependency {
    fn new(permits: u32, latency: u64) -> Self {
        let bulkhead = Some(Moded::enforced(bulkhead::Config::new(permits, 0, ms(0)).unwrap()));
        let config = ProtectionConfig { bulkhead, ..ProtectionConfig::default() };
        Self {
            protection: Protection::new(&config, 1, at(0)),
            rules: Arc::new(Rules::default()),
            latency,
            running: BinaryHeap::new(),
            flights: Vec::new(),
            refused: 0,
            in_flight: 0,
        }
    }

    fn call(&mut self, now: u64) {
        let call = get(now, 0);
        let mut flight = Flight::start(Arc::clone(&self.rules), call, &mut self.protection, at(now));
        match flight.poll_action() {
            Some(Action::Attempt(_)) => {
                send(&mut flight, &mut self.protection, at(now));
                self.running.push(Reverse((now + self.latency, self.flights.len())));
                self.in_flight += 1;
            }
            Some(Action::Reject(rejection)) => {
                assert_eq!(rejection.reason, Reason::BulkheadFull);
                self.refused += 1;
            }
            other => panic!("{other:?}"),
        }
        self.flights.push(flight);
    }

    /// Answers those whose time has come.
    fn answer(&mut self, now: u64) {
        while let Some(&Reverse((due, index))) = self.running.peek().filter(|Reverse((due, _))| *due <= now) {
            self.running.pop();
            let flight = &mut self.flights[index];
            flight.handle_head(Head { status: 200, ..Head::default() }, &mut self.protection, at(due));
            flight.handle_ended(&mut self.protection, at(due));
            assert_eq!(std::iter::from_fn(|| flight.poll_action()).last(), Some(Action::Done));
            self.in_flight -= 1;
        }
        let view = self.protection.view(at(now));
        assert_eq!(view.bulkheads[0].in_flight, self.in_flight, "permits out = attempts in flight");
    }

    fn drop_all(mut self) {
        for flight in &mut self.flights {
            flight.handle_caller_gone(&mut self.protection, at(0));
        }
    }
}

/// bulkhead: 25 calls/s x 8 s against a shared pool of 200: full in 8 s; with 20 permits for each dependency the
/// others feel nothing.
#[test]
fn bulkhead() {
    // One pool for all: the slow dependency's calls take every place, and the healthy one's find none.
    let mut pool = Dependency::new(200, 8_100);
    let mut full_at = None;
    for now in (0..10_000).step_by(40) {
        pool.answer(now);
        pool.call(now);
        if pool.refused > 0 {
            full_at = full_at.or(Some(now));
        }
    }
    assert_eq!(full_at, Some(8_000));
    pool.drop_all();

    // A bulkhead for each.
    let (mut slow, mut healthy) = (Dependency::new(20, 8_000), Dependency::new(20, 50));
    for now in (0..60_000).step_by(40) {
        for dependency in [&mut slow, &mut healthy] {
            dependency.answer(now);
            dependency.call(now);
        }
    }
    assert_eq!(healthy.refused, 0);
    assert!(slow.refused > 1000 && slow.in_flight == 20, "{} refused", slow.refused);
    slow.drop_all();
    healthy.drop_all();
}

/// Little's law: 100 calls/s at 200 ms are 20 in flight.
#[test]
fn littles_law() {
    let mut dependency = Dependency::new(100, 200);
    for now in (0..10_000).step_by(10) {
        dependency.answer(now);
        dependency.call(now);
        if now >= 200 {
            assert_eq!(dependency.in_flight, 20);
        }
    }
    dependency.drop_all();
}

/// A service that passes each call on to the next one; the last of them calls a dependency that is down.
struct Layer {
    protection: Protection,
    rules: Arc<Rules>,
    /// The answer's `x-plimsoll-retry: no` is written and obeyed.
    signal: bool,
}

impl Layer {
    fn new(budget: budget::Config, signal: bool) -> Self {
        let backoff = backoff::Config::new(ms(1), ms(1), Jitter::None).unwrap();
        let rules = Rules {
            timeouts: Timeouts { request: None, ..Timeouts::default() },
            retry: Some(Moded::enforced(RetryRules { backoff, ..RetryRules::default() })),
            ..Rules::default()
        };
        let config = ProtectionConfig { budget, ..ProtectionConfig::default() };
        Self { protection: Protection::new(&config, 1, at(0)), rules: Arc::new(rules), signal }
    }
}

/// What a call through `layers` comes to: whether its answer says not to retry. Counts what reaches the dependency.
fn call_through(layers: &mut [Layer], now: &mut u64, reached: &mut u32) -> bool {
    let Some((layer, below)) = layers.split_first_mut() else {
        *reached += 1;
        return false;
    };
    let mut flight = Flight::start(Arc::clone(&layer.rules), get(*now, 0), &mut layer.protection, at(*now));
    loop {
        match flight.poll_action() {
            Some(Action::Attempt(_)) => {
                send(&mut flight, &mut layer.protection, at(*now));
                let no_retry = call_through(below, now, reached);
                let head = Head { status: 503, failure: true, retry_code: true, no_retry, ..Head::default() };
                flight.handle_head(head, &mut layer.protection, at(*now));
            }
            Some(Action::Deliver) => flight.handle_ended(&mut layer.protection, at(*now)),
            Some(Action::Done) => return layer.signal && flight.summary().retries_over,
            Some(Action::Keep) => {}
            None => {
                *now = flight.next_timeout().expect("it backs off").as_nanos() / 1_000_000;
                flight.handle_timeout(&mut layer.protection, at(*now));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// How often one call reaches the dependency, on average, at 100 calls/s for 20 s after 10 s to settle.
fn amplification(budget: budget::Config, signal: bool) -> f64 {
    let mut layers: Vec<_> = (0..3).map(|_| Layer::new(budget, signal)).collect();
    let mut reached = 0;
    for second in 0..30 {
        if second == 10 {
            reached = 0;
        }
        for call in 0..100 {
            let mut now = second * 1000 + call * 10;
            call_through(&mut layers, &mut now, &mut reached);
        }
    }
    f64::from(reached) / 2000.0
}

/// attempts: 3 layers x 3 attempts, the last one down, breakers off, 100 calls/s.
#[test]
fn attempts() {
    let unlimited = budget::Config::new(100, Duration::from_secs(10), 1_000_000).unwrap();
    assert_eq!(amplification(unlimited, false), 27.0);
    let budgets = amplification(budget::Config::default(), false);
    assert!((1.75..1.9).contains(&budgets), "{budgets}");
    let signal = amplification(budget::Config::default(), true);
    assert!(signal < 1.3, "{signal}");
}

/// How many of 5,000 clients, which fail together and retry until the service is back at 60 s, call in each second.
fn herd(config: &backoff::Config) -> Vec<u32> {
    let mut seconds = vec![0; 80];
    for client in 0..5000 {
        let (mut backoff, mut random) = (Backoff::default(), Random::new(client));
        let mut now = 0;
        loop {
            let second = usize::try_from(now / 1000).unwrap();
            seconds[second] += 1;
            if now >= 60_000 {
                break;
            }
            now += u64::try_from(backoff.next(config, ms(0), &mut random).as_millis()).unwrap();
        }
    }
    seconds
}

/// herd: 5,000 clients fail together, base 100 ms, cap 10 s, service back after 60 s.
#[test]
fn herd_of_clients() {
    let fixed = herd(&backoff::Config::new(ms(1000), ms(1000), Jitter::None).unwrap());
    assert!(fixed[..=60].iter().all(|&calls| calls == 5000), "all of them in the same instant of each second");
    assert_eq!(fixed[61], 0);

    let spread = herd(&backoff::Config::new(ms(100), ms(10_000), Jitter::Full).unwrap());
    // The failure after its first rush, and the seconds in which most come back.
    for stretch in [20..60, 60..65] {
        let calls = &spread[stretch.clone()];
        let mean = f64::from(calls.iter().sum::<u32>()) / calls.len() as f64;
        let most = f64::from(*calls.iter().max().unwrap());
        assert!(most <= 1.5 * mean, "{stretch:?}: {most} in one second, {mean} on average");
    }
}
