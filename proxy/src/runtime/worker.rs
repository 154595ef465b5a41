//! One worker: a thread with its own runtime, listeners, connections, pools and statistics.
//!
//! Nothing here is `Send`. What crosses workers is a message in a mailbox or the waking of a task.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use plimsoll_h1::{RequestHead, ResponseHead};
use plimsoll_resilience::random::Random;
use plimsoll_resilience::time::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::buffers::{Buffers, Spare};
use super::clock::Clock;
use super::drain::Phase;
use super::listeners;
use super::process::{Accepting, Process};
use super::timers::Timers;
use crate::capture::{Origin, Purpose};
use crate::dependency::{Dependency, DependencyId};
use crate::dial::Destination;
use crate::exchange::Slot;
use crate::pool::streams::StreamPool;
use crate::pool::{Pool, Upstream};
use crate::report::{Collection, WorkerReport};
use crate::serve;
use crate::serve::tcp::Pipes;
use crate::snapshot::Snapshot;

/// How often idle connections are looked over.
const SWEEP: Duration = Duration::from_secs(1);
/// How long accepting pauses when the process is out of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How long handshakes that had begun may take before a listener is closed.
const HANDSHAKES: Duration = Duration::from_millis(100);

/// What a worker is told from outside.
#[derive(Debug)]
pub enum Message {
    /// Accept connections from this socket until `closing` is cancelled and its queue is empty.
    Listen {
        /// The worker's own socket of this address.
        socket: std::net::TcpListener,
        /// What the address is for.
        purpose: Purpose,
        /// Cancelled when no new connection is to be taken.
        closing: CancellationToken,
        /// Held until the accept queue is empty and the socket closed.
        accepting: Accepting,
    },
    /// A new generation is in force: close what it does not want.
    Swapped,
    /// The drain has reached another phase.
    Drain,
    /// Close an idle connection of this dependency, if there is one.
    CloseIdle {
        /// Whose.
        dependency: DependencyId,
        /// If there is none, one that takes many calls takes no more of them, and ends with those it has.
        urgent: bool,
    },
    /// End now, whatever is in flight.
    Exit,
}

/// One worker. See the module documentation.
pub struct Worker {
    /// What all workers share.
    pub process: Arc<Process>,
    /// The time.
    pub clock: Clock,
    /// Deadlines of this worker's connections.
    pub timers: Rc<Timers>,
    /// Spare buffers.
    pub buffers: Buffers,
    /// Spare pipes.
    pub pipes: Pipes,
    /// Idle connections to endpoints.
    pub pool: RefCell<Pool>,
    /// Connections to endpoints that take many calls at once.
    pub streams: RefCell<StreamPool>,
    /// Heads to decode into.
    pub request_heads: Spare<Box<RequestHead>>,
    /// Memory for calls in progress.
    pub slots: Spare<Slot>,
    /// Heads to decode into.
    pub response_heads: Spare<Box<ResponseHead>>,
    /// Where this worker reports.
    pub report: Rc<WorkerReport>,
    /// Seeds for calls, ids for traces.
    pub random: RefCell<Random>,
    snapshot: RefCell<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    turn: Cell<usize>,
}

impl Worker {
    /// A worker of `process`. `seed` must differ from worker to worker.
    #[must_use]
    pub fn new(process: Arc<Process>, report: Rc<WorkerReport>, seed: u64) -> Rc<Self> {
        let clock = process.clock;
        let snapshot = RefCell::new(Cache::new(Arc::clone(&process.snapshot)));
        Rc::new(Self {
            clock,
            timers: Timers::new(clock),
            buffers: Buffers::default(),
            pipes: Pipes::default(),
            pool: RefCell::default(),
            streams: RefCell::default(),
            request_heads: Spare::default(),
            response_heads: Spare::default(),
            slots: Spare::default(),
            report,
            random: RefCell::new(Random::new(seed)),
            snapshot,
            turn: Cell::new(0),
            process,
        })
    }

    /// The generation in force: taken per call, never per connection.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(self.snapshot.borrow_mut().load())
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A number that grows by one with each call, for round robin.
    #[must_use]
    pub fn next_turn(&self) -> usize {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        turn
    }

