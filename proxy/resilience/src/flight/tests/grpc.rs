//! The status that comes last, and the moment from which a call is a stream.

use super::*;
use crate::outcome::Outcome;
use crate::rules::{Methods, Streaming};

fn config() -> ProtectionConfig {
    ProtectionConfig { bulkhead: bulkhead(9, 0, 0), breaker: breaker(), ..ProtectionConfig::default() }
}

/// Slow from 600 ms, request 2 s where it is written; whatever gRPC code is retried may be, three attempts.
fn changed(change: impl Fn(&mut Rules)) -> Arc<Rules> {
    rules_with(|rules| {
        rules.timeouts.request = Some(ms(2000));
        rules.timeouts.request_written = false;
        rules.slow_call_threshold = Some(ms(600));
        rules.retry.as_mut().unwrap().config.methods = Methods::Any;
        change(rules);
    })
}

fn world() -> World {
    World::new(&config(), changed(|_| {}))
}

/// A gRPC call whose request is on its way.
fn sent(world: &mut World, name: &'static str) {
    assert_eq!(world.start(name, grpc), [first()]);
    world.send(name);
}

fn grpc(call: &mut Call) {
    call.grpc = true;
    call.safety = Safety::Unsafe;
}

/// UNAVAILABLE: a failure that is retried.
fn status() -> Head {
    Head { failure: true, retry_code: true, ..ok() }
}

fn counts(world: &World) -> (u32, u32, u32) {
    let counts = world.protection.view(at(world.now)).breakers[0].counts;
    (counts.calls, counts.failed, counts.slow)
}

#[test]
fn a_failure_in_the_trailers_is_one_and_counts_once() {
    let mut world = world();
    sent(&mut world, "a");
    assert_eq!(world.head("a", ok()), [Action::Deliver]);
    assert_eq!(counts(&world), (0, 0, 0), "nobody knows yet");
    assert_eq!(world.status("a", status()), [], "the answer has begun: it is not tried again");
    assert_eq!(counts(&world), (1, 1, 0), "at once, though the last byte is not here");
    assert_eq!(world.in_flight(), 1);
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!((counts(&world), world.in_flight()), ((1, 1, 0), 0));
    let summary = world.summary("a");
    assert_eq!((summary.first, summary.latency, summary.reason), (Some(Outcome::Failure), None, None));
}

#[test]
fn a_good_status_makes_the_call_good_when_it_ends() {
    let mut world = world();
    sent(&mut world, "a");
    world.now = 100;
    world.head("a", ok());
    world.now = 200;
    world.status("a", ok());
    world.ended("a");
    assert_eq!((counts(&world), world.summary("a").latency), ((1, 0, 0), Some(ms(200))));
    assert_eq!(world.summary("a").first, Some(Outcome::Success));
}

#[test]
fn the_status_is_heard_once_and_only_in_an_answer() {
    let mut world = world();
    sent(&mut world, "a");
    assert_eq!(world.status("a", status()), [], "before the head it is part of the head");
    world.head("a", Head { failure: true, status: 500, ..Head::default() });
    assert_eq!(counts(&world), (1, 1, 0));
    world.status("a", Head { pushback: true, ..ok() });
    world.ended("a");
    assert_eq!((counts(&world), world.summary("a").first), ((1, 1, 0), Some(Outcome::Failure)), "the head has said it");
    world.status("a", status());
    assert_eq!(counts(&world), (1, 1, 0));
}

#[test]
fn a_status_before_any_message_is_tried_again_as_policy_has_it() {
    let mut world = world();
    sent(&mut world, "a");
    assert!(world.flight("a").may_be_retried(), "so the head is held back");
    assert_eq!(world.head("a", status()), [Action::Keep]);
    assert_eq!((world.time_out("a"), world.now), (vec![again(2)], 100));
    world.send("a");
    assert_eq!(world.head("a", ok()), [Action::Deliver]);
    world.status("a", ok());
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!((counts(&world), world.summary("a").retries[Outcome::Success as usize]), ((2, 1, 0), 1));

    // Without leave to repeat it the same answer goes out.
    let mut world = World::new(
        &config(),
        changed(|rules| {
            rules.retry.as_mut().unwrap().config.methods = Methods::Idempotent;
        }),
    );
    sent(&mut world, "a");
    assert!(!world.flight("a").may_be_retried());
    assert_eq!(world.head("a", status()), [Action::Deliver]);
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::Unsafe));
}

