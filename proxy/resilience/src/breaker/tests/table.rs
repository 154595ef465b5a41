//! Every state and every event, as a table that a person has read.

use std::fmt::Write;

use super::*;

/// The states that differ in what they answer, each with a ticket that was issued in it where one can be.
fn states() -> Vec<(&'static str, Breaker, Option<Ticket>)> {
    let mut rows = Vec::new();
    let mut closed = breaker(worked());
    let ticket = closed.try_acquire(Asker::First, at(0)).unwrap();
    rows.push(("Closed", closed, Some(ticket)));

    let mut brink = breaker(worked());
    for _ in 0..4 {
        call(&mut brink, Outcome::Failure, 0);
    }
    let ticket = brink.try_acquire(Asker::First, at(0)).unwrap();
    rows.push(("Closed, 4 of 4 failed", brink, Some(ticket)));

    let mut brink = breaker(Settings { failure_rate: 100, ..worked() });
    for _ in 0..4 {
        let mut ticket = brink.try_acquire(Asker::First, at(0)).unwrap();
        brink.mark_slow(&mut ticket, at(0));
        brink.record(ticket, Outcome::Success, at(0));
    }
    let ticket = brink.try_acquire(Asker::First, at(0)).unwrap();
    rows.push(("Closed, 4 of 4 slow", brink, Some(ticket)));

    rows.push(("Open", opened(Settings { wait: secs(60), ..worked() }), None));
    rows.push(("Open, wait over", opened(worked()), None));

    for (name, others, good) in
        [("HalfOpen, 1 probe", 0, 0), ("HalfOpen, all places", 2, 0), ("HalfOpen, 2 good", 0, 2)]
    {
        let mut half = opened(worked());
        for _ in 0..good {
            call(&mut half, Outcome::Success, 10_000);
        }
        let ticket = half.try_acquire(Asker::First, at(10_000)).unwrap();
        for _ in 0..others {
            let _running = half.try_acquire(Asker::First, at(10_000)).unwrap();
        }
        rows.push((name, half, Some(ticket)));
    }

    let mut forced = breaker(worked());
    forced.force(Forced::Open, at(60_000), at(0));
    rows.push(("ForcedOpen", forced, None));
    let mut forced = breaker(worked());
    forced.force(Forced::Open, at(1000), at(0));
    rows.push(("ForcedOpen, ttl over", forced, None));
    let mut forced = opened(worked());
    forced.force(Forced::Closed, at(60_000), at(0));
    for _ in 0..4 {
        call(&mut forced, Outcome::Failure, 0);
    }
    let ticket = forced.try_acquire(Asker::First, at(0)).unwrap();
    rows.push(("ForcedClosed, 4 of 4 failed", forced, Some(ticket)));
    rows
}

type Event = (&'static str, fn(&mut Breaker, Option<Ticket>, Timestamp) -> Option<String>);

fn ended(breaker: &mut Breaker, ticket: Option<Ticket>, outcome: Outcome, now: Timestamp) -> Option<String> {
    breaker.record(ticket?, outcome, now);
    Some(String::new())
}

const EVENTS: [Event; 15] = [
    ("first attempt asks", |b, _, now| Some(answer(b.try_acquire(Asker::First, now).map(drop)))),
    ("retry asks", |b, _, now| Some(answer(b.try_acquire(Asker::Retry, now).map(drop)))),
    ("success", |b, t, now| ended(b, t, Outcome::Success, now)),
    ("failure", |b, t, now| ended(b, t, Outcome::Failure, now)),
    ("timeout", |b, t, now| ended(b, t, Outcome::Timeout, now)),
    ("pushback", |b, t, now| ended(b, t, Outcome::Pushback, now)),
    ("cancelled", |b, t, now| ended(b, t, Outcome::Cancelled, now)),
    ("runs past slow", |b, t, now| {
        b.mark_slow(&mut t?, now);
        Some(String::new())
    }),
    ("stream begins", |b, t, now| {
        b.mark_begun(&mut t?, now);
        Some(String::new())
    }),
    ("a turn ends", |b, _, now| {
        b.record_turn(false, now);
        Some(String::new())
    }),
    ("a turn is slow", |b, _, now| {
        b.record_turn(true, now);
        Some(String::new())
    }),
    ("probe limit", |b, t, now| {
        b.mark_overdue(&mut t?, now);
        Some(String::new())
    }),
    ("force open", |b, _, now| force(b, Forced::Open, now)),
    ("force closed", |b, _, now| force(b, Forced::Closed, now)),
    ("force auto", |b, _, now| force(b, Forced::Auto, now)),
];

fn answer(result: Result<(), Rejected>) -> String {
    match result {
        Ok(()) => "passes".into(),
        Err(Rejected { cause, retry_at, observed, limit, .. }) => {
            let cause = cause.map_or("nothing", rejection::Cause::as_str);
            let until = retry_at.map_or(String::new(), |at| format!(" until {at:?}"));
            format!("refused{until}: {cause} {observed}/{limit}")
        }
    }
}

fn force(breaker: &mut Breaker, forced: Forced, now: Timestamp) -> Option<String> {
    breaker.force(forced, now + secs(60), now);
    Some(String::new())
}

fn table() -> String {
    let mut table = String::new();
    let now = at(20_000);
    for index in 0..states().len() {
        let (name, ..) = states().swap_remove(index);
        writeln!(table, "{name}").unwrap();
        for (event, happen) in EVENTS {
            let (_, mut breaker, ticket) = states().swap_remove(index);
            while breaker.poll_event().is_some() {}
            let Some(answer) = happen(&mut breaker, ticket, now) else {
                continue;
            };
            let mut cell = answer;
            while let Some(Transition { from, to, cause, .. }) = breaker.poll_event() {
                let gap = if cell.is_empty() { "" } else { "; " };
                write!(cell, "{gap}{} -> {} ({})", from.as_str(), to.as_str(), cause.as_str()).unwrap();
            }
            let Counts { calls, failed, slow } = breaker.counts(now);
            let gap = if cell.is_empty() { "" } else { "; " };
            writeln!(table, "  {event:18} {cell}{gap}window {calls}/{failed}/{slow}").unwrap();
        }
    }
    table
}

#[test]
fn every_state_and_every_event() {
    insta::assert_snapshot!(table());
}
