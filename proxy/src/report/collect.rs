//! The collector: asks workers for what they counted, adds it up, and publishes what decides things.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::catalog::SeriesName;
use super::reading::Reading;
use super::stats::{Batch, Slot, add_all};
use super::window::{Scratch, Window};
use super::{Shared, StatsId};
use crate::detect::Detected;

/// Asks a worker for its batch and brings an empty one in exchange.
#[derive(Debug)]
pub(super) struct Collect {
    pub empty: Batch,
    pub round: Round,
}

/// Dropped by a worker when it has handed over, or has ended: once nobody holds it but the collector, every batch with
/// something from before the question is on its way.
pub(super) type Round = Arc<()>;

/// A worker's batch on its way to the collector.
#[derive(Debug)]
pub(super) struct HandOver {
    pub full: Batch,
}

/// Latency of one dependency over the last 30 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of the attempts were faster.
    pub p50: Duration,
    /// Nine of ten attempts were faster.
    pub p90: Duration,
    /// 99 of 100 attempts were faster.
    pub p99: Duration,
    /// Attempts looked at; at least [`super::window::MIN_SAMPLES`].
    pub samples: u64,
}

/// What is published once a second, by series.
#[derive(Debug, Default)]
pub struct Published {
    latency: Vec<Option<Percentiles>>,
}

impl Published {
    /// The dependency behind a series, all its routes together; `None` below 50 samples.
    #[must_use]
    pub fn of(&self, id: StatsId) -> Option<Percentiles> {
        self.latency.get(id.index()).copied().flatten()
    }
}

/// How long a worker that does not answer is waited for. Its batch is not lost: it is added when it comes.
const PATIENCE: Duration = Duration::from_millis(200);

/// Owns the totals. Lives on the admin thread.
#[derive(Debug)]
pub struct Collector {
    shared: Arc<Shared>,
    hand_overs: mpsc::UnboundedReceiver<HandOver>,
    spare: Vec<Batch>,
    /// Ids that lost their names before the question that goes with them was asked.
    leaving: Vec<(Round, Vec<StatsId>)>,
    totals: Totals,
}

/// Everything counted since the process began.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// By [`StatsId`].
    pub slots: Vec<Option<Box<Slot>>>,
    /// By [`Direction`] and dependency: all routes together.
    pub windows: [BTreeMap<String, Window>; 2],
    pub connections: [(u64, u64); 2],
    pub detections: [u64; Detected::ALL.len()],
    pub floods: [u64; 2],
    pub decisions_dropped: u64,
    pub unlisted: super::unlisted::TopList,
    /// Names by [`StatsId`], as of the last collection; `None` for an id that is no longer a series.
    pub names: Vec<Option<SeriesName>>,
    /// Of the names.
    version: u64,
}

impl Collector {
    pub(super) fn new(shared: Arc<Shared>, hand_overs: mpsc::UnboundedReceiver<HandOver>) -> Self {
        Collector { shared, hand_overs, spare: Vec::new(), leaving: Vec::new(), totals: Totals::default() }
    }

    /// Asks every worker and adds up what they counted. To be dropped midway is safe.
    pub async fn collect(&mut self) {
        let asked = self.ask();
        let _ = tokio::time::timeout(PATIENCE, self.receive(asked)).await;
        self.receive_late();
    }

    /// Once a second: the window moves on, and its percentiles are published.
    pub async fn tick(&mut self) -> Arc<Published> {
        self.collect().await;
        let ids = self.take_left();
        for windows in &mut self.totals.windows {
            windows.retain(|_, window| {
                window.roll();
                !window.is_quiet()
            });
        }
        let published = Arc::new(Published { latency: self.totals.published() });
        self.shared.published.store(published.clone());
        // Not before: who takes one of these ids must not find there what was published under another name.
        self.shared.catalog.release(ids);
        published
    }

    /// The totals as of the last collection.
    #[must_use]
    pub fn reading(&self) -> Reading<'_> {
        Reading { totals: &self.totals, shared: &self.shared }
    }

    /// Sends every living worker an empty batch; says how many will answer.
    fn ask(&mut self) -> usize {
        let round = Round::default();
        let leaving = self.shared.catalog.take_leaving();
        if !leaving.is_empty() {
            self.leaving.push((round.clone(), leaving));
        }
        let spare = &mut self.spare;
        let mut asked = 0;
        self.shared.lock_workers().retain(|worker| {
            let sent = worker.send(Collect { empty: spare.pop().unwrap_or_default(), round: round.clone() }).is_ok();
            asked += usize::from(sent);
            sent
        });
        asked
    }

    async fn receive(&mut self, asked: usize) {
        for _ in 0..asked {
            let Some(HandOver { full }) = self.hand_overs.recv().await else {
                return;
            };
            self.add(full);
        }
    }

    fn receive_late(&mut self) {
        while let Ok(HandOver { full }) = self.hand_overs.try_recv() {
            self.add(full);
        }
    }

    /// The ids of which no worker holds a number any more; their totals end here.
    fn take_left(&mut self) -> Vec<StatsId> {
        let is_over = |(round, _): &mut (Round, _)| Arc::get_mut(round).is_some();
        let ids: Vec<_> = self.leaving.extract_if(.., is_over).flat_map(|(_, ids)| ids).collect();
        // Workers send their batch before they let go of the round.
        self.receive_late();
        self.totals.learn_names(&self.shared);
        for id in &ids {
            if let Some(slot) = self.totals.slots.get_mut(id.index()) {
                *slot = None;
            }
        }
        ids
    }

    fn add(&mut self, mut batch: Batch) {
        self.totals.learn_names(&self.shared);
        self.totals.add(&batch);
        batch.clear();
        // One spare for each worker is in use at a time; late answers must not pile up.
        if self.spare.len() < self.shared.lock_workers().len() {
            self.spare.push(batch);
        }
    }
}

impl Totals {
    fn learn_names(&mut self, shared: &Shared) {
        let version = shared.catalog.version();
        if self.version != version {
            self.names = shared.catalog.names();
            self.version = version;
        }
    }

    fn add(&mut self, batch: &Batch) {
        for (index, slot) in batch.touched() {
            // A series that is leaving takes its last numbers along.
            let Some(Some(name)) = self.names.get(index) else { continue };
            if index >= self.slots.len() {
                self.slots.resize_with(index + 1, || None);
            }
            self.slots[index].get_or_insert_with(Box::default).add(slot);
            let windows = &mut self.windows[name.direction as usize];
            match windows.get_mut(&name.dependency) {
                Some(window) => window.add(slot),
                None => windows.entry(name.dependency.clone()).or_default().add(slot),
            }
        }
        add_all(&mut self.detections, &batch.detections);
        for (mine, theirs) in self.connections.iter_mut().zip(&batch.connections) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
        add_all(&mut self.floods, &batch.floods);
        self.decisions_dropped += batch.decisions_dropped;
        for (name, count) in &batch.unlisted {
            self.unlisted.add(name, *count);
        }
    }

    fn published(&self) -> Vec<Option<Percentiles>> {
        let mut scratch = Scratch::default();
        let by_dependency = self.windows.each_ref().map(|windows| {
            let percentiles = |(name, window): (_, &Window)| Some((name, window.percentiles(&mut scratch)?));
            windows.iter().filter_map(percentiles).collect::<BTreeMap<&String, _>>()
        });
        let of = |name: &SeriesName| by_dependency[name.direction as usize].get(&name.dependency).copied();
        self.names.iter().map(|name| name.as_ref().and_then(of)).collect()
    }
}
