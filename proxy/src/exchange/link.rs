//! The way to the endpoint: looked for, being made, or open.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_h1::BodyFraming;
use plimsoll_resilience::rejection::EndpointKey;

use crate::dial::{Destination, DialError};
use crate::forward::request::Request;
use crate::pool::Upstream;
use crate::pool::streams::Opened;
use crate::sockets::{OpenSocket, Sockets};
use crate::streams::client::Awaited;
use crate::streams::{Inflow, Outflow};

/// The connection of the running attempt.
pub enum Link {
    /// No attempt runs.
    None,
    /// Somebody else has to close a socket first.
    Waiting(Waiting),
    /// A connection is being made.
    Dialing(Dial),
    /// A connection of our own, for as long as the attempt lasts.
    Connection(OnConnection),
    /// A stream of a connection that others use too.
    Stream(Box<OnStream>),
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
pub type Dial = Pin<Box<dyn Future<Output = Result<Way, DialError>>>>;

/// What an attempt may be sent on.
pub enum Way {
    /// A connection of its own.
    Connection(Upstream),
    /// A connection that takes one more stream.
    Stream(Opened),
    /// Others were quicker to take the streams of a connection that was made, and `maxConnections` allows no other.
    Taken,
}

/// A connection with a request on its way.
pub struct OnConnection {
    /// The connection.
    pub upstream: Upstream,
    /// The head of this attempt, or what stands between pieces of its body, as far as it is not written yet.
    pub head: BytesMut,
    /// Bytes of it that are written.
    pub head_sent: usize,
    /// How the body is framed, where it is not framed already.
    pub chunks: Option<Chunks>,
    /// A byte of the request was written.
    pub wrote: bool,
    /// Writing failed; what the server said before that may still be readable.
    pub write_failed: bool,
    /// Our side of a tunnel is closed.
    pub shut: bool,
}

/// A stream with a request on its way.
pub struct OnStream {
    /// Until the head of the answer is here.
    pub awaited: Option<Awaited>,
    /// Our side.
    pub outflow: Outflow,
    /// Their side, from the head on.
    pub inflow: Option<Inflow>,
    /// The head is here and held back: a gRPC status may follow it that is worth another attempt.
    pub held_back: bool,
    /// The end of the request was sent.
    pub ended: bool,
    /// Sending failed; the answer says why, if there is one.
    pub failed: bool,
    /// Keeps the connection known to be in use.
    pub opened: Opened,
}

impl OnConnection {
    /// A connection on which `head` is to be written first.
    #[must_use]
    pub fn new(upstream: Upstream, head: BytesMut, chunks: Option<Chunks>) -> Self {
        Self { upstream, head, head_sent: 0, chunks, wrote: false, write_failed: false, shut: false }
    }

    /// Whether all that is known of the request has left us.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.head_sent == self.head.len() && !self.write_failed && self.chunks.is_none_or(|chunks| chunks.has_ended())
    }
}

impl Link {
    /// Whether a request is on its way.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::Stream(_))
    }
}

/// Chunks of our making, around the pieces of a body that came without a length (RFC 9112 7.1). The body itself is not
/// copied: only what stands around it goes through the head's buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chunks {
    /// Bytes of the current chunk that are yet to be written.
    left: usize,
    begun: bool,
    ended: bool,
}

impl Chunks {
    /// For a request that is written to HTTP/1.1 without the framing that it came with.
    #[must_use]
    pub fn of(request: &Request) -> Option<Self> {
        (!request.is_framed() && request.head.framing == BodyFraming::Chunked).then(Self::default)
    }

    /// Puts what has to stand before the next bytes of the body into `head`, which is empty.
    pub fn stage(&mut self, request: &Request, head: &mut BytesMut) {
        if self.left > 0 || self.ended {
            return;
        }
        let next = request.unsent().len();
        if next == 0 && !request.is_whole() {
            return;
        }
        if std::mem::replace(&mut self.begun, true) {
            head.extend_from_slice(b"\r\n");
        }
        self.left = next;
        if next > 0 {
            head.extend_from_slice(format!("{next:x}\r\n").as_bytes());
            return;
        }
        self.ended = true;
        head.extend_from_slice(b"0\r\n");
        match request.trailers() {
            Some(trailers) => trailers.put(head),
            None => head.extend_from_slice(b"\r\n"),
        }
    }

    /// How much of the body may be written now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.left
    }

    /// So much of the body was written.
    pub fn on_sent(&mut self, count: usize) {
        self.left -= count;
    }

    /// Whether the end of the body was put into the head's buffer.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

/// Waits at most `limit` for a socket of `dependency` to be closed.
pub async fn wait_for_socket(sockets: Arc<Sockets>, limit: Duration) -> Option<OpenSocket> {
    tokio::time::timeout(limit, sockets.opened()).await.ok()
}
