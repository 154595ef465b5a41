use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn key(position: usize) -> EndpointKey {
    EndpointKey(position as u64)
}

fn begin(loads: &mut Loads, position: usize, now: u64) {
    assert!(loads.begin(key(position), at(now)));
}

/// Which of `count` each of 1,000 seeds picks.
fn picks(loads: &Loads, count: usize, now: u64) -> Vec<usize> {
    let mut picked = vec![0; count];
    for seed in 0..1000 {
        let position = loads.pick(count, key, |_| true, &mut Random::new(seed), at(now)).unwrap();
        picked[position] += 1;
    }
    picked
}

#[test]
fn the_one_with_least_in_flight_is_picked_and_equals_are_drawn() {
    let mut loads = Loads::default();
    let even = picks(&loads, 4, 0);
    assert!(even.iter().all(|&n| (200..300).contains(&n)), "{even:?}");
    for (position, calls) in [3, 1, 2, 1].into_iter().enumerate() {
        (0..calls).for_each(|_| begin(&mut loads, position, 0));
    }
    let picked = picks(&loads, 4, 0);
    assert_eq!((picked[0], picked[2]), (0, 0));
    assert!((450..550).contains(&picked[1]), "{picked:?}");
    loads.end(key(0), Outcome::Success, at(0));
    loads.end(key(0), Outcome::Cancelled, at(0));
    loads.end(key(0), Outcome::Success, at(0));
    assert_eq!(picks(&loads, 4, 0), [1000, 0, 0, 0]);
    assert_eq!(Loads::default().pick(0, key, |_| true, &mut Random::new(1), at(0)), None);
}

#[test]
fn who_does_not_pass_is_not_picked_however_idle() {
    let mut loads = Loads::default();
    begin(&mut loads, 1, 0);
    for count in [2, 3, 9, 100] {
        for seed in 0..200 {
            let pick = |passes: fn(EndpointKey) -> bool| loads.pick(count, key, passes, &mut Random::new(seed), at(0));
            assert_eq!(pick(|endpoint| endpoint == key(1)), Some(1), "the only one");
            assert_eq!(pick(|_| false), None);
        }
    }
}

/// Of many endpoints two are drawn: the busiest of all is never the lighter one, and everyone else has his turn.
#[test]
fn of_many_the_lighter_of_two_is_picked() {
    let mut loads = Loads::default();
    begin(&mut loads, 7, 0);
    let picked = picks(&loads, 20, 0);
    assert_eq!(picked[7], 0);
    assert!(picked.iter().enumerate().all(|(position, &n)| position == 7 || n > 20), "{picked:?}");
}

#[test]
fn a_failure_weighs_as_the_busiest_until_it_is_ten_seconds_old() {
    let mut loads = Loads::default();
    for outcome in [Outcome::Failure, Outcome::Timeout, Outcome::Pushback] {
        begin(&mut loads, 0, 0);
        loads.end(key(0), outcome, at(0));
    }
    (0..50).for_each(|_| begin(&mut loads, 1, 0));
    assert_eq!(picks(&loads, 2, 0), [0, 1000], "fifty in flight are better than a failure at once");
    assert_eq!(picks(&loads, 1, 0), [1000], "unless there is nobody else");
    assert_eq!(picks(&loads, 2, 11_000), [1000, 0], "and then it is asked again");
    // Half of its calls failed: it takes half of what the busiest has.
    (0..3).for_each(|_| begin(&mut loads, 0, 1));
    (0..3).for_each(|_| loads.end(key(0), Outcome::Success, at(1)));
    (0..23).for_each(|_| begin(&mut loads, 0, 1));
    assert_eq!(picks(&loads, 2, 1), [1000, 0], "23 + 26 of 51");
    (0..2).for_each(|_| begin(&mut loads, 0, 1));
    assert_eq!(picks(&loads, 2, 1), [0, 1000]);
}

#[test]
fn all_who_fail_are_equals_again() {
    let mut loads = Loads::default();
    for position in 0..3 {
        begin(&mut loads, position, 0);
        loads.end(key(position), Outcome::Failure, at(0));
    }
    begin(&mut loads, 0, 0);
    let picked = picks(&loads, 3, 0);
    assert_eq!(picked[0], 0);
    assert!(picked[1] > 400 && picked[2] > 400, "{picked:?}");
}

#[test]
fn endpoints_may_come_and_go_for_ever() {
    let mut loads = Loads::default();
    begin(&mut loads, 1_000_000, 0);
    // One a millisecond, each remembered for ten seconds: more than there is room for.
    for n in 0..30_000 {
        if loads.begin(key(n), at(n as u64)) {
            loads.end(key(n), Outcome::Success, at(n as u64));
        }
    }
    loads.check_invariants();
    assert!(loads.endpoints.len() <= MOST, "{}", loads.endpoints.len());
    assert_eq!(loads.view_of(key(1_000_000), at(100_000)).in_flight, 1, "in flight, so never forgotten");
    let mut loads = Loads::default();
    for n in 0..10_000 {
        begin(&mut loads, n, n as u64 * 500);
        loads.end(key(n), Outcome::Success, at(n as u64 * 500));
    }
    assert!(loads.endpoints.len() <= 50, "{}", loads.endpoints.len());
}

