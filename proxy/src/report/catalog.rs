//! Which series exist: names are resolved to a [`StatsId`] when a snapshot is built, so that a call only indexes.
//!
//! Policies come and go for as long as the process lives, so a name is not kept for ever. The life of an id:
//!
//! 1. *Held.* The routes of a snapshot hold a [`Series`] each, and a call holds its snapshot until it is reported:
//!    whoever may still count under an id keeps it held.
//! 2. *Idle.* Nobody holds it. Name and totals stay: a dependency that comes back counts on where it was.
//! 3. *Leaving.* [`MAX_SERIES`] names are there and another one needs a place: the idle name that has been in no
//!    policy for the longest time goes, and its totals go with it. They are not added to `other`, whose rate would
//!    show calls that were never made there. Numbers under the id may still be in the batch of a worker.
//! 4. *Free.* Every worker has handed over since, and what was published under the id is withdrawn. Only now another
//!    name can have it.
//!
//! A snapshot is built while the one before is in force, so both must find a place; names that find none share
//! [`StatsId::OTHER`] until the next generation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::Direction;

/// The number of a series: one for each (direction, dependency, route). Stays the same over generations, because
/// counters must not start again when policy is swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatsId(u32);

impl StatsId {
    /// Outbound calls to destinations that no policy names.
    pub const UNLISTED: StatsId = StatsId(0);
    /// Inbound calls, before or without a workload policy.
    pub const INBOUND: StatsId = StatsId(1);
    /// Where calls are counted once [`MAX_SERIES`] is reached.
    pub const OTHER: StatsId = StatsId(2);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A series that cannot be given away. A snapshot holds it; calls, which hold the snapshot, copy the id.
#[derive(Clone, Debug)]
pub struct Series {
    id: StatsId,
    _held: Arc<()>,
}

impl Series {
    /// Where to count, for as long as this is held.
    #[must_use]
    pub fn id(&self) -> StatsId {
        self.id
    }
}

/// What a series stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeriesName {
    pub direction: Direction,
    /// `namespace/name` of the policy; the built-in names have no slash, so nothing can take their place.
    pub dependency: String,
    /// The named route, or empty for the calls that no named route matches.
    pub route: String,
}

/// Series beyond this many share [`StatsId::OTHER`]: a slot is about a kilobyte for each worker, and a scraper pays
/// for each series for ever.
pub const MAX_SERIES: usize = 1_000;

/// Ids, with those that are leaving: so many names can be replaced between two collections.
const MAX_IDS: usize = 2 * MAX_SERIES;

/// Hands out [`StatsId`]s. Used when snapshots are built and when statistics are read, never by a call.
#[derive(Debug)]
pub(super) struct Catalog {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ids: BTreeMap<SeriesName, StatsId>,
    /// By id.
    entries: Vec<Entry>,
    leaving: Vec<StatsId>,
    free: Vec<StatsId>,
    /// Grows with each resolved name, to tell which one has been asked for last.
    resolved: u64,
    /// Grows whenever an id gets or loses its name.
    version: u64,
    dropped: u64,
}

#[derive(Debug)]
struct Entry {
    /// `None` for an id that is leaving or free.
    name: Option<SeriesName>,
    /// Clones are in the [`Series`] that are out.
    held: Arc<()>,
    /// When a snapshot last asked for it.
    resolved: u64,
}

impl Catalog {
    pub fn new() -> Self {
        let mut inner = Inner {
            ids: BTreeMap::new(),
            entries: Vec::new(),
            leaving: Vec::new(),
            free: Vec::new(),
            resolved: 0,
            version: 0,
            dropped: 0,
        };
        for (direction, dependency, id) in [
            (Direction::Outbound, "unlisted", StatsId::UNLISTED),
            (Direction::Inbound, "inbound", StatsId::INBOUND),
            (Direction::Outbound, "other", StatsId::OTHER),
        ] {
            let name = SeriesName { direction, dependency: dependency.to_owned(), route: String::new() };
            let added = inner.add(name);
            debug_assert_eq!(added, Some(id), "the built-in ids are positions in this list");
        }
        Catalog { inner: Mutex::new(inner) }
    }

    pub fn resolve(&self, direction: Direction, dependency: &str, route: Option<&str>) -> Series {
        let name =
            SeriesName { direction, dependency: dependency.to_owned(), route: route.unwrap_or_default().to_owned() };
        let mut inner = self.lock();
        let known = inner.ids.get(&name).copied();
        let id = known.or_else(|| inner.add(name)).unwrap_or_else(|| {
            inner.dropped += 1;
            StatsId::OTHER
        });
        inner.resolved += 1;
        let resolved = inner.resolved;
        let entry = &mut inner.entries[id.index()];
        entry.resolved = resolved;
        Series { id, _held: Arc::clone(&entry.held) }
    }

    /// All names, by id.
    pub fn names(&self) -> Vec<Option<SeriesName>> {
        self.lock().entries.iter().map(|entry| entry.name.clone()).collect()
    }

    /// Changes when [`Catalog::names`] does.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// The ids that began to leave since this was last asked. Nobody counts under them any more, but batches may
    /// hold what was counted. The caller gives them back with [`Catalog::release`].
    pub fn take_leaving(&self) -> Vec<StatsId> {
        std::mem::take(&mut self.lock().leaving)
    }

    /// Lets other names have `ids`, of which no trace is left.
    pub fn release(&self, ids: Vec<StatsId>) {
        self.lock().free.extend(ids);
    }

