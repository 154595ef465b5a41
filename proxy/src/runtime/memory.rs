//! How much of all callers' bodies is kept for another attempt, over the whole process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bodies kept for retries may use this much memory; past it a body streams on and its call is not repeated.
const KEPT_BODIES: usize = 16 * 1024 * 1024;

/// The memory that kept bodies share.
#[derive(Clone, Debug, Default)]
pub struct KeptBodies(Arc<AtomicUsize>);

impl KeptBodies {
    /// A lease of nothing yet.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease { pool: self.clone(), bytes: 0 }
    }
}

/// One body's share; given back when dropped.
#[derive(Debug)]
pub struct Lease {
    pool: KeptBodies,
    bytes: usize,
}

impl Lease {
    /// Takes what is missing to hold `bytes`. False when the process holds too much already.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else { return true };
        let held = self.pool.0.fetch_add(more, Ordering::Relaxed);
        if held + more > KEPT_BODIES {
            self.pool.0.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_keeps_no_more_than_its_bound_and_gets_all_of_it_back() {
        let pool = KeptBodies::default();
        let mut first = pool.lease();
        assert!(first.grow_to(KEPT_BODIES - 1));
        let mut second = pool.lease();
        assert!(second.grow_to(1));
        assert!(!second.grow_to(2));
        drop(first);
        assert!(second.grow_to(KEPT_BODIES));
        drop(second);
        assert_eq!(pool.0.load(Ordering::Relaxed), 0);
    }
}
