//! A connection's bytes: plain, or through TLS that we originate.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::{Refusal, Session};

/// A connection to an endpoint.
///
/// For both kinds: what a write tells as written is with the kernel, so nobody has to flush. A write that was `Pending`
/// is repeated with the same bytes first (others may follow them): TLS has encrypted them already. A read that ends with
/// `Ok` and nothing is an orderly end; TLS that was cut off without its close_notify is an error.
#[derive(Debug)]
pub enum Transport {
    /// The socket itself.
    Plain(TcpStream),
    /// A session of ours over it. Boxed: it is several times the size, and rare.
    Tls(Box<Session>),
}

impl Transport {
    /// The socket underneath.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(session) => session.socket(),
        }
    }

    /// Where it is noted if the endpoint refuses who we are, for when the transport is in other hands.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(session) => Some(session.refusal()),
        }
    }

    /// Whether there may be something to read, so that a buffer is worth its room.
    ///
    /// # Errors
    /// As the socket's.
    #[inline]
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(cx),
            Self::Tls(session) => session.poll_read_ready(cx),
        }
    }

    /// Whether a connection that nobody uses can be used: bytes, an end or an error, whichever it is, mean that it is no
    /// longer ours to use. Costs no system call where the runtime has not heard of any news, and so misses what it has not
    /// heard of yet.
    ///
    /// A TLS ticket is no news; it is taken in. Call it now and then on idle connections, or tickets are lost.
    pub fn is_idle_and_open(&mut self) -> bool {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_pending(),
            Self::Tls(session) => session.is_idle(false),
        }
    }

    /// The same, asked of the kernel.
    pub fn is_silent(&mut self) -> bool {
        match self {
            Self::Plain(stream) => {
                let mut byte = [MaybeUninit::uninit()];
                let asked = SockRef::from(&*stream).recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
                matches!(asked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(session) => session.is_idle(true),
        }
    }

    /// Says that nothing more is written. What fails here is a peer that is gone, which reading shows.
    ///
    /// TLS whose socket is full sends its close_notify, and what was accepted before, while it is read from.
    pub fn shut_down_write(&mut self) {
        match self {
            Self::Plain(stream) => {
                let _ = SockRef::from(&*stream).shutdown(Shutdown::Write);
            }
            Self::Tls(session) => session.shut_down_write(),
        }
    }
}

impl AsyncRead for Transport {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(session) => Pin::new(session).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(session) => Pin::new(session).poll_write(cx, buf),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(session) => Pin::new(session).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(session) => Pin::new(session).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(session) => Pin::new(session).poll_shutdown(cx),
        }
    }
}
