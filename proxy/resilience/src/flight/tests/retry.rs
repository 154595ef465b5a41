//! What is tried again, what is not, and what the caller gets then.

use super::*;
use crate::rules::{Methods, OnRetriedInbound, RetryAfterRules};

fn config() -> ProtectionConfig {
    ProtectionConfig { bulkhead: bulkhead(1, 0, 0), breaker: breaker(), ..ProtectionConfig::default() }
}

fn retry(change: impl Fn(&mut RetryRules)) -> Arc<Rules> {
    rules_with(|rules| {
        if let Some(retry) = &mut rules.retry {
            change(&mut retry.config);
        }
    })
}

#[test]
fn an_answer_is_kept_and_its_permit_is_free_during_the_back_off() {
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |_| {});
    assert!(world.flight("a").may_be_retried());
    world.send("a");
    assert_eq!(world.head("a", unavailable()), [Action::Keep]);
    assert_eq!((world.in_flight(), world.flight("a").next_timeout()), (0, Some(at(100))));
    assert_eq!(world.good_call("other", 10), [first(), Action::Deliver, Action::Done]);
    assert_eq!(world.time_out("a"), [again(2)]);
    assert_eq!(world.now, 100);
    world.send("a");
    world.now = 130;
    assert_eq!(world.head("a", ok()), [Action::Deliver]);
    assert!(!world.summary("a").retries_over);
    assert_eq!(world.ended("a"), [Action::Done]);
    let summary = world.summary("a");
    assert_eq!((summary.attempts, summary.first), (2, Some(Outcome::Failure)));
    assert_eq!((summary.retries, summary.latency), ([1, 0, 0, 0, 0], Some(ms(30))));
}

#[test]
fn the_last_attempts_answer_goes_out_as_it_comes() {
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |_| {});
    for number in 2..=3 {
        world.send("a");
        assert_eq!(world.head("a", unavailable()), [Action::Keep]);
        assert_eq!(world.time_out("a"), [again(number)]);
    }
    assert!(!world.flight("a").may_be_retried());
    world.send("a");
    assert_eq!(world.head("a", unavailable()), [Action::Deliver]);
    assert!(world.summary("a").retries_over);
    assert_eq!(world.ended("a"), [Action::Done]);
    let summary = world.summary("a");
    assert_eq!((summary.attempts, summary.retry_denied, summary.reason), (3, Some(RetryDenied::Attempts), None));
}

#[test]
fn without_any_answer_the_retries_are_exhausted() {
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |_| {});
    world.picked("a");
    for number in 2..=3 {
        assert_eq!(world.failed("a", Failure::Connect), []);
        assert_eq!(world.time_out("a"), [again(number)]);
        world.picked("a");
    }
    let [Action::Reject(rejection), Action::Done] = world.failed("a", Failure::Connect)[..] else { panic!("rejected") };
    assert_eq!(
        (rejection.reason, rejection.cause),
        (Reason::RetriesExhausted, Some(Cause::Attempt(Reason::ConnectFailure)))
    );
    assert_eq!((rejection.block, rejection.observed, rejection.limit), (Block::Retry, 3, 3), "attempts");
    assert!(world.summary("a").retries_over);
}

#[test]
fn the_last_answer_there_was_goes_out_when_the_last_attempt_has_none() {
    let mut world = World::new(&config(), retry(|rules| rules.max_attempts = 2));
    world.start("a", |_| {});
    world.send("a");
    world.head("a", unavailable());
    world.time_out("a");
    world.picked("a");
    let if_cut = Reason::RetriesExhausted;
    assert_eq!(world.failed("a", Failure::Connect), [Action::DeliverKept { if_cut }, Action::Done]);
    assert_eq!(world.summary("a").reason, None, "the dependency's answer went out");
}

