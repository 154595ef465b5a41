//! The last W seconds, in a fixed number of buckets.
//!
//! ```text
//!   head-31 ...            head
//! [ | | | | | | | | | | | | |*]    each bucket W / 32 wide, sums kept beside it
//!   ^ leaves when head moves on
//! ```
//!
//! What it holds is never older than W and at least as old as 31/32 W. Work is bounded whatever the gap: rolling
//! touches each bucket once at most. A clock that steps back counts in the newest bucket.
//!
//! Source: the exact windows of linkerd2-proxy's `success_rate.rs`.

use std::time::Duration;

use super::Place;
use crate::time::{Timestamp, nanos};

/// More buckets make the edge sharper and each roll and each breaker (12 bytes a bucket) dearer.
const BUCKETS: u64 = 32;

/// Sums of `K` things over the last W seconds.
#[derive(Clone, Debug)]
pub struct TimeWindow<const K: usize> {
    buckets: [[u32; K]; BUCKETS as usize],
    totals: [u32; K],
    /// The number of the newest bucket.
    head: u64,
    /// When the next one begins: saves a division for each call.
    head_ends: u64,
    width: u64,
}

impl<const K: usize> TimeWindow<K> {
    /// A window that reaches back for `length`.
    pub fn new(length: Duration) -> Self {
        let width = nanos(length).div_ceil(BUCKETS).max(1);
        Self { buckets: [[0; K]; BUCKETS as usize], totals: [0; K], head: 0, head_ends: width, width }
    }

    /// Moves the window to `now` and says which bucket counts now.
    #[inline]
    pub fn roll(&mut self, now: Timestamp) -> Place {
        if now.as_nanos() >= self.head_ends {
            self.advance(now.as_nanos() / self.width);
        }
        Place(self.head)
    }

    fn advance(&mut self, head: u64) {
        let gone = (head - self.head).min(BUCKETS);
        for number in self.head + 1..=self.head + gone {
            let bucket = std::mem::replace(&mut self.buckets[index(number)], [0; K]);
            for (total, count) in self.totals.iter_mut().zip(bucket) {
                *total -= count;
            }
        }
        self.head = head;
        self.head_ends = (head + 1).saturating_mul(self.width);
    }

    /// One more of `column` at `place`; false if it has left the window.
    #[inline]
    pub fn add(&mut self, place: Place, column: usize) -> bool {
        self.add_many(place, column, 1)
    }

    /// `n` more of `column` at `place`, as far as the sum can hold them; false if it has left the window.
    #[inline]
    pub fn add_many(&mut self, place: Place, column: usize, n: u32) -> bool {
        if !self.holds(place) {
            return false;
        }
        let n = n.min(u32::MAX - self.totals[column]);
        self.buckets[index(place.0)][column] += n;
        self.totals[column] += n;
        true
    }

    /// Takes one of `column` back from `place`; false if it has left the window.
    pub fn take_back(&mut self, place: Place, column: usize) -> bool {
        let bucket = &mut self.buckets[index(place.0)][column];
        if place.0 > self.head || self.head - place.0 >= BUCKETS || *bucket == 0 {
            return false;
        }
        *bucket -= 1;
        self.totals[column] -= 1;
        true
    }

    /// The sums at `now`, also if the window was not rolled that far yet.
    pub fn totals(&self, now: Timestamp) -> [u32; K] {
        if now.as_nanos() < self.head_ends {
            return self.totals;
        }
        let head = now.as_nanos() / self.width;
        let mut totals = self.totals;
        for number in self.head + 1..=self.head + (head - self.head).min(BUCKETS) {
            for (total, count) in totals.iter_mut().zip(self.buckets[index(number)]) {
                *total -= count;
            }
        }
        totals
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.buckets = [[0; K]; BUCKETS as usize];
        self.totals = [0; K];
    }

    /// Panics if a sum does not add up.
    pub fn check_invariants(&self) {
        for column in 0..K {
            let sum: u32 = self.buckets.iter().map(|bucket| bucket[column]).sum();
            assert_eq!(self.totals[column], sum, "column {column}");
        }
    }

    const fn holds(&self, place: Place) -> bool {
        place.0 <= self.head && self.head - place.0 < BUCKETS
    }
}

const fn index(number: u64) -> usize {
    (number % BUCKETS) as usize
}
