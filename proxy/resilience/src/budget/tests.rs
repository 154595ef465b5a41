use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

#[test]
fn bounds_of_the_configuration() {
    assert_eq!(Config::new(101, Duration::from_secs(10), 0).unwrap_err().field, "percent");
    assert_eq!(Config::new(10, Duration::from_millis(999), 0).unwrap_err().field, "interval");
    assert_eq!(Config::new(10, Duration::from_secs(601), 0).unwrap_err().field, "interval");
}

/// worked-numbers: retry budget.
#[test]
fn worked_retry_budget() {
    let mut budget = Budget::new(Config::new(10, Duration::from_secs(10), 0).unwrap());
    for call in 0..1000 {
        budget.on_call(at(call * 9));
    }
    let granted: Vec<_> = (0..100).map(|_| budget.try_acquire(at(9000)).unwrap()).collect();
    let refused = budget.try_acquire(at(9000)).unwrap_err();
    assert_eq!((refused.reason, refused.observed, refused.limit), (Reason::RetryBudgetExhausted, 100, 100));
    // One of them is not made after all: its place is free again, once.
    for token in granted.into_iter().take(1) {
        budget.give_back(token, at(9000));
    }
    let _spent = budget.try_acquire(at(9000)).unwrap();
    assert!(budget.try_acquire(at(9000)).is_err());
    // Calls and retries leave the window together.
    assert_eq!(budget.view(at(60_000)), BudgetView::default());
}

#[test]
fn a_cold_budget_has_the_floor_and_another_interval_starts_afresh() {
    let mut budget = Budget::new(Config::default());
    assert_eq!((0..100).filter(|_| budget.try_acquire(at(0)).is_ok()).count(), 30);
    budget.reconfigure(Config::new(20, Duration::from_secs(10), 4).unwrap());
    assert_eq!((0..100).filter(|_| budget.try_acquire(at(0)).is_ok()).count(), 10);
    budget.reconfigure(Config::new(20, Duration::from_secs(5), 1).unwrap());
    assert_eq!((0..100).filter(|_| budget.try_acquire(at(0)).is_ok()).count(), 5);
}

#[test]
fn what_is_only_modelled_takes_none_from_what_is_made() {
    let mut budget = Budget::new(Config::default());
    let _made = budget.try_acquire(at(0)).unwrap();
    assert_eq!((0..100).filter(|_| budget.try_model(at(0))).count(), 29, "with the one that was made");
    assert_eq!((0..100).filter(|_| budget.try_acquire(at(0)).is_ok()).count(), 29);
    assert!(!budget.try_model(at(0)));
    assert!(budget.try_model(at(60_000)), "both leave the window");
}

#[test]
fn a_clock_that_steps_back_harms_nothing() {
    let mut budget = Budget::new(Config::new(100, Duration::from_secs(10), 0).unwrap());
    budget.on_call(at(50_000));
    budget.on_call(at(1));
    let token = budget.try_acquire(at(49_999)).unwrap();
    budget.give_back(token, at(0));
    assert_eq!(budget.view(at(0)).calls, 2);
    budget.check_invariants();
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Call,
    Ask,
    GiveBack,
    Forward(u64),
}

proptest! {
    /// Against two lists of the buckets in which things happened.
    #[test]
    fn retries_never_exceed_what_lists_allow(
        percent in 0u32..=100, floor in 0u32..5,
        ops in prop::collection::vec(prop_oneof![
            4 => Just(Op::Call), 4 => Just(Op::Ask), 1 => Just(Op::GiveBack), 2 => (0u64..3000).prop_map(Op::Forward),
        ], 1..300),
    ) {
        // 32 buckets of 100 ms.
        let mut budget = Budget::new(Config::new(percent, Duration::from_millis(3200), floor).unwrap());
        let (mut calls, mut retries): (Vec<u64>, Vec<u64>) = Default::default();
        let mut tokens: Vec<(Token, u64)> = Vec::new();
        let mut now = 0;
        for op in ops {
            let bucket = now / 100;
            let live = |list: &[u64]| list.iter().filter(|&&b| b + 32 > bucket).count() as u64;
            match op {
                Op::Forward(ms) => now += ms,
                Op::Call => {
                    budget.on_call(at(now));
                    calls.push(bucket);
                }
                Op::Ask => {
                    let allowed = live(&calls) * u64::from(percent) / 100 + u64::from(floor) * 3200 / 1000;
                    let granted = budget.try_acquire(at(now));
                    prop_assert_eq!(granted.is_ok(), live(&retries) < allowed);
                    if let Ok(token) = granted {
                        tokens.push((token, bucket));
                        retries.push(bucket);
                    }
                }
                Op::GiveBack => if let Some((token, taken)) = tokens.pop() {
                    budget.give_back(token, at(now));
                    let position = retries.iter().position(|&b| b == taken).unwrap();
                    retries.remove(position);
                }
            }
            budget.check_invariants();
        }
    }
}
