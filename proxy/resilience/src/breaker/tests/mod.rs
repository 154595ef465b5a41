mod naive;
mod table;

use super::*;

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The row of the worked numbers: Count 10, minimum 5, failure 50 %, open 10 s, 3 probes.
pub(super) fn worked() -> Settings {
    Settings { window: WindowKind::Count(10), minimum_calls: 5, probes: 3, ..Settings::default() }
}

pub(super) fn breaker(settings: Settings) -> Breaker {
    Breaker::new(Config::new(settings).unwrap(), 7)
}

fn call(breaker: &mut Breaker, outcome: Outcome, ms: u64) {
    let ticket = breaker.try_acquire(Asker::First, at(ms)).unwrap();
    breaker.record(ticket, outcome, at(ms));
}

pub(super) fn opened(settings: Settings) -> Breaker {
    let mut breaker = breaker(settings);
    for _ in 0..settings.minimum_calls {
        call(&mut breaker, Outcome::Failure, 0);
    }
    assert_eq!(breaker.state(at(0)), State::Open);
    breaker
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let field = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        Config::new(settings).unwrap_err().field
    };
    assert_eq!(field(|s| s.window = WindowKind::Count(0)), "slidingWindowSize");
    assert_eq!(field(|s| s.window = WindowKind::Count(19)), "minimumNumberOfCalls");
    assert_eq!(field(|s| s.window = WindowKind::Time(Duration::from_millis(10))), "slidingWindowSize");
    assert_eq!(field(|s| s.minimum_calls = 0), "minimumNumberOfCalls");
    assert_eq!(field(|s| s.failure_rate = 0), "failureRateThreshold");
    assert_eq!(field(|s| s.slow_call_rate = 101), "slowCallRateThreshold");
    assert_eq!(field(|s| s.wait = Duration::ZERO), "waitDurationInOpenState");
    assert_eq!(field(|s| s.max_wait = secs(9)), "maxWaitDurationInOpenState");
    assert_eq!(field(|s| s.probes = 0), "permittedNumberOfCallsInHalfOpenState");
    assert_eq!(field(|s| s.probe_limit = Duration::ZERO), "maxWaitDurationInHalfOpenState");
}

/// worked-numbers: breaker.
#[test]
fn worked_breaker() {
    for (failed, opens) in [(2, false), (3, true)] {
        let mut breaker = breaker(worked());
        for n in 0..5 {
            assert_eq!(breaker.state(at(0)), State::Closed, "not before the fifth");
            call(&mut breaker, if n < failed { Outcome::Failure } else { Outcome::Success }, 0);
        }
        assert_eq!(breaker.state(at(0)) == State::Open, opens);
    }
    let mut breaker = opened(worked());
    let refused = breaker.try_acquire(Asker::First, at(9_999)).unwrap_err();
    assert_eq!((refused.reason, refused.retry_at), (Reason::CircuitOpen, Some(at(10_000))));
    assert_eq!((refused.observed, refused.limit), (100, 50));
    assert_eq!(refused.cause, Some(rejection::Cause::Breaker(Cause::FailureRate)));

    // At 10 s three pass and no fourth; one failure opens again.
    let probes: Vec<_> = (0..3).map(|_| breaker.try_acquire(Asker::First, at(10_000)).unwrap()).collect();
    let refused = breaker.try_acquire(Asker::First, at(10_000)).unwrap_err();
    assert_eq!((refused.cause, refused.retry_at), (Some(rejection::Cause::Breaker(Cause::WaitOver)), None));
    assert_eq!((refused.observed, refused.limit), (3, 3), "places for probes");
    for (probe, outcome) in probes.into_iter().zip([Outcome::Success, Outcome::Failure, Outcome::Success]) {
        breaker.record(probe, outcome, at(10_100));
    }
    assert_eq!(breaker.state(at(10_100)), State::Open);
    let refused = breaker.try_acquire(Asker::First, at(10_100)).unwrap_err();
    assert_eq!(refused.cause, Some(rejection::Cause::Breaker(Cause::ProbeFailed)));
    assert_eq!((refused.observed, refused.limit), (0, 0), "what first opened it is no longer why");
    let again = breaker.retry_at().unwrap();
    assert!(again >= at(20_100) && again <= at(30_100), "{again:?}: up to twice the first wait");

    // Three good ones close it, and the counts start afresh.
    let probes: Vec<_> = (0..3).map(|_| breaker.try_acquire(Asker::First, again).unwrap()).collect();
    for probe in probes {
        assert_eq!(breaker.state(again), State::HalfOpen);
        breaker.record(probe, Outcome::Success, again);
    }
    assert_eq!((breaker.state(again), breaker.counts(again)), (State::Closed, Counts::default()));
}

