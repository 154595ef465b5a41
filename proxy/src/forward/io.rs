//! Reading into and writing from buffers without blocking, and without a system call that readiness says is useless.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use crate::transport::Transport;

/// Bodies of answers up to this size are copied behind their head. Those of requests never: what counts as sent must have
/// been taken by the kernel, or a connection that turns out to be dead would cost the part that was copied.
pub const JOINED: usize = 2048;

/// Reads once into the spare room of `buffer`, which must have some. `Ok(0)` is the end of the stream.
///
/// Goes by way of `AsyncRead`, which takes a short read as the news that the socket is empty; `try_read` would ask the
/// kernel again each time.
pub fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    debug_assert!(buffer.capacity() > buffer.len(), "a read without room would look like the end of the stream");
    loop {
        match ready!(poll_read_buf(Pin::new(stream), cx, buffer)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return Poll::Ready(done),
        }
    }
}

/// Writes as much of `first`, then `second`, as the socket takes at once. Never called with nothing to write.
pub fn poll_write(stream: &TcpStream, first: &[u8], second: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        let written = if second.is_empty() {
            stream.try_write(first)
        } else if first.is_empty() {
            stream.try_write(second)
        } else {
            stream.try_write_vectored(&[IoSlice::new(first), IoSlice::new(second)])
        };
        match written {
            Err(error) if is_transient(&error) => {}
            done => return Poll::Ready(done),
        }
    }
}

/// The same towards an endpoint.
pub fn poll_send(
    transport: &mut Transport,
    first: &[u8],
    second: &[u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    match transport {
        Transport::Plain(stream) => poll_write(stream, first, second, cx),
        Transport::Tls(stream) => {
            Pin::new(stream).poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)])
        }
    }
}

/// Whether the peer has closed or reset its side, however much of what it sent before waits to be read.
#[must_use]
pub fn has_hung_up(stream: &TcpStream) -> bool {
    let mut asked = [PollFd::new(stream.as_fd(), PollFlags::from_bits_retain(libc::POLLRDHUP))];
    if poll(&mut asked, PollTimeout::ZERO).is_err() {
        // Without an answer the caller counts as there: the next look asks again.
        return false;
    }
    // `None` stands for a flag that nix has no name for, and only one such was asked for.
    asked[0].revents().is_none_or(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_peer_that_left_is_noticed_behind_what_it_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            assert!(!has_hung_up(&stream));
            peer.write_all(b"more than was asked for").unwrap();
            assert!(!has_hung_up(&stream));
            drop(peer);
            while !has_hung_up(&stream) {
                tokio::task::yield_now().await;
            }
        });
    }
}
