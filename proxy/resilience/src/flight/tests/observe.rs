//! Blocks in `Observe` do nothing to a call and tell what they would have done; with breakers by endpoint.

use super::*;
use crate::breaker::{Scope, State};
use crate::mode::Mode;

fn observed<T>(block: Option<Moded<T>>) -> Option<Moded<T>> {
    block.map(|block| Moded::observed(block.config))
}

/// The reasons of what would have been refused, since the last look.
fn would(world: &mut World) -> Vec<Reason> {
    let rejections = world.events.drain(..).filter_map(|event| match event {
        Event::WouldReject(rejection) => Some(rejection.reason),
        _ => None,
    });
    rejections.collect()
}

#[test]
fn an_observed_bulkhead_models_permits_and_waits() {
    let config = ProtectionConfig { bulkhead: observed(bulkhead(1, 1, 500)), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    for name in ["a", "b", "c"] {
        assert_eq!(world.start(name, |_| {}), [first()], "nobody waits and nobody is refused");
        world.send(name);
    }
    assert_eq!(would(&mut world), [Reason::BulkheadFull], "c would have been");
    let view = |world: &World| {
        let view = &world.protection.view(at(world.now)).bulkheads[0];
        (view.in_flight, view.queued)
    };
    assert_eq!(view(&world), (1, 1));
    world.now = 100;
    world.gone("a");
    assert_eq!(view(&world), (1, 0), "b would have had the permit from now on");
    assert_eq!(world.woken(), [] as [&str; 0]);
    world.gone("b");
    world.gone("c");
    assert_eq!((view(&world), would(&mut world)), ((0, 0), vec![]));

    // One whose wait would have been too long.
    world.start("a", |_| {});
    world.start("b", |_| {});
    world.now = 700;
    world.gone("b");
    assert_eq!(would(&mut world), [Reason::BulkheadWaitTimeout]);
}

#[test]
fn an_observed_breaker_models_itself_as_open() {
    let config = ProtectionConfig { breaker: observed(breaker()), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|rules| rules.retry = None));
    for _ in 0..5 {
        world.bad_call("a");
    }
    assert_eq!((world.state(), would(&mut world)), (State::Open, vec![]));
    // What it would have refused stays out of its window.
    for _ in 0..7 {
        assert_eq!(world.good_call("a", 1), [first(), Action::Deliver, Action::Done]);
    }
    assert_eq!(would(&mut world), [Reason::CircuitOpen; 7]);
    assert_eq!(world.protection.view(at(0)).breakers[0].counts.calls, 5);
    // Virtual probes close it.
    world.now = 10_000;
    for _ in 0..3 {
        world.good_call("a", 1);
    }
    assert_eq!((world.state(), would(&mut world)), (State::Closed, vec![]));
}

#[test]
fn an_observed_breaker_wakes_nobody_to_refuse_them() {
    let config = ProtectionConfig {
        bulkhead: bulkhead(1, 5, 60_000),
        breaker: observed(breaker()),
        ..ProtectionConfig::default()
    };
    let mut world = World::new(&config, rules_with(|rules| rules.retry = None));
    for _ in 0..4 {
        world.bad_call("bad");
    }
    world.start("a", |_| {});
    world.send("a");
    world.start("b", |_| {});
    world.head("a", Head { failure: true, status: 500, ..Head::default() });
    world.ended("a");
    assert_eq!(world.state(), State::Open);
    world.woken();
    assert_eq!(world.tell("b", Flight::handle_woken), [first()]);
}

#[test]
fn observed_clocks_cut_nothing_and_tell_once() {
    let rules = rules_with(|rules| {
        rules.timeouts.mode = Mode::Observe;
        rules.timeouts.request = Some(ms(1000));
        rules.timeouts.connect = ms(700);
        rules.timeouts.attempt = Some(ms(800));
        rules.timeouts.idle = ms(500);
        rules.deadline.mode = Mode::Observe;
    });
    let mut world = World::new(&ProtectionConfig::default(), rules);
    world.start("a", |call| call.caller_deadline = Some(at(900)));
    assert_eq!(world.flight("a").remaining(at(0)), None, "no field is added");
    world.picked("a");
    assert_eq!(world.time_out("a"), []);
    world.tell("a", |flight, _, now| {
        flight.handle_connected(now);
        flight.handle_sent(now);
    });
    while world.flight("a").next_timeout().is_some() {
        assert_eq!(world.time_out("a"), []);
    }
    use Reason::{AttemptTimeout, ConnectFailure, DeadlineExpired, IdleTimeout, RequestTimeout};
    assert_eq!(would(&mut world), [ConnectFailure, DeadlineExpired, RequestTimeout, IdleTimeout, AttemptTimeout]);
    assert_eq!(world.head("a", ok()), [Action::Deliver]);
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!(world.summary("a").reason, None);
}

