//! The breaker beside a model that keeps everything and recounts it each time.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Closed,
    Open(u64),
    HalfOpen,
}

struct Entry {
    bucket: u64,
    failed: bool,
    slow: bool,
}

/// What the model remembers of a ticket: the era it belongs to, and the entry it has made.
#[derive(Clone, Copy)]
struct Known {
    era: usize,
    entry: Option<usize>,
    begun: bool,
}

struct Naive {
    settings: Settings,
    phase: Phase,
    /// How often the state has changed.
    era: usize,
    entries: Vec<Entry>,
    newest: u64,
    in_row: u32,
    running: u32,
    good: u32,
}

const BUCKET_MS: u64 = 100;

impl Naive {
    fn bucket(&mut self, now: u64) -> u64 {
        self.newest = self.newest.max(now / BUCKET_MS);
        self.newest
    }

    fn counts(&self, now: u64) -> Counts {
        let newest = self.newest.max(now / BUCKET_MS);
        let skip = match self.settings.window {
            WindowKind::Count(size) => self.entries.len().saturating_sub(size as usize),
            WindowKind::Time(_) => 0,
        };
        let by_time = matches!(self.settings.window, WindowKind::Time(_));
        let inside = self.entries.iter().skip(skip).filter(|entry| !by_time || entry.bucket + 32 > newest);
        let mut counts = Counts::default();
        for entry in inside {
            counts.calls += 1;
            counts.failed += u32::from(entry.failed);
            counts.slow += u32::from(entry.slow);
        }
        counts
    }

    fn change(&mut self, phase: Phase) {
        self.phase = phase;
        self.era += 1;
        (self.running, self.good) = (0, 0);
        if phase == Phase::Closed {
            self.entries.clear();
            self.in_row = 0;
        }
    }

    fn judge(&self, now: u64) -> bool {
        let counts = self.counts(now);
        let share = |part: u32| {
            if counts.calls == 0 { 0.0 } else { f64::from(part) * 100.0 / f64::from(counts.calls) }
        };
        let enough = counts.calls >= self.settings.minimum_calls;
        let by_rate = enough
            && (share(counts.failed) >= f64::from(self.settings.failure_rate)
                || share(counts.slow) >= f64::from(self.settings.slow_call_rate));
        let by_row = self.settings.consecutive_failures > 0 && self.in_row >= self.settings.consecutive_failures;
        by_rate || by_row
    }

    fn insert(&mut self, failed: bool, slow: bool, now: u64) -> usize {
        let bucket = self.bucket(now);
        self.entries.push(Entry { bucket, failed, slow });
        self.entries.len() - 1
    }

