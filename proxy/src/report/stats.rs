//! What one worker has counted since it was last asked: plain numbers with one writer.
//!
//! A worker owns a [`Batch`] and adds to it. The collector hands it an empty one in exchange for the full one, so a
//! number is never read while it is written, nothing is atomic, and what the collector adds up is exact.

use std::collections::HashMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll_resilience::codes::GrpcCode;
use plimsoll_resilience::{Outcome, Reason, RetryDenied, Summary};

use super::decisions::KEPT_PER_HAND_OVER;
use super::{CallReport, Direction, StatsId};
use crate::detect::Detected;

/// Upper bounds of the exposed duration histograms, in microseconds; the last bucket of [`Buckets`] is everything above.
pub(crate) const BOUNDS_US: [u64; 16] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000, 60_000_000,
];

/// A histogram of durations with fixed bounds, as it is exposed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buckets {
    pub counts: [u64; BOUNDS_US.len() + 1],
    pub sum_us: u64,
}

impl Buckets {
    fn record(&mut self, value: Duration) {
        let us = micros(value);
        let bucket = BOUNDS_US.iter().position(|&bound| us <= bound).unwrap_or(BOUNDS_US.len());
        self.counts[bucket] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    fn add(&mut self, other: &Buckets) {
        add_all(&mut self.counts, &other.counts);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Statuses by class; the last place is for calls that ended without any status.
pub(crate) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];
/// The one that gRPC's answers have, whatever they say.
pub(crate) const OK_CLASS: &str = CLASSES[1];
pub(crate) const ATTEMPT_KINDS: [&str; 2] = ["first", "retry"];
const OUTCOMES: usize = Outcome::ALL.len();
/// Every cause for which a retry was not made, in the order of the enum.
pub(crate) const RETRY_DENIED_CAUSES: [RetryDenied; 12] = {
    use RetryDenied::{
        Attempts, Body, Budget, Bulkhead, CircuitOpen, Deadline, Forbidden, NoEndpoint, Over, RetriedInbound,
        RetryAfter, Unsafe,
    };
    [
        Attempts,
        Unsafe,
        Body,
        Deadline,
        RetryAfter,
        Forbidden,
        RetriedInbound,
        Budget,
        CircuitOpen,
        Bulkhead,
        NoEndpoint,
        Over,
    ]
};
const RETRY_DENIED: usize = RETRY_DENIED_CAUSES.len();
/// Modes in which a refusal is counted: made, or only observed.
pub(crate) const MODES: [&str; 2] = ["Enforce", "Observe"];

/// The counters of one series.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Something was added since the slot was last emptied.
    pub touched: bool,
    pub started: u64,
    pub ended: [u64; CLASSES.len()],
    /// Those of them that were gRPC and ended with a status, by its number.
    pub grpc: Option<Box<[u64; GrpcCode::ALL.len()]>>,
    pub duration: Buckets,
    pub queue_wait: Buckets,
    pub deadline_remaining: Buckets,
    pub attempts: [[u64; OUTCOMES]; ATTEMPT_KINDS.len()],
    pub refused: [[u64; Reason::ALL.len()]; MODES.len()],
    pub retries_denied: [u64; RETRY_DENIED],
    /// Bytes of opaque connections: from the caller, to the caller.
    pub opaque_bytes: [u64; 2],
    /// Retries that a retry block in `Observe` would have made.
    pub retries_observed: u64,
    /// Decisions already copied into the log since the hand-over; see [`super::decisions`].
    pub decisions_kept: [u16; Reason::ALL.len()],
    /// Microseconds of attempts that brought a whole answer, on the clock of semantics.md, "Slow calls".
    pub latency: Option<Box<Histogram<u32>>>,
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            touched: false,
            started: 0,
            ended: [0; CLASSES.len()],
            grpc: None,
            duration: Buckets::default(),
            queue_wait: Buckets::default(),
            deadline_remaining: Buckets::default(),
            attempts: [[0; OUTCOMES]; ATTEMPT_KINDS.len()],
            refused: [[0; Reason::ALL.len()]; MODES.len()],
            retries_denied: [0; RETRY_DENIED],
            opaque_bytes: [0; 2],
            retries_observed: 0,
            decisions_kept: [0; Reason::ALL.len()],
            latency: None,
        }
    }
}

impl Slot {
    /// Back to zero; the histogram keeps its memory, so that a busy worker does not allocate once a second.
    fn clear(&mut self) {
        let mut latency = self.latency.take();
        if let Some(histogram) = &mut latency {
            histogram.reset();
        }
        *self = Slot { latency, ..Slot::default() };
    }

    /// Adds the counters of `other`; the histogram goes to a window instead.
    pub fn add(&mut self, other: &Slot) {
        self.touched |= other.touched;
        self.started += other.started;
        add_all(&mut self.ended, &other.ended);
        if let Some(theirs) = &other.grpc {
            add_all(self.grpc.get_or_insert_default(), theirs);
        }
        self.duration.add(&other.duration);
        self.queue_wait.add(&other.queue_wait);
        self.deadline_remaining.add(&other.deadline_remaining);
        for (mine, theirs) in self.attempts.iter_mut().zip(&other.attempts) {
            add_all(mine, theirs);
        }
        add_all(&mut self.retries_denied, &other.retries_denied);
        add_all(&mut self.opaque_bytes, &other.opaque_bytes);
        self.retries_observed += other.retries_observed;
        for (mine, theirs) in self.refused.iter_mut().zip(&other.refused) {
            add_all(mine, theirs);
        }
    }

