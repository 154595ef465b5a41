//! The endpoint with the fewest calls in flight.
//!
//! ```text
//!              in flight   failed lately    weighs
//!   10.0.0.1   ****        -                4
//!   10.0.0.2   **          -                2         <- takes the next call
//!   10.0.0.3               9 of 9            5  = all of them x (the busiest one here, and one more)
//! ```
//!
//! It protects callers from an endpoint that has turned slow, since what is slow has more in flight, and keeps the
//! endpoints of unlike strength equally busy.
//!
//! *Rule*: an endpoint weighs what is in flight there, plus the share of its calls of the last 10 s that failed, timed
//! out or were pushed back, of what the busiest of those it is compared with has in flight and one more. So an endpoint
//! that fails every call at once, and therefore never has anything in flight, is not taken for the fastest: it is taken
//! when nothing better is there. Up to [`SCANNED`] endpoints are all compared, which is exact; of more, two that are
//! drawn at random, which is nearly as good and costs the same for any number. Who weighs the same is drawn.
//!
//! *Cold start*: an endpoint that is new weighs nothing. *Recovery*: an endpoint that is not called because it failed is
//! asked again when its failures are 10 s old. *Not done*: it ejects nobody (an endpoint that fails still has its turn
//! when all others fail, or are refused), ramps nobody up, and knows nothing of the calls of other sidecars.
//!
//! The counts are exact over all workers. A table entry is made at the first call of an endpoint and goes when it is as
//! good as new, in a sweep each time the table has doubled, so that endpoints may come and go for ever.
//!
//! Source: Mitzenmacher, "The power of two choices in randomized load balancing" (2001); Finagle's `leastLoaded`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::outcome::Outcome;
use crate::random::Random;
use crate::rejection::EndpointKey;
use crate::time::Timestamp;
use crate::window::TimeWindow;

/// So many endpoints are compared one by one; each costs a look into the table under the dependency's lock.
pub const SCANNED: usize = 8;

/// For how long a failure weighs: as long as a failed endpoint may be left alone before it is asked again.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Entries of the table. Where destinations are not listed anybody may name one more.
const MOST: usize = 4096;

/// The table is swept when it has this many entries, and then each time it has doubled.
const SWEPT_AT: usize = 16;

const ENDED: usize = 0;
const BAD: usize = 1;

/// What is in flight to each endpoint, and how its calls ended lately.
#[derive(Debug)]
pub struct Loads {
    endpoints: BTreeMap<EndpointKey, Load>,
    sweep_at: usize,
    sweep_after: Timestamp,
}

#[derive(Debug)]
struct Load {
    in_flight: u32,
    ended: TimeWindow<2>,
}

/// What one endpoint weighs, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadView {
    /// Which.
    pub endpoint: EndpointKey,
    /// Attempts in flight there.
    pub in_flight: u32,
    /// Attempts that have ended there in the last 10 s with an outcome that tells something.
    pub ended: u32,
    /// Those of them that failed, timed out or were pushed back.
    pub bad: u32,
}

impl LoadView {
    /// In flight, and the share of bad ends of `busiest` and one more, rounded.
    fn weight(&self, busiest: u32) -> u64 {
        let bad = u64::from(self.bad) * (u64::from(busiest) + 1);
        let ended = u64::from(self.ended.max(1));
        u64::from(self.in_flight) + (2 * bad + ended) / (2 * ended)
    }
}

impl Default for Loads {
    fn default() -> Self {
        Self { endpoints: BTreeMap::new(), sweep_at: SWEPT_AT, sweep_after: Timestamp::ZERO }
    }
}

impl Loads {
    /// An attempt goes to `endpoint`. False if the table is full: it is not counted, and there is no end to be told.
    #[must_use]
    pub fn begin(&mut self, endpoint: EndpointKey, now: Timestamp) -> bool {
        if let Some(load) = self.endpoints.get_mut(&endpoint) {
            load.in_flight += 1;
            return true;
        }
        if self.endpoints.len() >= self.sweep_at && now >= self.sweep_after {
            self.sweep(now);
        }
        let has_room = self.endpoints.len() < MOST;
        if has_room {
            self.endpoints.insert(endpoint, Load { in_flight: 1, ended: TimeWindow::new(REMEMBERED) });
        }
        has_room
    }

