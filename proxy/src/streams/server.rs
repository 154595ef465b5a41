//! A caller's connection.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode, request};
use plimsoll_resilience::time::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::peer::{Peer, Role, Stream};
use super::watch::Watched;
use super::{Code, ConnectionError, Inflow, Outflow, StreamError, settings};
use crate::runtime::clock::Clock;

type Io = Watched<Socket>;

/// A caller's connection. See [`Connection::poll_next`].
pub struct Connection {
    state: State,
    peer: Rc<Peer>,
    socket: Socket,
    draining: bool,
}

enum State {
    // Boxed: a connection holds one of them for most of its life, and is moved about before.
    Greeting(Box<h2::server::Handshake<Io, Bytes>>),
    Open(Box<h2::server::Connection<Io, Bytes>>),
    Ended,
}

impl Connection {
    /// The connection on `stream`, of whose bytes `read` have been read already: none, or from the preface on.
    #[must_use]
    pub fn new(stream: TcpStream, read: BytesMut, clock: Clock) -> Self {
        let peer = Peer::new(Role::Caller, clock);
        let socket = Socket(Rc::new(RefCell::new(stream)));
        let io = Watched::new(socket.clone(), read, Rc::clone(&peer));
        let greeting = Box::new(settings::server().handshake(io));
        Self { state: State::Greeting(greeting), peer, socket, draining: false }
    }

    /// The next call. Drives everything: it must be polled whenever it wakes, also while no call is wanted. `None`: the
    /// connection was closed in order.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Incoming, ConnectionError>>> {
        loop {
            match &mut self.state {
                State::Greeting(greeting) => match ready!(Pin::new(&mut **greeting).poll(cx)) {
                    Ok(mut open) => {
                        if self.draining {
                            open.graceful_shutdown();
                        }
                        self.state = State::Open(Box::new(open));
                    }
                    Err(error) => return Poll::Ready(self.end(&error)),
                },
                State::Open(open) => match open.poll_accept(cx) {
                    Poll::Ready(Some(Ok((request, mut answer)))) => {
                        // Reset by its caller, or for a body that breaks its framing, before it was looked at: nobody asks.
                        if answer.poll_reset(&mut Context::from_waker(Waker::noop())).is_pending() {
                            return Poll::Ready(Some(Ok(Incoming::new(request, answer, &self.peer))));
                        }
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(self.end(&error)),
                    Poll::Ready(None) => {
                        self.state = State::Ended;
                        return Poll::Ready(self.peer.verdict().map(|verdict| Err(verdict.into())));
                    }
                    Poll::Pending => {
                        if let Some(verdict) = self.peer.new_verdict() {
                            self.peer.on_over();
                            open.abrupt_shutdown(verdict.code().0.into());
                        } else if !self.peer.on_written() {
                            return Poll::Pending;
                        }
                    }
                },
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    fn end(&mut self, error: &h2::Error) -> Option<Result<Incoming, ConnectionError>> {
        self.state = State::Ended;
        Some(Err(self.peer.verdict().map_or_else(|| ConnectionError::of(error), ConnectionError::from)))
    }

    /// Asks the caller to leave: GOAWAY without a last id, then, when that was seen to arrive, with one. Ends by itself when
    /// its calls have ended.
    pub fn drain(&mut self) {
        if !std::mem::replace(&mut self.draining, true)
            && let State::Open(open) = &mut self.state
        {
            open.graceful_shutdown();
        }
    }

    /// Ends the connection with all its calls, and tells the caller why. To be polled to its end.
    pub fn end_now(&mut self, code: Code) {
        match &mut self.state {
            State::Open(open) => {
                self.peer.on_over();
                open.abrupt_shutdown(code.0.into());
            }
            State::Greeting(_) | State::Ended => self.state = State::Ended,
        }
    }

    /// Whether it has been ended from here, for whatever reason, and only its last words are on their way.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.peer.is_over()
    }

    /// Whether a call is in progress.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.peer.open() > 0
    }

    /// Whether a call is in progress, or the rest of an answer waits to be taken.
    #[must_use]
    pub fn has_streams(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.has_streams())
    }

    /// Since when the connection has been waiting for the rest of its preface or of a head, which must not take for ever.
    #[must_use]
    pub fn head_since(&self) -> Option<Timestamp> {
        self.peer.head_since()
    }

    /// The socket, when the connection has ended and the calls are gone: what was sent last is overtaken by a reset if it is
    /// closed with unread bytes in it.
    #[must_use]
    pub fn into_stream(self) -> Option<TcpStream> {
        let Self { state, socket, .. } = self;
        drop(state);
        Rc::into_inner(socket.0).map(RefCell::into_inner)
    }
}

/// A call that has come in.
pub struct Incoming {
    /// Its head, which the crate has found to be well-formed HTTP/2 and no more than that.
    pub parts: request::Parts,
    /// Its body.
    pub body: Inflow,
    /// Its answer.
    pub answer: Answerer,
}

impl Incoming {
    fn new(
        request: request::Request<h2::RecvStream>,
        answer: h2::server::SendResponse<Bytes>,
        peer: &Rc<Peer>,
    ) -> Self {
        let known = Stream::begin(peer, answer.stream_id().as_u32());
        let (parts, body) = request.into_parts();
        let body = Inflow::new(body, Rc::clone(&known));
        Self { parts, body, answer: Answerer { stream: answer, known } }
    }

    /// What an extended CONNECT wants to speak (RFC 8441 `:protocol`).
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.parts.extensions.get::<h2::ext::Protocol>().map(h2::ext::Protocol::as_str)
    }
}

/// Where the answer of a call goes, until its final head is sent.
pub struct Answerer {
    stream: h2::server::SendResponse<Bytes>,
    known: Rc<Stream>,
}

impl Answerer {
    /// Sends an interim head (1xx, and never 101).
    ///
    /// # Errors
    /// When the stream has ended meanwhile.
    pub fn interim(&mut self, status: u16, fields: HeaderMap) -> Result<(), StreamError> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::PROCESSING);
        *response.headers_mut() = fields;
        self.stream.send_informational(response).map_err(|_| self.why_closed())
    }

    /// Sends the final head. With `ends` there is nothing behind it.
    ///
    /// # Errors
    /// When the stream has ended meanwhile.
    pub fn send(&mut self, response: Response<()>, ends: bool) -> Result<Outflow, StreamError> {
        match self.stream.send_response(response, ends) {
            Ok(stream) => {
                self.known.on_sent(0);
                if ends {
                    self.known.on_whole();
                }
                Ok(Outflow::new(stream, Rc::clone(&self.known)))
            }
            Err(_) => Err(self.why_closed()),
        }
    }

    /// Ends the stream without an answer.
    pub fn reset(&mut self, code: Code) {
        self.stream.send_reset(code.0.into());
    }

    /// Waits for the caller to reset the stream, or for the end of the connection. Not to be asked after `send`.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<StreamError> {
        self.stream.poll_reset(cx).map(|reset| self.known.reset(&reset))
    }

    #[cold]
    fn why_closed(&mut self) -> StreamError {
        match self.poll_reset(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => error,
            Poll::Pending => StreamError::Reset(Code::INTERNAL_ERROR),
        }
    }
}

/// The socket, shared with the crate so that it can be had back. One thread, and never borrowed across a call.
#[derive(Clone)]
struct Socket(Rc<RefCell<TcpStream>>);

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)
    }
}
