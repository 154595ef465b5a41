//! Least request, as flights tell it: what is in flight is counted by nobody else.

use super::*;
use crate::breaker::Asker;

fn config() -> ProtectionConfig {
    ProtectionConfig { bulkhead: bulkhead(9, 0, 0), breaker: breaker(), least_request: true, ..Default::default() }
}

fn world() -> World {
    World::new(&config(), rules_with(|_| {}))
}

/// In flight to endpoints 1 and 2, and to no other.
fn loads(world: &World) -> [u32; 2] {
    let view = world.protection.view(at(world.now)).loads;
    let of = |key| view.iter().find(|load| load.endpoint == EndpointKey(key)).map_or(0, |load| load.in_flight);
    assert!(view.iter().all(|load| load.endpoint.0 <= 2));
    [of(1), of(2)]
}

fn pick(world: &mut World, avoid: Option<u64>, asker: Asker) -> Option<u64> {
    let endpoints = [1, 2];
    let avoid = avoid.map(EndpointKey);
    let picked = world.protection.pick_least(&endpoints, |&key| EndpointKey(key), avoid, asker, 1, at(world.now));
    picked.map(|position| endpoints[position])
}

fn goes_to(world: &mut World, name: &'static str, endpoint: u64) {
    world.tell(name, |flight, protection, now| {
        flight.handle_picked(EndpointKey(endpoint), protection, now);
        flight.handle_connected(now);
        flight.handle_sent(now);
    });
}

#[test]
fn an_attempt_is_in_flight_from_its_pick_to_its_last_byte() {
    let mut world = world();
    world.start("a", |_| {});
    assert_eq!(loads(&world), [0, 0]);
    world.picked("a");
    assert_eq!(loads(&world), [1, 0]);
    assert_eq!(pick(&mut world, None, Asker::First), Some(2));
    assert_eq!(pick(&mut world, Some(2), Asker::First), Some(1));
    world.tell("a", |flight, _, now| {
        flight.handle_connected(now);
        flight.handle_sent(now);
    });
    world.head("a", ok());
    assert_eq!(loads(&world), [1, 0]);
    world.ended("a");
    assert_eq!(loads(&world), [0, 0]);
}

/// Every way in which an attempt may end or be taken back.
#[test]
fn whatever_ends_an_attempt_takes_it_out() {
    let ends: [fn(&mut World) -> Vec<Action>; 7] = [
        |world| world.gone("a"),
        |world| world.failed("a", Failure::Reset),
        |world| world.failed("a", Failure::Connect),
        |world| world.failed("a", Failure::NotSent),
        |world| world.time_out("a"),
        |world| {
            world.tell("a", |flight, _, now| flight.handle_connected(now));
            world.head("a", unavailable())
        },
        |world| {
            let refused = Rejected::new(Reason::Loop, 0, 0);
            world.tell("a", |flight, protection, now| {
                flight.handle_refused(refused, Block::Target, protection, now);
            })
        },
    ];
    for end in ends {
        let mut world = world();
        world.start("a", |_| {});
        world.picked("a");
        assert_eq!(loads(&world), [1, 0]);
        end(&mut world);
        assert_eq!(loads(&world), [0, 0]);
    }
}

#[test]
fn a_retry_counts_where_it_goes() {
    let mut world = world();
    world.start("a", |_| {});
    goes_to(&mut world, "a", 1);
    assert_eq!(world.head("a", unavailable()), [Action::Keep]);
    assert_eq!(world.time_out("a"), [again(2)]);
    assert_eq!(loads(&world), [0, 0], "nothing is in flight during the back-off");
    assert_eq!(pick(&mut world, Some(1), Asker::Retry), Some(2));
    goes_to(&mut world, "a", 2);
    assert_eq!(loads(&world), [0, 1]);
}

