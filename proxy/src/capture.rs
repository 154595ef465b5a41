//! Room 1: who called, and where were they really going?

use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::{getsockopt, sockopt};
use tokio::net::TcpStream;

use crate::report::Direction;

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// `--inbound`: traffic to the workload.
    Inbound,
    /// `--outbound`: redirected traffic of the workload, and its forward proxy.
    Outbound,
    /// `target.listen` of a dependency: the address as bound.
    Listen(SocketAddr),
}

/// A captured connection's facts.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// What the listener that took it is for.
    pub purpose: Purpose,
    /// Who connected.
    pub peer: SocketAddr,
    /// Where the connection was going before a redirect brought it here; `None` when it was made to us.
    pub destination: Option<SocketAddr>,
}

impl Origin {
    /// Looks up where `stream` was going.
    pub fn of(stream: &TcpStream, purpose: Purpose, peer: SocketAddr) -> Self {
        let destination = match purpose {
            Purpose::Listen(_) => None,
            Purpose::Inbound | Purpose::Outbound => {
                let local = stream.local_addr().ok();
                original_destination(stream).filter(|original| Some(*original) != local)
            }
        };
        Self { purpose, peer: canonical(peer), destination }
    }

    /// Which way calls on this connection go.
    #[must_use]
    pub fn direction(&self) -> Direction {
        match self.purpose {
            Purpose::Inbound => Direction::Inbound,
            Purpose::Outbound | Purpose::Listen(_) => Direction::Outbound,
        }
    }
}

/// Where the connection was going before netfilter redirected it. A kernel without connection tracking, or a connection
/// that nobody redirected, has no answer or the local address.
fn original_destination(stream: &TcpStream) -> Option<SocketAddr> {
    // A v4 connection on a v6 socket does not occur: our v6 listeners are v6 only.
    if stream.local_addr().ok()?.is_ipv4() {
        let found = getsockopt(stream, sockopt::OriginalDst).ok()?;
        let address = IpAddr::from(u32::from_be(found.sin_addr.s_addr).to_be_bytes());
        return Some(SocketAddr::new(address, u16::from_be(found.sin_port)));
    }
    let found = getsockopt(stream, sockopt::Ip6tOriginalDst).ok()?;
    Some(SocketAddr::new(IpAddr::from(found.sin6_addr.s6_addr), u16::from_be(found.sin6_port)))
}

/// `::ffff:1.2.3.4` is `1.2.3.4`.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether connecting to `address` would lead back into one of our own listeners, whose ports are `own`.
///
/// A loopback, unspecified or interface address with a port we listen on is ours, whichever of them the listener is
/// bound to: what else could answer there is not worth a loop.
#[must_use]
pub fn leads_to_us(address: SocketAddr, own: &[u16]) -> bool {
    let address = canonical(address);
    own.contains(&address.port()) && is_this_machine(address.ip())
}

/// Whether `ip` is an address of this machine.
#[must_use]
pub fn is_this_machine(ip: IpAddr) -> bool {
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    // Asked of the kernel each time: only a destination with one of our ports comes this far, and addresses come and go.
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return false };
    interfaces.filter_map(|interface| interface.address).any(|address| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip()));
        v4.or(v6) == Some(ip)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_seen_through_every_spelling() {
        let own = [15001];
        for spelling in [
            "127.0.0.1:15001",
            "127.8.8.8:15001",
            "0.0.0.0:15001",
            "[::]:15001",
            "[::1]:15001",
            "[::ffff:127.0.0.1]:15001",
        ] {
            assert!(leads_to_us(spelling.parse().unwrap(), &own), "{spelling}");
        }
        for elsewhere in ["127.0.0.1:15002", "192.0.2.1:15001", "[2001:db8::1]:15001"] {
            assert!(!leads_to_us(elsewhere.parse().unwrap(), &own), "{elsewhere}");
        }
    }
}
