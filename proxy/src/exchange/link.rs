//! The way to the endpoint: looked for, being made, or open.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use plimsoll_resilience::flight::Failure;
use plimsoll_resilience::reason::Reason;
use tokio::net::TcpSocket;

use crate::capture;
use crate::dependency::{Dependency, Sockets};
use crate::pool::Upstream;
use crate::runtime::process::Process;

/// The connection of the running attempt.
pub enum Link {
    /// No attempt runs.
    None,
    /// A connection is being made.
    Dialing(Dial),
    /// The connection is ours.
    Open(Open),
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
#[derive(Clone, Copy, Debug)]
pub struct DialError {
    /// What the flight makes of it.
    pub failure: Failure,
    /// The word for it, where it is not the failure's own.
    pub reason: Option<Reason>,
}

impl From<Failure> for DialError {
    fn from(failure: Failure) -> Self {
        Self { failure, reason: None }
    }
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
    wait: Duration,
) -> Result<Upstream, DialError> {
    let addresses = match destination {
        Destination::Address(address) => vec![address],
        Destination::Name(name, port) => process.resolver.resolve(&name, port).await.map_err(|_| Failure::Dns)?,
    };
    let mut last = DialError::from(Failure::Connect);
    for address in addresses {
        match dial_address(&process, &dependency, address, wait).await {
            Ok(upstream) => return Ok(upstream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn dial_address(
    process: &Process,
    dependency: &Arc<Dependency>,
    address: SocketAddr,
    wait: Duration,
) -> Result<Upstream, DialError> {
    if capture::leads_to_us(address, &process.own_ports.load()) {
        return Err(DialError { failure: Failure::Connect, reason: Some(Reason::Loop) });
    }
    let full = DialError { failure: Failure::Connect, reason: Some(Reason::BulkheadFull) };
    let socket_count = match Sockets::try_open(dependency) {
        Some(socket) => socket,
        None => {
            process.close_idle(dependency.id);
            tokio::time::timeout(wait, Sockets::opened(dependency)).await.map_err(|_| full)?
        }
    };
    let connect = async {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_nodelay(true)?;
        socket.connect(address).await
    };
    match connect.await {
        Ok(stream) => Ok(Upstream::new(stream, address, dependency, socket_count)),
        Err(error) => {
            tracing::debug!(dependency = &*dependency.name, %address, %error, "no connection");
            Err(Failure::Connect.into())
        }
    }
}
