//! Calls that go well, calls that wait, calls that are refused.

use super::*;

#[test]
fn a_good_call_holds_its_permit_to_the_last_byte() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 0, 0), breaker: breaker(), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    assert_eq!(world.start("a", |_| {}), [first()]);
    world.send("a");
    world.now = 30;
    assert_eq!(world.head("a", ok()), [Action::Deliver]);
    assert_eq!(rejected(&world.start("b", |_| {})), Reason::BulkheadFull);
    world.now = 40;
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!((world.in_flight(), world.flight("a").next_timeout()), (0, None));
    let summary = world.summary("a");
    assert_eq!((summary.attempts, summary.first, summary.latency), (1, Some(Outcome::Success), Some(ms(40))));
    assert_eq!((summary.reason, summary.retry_denied, summary.retries_over), (None, None, false));
}

#[test]
fn a_rejection_carries_the_numbers() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 0, 0), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    world.start("a", |_| {});
    let [Action::Reject(rejection), Action::Done] = world.start("b", |call| call.route = RouteId(9))[..] else {
        panic!("refused");
    };
    assert_eq!((rejection.block, rejection.observed, rejection.limit), (Block::Bulkhead, 1, 1));
    assert_eq!((rejection.route, rejection.route_block), (RouteId(9), false));
    assert_eq!(world.summary("b").reason, Some(Reason::BulkheadFull));
}

#[test]
fn who_waits_gets_the_next_permit() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 1, 500), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    world.start("a", |_| {});
    world.send("a");
    assert_eq!(world.start("b", |_| {}), [Action::Await]);
    assert!(world.flight("b").waiter().is_some());
    assert_eq!(rejected(&world.start("c", |_| {})), Reason::BulkheadFull);
    world.now = 200;
    world.head("a", ok());
    world.ended("a");
    assert_eq!(world.woken(), ["b"]);
    assert_eq!(world.tell("b", Flight::handle_woken), [first()]);
    assert_eq!(world.tell("b", Flight::handle_woken), [], "a spurious call does nothing");
    assert_eq!((world.summary("b").queued, world.flight("b").waiter()), (ms(200), None));
}

#[test]
fn a_wait_ends_at_its_maximum_or_at_the_deadline() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 5, 500), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    world.start("a", |_| {});
    world.start("b", |_| {});
    world.start("c", |call| call.caller_deadline = Some(at(100)));
    assert_eq!(rejected(&world.time_out("c")), Reason::DeadlineExpired);
    assert_eq!(world.now, 100);
    assert_eq!(rejected(&world.time_out("b")), Reason::BulkheadWaitTimeout);
    assert_eq!(world.now, 500);
    world.gone("a");
    assert_eq!(world.woken(), [] as [&str; 0]);
}

#[test]
fn a_grant_that_nobody_takes_passes_on() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 5, 500), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    for name in ["a", "b", "c"] {
        world.start(name, |_| {});
    }
    world.gone("a");
    assert_eq!(world.woken(), ["b"]);
    assert_eq!(world.gone("b"), [Action::Done]);
    assert_eq!(world.woken(), ["c"]);
    assert_eq!(world.tell("c", Flight::handle_woken), [first()]);
}

