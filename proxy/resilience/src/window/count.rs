//! The last N calls.
//!
//! ```text
//!          next
//!           v
//! [ . f s . . f ... ]   a ring of marks, and their sums kept beside it
//! ```
//!
//! Right for a dependency that is called rarely or unevenly: a quiet hour forgets nothing. Memory is a byte a call.
//!
//! Source: the count-based sliding window of Resilience4j.

use super::{Counts, Place};

const FAILED: u8 = 1;
const SLOW: u8 = 2;

/// The marks of the last N calls.
#[derive(Clone, Debug)]
pub struct CountWindow {
    marks: Box<[u8]>,
    /// Calls ever counted since the last `clear`: the next call's number.
    next: u64,
    /// Where the next call goes: saves a division for each call.
    cursor: usize,
    counts: Counts,
}

impl CountWindow {
    /// A window of `size` calls; 0 counts as 1.
    pub fn new(size: u32) -> Self {
        let size = usize::try_from(size.max(1)).expect("a window's size fits the address space");
        Self { marks: vec![0; size].into_boxed_slice(), next: 0, cursor: 0, counts: Counts::default() }
    }

    /// Counts a call in place of the one that came N calls before.
    pub fn record(&mut self, failed: bool, slow: bool) -> Place {
        let place = Place(self.next);
        let index = self.cursor;
        if self.next >= self.size() {
            let leaving = self.marks[index];
            self.counts.calls -= 1;
            self.counts.failed -= u32::from(leaving & FAILED != 0);
            self.counts.slow -= u32::from(leaving & SLOW != 0);
        }
        self.marks[index] = if failed { FAILED } else { 0 } | if slow { SLOW } else { 0 };
        self.counts.calls += 1;
        self.counts.failed += u32::from(failed);
        self.counts.slow += u32::from(slow);
        self.next += 1;
        self.cursor = if index + 1 == self.marks.len() { 0 } else { index + 1 };
        place
    }

    /// Marks a call failed that was counted before; false if it has left, or had failed already.
    pub fn fail(&mut self, place: Place) -> bool {
        let index = self.index(place);
        let present = place.0 < self.next && self.next - place.0 <= self.size();
        if !present || self.marks[index] & FAILED != 0 {
            return false;
        }
        self.marks[index] |= FAILED;
        self.counts.failed += 1;
        true
    }

    /// What the window holds.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.next = 0;
        self.cursor = 0;
        self.counts = Counts::default();
    }

    /// Panics if a sum does not add up.
    pub fn check_invariants(&self) {
        let held = usize::try_from(self.next.min(self.size())).expect("no more than the ring");
        let marked = |mark: u8| self.marks[..held].iter().filter(|&&marks| marks & mark != 0).count();
        assert_eq!(self.cursor, self.index(Place(self.next)));
        assert_eq!(self.counts.calls as usize, held);
        assert_eq!(self.counts.failed as usize, marked(FAILED));
        assert_eq!(self.counts.slow as usize, marked(SLOW));
    }

    const fn size(&self) -> u64 {
        self.marks.len() as u64
    }

    const fn index(&self, place: Place) -> usize {
        (place.0 % self.size()) as usize
    }
}
