//! A TLS session on a socket.
//!
//! What it adds to tokio-rustls:
//!
//! - **Written means that the kernel has it.** The library takes plaintext and may keep the ciphertext when the socket is
//!   full. Here a write is told as done only when its ciphertext is out, so that the *not sent* rule of the pool holds
//!   as it does for a plain socket, and nobody has to flush. The price is a rule: after `Pending`, the next write begins
//!   with the same bytes (more may follow them).
//! - Reading sends what the session itself has to say (key updates, a close_notify that found the socket full).
//! - An idle session can be asked whether it is still of use, and a ticket that arrived meanwhile is no news.
//! - Errors have words ([`TlsError`]).
//!
//! An idle session takes about 8 KB (`tests/tls_memory.rs`), half of it rustls's buffer for reading. In use it holds up to
//! one record each way on top, 16 KiB, and two while a record comes in pieces.

use std::io::{self, IoSlice, Read};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::TlsError;

/// The plaintext of one record (RFC 8446 5.1), and as much as a session holds for a socket that is full: what is only
/// partly with the kernel is then one record, of which the peer can read nothing.
pub(super) const RECORD: usize = 16 * 1024;

/// A TLS session on a socket. See the module.
#[derive(Debug)]
pub struct Session {
    stream: TlsStream<TcpStream>,
    /// Whether we had a certificate to show.
    identified: bool,
    /// Bytes that the session has taken and that were not told as written, since their ciphertext is not out.
    taken: usize,
    end: End,
    /// The peer broke the protocol, or ended it with an alert: nothing more can be read.
    broken: Option<TlsError>,
    refusal: Refusal,
}

/// Set once the endpoint has [refused who we are](TlsError::refuses_us). HTTP/2 takes the session out of our hands, and
/// tells of errors by their kind alone.
pub type Refusal = Arc<OnceLock<TlsError>>;

/// How far the end of what we write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// close_notify is to go out, and the socket to be shut down behind it.
    Closing,
    Shut,
}

impl Session {
    pub(super) fn new(stream: TlsStream<TcpStream>, identified: bool) -> Self {
        Self { stream, identified, taken: 0, end: End::Open, broken: None, refusal: Refusal::default() }
    }

    /// The socket underneath.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref().0
    }

    /// The state of the protocol.
    #[must_use]
    pub fn connection(&self) -> &rustls::ClientConnection {
        self.stream.get_ref().1
    }

    /// Where a refusal of us is noted.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        Arc::clone(&self.refusal)
    }

    /// Whether there may be something to read.
    ///
    /// # Errors
    /// As the socket's.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Decrypted bytes, a close_notify and what was an error once do not show at the socket.
        if !self.connection().wants_read() || self.has_to_push() || self.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        self.socket().poll_read_ready(cx)
    }

    /// Says that nothing more is written. What the socket does not take now goes out with reads, flushes or
    /// [`poll_shutdown`](AsyncWrite::poll_shutdown), and the socket is shut down behind it.
    pub fn shut_down_write(&mut self) {
        if self.end == End::Open {
            self.end = End::Closing;
            self.stream.get_mut().1.send_close_notify();
            // No waker is needed: it is tried again by whoever reads.
            let _ = self.poll_push(&mut Context::from_waker(std::task::Waker::noop()));
        }
    }

    /// Whether an idle session is of use: open, and with nothing to read but what the session itself has use for, such as
    /// tickets. Asks the kernel only where `asks_kernel`; without, it misses what the runtime has not heard of yet.
    pub fn is_idle(&mut self, asks_kernel: bool) -> bool {
        if self.end != End::Open || self.taken > 0 {
            return false;
        }
        let (socket, session) = self.stream.get_mut();
        loop {
            match session.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() == 0 => {}
                _ => return false,
            }
            match session.read_tls(&mut Arrived { socket, asks_kernel }) {
                // The end, in order or not.
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Whether something waits to go out that no writer will come back for.
    fn has_to_push(&self) -> bool {
        match self.end {
            End::Open => self.taken == 0 && self.connection().wants_write(),
            End::Closing => true,
            End::Shut => false,
        }
    }

    /// Sends what the session holds, and ends the socket behind a close_notify.
    fn poll_push(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.end == End::Closing {
            self.end = End::Shut;
            // What fails here is a peer that is gone, which reading shows.
            let _ = SockRef::from(self.socket()).shutdown(Shutdown::Write);
        }
        Poll::Ready(Ok(()))
    }

    /// Puts words into an error, and keeps it where nothing more can be read after it.
    fn note(&mut self, error: io::Error) -> io::Error {
        let error = TlsError::explain(error, self.identified);
        if let Some(tls) = TlsError::of(&error).filter(|_| error.kind() == io::ErrorKind::InvalidData) {
            if tls.refuses_us() {
                let _ = self.refusal.set(tls.clone());
            }
            self.broken = Some(tls.clone());
        }
        error
    }

    /// Writing has failed. The peer may have said why before it went away, and whoever writes may never read again.
    fn note_write(&mut self, error: io::Error) -> io::Error {
        let (socket, session) = self.stream.get_mut();
        loop {
            if let Err(error) = session.process_new_packets() {
                return self.note(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            if !matches!(session.read_tls(&mut Arrived { socket, asks_kernel: true }), Ok(1..)) {
                return self.note(error);
            }
        }
    }

    /// Tells `self.taken` as written once it is out.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.poll_push(cx)).map_err(|error| self.note_write(error))?;
        Poll::Ready(Ok(std::mem::take(&mut self.taken)))
    }
}

impl AsyncRead for Session {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.has_to_push() {
            // A peer that takes nothing more may still have sent something.
            let _ = this.poll_push(cx);
        }
        // Waits for plaintext, an orderly end, or an error.
        if this.broken.is_none() {
            match ready!(Pin::new(&mut this.stream).poll_fill_buf(cx)) {
                Ok([]) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) => {
                    let error = this.note(error);
                    // What came before a broken record, or before an alert, is read first.
                    if this.broken.is_none() {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        // More than the one record, if more has been decrypted.
        let read = this.stream.get_mut().1.reader().read(buf.initialize_unfilled());
        match (read, &this.broken) {
            (Ok(0) | Err(_), Some(error)) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())))
            }
            (read, _) => {
                buf.advance(read?);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Session {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.end != End::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let offered: usize = bufs.iter().map(|buf| buf.len()).sum();
        if this.taken > 0 {
            debug_assert!(this.taken <= offered, "a write after `Pending` begins with the same bytes");
        } else {
            let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
            this.taken = ready!(written).map_err(|error| this.note_write(error))?;
        }
        this.poll_taken(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_push(cx).map_err(|error| this.note_write(error))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.shut_down_write();
        if this.end == End::Shut { Poll::Ready(Ok(())) } else { this.poll_push(cx) }
    }
}

/// What has arrived at a socket, read without waiting and without telling the runtime.
struct Arrived<'a> {
    socket: &'a TcpStream,
    asks_kernel: bool,
}

impl Read for Arrived<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.asks_kernel {
            // Non-blocking, since it is tokio's.
            (&*SockRef::from(self.socket)).read(buf)
        } else {
            self.socket.try_read(buf)
        }
    }
}
