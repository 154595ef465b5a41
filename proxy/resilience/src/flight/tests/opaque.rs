//! Connections of which nothing is understood: what acts on them, what does not, and their turns.

use super::*;
use crate::breaker::{SlowTurn, State};
use crate::mode::Mode;
use crate::outcome::Outcome;
use crate::token_bucket;

/// Connect 1 s, idle 5 s, slow from 600 ms; everything else would bite if it acted.
fn rules() -> Arc<Rules> {
    rules_with(|rules| {
        rules.timeouts.attempt = Some(ms(100));
        rules.timeouts.request = Some(ms(100));
        rules.timeouts.stream_max = Some(ms(100));
        rules.timeouts.idle = ms(5000);
        rules.slow_call_threshold = Some(ms(600));
    })
}

fn config(turn: SlowTurn) -> ProtectionConfig {
    let breaker = breaker_with(|settings| settings.slow_turn = turn);
    ProtectionConfig { bulkhead: bulkhead(1, 0, 0), breaker, ..ProtectionConfig::default() }
}

fn world() -> World {
    World::new(&config(SlowTurn::Observe), rules())
}

fn with_rate(mode: Mode) -> ProtectionConfig {
    let rate = token_bucket::Config::new(2, ms(1000), 2).unwrap();
    ProtectionConfig { connection_rate: Some(Moded { mode, config: rate }), ..config(SlowTurn::Observe) }
}

fn opaque(call: &mut Call) {
    call.opaque = true;
    call.caller_deadline = Some(call.arrived + ms(50));
}

/// A connection that stands; nothing has been said.
fn connected(world: &mut World, name: &'static str) {
    assert_eq!(world.start(name, opaque), [first()]);
    let actions = world.tell(name, |flight, protection, now| {
        flight.handle_picked(EndpointKey(1), protection, now);
        flight.handle_connected(now);
    });
    assert_eq!(actions, []);
}

fn asks(world: &mut World, name: &'static str) {
    assert_eq!(world.tell(name, |flight, _, now| flight.handle_turn_begins(now)), []);
}

fn answers(world: &mut World, name: &'static str) -> Vec<Action> {
    world.tell(name, Flight::handle_turn_ends)
}

fn counts(world: &World) -> (u32, u32, u32) {
    let counts = world.protection.view(at(world.now)).breakers[0].counts;
    (counts.calls, counts.failed, counts.slow)
}

fn turns(world: &World) -> (u32, u32) {
    let view = world.protection.view(at(world.now)).turns;
    (view.turns, view.slow)
}

#[test]
fn neither_permits_nor_clocks_of_calls_act() {
    let mut world = world();
    world.start("call", |_| {});
    connected(&mut world, "a");
    connected(&mut world, "b");
    assert_eq!(world.in_flight(), 1, "only the call's");
    assert_eq!(world.flight("a").next_timeout(), Some(at(5000)), "only idle");
    assert_eq!(world.flight("a").remaining(at(0)), None);
    assert!(!world.flight("a").may_be_retried());
    let view = world.protection.view(at(0));
    assert_eq!(view.budget.calls, 1, "who is never tried again earns no retry");
}

#[test]
fn the_servers_first_byte_makes_it_good_whatever_follows() {
    let ends: [fn(&mut World) -> Vec<Action>; 4] = [
        |world| world.ended("a"),
        |world| world.failed("a", Failure::Reset),
        |world| world.gone("a"),
        |world| world.time_out("a"),
    ];
    for end in ends {
        let mut world = world();
        connected(&mut world, "a");
        world.now = 20;
        assert_eq!(answers(&mut world, "a"), [Action::Deliver], "a server that speaks first");
        assert_eq!(counts(&world), (1, 0, 0), "at once");
        let actions = end(&mut world);
        assert_eq!(actions.last(), Some(&Action::Done));
        assert_eq!((counts(&world), world.summary("a").first), ((1, 0, 0), Some(Outcome::Success)));
        assert_eq!(world.summary("a").latency, None);
        assert!(world.summary("a").streaming);
    }
}

#[test]
fn a_failed_connect_and_an_early_reset_are_failures_and_not_tried_again() {
    for failure in [Failure::Connect, Failure::Dns, Failure::Tls, Failure::NotSent, Failure::RefusedStream] {
        let mut world = world();
        world.start("a", opaque);
        world.picked("a");
        rejected(&world.failed("a", failure));
        let summary = world.summary("a");
        assert_eq!((summary.first, summary.retry_denied, summary.attempts), (Some(Outcome::Failure), None, 1));
        assert_eq!(counts(&world), (1, 1, 0));
    }
    let mut world = world();
    world.start("a", opaque);
    world.picked("a");
    assert_eq!((rejected(&world.time_out("a")), world.now), (Reason::ConnectFailure, 1000));
    for asked in [false, true] {
        connected(&mut world, "b");
        if asked {
            asks(&mut world, "b");
        }
        assert_eq!(rejected(&world.failed("b", Failure::Reset)), Reason::UpstreamReset);
    }
    assert_eq!(counts(&world), (3, 3, 0));
}

