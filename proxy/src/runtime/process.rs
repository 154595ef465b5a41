//! What all threads of a proxy share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::mpsc;

use super::clock::Clock;
use super::drain::Drain;
use super::memory::KeptBodies;
use super::resolver::Resolver;
use super::worker::Message;
use crate::capture::Own;
use crate::cli::Options;
use crate::dependency::DependencyId;
use crate::detect::Habits;
use crate::report::{Direction, Report};
use crate::snapshot::Snapshot;
use crate::sockets::Sockets;

/// What all threads of a proxy share. See each field.
#[derive(Debug)]
pub struct Process {
    /// As started.
    pub options: Options,
    /// The time.
    pub clock: Clock,
    /// The generation in force.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// How far the drain has come.
    pub drain: Drain,
    /// What leads back to this process.
    pub own: Own,
    /// Names to addresses.
    pub resolver: Resolver,
    /// What destinations were found to speak.
    pub habits: Habits,
    /// Memory of bodies that may be sent again.
    pub kept_bodies: KeptBodies,
    /// Where everything is told.
    pub report: Report,
    /// Connections from callers over all workers, by [`Direction`].
    pub connections: [AtomicUsize; 2],
    /// Listening sockets of workers that are not closed yet.
    pub accepting: AtomicUsize,
    /// `maxConnections` of the workload: connections of its callers that are served.
    pub callers: Arc<Sockets>,
    /// How to reach the workers.
    pub workers: Vec<mpsc::UnboundedSender<Message>>,
}

impl Process {
    /// Tells every worker.
    pub fn tell_all(&self, message: impl Fn() -> Message) {
        for worker in &self.workers {
            // A worker that has ended needs no telling.
            let _ = worker.send(message());
        }
    }

    /// Has every worker close an idle connection of `dependency`: somebody waits for its socket.
    ///
    /// With `urgent` a connection that takes many calls is given up even while it is in use: the worker that asks has
    /// none, and without it none of its calls would ever have a turn.
    pub fn close_idle(&self, dependency: DependencyId, urgent: bool) {
        self.tell_all(|| Message::CloseIdle { dependency, urgent });
    }

    /// Counts one more connection.
    pub fn opened(&self, direction: Direction) {
        self.connections[direction as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one less.
    pub fn closed(&self, direction: Direction) {
        self.connections[direction as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a connection is open, or may yet come out of an accept queue.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        // In this order: a connection is counted before its listener is done.
        self.accepting.load(Ordering::Acquire) > 0 || self.open_connections() > 0
    }

    /// Connections from callers that are open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.connections.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// A worker's listening socket, counted until its accept queue is empty and it is closed.
#[derive(Debug)]
pub struct Accepting(Arc<Process>);

impl Accepting {
    /// One more.
    #[must_use]
    pub fn new(process: &Arc<Process>) -> Self {
        process.accepting.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(process))
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.accepting.fetch_sub(1, Ordering::AcqRel);
    }
}
