//! A connection to an endpoint, shared by the calls of one worker.
//!
//! **A dead one is noticed.** With calls in flight and nothing heard for 30 s, a PING is sent; when nothing at all is heard
//! within 10 s of it, every call on the connection ends with `Lost(TimedOut)`. One that was answered is repeated after five
//! minutes, not before, unless the endpoint has said something of its own meanwhile: gRPC servers take a third PING within
//! five minutes of their own silence for abuse and end the connection with all its calls (gRPC's `keepalive_permit`,
//! "too_many_pings"). Without calls nothing is sent; a connection that died idle shows when it is used.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, response};
use plimsoll_resilience::time::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

use super::peer::{Peer, Role, Stream};
use super::watch::Watched;
use super::{ConnectionError, Inflow, Outflow, StreamError, settings};
use crate::runtime::clock::Clock;
use crate::runtime::timers::Alarm;

/// Nothing heard for so long: is anybody there?
const SILENCE: Duration = Duration::from_secs(30);
/// How long the answer to that may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// From one answered PING to the next, if nothing else was heard.
const REPEAT: Duration = Duration::from_secs(300);
/// Ids are odd numbers of 31 bits.
const MOST_STREAMS: u32 = 1 << 30;

/// A connection to an endpoint. Clones are the same connection; when the last is gone and its calls have ended, it is
/// closed.
#[derive(Clone)]
pub struct Handle {
    streams: h2::client::SendRequest<Bytes>,
    peer: Rc<Peer>,
}

impl Handle {
    /// Begins to speak HTTP/2 on `transport`. The other part is what drives it: to be spawned on the same thread. `alarm` is
    /// the connection's own.
    ///
    /// # Errors
    /// When the preface cannot be written. Whether the endpoint speaks HTTP/2 shows later, by the failure of calls.
    pub async fn connect<T>(
        transport: T,
        clock: Clock,
        alarm: Alarm,
    ) -> Result<(Self, impl Future<Output = ()> + use<T>), ConnectionError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let peer = Peer::new(Role::Endpoint, clock);
        let io = Watched::new(transport, bytes::BytesMut::new(), Rc::clone(&peer));
        let (streams, connection) =
            settings::client().handshake(io).await.map_err(|error| ConnectionError::of(&error))?;
        let handle = Self { streams, peer: Rc::clone(&peer) };
        Ok((handle, drive(connection, peer, clock, alarm)))
    }

    /// Whether it takes one more stream now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let most = self.streams.current_max_send_streams().min(settings::ENDPOINT_STREAMS as usize);
        !self.is_closed() && self.peer.open() < most
    }

    /// Whether it never takes a new stream again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.peer.is_over() || self.peer.begun() >= MOST_STREAMS
    }

    /// A number that grows with what the endpoint says, beside answers to what we ask of it for our own sake.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.peer.heard()
    }

    /// Streams in progress.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.peer.open()
    }

    /// Whether the endpoint has said that it understands extended CONNECT (RFC 8441). False until its settings are there.
    #[must_use]
    pub fn extended_connect(&self) -> bool {
        self.streams.is_extended_connect_protocol_enabled()
    }

    /// Whether the endpoint has said what it is willing to do: until then neither [`Handle::has_room`] nor
    /// [`Handle::extended_connect`] know.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.peer.is_settled()
    }

    /// Begins a call. With `ends` it has no body.
    ///
    /// # Errors
    /// [`StreamError::NotProcessed`] when there is no room after all; another connection may have some.
    pub fn open(&mut self, request: Request<()>, ends: bool) -> Result<(Awaited, Outflow), StreamError> {
        if !self.has_room() {
            return Err(StreamError::NotProcessed);
        }
        match self.streams.send_request(request, ends) {
            Ok((answer, stream)) => {
                let known = Stream::begin(&self.peer, stream.stream_id().as_u32());
                Ok((Awaited { answer, known: Rc::clone(&known) }, Outflow::new(stream, known)))
            }
            // The connection has ended, but for a fault in what we wanted to send.
            Err(error) => {
                debug_assert!(error.is_io() || error.reason().is_some(), "a head that may not be sent: {error}");
                Err(StreamError::NotProcessed)
            }
        }
    }
}

/// An answer that is waited for.
pub struct Awaited {
    answer: h2::client::ResponseFuture,
    known: Rc<Stream>,
}