#[test]
fn an_orderly_end_without_a_word_is_good_and_silence_is_nobodys_failure() {
    let mut world = world();
    connected(&mut world, "a");
    asks(&mut world, "a");
    assert_eq!(world.ended("a"), [Action::Done], "such as a log that is shipped");
    assert_eq!((counts(&world), world.summary("a").latency), ((1, 0, 0), None));

    connected(&mut world, "b");
    world.now = 4000;
    world.tell("b", |flight, _, now| flight.handle_progress(now));
    let actions = world.time_out("b");
    assert_eq!((world.now, rejected(&actions)), (9000, Reason::IdleTimeout));
    assert_eq!((counts(&world), world.summary("b").first), ((1, 0, 0), Some(Outcome::Cancelled)));
}

#[test]
fn a_probe_is_good_when_it_stands_for_as_long_as_a_probe_may() {
    let mut world = World::new(&config(SlowTurn::Observe), rules());
    for _ in 0..5 {
        world.start("x", opaque);
        world.picked("x");
        world.failed("x", Failure::Connect);
    }
    assert_eq!(rejected(&world.start("refused", opaque)), Reason::CircuitOpen);
    world.now = 10_000;
    for name in ["a", "b", "c"] {
        connected(&mut world, name);
    }
    asks(&mut world, "b");
    answers(&mut world, "c");
    assert_eq!(world.state(), State::HalfOpen);
    world.now = 14_990;
    for name in ["a", "b"] {
        world.tell(name, |flight, _, now| flight.handle_progress(now));
    }
    world.now = 19_980;
    for name in ["a", "b"] {
        // Slow, by a turn that only observes.
        assert_eq!(world.tell(name, Flight::handle_timeout), []);
        world.tell(name, |flight, _, now| flight.handle_progress(now));
    }
    assert_eq!(world.state(), State::HalfOpen);
    world.now = 20_000;
    for name in ["a", "b"] {
        assert_eq!(world.tell(name, Flight::handle_timeout), []);
    }
    assert_eq!(world.state(), State::Closed);
}

#[test]
fn the_connection_rate_refuses_with_its_numbers_and_waits_for_nobody() {
    let mut world = World::new(&with_rate(Mode::Enforce), rules());
    connected(&mut world, "a");
    connected(&mut world, "b");
    let actions = world.start("c", opaque);
    let [Action::Reject(rejection), Action::Done] = actions[..] else { panic!("{actions:?}") };
    assert_eq!((rejection.reason, rejection.block), (Reason::RateLimited, Block::Bulkhead));
    assert_eq!((rejection.observed, rejection.limit, rejection.retry_at), (3, 2, Some(at(500))));
    assert_eq!(world.start("call", |_| {}), [first()], "calls are not connections");
    world.now = 500;
    connected(&mut world, "d");
    let view = world.protection.view(at(500)).connection_rate.unwrap();
    assert_eq!((view.asked, view.amount, view.left), (4, 2, 0));
}

#[test]
fn what_the_breaker_refuses_takes_no_token() {
    let mut world = World::new(&with_rate(Mode::Enforce), rules());
    world.protection.force(None, breaker::Forced::Open, at(9), at(0)).unwrap();
    for _ in 0..5 {
        assert_eq!(rejected(&world.start("x", opaque)), Reason::CircuitOpen);
    }
    assert_eq!(world.protection.view(at(0)).connection_rate.unwrap().left, 2);
}

#[test]
fn an_observed_rate_tells_and_refuses_nobody() {
    let mut world = World::new(&with_rate(Mode::Observe), rules());
    for name in ["a", "b", "c"] {
        connected(&mut world, name);
    }
    let [Event::WouldReject(would)] = world.events[..] else { panic!("{:?}", world.events) };
    assert_eq!((would.reason, would.observed, would.limit), (Reason::RateLimited, 3, 2));
}

/// design.md section 5: tokens are cut to a lower burst, never refilled; mode and absence keep what is in the bucket.
#[test]
fn a_swap_fills_no_bucket() {
    let mut world = World::new(&with_rate(Mode::Enforce), rules());
    connected(&mut world, "a");
    let left = |world: &World| world.protection.view(at(world.now)).connection_rate.map(|view| view.left);
    world.protection.reconfigure(&with_rate(Mode::Observe), at(0));
    world.protection.reconfigure(&config(SlowTurn::Observe), at(0));
    assert_eq!(left(&world), None);
    let wider = token_bucket::Config::new(2, ms(1000), 50).unwrap();
    let wider = ProtectionConfig { connection_rate: Some(Moded::enforced(wider)), ..config(SlowTurn::Observe) };
    world.protection.reconfigure(&wider, at(0));
    assert_eq!(left(&world), Some(1));
    world.now = 20_000;
    assert_eq!(left(&world), Some(41));
    world.protection.reconfigure(&with_rate(Mode::Enforce), at(20_000));
    assert_eq!(left(&world), Some(2));
}

