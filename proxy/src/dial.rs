//! The way to an endpoint: a name becomes addresses, an address a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_resilience::flight::Failure;
use tokio::net::{TcpSocket, TcpStream};

use crate::dependency::Dependency;
use crate::runtime::process::Process;
use crate::sockets::OpenSocket;
use crate::tls::Negotiated;
use crate::transport::Transport;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialError {
    /// The dependency, or the way to it.
    Failed(Failure),
    /// The way leads back to this proxy.
    Loop,
}

/// Where an attempt goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// This address.
    Address(SocketAddr),
    /// Whatever this name stands for.
    Name(Arc<str>, u16),
}

/// A connection that was made.
#[derive(Debug)]
pub struct Dialed {
    /// The connection.
    pub transport: Transport,
    /// Where it leads.
    pub address: SocketAddr,
    /// What ALPN has chosen, if it was asked.
    pub negotiated: Negotiated,
    /// Its place under `maxConnections`.
    pub socket: OpenSocket,
}

/// Makes a connection. The flight's connect timeout bounds how long this may take.
pub async fn dial(
    process: Arc<Process>,
    dependency: Arc<Dependency>,
    destination: Destination,
    socket: OpenSocket,
) -> Result<Dialed, DialError> {
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
            Ok(stream) => {
                let transport = Transport::Plain(stream);
                return Ok(Dialed { transport, address, negotiated: Negotiated::Nothing, socket });
            }
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
