use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Record { failed: bool, slow: bool },
    Fail(usize),
    Forward(u64),
    Back(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<bool>(), any::<bool>()).prop_map(|(failed, slow)| Op::Record { failed, slow }),
        2 => (0usize..50).prop_map(Op::Fail),
        2 => (0u64..400).prop_map(Op::Forward),
        1 => (0u64..20_000).prop_map(Op::Forward),
        1 => (0u64..100).prop_map(Op::Back),
    ]
}

/// Everything ever counted, in order; the windows are recounted from it each time.
#[derive(Default)]
struct Naive {
    entries: Vec<(u64, bool, bool, Place)>,
    newest: u64,
}

impl Naive {
    fn counts(&self, inside: impl Fn(usize, u64) -> bool) -> Counts {
        let mut counts = Counts::default();
        for (position, &(bucket, failed, slow, _)) in self.entries.iter().enumerate() {
            if inside(position, bucket) {
                counts.calls += 1;
                counts.failed += u32::from(failed);
                counts.slow += u32::from(slow);
            }
        }
        counts
    }

    fn run(window: &mut Window, ops: &[Op], bucket_ms: Option<u64>, size: usize) -> Result<(), TestCaseError> {
        let mut naive = Self::default();
        let mut now = 0;
        for &op in ops {
            match op {
                Op::Forward(ms) => now += ms,
                Op::Back(ms) => now = u64::saturating_sub(now, ms),
                Op::Record { failed, slow } => {
                    naive.newest = naive.newest.max(bucket_ms.map_or(0, |width| now / width));
                    let place = window.record(failed, slow, at(now));
                    naive.entries.push((naive.newest, failed, slow, place));
                }
                Op::Fail(back) => {
                    let length = naive.entries.len();
                    let Some(position) = length.checked_sub(back + 1) else {
                        continue;
                    };
                    let (bucket, failed, slow, place) = naive.entries[position];
                    // An entry fails once: its ticket is consumed by it.
                    if failed {
                        continue;
                    }
                    naive.newest = naive.newest.max(bucket_ms.map_or(0, |width| now / width));
                    let inside = match bucket_ms {
                        Some(_) => bucket + 32 > naive.newest,
                        None => position + size >= length,
                    };
                    prop_assert_eq!(window.fail(place, at(now)), inside);
                    naive.entries[position] = (bucket, true, slow, place);
                }
            }
            window.check_invariants();
            let newest = naive.newest.max(bucket_ms.map_or(0, |width| now / width));
            let length = naive.entries.len();
            let expected = naive.counts(|position, bucket| match bucket_ms {
                Some(_) => bucket + 32 > newest,
                None => position + size >= length,
            });
            prop_assert_eq!(window.counts(at(now)), expected);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_time_window_counts_as_a_list_does(ops in prop::collection::vec(op(), 1..200), width in 1u64..300) {
        let mut window = Window::time(Duration::from_millis(width * 32));
        Naive::run(&mut window, &ops, Some(width), 0)?;
    }

    #[test]
    fn a_count_window_counts_as_a_list_does(ops in prop::collection::vec(op(), 1..200), size in 1u32..40) {
        let mut window = Window::count(size);
        Naive::run(&mut window, &ops, None, size as usize)?;
    }
}

#[test]
fn a_gap_of_centuries_costs_one_round_of_the_buckets() {
    let mut window = Window::time(Duration::from_secs(30));
    for _ in 0..10 {
        window.record(true, true, at(5));
    }
    assert_eq!(window.counts(Timestamp::MAX), Counts::default());
    let place = window.record(false, true, Timestamp::MAX);
    assert_eq!(window.counts(Timestamp::MAX), Counts { calls: 1, failed: 0, slow: 1 });
    // The clock steps back by centuries: what comes counts in the newest bucket.
    assert!(window.fail(place, at(0)));
    window.record(true, false, at(0));
    assert_eq!(window.counts(at(0)), Counts { calls: 2, failed: 2, slow: 1 });
    window.check_invariants();
}

#[test]
fn a_sum_that_cannot_grow_stays_consistent() {
    let mut window = TimeWindow::<1>::new(Duration::from_secs(1));
    let place = window.roll(at(0));
    assert!(window.add_many(place, 0, u32::MAX - 1));
    assert!(window.add_many(place, 0, 5));
    assert_eq!(window.totals(at(0)), [u32::MAX]);
    window.check_invariants();
    assert!(window.take_back(place, 0));
    assert_eq!(window.totals(at(999_999)), [0]);
}

#[test]
fn percents_round_down_and_need_calls() {
    assert_eq!(Counts::default().failure_percent(), 0);
    let counts = Counts { calls: 3, failed: 2, slow: 1 };
    assert_eq!((counts.failure_percent(), counts.slow_percent()), (66, 33));
}