#[test]
fn pushback_is_a_floor_or_forbids() {
    let mut world = world();
    sent(&mut world, "a");
    let pushback = Head { pushback: true, retry_after: Some(ms(700)), ..status() };
    assert_eq!(world.head("a", pushback), [Action::Keep]);
    assert_eq!((counts(&world), world.summary("a").first), ((0, 0, 0), Some(Outcome::Pushback)), "not in the window");
    assert_eq!(world.time_out("a"), [again(2)]);
    assert!(world.now >= 700);

    sent(&mut world, "b");
    assert_eq!(world.head("b", Head { no_retry: true, ..status() }), [Action::Deliver]);
    assert_eq!(world.summary("b").retry_denied, Some(RetryDenied::Forbidden));
    assert_eq!(counts(&world), (1, 1, 0), "it only forbids: the failure is one");

    sent(&mut world, "c");
    world.head("c", ok());
    world.status("c", Head { pushback: true, ..ok() });
    world.ended("c");
    assert_eq!((counts(&world), world.summary("c").first), ((1, 1, 0), Some(Outcome::Pushback)));
}

#[test]
fn deadline_exceeded_is_the_callers_only_if_the_callers_deadline_is_over() {
    let exceeded = Head { deadline_exceeded: true, failure: true, ..ok() };
    let deadline = |call: &mut Call| {
        grpc(call);
        call.caller_deadline = Some(call.arrived + ms(500));
    };
    for (answers_at, expected, counted) in
        [(499, Outcome::Cancelled, (0, 0, 0)), (498, Outcome::Failure, (1, 1, 0)), (100, Outcome::Failure, (1, 1, 0))]
    {
        for in_trailers in [false, true] {
            let mut world = World::new(&config(), changed(|rules| rules.retry = None));
            world.start("a", deadline);
            world.send("a");
            world.now = answers_at;
            world.head("a", if in_trailers { ok() } else { exceeded });
            world.status("a", exceeded);
            world.ended("a");
            assert_eq!((world.summary("a").first, counts(&world)), (Some(expected), counted), "{answers_at}");
        }
    }
}

#[test]
fn the_request_timeout_holds_for_grpc_only_if_it_is_written() {
    let mut world = world();
    sent(&mut world, "a");
    assert_eq!(world.time_out("a"), [], "slow");
    assert_eq!(world.flight("a").next_timeout(), Some(at(300_000)), "and then only idle");

    let mut world = World::new(&config(), changed(|rules| rules.timeouts.request_written = true));
    sent(&mut world, "a");
    world.time_out("a");
    assert_eq!((rejected(&world.time_out("a")), world.now), (Reason::RequestTimeout, 2000));

    world.now = 0;
    world.start("b", |call| {
        grpc(call);
        call.caller_deadline = Some(at(900));
    });
    world.send("b");
    world.time_out("b");
    assert_eq!((rejected(&world.time_out("b")), world.now), (Reason::DeadlineExpired, 900));
}

/// From the moment that it is one: no clock of the request or of the attempt, no slow mark, good when its answer begins.
#[test]
fn a_call_becomes_a_stream_before_its_answer() {
    let mut world = World::new(
        &config(),
        changed(|rules| {
            rules.timeouts.request_written = true;
            rules.timeouts.attempt = Some(ms(1000));
            rules.timeouts.stream_max = Some(ms(30_000));
        }),
    );
    sent(&mut world, "a");
    world.stream_begins("a");
    world.now = 550;
    assert_eq!(world.head("a", ok()), [Action::Deliver]);
    assert_eq!((counts(&world), world.summary("a").latency), ((1, 0, 0), Some(ms(550))), "good at its head");
    world.now = 29_000;
    assert_eq!(world.tell("a", Flight::handle_timeout), []);
    assert_eq!(world.tell("a", |flight, _, now| flight.handle_progress(now)), []);
    let cut = [Action::Abandon, Action::Cut(Reason::RequestTimeout), Action::Done];
    assert_eq!((world.time_out("a"), world.now), (cut.to_vec(), 30_000));
    assert!(world.summary("a").streaming);
    assert_eq!(counts(&world), (1, 0, 0), "it has lasted as long as it may, and not failed");

    // Until its answer begins it is as slow as a call.
    world.now = 40_000;
    sent(&mut world, "b");
    world.stream_begins("b");
    world.time_out("b");
    assert_eq!((world.now, counts(&world)), (40_600, (2, 0, 1)));
}

