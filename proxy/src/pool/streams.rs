//! Connections that take many calls at once (HTTP/2), of one worker.
//!
//! A connection is on the shelf from its first call to its end; a call takes a stream of the one that was used last and
//! has room. While one is being made, whoever else wants one waits for it instead of making another: a burst of calls to
//! a new endpoint costs one connection, and more only as far as the server's own limit of streams makes it.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_resilience::time::Timestamp;
use tokio::sync::watch;

use crate::dependency::DependencyId;
use crate::dial::{Destination, DialError};
use crate::sockets::Sockets;
use crate::streams::client::Handle;
use crate::tls::{Refusal, TlsError};

/// For how long calls are given up in silence before a connection is in doubt.
const DOUBT: Duration = Duration::from_secs(1);

/// Whose connections, where to, and made under which settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Whose.
    pub dependency: DependencyId,
    /// Where to.
    pub destination: Destination,
    /// `Origination::id`, or 0 without TLS.
    pub security: u64,
}

/// The connections of one worker that take streams.
#[derive(Default)]
pub struct StreamPool {
    shelves: HashMap<StreamKey, Shelf>,
}

#[derive(Default)]
struct Shelf {
    open: Vec<Shared>,
    /// Somebody is making one: what came of it.
    dialing: Option<watch::Receiver<Option<Result<(), DialError>>>>,
    /// ALPN has chosen HTTP/1.1 the last time.
    speaks_http1: bool,
}

struct Shared {
    handle: Handle,
    refusal: Option<Refusal>,
    address: SocketAddr,
    used: Rc<Cell<Used>>,
    patience: Duration,
}

impl Shared {
    fn is_open(&self) -> bool {
        !self.used.get().doubted && !self.handle.is_closed()
    }

    fn has_room(&self) -> bool {
        !self.used.get().doubted && self.handle.has_room()
    }
}

#[derive(Clone, Copy, Debug)]
struct Used {
    streams: usize,
    /// When the last stream began.
    last: Timestamp,
    /// Since when calls were given up without a word from the endpoint, whatever they were for; and what had been heard
    /// before.
    silent: Option<(Timestamp, u64)>,
    /// It takes no more calls: nobody may be there.
    doubted: bool,
}

/// A connection that takes one more stream, counted as in use until this is dropped.
pub struct Opened {
    /// The connection.
    pub handle: Handle,
    /// Where it leads.
    pub address: SocketAddr,
    refusal: Option<Refusal>,
    used: Rc<Cell<Used>>,
    sockets: Arc<Sockets>,
    began: Timestamp,
    heard: u64,
}

impl Opened {
    /// The call is given up before it was answered. A connection on which calls are given up for a second without a word
    /// from the endpoint takes no more of them: what HTTP/1.1 does with every call that times out. Those on it go on.
    pub fn give_up(&self, now: Timestamp) {
        let heard = self.handle.heard();
        if heard != self.heard {
            return;
        }
        let mut used = self.used.get();
        let since = match used.silent {
            Some((since, before)) if before == heard => since,
            _ => self.began,
        };
        used.silent = Some((since, heard));
        used.doubted |= now.saturating_since(since) >= DOUBT;
        self.used.set(used);
    }

    /// That the endpoint refuses who we are, where it has said so since.
    #[must_use]
    pub fn refusal(&self) -> Option<TlsError> {
        self.refusal.as_ref()?.get().cloned()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let used = self.used.get();
        self.used.set(Used { streams: used.streams - 1, ..used });
        if self.sockets.wanted() {
            // Who waits for a socket may take the stream instead.
            self.sockets.nudge();
        }
    }
}

/// What the pool has for a call.
pub enum Found {
    /// A connection with room.
    Room(Opened),
    /// A connection is being made.
    Dialing(watch::Receiver<Option<Result<(), DialError>>>),
    /// The server has chosen HTTP/1.1.
    Http1,
    /// Nothing: make one.
    Nothing,
}

impl StreamPool {
    /// A stream, or how to come by one.
    pub fn find(&mut self, key: &StreamKey, sockets: &Arc<Sockets>, now: Timestamp) -> Found {
        let Some(shelf) = self.shelves.get_mut(key) else { return Found::Nothing };
        if let Some(shared) = shelf.open.iter().rev().find(|shared| shared.has_room()) {
            let used = shared.used.get();
            shared.used.set(Used { streams: used.streams + 1, last: now, ..used });
            return Found::Room(Opened {
                handle: shared.handle.clone(),
                address: shared.address,
                refusal: shared.refusal.clone(),
                used: Rc::clone(&shared.used),
                sockets: Arc::clone(sockets),
                began: now,
                heard: shared.handle.heard(),
            });
        }
        match &shelf.dialing {
            // Whoever was making one and is gone without a word will not finish it.
            Some(dialing) if dialing.has_changed().is_ok() => Found::Dialing(dialing.clone()),
            _ if shelf.speaks_http1 => Found::Http1,
            _ => Found::Nothing,
        }
    }