    /// How often a series went to `other`.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A panic while the lock was held cannot leave a half-made entry that matters: counting goes on.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Inner {
    /// An id for a new name; `None` if there is no room.
    fn add(&mut self, name: SeriesName) -> Option<StatsId> {
        if self.free.is_empty() && self.entries.len() >= MAX_IDS {
            return None;
        }
        if self.ids.len() >= MAX_SERIES {
            self.evict()?;
        }
        let entry = Entry { name: Some(name.clone()), held: Arc::new(()), resolved: 0 };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id.index()] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                StatsId(u32::try_from(self.entries.len() - 1).expect("bounded by MAX_IDS"))
            }
        };
        self.ids.insert(name, id);
        self.version += 1;
        Some(id)
    }

    /// Takes the name from the series that nobody holds and that was asked for the longest time ago.
    fn evict(&mut self) -> Option<()> {
        // A worker that let go of the last clone answers what it is asked after this: its batch comes with the round.
        let is_idle = |id: &StatsId| *id > StatsId::OTHER && Arc::strong_count(&self.entries[id.index()].held) == 1;
        let oldest = self.ids.values().copied().filter(is_idle).min_by_key(|id| self.entries[id.index()].resolved)?;
        let name = self.entries[oldest.index()].name.take()?;
        self.ids.remove(&name);
        self.leaving.push(oldest);
        self.version += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound(catalog: &Catalog, name: &str) -> Series {
        catalog.resolve(Direction::Outbound, &format!("shop/{name}"), None)
    }

    /// As many names as there is room for, which nobody holds: `shop/0` is the oldest.
    fn full() -> Catalog {
        let catalog = Catalog::new();
        (0..MAX_SERIES - 3).for_each(|n| drop(outbound(&catalog, &n.to_string())));
        catalog
    }

    fn knows(catalog: &Catalog, name: &str) -> bool {
        catalog.names().iter().flatten().any(|known| known.dependency == format!("shop/{name}"))
    }

    #[test]
    fn a_name_keeps_its_id_and_names_do_not_mix() {
        let catalog = Catalog::new();
        let id = |direction, dependency, route| catalog.resolve(direction, dependency, route).id();
        let rest = id(Direction::Outbound, "shop/fraud", None);
        let route = id(Direction::Outbound, "shop/fraud", Some("charge"));
        let inbound = id(Direction::Inbound, "shop/fraud", None);
        assert_eq!(id(Direction::Outbound, "shop/fraud", None), rest);
        assert_eq!(id(Direction::Outbound, "unlisted", None), StatsId::UNLISTED);
        assert!(rest != route && rest != inbound && route != inbound);
        assert_eq!(catalog.names()[route.index()].as_ref().unwrap().route, "charge");
    }

    #[test]
    fn past_the_cap_series_in_use_share_one_and_are_counted() {
        let catalog = Catalog::new();
        let held: Vec<_> = (0..MAX_SERIES + 5).map(|n| outbound(&catalog, &n.to_string())).collect();
        assert_eq!(outbound(&catalog, "new").id(), StatsId::OTHER);
        assert_eq!(outbound(&catalog, "0").id(), held[0].id());
        assert_ne!(held[0].id(), StatsId::OTHER);
        assert_eq!(catalog.names().len(), MAX_SERIES);
        assert_eq!(catalog.dropped(), 3 + 5 + 1);
        assert!(catalog.take_leaving().is_empty());
    }

    #[test]
    fn a_name_that_nobody_holds_stays_until_its_place_is_needed() {
        let catalog = full();
        let id = outbound(&catalog, "0").id();
        assert_eq!(outbound(&catalog, "0").id(), id);
        assert!(catalog.take_leaving().is_empty());
    }

    #[test]
    fn the_name_that_was_in_no_policy_for_longest_makes_room() {
        let catalog = full();
        let first = outbound(&catalog, "1");
        outbound(&catalog, "0");
        let new = outbound(&catalog, "new");
        assert!(!knows(&catalog, "2"), "1 is held and 0 was asked for again");
        assert!(knows(&catalog, "0") && knows(&catalog, "1") && knows(&catalog, "new"));
        assert_ne!(new.id(), first.id());
        assert_eq!(catalog.dropped(), 0);
    }

    #[test]
    fn an_id_is_used_again_only_once_it_is_released() {
        let catalog = full();
        let old = outbound(&catalog, "0").id();
        (1..MAX_SERIES - 3).for_each(|n| drop(outbound(&catalog, &n.to_string())));
        let new = outbound(&catalog, "new");
        assert_eq!(catalog.take_leaving(), [old]);
        assert_ne!(new.id(), old);
        assert_ne!(outbound(&catalog, "newer").id(), old);
        catalog.release(vec![old]);
        assert_eq!(outbound(&catalog, "newest").id(), old);
    }

    #[test]
    fn ids_are_bounded_when_nobody_collects() {
        let catalog = full();
        let others = (0..2 * MAX_IDS).filter(|n| outbound(&catalog, &format!("new{n}")).id() == StatsId::OTHER).count();
        assert_eq!(catalog.names().len(), MAX_IDS);
        assert_eq!(others, 2 * MAX_IDS - MAX_SERIES);
        let leaving = catalog.take_leaving();
        assert_eq!(leaving.len(), MAX_SERIES);
        catalog.release(leaving);
        assert_ne!(outbound(&catalog, "fresh").id(), StatsId::OTHER);
    }

    #[test]
    fn the_built_in_series_stay() {
        let catalog = full();
        (0..MAX_SERIES).for_each(|n| drop(outbound(&catalog, &format!("new{n}"))));
        let inbound = catalog.resolve(Direction::Inbound, "inbound", None);
        assert_eq!(inbound.id(), StatsId::INBOUND);
        assert_eq!(catalog.names()[StatsId::UNLISTED.index()].as_ref().unwrap().dependency, "unlisted");
    }
}