#[test]
fn a_call_becomes_a_stream_in_the_middle_of_its_answer() {
    let mut world = World::new(
        &config(),
        changed(|rules| {
            rules.timeouts.request_written = true;
            rules.timeouts.attempt = Some(ms(1000));
        }),
    );
    sent(&mut world, "a");
    world.head("a", ok());
    world.now = 500;
    assert_eq!(counts(&world), (0, 0, 0));
    world.stream_begins("a");
    world.stream_begins("a");
    assert_eq!((counts(&world), world.summary("a").latency), ((1, 0, 0), Some(ms(500))), "begun from now on");
    world.now = 200_000;
    assert_eq!(world.tell("a", Flight::handle_timeout), [], "neither slow nor over");
    world.ended("a");
    assert_eq!((counts(&world), world.summary("a").latency), ((1, 0, 0), Some(ms(500))));

    // What has been slow until then stays so.
    sent(&mut world, "b");
    world.head("b", ok());
    world.now += 700;
    world.stream_begins("b");
    assert_eq!((counts(&world), world.summary("b").slow), ((2, 0, 1), true));
    world.status("b", ok());
    world.ended("b");
    assert_eq!(counts(&world), (2, 0, 1));
}

/// The success that a stream was when it began is taken back: the same entry has failed.
#[test]
fn a_stream_that_fails_in_its_trailers_failed_once() {
    let mut world = world();
    sent(&mut world, "a");
    world.stream_begins("a");
    world.head("a", ok());
    assert_eq!(counts(&world), (1, 0, 0));
    world.now = 5000;
    assert_eq!(world.status("a", status()), []);
    assert_eq!(counts(&world), (1, 1, 0));
    assert_eq!(world.ended("a"), [Action::Done]);
    assert_eq!((counts(&world), world.summary("a").first), ((1, 1, 0), Some(Outcome::Failure)));

    // Refused or given up on the way: it has begun well all the same.
    for end in [Head { pushback: true, ..ok() }, ok()] {
        sent(&mut world, "b");
        world.stream_begins("b");
        world.head("b", ok());
        world.status("b", end);
        world.ended("b");
    }
    assert_eq!(counts(&world), (3, 1, 0));
    sent(&mut world, "c");
    world.stream_begins("c");
    world.head("c", ok());
    world.failed("c", Failure::Reset);
    assert_eq!(counts(&world), (4, 2, 0), "a reset is a failure too");
}

#[test]
fn a_probe_that_is_a_stream_reopens_the_circuit_when_it_fails() {
    let mut world = World::new(&config(), changed(|rules| rules.retry = None));
    for _ in 0..5 {
        world.bad_call("x");
    }
    world.now = 10_000;
    sent(&mut world, "a");
    world.stream_begins("a");
    world.head("a", ok());
    assert_eq!(world.state(), breaker::State::HalfOpen, "one of three is good");
    world.now = 60_000;
    assert_eq!(world.tell("a", Flight::handle_timeout), [], "an hour of streaming is no overdue probe");
    world.status("a", status());
    assert_eq!(world.state(), breaker::State::Open);
    world.ended("a");
}

#[test]
fn a_route_held_to_unary_stays_so() {
    let mut world = World::new(
        &config(),
        changed(|rules| {
            rules.streaming = Streaming::Never;
            rules.timeouts.request_written = true;
        }),
    );
    sent(&mut world, "a");
    world.stream_begins("a");
    world.head("a", ok());
    world.stream_begins("a");
    assert_eq!(counts(&world), (0, 0, 0));
    world.time_out("a");
    assert_eq!(counts(&world), (1, 0, 1), "slow");
    let cut = [Action::Abandon, Action::Cut(Reason::RequestTimeout), Action::Done];
    assert_eq!((world.time_out("a"), world.now, world.summary("a").streaming), (cut.to_vec(), 2000, false));
}

#[test]
fn it_may_become_a_stream_while_it_waits_to_be_tried_again() {
    let mut world = World::new(&config(), changed(|rules| rules.timeouts.request_written = true));
    sent(&mut world, "a");
    world.head("a", status());
    world.stream_begins("a");
    assert_eq!(world.time_out("a"), [again(2)]);
    world.send("a");
    world.now = 300;
    world.head("a", ok());
    assert_eq!((counts(&world), world.summary("a").latency), ((2, 1, 0), Some(ms(200))));
    world.now = 5000;
    assert_eq!(world.tell("a", Flight::handle_timeout), []);
}
