use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn config(jitter: Jitter) -> Config {
    Config::new(ms(100), ms(10_000), jitter).unwrap()
}

#[test]
fn a_base_of_zero_or_above_the_maximum_is_refused() {
    assert_eq!(Config::new(ms(0), ms(1), Jitter::Full).unwrap_err().field, "base");
    assert_eq!(Config::new(ms(2), ms(1), Jitter::Full).unwrap_err().field, "max");
}

/// worked-numbers: back-off ceilings.
#[test]
fn worked_backoff_ceilings() {
    let mut backoff = Backoff::default();
    let mut random = Random::new(1);
    let config = config(Jitter::None);
    let waits: Vec<_> = (0..9).map(|_| backoff.next(&config, ms(0), &mut random).as_millis()).collect();
    assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    assert_eq!(config.ceiling(u32::MAX), ms(10_000));
}

/// worked-numbers: full jitter.
#[test]
fn worked_full_jitter() {
    let config = config(Jitter::Full);
    let mut random = Random::new(2);
    let draws: Vec<_> =
        (0..1000).map(|_| Backoff { made: 3, previous: None }.next(&config, ms(0), &mut random)).collect();
    let (least, most) = (*draws.iter().min().unwrap(), *draws.iter().max().unwrap());
    assert!(most <= ms(800) && most - least > ms(500), "{least:?}..{most:?}");
    let distinct: BTreeSet<_> = draws.iter().map(Duration::as_millis).collect();
    assert!(distinct.len() > 500, "{} distinct", distinct.len());
}

#[test]
fn retry_after_is_a_floor_with_jitter_on_top() {
    let mut random = Random::new(3);
    let floor = ms(2000);
    let draws: BTreeSet<_> =
        (0..100).map(|_| Backoff::default().next(&config(Jitter::Full), floor, &mut random)).collect();
    assert!(draws.len() > 50 && draws.iter().all(|&wait| wait >= floor && wait <= floor + ms(100)));
    assert_eq!(Backoff::default().next(&config(Jitter::None), floor, &mut random), floor);
}

/// The four formulas, written down once more without the state.
fn bounds(config: &Config, jitter: Jitter, exponent: u32, previous: Option<Duration>) -> (Duration, Duration) {
    let mut ceiling = config.base;
    for _ in 0..exponent.min(64) {
        ceiling = (ceiling * 2).min(config.max);
    }
    match jitter {
        Jitter::Full => (ms(0), ceiling),
        Jitter::Equal => (ceiling / 2, ceiling),
        Jitter::Decorrelated => (config.base, (previous.unwrap_or(config.base) * 3).min(config.max)),
        Jitter::None => (ceiling, ceiling),
    }
}

proptest! {
    /// worked-numbers: decorrelated never below base, never above cap; and the others within their own bounds.
    #[test]
    fn worked_decorrelated_and_the_other_three_stay_in_bounds(
        base in 1u64..5000, factor in 1u64..1000, seed: u64, floor in prop_oneof![Just(0), 1u64..10_000],
        jitter in prop_oneof![Just(Jitter::Full), Just(Jitter::Equal), Just(Jitter::Decorrelated), Just(Jitter::None)],
    ) {
        let config = Config::new(ms(base), ms(base * factor), jitter).unwrap();
        let mut backoff = Backoff::default();
        let mut random = Random::new(seed);
        let mut previous = None;
        for exponent in 0..70 {
            let wait = backoff.next(&config, ms(floor), &mut random);
            let (least, most) = bounds(&config, jitter, exponent, previous);
            prop_assert!(wait >= least.max(ms(floor)), "{wait:?} below {least:?}");
            prop_assert!(wait <= most + ms(floor), "{wait:?} above {most:?}");
            if floor == 0 {
                prop_assert!(wait <= config.max);
            }
            previous = backoff.previous;
        }
    }
}