/// worked-numbers: breaker, slow (threshold 2 s is the caller's affair, 60 % is ours).
#[test]
fn worked_breaker_slow() {
    let mut breaker = breaker(Settings { slow_call_rate: 60, ..worked() });
    for n in 0..5 {
        let mut ticket = breaker.try_acquire(Asker::First, at(n)).unwrap();
        if n < 3 {
            breaker.mark_slow(&mut ticket, at(2000 + n));
        }
        breaker.record(ticket, Outcome::Success, at(2500 + n));
    }
    let opening = breaker.poll_event().unwrap();
    assert_eq!((opening.to, opening.cause), (State::Open, Cause::SlowCallRate));
    assert_eq!(opening.counts, Counts { calls: 5, failed: 0, slow: 3 });
}

/// worked-numbers: breaker, hung: open soon after the threshold, while all 20 callers still wait.
#[test]
fn worked_breaker_hung() {
    let mut breaker = breaker(Settings::default());
    let mut tickets: Vec<_> = (0..20).map(|_| breaker.try_acquire(Asker::First, at(0)).unwrap()).collect();
    for ticket in &mut tickets {
        assert_eq!(breaker.state(at(600)), State::Closed);
        breaker.mark_slow(ticket, at(600));
    }
    assert_eq!(breaker.state(at(600)), State::Open);
    // What becomes of them later changes nothing.
    for ticket in tickets {
        breaker.record(ticket, Outcome::Timeout, at(10_000));
    }
    assert_eq!((breaker.tickets_out(), breaker.retry_at()), (0, Some(at(10_600))));
}

/// worked-numbers: breaker: pushback, local refusals and cancels are never counted.
#[test]
fn worked_breaker_not_counted() {
    let mut breaker = breaker(Settings { consecutive_failures: 2, ..worked() });
    for n in 0..1000 {
        call(&mut breaker, if n % 2 == 0 { Outcome::Pushback } else { Outcome::Cancelled }, n);
    }
    assert_eq!((breaker.state(at(1000)), breaker.counts(at(1000))), (State::Closed, Counts::default()));
}

/// worked-numbers: breaker, quiet: one good call a minute closes it at the third.
#[test]
fn worked_breaker_quiet() {
    let mut breaker = opened(worked());
    while breaker.poll_event().is_some() {}
    for minute in 1..=3 {
        assert_ne!(breaker.state(at(minute * 60_000)), State::Closed);
        call(&mut breaker, Outcome::Success, minute * 60_000);
    }
    let told: Vec<_> = std::iter::from_fn(|| breaker.poll_event()).map(|change| change.to).collect();
    assert_eq!(told, [State::HalfOpen, State::Closed]);
}

#[test]
fn the_wait_grows_to_its_maximum_and_starts_again_after_closing() {
    let mut breaker = opened(worked());
    let mut previous = secs(10);
    let mut now = breaker.retry_at().unwrap();
    for doubling in 1..=8u32 {
        let probe = breaker.try_acquire(Asker::First, now).unwrap();
        breaker.record(probe, Outcome::Timeout, now);
        let wait = breaker.retry_at().unwrap().saturating_since(now);
        let ceiling = (secs(10) * 2u32.pow(doubling)).min(secs(120));
        assert!(wait >= ceiling / 2 && wait <= ceiling, "{wait:?} of {ceiling:?} after {previous:?}");
        previous = wait;
        now = breaker.retry_at().unwrap();
    }
    for _ in 0..3 {
        let probe = breaker.try_acquire(Asker::First, now).unwrap();
        breaker.record(probe, Outcome::Success, now);
    }
    for _ in 0..5 {
        let ticket = breaker.try_acquire(Asker::First, now).unwrap();
        breaker.record(ticket, Outcome::Failure, now);
    }
    assert_eq!(breaker.retry_at(), Some(now + secs(10)));
    // And grows from its beginning again.
    let now = now + secs(10);
    let probe = breaker.try_acquire(Asker::First, now).unwrap();
    breaker.record(probe, Outcome::Failure, now);
    assert!(breaker.retry_at().unwrap() <= now + secs(20));
}

#[test]
fn a_slow_entry_gains_failed_only_while_it_is_in_the_window() {
    let mut breaker =
        breaker(Settings { window: WindowKind::Count(2), minimum_calls: 2, slow_call_rate: 100, ..worked() });
    let mut hung = breaker.try_acquire(Asker::First, at(0)).unwrap();
    breaker.mark_slow(&mut hung, at(600));
    breaker.mark_slow(&mut hung, at(601));
    assert_eq!(breaker.counts(at(601)), Counts { calls: 1, failed: 0, slow: 1 });
    for ms in [700, 701] {
        call(&mut breaker, Outcome::Success, ms);
    }
    breaker.record(hung, Outcome::Timeout, at(5000));
    assert_eq!(breaker.counts(at(5000)), Counts { calls: 2, failed: 0, slow: 0 });
}