impl Awaited {
    /// The next interim head (1xx). `None`: none will follow, and [`Awaited::poll_head`] is ready.
    pub fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u16, HeaderMap)>> {
        loop {
            let interim = ready!(self.answer.poll_informational(cx)).and_then(Result::ok);
            let Some(interim) = interim else { return Poll::Ready(None) };
            let (parts, ()) = interim.into_parts();
            // Means nothing in HTTP/2 (RFC 9113 8.6), and would mean much in HTTP/1.1.
            if parts.status != StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Some((parts.status.as_u16(), parts.headers)));
            }
        }
    }

    /// The final head. Interim heads that were not asked for before are lost.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(response::Parts, Inflow), StreamError>> {
        Pin::new(&mut self.answer).poll(cx).map(|answer| match answer {
            Ok(answer) => {
                let (parts, body) = answer.into_parts();
                Ok((parts, Inflow::new(body, Rc::clone(&self.known))))
            }
            Err(error) => Err(self.known.error(&error)),
        })
    }
}

async fn drive<T>(mut connection: h2::client::Connection<Watched<T>, Bytes>, peer: Rc<Peer>, clock: Clock, alarm: Alarm)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut watch = Silence::new(&mut connection, &peer, clock.now());
    let ended = poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(ended.map_err(|error| ConnectionError::of(&error)));
            }
            if let Some(verdict) = peer.verdict() {
                return Poll::Ready(Err(verdict.into()));
            }
            let now = clock.now();
            match watch.poll(&peer, now, cx) {
                Watch::Wait(until) => {
                    alarm.set(until, cx.waker());
                    return Poll::Pending;
                }
                Watch::Pinged => {}
                Watch::Dead => {
                    peer.on_dead();
                    return Poll::Ready(Err(ConnectionError::Lost(std::io::ErrorKind::TimedOut)));
                }
            }
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a connection to an endpoint ended");
    }
    peer.on_over();
    // Calls that are left are told by this.
    drop(connection);
}

/// See the module documentation.
pub(super) struct Silence {
    pings: Option<h2::PingPong>,
    /// What had been heard, and until when.
    heard: u64,
    since: Timestamp,
    /// There were calls.
    busy: bool,
    state: Ping,
}

#[derive(Clone, Copy)]
enum Ping {
    /// None has been sent since something was heard.
    None,
    /// Sent at this time, and not answered.
    Sent(Timestamp),
    /// Sent at this time and answered; nothing else was heard.
    Answered(Timestamp),
}

pub(super) enum Watch {
    Wait(Option<Timestamp>),
    Pinged,
    Dead,
}

impl Silence {
    pub(super) fn new<T>(
        connection: &mut h2::client::Connection<Watched<T>, Bytes>,
        peer: &Peer,
        now: Timestamp,
    ) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        Self { pings: connection.ping_pong(), heard: peer.heard(), since: now, busy: false, state: Ping::None }
    }

    pub(super) fn poll(&mut self, peer: &Peer, now: Timestamp, cx: &mut Context<'_>) -> Watch {
        let Some(pings) = &mut self.pings else { return Watch::Wait(None) };
        if pings.poll_pong(cx).is_ready()
            && let Ping::Sent(at) = self.state
        {
            self.state = Ping::Answered(at);
            self.since = now;
        }
        if std::mem::replace(&mut self.heard, peer.heard()) != self.heard {
            self.state = Ping::None;
            self.since = now;
        }
        // Whoever comes first begins to wait from now on.
        if !std::mem::replace(&mut self.busy, peer.open() > 0) {
            self.since = now;
        }
        if !self.busy {
            return Watch::Wait(None);
        }
        let due = match self.state {
            Ping::None => self.since + SILENCE,
            Ping::Answered(at) => (at + REPEAT).max(self.since + SILENCE),
            Ping::Sent(at) => at + PATIENCE,
        };
        match self.state {
            _ if now < due => Watch::Wait(Some(due)),
            Ping::Sent(_) => Watch::Dead,
            _ => {
                // Fails while an earlier one has not been answered, although much else was heard since.
                let _ = pings.send_ping(h2::Ping::opaque());
                self.state = Ping::Sent(now);
                Watch::Pinged
            }
        }
    }
}