#[test]
fn an_observed_retry_is_not_made_and_its_answer_goes_out() {
    let rules = rules_with(|rules| rules.retry = observed(rules.retry));
    let mut world = World::new(&ProtectionConfig::default(), rules);
    world.start("a", |_| {});
    assert!(!world.flight("a").may_be_retried());
    world.send("a");
    assert_eq!(world.head("a", unavailable()), [Action::Deliver]);
    world.ended("a");
    assert_eq!(world.events, [Event::WouldRetry(RouteId::REST)]);
    let summary = world.summary("a");
    assert_eq!((summary.retries_over, summary.retry_denied), (false, None), "no field is added");
}

#[test]
fn an_observed_retry_takes_no_token_from_an_enforced_one() {
    let budget = crate::budget::Config::new(0, ms(10_000), 1).unwrap();
    let rules = rules_with(|rules| rules.retry = observed(rules.retry));
    let mut world = World::new(&ProtectionConfig { budget, ..ProtectionConfig::default() }, rules);
    for _ in 0..20 {
        world.start("observed", |_| {});
        world.send("observed");
        assert_eq!(world.head("observed", unavailable()), [Action::Deliver]);
        world.ended("observed");
    }
    assert_eq!(world.events, [Event::WouldRetry(RouteId::REST); 10], "the model has a budget too");
    world.rules = rules_with(|_| {});
    world.start("enforced", |_| {});
    world.send("enforced");
    assert_eq!(world.head("enforced", unavailable()), [Action::Keep]);
}

#[test]
fn an_operators_word_holds_in_observe_too() {
    let config = ProtectionConfig { breaker: observed(breaker()), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    world.protection.force(None, breaker::Forced::Open, at(5000), at(0)).unwrap();
    assert_eq!(rejected(&world.start("a", |_| {})), Reason::CircuitOpen);
    world.now = 5000;
    assert_eq!(world.good_call("a", 1), [first(), Action::Deliver, Action::Done]);
}

fn by_endpoint() -> ProtectionConfig {
    let breaker = breaker_with(|settings| settings.scope = Scope::Endpoint);
    ProtectionConfig { bulkhead: bulkhead(9, 0, 0), breaker, ..ProtectionConfig::default() }
}

fn fail_at(world: &mut World, endpoint: EndpointKey) {
    world.start("bad", |_| {});
    world.tell("bad", |flight, protection, now| flight.handle_picked(endpoint, protection, now));
    world.failed("bad", Failure::Connect);
}

#[test]
fn breakers_by_endpoint_filter_the_choice() {
    let mut world = World::new(&by_endpoint(), rules_with(|rules| rules.retry = None));
    let (bad, good) = (EndpointKey(1), EndpointKey(2));
    for _ in 0..5 {
        assert!(world.protection.endpoint_allows(bad, Asker::First, at(0)));
        fail_at(&mut world, bad);
    }
    assert!(
        !world.protection.endpoint_allows(bad, Asker::First, at(0))
            && world.protection.endpoint_allows(good, Asker::First, at(0))
    );
    assert_eq!(world.start("a", |_| {}), [first()], "the call itself is not refused");
    // Where no other endpoint is left, it is said what the breaker says that is asked first.
    let [Action::Reject(rejection), Action::Done] =
        world.tell("a", |flight, protection, now| flight.handle_no_endpoint(true, protection, now))[..]
    else {
        panic!("refused")
    };
    assert_eq!((rejection.block, rejection.retry_at), (Block::CircuitBreaker, Some(at(10_000))));
    assert_eq!(rejection.cause, Some(Cause::Breaker(breaker::Cause::FailureRate)));

    // Half-open lets a first attempt through and no retry; who lost the last place picks again.
    world.now = 10_001;
    assert!(!world.protection.endpoint_allows(bad, Asker::Retry, at(10_001)));
    for name in ["p", "q", "r"] {
        world.start(name, |_| {});
        assert!(world.protection.endpoint_allows(bad, Asker::First, at(10_001)));
        world.tell(name, |flight, protection, now| flight.handle_picked(bad, protection, now));
    }
    world.start("late", |_| {});
    let picks = |world: &mut World, endpoint| {
        world.tell("late", |flight, protection, now| flight.handle_picked(endpoint, protection, now))
    };
    let elsewhere = Attempt { number: 1, kind: AttemptKind::First, fresh_connection: false, avoid: Some(bad) };
    assert_eq!(picks(&mut world, bad), [Action::Attempt(elsewhere)]);
    assert_eq!(picks(&mut world, good), []);
    world.gone("late");

    // Whoever cannot but pick it is refused in the end.
    world.start("late", |_| {});
    picks(&mut world, bad);
    picks(&mut world, bad);
    assert_eq!(rejected(&picks(&mut world, bad)), Reason::CircuitOpen);
}

#[test]
fn an_endpoint_that_leaves_with_a_ticket_out_and_returns_keeps_its_breaker() {
    let mut world = World::new(&by_endpoint(), rules_with(|rules| rules.retry = None));
    let endpoint = EndpointKey(1);
    let known = |world: &World| world.protection.view(at(0)).breakers.len();
    world.start("a", |_| {});
    world.picked("a");
    assert_eq!(known(&world), 1);
    world.protection.forget_endpoint(endpoint);
    assert_eq!(known(&world), 0);
    assert!(world.protection.endpoint_allows(endpoint, Asker::First, at(0)));
    world.failed("a", Failure::Connect);
    assert_eq!(world.protection.view(at(0)).breakers[0].counts.failed, 1);
    world.protection.forget_endpoint(endpoint);
    assert!(world.protection.endpoint_allows(endpoint, Asker::First, at(0)));
    assert_eq!(world.protection.view(at(0)).breakers[0].counts.failed, 0, "with no ticket out it is forgotten");
}

#[test]
fn an_attempt_keeps_the_ticket_it_was_admitted_with() {
    let config = ProtectionConfig { breaker: breaker(), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|rules| rules.retry = None));
    world.start("a", |_| {});
    world.protection.reconfigure(&by_endpoint(), at(0));
    world.picked("a");
    world.protection.reconfigure(&config, at(0));
    world.failed("a", Failure::Connect);
    assert_eq!(world.protection.view(at(0)).breakers[0].counts.failed, 1);
}

