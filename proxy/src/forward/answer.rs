//! The answer on its way: read from an attempt's connection, checked, and handed to the caller.
//!
//! ```text
//!   buf:  [ interim heads, head .. | body, or the part of it that is here ]
//!          0                  body_from      sent          taken        len
//! ```
//! An answer that comes over HTTP/2 has its head in `buf`, in the words of HTTP/1.1, and its body in pieces beside it.

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use plimsoll_h1::{
    BodyDecoder, BodyError, BodyFraming, Decoded, Limits, Method, ResponseError, ResponseHead, Truncated,
    decode_response, may_complete,
};

use super::body;
use super::io::poll_read;
use super::pieces::Pieces;
use super::trailers::TrailerSection;
use crate::runtime::buffers::{Buffers, INITIAL, Lent, STREAMING};
use crate::transport::Transport;

/// More interim answers than anyone sends before a final one.
const MAX_INTERIM: u32 = 32;

/// What one attempt has brought so far.
#[derive(Debug)]
pub struct Answer {
    /// The final head, once `stage` is `Body`; its spans are ranges of `bytes()`.
    pub head: Lent<ResponseHead>,
    buf: BytesMut,
    stage: Stage,
    taken: usize,
    sent: usize,
    decoder: BodyDecoder,
    ended: bool,
    /// The caller does not know chunks (HTTP/1.0, HTTP/2): they are taken off.
    dechunk: bool,
    /// The body, and what else HTTP/2 has brought.
    stream: Option<Box<FromStream>>,
    interim: u32,
    /// Bytes that were looked at in vain for the end of a head.
    seen: usize,
}

/// What a stream has brought beside the head.
#[derive(Debug)]
struct FromStream {
    /// The fields of the head as they came, to be handed on as they are.
    fields: HeaderMap,
    pieces: Pieces,
    trailers: Option<HeaderMap>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No final head yet.
    Head,
    /// The final head is here.
    Body,
}

/// What a look at the bytes has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing new.
    Nothing,
    /// An interim head: it is in `head` until the next look.
    Interim,
    /// The final head.
    Head,
    /// More of the body, or its end.
    Body,
}