#[test]
fn slow_turns_are_told_and_counted_beside_the_window_while_they_only_observe() {
    let mut world = world();
    connected(&mut world, "a");
    asks(&mut world, "a");
    assert_eq!(world.time_out("a"), []);
    assert_eq!((world.now, counts(&world), turns(&world)), (600, (0, 0, 0), (1, 1)));
    assert_eq!(world.events, [Event::WouldCountSlow(RouteId::REST)]);
    answers(&mut world, "a");
    assert!(!world.flight("a").is_in_turn());
    assert_eq!(world.flight("a").next_timeout(), Some(at(5600)), "nothing is slow without a question");
    asks(&mut world, "a");
    world.now = 700;
    answers(&mut world, "a");
    answers(&mut world, "a");
    assert_eq!((counts(&world), turns(&world)), ((1, 0, 0), (2, 1)), "the connection, and two turns");
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!((world.events.len(), world.summary("a").slow), (1, true));
}

#[test]
fn enforced_turns_enter_the_window_as_calls_do() {
    let mut world = World::new(&config(SlowTurn::Enforce), rules());
    connected(&mut world, "a");
    asks(&mut world, "a");
    world.now = 10;
    answers(&mut world, "a");
    assert_eq!((counts(&world), turns(&world)), ((1, 0, 0), (1, 0)), "the first turn is the connection's own entry");
    for _ in 0..4 {
        asks(&mut world, "a");
        world.time_out("a");
        world.now += 100;
        answers(&mut world, "a");
    }
    assert_eq!((counts(&world), turns(&world)), ((5, 0, 4), (5, 4)));
    assert_eq!(world.state(), State::Open, "80 % of five are slow");
    assert_eq!(world.events.len(), 1);
    // What goes on while it is open, on a connection from before, is no probe.
    asks(&mut world, "a");
    answers(&mut world, "a");
    asks(&mut world, "a");
    world.time_out("a");
    assert_eq!((counts(&world), turns(&world)), ((5, 0, 4), (7, 5)));
    assert_eq!(world.summary("a").reason, None);
}

#[test]
fn the_first_turn_of_a_probe_reopens_the_circuit_when_it_is_slow() {
    let mut world = World::new(&config(SlowTurn::Enforce), rules());
    for _ in 0..5 {
        world.start("x", opaque);
        world.failed("x", Failure::Dns);
    }
    world.now = 10_000;
    connected(&mut world, "a");
    asks(&mut world, "a");
    assert_eq!((world.state(), world.time_out("a")), (State::HalfOpen, vec![]));
    assert_eq!((world.state(), world.now), (State::Open, 10_600));
    answers(&mut world, "a");
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!(world.state(), State::Open);
}

#[test]
fn the_age_of_a_turn_runs_from_the_applications_last_bytes() {
    let mut world = World::new(&config(SlowTurn::Enforce), rules());
    connected(&mut world, "a");
    for _ in 0..5 {
        asks(&mut world, "a");
        world.now += 500;
        assert_eq!(world.tell("a", Flight::handle_timeout), []);
    }
    assert_eq!(turns(&world), (0, 0), "a long request is not slow");
    // Slow once, however much is asked meanwhile.
    for _ in 0..3 {
        world.now += 600;
        world.tell("a", Flight::handle_timeout);
        asks(&mut world, "a");
    }
    assert_eq!((turns(&world), counts(&world)), ((1, 1), (1, 0, 1)));
    answers(&mut world, "a");
    assert_eq!((turns(&world), counts(&world)), ((1, 1), (1, 0, 1)));
}

#[test]
fn turns_go_to_the_breaker_of_their_endpoint() {
    let by_endpoint = breaker_with(|settings| {
        settings.scope = breaker::Scope::Endpoint;
        settings.slow_turn = SlowTurn::Enforce;
    });
    let mut world = World::new(&ProtectionConfig { breaker: by_endpoint, ..ProtectionConfig::default() }, rules());
    connected(&mut world, "a");
    answers(&mut world, "a");
    asks(&mut world, "a");
    world.time_out("a");
    assert_eq!(counts(&world), (2, 0, 1));
    world.ended("a");
    // Without a breaker there is nothing to be slow for.
    world.protection.reconfigure(&ProtectionConfig::default(), at(world.now));
    connected(&mut world, "b");
    asks(&mut world, "b");
    world.time_out("b");
    assert_eq!(turns(&world), (2, 2));
}