    /// Somebody makes a connection now.
    pub fn begin(&mut self, key: &StreamKey, dialing: watch::Receiver<Option<Result<(), DialError>>>) {
        self.shelves.entry(key.clone()).or_default().dialing = Some(dialing);
    }

    /// What came of it. `None`: no connection, or one that is of no use here.
    pub fn finish(&mut self, key: &StreamKey, made: Made, now: Timestamp) {
        let Some(shelf) = self.shelves.get_mut(key) else { return };
        shelf.dialing = None;
        match made {
            Made::Streams { handle, address, refusal, patience } => {
                shelf.speaks_http1 = false;
                let used = Rc::new(Cell::new(Used { streams: 0, last: now, silent: None, doubted: false }));
                shelf.open.push(Shared { handle, refusal, address, used, patience });
            }
            Made::Http1 => shelf.speaks_http1 = true,
            Made::Nothing => {}
        }
    }

    /// Lets go of connections that have ended or were not used for too long, and of all that `keep` refuses: those
    /// close once their last stream has ended.
    pub fn sweep(&mut self, now: Timestamp, keep: impl Fn(&StreamKey) -> bool) {
        self.shelves.retain(|key, shelf| {
            let keeps = keep(key);
            shelf.open.retain(|shared| {
                let used = shared.used.get();
                let is_fresh = used.streams > 0 || now.saturating_since(used.last) < shared.patience;
                keeps && is_fresh && !used.doubted && !shared.handle.is_closed()
            });
            !shelf.open.is_empty() || shelf.dialing.is_some() || (shelf.speaks_http1 && keeps)
        });
    }

    /// Lets go of a connection of `dependency` that nobody uses, with `urgent` of any: false when there is none. One that
    /// is in use ends with its last call.
    pub fn close_one(&mut self, dependency: DependencyId, urgent: bool) -> bool {
        self.let_go(dependency, |shared| shared.used.get().streams == 0) || urgent && self.let_go(dependency, |_| true)
    }

    fn let_go(&mut self, dependency: DependencyId, may_go: impl Fn(&Shared) -> bool) -> bool {
        let own = self.shelves.iter_mut().filter(|(key, _)| key.dependency == dependency);
        for (_, shelf) in own {
            if let Some(place) = shelf.open.iter().position(&may_go) {
                shelf.open.swap_remove(place);
                return true;
            }
        }
        false
    }

    /// Whether there is room on a connection, or one is being made.
    #[must_use]
    pub fn has_way(&self, key: &StreamKey) -> bool {
        let has_way = |shelf: &Shelf| shelf.dialing.is_some() || shelf.open.iter().any(Shared::has_room);
        self.shelves.get(key).is_some_and(has_way)
    }

    /// Whether there is a connection that carries calls and is good for more. One without any that has no room all the same
    /// is of a server that takes none, and another one would be no better.
    #[must_use]
    pub fn has_busy(&self, key: &StreamKey) -> bool {
        let is_busy = |shared: &Shared| shared.is_open() && shared.handle.streams() > 0;
        self.shelves.get(key).is_some_and(|shelf| shelf.open.iter().any(is_busy))
    }

    /// That the endpoint has refused who we are, where a connection ended for it a moment ago.
    #[must_use]
    pub fn refusal(&self, key: &StreamKey) -> Option<TlsError> {
        let ended = self.shelves.get(key)?.open.iter().filter(|shared| shared.handle.is_closed());
        ended.filter_map(|shared| shared.refusal.as_ref()).find_map(|refusal| refusal.get().cloned())
    }

    /// Whether a connection of `dependency` takes calls, or is being made.
    #[must_use]
    pub fn has_any(&self, dependency: DependencyId) -> bool {
        let is_own = |(key, shelf): (&StreamKey, &Shelf)| {
            key.dependency == dependency && (!shelf.open.is_empty() || shelf.dialing.is_some())
        };
        self.shelves.iter().any(is_own)
    }

    /// Connections on the shelves.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shelves.values().map(|shelf| shelf.open.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What came of making a connection.
pub enum Made {
    /// One that takes streams.
    Streams {
        /// It.
        handle: Handle,
        /// Where it leads.
        address: SocketAddr,
        /// Where TLS notes that we are refused.
        refusal: Option<Refusal>,
        /// How long it may be without a stream.
        patience: Duration,
    },
    /// One that speaks HTTP/1.1, which is not for this pool.
    Http1,
    /// None.
    Nothing,
}
