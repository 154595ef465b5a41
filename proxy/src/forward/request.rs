//! The request on its way: read from the caller, checked, and written to each attempt's connection.
//!
//! ```text
//!   buf:  [ head ............ | body, or the part of it that is here | next request ]
//!          0          head_len        sent          taken        len
//! ```
//! Bytes up to `taken` are known to belong to this request and are forwarded as they came. The body is kept from
//! `head_len` on while the call may still be sent again; after that, what was sent makes room for what comes.
//!
//! A request that came over HTTP/2 has its head in `buf`, in the words of HTTP/1.1, and its body in pieces beside it.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Uri};
use plimsoll_h1::{BodyDecoder, BodyError, BodyFraming, Limits, RequestHead};
use tokio::net::TcpStream;

use super::body;
use super::io::poll_read;
use super::pieces::Pieces;
use super::trailers::TrailerSection;
use crate::runtime::buffers::{INITIAL, Lent, STREAMING};
use crate::runtime::memory::Lease;

/// A request whose head is complete.
#[derive(Debug)]
pub struct Request {
    /// The decoded head; its spans are ranges of `buf`.
    pub head: Lent<RequestHead>,
    buf: BytesMut,
    head_len: usize,
    sent: usize,
    taken: usize,
    decoder: BodyDecoder,
    /// The framing of HTTP/1.1 stays on the body.
    framed: bool,
    ended: bool,
    kept: Option<Kept>,
    /// What was sent of the body is not all here any more.
    let_go: bool,
    /// The body, and what else HTTP/2 has brought. On the heap: HTTP/1.1 is not to pay for it.
    stream: Option<Box<FromStream>>,
}

/// What a stream has brought beside the head.
#[derive(Debug)]
struct FromStream {
    /// What the head was composed from, to be handed on as it came.
    received: Option<(HeaderMap, Uri)>,
    pieces: Pieces,
    body_bytes: u64,
    trailers: Option<HeaderMap>,
}

/// The body is kept for another attempt.
#[derive(Debug)]
struct Kept {
    limit: usize,
    lease: Lease,
}

/// Why the body cannot be read on.
#[derive(Clone, Copy, Debug)]
pub enum BodyEnd {
    /// The caller has closed its side.
    Closed,
    /// The connection is broken.
    Lost,
}

impl Request {
    /// A request whose head fills the first `head_len` bytes of `buf`.
    #[must_use]
    pub fn new(head: Box<RequestHead>, buf: BytesMut, head_len: usize, limits: &Limits) -> Self {
        let decoder = BodyDecoder::verbatim(head.framing, limits);
        Self {
            head: head.into(),
            buf,
            head_len,
            sent: head_len,
            taken: head_len,
            ended: decoder.is_end(),
            decoder,
            framed: true,
            kept: None,
            let_go: false,
            stream: None,
        }
    }

    /// A request from a stream: its head, composed into `buf`, and what it was composed from.
    #[must_use]
    pub fn of_stream(head: Box<RequestHead>, buf: BytesMut, received: (HeaderMap, Uri), ends: bool) -> Self {
        let head_len = buf.len();
        let stream = FromStream { received: Some(received), pieces: Pieces::default(), body_bytes: 0, trailers: None };
        Self {
            head: head.into(),
            buf,
            head_len,
            sent: head_len,
            taken: head_len,
            ended: ends,
            decoder: BodyDecoder::verbatim(BodyFraming::None, &Limits::default()),
            framed: false,
            kept: None,
            let_go: false,
            stream: Some(Box::new(stream)),
        }
    }

    /// Takes the framing off the body, because the attempt may go to a peer that frames otherwise. Before the first
    /// look at it.
    pub fn take_framing_off(&mut self, limits: &Limits) {
        if self.stream.is_none() && self.framed {
            self.framed = false;
            self.decoder = BodyDecoder::new(self.head.framing, limits);
        }
    }

    /// Whether the body goes out with the framing it came with.
    #[must_use]
    pub fn is_framed(&self) -> bool {
        self.framed
    }

    /// The head as HTTP/2 brought it, if it did; `last`: there is no attempt behind this one to need it, as far as is
    /// known. One that comes all the same makes do with the composed head.
    pub fn received_by_stream(&mut self, last: bool) -> Option<(HeaderMap, Uri)> {
        let received = &mut self.stream.as_mut()?.received;
        if last { received.take() } else { received.clone() }
    }

    /// Whether the request can be sent from its beginning.
    #[must_use]
    pub fn is_all_here(&self) -> bool {
        !self.let_go
    }

