//! What runs out, what it is called, and what it costs the dependency.

use super::*;
use crate::outcome::Outcome;
use crate::rules::{RetryRules, Streaming, WhenExpired};

fn config() -> ProtectionConfig {
    ProtectionConfig { bulkhead: bulkhead(9, 0, 0), breaker: breaker(), ..ProtectionConfig::default() }
}

/// Connect 1 s, attempt 800 ms, request 2 s, idle 3 s, slow from 600 ms, no retries.
fn rules() -> Arc<Rules> {
    changed(|_| {})
}

fn changed(change: impl Fn(&mut Rules)) -> Arc<Rules> {
    rules_with(|rules| {
        rules.timeouts.attempt = Some(ms(800));
        rules.timeouts.request = Some(ms(2000));
        rules.timeouts.idle = ms(3000);
        rules.slow_call_threshold = Some(ms(600));
        rules.retry = None;
        change(rules);
    })
}

fn counts(world: &World) -> (u32, u32, u32) {
    let counts = world.protection.view(at(world.now)).breakers[0].counts;
    (counts.calls, counts.failed, counts.slow)
}

#[test]
fn a_connection_that_does_not_come_is_abandoned() {
    let mut world = World::new(&config(), rules());
    world.start("a", |_| {});
    assert_eq!(world.flight("a").next_timeout(), Some(at(2000)), "only the clock of the call");
    world.picked("a");
    let actions = world.time_out("a");
    assert_eq!((world.now, actions[0]), (1000, Action::Abandon));
    assert_eq!(rejected(&actions), Reason::ConnectFailure);
    assert_eq!((world.summary("a").first, counts(&world)), (Some(Outcome::Timeout), (1, 1, 0)));
}

#[test]
fn an_attempt_is_slow_and_counted_before_it_times_out() {
    let mut world = World::new(&config(), rules());
    world.start("a", |_| {});
    world.now = 50;
    world.send("a");
    assert_eq!(world.time_out("a"), []);
    assert_eq!((world.now, counts(&world)), (650, (1, 0, 1)));
    let actions = world.time_out("a");
    assert_eq!((world.now, rejected(&actions)), (850, Reason::AttemptTimeout));
    assert_eq!(counts(&world), (1, 1, 1), "the same entry has failed too");
    assert!(world.summary("a").slow);
}

#[test]
fn an_attempt_that_times_out_is_tried_again_if_it_may_be() {
    let rules = changed(|rules| rules.retry = Some(Moded::enforced(RetryRules::default())));
    let mut world = World::new(&config(), rules);
    world.start("a", |_| {});
    world.send("a");
    world.time_out("a");
    assert_eq!(world.time_out("a"), [Action::Abandon]);
    assert_eq!(world.time_out("a"), [again(2)]);
    assert!((800..=850).contains(&world.now));
    world.send("a");
    assert_eq!(world.flight("a").next_timeout(), Some(at(world.now + 600)), "slow is a new mark for each attempt");
    assert_eq!(world.summary("a").retries, [0; 5]);
}

/// worked-numbers: trickle.
#[test]
fn worked_trickle() {
    let rules = changed(|rules| rules.timeouts.attempt = None);
    let mut world = World::new(&config(), rules);
    world.start("a", |_| {});
    world.send("a");
    world.head("a", ok());
    while world.now < 2000 {
        world.tell("a", |flight, _, now| flight.handle_progress(now));
        let next = world.flight("a").next_timeout().unwrap();
        world.now = (world.now + 2000).min(next.as_nanos() / 1_000_000);
        let actions = world.tell("a", Flight::handle_timeout);
        if !actions.is_empty() {
            assert_eq!(actions, [Action::Abandon, Action::Cut(Reason::RequestTimeout), Action::Done]);
        }
    }
    assert_eq!((world.now, world.summary("a").reason), (2000, Some(Reason::RequestTimeout)));
}

#[test]
fn silence_is_cut_by_the_idle_clock() {
    let rules = changed(|rules| {
        rules.timeouts.attempt = None;
        rules.timeouts.request = None;
    });
    let mut world = World::new(&config(), rules);
    world.start("a", |_| {});
    world.send("a");
    world.time_out("a");
    world.now = 2900;
    world.head("a", ok());
    world.now = 5000;
    world.tell("a", |flight, _, now| flight.handle_progress(now));
    assert_eq!(world.time_out("a"), [Action::Abandon, Action::Cut(Reason::IdleTimeout), Action::Done]);
    assert_eq!((world.now, counts(&world)), (8000, (1, 1, 1)));
}

