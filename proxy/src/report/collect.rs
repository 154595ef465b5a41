//! The collector: asks workers for what they counted, adds it up, and publishes what decides things.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::catalog::SeriesName;
use super::reading::Reading;
use super::stats::{Batch, Slot};
use super::window::{Scratch, Window};
use super::{Shared, StatsId};

/// Asks a worker for its batch and brings an empty one in exchange.
#[derive(Debug)]
pub(super) struct Collect {
    pub empty: Batch,
}

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
    totals: Totals,
}

/// Everything counted since the process began.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// By [`StatsId`].
    pub slots: Vec<Option<Box<Slot>>>,
    /// By dependency: all routes together.
    pub windows: BTreeMap<usize, Window>,
    pub connections: [(u64, u64); 2],
    pub decisions_dropped: u64,
    pub unlisted: super::unlisted::TopList,
    /// Names by [`StatsId`], as of the last collection.
    pub names: Vec<SeriesName>,
    /// By [`StatsId`]: the id of its dependency's first series, under which its window is kept.
    pub groups: Vec<usize>,
}

impl Collector {
    pub(super) fn new(shared: Arc<Shared>, hand_overs: mpsc::UnboundedReceiver<HandOver>) -> Self {
        Collector { shared, hand_overs, spare: Vec::new(), totals: Totals::default() }
    }

    /// Asks every worker and adds up what they counted. To be dropped midway is safe.
    pub async fn collect(&mut self) {
        let asked = self.ask();
        let _ = tokio::time::timeout(PATIENCE, self.receive(asked)).await;
        while let Ok(HandOver { full }) = self.hand_overs.try_recv() {
            self.add(full);
        }
    }

    /// Once a second: the window moves on, and its percentiles are published.
    pub async fn tick(&mut self) -> Arc<Published> {
        self.collect().await;
        self.totals.windows.retain(|_, window| {
            window.roll();
            !window.is_quiet()
        });
        let published = Arc::new(Published { latency: self.totals.published() });
        self.shared.published.store(published.clone());
        published
    }

    /// The totals as of the last collection.
    #[must_use]
    pub fn reading(&self) -> Reading<'_> {
        Reading { totals: &self.totals, shared: &self.shared }
    }

    /// Sends every living worker an empty batch; says how many will answer.
    fn ask(&mut self) -> usize {
        let spare = &mut self.spare;
        let mut asked = 0;
        self.shared.lock_workers().retain(|worker| {
            let sent = worker.send(Collect { empty: spare.pop().unwrap_or_default() }).is_ok();
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
        if shared.catalog.len() == self.names.len() {
            return;
        }
        self.names = shared.catalog.names();
        let mut first = BTreeMap::new();
        self.groups = self
            .names
            .iter()
            .enumerate()
            .map(|(index, name)| *first.entry((name.direction, name.dependency.as_str())).or_insert(index))
            .collect();
    }

    fn add(&mut self, batch: &Batch) {
        for (index, slot) in batch.touched() {
            if index >= self.slots.len() {
                self.slots.resize_with(index + 1, || None);
            }
            self.slots[index].get_or_insert_with(Box::default).add(slot);
            if let Some(&group) = self.groups.get(index) {
                self.windows.entry(group).or_default().add(slot);
            }
        }
        for (mine, theirs) in self.connections.iter_mut().zip(&batch.connections) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
        self.decisions_dropped += batch.decisions_dropped;
        for (name, count) in &batch.unlisted {
            self.unlisted.add(name, *count);
        }
    }

    fn published(&self) -> Vec<Option<Percentiles>> {
        let mut scratch = Scratch::default();
        let by_group: BTreeMap<_, _> =
            self.windows.iter().map(|(&group, window)| (group, window.percentiles(&mut scratch))).collect();
        self.groups.iter().map(|group| by_group.get(group).copied().flatten()).collect()
    }
}