    /// A piece of the body has arrived on the stream. False when the body has outgrown what may be kept of it; it is
    /// let go then.
    pub fn push(&mut self, piece: Bytes) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        if self.kept.is_none() {
            self.let_go |= stream.pieces.let_go();
        }
        stream.body_bytes += piece.len() as u64;
        stream.pieces.push(piece);
        let held = stream.pieces.held();
        self.still_kept(held)
    }

    /// The stream has ended.
    pub fn end(&mut self, trailers: Option<HeaderMap>) {
        self.ended = true;
        if let Some(stream) = &mut self.stream {
            stream.trailers = trailers;
        }
    }

    /// What follows the body; `None` before the end and where nothing does.
    #[must_use]
    pub fn trailers(&self) -> Option<TrailerSection<'_>> {
        match &self.stream {
            Some(stream) => stream.trailers.as_ref().map(TrailerSection::Map),
            None => self.decoder.trailers().map(TrailerSection::Text),
        }
    }

    /// The bytes that the head's spans are ranges of.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Whether the whole request is here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ended
    }

    /// Whether all that is here has been written to the current attempt.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        match &self.stream {
            Some(stream) => stream.pieces.is_sent(),
            None => self.sent == self.taken,
        }
    }

    /// Body bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.stream.as_ref().map_or_else(|| self.decoder.data_bytes(), |stream| stream.body_bytes)
    }

    /// What the current attempt is to be sent next: all that is here, or a piece of it.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        match &self.stream {
            Some(stream) => stream.pieces.unsent(),
            None => &self.buf[self.sent..self.taken],
        }
    }

    /// `count` more bytes were written.
    pub fn on_sent(&mut self, count: usize) {
        match &mut self.stream {
            Some(stream) => stream.pieces.on_sent(count),
            None => {
                self.sent += count;
                debug_assert!(self.sent <= self.taken);
            }
        }
    }

    /// At most `most` bytes that are to be sent next, as sent.
    pub fn take_piece(&mut self, most: usize) -> Bytes {
        match &mut self.stream {
            Some(stream) => stream.pieces.take(most),
            None => {
                let end = self.taken.min(self.sent.saturating_add(most));
                let piece = Bytes::copy_from_slice(&self.buf[self.sent..end]);
                self.sent = end;
                piece
            }
        }
    }

    /// Begins again for another attempt. Only while the body is kept, or before any of it was let go.
    pub fn rewind(&mut self) {
        match &mut self.stream {
            Some(stream) => stream.pieces.rewind(),
            None => self.sent = self.head_len,
        }
    }

    /// Keeps up to `limit` bytes of body for another attempt.
    pub fn keep(&mut self, limit: usize, lease: Lease) {
        self.kept = Some(Kept { limit, lease });
    }

    /// Whether the body is kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Looks at what was read since the last time. Returns false when the body has outgrown what may be kept of it; it
    /// is let go then.
    ///
    /// # Errors
    /// [`BodyError`] when it breaks its framing.
    pub fn take(&mut self) -> Result<bool, BodyError> {
        if !self.ended && self.taken < self.buf.len() {
            self.ended = body::take(&mut self.decoder, self.framed, &mut self.buf, &mut self.taken)?;
        }
        if self.stream.is_some() {
            return Ok(true);
        }
        let held = self.taken - self.head_len;
        Ok(self.still_kept(held))
    }

    /// With `held` bytes of body, whether it is still kept if it was.
    fn still_kept(&mut self, held: usize) -> bool {
        let Some(kept) = &mut self.kept else { return true };
        if held <= kept.limit && kept.lease.grow_to(held) {
            return true;
        }
        self.kept = None;
        false
    }

    /// Reads more of the body once, if there is room; pending without a waker when there is none.
    ///
    /// # Errors
    /// [`BodyEnd`] as it says.
    pub fn poll_fill(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<Result<usize, BodyEnd>> {
        debug_assert!(!self.ended);
        if !self.make_room() {
            return Poll::Pending;
        }
        match ready!(poll_read(stream, &mut self.buf, cx)) {
            Ok(0) => Poll::Ready(Err(BodyEnd::Closed)),
            Err(_) => Poll::Ready(Err(BodyEnd::Lost)),
            Ok(count) => Poll::Ready(Ok(count)),
        }
    }

    /// With the request whole, reads on once to notice that the caller has gone; what else comes is its next request.
    ///
    /// # Errors
    /// [`BodyEnd`]: the caller has gone.
    pub fn poll_watch(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<Result<usize, BodyEnd>> {
        // A caller that sends its next requests ahead fills the buffer and then waits its turn.
        if self.is_full() {
            return Poll::Pending;
        }
        match ready!(poll_read(stream, &mut self.buf, cx)) {
            Ok(0) => Poll::Ready(Err(BodyEnd::Closed)),
            Err(_) => Poll::Ready(Err(BodyEnd::Lost)),
            Ok(count) => Poll::Ready(Ok(count)),
        }
    }

    /// Whether there is no room for more of what the caller sends ahead.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.buf.len() == self.buf.capacity()
    }

    /// Turns the rest of the connection into one endless body, for a tunnel.
    pub fn become_raw(&mut self) {
        if self.stream.is_some() {
            return;
        }
        debug_assert!(self.ended);
        self.framed = true;
        self.decoder = BodyDecoder::verbatim(BodyFraming::UntilClose, &Limits::default());
        self.ended = false;
    }

    /// The caller has closed its side of a tunnel.
    pub fn end_raw(&mut self) {
        self.ended = true;
    }

    /// The head, and the buffer with whatever follows this request.
    #[must_use]
    pub fn take_parts(&mut self) -> (Box<RequestHead>, BytesMut) {
        let rest = self.buf.len() - self.taken;
        self.buf.copy_within(self.taken.., 0);
        self.buf.truncate(rest);
        (self.head.take(), std::mem::take(&mut self.buf))
    }

    fn make_room(&mut self) -> bool {
        if self.kept.is_none() && self.is_sent() && self.sent > self.head_len {
            // The head stays: routes, logs and the answer still refer to it.
            self.buf.copy_within(self.taken.., self.head_len);
            self.buf.truncate(self.buf.len() - (self.taken - self.head_len));
            self.sent = self.head_len;
            self.taken = self.head_len;
            self.let_go = true;
        }
        if self.buf.len() < self.buf.capacity() {
            return true;
        }
        let may_grow = self.kept.is_some() || self.buf.capacity() < STREAMING || self.taken == self.head_len;
        if may_grow {
            self.buf.reserve(INITIAL);
        }
        may_grow
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_h1::{Decoded, decode_request};

    use super::*;
    use crate::runtime::memory::KeptBodies;

    fn request(text: &str) -> Request {
        let limits = Limits::default();
        let buf = BytesMut::from(text);
        let mut head = Box::<RequestHead>::default();
        let Ok(Decoded::Complete { len }) = decode_request(&buf, &limits, &mut head) else { panic!("{text}") };
        let mut request = Request::new(head, buf, len, &limits);
        assert!(request.take().unwrap());
        request
    }

    fn arrive(request: &mut Request, bytes: &str) {
        assert!(request.make_room());
        request.buf.extend_from_slice(bytes.as_bytes());
        assert!(request.take().unwrap());
    }

    const HEAD: &str = "PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";

    /// A pooled connection may turn out to be dead at the first write, long after more of the body has arrived.
    #[test]
    fn what_was_not_written_is_never_let_go() {
        let mut request = request(&format!("{HEAD}5\r\nAAAAA\r\n"));
        arrive(&mut request, "5\r\nBBBBB\r\n0\r\n\r\n");
        request.rewind();
        assert_eq!(request.unsent(), b"5\r\nAAAAA\r\n5\r\nBBBBB\r\n0\r\n\r\n");
        assert!(request.is_whole());
    }

    #[test]
    fn what_was_written_makes_room_unless_it_is_kept() {
        for kept in [false, true] {
            let mut request = request(&format!("{HEAD}5\r\nAAAAA\r\n"));
            if kept {
                request.keep(1024, KeptBodies::default().lease());
            }
            request.on_sent(request.unsent().len());
            arrive(&mut request, "5\r\nBBBBB\r\n");
            assert_eq!(request.unsent(), b"5\r\nBBBBB\r\n");
            request.rewind();
            let all: &[u8] = if kept { b"5\r\nAAAAA\r\n5\r\nBBBBB\r\n" } else { b"5\r\nBBBBB\r\n" };
            assert_eq!(request.unsent(), all);
        }
    }

    #[test]
    fn a_kept_body_that_outgrows_its_limit_says_so_once_and_is_let_go() {
        let mut request = request(&format!("{HEAD}5\r\nAAAAA\r\n"));
        request.keep(12, KeptBodies::default().lease());
        assert!(request.take().unwrap());
        request.buf.extend_from_slice(b"5\r\nBBBBB\r\n");
        assert!(!request.take().unwrap());
        assert!(request.take().unwrap());
        assert!(!request.is_kept());
    }

    #[test]
    fn the_next_request_stays_behind() {
        let mut request = request(&format!("{HEAD}0\r\n\r\nGET /next HTTP/1.1\r\n"));
        assert!(request.is_whole());
        let (_, rest) = request.take_parts();
        assert_eq!(&rest[..], b"GET /next HTTP/1.1\r\n");
    }
}