#[test]
fn the_narrower_permit_comes_first_and_both_must_allow() {
    let route = RouteProtection { name: "charge".into(), bulkhead: bulkhead(1, 1, 500) };
    let config = ProtectionConfig { bulkhead: bulkhead(2, 1, 500), routes: vec![route], ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    let charge = |call: &mut Call| call.route = RouteId(1);
    assert_eq!(world.start("a", charge), [first()]);
    assert_eq!(world.start("b", charge), [Action::Await], "waits for the route's, and holds nothing");
    assert_eq!(world.start("c", |_| {}), [first()]);
    assert_eq!(world.start("d", |_| {}), [Action::Await]);
    let [Action::Reject(rejection), Action::Done] = world.start("e", charge)[..] else { panic!("refused") };
    assert!(rejection.route_block);

    // The route's permit comes back, the dependency's goes to who waited for it before.
    let waiter = world.flight("b").waiter();
    world.gone("a");
    assert_eq!(world.woken(), ["d", "b"]);
    assert_eq!(world.tell("b", Flight::handle_woken), [], "now it waits for the wider one, under the same name");
    assert_eq!(world.flight("b").waiter(), waiter);
    assert_eq!(world.tell("d", Flight::handle_woken), [first()]);
    world.gone("c");
    assert_eq!(world.woken(), ["b"]);
    assert_eq!(world.tell("b", Flight::handle_woken), [first()]);
}

#[test]
fn an_open_breaker_refuses_those_who_wait_and_lets_probes_through() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 9, 5000), breaker: breaker(), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    for _ in 0..4 {
        world.bad_call("bad");
    }
    world.start("last", |_| {});
    world.send("last");
    assert_eq!(world.start("b", |_| {}), [Action::Await]);
    world.head("last", Head { failure: true, status: 500, ..Head::default() });
    world.ended("last");
    assert_eq!(world.state(), breaker::State::Open);
    assert_eq!(world.woken(), ["b", "b"], "to be refused, though a permit is there");
    assert_eq!(rejected(&world.tell("b", Flight::handle_woken)), Reason::CircuitOpen);
    let [Action::Reject(rejection), Action::Done] = world.start("c", |_| {})[..] else { panic!("refused") };
    assert_eq!((rejection.observed, rejection.limit, rejection.retry_at), (100, 50, Some(at(10_000))));
    assert_eq!(rejection.cause, Some(Cause::Breaker(breaker::Cause::FailureRate)));
    world.now = 10_000;
    for _ in 0..3 {
        assert_eq!(world.good_call("probe", 5), [first(), Action::Deliver, Action::Done]);
    }
    assert_eq!(world.state(), breaker::State::Closed);
}

#[test]
fn no_endpoint_gives_permit_and_place_back() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 0, 0), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    for (all_open, reason) in [(false, Reason::NoHealthyEndpoint), (true, Reason::CircuitOpen)] {
        world.start("a", |_| {});
        let actions = world.tell("a", |flight, protection, now| {
            flight.handle_no_endpoint(all_open, protection, now);
        });
        assert_eq!((rejected(&actions), world.in_flight()), (reason, 0));
        assert_eq!(world.summary("a").attempts, 0);
    }
}

#[test]
fn the_caller_may_go_at_any_moment() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 1, 500), breaker: breaker(), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    for steps in 0..6 {
        world.start("a", |_| {});
        if steps > 0 {
            world.picked("a");
        }
        if steps > 1 {
            world.tell("a", |flight, _, now| flight.handle_connected(now));
        }
        if steps > 2 {
            world.tell("a", |flight, _, now| flight.handle_sent(now));
        }
        if steps > 3 {
            world.head("a", ok());
        }
        if steps > 4 {
            world.ended("a");
        }
        let expected: &[Action] = if steps > 4 { &[] } else { &[Action::Abandon, Action::Done] };
        assert_eq!(world.gone("a"), expected);
        assert_eq!(world.gone("a"), [], "and again does nothing");
        assert_eq!(world.in_flight(), 0);
    }
    assert_eq!(world.protection.view(at(0)).breakers[0].counts.calls, 1);
}

#[test]
fn a_flight_is_small() {
    let size = std::mem::size_of::<Flight>();
    assert!(size <= 400, "{size} bytes");
}

#[test]
fn what_the_shell_refuses_before_sending_counts_nowhere() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 0, 0), breaker: breaker(), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    world.start("a", |_| {});
    world.picked("a");
    let full = Rejected::new(Reason::BulkheadFull, 64, 64);
    let actions = world.tell("a", |flight, protection, now| {
        flight.handle_refused(full, Block::Bulkhead, protection, now);
    });
    let [Action::Reject(rejection), Action::Done] = actions[..] else { panic!("rejected") };
    assert_eq!((rejection.observed, world.in_flight(), world.summary("a").attempts), (64, 0, 0));
    assert_eq!(world.protection.view(at(0)).breakers[0].counts.calls, 0);
}
