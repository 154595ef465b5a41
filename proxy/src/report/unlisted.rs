//! The destinations without a policy that are called most.

use std::collections::BTreeMap;

/// Names kept. Callers choose them, so the list is bounded; a metric label they never become.
const CAPACITY: usize = 128;

/// Counts by name, bounded: when full, a new name takes the place and the count of the smallest ("space saving",
/// Metwally 2005). A name that matters is never missing, and a count is never too low.
#[derive(Debug, Default)]
pub(super) struct TopList {
    counts: BTreeMap<Box<[u8]>, u64>,
}

impl TopList {
    pub fn add(&mut self, name: &[u8], count: u64) {
        if let Some(known) = self.counts.get_mut(name) {
            *known += count;
            return;
        }
        let mut inherited = 0;
        if self.counts.len() == CAPACITY {
            let smallest = self.counts.iter().min_by_key(|(_, count)| **count).map(|(name, _)| name.clone());
            inherited = smallest.and_then(|name| self.counts.remove(&name)).unwrap_or(0);
        }
        self.counts.insert(name.into(), inherited + count);
    }

    /// The `limit` largest, largest first.
    pub fn top(&self, limit: usize) -> Vec<(&[u8], u64)> {
        let mut all: Vec<_> = self.counts.iter().map(|(name, count)| (name.as_ref(), *count)).collect();
        all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        all.truncate(limit);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_name_survives_a_flood_of_others() {
        let mut list = TopList::default();
        list.add(b"busy:443", 1_000);
        for n in 0..10_000 {
            list.add(format!("flood-{n}").as_bytes(), 1);
        }
        assert_eq!(list.counts.len(), CAPACITY);
        assert_eq!(list.top(1), [(&b"busy:443"[..], 1_000)]);
    }
}
