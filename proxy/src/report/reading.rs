//! The totals, as pages read them.

use std::collections::BTreeMap;

use plimsoll_resilience::Reason;

use super::catalog::SeriesName;
use super::collect::{Percentiles, Totals};
use super::events::TransitionCounts;
use super::stats::Slot;
use super::text::printable;
use super::window::Scratch;
use super::{Direction, Shared, bugs};
use crate::detect::Detected;

/// Everything counted up to the last collection.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    pub(super) totals: &'a Totals,
    pub(super) shared: &'a Shared,
}

/// What was counted for one dependency over all its routes, or for a whole direction.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Calls that ended.
    pub requests_total: u64,
    /// Calls per second over the last 30 s.
    pub requests_per_second: f64,
    /// Calls that have not ended.
    pub in_flight: u64,
    /// Latency of the last 30 s, absent below 50 samples.
    pub latency: Option<Percentiles>,
    /// Calls refused or cut, by reason.
    pub rejections: BTreeMap<&'static str, u64>,
    /// Calls that would have been, by reason.
    pub would_reject: BTreeMap<&'static str, u64>,
}

/// Things that are dropped where something is bounded.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// Series that went to `other`.
    pub series: u64,
    /// Lines of the access log.
    pub access_log_lines: u64,
    /// Decisions that were counted and not kept.
    pub decisions: u64,
}

impl<'a> Reading<'a> {
    /// Open connections: inbound, outbound.
    #[must_use]
    pub fn connections(&self) -> (u64, u64) {
        let open = |direction: Direction| {
            let (opened, closed) = self.totals.connections[direction as usize];
            opened.saturating_sub(closed)
        };
        (open(Direction::Inbound), open(Direction::Outbound))
    }

    /// What connections were found to carry, in the order of [`Detected::ALL`].
    #[must_use]
    pub fn detections(&self) -> [u64; Detected::ALL.len()] {
        self.totals.detections
    }

    /// Connections of HTTP/2 that were ended for a flood: inbound, outbound.
    pub(crate) fn floods(&self) -> [u64; 2] {
        self.totals.floods
    }

    /// One dependency, or with `None` the whole direction, whose percentiles are then those of the first dependency by name that has some.
    #[must_use]
    pub fn counted(&self, direction: Direction, dependency: Option<&str>) -> Counted {
        let mut counted = Counted::default();
        let wanted = |name: &SeriesName| {
            name.direction == direction && dependency.is_none_or(|wanted| name.dependency == wanted)
        };
        for (_, slot) in self.series().filter(|(name, _)| wanted(name)) {
            counted.requests_total += slot.ended.iter().sum::<u64>();
            counted.in_flight += slot.in_flight();
            add_reasons(&mut counted.rejections, &slot.refused[0]);
            add_reasons(&mut counted.would_reject, &slot.refused[1]);
        }
        let mut scratch = Scratch::default();
        let is_wanted = |name: &str| dependency.is_none_or(|wanted| wanted == name);
        for (_, window) in self.totals.windows[direction as usize].iter().filter(|(name, _)| is_wanted(name)) {
            counted.requests_per_second += window.calls_per_second();
            counted.latency = counted.latency.or_else(|| window.percentiles(&mut scratch));
        }
        counted
    }

    /// The most called destinations without a policy.
    pub fn unlisted(&self, limit: usize) -> impl Iterator<Item = (String, u64)> {
        self.totals.unlisted.top(limit).into_iter().map(|(name, count)| (printable(name), count))
    }

    /// Every series that has something to show.
    pub(crate) fn series(&self) -> impl Iterator<Item = (&'a SeriesName, &'a Slot)> {
        let slots = self.totals.slots.iter().map(Option::as_deref);
        self.totals.names.iter().zip(slots).filter_map(|(name, slot)| Some((name.as_ref()?, slot?)))
    }

    pub(crate) fn transitions(&self) -> TransitionCounts {
        self.shared.events.transitions()
    }

    /// Policies applied and refused.
    pub(crate) fn policies(&self) -> (u64, u64) {
        self.shared.events.policies()
    }

    pub(crate) fn bugs(&self) -> u64 {
        bugs::bugs()
    }

    pub(crate) fn dropped(&self) -> Dropped {
        Dropped {
            series: self.shared.catalog.dropped(),
            access_log_lines: self.shared.access_log.as_ref().map_or(0, |(spool, _)| spool.dropped()),
            decisions: self.totals.decisions_dropped,
        }
    }
}

fn add_reasons(into: &mut BTreeMap<&'static str, u64>, counts: &[u64]) {
    for (reason, &count) in Reason::ALL.iter().zip(counts).filter(|(_, count)| **count > 0) {
        *into.entry(reason.as_str()).or_default() += count;
    }
}