#[test]
fn only_what_may_be_repeated_is_repeated_once_it_was_sent() {
    let post = |call: &mut Call| call.safety = Safety::Unsafe;
    let put = |call: &mut Call| call.safety = Safety::Idempotent;
    let keyed = |call: &mut Call| {
        call.safety = Safety::Unsafe;
        call.idempotency_key = true;
    };
    let get = |_: &mut Call| {};
    type Change = fn(&mut Call);
    let calls: [(Change, [bool; 3]); 4] = [
        (get, [true, true, true]),
        (put, [false, true, true]),
        (keyed, [false, true, true]),
        (post, [false, false, true]),
    ];
    for (change, allowed) in calls {
        for (methods, allowed) in [Methods::Safe, Methods::Idempotent, Methods::Any].into_iter().zip(allowed) {
            for failure in [None, Some(Failure::Reset)] {
                let mut world = World::new(&config(), retry(|rules| rules.methods = methods));
                world.start("a", change);
                assert_eq!(world.flight("a").may_be_retried(), allowed);
                world.send("a");
                match failure {
                    None => _ = world.head("a", unavailable()),
                    Some(failure) => _ = world.failed("a", failure),
                }
                let denied = (!allowed).then_some(RetryDenied::Unsafe);
                assert_eq!(world.summary("a").retry_denied, denied, "{methods:?}");
                if failure.is_some() && !allowed {
                    assert_eq!(world.summary("a").reason, Some(Reason::UpstreamReset));
                    assert!(!world.summary("a").retries_over);
                }
            }
            // What was not sent is tried again, whatever it is.
            let mut world = World::new(&config(), retry(|rules| rules.methods = methods));
            world.start("a", change);
            world.picked("a");
            assert_eq!(world.failed("a", Failure::Connect), []);
            assert_eq!(world.time_out("a"), [again(2)]);
        }
    }
}

#[test]
fn a_dead_pooled_connection_costs_one_fresh_try_and_nothing_else() {
    // No retry block, a POST, one permit: the fresh try keeps the permit and is the same attempt.
    let mut world = World::new(&config(), rules_with(|rules| rules.retry = None));
    world.start("a", |call| call.safety = Safety::Unsafe);
    world.tell("a", |flight, protection, now| {
        flight.handle_picked(EndpointKey(1), protection, now);
        flight.handle_connected(now);
    });
    let fresh = Attempt { number: 1, kind: AttemptKind::First, fresh_connection: true, avoid: None };
    assert_eq!(world.failed("a", Failure::NotSent), [Action::Attempt(fresh)]);
    assert_eq!((world.in_flight(), world.summary("a").attempts), (1, 0));
    world.picked("a");
    // A second time it is a failure like others.
    assert_eq!(rejected(&world.failed("a", Failure::NotSent)), Reason::UpstreamReset);
    let summary = world.summary("a");
    assert_eq!((summary.attempts, summary.first), (1, Some(Outcome::Failure)));
    let view = world.protection.view(at(0));
    assert_eq!((view.breakers[0].counts.calls, view.budget.retries, view.budget.calls), (1, 0, 1));
}

#[test]
fn after_a_byte_was_written_a_reset_is_unknown_on_a_reused_connection_too() {
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |call| call.safety = Safety::Unsafe);
    world.send("a");
    assert_eq!(rejected(&world.failed("a", Failure::NotSent)), Reason::UpstreamReset);
    assert_eq!(world.summary("a").attempts, 1);
}

#[test]
fn the_answer_has_a_say() {
    let mut world =
        World::new(&config(), retry(|rules| rules.retry_after = RetryAfterRules { honor: true, max: ms(2000) }));
    let head = |change: fn(&mut Head)| {
        let mut head = unavailable();
        change(&mut head);
        head
    };
    // Later than the dependency asks, not sooner.
    world.start("a", |_| {});
    world.send("a");
    assert_eq!(world.head("a", head(|head| head.retry_after = Some(ms(2000)))), [Action::Keep]);
    assert_eq!(world.flight("a").next_timeout(), Some(at(2000)));
    world.gone("a");
    for (answer, denied) in [
        (head(|head| head.retry_after = Some(ms(2001))), RetryDenied::RetryAfter),
        (head(|head| head.no_retry = true), RetryDenied::Forbidden),
    ] {
        world.start("a", |_| {});
        world.send("a");
        assert_eq!(world.head("a", answer), [Action::Deliver]);
        assert_eq!(world.summary("a").retry_denied, Some(denied));
        assert!(world.summary("a").retries_over);
        world.ended("a");
    }
    // 429 is worth a retry only if it says when.
    let limited = head(|head| (head.status, head.failure, head.pushback) = (429, false, true));
    world.start("a", |_| {});
    world.send("a");
    assert_eq!(world.head("a", limited), [Action::Deliver]);
    world.ended("a");
    assert_eq!(world.summary("a").first, Some(Outcome::Pushback));
    world.start("a", |_| {});
    world.send("a");
    assert_eq!(world.head("a", Head { retry_after: Some(ms(1)), ..limited }), [Action::Keep]);
    world.gone("a");
}