/// What counts there is the outcome: a caller that leaves is nobody's failure.
#[test]
fn only_an_outcome_that_tells_something_weighs() {
    let mut world = world();
    world.start("a", |_| {});
    goes_to(&mut world, "a", 1);
    world.gone("a");
    world.start("b", |_| {});
    goes_to(&mut world, "b", 2);
    world.failed("b", Failure::Reset);
    let view = world.protection.view(at(0)).loads;
    assert_eq!(view.iter().map(|load| (load.ended, load.bad)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    assert_eq!(pick(&mut world, None, Asker::First), Some(1));
}

#[test]
fn an_endpoint_whose_breaker_is_open_is_not_picked() {
    let by_endpoint = breaker_with(|settings| settings.scope = breaker::Scope::Endpoint);
    let mut world = World::new(&ProtectionConfig { breaker: by_endpoint, ..config() }, rules_with(|_| {}));
    for _ in 0..5 {
        world.start("a", |_| {});
        goes_to(&mut world, "a", 1);
        world.failed("a", Failure::Protocol);
    }
    for name in ["b", "c"] {
        world.start(name, |_| {});
        goes_to(&mut world, name, 2);
    }
    world.now = 11_000;
    assert_eq!(pick(&mut world, None, Asker::Retry), Some(2), "a retry is no probe");
    assert_eq!(pick(&mut world, None, Asker::First), Some(1));
    assert_eq!(pick(&mut world, Some(2), Asker::Retry), None);
}

#[test]
fn counts_are_right_when_the_algorithm_returns() {
    let mut world = world();
    for name in ["a", "b"] {
        world.start(name, |_| {});
        goes_to(&mut world, name, 1);
    }
    let off = ProtectionConfig { least_request: false, ..config() };
    world.protection.reconfigure(&off, at(0));
    assert_eq!(pick(&mut world, None, Asker::First), None, "the endpoints have their turns");
    world.start("c", |_| {});
    goes_to(&mut world, "c", 1);
    world.gone("a");
    world.protection.reconfigure(&config(), at(0));
    assert_eq!(loads(&world), [1, 0], "b; c began when nobody counted");
    for name in ["b", "c"] {
        world.gone(name);
    }
    assert_eq!(loads(&world), [0, 0]);
}

/// worked-numbers: least request: a host that fails in 2 ms beside healthy ones is not preferred.
#[test]
fn worked_least_request() {
    // Healthy hosts that need 20 ms or 5 s, calls that are few or many at once, two hosts or three.
    for (latency, gap) in [(20, 50), (20, 1), (5000, 400), (5000, 20)] {
        for hosts in [2usize, 3] {
            let share = share_of_the_failing(latency, gap, hosts);
            assert!(share < 0.05, "{share:.3} of the calls, answers after {latency} ms, one each {gap} ms");
        }
    }
}

/// How many of 1,500 calls go to a host that fails each of them in 2 ms.
fn share_of_the_failing(latency: u64, gap: u64, hosts: usize) -> f64 {
    let config = ProtectionConfig { least_request: true, ..ProtectionConfig::default() };
    let rules = rules_with(|rules| rules.retry = None);
    let mut protection = Protection::new(&config, 1, at(0));
    let mut running: Vec<(u64, bool, Flight)> = Vec::new();
    let keys: Vec<u64> = (0..hosts as u64).collect();
    let (mut now, mut failed) = (0, 0);
    for seed in 0..1500 {
        now += gap;
        running.sort_by_key(|&(due, ..)| due);
        let due = running.partition_point(|&(due, ..)| due <= now);
        for (due, bad, mut flight) in running.drain(..due) {
            match bad {
                true => flight.handle_failed(Failure::Reset, &mut protection, at(due)),
                false => {
                    flight.handle_head(ok(), &mut protection, at(due));
                    flight.handle_ended(&mut protection, at(due));
                }
            }
        }
        let picked = protection.pick_least(&keys, |&key| EndpointKey(key), None, Asker::First, seed, at(now)).unwrap();
        let bad = picked == 0;
        failed += u32::from(bad);
        let mut flight = Flight::start(Arc::clone(&rules), call(now), &mut protection, at(now));
        assert_eq!(flight.poll_action(), Some(first()));
        flight.handle_picked(EndpointKey(keys[picked]), &mut protection, at(now));
        flight.handle_connected(at(now));
        flight.handle_sent(at(now));
        running.push((now + if bad { 2 } else { latency }, bad, flight));
    }
    for (_, _, mut flight) in running {
        flight.handle_caller_gone(&mut protection, at(now));
    }
    f64::from(failed) / 1500.0
}
