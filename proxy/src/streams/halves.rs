//! The two directions of one stream.

use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;

use super::peer::Stream;
use super::{Code, StreamError};

/// Nobody ended the stream but we ourselves.
const ENDED: StreamError = StreamError::Reset(Code::INTERNAL_ERROR);

/// What the peer sends on one stream.
pub struct Inflow {
    stream: h2::RecvStream,
    known: Rc<Stream>,
}

impl Inflow {
    pub(super) fn new(stream: h2::RecvStream, known: Rc<Stream>) -> Self {
        Self { stream, known }
    }

    /// The next piece of data; `None` at its end, after which trailers may follow.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        self.stream.poll_data(cx).map(|data| data.map(|data| data.map_err(|error| self.known.error(&error))))
    }

    /// These bytes have gone on: the peer may send as many more.
    pub fn release(&mut self, bytes: usize) {
        // Fails for a stream that has ended meanwhile, which needs no room, or for more than was received.
        let released = self.stream.flow_control().release_capacity(bytes);
        debug_assert!(bytes == 0 || released.is_ok(), "released once, and no more than was received: {released:?}");
    }

    /// The trailers, if there are any; asked for after the end of the data.
    pub fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        self.stream.poll_trailers(cx).map_err(|error| self.known.error(&error))
    }

    /// Whether END_STREAM was received and nothing is left to read.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// What we send on one stream.
pub struct Outflow {
    /// None when it was ended from here.
    stream: Option<h2::SendStream<Bytes>>,
    known: Rc<Stream>,
}

impl Outflow {
    pub(super) fn new(stream: h2::SendStream<Bytes>, known: Rc<Stream>) -> Self {
        Self { stream: Some(stream), known }
    }

    /// Waits for room, and says how many of `wanted` bytes may be sent now: more than 0.
    ///
    /// What is asked for is taken from the window that all streams share, so `wanted` is what there is to send.
    pub fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<Result<usize, StreamError>> {
        debug_assert!(wanted > 0, "no room is needed for nothing");
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(ENDED)) };
        let mut room = stream.capacity();
        if room < wanted {
            stream.reserve_capacity(wanted);
            room = stream.capacity();
        }
        if room == 0 {
            room = match ready!(stream.poll_capacity(cx)) {
                Some(Ok(room)) => room,
                Some(Err(error)) => return Poll::Ready(Err(self.known.error(&error))),
                None => return Poll::Ready(Err(self.why_closed())),
            };
        }
        Poll::Ready(Ok(room.min(wanted)))
    }

    /// Sends `data`, no more than there is room for. Empty with `ends` is always allowed, and sends the end alone.
    ///
    /// # Errors
    /// When the stream has ended meanwhile.
    pub fn send(&mut self, data: Bytes, ends: bool) -> Result<(), StreamError> {
        if data.is_empty() && !ends {
            // A frame that says nothing is what floods are made of.
            return Ok(());
        }
        let Some(stream) = &mut self.stream else { return Err(ENDED) };
        self.known.on_sent(data.len());
        if stream.send_data(data, ends).is_err() {
            return Err(self.why_closed());
        }
        if ends {
            self.known.on_whole();
        }
        Ok(())
    }

    /// Sends trailers, which end our side.
    ///
    /// # Errors
    /// When the stream has ended meanwhile.
    pub fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), StreamError> {
        let Some(stream) = &mut self.stream else { return Err(ENDED) };
        self.known.on_sent(0);
        if stream.send_trailers(trailers).is_err() {
            return Err(self.why_closed());
        }
        self.known.on_whole();
        Ok(())
    }

    /// Ends both directions: at once towards an endpoint, towards a caller when what was sent before has gone out.
    pub fn reset(&mut self, code: Code) {
        if let Some(stream) = self.stream.take() {
            self.known.end(stream, code);
        }
    }

    /// Waits for the peer to reset the stream, or for the end of the connection. It cannot tell a reset from a fault that
    /// we found ourselves; where an answer is waited for, that side knows better.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<StreamError> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(ENDED) };
        stream.poll_reset(cx).map(|reset| self.known.reset(&reset))
    }

    #[cold]
    fn why_closed(&mut self) -> StreamError {
        match self.poll_reset(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => error,
            Poll::Pending => ENDED,
        }
    }
}