#[test]
fn what_one_observed_block_would_have_refused_another_does_not_model() {
    let route = RouteProtection { name: "narrow".into(), bulkhead: observed(bulkhead(5, 0, 0)) };
    let config = ProtectionConfig {
        bulkhead: observed(bulkhead(1, 0, 0)),
        breaker: observed(breaker()),
        routes: vec![route],
        ..ProtectionConfig::default()
    };
    let mut world = World::new(&config, rules_with(|rules| rules.retry = None));
    let narrow = |call: &mut Call| call.route = RouteId(1);
    world.start("a", narrow);
    world.start("b", narrow);
    let out = |world: &World| -> Vec<u32> {
        world.protection.view(at(0)).bulkheads.iter().map(|bulkhead| bulkhead.in_flight).collect()
    };
    assert_eq!((would(&mut world), out(&world)), (vec![Reason::BulkheadFull], vec![1, 1]), "b holds neither");
    world.gone("a");
    world.gone("b");
    for _ in 0..5 {
        world.bad_call("bad");
    }
    world.start("c", narrow);
    world.start("d", narrow);
    assert_eq!((would(&mut world), out(&world)), (vec![Reason::CircuitOpen; 2], vec![0, 0]));
}

#[test]
fn each_attempt_is_modelled_anew() {
    let config = ProtectionConfig { bulkhead: observed(bulkhead(1, 0, 0)), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|_| {}));
    world.start("a", |_| {});
    world.start("b", |_| {});
    world.send("b");
    assert_eq!(world.head("b", unavailable()), [Action::Keep]);
    world.gone("a");
    world.time_out("b");
    assert_eq!((would(&mut world), world.in_flight()), (vec![Reason::BulkheadFull], 1), "the retry has a permit");
}

#[test]
fn an_observed_block_takes_nothing_from_one_that_acts() {
    let config =
        ProtectionConfig { bulkhead: bulkhead(1, 0, 0), breaker: observed(breaker()), ..ProtectionConfig::default() };
    let mut world = World::new(&config, rules_with(|rules| rules.retry = None));
    for _ in 0..5 {
        world.bad_call("bad");
    }
    world.start("a", |_| {});
    assert_eq!(world.in_flight(), 1, "the breaker would have refused it, the bulkhead counts it all the same");
    assert_eq!(rejected(&world.start("b", |_| {})), Reason::BulkheadFull);
}

#[test]
fn the_table_of_endpoints_has_an_end_and_forgets_only_what_is_as_good_as_new() {
    let mut world = World::new(&by_endpoint(), rules_with(|rules| rules.retry = None));
    let failed = EndpointKey(0);
    fail_at(&mut world, failed);
    for key in 1..10_000 {
        assert!(world.protection.endpoint_allows(EndpointKey(key), Asker::First, at(key)));
    }
    let view = world.protection.view(at(10_000));
    assert!(view.breakers.len() <= 4096);
    let kept = view.breakers.iter().find(|view| view.scope == crate::protection::BreakerScope::Endpoint(failed));
    assert_eq!(kept.expect("kept").counts.failed, 1);
    // One without a breaker of its own is called all the same.
    world.start("a", |_| {});
    world.tell("a", |flight, protection, now| flight.handle_picked(EndpointKey(77_777), protection, now));
    assert_eq!(world.failed("a", Failure::Connect).len(), 2);
}
