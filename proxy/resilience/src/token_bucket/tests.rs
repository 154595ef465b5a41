use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn bucket(amount: u32, burst: u32) -> TokenBucket {
    TokenBucket::new(Config::new(amount, SECOND, burst).unwrap(), at(0))
}

/// How many of `asked` pass at `now`.
fn pass(bucket: &mut TokenBucket, asked: u32, now: u64) -> usize {
    let passed = (0..asked).filter(|_| bucket.try_take(at(now)).is_ok()).count();
    bucket.check_invariants();
    passed
}

/// worked-numbers: capacity 10, refill 2/s; 15 at once: 10 pass, 5 refused; after 3 s idle it holds 6.
#[test]
fn worked_burst_and_refill() {
    let mut bucket = bucket(2, 10);
    assert_eq!(pass(&mut bucket, 15, 0), 10);
    assert_eq!(bucket.tokens(at(3000)), 6);
}

/// worked-numbers: capacity 5, refill 2/s; 5 at once, then 1 s: 5 pass, the 6th is refused; then 2 pass and the 3rd is
/// refused; after 100 s idle exactly 5 of 10 pass.
#[test]
fn worked_never_above_capacity() {
    let mut bucket = bucket(2, 5);
    assert_eq!(pass(&mut bucket, 6, 0), 5);
    assert_eq!(pass(&mut bucket, 3, 1000), 2);
    assert_eq!(pass(&mut bucket, 10, 101_000), 5);
}

/// worked-numbers: capacity 10, refill 5/s, quiet caller: burst of 10, then 5/s.
#[test]
fn worked_quiet_caller() {
    let mut bucket = bucket(5, 10);
    assert_eq!(pass(&mut bucket, 100, 60_000), 10);
    let passed: Vec<usize> = (61..66).map(|second| pass(&mut bucket, 100, second * 1000)).collect();
    assert_eq!(passed, [5; 5]);
}

/// worked-numbers: cost 1, 0 tokens, 0.4/s: ceil((1 - 0) / 0.4) = 3 s, never rounded down.
#[test]
fn worked_retry_after() {
    let config = Config::new(2, Duration::from_secs(5), 1).unwrap();
    let mut bucket = TokenBucket::new(config, at(0));
    assert_eq!(pass(&mut bucket, 1, 0), 1);
    let refused = bucket.try_take(at(0)).unwrap_err();
    assert_eq!((refused.reason, refused.retry_at), (Reason::RateLimited, Some(at(2500))), "3 s in whole seconds");
    assert_eq!((pass(&mut bucket, 1, 2499), pass(&mut bucket, 1, 2500)), (0, 1));
}

#[test]
fn a_swap_cuts_tokens_to_a_lower_burst_and_never_refills() {
    let mut bucket = bucket(10, 10);
    assert_eq!(pass(&mut bucket, 4, 0), 4);
    bucket.reconfigure(Config::new(10, SECOND, 3).unwrap(), at(0));
    assert_eq!(bucket.tokens(at(0)), 3);
    bucket.reconfigure(Config::new(10, SECOND, 100).unwrap(), at(0));
    assert_eq!(bucket.tokens(at(0)), 3);
    // Another rate: the same tokens, and the next one comes at the new pace.
    bucket.reconfigure(Config::new(1, SECOND, 100).unwrap(), at(0));
    assert_eq!((bucket.tokens(at(999)), bucket.tokens(at(1000))), (3, 4));
}

#[test]
fn a_clock_that_steps_back_gives_nothing_and_takes_nothing() {
    let mut bucket = bucket(1, 1);
    assert_eq!(pass(&mut bucket, 1, 5000), 1);
    assert_eq!(pass(&mut bucket, 1, 1000), 0);
    assert_eq!(bucket.try_take(at(1000)).unwrap_err().retry_at, Some(at(6000)));
    assert_eq!(pass(&mut bucket, 2, 6000), 1);
}

#[test]
fn a_rate_that_cannot_be_kept_is_refused() {
    for (amount, interval, burst) in
        [(0, SECOND, 1), (1, SECOND, 0), (1, Duration::ZERO, 1), (1, SECOND * 86_401, 1), (1, SECOND, 1_000_001)]
    {
        assert!(Config::new(amount, interval, burst).is_err(), "{amount} each {interval:?}, {burst} at once");
    }
    let slowest = Config::new(1, SECOND * 86_400, 1_000_000).unwrap();
    assert!(TokenBucket::new(slowest, at(0)).try_take(Timestamp::MAX).is_ok());
}

/// A rate without a burst has what a second brings.
#[test]
fn the_burst_of_a_smooth_rate() {
    let burst = |amount, seconds: u32| Config::smooth(amount, SECOND * seconds).unwrap().burst();
    assert_eq!((burst(100, 1), burst(600, 60), burst(30, 60), burst(1, 3600)), (100, 10, 1, 1));
}

/// The generic cell rate algorithm, as ITU-T I.371 has it: the theoretical arrival time of the next one.
struct Gcra {
    emission: u64,
    tolerance: u64,
    arrival: u64,
}

impl Gcra {
    fn try_pass(&mut self, now: u64) -> bool {
        let passes = self.arrival.saturating_sub(now) <= self.tolerance;
        if passes {
            self.arrival = self.arrival.max(now) + self.emission;
        }
        passes
    }
}

proptest! {
    /// worked-numbers: the same limit as a token bucket decides the same on any history.
    #[test]
    fn it_decides_as_gcra_does(
        amount in 1u32..2000,
        burst in 1u32..50,
        gaps in prop::collection::vec(prop_oneof![Just(0u64), 0u64..3_000_000, 0u64..3_000_000_000], 1..300),
    ) {
        let config = Config::new(amount, SECOND, burst).unwrap();
        let emission = 1_000_000_000u64.div_ceil(amount.into());
        let mut bucket = TokenBucket::new(config, at(0));
        let mut gcra = Gcra { emission, tolerance: emission * u64::from(burst - 1), arrival: 0 };
        let mut now = 0;
        for gap in gaps {
            now += gap;
            prop_assert_eq!(bucket.try_take(Timestamp::from_nanos(now)).is_ok(), gcra.try_pass(now), "at {}", now);
            bucket.check_invariants();
        }
    }
}