    /// How far the drain has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.process.drain.phase()
    }

    /// An idle connection. Unless what goes out on it may be sent again, it has to be beyond doubt.
    #[must_use]
    pub fn take_idle(
        &self,
        dependency: DependencyId,
        destination: &Destination,
        security: u64,
        repeatable: bool,
    ) -> Option<Upstream> {
        let take = |address| self.pool.borrow_mut().take(dependency, address, security, repeatable, self.now());
        match destination {
            Destination::Address(address) => take(*address),
            Destination::Name(name, port) => {
                self.process.resolver.known(name, *port).into_iter().flatten().find_map(take)
            }
        }
    }

    /// Whether only what is in flight is still served.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.phase() == Phase::Closing
    }

    /// Gives a connection back whose last answer is complete.
    pub fn give_back(
        &self,
        dependency: &Dependency,
        upstream: Upstream,
        patience: Option<Duration>,
        idle: Duration,
        now: Timestamp,
    ) {
        self.pool.borrow_mut().put(upstream, patience, idle, now);
        if dependency.sockets().wanted() {
            dependency.sockets().nudge();
        }
    }

    /// Does what it is told until it is told to end.
    pub async fn run(self: Rc<Self>, mut mailbox: mpsc::UnboundedReceiver<Message>, collection: Collection) {
        tokio::task::spawn_local(collection.drive());
        tokio::task::spawn_local(Rc::clone(&self.timers).drive());
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = mailbox.recv() => match message {
                    None | Some(Message::Exit) => return,
                    Some(message) => self.handle(message),
                },
                _ = sweep.tick() => self.sweep(),
            }
        }
    }

    fn handle(self: &Rc<Self>, message: Message) {
        match message {
            Message::Listen { socket, purpose, closing, accepting } => match TcpListener::from_std(socket) {
                Ok(listener) => {
                    let accept = Rc::clone(self).accept(listener, purpose, closing);
                    drop(tokio::task::spawn_local(async move {
                        accept.await;
                        drop(accepting);
                    }));
                }
                Err(error) => tracing::error!(%error, ?purpose, "a listening socket could not be used"),
            },
            Message::Swapped => self.sweep(),
            Message::Drain => {
                self.timers.ring_all();
                self.sweep();
            }
            Message::CloseIdle { dependency, urgent } => {
                let _closed = self.pool.borrow_mut().close_one(dependency)
                    || self.streams.borrow_mut().close_one(dependency, urgent);
            }
            Message::Exit => {}
        }
    }

    fn sweep(&self) {
        self.process.own.refresh_addresses();
        let snapshot = self.snapshot();
        self.pool
            .borrow_mut()
            .sweep(self.now(), |dependency, address| snapshot.keeps_connections_to(dependency, address));
        self.streams.borrow_mut().sweep(self.now(), |key| match key.destination {
            Destination::Address(address) => snapshot.keeps_connections_to(key.dependency, address),
            // Where the callers were going: whoever goes there again may use it.
            Destination::Name(..) => true,
        });
    }

    async fn accept(self: Rc<Self>, listener: TcpListener, purpose: Purpose, closing: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = closing.cancelled() => return self.accept_the_rest(listener, purpose).await,
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer, purpose),
                Err(error) => self.refused_by_kernel(&error).await,
            }
        }
    }

    /// Connections that the kernel has completed, or is completing, belong to us: they are taken before the socket is
    /// closed, which would reset them. Who only begins to connect is not answered any more.
    async fn accept_the_rest(self: Rc<Self>, listener: TcpListener, purpose: Purpose) {
        if let Err(error) = listeners::take_no_more(&listener) {
            tracing::debug!(%error, "connections that are made at this moment may be reset");
        }
        let rest = async {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => self.take(stream, peer, purpose),
                    Err(error) => self.refused_by_kernel(&error).await,
                }
            }
        };
        // Ends by the clock: handshakes that had begun are through by then.
        let _ = tokio::time::timeout(HANDSHAKES, rest).await;
    }

    fn take(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, purpose: Purpose) {
        // Whoever writes small messages wants them sent.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let origin = Origin::of(&stream, purpose, peer);
        self.process.opened(origin.direction());
        self.report.connection_opened(origin.direction());
        let connection = Connection { worker: Rc::clone(self), origin };
        drop(tokio::task::spawn_local(async move {
            serve::connection(&connection.worker, stream, origin).await;
        }));
    }

    async fn refused_by_kernel(&self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                tracing::warn!(%error, "no descriptor for a new connection; raise the limit of open files (ulimit -n)");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
            // The connection was gone before it was accepted (accept(2)): the next one may be fine.
            _ => tracing::debug!(%error, "a connection ended before it was accepted"),
        }
    }
}

/// Counts a connection for as long as its task lives, also when the task panics.
struct Connection {
    worker: Rc<Worker>,
    origin: Origin,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.worker.process.closed(self.origin.direction());
        self.worker.report.connection_closed(self.origin.direction());
    }
}
