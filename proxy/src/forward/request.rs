//! The request on its way: read from the caller, checked, and written to each attempt's connection.
//!
//! ```text
//!   buf:  [ head ............ | body, or the part of it that is here | next request ]
//!          0          head_len        sent          taken        len
//! ```
//! Bytes up to `taken` are known to belong to this request and are forwarded as they came. The body is kept from
//! `head_len` on while the call may still be sent again; after that, what was sent makes room for what comes.

use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use plimsoll_h1::{BodyDecoder, BodyError, BodyFraming, Limits, RequestHead};
use tokio::net::TcpStream;

use super::body;
use super::io::poll_read;
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
    ended: bool,
    kept: Option<Kept>,
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
            kept: None,
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
        self.sent == self.taken
    }

    /// Body bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.decoder.data_bytes()
    }

    /// What the current attempt has yet to be sent, of what is here.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.buf[self.sent..self.taken]
    }

    /// `count` more bytes were written.
    pub fn on_sent(&mut self, count: usize) {
        self.sent += count;
        debug_assert!(self.sent <= self.taken);
    }

    /// Begins again for another attempt. Only while the body is kept, or before any of it was let go.
    pub fn rewind(&mut self) {
        self.sent = self.head_len;
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
            self.ended = body::take(&mut self.decoder, true, &mut self.buf, &mut self.taken)?;
        }
        let Some(kept) = &mut self.kept else { return Ok(true) };
        let body = self.taken - self.head_len;
        if body <= kept.limit && kept.lease.grow_to(body) {
            return Ok(true);
        }
        self.kept = None;
        Ok(false)
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
        debug_assert!(self.ended);
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