#[test]
fn the_callers_deadline_says_nothing_about_the_dependency() {
    let mut world = World::new(&config(), rules());
    world.start("a", |call| call.caller_deadline = Some(at(300)));
    world.send("a");
    assert_eq!(world.flight("a").remaining(at(100)), Some(ms(200)));
    let actions = world.time_out("a");
    assert_eq!((world.now, rejected(&actions)), (300, Reason::DeadlineExpired));
    assert_eq!((world.summary("a").first, counts(&world)), (Some(Outcome::Cancelled), (0, 0, 0)));
    let view = &world.protection.view(at(300)).breakers[0];
    assert_eq!((view.given_up, view.given_up_after), (1, Some(ms(300))), "which the status tells");

    // Slow before it was given up: stays counted slow.
    world.start("b", |call| call.caller_deadline = Some(at(1000)));
    world.send("b");
    world.time_out("b");
    world.time_out("b");
    assert_eq!((world.now, counts(&world)), (1000, (1, 0, 1)));
}

/// worked-numbers: breaker: 1,000 calls with a 1 ms deadline against a healthy dependency leave it closed.
#[test]
fn worked_breaker_not_counted_callers_deadlines() {
    let mut world = World::new(&config(), rules());
    for _ in 0..1000 {
        let deadline = at(world.now + 1);
        world.start("a", |call| call.caller_deadline = Some(deadline));
        world.send("a");
        assert_eq!(rejected(&world.time_out("a")), Reason::DeadlineExpired);
    }
    assert_eq!((world.state(), counts(&world)), (breaker::State::Closed, (0, 0, 0)));
}

#[test]
fn expired_work_is_refused_before_it_is_sent_unless_told_otherwise() {
    let mut world = World::new(&config(), rules());
    world.now = 500;
    let late = |call: &mut Call| call.caller_deadline = Some(at(500));
    assert_eq!(rejected(&world.start("a", late)), Reason::DeadlineExpired);
    assert_eq!(world.summary("a").attempts, 0);
    world.rules = changed(|rules| rules.deadline.when_expired = WhenExpired::Forward);
    assert_eq!(world.start("a", late), [first()]);
    assert_eq!(world.flight("a").remaining(at(500)), Some(ms(1)));
}

#[test]
fn time_spent_waiting_for_our_caller_is_not_the_dependencys() {
    let mut world = World::new(&config(), changed(|rules| rules.timeouts.attempt = None));
    world.start("a", |_| {});
    world.send("a");
    world.now = 100;
    world.tell("a", |flight, _, now| flight.handle_caller_wait(now));
    world.now = 900;
    world.tell("a", |flight, protection, now| {
        flight.handle_caller_ready(now);
        flight.handle_timeout(protection, now);
    });
    assert_eq!(counts(&world), (0, 0, 0));
    assert_eq!(world.flight("a").next_timeout(), Some(at(1400)), "slow after 600 ms of its own");
    world.now = 1000;
    world.head("a", ok());
    world.ended("a");
    assert_eq!(world.summary("a").latency, Some(ms(200)));

    // The request's clock goes on, and if it runs out meanwhile, that was not the dependency either.
    world.start("b", |_| {});
    world.send("b");
    world.tell("b", |flight, _, now| flight.handle_caller_wait(now));
    let actions = world.time_out("b");
    assert_eq!((world.now, rejected(&actions)), (3000, Reason::RequestTimeout));
    assert_eq!((world.summary("b").first, counts(&world)), (Some(Outcome::Cancelled), (1, 0, 0)));
}

#[test]
fn a_stream_has_its_own_limits_and_is_good_at_its_head() {
    let rules = changed(|rules| {
        rules.timeouts.stream_max = Some(ms(60_000));
        rules.timeouts.attempt = None;
    });
    let mut world = World::new(&config(), rules);
    world.start("a", |_| {});
    world.send("a");
    world.now = 500;
    assert_eq!(world.head("a", Head { streaming: true, ..ok() }), [Action::Deliver]);
    assert_eq!((counts(&world), world.summary("a").latency), ((1, 0, 0), Some(ms(500))));
    for second in 1..60 {
        world.now = second * 1000;
        let actions = world.tell("a", |flight, protection, now| {
            flight.handle_caller_wait(now);
            flight.handle_caller_ready(now);
            flight.handle_progress(now);
            flight.handle_timeout(protection, now);
        });
        assert_eq!(actions, [], "neither the request's clock nor slow");
        assert!(world.flight("a").next_timeout() > Some(at(world.now)), "it would ring for ever");
    }
    assert_eq!(world.time_out("a"), [Action::Abandon, Action::Cut(Reason::RequestTimeout), Action::Done]);
    assert_eq!(world.now, 60_000);

    // A route that is held to unary keeps its request's clock.
    let mut world = World::new(&config(), changed(|rules| rules.streaming = Streaming::Never));
    world.start("a", |call| call.streaming = true);
    world.send("a");
    world.head("a", Head { streaming: true, ..ok() });
    world.time_out("a");
    assert_eq!(counts(&world), (1, 0, 1));
}

