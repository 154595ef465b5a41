//! One connection, either side of it: bytes out as they are told, frames in one by one.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::frame::Frame;
use crate::PATIENCE;

/// What a client says first (RFC 9113 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What came next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A frame.
    Frame(Frame),
    /// The other side has closed or reset the connection.
    Closed,
    /// Nothing, within the time given.
    Silent,
}

/// A connection of frames.
pub struct Peer {
    stream: TcpStream,
    received: Vec<u8>,
    read: usize,
    closed: bool,
}

impl Peer {
    /// Connects; nothing is sent.
    ///
    /// # Panics
    /// When nobody listens.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Peer {
        Peer::try_connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// Connects, or says why not.
    pub fn try_connect(address: SocketAddr) -> io::Result<Peer> {
        Ok(Peer::new(TcpStream::connect_timeout(&address, PATIENCE)?))
    }

    /// Speaks on a connection that is there.
    pub fn new(stream: TcpStream) -> Peer {
        // A socket that has been closed already shows it at the next read.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(PATIENCE));
        Peer { stream, received: Vec::new(), read: 0, closed: false }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the other side has closed, and everything it sent has been read.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes bytes as they are; false when the other side takes none any more.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Reads the preface of a client; false when something else comes.
    pub fn read_preface(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        while self.received.len() < self.read + PREFACE.len() {
            if !matches!(self.fill(end), Fill::More) {
                return false;
            }
        }
        let found = self.received[self.read..].starts_with(PREFACE);
        self.read += PREFACE.len();
        found
    }

    /// The next frame, waited for at most `patience`.
    pub fn next(&mut self, patience: Duration) -> Next {
        let end = Instant::now() + patience;
        loop {
            if let Some((frame, length)) = Frame::parse(&self.received[self.read..]) {
                self.read += length;
                return Next::Frame(frame);
            }
            self.received.drain(..std::mem::take(&mut self.read));
            match self.fill(end) {
                Fill::More => {}
                Fill::Closed => return Next::Closed,
                Fill::Late => return Next::Silent,
            }
        }
    }

    /// Bytes received that are no whole frame.
    pub fn rest(&self) -> &[u8] {
        &self.received[self.read..]
    }

    fn fill(&mut self, end: Instant) -> Fill {
        if self.closed {
            return Fill::Closed;
        }
        let left = end.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        // Rounded up: a wait of less than a millisecond must not become a busy loop.
        let millis = u16::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u16::MAX);
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(0) => return Fill::Late,
            Err(nix::errno::Errno::EINTR) => return Fill::More,
            Ok(_) | Err(_) => {}
        }
        let mut buffer = [0u8; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => {
                self.closed = true;
                Fill::Closed
            }
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                Fill::More
            }
        }
    }
}

enum Fill {
    More,
    Closed,
    Late,
}
