//! The way to the endpoint: looked for, being made, or open.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_resilience::flight::Failure;
use plimsoll_resilience::rejection::EndpointKey;
use tokio::net::{TcpSocket, TcpStream};

use crate::dependency::Dependency;
use crate::pool::Upstream;
use crate::runtime::process::Process;
use crate::sockets::{OpenSocket, Sockets};

/// The connection of the running attempt.
pub enum Link {
    /// No attempt runs.
    None,
    /// Somebody else has to close a socket first.
    Waiting(Waiting),
    /// A connection is being made.
    Dialing(Dial),
    /// The connection is ours.
    Open(Open),
}

/// An attempt that has its endpoint and no socket yet.
pub struct Waiting {
    /// Where it goes.
    pub endpoint: EndpointKey,
    /// The same, to connect to.
    pub destination: Destination,
    /// Ready with a socket, or with nothing when the wait has been too long.
    pub socket: Pin<Box<dyn Future<Output = Option<OpenSocket>>>>,
}

/// A connection in the making.
pub type Dial = Pin<Box<dyn Future<Output = Result<Upstream, DialError>>>>;

/// A connection with a request on its way.
pub struct Open {
    /// The connection.
    pub upstream: Upstream,
    /// The head of this attempt, as far as it is not written yet.
    pub head: BytesMut,
    /// Bytes of it that are written.
    pub head_sent: usize,
    /// A byte of the request was written.
    pub wrote: bool,
    /// Writing failed; what the server said before that may still be readable.
    pub write_failed: bool,
    /// Our side of a tunnel is closed.
    pub shut: bool,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialError {
    /// The dependency, or the way to it.
    Failed(Failure),
    /// The way leads back to this proxy.
    Loop,
}

impl Link {
    /// Whether a connection is ours.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

/// Where an attempt goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// This address.
    Address(SocketAddr),
    /// Whatever this name stands for.
    Name(Arc<str>, u16),
}

/// Makes a connection. The flight's connect timeout bounds how long this may take.
pub async fn dial(
    process: Arc<Process>,
    dependency: Arc<Dependency>,
    destination: Destination,
    socket: OpenSocket,
) -> Result<Upstream, DialError> {
    let addresses = match destination {
        Destination::Address(address) => vec![address],
        Destination::Name(name, port) => {
            process.resolver.resolve(&name, port).await.map_err(|_| DialError::Failed(Failure::Dns))?
        }
    };
    let mut last = DialError::Failed(Failure::Connect);
    for address in addresses {
        if process.own.is_at(address) {
            last = DialError::Loop;
            continue;
        }
        match connect(address).await {
            Ok(stream) => return Ok(Upstream::new(stream, address, dependency.id, socket)),
            Err(error) => {
                tracing::debug!(dependency = &*dependency.name, %address, %error, "no connection");
                last = DialError::Failed(Failure::Connect);
            }
        }
    }
    Err(last)
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// Waits at most `limit` for a socket of `dependency` to be closed.
pub async fn wait_for_socket(sockets: Arc<Sockets>, limit: Duration) -> Option<OpenSocket> {
    tokio::time::timeout(limit, sockets.opened()).await.ok()
}