    fn attempts(&mut self, summary: &Summary) {
        let [first, retries] = &mut self.attempts;
        if let Some(outcome) = summary.first {
            first[outcome as usize] += 1;
        }
        for (total, &count) in retries.iter_mut().zip(&summary.retries) {
            *total += u64::from(count);
        }
        if let Some(denied) = summary.retry_denied {
            self.retries_denied[denied as usize] += 1;
        }
        if !summary.queued.is_zero() {
            self.queue_wait.record(summary.queued);
        }
        if let Some(latency) = summary.latency {
            self.latency.get_or_insert_with(new_histogram).saturating_record(micros(latency));
        }
    }

    /// Calls that have begun and not ended. A total, never a batch: a call may end in another batch than it began.
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.ended.iter().sum())
    }
}

/// All that one worker counted between two hand-overs.
#[derive(Debug, Default)]
pub(super) struct Batch {
    slots: Vec<Option<Box<Slot>>>,
    /// Opened and closed connections, by [`Direction`].
    pub connections: [(u64, u64); 2],
    /// What connections were found to carry, in the order of [`Detected::ALL`].
    pub detections: [u64; Detected::ALL.len()],
    /// Connections of HTTP/2 that were ended for a flood, by [`Direction`].
    pub floods: [u64; 2],
    /// Calls to destinations without a policy, by host. At most [`UNLISTED_HOSTS`] names for each hand-over.
    pub unlisted: HashMap<Box<[u8]>, u64>,
    /// Decisions that were counted but not copied into the log.
    pub decisions_dropped: u64,
}

/// Names of unlisted destinations kept between two hand-overs; callers choose them, so they are bounded.
const UNLISTED_HOSTS: usize = 64;
/// A DNS name has at most 253 characters; with `:port` this is enough for any real one.
const UNLISTED_HOST_LENGTH: usize = 260;

impl Batch {
    pub fn slot(&mut self, id: StatsId) -> &mut Slot {
        let index = id.index();
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        let slot = self.slots[index].get_or_insert_with(Box::default);
        slot.touched = true;
        slot
    }

    /// The slots to which something was added, by index.
    pub fn touched(&self) -> impl Iterator<Item = (usize, &Slot)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some((index, slot.as_deref().filter(|slot| slot.touched)?)))
    }

    pub fn clear(&mut self) {
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.touched) {
            slot.clear();
        }
        self.connections = Default::default();
        self.detections = Default::default();
        self.floods = Default::default();
        self.unlisted.clear();
        self.decisions_dropped = 0;
    }

    pub fn call(&mut self, report: &CallReport<'_>) {
        if report.stats == StatsId::UNLISTED {
            self.unlisted_host(report.facts.host);
        }
        let slot = self.slot(report.stats);
        slot.ended[class_of(report.status)] += 1;
        if let Some(code) = report.grpc {
            slot.grpc.get_or_insert_default()[usize::from(code.number())] += 1;
        }
        slot.duration.record(report.duration);
        if let Some(remaining) = report.deadline_remaining {
            slot.deadline_remaining.record(remaining);
        }
        if let Some(refusal) = report.rejection() {
            slot.refused[0][refusal.reason as usize] += 1;
        }
        slot.attempts(&report.summary);
    }

    /// A refusal that was only observed.
    pub fn would_refuse(&mut self, id: StatsId, reason: Reason) {
        self.slot(id).refused[1][reason as usize] += 1;
    }

    /// Whether this decision is one of the few that are copied into the log.
    pub fn keeps_decision(&mut self, id: StatsId, reason: Reason) -> bool {
        let kept = &mut self.slot(id).decisions_kept[reason as usize];
        if *kept < KEPT_PER_HAND_OVER {
            *kept += 1;
            return true;
        }
        self.decisions_dropped += 1;
        false
    }

    pub fn detected(&mut self, what: Detected) {
        self.detections[what as usize] += 1;
    }

    pub fn connection_opened(&mut self, direction: Direction) {
        self.connections[direction as usize].0 += 1;
    }

    pub fn connection_closed(&mut self, direction: Direction) {
        self.connections[direction as usize].1 += 1;
    }

    fn unlisted_host(&mut self, host: &[u8]) {
        let host = &host[..host.len().min(UNLISTED_HOST_LENGTH)];
        if host.is_empty() {
            // A message so broken that nobody knows where it was going.
            return;
        }
        if let Some(count) = self.unlisted.get_mut(host) {
            *count += 1;
        } else if self.unlisted.len() < UNLISTED_HOSTS {
            self.unlisted.insert(host.into(), 1);
        }
    }
}

/// Two digits, up to an hour: 13 KiB, allocated when a series first needs it.
pub(super) fn new_histogram() -> Box<Histogram<u32>> {
    const HOUR_US: u64 = 3_600_000_000;
    Box::new(Histogram::new_with_max(HOUR_US, 2).expect("the bounds are constants that the crate accepts"))
}

fn class_of(status: u16) -> usize {
    match status {
        100..=599 => usize::from(status / 100) - 1,
        _ => CLASSES.len() - 1,
    }
}

fn micros(value: Duration) -> u64 {
    u64::try_from(value.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn add_all<const N: usize>(mine: &mut [u64; N], theirs: &[u64; N]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}