#[test]
fn a_stream_is_good_at_its_head_and_may_fail_later() {
    let mut breaker = breaker(worked());
    let mut stream = breaker.try_acquire(Asker::First, at(0)).unwrap();
    breaker.mark_begun(&mut stream, at(10));
    assert_eq!(breaker.counts(at(10)), Counts { calls: 1, failed: 0, slow: 0 });
    breaker.record(stream, Outcome::Failure, at(20));
    assert_eq!(breaker.counts(at(20)), Counts { calls: 1, failed: 1, slow: 0 });

    // As a probe it holds no place once it has begun, and an hour of streaming is no overdue probe.
    let mut breaker = opened(worked());
    let mut streams: Vec<_> = (0..2).map(|_| breaker.try_acquire(Asker::First, at(10_000)).unwrap()).collect();
    for stream in &mut streams {
        breaker.mark_begun(stream, at(10_001));
        breaker.mark_overdue(stream, at(20_001));
    }
    assert_eq!(breaker.state(at(20_001)), State::HalfOpen);
    let last = breaker.try_acquire(Asker::First, at(20_001)).unwrap();
    breaker.record(streams.pop().unwrap(), Outcome::Cancelled, at(20_002));
    breaker.record(last, Outcome::Success, at(20_002));
    assert_eq!(breaker.state(at(20_002)), State::Closed);
    breaker.record(streams.pop().unwrap(), Outcome::Failure, at(3_600_000));
    assert_eq!(breaker.counts(at(3_600_000)), Counts::default(), "of an older epoch");
}

#[test]
fn a_probe_that_never_ends_opens_again_and_blocks_nothing() {
    let mut breaker = opened(worked());
    let mut hung = breaker.try_acquire(Asker::First, at(10_000)).unwrap();
    assert!(breaker.is_probe(&hung));
    breaker.mark_overdue(&mut hung, at(20_000));
    assert_eq!(breaker.state(at(20_000)), State::Open);
    let again = breaker.retry_at().unwrap();
    for _ in 0..3 {
        let probe = breaker.try_acquire(Asker::First, again).unwrap();
        breaker.record(probe, Outcome::Success, again);
    }
    assert_eq!(breaker.state(again), State::Closed);
    breaker.record(hung, Outcome::Success, again);
    assert_eq!(breaker.counts(again), Counts::default());
}

#[test]
fn other_numbers_hold_at_once_and_another_window_counts_afresh() {
    let mut breaker = breaker(worked());
    for _ in 0..4 {
        call(&mut breaker, Outcome::Failure, 0);
    }
    let running = breaker.try_acquire(Asker::First, at(0)).unwrap();
    breaker.reconfigure(Config::new(Settings { probes: 1, ..worked() }).unwrap(), at(1));
    assert_eq!(breaker.counts(at(1)).calls, 4, "a number changes in place");
    let other = Settings { window: WindowKind::Time(secs(30)), ..worked() };
    breaker.reconfigure(Config::new(other).unwrap(), at(1));
    breaker.record(running, Outcome::Failure, at(1));
    assert_eq!((breaker.counts(at(1)), breaker.tickets_out()), (Counts::default(), 0));

    // Open stays open for its time; fewer probes than have succeeded already close it.
    let mut breaker = opened(worked());
    breaker.reconfigure(Config::new(other).unwrap(), at(1));
    assert_eq!((breaker.state(at(9_999)), breaker.retry_at()), (State::Open, Some(at(10_000))));
    for _ in 0..2 {
        call(&mut breaker, Outcome::Success, 10_000);
    }
    breaker.reconfigure(Config::new(Settings { probes: 2, ..other }).unwrap(), at(10_001));
    assert_eq!(breaker.state(at(10_001)), State::Closed);
}

#[test]
fn the_worst_jumps_of_the_clock_harm_nothing() {
    let mut breaker = opened(Settings { window: WindowKind::Time(secs(30)), ..worked() });
    assert!(breaker.check(Asker::First, Timestamp::ZERO).is_err());
    let mut probe = breaker.try_acquire(Asker::First, Timestamp::MAX).unwrap();
    breaker.mark_slow(&mut probe, Timestamp::ZERO);
    breaker.record(probe, Outcome::Success, Timestamp::MAX);
    breaker.force(Forced::Open, Timestamp::MAX, at(5));
    breaker.force(Forced::Auto, Timestamp::ZERO, Timestamp::ZERO);
    assert_eq!(breaker.state(Timestamp::ZERO), State::HalfOpen);
}
