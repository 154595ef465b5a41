//! The way to the endpoint: looked for, being made, or open.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_resilience::rejection::EndpointKey;

use crate::dial::{Destination, DialError, Dialed};
use crate::pool::Upstream;
use crate::sockets::{OpenSocket, Sockets};

/// The connection of the running attempt.
pub enum Link {
    /// No attempt runs.
    None,
    /// Somebody else has to close a socket first.
    Waiting(Waiting),
    /// A connection is being made.
    Dialing(Dial),
    /// The connection is ours.
    Open(Open),
}

/// An attempt that has its endpoint and no socket yet.
pub struct Waiting {
    /// Where it goes.
    pub endpoint: EndpointKey,
    /// The same, to connect to.
    pub destination: Destination,
    /// Ready with a socket, or with nothing when the wait has been too long.
    pub socket: Pin<Box<dyn Future<Output = Option<OpenSocket>>>>,
}

/// A connection in the making.
pub type Dial = Pin<Box<dyn Future<Output = Result<Dialed, DialError>>>>;

/// A connection with a request on its way.
pub struct Open {
    /// The connection.
    pub upstream: Upstream,
    /// The head of this attempt, as far as it is not written yet.
    pub head: BytesMut,
    /// Bytes of it that are written.
    pub head_sent: usize,
    /// A byte of the request was written.
    pub wrote: bool,
    /// Writing failed; what the server said before that may still be readable.
    pub write_failed: bool,
    /// Our side of a tunnel is closed.
    pub shut: bool,
}

impl Link {
    /// Whether a connection is ours.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

/// Waits at most `limit` for a socket of `dependency` to be closed.
pub async fn wait_for_socket(sockets: Arc<Sockets>, limit: Duration) -> Option<OpenSocket> {
    tokio::time::timeout(limit, sockets.opened()).await.ok()
}
