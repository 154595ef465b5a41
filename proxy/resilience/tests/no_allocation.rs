//! A good call allocates nothing, nor does one that waits its turn, once the tables have their size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_resilience::rules::RetryRules;
use plimsoll_resilience::{
    Action, Call, EndpointKey, Flight, Head, Moded, Protection, ProtectionConfig, RouteId, RouteProtection, Rules,
    Safety, Timestamp, breaker, bulkhead,
};

/// The system's allocator, counted for each thread: that of the test harness allocates when it likes.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn start(rules: &Arc<Rules>, protection: &mut Protection, now: Timestamp) -> Flight {
    let call = Call {
        arrived: now,
        caller_deadline: None,
        safety: Safety::Safe,
        idempotency_key: false,
        retried_inbound: false,
        grpc: false,
        opaque: false,
        streaming: false,
        route: RouteId(1),
        seed: 1,
    };
    Flight::start(Arc::clone(rules), call, protection, now)
}

fn answer(flight: &mut Flight, protection: &mut Protection, now: Timestamp) {
    assert!(matches!(flight.poll_action(), Some(Action::Attempt(_))));
    flight.handle_picked(EndpointKey(1), protection, now);
    flight.handle_connected(now);
    flight.handle_sent(now);
    flight.handle_head(Head { status: 200, ..Head::default() }, protection, now);
    assert_eq!(flight.poll_action(), Some(Action::Deliver));
    flight.handle_ended(protection, now);
    assert_eq!(flight.poll_action(), Some(Action::Done));
}

/// One call is answered while another waits for its permit and is answered after it.
fn two_calls(rules: &Arc<Rules>, protection: &mut Protection, now: Timestamp) {
    let mut first = start(rules, protection, now);
    let mut second = start(rules, protection, now);
    assert_eq!(second.poll_action(), Some(Action::Await));
    answer(&mut first, protection, now);
    assert_eq!(protection.poll_woken(), second.waiter());
    second.handle_woken(protection, now);
    answer(&mut second, protection, now);
    assert_eq!(protection.poll_event(), None);
}

#[test]
fn a_good_call_allocates_nothing() {
    let block = Some(Moded::enforced(bulkhead::Config::new(1, 10, Duration::from_secs(1)).expect("valid")));
    let config = ProtectionConfig {
        bulkhead: block,
        breaker: Some(Moded::enforced(breaker::Config::default())),
        routes: vec![RouteProtection { name: "charge".into(), bulkhead: block }],
        least_request: true,
        ..ProtectionConfig::default()
    };
    let rules = Arc::new(Rules {
        retry: Some(Moded::enforced(RetryRules::default())),
        slow_call_threshold: Some(Duration::from_secs(2)),
        ..Rules::default()
    });
    let mut protection = Protection::new(&config, 1, Timestamp::ZERO);
    let now = |n: u64| Timestamp::from_nanos(n * 100_000_000);
    two_calls(&rules, &mut protection, now(0));
    let before = ALLOCATIONS.get();
    for n in 1..1000 {
        two_calls(&rules, &mut protection, now(n));
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
