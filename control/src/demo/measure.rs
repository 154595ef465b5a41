//! What the customers saw: every call with its times, kept whole, so that any stretch of the run can be judged exactly.
//!
//! A few thousand calls fit in memory many times over; sorting them is simpler than a histogram and has no error.
//! A call belongs to the stretch in which it *began*. One that is still open counts as old as it is: leaving it out
//! would hide just the calls that are stuck.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What "at the moment" means: long enough for a percentile, short enough to see things change.
const RECENT: Duration = Duration::from_secs(3);

/// How a call ended for the customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Paid.
    Paid,
    /// Told at once or later that it cannot be done.
    Refused,
    /// Every attempt ran out of the customer's patience.
    GaveUp,
}

/// One call of a customer, whatever number of attempts it took.
#[derive(Clone, Debug)]
struct Call {
    rail: usize,
    began: Duration,
    ended: Option<(Duration, End)>,
    /// When it was tried again.
    retries: Vec<Duration>,
}

/// All calls of a run. Clones are the same ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    origin: Instant,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// A call in the ledger.
#[derive(Clone, Copy, Debug)]
pub struct CallId(usize);

/// A part of the run, from its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Calls that began at or after this.
    pub from: Duration,
    /// And before this.
    pub to: Duration,
}

/// A stretch's calls to some rails in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Calls that began.
    pub calls: u64,
    /// Attempts beyond the first of each.
    pub retries: u64,
    /// Refused, given up.
    pub failed: u64,
    /// Still open when asked.
    pub open: u64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

/// How one rail does at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recent {
    /// Calls and repeated calls that customers began.
    pub tries_per_second: f64,
    /// Calls that ended well.
    pub paid_per_second: f64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

impl Ledger {
    /// An empty one; time counts from now.
    pub fn new() -> Ledger {
        Ledger { origin: Instant::now(), calls: Arc::default() }
    }

    /// Time since the origin.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// A customer calls.
    pub fn begin(&self, rail: usize) -> CallId {
        let began = self.now();
        let mut calls = self.lock();
        calls.push(Call { rail, began, ended: None, retries: Vec::new() });
        CallId(calls.len() - 1)
    }

    /// And tries again.
    pub fn retry(&self, CallId(id): CallId) {
        let now = self.now();
        self.lock()[id].retries.push(now);
    }

    /// And is done.
    pub fn end(&self, CallId(id): CallId, end: End) {
        let now = self.now();
        self.lock()[id].ended = Some((now, end));
    }

    /// The customers go home: whatever is open ends here.
    pub fn abandon(&self) {
        let now = self.now();
        for call in self.lock().iter_mut() {
            call.ended.get_or_insert((now, End::GaveUp));
        }
    }

    /// The calls of `stretches` to the rails that `wanted` names, as they stand now.
    pub fn figures(&self, stretches: &[Stretch], wanted: impl Fn(usize) -> bool) -> Figures {
        let now = self.now();
        let within = |call: &Call| stretches.iter().any(|s| s.from <= call.began && call.began < s.to);
        let calls = self.lock();
        figures(calls.iter().filter(|call| wanted(call.rail) && within(call)), now)
    }

    /// How things are at the moment: of the calls that began at `since` or later, what ended in the last [`RECENT`] or
    /// is still open.
    pub fn recent(&self, since: Duration, rail: usize) -> Recent {
        let now = self.now();
        let fresh = |at: Duration| at + RECENT >= now;
        let span = RECENT.min(now.saturating_sub(since));
        // Of the very first moments no rate can be told: one call in a millisecond is not a thousand a second.
        let per_second = |n: usize| n as f64 / span.as_secs_f64().max(1.0);
        let calls = self.lock();
        let of_rail = || calls.iter().filter(|call| call.rail == rail && call.began >= since);
        let tries =
            of_rail().flat_map(|call| std::iter::once(&call.began).chain(&call.retries)).filter(|at| fresh(**at));
        let paid = of_rail().filter(|call| matches!(call.ended, Some((at, End::Paid)) if fresh(at)));
        let seen = figures(of_rail().filter(|call| call.ended.is_none_or(|(at, _)| fresh(at))), now);
        Recent {
            tries_per_second: per_second(tries.count()),
            paid_per_second: per_second(paid.count()),
            p50: seen.p50,
            p99: seen.p99,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().expect("nothing panics while it holds this lock")
    }
}

fn figures<'a>(calls: impl Iterator<Item = &'a Call>, now: Duration) -> Figures {
    let mut figures = Figures::default();
    let mut times = Vec::new();
    for call in calls {
        figures.calls += 1;
        figures.retries += call.retries.len() as u64;
        match call.ended {
            None => figures.open += 1,
            Some((_, End::Paid)) => {}
            Some((_, End::Refused | End::GaveUp)) => figures.failed += 1,
        }
        let until = call.ended.map_or(now, |(at, _)| at);
        times.push(until.saturating_sub(call.began));
    }
    times.sort_unstable();
    figures.p50 = percentile(&times, 50);
    figures.p99 = percentile(&times, 99);
    figures
}

/// The smallest time that at least `percent` of all do not exceed; zero of none.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Stretch = Stretch { from: Duration::ZERO, to: Duration::MAX };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn call(rail: usize, began: u64, ended: Option<(u64, End)>, retries: &[u64]) -> Call {
        Call {
            rail,
            began: ms(began),
            ended: ended.map(|(at, end)| (ms(at), end)),
            retries: retries.iter().copied().map(ms).collect(),
        }
    }

    #[test]
    fn percentiles_are_exact() {
        let times: Vec<_> = (1..=200).map(ms).collect();
        assert_eq!(percentile(&times, 50), ms(100));
        assert_eq!(percentile(&times, 99), ms(198));
        assert_eq!(percentile(&times[..1], 99), ms(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn an_open_call_counts_as_old_as_it_is() {
        let calls = [
            call(0, 0, Some((50, End::Paid)), &[]),
            call(0, 10, None, &[3010, 6010]),
            call(0, 20, Some((25, End::Refused)), &[]),
        ];
        let seen = figures(calls.iter(), ms(9010));
        let expected = Figures { calls: 3, retries: 2, failed: 1, open: 1, p50: ms(50), p99: ms(9000) };
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_call_belongs_to_the_stretch_it_began_in() {
        let ledger = Ledger::new();
        let early = ledger.begin(1);
        let split = ledger.now() + Duration::from_nanos(1);
        while ledger.now() <= split {}
        ledger.retry(early);
        ledger.end(early, End::GaveUp);
        ledger.begin(2);
        let before = Stretch { from: Duration::ZERO, to: split };
        let seen = ledger.figures(&[before], |_| true);
        assert_eq!((seen.calls, seen.retries, seen.failed, seen.open), (1, 1, 1, 0));
        assert_eq!(ledger.figures(&[ALL], |rail| rail == 2).open, 1);
        assert_eq!(ledger.figures(&[before, ALL], |_| true).calls, 2);
    }
}