    fn asks(&mut self, retry: bool, now: u64) -> bool {
        if matches!(self.phase, Phase::Open(until) if now >= until) {
            self.change(Phase::HalfOpen);
        }
        match self.phase {
            Phase::Closed => true,
            Phase::Open(_) => false,
            Phase::HalfOpen => !retry && self.running + self.good < self.settings.probes,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Ask { retry: bool },
    Slow(usize),
    Begun(usize),
    Overdue(usize),
    End(usize, Outcome),
    Forward(u64),
    Back(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let outcome = prop::sample::select(Outcome::ALL.to_vec());
    prop_oneof![
        8 => any::<bool>().prop_map(|retry| Op::Ask { retry }),
        2 => any::<usize>().prop_map(Op::Slow),
        1 => any::<usize>().prop_map(Op::Begun),
        1 => any::<usize>().prop_map(Op::Overdue),
        7 => (any::<usize>(), outcome).prop_map(|(n, outcome)| Op::End(n, outcome)),
        3 => (0u64..700).prop_map(Op::Forward),
        1 => (0u64..30_000).prop_map(Op::Forward),
        1 => (0u64..50).prop_map(Op::Back),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let window = prop_oneof![
        Just(WindowKind::Time(Duration::from_millis(32 * BUCKET_MS))),
        (6u32..20).prop_map(WindowKind::Count),
    ];
    (window, 1u32..6, 1u32..=100, 1u32..=100, 0u32..4, 1u32..4).prop_map(
        |(window, minimum_calls, failure_rate, slow_call_rate, consecutive_failures, probes)| Settings {
            window,
            minimum_calls,
            failure_rate,
            slow_call_rate,
            consecutive_failures,
            probes,
            wait: secs(2),
            max_wait: secs(7),
            ..Settings::default()
        },
    )
}

struct Pair {
    breaker: Breaker,
    naive: Naive,
    tickets: Vec<(Ticket, Known)>,
    now: u64,
}

impl Pair {
    /// The wait is drawn (and ends between two of the model's milliseconds): the model takes it over and checks it.
    fn reopened(&mut self) {
        let until = self.breaker.retry_at().expect("the breaker has opened too").as_nanos().div_ceil(1_000_000);
        let wait = until - self.now;
        assert!((2000..=7000).contains(&wait), "{wait} ms");
        self.naive.change(Phase::Open(until));
    }

    fn judge(&mut self) {
        if self.naive.phase == Phase::Closed && self.naive.judge(self.now) {
            self.naive.change(Phase::Open(self.now + 2000));
        }
    }

    fn ask(&mut self, retry: bool) {
        let asker = if retry { Asker::Retry } else { Asker::First };
        let ticket = self.breaker.try_acquire(asker, at(self.now));
        assert_eq!(ticket.is_ok(), self.naive.asks(retry, self.now));
        if let Ok(ticket) = ticket {
            self.naive.running += u32::from(self.naive.phase == Phase::HalfOpen);
            self.tickets.push((ticket, Known { era: self.naive.era, entry: None, begun: false }));
        }
    }

    fn mark(&mut self, n: usize, op: Op) {
        let Some(index) = n.checked_rem(self.tickets.len()) else {
            return;
        };
        let (ticket, known) = &mut self.tickets[index];
        let now = at(self.now);
        match op {
            Op::Slow(_) => self.breaker.mark_slow(ticket, now),
            Op::Begun(_) => self.breaker.mark_begun(ticket, now),
            _ => self.breaker.mark_overdue(ticket, now),
        }
        if known.era != self.naive.era || known.entry.is_some() || known.begun {
            return;
        }
        match (op, self.naive.phase) {
            (Op::Slow(_), Phase::HalfOpen) | (Op::Overdue(_), Phase::HalfOpen) => self.reopened(),
            (Op::Begun(_), Phase::HalfOpen) => {
                known.begun = true;
                self.good();
            }
            (Op::Slow(_) | Op::Begun(_), Phase::Closed) => {
                let slow = matches!(op, Op::Slow(_));
                known.entry = Some(self.naive.insert(false, slow, self.now));
                if !slow {
                    self.naive.in_row = 0;
                }
                self.judge();
            }
            _ => {}
        }
    }

    fn good(&mut self) {
        self.naive.running -= 1;
        self.naive.good += 1;
        if self.naive.good == self.naive.settings.probes {
            self.naive.change(Phase::Closed);
        }
    }

    fn end(&mut self, n: usize, outcome: Outcome) {
        let Some(index) = n.checked_rem(self.tickets.len()) else {
            return;
        };
        let (ticket, known) = self.tickets.swap_remove(index);
        self.breaker.record(ticket, outcome, at(self.now));
        if known.era != self.naive.era {
            return;
        }
        let failed = matches!(outcome, Outcome::Failure | Outcome::Timeout);
        let counts = failed || outcome == Outcome::Success;
        match self.naive.phase {
            Phase::HalfOpen if failed => self.reopened(),
            Phase::HalfOpen if known.begun => {}
            Phase::HalfOpen if counts => self.good(),
            Phase::HalfOpen => self.naive.running -= 1,
            Phase::Closed if counts => {
                match known.entry {
                    Some(entry) => {
                        if failed {
                            self.naive.bucket(self.now);
                        }
                        self.naive.entries[entry].failed |= failed;
                    }
                    None => _ = self.naive.insert(failed, false, self.now),
                }
                self.naive.in_row = if failed { self.naive.in_row + 1 } else { 0 };
                self.judge();
            }
            _ => {}
        }
    }

    fn compare(&mut self) {
        self.breaker.check_invariants();
        let phase = match self.naive.phase {
            Phase::Open(until) if self.now >= until => State::HalfOpen,
            Phase::Open(_) => State::Open,
            Phase::Closed => State::Closed,
            Phase::HalfOpen => State::HalfOpen,
        };
        assert_eq!(self.breaker.state(at(self.now)), phase);
        if phase == State::Closed {
            let counts = self.naive.counts(self.now);
            assert_eq!(self.breaker.counts(at(self.now)), counts);
        }
        assert_eq!(self.breaker.tickets_out() as usize, self.tickets.len());
    }
}

proptest! {
    #[test]
    fn it_decides_as_a_list_does(settings in settings(), ops in prop::collection::vec(op(), 1..250), seed: u64) {
        let naive = Naive {
            settings, phase: Phase::Closed, era: 0, entries: Vec::new(), newest: 0, in_row: 0, running: 0, good: 0,
        };
        let breaker = Breaker::new(Config::new(settings).unwrap(), seed);
        let mut pair = Pair { breaker, naive, tickets: Vec::new(), now: 0 };
        for op in ops {
            match op {
                Op::Forward(ms) => pair.now += ms,
                Op::Back(ms) => pair.now = pair.now.saturating_sub(ms),
                Op::Ask { retry } => pair.ask(retry),
                Op::Slow(n) | Op::Begun(n) | Op::Overdue(n) => pair.mark(n, op),
                Op::End(n, outcome) => pair.end(n, outcome),
            }
            pair.compare();
        }
    }
}
