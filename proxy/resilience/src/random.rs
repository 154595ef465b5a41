//! Randomness as a value: the same seed gives the same run.

use std::time::Duration;

use crate::time::nanos;

/// A small generator for jitter and choice, never for secrets.
///
/// Source: `SplitMix64`, Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose whole sequence follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0. The bias is under `n` / 2^64.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// A ratio from 0 up to, not including, 1.
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A duration from zero to `most`, both included.
    pub const fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(nanos(most).saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_follows_from_the_seed_and_stays_in_range() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        for n in [0, 1, 2, 10, u64::MAX] {
            let drawn = a.below(n);
            assert_eq!(drawn, b.below(n));
            assert!(drawn < n.max(1));
        }
        assert!((0..1000).all(|_| (0.0..1.0).contains(&a.unit())));
        let most = Duration::from_nanos(3);
        let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| a.up_to(most)).collect();
        assert_eq!(drawn.len(), 4, "0, 1, 2 and 3 ns are all drawn");
    }

    /// First outputs of the reference implementation for seed 1234567.
    #[test]
    fn the_reference_sequence() {
        let mut random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
