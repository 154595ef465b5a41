//! Connections without a protocol of ours: servers that do what a test says, and ends that can be told apart.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{PATIENCE, eventually};

/// The first bytes of no protocol that anybody detects.
pub const OPAQUE: &[u8] = b"\x00\x01\x02 opaque \xff\r\n";

/// A server: one thread for each connection. Dropped, it takes no new ones.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    listener: TcpListener,
}

impl Server {
    /// One on a free port of 127.0.0.1; `serve` gets each connection and its number, from 0.
    pub fn start(serve: impl Fn(Peer, usize) + Send + Sync + 'static) -> Server {
        Server::bind(([127, 0, 0, 1], 0).into(), serve)
    }

    /// The same at `address`.
    pub fn bind(address: SocketAddr, serve: impl Fn(Peer, usize) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("it is bound");
        let connections = Arc::<AtomicUsize>::default();
        let (accepting, count) = (listener.try_clone().expect("a descriptor is left"), Arc::clone(&connections));
        std::thread::spawn(move || {
            let serve = Arc::new(serve);
            // Ends when the listener is shut down.
            while let Ok((stream, _)) = accepting.accept() {
                let (serve, number) = (Arc::clone(&serve), count.fetch_add(1, Ordering::SeqCst));
                std::thread::spawn(move || serve(Peer::new(stream), number));
            }
        });
        Server { address, connections, listener }
    }

    /// Connections taken so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Waits until so many were taken.
    #[track_caller]
    pub fn wait_for_connections(&self, count: usize) {
        eventually("the server is called", || self.connections() >= count);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// In order: FIN.
    Fin,
    /// RST.
    Reset,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// The socket.
    pub stream: TcpStream,
}

impl Peer {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect_timeout(&address, PATIENCE);
        Peer::new(stream.unwrap_or_else(|error| panic!("cannot connect to {address}: {error}")))
    }

    /// Takes a connection.
    pub fn new(stream: TcpStream) -> Peer {
        // A reset may have come before; it shows when somebody reads.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.set_nodelay(true);
        Peer { stream }
    }

    /// Writes all of `bytes`.
    #[track_caller]
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the connection takes it");
    }

    /// Reads exactly as many bytes as `expected` has, which have to be these.
    #[track_caller]
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let mut bytes = vec![0; expected.as_ref().len()];
        let read = self.stream.read_exact(&mut bytes);
        assert!(read.is_ok(), "{read:?}, instead of {:?}", String::from_utf8_lossy(expected.as_ref()));
        assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(expected.as_ref()));
    }

    /// Whether the next bytes are these, rather than an end.
    pub fn try_expect(&mut self, expected: impl AsRef<[u8]>) -> bool {
        let mut bytes = vec![0; expected.as_ref().len()];
        self.stream.read_exact(&mut bytes).is_ok() && bytes == expected.as_ref()
    }

    /// All that comes until the connection ends, and how it ends.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn read_to_end(&mut self) -> (Vec<u8>, End) {
        let mut all = Vec::new();
        match self.stream.read_to_end(&mut all) {
            Ok(_) => (all, End::Fin),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => (all, End::Reset),
            Err(error) => panic!("after {} bytes: {error}", all.len()),
        }
    }

    /// Waits for the end, with nothing before it.
    #[track_caller]
    pub fn expect_end(&mut self, end: End) {
        let (bytes, how) = self.read_to_end();
        assert_eq!((String::from_utf8_lossy(&bytes).as_ref(), how), ("", end));
    }

    /// Sends a FIN.
    pub fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).expect("it is connected");
    }

    /// Sends a RST.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("sockets linger");
    }

    /// Writes back whatever comes, until the other side ends.
    pub fn echo(mut self) {
        let mut from = self.stream.try_clone().expect("a descriptor is left");
        let _ = io::copy(&mut from, &mut self.stream);
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