#[test]
fn no_retry_is_begun_that_cannot_end_in_time() {
    let mut world = World::new(&config(), retry(|_| {}));
    world.protection.set_median_latency(Some(ms(50)));
    for (deadline, action) in [(150, Action::Deliver), (151, Action::Keep)] {
        world.start("a", |call| call.caller_deadline = Some(at(deadline)));
        world.send("a");
        assert_eq!(world.head("a", unavailable()), [action]);
        world.gone("a");
    }
    assert_eq!(world.protection.view(at(0)).budget.retries, 0, "the token of the second came back");
}

#[test]
fn a_body_that_outgrew_its_buffer_and_a_call_that_is_a_retry_are_not_sent_again() {
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |_| {});
    world.send("a");
    world.tell("a", |flight, _, _| flight.handle_unrepeatable());
    assert!(!world.flight("a").may_be_retried());
    assert_eq!(world.head("a", unavailable()), [Action::Deliver]);
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::Body));
    world.ended("a");

    for (rule, action) in [(OnRetriedInbound::NoRetry, Action::Deliver), (OnRetriedInbound::Retry, Action::Keep)] {
        let mut world = World::new(&config(), retry(|rules| rules.on_retried_inbound = rule));
        world.start("a", |call| call.retried_inbound = true);
        assert_eq!(world.flight("a").may_be_retried(), rule == OnRetriedInbound::Retry);
        world.send("a");
        assert_eq!(world.head("a", unavailable()), [action]);
        assert!(!world.summary("a").retries_over, "who retries may go on");
    }
}

#[test]
fn an_empty_budget_leaves_the_caller_the_original_answer() {
    let budget = crate::budget::Config::new(50, Duration::from_secs(10), 0).unwrap();
    let mut world = World::new(&ProtectionConfig { budget, ..ProtectionConfig::default() }, retry(|_| {}));
    for (name, action) in [("a", Action::Deliver), ("b", Action::Keep)] {
        world.start(name, |_| {});
        world.send(name);
        assert_eq!(world.head(name, unavailable()), [action]);
    }
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::Budget));
    assert!(world.summary("a").retries_over);
    // Without an answer to pass on, the budget is the reason.
    world.start("d", |_| {});
    world.picked("d");
    let [Action::Reject(rejection), Action::Done] = world.failed("d", Failure::Dns)[..] else { panic!("rejected") };
    assert_eq!(
        (rejection.reason, rejection.cause),
        (Reason::RetryBudgetExhausted, Some(Cause::Attempt(Reason::DnsFailure)))
    );
    assert_eq!((rejection.block, rejection.observed, rejection.limit), (Block::Retry, 1, 1), "retries of the interval");
}

