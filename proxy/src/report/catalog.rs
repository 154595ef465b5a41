//! Which series exist: names are resolved to a [`StatsId`] when a snapshot is built, so that a call only indexes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::Direction;

/// The series a call is counted under: one for each (direction, dependency, route). Stays the same over generations,
/// because counters must not start again when policy is swapped.
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

/// Hands out [`StatsId`]s. Used when snapshots are built and when statistics are read, never by a call.
#[derive(Debug)]
pub(super) struct Catalog {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ids: BTreeMap<SeriesName, StatsId>,
    names: Vec<SeriesName>,
    dropped: u64,
}

impl Catalog {
    pub fn new() -> Self {
        let mut inner = Inner { ids: BTreeMap::new(), names: Vec::new(), dropped: 0 };
        for (direction, dependency, id) in [
            (Direction::Outbound, "unlisted", StatsId::UNLISTED),
            (Direction::Inbound, "inbound", StatsId::INBOUND),
            (Direction::Outbound, "other", StatsId::OTHER),
        ] {
            let added = inner.add(SeriesName { direction, dependency: dependency.to_owned(), route: String::new() });
            debug_assert_eq!(added, id, "the built-in ids are positions in this list");
        }
        Catalog { inner: Mutex::new(inner) }
    }

    pub fn resolve(&self, direction: Direction, dependency: &str, route: Option<&str>) -> StatsId {
        let name =
            SeriesName { direction, dependency: dependency.to_owned(), route: route.unwrap_or_default().to_owned() };
        let mut inner = self.lock();
        if let Some(&id) = inner.ids.get(&name) {
            return id;
        }
        if inner.names.len() >= MAX_SERIES {
            inner.dropped += 1;
            return StatsId::OTHER;
        }
        inner.add(name)
    }

    /// All names, by id.
    pub fn names(&self) -> Vec<SeriesName> {
        self.lock().names.clone()
    }

    pub fn len(&self) -> usize {
        self.lock().names.len()
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
    fn add(&mut self, name: SeriesName) -> StatsId {
        let id = StatsId(u32::try_from(self.names.len()).expect("bounded by MAX_SERIES"));
        self.names.push(name.clone());
        self.ids.insert(name, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_id_and_names_do_not_mix() {
        let catalog = Catalog::new();
        let rest = catalog.resolve(Direction::Outbound, "shop/fraud", None);
        let route = catalog.resolve(Direction::Outbound, "shop/fraud", Some("charge"));
        let inbound = catalog.resolve(Direction::Inbound, "shop/fraud", None);
        assert_eq!(catalog.resolve(Direction::Outbound, "shop/fraud", None), rest);
        assert_eq!(catalog.resolve(Direction::Outbound, "unlisted", None), StatsId::UNLISTED);
        assert!(rest != route && rest != inbound && route != inbound);
        assert_eq!(catalog.names()[route.index()].route, "charge");
    }

    #[test]
    fn past_the_cap_series_share_one_and_are_counted() {
        let catalog = Catalog::new();
        for n in 0..MAX_SERIES + 5 {
            catalog.resolve(Direction::Outbound, &format!("shop/{n}"), None);
        }
        assert_eq!(catalog.resolve(Direction::Outbound, "shop/new", None), StatsId::OTHER);
        assert_ne!(catalog.resolve(Direction::Outbound, "shop/0", None), StatsId::OTHER);
        assert_eq!(catalog.names().len(), MAX_SERIES);
        assert_eq!(catalog.dropped(), 3 + 5 + 1);
    }
}