/// What the server sent is not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Its head.
    #[error("{0}")]
    Head(#[from] ResponseError),
    /// Its body.
    #[error("{0}")]
    Body(#[from] BodyError),
    /// Too many interim answers, or a switch of protocols that nobody asked for.
    #[error("an answer that the request does not allow")]
    Unasked,
}

#[cfg(test)]
impl Answer {
    /// An answer whose bytes have all arrived.
    pub fn holding(text: &str) -> Self {
        let mut answer = Self::new(Box::default(), false);
        answer.buf.extend_from_slice(text.as_bytes());
        answer
    }
}

impl Answer {
    /// Nothing yet. `head` is any head, to be written over.
    #[must_use]
    pub fn new(head: Box<ResponseHead>, dechunk: bool) -> Self {
        let decoder = BodyDecoder::verbatim(BodyFraming::None, &Limits::default());
        Self {
            head: head.into(),
            buf: BytesMut::new(),
            stage: Stage::Head,
            taken: 0,
            sent: 0,
            decoder,
            ended: false,
            dechunk,
            stream: None,
            interim: 0,
            seen: 0,
        }
    }

    /// A head is about to come over a stream: it is composed into a buffer.
    pub fn expect_stream(&mut self, buffers: &Buffers) {
        if self.buf.capacity() == 0 {
            self.buf = buffers.lend_head();
        }
    }

    /// The final head has come over a stream: composed into `buf` and `head` from `fields`.
    ///
    /// # Errors
    /// As `compose` says when the head is malformed.
    pub fn on_stream_head(
        &mut self,
        fields: HeaderMap,
        ends: bool,
        compose: impl FnOnce(&HeaderMap, &mut BytesMut, &mut ResponseHead) -> Result<usize, ResponseError>,
    ) -> Result<(), Invalid> {
        self.buf.clear();
        compose(&fields, &mut self.buf, &mut self.head)?;
        self.sent = self.buf.len();
        self.taken = self.buf.len();
        self.stage = Stage::Body;
        self.ended = ends;
        self.stream = Some(Box::new(FromStream { fields, pieces: Pieces::default(), trailers: None }));
        Ok(())
    }

    /// An interim head has come over a stream. It is in `head` until the next one.
    ///
    /// # Errors
    /// When it is malformed, or one too many.
    pub fn on_stream_interim(
        &mut self,
        compose: impl FnOnce(&mut BytesMut, &mut ResponseHead) -> Result<usize, ResponseError>,
    ) -> Result<(), Invalid> {
        self.buf.clear();
        compose(&mut self.buf, &mut self.head)?;
        self.interim += 1;
        if self.interim > MAX_INTERIM { Err(Invalid::Unasked) } else { Ok(()) }
    }

    /// There is no message to read: from here on all that comes belongs to a tunnel, which begins with this head.
    pub fn become_tunnel(&mut self, limits: &Limits) {
        self.buf.clear();
        self.buf.extend_from_slice(b"HTTP/1.1 200 Connection established\r\n\r\n");
        let decoded = decode_response(&self.buf, Method::Connect, limits, &mut self.head);
        debug_assert!(matches!(decoded, Ok(Decoded::Complete { .. })), "a head of ours");
        self.sent = self.buf.len();
        self.taken = self.buf.len();
        self.stage = Stage::Body;
        self.decoder = BodyDecoder::verbatim(BodyFraming::UntilClose, limits);
    }

    /// Whether the body is here without the framing of HTTP/1.1.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.dechunk || self.stream.is_some()
    }

    /// The fields of the head as HTTP/2 brought them, to hand on; `None` where it did not.
    pub fn take_stream_fields(&mut self) -> Option<HeaderMap> {
        self.stream.as_mut().map(|stream| std::mem::take(&mut stream.fields))
    }

    /// A piece of the body has arrived on the stream.
    pub fn push(&mut self, piece: Bytes) {
        if let Some(stream) = &mut self.stream {
            stream.pieces.push(piece);
        }
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

    /// Whether the final head is here.
    #[must_use]
    pub fn has_head(&self) -> bool {
        self.stage == Stage::Body
    }

    /// Whether the whole answer is here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ended
    }

    /// What the caller has yet to be sent, of what is here.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        if self.stage == Stage::Head {
            // What has been looked at is a head, which goes out in words of ours or not at all.
            return &[];
        }
        match &self.stream {
            Some(stream) => stream.pieces.unsent(),
            None => &self.buf[self.sent..self.taken],
        }
    }

    /// At most `most` bytes that the caller is to be sent next, as sent.
    pub fn take_piece(&mut self, most: usize) -> Bytes {
        if let Some(stream) = &mut self.stream {
            let piece = stream.pieces.take(most);
            stream.pieces.let_go();
            return piece;
        }
        let unsent = self.unsent();
        let piece = Bytes::copy_from_slice(&unsent[..unsent.len().min(most)]);
        self.on_sent(piece.len());
        piece
    }

    /// `count` more bytes were written to the caller, or copied for it.
    pub fn on_sent(&mut self, count: usize) {
        if let Some(stream) = &mut self.stream {
            stream.pieces.on_sent(count);
            stream.pieces.let_go();
            return;
        }
        self.sent += count;
        debug_assert!(self.sent <= self.taken);
        if self.sent == self.taken && self.taken == self.buf.len() && self.stage == Stage::Body {
            self.buf.clear();
            self.sent = 0;
            self.taken = 0;
        }
    }

    /// Bytes of the answer that have arrived and wait here, the head included.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buf.len() + self.stream.as_ref().map_or(0, |stream| stream.pieces.held())
    }

    /// Whether the server has sent more than its answer.
    #[must_use]
    pub fn has_excess(&self) -> bool {
        self.ended && self.stream.is_none() && self.taken < self.buf.len()
    }

    /// Reads once. `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// As the socket's.
    pub fn poll_fill(
        &mut self,
        stream: &mut Transport,
        buffers: &Buffers,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        // A buffer is borrowed only once there is something to put into it.
        ready!(stream.poll_read_ready(cx))?;
        if self.buf.capacity() == 0 {
            self.buf = buffers.lend();
        } else if self.buf.len() == self.buf.capacity() {
            let more = if self.buf.capacity() < STREAMING { STREAMING - self.buf.capacity() } else { INITIAL };
            self.buf.reserve(more);
        }
        let read = poll_read(stream, &mut self.buf, cx);
        if read.is_pending() && self.buf.is_empty() {
            // Readiness was stale: whoever waits for an answer waits without a buffer.
            buffers.give_back(std::mem::take(&mut self.buf));
        }
        read
    }

    /// Looks at what has arrived since the last time. Call again until it finds nothing.
    ///
    /// # Errors
    /// [`Invalid`] when it is not HTTP/1.1.
    pub fn look(&mut self, method: Method, limits: &Limits, upgrade_asked: bool) -> Result<Found, Invalid> {
        match self.stage {
            Stage::Head => self.look_for_head(method, limits, upgrade_asked),
            Stage::Body if self.ended || self.stream.is_some() || self.taken == self.buf.len() => Ok(Found::Nothing),
            Stage::Body => {
                self.ended = body::take(&mut self.decoder, !self.dechunk, &mut self.buf, &mut self.taken)?;
                Ok(Found::Body)
            }
        }
    }

    /// The server has closed its side.
    ///
    /// # Errors
    /// [`Truncated`] when the answer is not whole.
    pub fn close(&mut self) -> Result<(), Truncated> {
        if self.stage == Stage::Head {
            return Err(Truncated);
        }
        self.decoder.close()?;
        self.ended = true;
        Ok(())
    }

    /// The head and the buffer, to be used again.
    #[must_use]
    pub fn take_parts(&mut self) -> (Box<ResponseHead>, BytesMut) {
        (self.head.take(), std::mem::take(&mut self.buf))
    }

    fn look_for_head(&mut self, method: Method, limits: &Limits, upgrade_asked: bool) -> Result<Found, Invalid> {
        // An interim head that was found before has been passed on by now.
        if self.taken > 0 {
            self.buf.copy_within(self.taken.., 0);
            self.buf.truncate(self.buf.len() - self.taken);
            self.taken = 0;
        }
        if !may_complete(&self.buf, self.seen, limits) {
            self.seen = self.buf.len();
            return Ok(Found::Nothing);
        }
        let Decoded::Complete { len } = decode_response(&self.buf, method, limits, &mut self.head)? else {
            self.seen = self.buf.len();
            return Ok(Found::Nothing);
        };
        self.seen = 0;
        self.taken = len;
        if self.head.is_interim() {
            self.interim += 1;
            return if self.interim > MAX_INTERIM { Err(Invalid::Unasked) } else { Ok(Found::Interim) };
        }
        let is_tunnel = method == Method::Connect && (200..300).contains(&self.head.status);
        let switches = self.head.status == 101 || is_tunnel;
        if self.head.status == 101 && !(upgrade_asked && self.head.upgrade == plimsoll_h1::Upgrade::WebSocket) {
            return Err(Invalid::Unasked);
        }
        let framing = if switches { BodyFraming::UntilClose } else { self.head.framing };
        self.stage = Stage::Body;
        self.sent = len;
        self.decoder =
            if self.dechunk { BodyDecoder::new(framing, limits) } else { BodyDecoder::verbatim(framing, limits) };
        self.ended = self.decoder.is_end();
        Ok(Found::Head)
    }
}