#[test]
fn a_retry_refused_after_its_back_off_gives_its_token_back() {
    let if_cut = Reason::RetriesExhausted;
    // By the bulkhead.
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |_| {});
    world.send("a");
    world.head("a", unavailable());
    world.start("b", |_| {});
    assert_eq!(world.time_out("a"), [Action::DeliverKept { if_cut }, Action::Done]);
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::Bulkhead));
    assert_eq!(world.protection.view(at(world.now)).budget.retries, 0);
    world.gone("b");

    // By the breaker, which opened meanwhile; the failure had no answer, so the caller hears of that failure.
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |_| {});
    world.picked("a");
    world.failed("a", Failure::Connect);
    for _ in 0..4 {
        world.bad_call("b");
    }
    let [Action::Reject(rejection), Action::Done] = world.time_out("a")[..] else { panic!("rejected") };
    assert_eq!((rejection.reason, world.summary("a").attempts), (Reason::ConnectFailure, 1));
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::CircuitOpen));
    assert_eq!(world.protection.view(at(world.now)).budget.retries, 0);

    // By the shell, which finds that the way leads back to us: before a connection is there, and on a dead one.
    for connected in [false, true] {
        let mut world = World::new(&config(), retry(|_| {}));
        world.start("a", |_| {});
        world.send("a");
        world.head("a", unavailable());
        world.time_out("a");
        world.picked("a");
        if connected {
            world.tell("a", |flight, _, now| flight.handle_connected(now));
            assert!(matches!(world.failed("a", Failure::NotSent)[..], [Action::Attempt(_)]));
        }
        assert_eq!(world.protection.view(at(world.now)).budget.retries, 1);
        let refused = world.tell("a", |flight, protection, now| {
            flight.handle_refused(Rejected::new(Reason::Loop, 0, 0), Block::Target, protection, now);
        });
        assert_eq!(refused, [Action::DeliverKept { if_cut }, Action::Done]);
        assert_eq!((world.summary("a").attempts, world.protection.view(at(world.now)).budget.retries), (1, 0));
    }

    // By the lack of an endpoint.
    let mut world = World::new(&config(), retry(|_| {}));
    world.start("a", |_| {});
    world.send("a");
    world.head("a", unavailable());
    world.time_out("a");
    let actions = world.tell("a", |flight, protection, now| {
        flight.handle_no_endpoint(false, protection, now);
    });
    assert_eq!(actions, [Action::DeliverKept { if_cut }, Action::Done]);
    assert_eq!(world.summary("a").attempts, 1, "the second was not made");
    assert_eq!(world.protection.view(at(world.now)).budget.retries, 0);
}

#[test]
fn a_retry_is_no_probe() {
    let mut world = World::new(&config(), retry(|_| {}));
    for _ in 0..5 {
        world.bad_call("bad");
    }
    world.now = 10_000;
    world.start("a", |_| {});
    world.send("a");
    // A probe that fails opens the breaker again, and its retry with it; a half-open one would refuse it too.
    assert_eq!(world.head("a", unavailable()), [Action::Deliver]);
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::CircuitOpen));
    world.ended("a");
    assert_eq!(world.state(), breaker::State::Open);
}

#[test]
fn retries_wait_behind_first_attempts() {
    let config = ProtectionConfig { bulkhead: bulkhead(1, 9, 5000), ..ProtectionConfig::default() };
    let mut world = World::new(&config, retry(|_| {}));
    world.start("a", |_| {});
    world.send("a");
    world.head("a", unavailable());
    world.start("b", |_| {});
    assert_eq!(world.time_out("a"), [Action::Await]);
    world.start("c", |_| {});
    world.gone("b");
    assert_eq!(world.woken(), ["c"]);
    world.tell("c", Flight::handle_woken);
    world.gone("c");
    assert_eq!(world.woken(), ["a"]);
    assert_eq!(world.tell("a", Flight::handle_woken), [again(2)]);
}

#[test]
fn a_failure_that_opens_the_breaker_is_not_tried_again() {
    let mut world = World::new(&config(), retry(|_| {}));
    for _ in 0..4 {
        world.bad_call("bad");
    }
    world.start("a", |_| {});
    world.send("a");
    assert_eq!(world.head("a", unavailable()), [Action::Deliver]);
    assert_eq!((world.state(), world.in_flight()), (breaker::State::Open, 1), "its permit is held to the last byte");
    assert_eq!(world.summary("a").retry_denied, Some(RetryDenied::CircuitOpen));
    assert_eq!(world.ended("a"), [Action::Done]);
}
