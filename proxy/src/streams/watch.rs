//! A transport whose frames are seen as they pass, before the crate reads them.
//!
//! Nothing more is read when the [`Peer`] has been found out, so that whoever polls finds the reason there and ends the
//! connection. And a caller that does not read its answers is not read from, see [`MOST_UNSENT`].
//!
//! Deliberately not done: looking into heads. The crate bounds a head's size and the number of its CONTINUATION frames, and
//! stops reading while its own answers to PING and SETTINGS cannot be written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Code;
use super::frames::Frames;
use super::peer::Peer;

/// What may wait for a caller's socket before nothing is read from it. The crate bounds data and its own answers, but not the
/// heads of answers: a caller that asks and never reads would have us hold them all. Not towards endpoints: heads of requests
/// are bounded by the number of streams, and two proxies that each wait for the other to read would wait for ever.
const MOST_UNSENT: usize = 256 * 1024;

/// A transport whose frames are looked at as they pass.
pub(super) struct Watched<T> {
    io: T,
    /// Was read before the connection was known to be HTTP/2.
    read: BytesMut,
    frames: Frames,
    peer: Rc<Peer>,
    /// Who would read on once it did.
    waits: Option<Waker>,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T, read: BytesMut, peer: Rc<Peer>) -> Self {
        Self { io, read, frames: Frames::new(&peer), peer, waits: None }
    }

    /// `buf` with another code in the GOAWAY at its end, if the crate says there of a head what is true of its compression:
    /// see [`hpack`](super::hpack).
    fn corrected(&self, buf: &[u8]) -> Option<Vec<u8>> {
        const GOAWAY: [u8; 9] = [0, 0, 8, 7, 0, 0, 0, 0, 0];
        let frame = buf.len().checked_sub(GOAWAY.len() + 8)?;
        let code = buf.len() - 4;
        let says = buf[frame..].starts_with(&GOAWAY) && buf[code..] == Code::PROTOCOL_ERROR.0.to_be_bytes();
        if !says || !self.peer.is_caller() || !self.frames.is_head_broken() {
            return None;
        }
        let mut corrected = buf.to_vec();
        corrected[code..].copy_from_slice(&Code::COMPRESSION_ERROR.0.to_be_bytes());
        Some(corrected)
    }

    fn on_write(&mut self, offered: usize, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let unsent = match &written {
            Poll::Ready(Ok(len)) => offered - len,
            Poll::Ready(Err(_)) => 0,
            Poll::Pending => offered,
        };
        self.peer.set_unsent(unsent);
        if unsent <= MOST_UNSENT
            && let Some(waits) = self.waits.take()
        {
            waits.wake();
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, read, frames, peer, waits } = self.get_mut();
        if peer.unsent() > MOST_UNSENT && peer.is_caller() {
            *waits = Some(cx.waker().clone());
            return Poll::Pending;
        }
        loop {
            if peer.verdict().is_some() {
                // Whoever polled finds the reason there, and ends the connection.
                return Poll::Pending;
            }
            let before = buf.filled().len();
            if read.is_empty() {
                ready!(Pin::new(&mut *io).poll_read(cx, buf))?;
            } else {
                let len = read.len().min(buf.remaining());
                buf.put_slice(&read[..len]);
                read.advance(len);
                if read.is_empty() {
                    *read = BytesMut::new();
                }
            }
            let new = &mut buf.filled_mut()[before..];
            if new.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let kept = frames.pass(new, peer);
            buf.set_filled(before + kept);
            // Nothing read would mean the end; and what ends the connection is seen when the loop begins again.
            if kept > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match this.corrected(buf) {
            Some(corrected) => Pin::new(&mut this.io).poll_write(cx, &corrected),
            None => Pin::new(&mut this.io).poll_write(cx, buf),
        };
        this.on_write(buf.len(), written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let last = bufs.iter().rposition(|buf| !buf.is_empty()).unwrap_or(0);
        let written = match bufs.get(last).and_then(|buf| this.corrected(buf)) {
            // What stands before it goes first.
            Some(_) if last > 0 => Pin::new(&mut this.io).poll_write_vectored(cx, &bufs[..last]),
            Some(corrected) => Pin::new(&mut this.io).poll_write(cx, &corrected),
            None => Pin::new(&mut this.io).poll_write_vectored(cx, bufs),
        };
        this.on_write(bufs.iter().map(|buf| buf.len()).sum(), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
