//! What a good call costs with breaker, bulkhead and budget on:
//! `cargo run --release -p plimsoll-resilience --example cost`.
//!
//! Prints nanoseconds of processor time per call, the median of the rounds (of wall time where the kernel does not
//! tell; then other work on the machine disturbs the figure).

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this is what measures, not what is measured")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_resilience::flight::{Action, Call, Flight, Head, Safety};
use plimsoll_resilience::rules::RetryRules;
use plimsoll_resilience::{
    EndpointKey, Moded, Protection, ProtectionConfig, RouteId, RouteProtection, Rules, Timestamp, breaker, bulkhead,
};

/// Long enough for a clock that the kernel moves every 4 ms.
const CALLS: u64 = 1_000_000;

fn main() {
    let bulkhead = bulkhead::Config::new(100, 10, Duration::from_millis(100)).expect("valid");
    let by_count = breaker::Settings { window: breaker::WindowKind::Count(100), ..breaker::Settings::default() };
    let by_count = breaker::Config::new(by_count).expect("valid");
    let nothing = ProtectionConfig::default();
    let time = ProtectionConfig {
        bulkhead: Some(Moded::enforced(bulkhead)),
        breaker: Some(Moded::enforced(breaker::Config::default())),
        ..nothing.clone()
    };
    let count = ProtectionConfig { breaker: Some(Moded::enforced(by_count)), ..time.clone() };
    let route = RouteProtection { name: "charge".into(), bulkhead: Some(Moded::enforced(bulkhead)) };
    let both = ProtectionConfig { routes: vec![route], ..time.clone() };
    println!("flight: {} bytes", size_of::<Flight>());
    for (name, config) in [
        ("no block", nothing),
        ("breaker by time, bulkhead, budget", time),
        ("breaker by count, bulkhead, budget", count),
        ("and a bulkhead on the route", both),
    ] {
        let mut rounds: Vec<u128> = (0..11).map(|_| round(&config)).collect();
        rounds.sort_unstable();
        println!("{name}: {} ns per call", rounds[rounds.len() / 2] / u128::from(CALLS));
    }
}

fn round(config: &ProtectionConfig) -> u128 {
    let rules = Arc::new(Rules {
        retry: Some(Moded::enforced(RetryRules::default())),
        slow_call_threshold: Some(Duration::from_secs(2)),
        ..Rules::default()
    });
    let mut protection = Protection::new(config, 1, Timestamp::ZERO);
    let began = Clock::start();
    for n in 0..CALLS {
        // 8 us apart: the window rolls as it would at 125,000 calls a second.
        good_call(&rules, &mut protection, n * 8_000);
    }
    let took = began.nanos();
    assert_eq!(protection.view(Timestamp::from_nanos(CALLS * 8_000)).budget.calls, CALLS);
    took
}

/// Processor time of this thread where the kernel tells it, else wall time.
struct Clock(Option<u128>, Instant);

impl Clock {
    fn start() -> Self {
        Self(Self::processor(), Instant::now())
    }

    fn nanos(&self) -> u128 {
        match (self.0, Self::processor()) {
            (Some(then), Some(now)) => now - then,
            _ => self.1.elapsed().as_nanos(),
        }
    }

    fn processor() -> Option<u128> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
    }
}

fn good_call(rules: &Arc<Rules>, protection: &mut Protection, at: u64) {
    let now = |offset: u64| black_box(Timestamp::from_nanos(at + offset));
    let call = Call {
        arrived: now(0),
        caller_deadline: None,
        safety: Safety::Safe,
        idempotency_key: false,
        retried_inbound: false,
        grpc: false,
        opaque: false,
        streaming: false,
        route: RouteId(1),
        seed: at,
    };
    let mut flight = Flight::start(Arc::clone(rules), call, protection, now(0));
    assert!(matches!(flight.poll_action(), Some(Action::Attempt(_))));
    black_box(flight.next_timeout());
    flight.handle_picked(EndpointKey(1), protection, now(10));
    flight.handle_connected(now(20));
    flight.handle_sent(now(30));
    black_box(flight.next_timeout());
    flight.handle_progress(now(40));
    flight.handle_head(Head { status: 200, ..Head::default() }, protection, now(5000));
    assert_eq!(flight.poll_action(), Some(Action::Deliver));
    flight.handle_progress(now(6000));
    flight.handle_ended(protection, now(7000));
    assert_eq!(flight.poll_action(), Some(Action::Done));
    black_box(protection.poll_event());
    black_box(flight.summary());
}
