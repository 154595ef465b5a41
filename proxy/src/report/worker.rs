//! A worker's end of the report: what the data path calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::access_log::AccessLane;
use super::collect::{Collect, HandOver};
use super::decisions::Decision;
use super::stats::Batch;
use super::{CallFacts, CallReport, Direction, Percentiles, Shared, StatsId};
use crate::detect::Detected;
use crate::reject::Refusal;

/// What one worker reports with. It stays on the worker's thread; `Rc` it into every task.
#[derive(Debug)]
pub struct WorkerReport {
    shared: Arc<Shared>,
    batch: RefCell<Batch>,
    access: Option<AccessLane>,
}

impl WorkerReport {
    pub(super) fn new(shared: Arc<Shared>, access: Option<AccessLane>) -> Self {
        WorkerReport { shared, batch: RefCell::default(), access }
    }

    /// A call has arrived. Every call that started is reported once with [`WorkerReport::call`].
    pub fn started(&self, stats: StatsId) {
        self.batch.borrow_mut().slot(stats).started += 1;
    }

    /// A call has ended: exactly once for each, whatever happened to it.
    pub fn call(&self, report: &CallReport<'_>) {
        let kept = {
            let mut batch = self.batch.borrow_mut();
            batch.call(report);
            report.rejection().filter(|refusal| batch.keeps_decision(report.stats, refusal.reason))
        };
        if let Some(refusal) = kept {
            self.shared.decisions.push(Decision::made(refusal, report));
        }
        if let Some(access) = &self.access {
            access.write(report);
        }
    }

    /// A block in `Observe` would have refused this call. Its answer is reported apart, by [`WorkerReport::call`].
    pub fn would_refuse(&self, stats: StatsId, refusal: &Refusal<'_>, facts: &CallFacts<'_>) {
        let keep = {
            let mut batch = self.batch.borrow_mut();
            batch.would_refuse(stats, refusal.reason);
            batch.keeps_decision(stats, refusal.reason)
        };
        if keep {
            self.shared.decisions.push(Decision::observed(refusal, facts));
        }
    }

    /// A retry block in `Observe` would have made another attempt at this call.
    pub fn would_retry(&self, stats: StatsId) {
        self.batch.borrow_mut().slot(stats).retries_observed += 1;
    }

    /// An opaque connection has moved this many bytes from its caller, and to it.
    pub fn moved(&self, stats: StatsId, received: u64, sent: u64) {
        let mut batch = self.batch.borrow_mut();
        let bytes = &mut batch.slot(stats).opaque_bytes;
        bytes[0] += received;
        bytes[1] += sent;
    }

    /// A connection was found to carry this.
    pub fn detected(&self, what: Detected) {
        self.batch.borrow_mut().detected(what);
    }

    /// A connection was accepted.
    pub fn connection_opened(&self, direction: Direction) {
        self.batch.borrow_mut().connection_opened(direction);
    }

    /// A connection that was accepted is gone.
    pub fn connection_closed(&self, direction: Direction) {
        self.batch.borrow_mut().connection_closed(direction);
    }

    /// A connection of HTTP/2 was ended, since its caller sent more than anybody needs.
    pub fn flooded(&self, direction: Direction) {
        self.batch.borrow_mut().floods[direction as usize] += 1;
    }

    /// Latency of the dependency behind a series over the last 30 s, all routes; `None` below 50 samples.
    #[must_use]
    pub fn percentiles(&self, stats: StatsId) -> Option<Percentiles> {
        self.shared.published.load().of(stats)
    }
}

/// Answers the collector for one worker: run it as a task of that worker.
#[derive(Debug)]
pub struct Collection {
    worker: Rc<WorkerReport>,
    requests: mpsc::UnboundedReceiver<Collect>,
    hand_over: mpsc::UnboundedSender<HandOver>,
}

impl Collection {
    pub(super) fn new(
        worker: Rc<WorkerReport>,
        requests: mpsc::UnboundedReceiver<Collect>,
        hand_over: mpsc::UnboundedSender<HandOver>,
    ) -> Self {
        Collection { worker, requests, hand_over }
    }

    /// Hands the batch over whenever it is asked for, until the collector is gone.
    pub async fn drive(mut self) {
        while let Some(Collect { empty, round }) = self.requests.recv().await {
            self.hand_over(empty);
            // Only now: who sees this round end finds the batch.
            drop(round);
        }
    }

    fn hand_over(&self, empty: Batch) {
        let full = self.worker.batch.replace(empty);
        // Without a collector the process is ending, and nobody is left to read the numbers.
        let _ = self.hand_over.send(HandOver { full });
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        // The worker ends: what it counted last is not lost. It is sent before the rounds that nobody answered are
        // dropped with `requests`.
        self.hand_over(Batch::default());
    }
}
