//! What happened, exactly once per call: counters, histograms, the decision log, the access log, events.
//!
//! ```text
//!  worker thread (x N)                        admin thread                       writer threads
//!  WorkerReport ── Batch, swapped on demand ─▶ Collector ─▶ /metrics /status
//!       │     ◀──────── Published (30 s percentiles, once a second) ──┘
//!       ├── a few refusals a second ─▶ DecisionLog ─▶ /decisions
//!       └── Spool lane (bounded) ─────────────────────────────────────────────▶ access log
//!  anyone ── state changes ─▶ Events ─▶ /events, log ──── Spool lane ──────────▶ standard error
//! ```
//!
//! On the data path a report is a few additions to numbers that only this worker writes. Nothing there does I/O,
//! waits, or looks a label up; where something is bounded and full, the rest is counted as dropped.

mod access_log;
mod bugs;
mod catalog;
mod collect;
mod decisions;
mod events;
mod log;
mod reading;
mod spool;
mod stats;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod unlisted;
mod window;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use plimsoll_resilience::codes::GrpcCode;
use plimsoll_resilience::{Reason, Summary};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use crate::reject::Refusal;

use access_log::AccessLane;
use catalog::Catalog;
use collect::{Collect, HandOver};
use spool::Spool;

pub use bugs::count_bug;
pub(crate) use catalog::SeriesName;
pub use catalog::{MAX_SERIES, Series, StatsId};
pub use collect::{Collector, Percentiles, Published};
pub use decisions::{Decision, DecisionLog};
pub(crate) use events::TransitionCounts;
pub use events::{CircuitChange, Events, Message, PolicyChange};
pub use log::{Log, LogError, start_log};
pub use reading::{Counted, Dropped, Reading};
pub use spool::Target;
pub(crate) use stats::{ATTEMPT_KINDS, BOUNDS_US, Buckets, CLASSES, MODES, OK_CLASS, RETRY_DENIED_CAUSES, Slot};
pub use text::timestamp;
pub use worker::{Collection, WorkerReport};

/// Which way a call goes, seen from the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the workload.
    Inbound = 0,
    /// From the workload.
    Outbound = 1,
}

impl Direction {
    /// The label of metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        }
    }
}

/// What is known of a call from its head alone. Bytes as received: they are escaped where they are written.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// Wall-clock time at which the head arrived.
    pub time: SystemTime,
    /// Which way it goes.
    pub direction: Direction,
    /// The request method.
    pub method: &'a [u8],
    /// The host that was called, with its port where one was given.
    pub host: &'a [u8],
    /// The request target; the query is cut off before it is written anywhere.
    pub path: &'a [u8],
    /// The trace id in force, empty if there is none.
    pub trace_id: &'a str,
    /// The policy that holds the call (`shop/fraud-api`).
    pub policy: Option<&'a str>,
    /// The named route of that policy.
    pub route: Option<&'a str>,
}

/// One call that has ended, however it ended.
#[derive(Clone, Copy, Debug)]
pub struct CallReport<'a> {
    /// Where it is counted.
    pub stats: StatsId,
    /// Who called what.
    pub facts: CallFacts<'a>,
    /// The status the caller was sent; 0 if the call ended before one went out.
    pub status: u16,
    /// The status of a gRPC call, where it got one.
    pub grpc: Option<GrpcCode>,
    /// The answer the proxy made itself, or the cut it made in one.
    pub refusal: Option<&'a Refusal<'a>>,
    /// What the flight says of it: attempts, outcomes, latency, time in queues.
    pub summary: Summary,
    /// The endpoint of the last attempt.
    pub endpoint: Option<SocketAddr>,
    /// From the arrival of the head to the end of the call.
    pub duration: Duration,
    /// What was left of the caller's deadline when the call arrived.
    pub deadline_remaining: Option<Duration>,
    /// Body bytes received from the caller.
    pub bytes_received: u64,
    /// Body bytes sent to the caller.
    pub bytes_sent: u64,
}

impl CallReport<'_> {
    /// The refusal, if it counts as one: a caller that went away was refused nothing, and is only logged.
    #[must_use]
    pub fn rejection(&self) -> Option<&Refusal<'_>> {
        self.refusal.filter(|refusal| refusal.reason != Reason::ClientGone)
    }

    /// The word for how it ended; `None` if the dependency's answer went out whole.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.refusal.map(|refusal| refusal.reason).or(self.summary.reason)
    }
}

/// How lines of a log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// The process-wide part: cheap to clone, shared by all threads.
#[derive(Clone, Debug)]
pub struct Report {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    catalog: Catalog,
    decisions: DecisionLog,
    events: Events,
    published: ArcSwap<Published>,
    access_log: Option<(Spool, LogFormat)>,
    workers: Mutex<Vec<mpsc::UnboundedSender<Collect>>>,
    hand_over: mpsc::UnboundedSender<HandOver>,
}

impl Shared {
    fn lock_workers(&self) -> MutexGuard<'_, Vec<mpsc::UnboundedSender<Collect>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    /// The report of a process, and the collector that belongs on its admin thread.
    ///
    /// # Errors
    /// The access log cannot be opened.
    pub fn new(access_log: Option<(Target, LogFormat)>) -> io::Result<(Report, Collector)> {
        let access_log = match access_log {
            Some((target, format)) => Some((Spool::open("access-log", target)?, format)),
            None => None,
        };
        let (hand_over, hand_overs) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            catalog: Catalog::new(),
            decisions: DecisionLog::new(),
            events: Events::new(),
            published: ArcSwap::default(),
            access_log,
            workers: Mutex::default(),
            hand_over,
        });
        Ok((Report { shared: shared.clone() }, Collector::new(shared, hand_overs)))
    }

    /// What a worker reports with, made on that worker's thread, and the task it has to run.
    #[must_use]
    pub fn worker(&self) -> (Rc<WorkerReport>, Collection) {
        let (ask, asked) = mpsc::unbounded_channel();
        let access = self.shared.access_log.as_ref().map(|(spool, format)| AccessLane::new(spool.lane(), *format));
        let worker = Rc::new(WorkerReport::new(self.shared.clone(), access));
        self.shared.lock_workers().push(ask);
        (worker.clone(), Collection::new(worker, asked, self.shared.hand_over.clone()))
    }

    /// The series that calls of a dependency's route (`None`: those that no named route matches) are counted under.
    /// For building snapshots that come into force: the same names give the same series for as long as somebody holds
    /// it, and after that until others need the room.
    #[must_use]
    pub fn series(&self, direction: Direction, dependency: &str, route: Option<&str>) -> Series {
        self.shared.catalog.resolve(direction, dependency, route)
    }

    /// The last refusals.
    #[must_use]
    pub fn decisions(&self) -> &DecisionLog {
        &self.shared.decisions
    }

    /// Where changes of state are told.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.shared.events
    }

    /// Opens the access log again by name; log rotation asks for it with SIGHUP.
    pub fn reopen_access_log(&self) {
        if let Some((spool, _)) = &self.shared.access_log {
            spool.reopen();
        }
    }
}