#[test]
fn a_table_full_of_calls_counts_no_further_endpoint() {
    let mut loads = Loads::default();
    (0..MOST).for_each(|n| begin(&mut loads, n, 0));
    assert!(!loads.begin(key(MOST), at(0)));
    assert!(loads.begin(key(0), at(0)), "one that is in it goes on");
    for n in 0..MOST {
        loads.end(key(n), Outcome::Cancelled, at(0));
    }
    assert!(!loads.begin(key(MOST), at(999)), "it is looked through once a second");
    assert!(loads.begin(key(MOST), at(1000)));
    loads.retire();
    assert_eq!(loads.endpoints.len(), 2, "only what is in flight");
    loads.check_invariants();
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Begin(u8),
    End { which: usize, outcome: u8 },
    Forward(u64),
    Back(u64),
    Pick { count: usize, seed: u64, refused: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u8..12).prop_map(Op::Begin),
        5 => (any::<usize>(), 0u8..5).prop_map(|(which, outcome)| Op::End { which, outcome }),
        3 => (0u64..2000).prop_map(Op::Forward),
        1 => (0u64..20_000).prop_map(Op::Forward),
        1 => (0u64..200).prop_map(Op::Back),
        5 => (1usize..12, any::<u64>(), any::<u8>()).prop_map(|(count, seed, refused)| Op::Pick { count, seed, refused }),
    ]
}

/// Every attempt by itself, recounted each time.
#[derive(Default)]
struct Naive {
    running: Vec<EndpointKey>,
    /// Where, in which bucket of 312.5 ms, and whether badly.
    ended: Vec<(EndpointKey, u64, bool)>,
    newest: BTreeMap<EndpointKey, u64>,
}

const BUCKET: u64 = 312_500_000;

impl Naive {
    fn end(&mut self, endpoint: EndpointKey, bad: bool, now: Timestamp) {
        let newest = self.newest.entry(endpoint).or_default();
        *newest = (*newest).max(now.as_nanos() / BUCKET);
        self.ended.push((endpoint, *newest, bad));
    }

    /// In flight, and in flight times two with the share of bad ends in it, in halves of a call, rounded down.
    fn weight(&self, endpoint: EndpointKey, busiest: u64, now: Timestamp) -> u64 {
        let head = self.newest.get(&endpoint).copied().unwrap_or(0).max(now.as_nanos() / BUCKET);
        let recent = self.ended.iter().filter(|&&(at, bucket, _)| at == endpoint && bucket + 32 > head);
        let (all, bad) = recent.fold((0u64, 0u64), |(all, bad), entry| (all + 1, bad + u64::from(entry.2)));
        let share = if all == 0 { 0.0 } else { bad as f64 / all as f64 };
        self.in_flight(endpoint) + (share * (busiest + 1) as f64).round() as u64
    }

    fn in_flight(&self, endpoint: EndpointKey) -> u64 {
        self.running.iter().filter(|&&at| at == endpoint).count() as u64
    }
}

proptest! {
    #[test]
    fn it_picks_what_a_recount_would(ops in prop::collection::vec(op(), 1..100)) {
        let (mut loads, mut naive, mut now) = (Loads::default(), Naive::default(), 0);
        for op in ops {
            match op {
                Op::Forward(ms) => now += ms,
                Op::Back(ms) => now = now.saturating_sub(ms),
                Op::Begin(n) => {
                    let endpoint = key(n.into());
                    prop_assert!(loads.begin(endpoint, at(now)));
                    naive.running.push(endpoint);
                }
                Op::End { which, outcome } => {
                    let Some(which) = which.checked_rem(naive.running.len()) else { continue };
                    let endpoint = naive.running.swap_remove(which);
                    let outcome = Outcome::ALL[usize::from(outcome)];
                    loads.end(endpoint, outcome, at(now));
                    match outcome {
                        Outcome::Cancelled => {}
                        _ => naive.end(endpoint, outcome != Outcome::Success, at(now)),
                    }
                }
                Op::Pick { count, seed, refused } => {
                    let passes = |endpoint: EndpointKey| endpoint.0 >= 8 || refused & (1 << endpoint.0) == 0;
                    let picked = loads.pick(count, key, passes, &mut Random::new(seed), at(now));
                    let allowed: Vec<EndpointKey> = (0..count).map(key).filter(|&endpoint| passes(endpoint)).collect();
                    prop_assert_eq!(picked.is_some(), !allowed.is_empty());
                    let Some(picked) = picked.map(key) else { continue };
                    prop_assert!(allowed.contains(&picked));
                    if count <= SCANNED {
                        let busiest = allowed.iter().map(|&endpoint| naive.in_flight(endpoint)).max().unwrap();
                        let weight = |&endpoint: &EndpointKey| naive.weight(endpoint, busiest, at(now));
                        prop_assert_eq!(Some(weight(&picked)), allowed.iter().map(weight).min());
                    }
                }
            }
            loads.check_invariants();
            for n in 0..12 {
                prop_assert_eq!(u64::from(loads.view_of(key(n), at(now)).in_flight), naive.in_flight(key(n)));
            }
        }
    }
}
