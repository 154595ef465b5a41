//! Calls that have their permit and wait for a socket under `maxConnections`, and what a breaker says meanwhile.

use super::*;
use crate::breaker::{Forced, Scope, State};

fn config() -> ProtectionConfig {
    ProtectionConfig { bulkhead: bulkhead(20, 0, 0), breaker: breaker(), ..ProtectionConfig::default() }
}

/// Opens the breaker of `config` with five calls.
fn open(world: &mut World) {
    for name in ["bad-1", "bad-2", "bad-3", "bad-4", "bad-5"] {
        world.bad_call(name);
    }
    assert_eq!(world.state(), State::Open);
}

#[test]
fn a_socket_that_comes_after_the_breaker_opened_is_not_used() {
    let mut world = World::new(&config(), rules_with(|_| {}));
    assert_eq!(world.start("a", |_| {}), [first()]);
    open(&mut world);
    assert_eq!(rejected(&world.picked("a")), Reason::CircuitOpen);
    assert_eq!((world.in_flight(), world.summary("a").attempts), (0, 0));
}

#[test]
fn who_waits_for_a_socket_is_refused_the_moment_the_breaker_opens() {
    let mut world = World::new(&config(), rules_with(|_| {}));
    world.start("a", |_| {});
    assert_eq!(world.waits_for_socket("a"), []);
    assert_eq!(world.tell("a", Flight::handle_woken), [], "spurious");
    open(&mut world);
    assert_eq!(world.woken(), ["a"]);
    let actions = world.tell("a", Flight::handle_woken);
    assert_eq!((actions[0], rejected(&actions)), (Action::Abandon, Reason::CircuitOpen));
    assert_eq!((world.in_flight(), world.flight("a").waiter()), (0, None));

    // One that begins to wait when everybody else was woken already.
    world.now = 20_000;
    let probes: Vec<_> = ["b", "c", "d"].into_iter().map(|name| world.start(name, |_| {})).collect();
    assert_eq!(probes, [[first()], [first()], [first()]]);
    assert_eq!(world.waits_for_socket("c"), []);
    world.send("b");
    world.failed("b", Failure::Protocol);
    assert_eq!(world.state(), State::Open);
    assert_eq!(world.woken(), ["c"]);
    for name in ["c", "d"] {
        let actions = world.waits_for_socket(name);
        assert_eq!((actions[0], rejected(&actions)), (Action::Abandon, Reason::CircuitOpen), "{name}");
    }
}

#[test]
fn a_socket_ends_the_wait_and_so_does_the_caller() {
    let mut world = World::new(&config(), rules_with(|_| {}));
    for name in ["a", "b", "c"] {
        world.start(name, |_| {});
        world.waits_for_socket(name);
    }
    assert!(world.flight("a").waiter().is_some());
    world.send("a");
    assert_eq!(world.flight("a").waiter(), None);
    assert_eq!(world.gone("b"), [Action::Abandon, Action::Done]);
    let refused = world.tell("c", |flight, protection, now| {
        let rejected = Rejected { reason: Reason::BulkheadFull, cause: None, retry_at: None, observed: 1, limit: 1 };
        flight.handle_refused(rejected, Block::Bulkhead, protection, now);
    });
    assert_eq!(rejected(&refused), Reason::BulkheadFull);
    open(&mut world);
    assert_eq!(world.woken(), [""; 0], "nobody waits");
    assert_eq!(world.head("a", ok()), [Action::Deliver], "what was sent before goes on");
}

#[test]
fn who_has_waited_until_half_open_is_a_probe() {
    let mut world = World::new(&config(), rules_with(|_| {}));
    for name in ["a", "b", "c", "d"] {
        world.start(name, |_| {});
    }
    open(&mut world);
    world.now = 20_000;
    // Their clocks have not been looked at.
    for name in ["a", "b", "c"] {
        world.send(name);
    }
    assert_eq!(world.state(), State::HalfOpen);
    assert_eq!(rejected(&world.picked("d")), Reason::CircuitOpen, "all places are taken");
    for name in ["a", "b", "c"] {
        world.head(name, ok());
        world.ended(name);
    }
    assert_eq!(world.state(), State::Closed);
}

#[test]
fn a_retry_that_waits_for_a_socket_gives_way_to_the_answer_that_is_kept() {
    let mut world = World::new(&config(), rules_with(|_| {}));
    world.start("a", |_| {});
    world.send("a");
    assert_eq!(world.head("a", unavailable()), [Action::Keep]);
    assert_eq!(world.time_out("a"), [again(2)]);
    world.waits_for_socket("a");
    _ = world.protection.force(None, Forced::Open, at(99_999), at(world.now));
    assert_eq!(world.woken(), ["a"]);
    let actions = world.tell("a", Flight::handle_woken);
    assert!(matches!(actions[..], [Action::Abandon, Action::DeliverKept { .. }, Action::Done]), "{actions:?}");
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::CircuitOpen));
}

#[test]
fn by_endpoint_another_one_is_looked_for_and_not_for_ever() {
    let breaker = breaker_with(|settings| settings.scope = Scope::Endpoint);
    let mut world = World::new(&ProtectionConfig { breaker, ..config() }, rules_with(|_| {}));
    world.start("a", |_| {});
    world.waits_for_socket("a");
    open(&mut world);
    assert_eq!(world.woken(), ["a"]);
    let other = Attempt { number: 1, kind: AttemptKind::First, fresh_connection: false, avoid: Some(EndpointKey(1)) };
    assert_eq!(world.tell("a", Flight::handle_woken), [Action::Abandon, Action::Attempt(other)]);
    assert_eq!(world.flight("a").waiter(), None);
    // There is no other.
    assert_eq!(world.waits_for_socket("a"), [Action::Abandon, Action::Attempt(other)]);
    assert_eq!(rejected(&world.waits_for_socket("a")), Reason::CircuitOpen);
}

#[test]
fn a_breaker_that_only_observes_tells_of_it_once() {
    let breaker = breaker().map(|block| Moded::observed(block.config));
    let mut world = World::new(&ProtectionConfig { breaker, ..config() }, rules_with(|_| {}));
    world.start("a", |_| {});
    world.waits_for_socket("a");
    open(&mut world);
    assert_eq!(world.woken(), ["a"]);
    for _ in 0..2 {
        assert_eq!(world.tell("a", Flight::handle_woken), []);
    }
    world.send("a");
    let would = world.events.iter().filter(|event| matches!(event, Event::WouldReject(_))).count();
    assert_eq!(would, 1);
}