/// worked-numbers: breaker, default: `circuitBreaker: {}` and answers after 8 s.
#[test]
fn worked_breaker_default() {
    let config =
        ProtectionConfig { breaker: Some(Moded::enforced(breaker::Config::default())), ..ProtectionConfig::default() };
    let rules = Rules { slow_call_threshold: Some(ms(2000)), ..Rules::default() };
    let mut world = World::new(&config, Arc::new(rules));
    const NAMES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    for (n, name) in (0..).zip(NAMES) {
        world.now = n * 10;
        world.start(name, |_| {});
        world.send(name);
    }
    for name in NAMES {
        assert_eq!(world.state(), breaker::State::Closed);
        world.time_out(name);
    }
    assert_eq!((world.now, world.state()), (2190, breaker::State::Open));
}

/// worked-numbers: breaker, hung: with the request timeout at 10 s and 20 callers.
#[test]
fn worked_breaker_hung_in_flight() {
    let config = ProtectionConfig { breaker: Some(Moded::enforced(breaker::Config::default())), ..config() };
    let config = ProtectionConfig { bulkhead: bulkhead(20, 50, 5000), ..config };
    let rules = changed(|rules| {
        rules.timeouts.request = Some(ms(10_000));
        rules.timeouts.attempt = None;
    });
    let mut world = World::new(&config, rules);
    const NAMES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    for name in NAMES {
        world.start(name, |_| {});
        world.send(name);
    }
    assert_eq!(world.start("waits", |_| {}), [Action::Await]);
    for name in NAMES {
        world.time_out(name);
    }
    assert_eq!((world.now, world.state()), (600, breaker::State::Open));
    assert_eq!(world.woken(), ["waits"]);
    assert_eq!(rejected(&world.tell("waits", Flight::handle_woken)), Reason::CircuitOpen);
}

#[test]
fn a_probe_has_its_own_limit_from_its_sending_and_is_not_cut_by_it() {
    let breaker = breaker_with(|settings| settings.probe_limit = ms(100));
    let mut world = World::new(&ProtectionConfig { breaker, ..config() }, rules());
    for _ in 0..5 {
        world.bad_call("bad");
    }
    world.now = 10_000;
    world.start("a", |_| {});
    world.now = 10_050;
    world.picked("a");
    world.now = 10_080;
    world.tell("a", |flight, _, now| {
        flight.handle_connected(now);
        flight.handle_sent(now);
    });
    assert_eq!(world.time_out("a"), []);
    assert_eq!((world.now, world.state()), (10_180, breaker::State::Open));
    assert_eq!(world.head("a", ok()), [Action::Deliver]);
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!(world.state(), breaker::State::Open, "of an older epoch");
}

#[test]
fn the_clock_may_jump_wherever_it_likes() {
    let mut world = World::new(&config(), rules());
    for now in [0, 1_000_000_000, 5, u64::MAX / 2_000_000, 0] {
        world.now = now;
        world.start("a", |call| call.arrived = at(7));
        world.tell("a", Flight::handle_timeout);
        world.picked("a");
        world.now = now / 2;
        world.tell("a", |flight, protection, now| {
            flight.handle_connected(now);
            flight.handle_sent(now);
            flight.handle_progress(Timestamp::ZERO);
            flight.handle_caller_wait(Timestamp::MAX);
            flight.handle_caller_ready(Timestamp::ZERO);
            flight.handle_timeout(protection, now);
        });
        world.gone("a");
    }
}

#[test]
fn no_fresh_try_is_made_after_the_end() {
    let mut world = World::new(&config(), rules());
    world.start("a", |_| {});
    world.picked("a");
    world.tell("a", |flight, _, now| flight.handle_connected(now));
    world.now = 2000;
    let actions = world.failed("a", Failure::NotSent);
    assert_eq!((actions[0], rejected(&actions)), (Action::Abandon, Reason::RequestTimeout));
}

#[test]
fn an_answer_that_is_tried_again_is_no_stream_whatever_it_says() {
    let rules = changed(|rules| rules.retry = Some(Moded::enforced(RetryRules::default())));
    let mut world = World::new(&config(), rules);
    world.start("a", |_| {});
    world.send("a");
    assert_eq!(world.head("a", Head { streaming: true, ..unavailable() }), [Action::Keep]);
    world.time_out("a");
    assert_eq!(world.flight("a").next_timeout(), Some(at(2000)), "the request's clock still runs");
}