    fn sweep(&mut self, now: Timestamp) {
        self.endpoints.retain(|_, load| !load.is_as_new(now));
        self.sweep_at = (2 * self.endpoints.len()).clamp(SWEPT_AT, MOST);
        if self.endpoints.len() >= MOST {
            // All of it is in use: one look through it a second is enough.
            self.sweep_after = now.saturating_add(Duration::from_secs(1));
        }
    }

    /// An attempt that was counted is over.
    pub fn end(&mut self, endpoint: EndpointKey, outcome: Outcome, now: Timestamp) {
        let load = self.endpoints.get_mut(&endpoint).expect("an endpoint with something in flight is in the table");
        load.in_flight -= 1;
        let bad = match outcome {
            Outcome::Success => false,
            Outcome::Failure | Outcome::Timeout | Outcome::Pushback => true,
            Outcome::Cancelled => return,
        };
        let place = load.ended.roll(now);
        load.ended.add(place, ENDED);
        if bad {
            load.ended.add(place, BAD);
        }
    }

    /// Nobody asks any more: only what is in flight is kept, until it has come back.
    pub fn retire(&mut self) {
        self.endpoints.retain(|_, load| load.in_flight > 0);
    }

    /// The position of the endpoint, of `count`, that the next call goes to; `None` if none `passes`.
    pub fn pick(
        &self,
        count: usize,
        key: impl Fn(usize) -> EndpointKey,
        mut passes: impl FnMut(EndpointKey) -> bool,
        random: &mut Random,
        now: Timestamp,
    ) -> Option<usize> {
        if count <= SCANNED {
            let all: [usize; SCANNED] = std::array::from_fn(|position| position);
            return self.lightest(&all[..count], &key, &mut passes, random, now);
        }
        let below = |random: &mut Random, n: usize| usize::try_from(random.below(n as u64)).unwrap_or(0);
        let first = below(random, count);
        let second = (first + 1 + below(random, count - 1)) % count;
        let drawn = self.lightest(&[first, second], &key, &mut passes, random, now);
        // Many are refused: whichever comes first.
        drawn.or_else(|| (0..count).map(|step| (first + step) % count).find(|&position| passes(key(position))))
    }

    /// Of at most [`SCANNED`] positions the one that weighs least; of several, one that is drawn.
    fn lightest(
        &self,
        positions: &[usize],
        key: &impl Fn(usize) -> EndpointKey,
        passes: &mut impl FnMut(EndpointKey) -> bool,
        random: &mut Random,
        now: Timestamp,
    ) -> Option<usize> {
        let mut compared = [None; SCANNED];
        for (slot, &position) in compared.iter_mut().zip(positions) {
            let endpoint = key(position);
            *slot = passes(endpoint).then(|| (position, self.view_of(endpoint, now)));
        }
        let compared = compared.iter().flatten();
        let busiest = compared.clone().map(|(_, view)| view.in_flight).max()?;
        let mut best = (u64::MAX, None);
        let mut alike = 0;
        for &(position, view) in compared {
            let weight = view.weight(busiest);
            match weight.cmp(&best.0) {
                Ordering::Less => alike = 1,
                Ordering::Equal => alike += 1,
                Ordering::Greater => continue,
            }
            if random.below(alike) == 0 {
                best = (weight, Some(position));
            }
        }
        best.1
    }

    /// What is known of `endpoint`.
    pub fn view_of(&self, endpoint: EndpointKey, now: Timestamp) -> LoadView {
        let Some(load) = self.endpoints.get(&endpoint) else {
            return LoadView { endpoint, in_flight: 0, ended: 0, bad: 0 };
        };
        let totals = load.ended.totals(now);
        LoadView { endpoint, in_flight: load.in_flight, ended: totals[ENDED], bad: totals[BAD] }
    }

    /// Every endpoint of which something is known.
    pub fn view(&self, now: Timestamp) -> Vec<LoadView> {
        self.endpoints.keys().map(|&endpoint| self.view_of(endpoint, now)).collect()
    }

    /// Panics if a number does not add up.
    pub fn check_invariants(&self) {
        self.endpoints.values().for_each(|load| load.ended.check_invariants());
        assert!(self.endpoints.len() <= self.sweep_at, "the table was not swept");
    }
}

impl Load {
    /// Nothing would be lost with it.
    fn is_as_new(&self, now: Timestamp) -> bool {
        self.in_flight == 0 && self.ended.totals(now) == [0, 0]
    }
}

#[cfg(test)]
mod tests;
