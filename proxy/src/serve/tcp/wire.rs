//! What a relay needs of either of its ends.

use std::io;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::transport::Transport;

/// One end of a relay.
pub trait Wire: AsyncRead + AsyncWrite + Unpin {
    /// The socket underneath.
    fn socket(&self) -> &TcpStream;

    /// Whether what the socket carries is what the peer says, so that the kernel may move it.
    fn is_plain(&self) -> bool;

    /// Whether there may be something to read.
    ///
    /// # Errors
    /// As the socket's.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Says that nothing more is written.
    fn shut_down_write(&mut self);
}

impl Wire for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_read_ready(self, cx)
    }

    fn shut_down_write(&mut self) {
        // What fails here is a peer that is gone, which reading shows.
        let _ = SockRef::from(&*self).shutdown(std::net::Shutdown::Write);
    }
}

impl Wire for Transport {
    fn socket(&self) -> &TcpStream {
        Transport::socket(self)
    }

    fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Transport::poll_read_ready(self, cx)
    }

    fn shut_down_write(&mut self) {
        Transport::shut_down_write(self);
    }
}

/// Has the end of `stream` look like what it is: a zero linger time turns the close into a reset.
pub fn reset_on_close(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
}

/// Whether the peer has reset the connection, as far as nobody has been told yet.
pub fn was_reset(stream: &TcpStream) -> bool {
    SockRef::from(stream).take_error().is_ok_and(|error| error.is_some())
}
