//! The way to an endpoint: a name becomes addresses, an address a connection.
//!
//! All addresses of a name race for it (RFC 8305): one of each family in turn, IPv6 first, 250 ms apart or at once when
//! one fails. The first connection is used and the others are dropped, so that an address which leads nowhere costs a
//! quarter of a second and no call. An endpoint that policy or DNS names for itself is dialled alone: which of them is
//! called, and what becomes of one that fails, is for balancing and breakers to say.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_resilience::flight::Failure;
use tokio::net::{TcpSocket, TcpStream};

use crate::dependency::Dependency;
use crate::race::first_to_succeed;
use crate::runtime::process::Process;
use crate::runtime::resolver::Asker;
use crate::sockets::OpenSocket;
use crate::tls::{Negotiated, Offer, Origination};
use crate::transport::Transport;

/// What an address has before the next one is tried (RFC 8305, section 5, "Connection Attempt Delay").
const HEAD_START: Duration = Duration::from_millis(250);

/// What is said of a failure, as it may stand in an answer: printable, of one line and no longer than a line. Names out
/// of a certificate are in it, which are the peer's own words.
pub fn words(text: &str) -> Box<str> {
    let plain = |char: char| if matches!(char, ' '..='~') && !matches!(char, '"' | '\\') { char } else { '?' };
    text.chars().map(plain).take(LONGEST).collect()
}

/// The longest that is said of a failure.
const LONGEST: usize = 300;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialError {
    /// The dependency, or the way to it; and the same in words, for the log.
    Failed(Failure, Box<str>),
    /// The way leads back to this proxy.
    Loop,
}

/// Where an attempt goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// This address.
    Address(SocketAddr),
    /// Whatever this name stands for.
    Name(Arc<str>, u16),
}

/// TLS on top of the connection.
#[derive(Clone, Debug)]
pub struct Security {
    /// How.
    pub origination: Arc<Origination>,
    /// The host that the caller addressed, without its port. It counts where policy names no `serverName`.
    pub host: Box<str>,
    /// The protocols that may be spoken inside.
    pub offer: Offer,
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
///
/// # Errors
/// [`DialError`]: what the last address has failed with.
pub async fn dial(
    process: Arc<Process>,
    dependency: Arc<Dependency>,
    destination: Destination,
    socket: OpenSocket,
    security: Option<Security>,
) -> Result<Dialed, DialError> {
    let connected = match destination {
        Destination::Address(address) => connect(&process, address).await,
        Destination::Name(name, port) => connect_to_name(&process, &dependency, &name, port).await,
    };
    let (stream, address) = connected.inspect_err(|error| {
        tracing::debug!(dependency = &*dependency.name, ?error, "no connection");
    })?;
    let (transport, negotiated) = match security {
        None => (Transport::Plain(stream), Negotiated::Nothing),
        Some(security) => secure(&process, &dependency, stream, address, security).await?,
    };
    Ok(Dialed { transport, address, negotiated, socket })
}

async fn secure(
    process: &Process,
    dependency: &Dependency,
    stream: TcpStream,
    address: SocketAddr,
    Security { origination, host, offer }: Security,
) -> Result<(Transport, Negotiated), DialError> {
    // Most of what fails here is for a person to put right: it is told, but not with every call.
    let tell = |error: &dyn Display| {
        if origination.may_tell(process.clock.now()) {
            tracing::warn!(dependency = &*dependency.name, %address, %error, "no TLS");
        } else {
            tracing::debug!(dependency = &*dependency.name, %address, %error, "no TLS");
        }
    };
    let unfinished = Unfinished(&tell);
    let made = origination.handshake(stream, &host, offer).await;
    std::mem::forget(unfinished);
    made.map_err(|error| {
        tell(&error);
        DialError::Failed(Failure::Tls, words(&format!("{address}: {error}")))
    })
}

/// A handshake that is dropped was given up: a server of another protocol may wait for the rest of a request.
struct Unfinished<'a, F: Fn(&dyn Display)>(&'a F);

impl<F: Fn(&dyn Display)> Drop for Unfinished<'_, F> {
    fn drop(&mut self) {
        self.0(&"given up in the middle of the TLS handshake; is it the right port?");
    }
}

async fn connect_to_name(
    process: &Process,
    dependency: &Dependency,
    name: &str,
    port: u16,
) -> Result<(TcpStream, SocketAddr), DialError> {
    let asker = if dependency.is_listed() { Asker::Dependency } else { Asker::Unlisted };
    let addresses = process
        .resolver
        .resolve(name, port, asker)
        .await
        .map_err(|error| DialError::Failed(Failure::Dns, words(&format!("{name}: {error}"))))?;
    let ways = interleaved(addresses).into_iter().map(|address| connect(process, address));
    let raced = first_to_succeed(ways, HEAD_START).await;
    raced.map_err(|error| {
        error.unwrap_or_else(|| DialError::Failed(Failure::Dns, words(&format!("{name}: no address"))))
    })
}

/// The families in turn, IPv6 first, each in its order (RFC 8305, section 4).
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv6);
    let pairs = v6.len().min(v4.len());
    let rest = v6[pairs..].iter().chain(&v4[pairs..]);
    v6.iter().zip(&v4).flat_map(|(v6, v4)| [v6, v4]).chain(rest).copied().collect()
}

async fn connect(process: &Process, address: SocketAddr) -> Result<(TcpStream, SocketAddr), DialError> {
    if process.own.is_at(address) {
        return Err(DialError::Loop);
    }
    let failed = |error: io::Error| DialError::Failed(Failure::Connect, words(&format!("{address}: {error}")));
    let stream = open(address).await.map_err(failed)?;
    Ok((stream, address))
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_with_ipv6_first() {
        let [a, b, c]: [SocketAddr; 3] =
            ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"].map(|text| text.parse().unwrap());
        let [x, y]: [SocketAddr; 2] = ["[fd00::1]:80", "[fd00::2]:80"].map(|text| text.parse().unwrap());
        assert_eq!(interleaved(vec![a, b, c, x, y]), [x, a, y, b, c]);
        assert_eq!(interleaved(vec![x, y, a]), [x, a, y]);
        assert_eq!(interleaved(vec![a, b]), [a, b]);
        assert_eq!(interleaved(vec![]), []);
    }
}
