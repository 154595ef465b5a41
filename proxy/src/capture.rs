//! Room 1: who called, and where were they really going?

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
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

    /// Whether the caller is on this side of the trust boundary, and may be told names and numbers of policy.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.direction() == Direction::Outbound
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

/// What is our own: the ports that this process listens on, and the addresses of this machine.
#[derive(Debug, Default)]
pub struct Own {
    ports: ArcSwap<Vec<u16>>,
    addresses: ArcSwap<Vec<IpAddr>>,
}

impl Own {
    /// The ports from now on.
    pub fn set_ports(&self, ports: Vec<u16>) {
        self.ports.store(Arc::new(ports));
    }

    /// Asks the kernel for the addresses of this machine, which come and go. Without an answer the last ones stay.
    pub fn refresh_addresses(&self) {
        let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return };
        let addresses = interfaces.filter_map(|interface| interface.address).filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
        });
        self.addresses.store(Arc::new(addresses.collect()));
    }

    /// Whether `ip` is an address by which others reach this machine.
    #[must_use]
    pub fn is_address(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if ip.is_loopback() || ip.is_unspecified() {
            return false;
        }
        // An address that is not known may have been given to us a moment ago.
        self.addresses.load().contains(&ip) || {
            self.refresh_addresses();
            self.addresses.load().contains(&ip)
        }
    }

    /// Whether connecting to `address` would lead back into one of our own listeners.
    ///
    /// A loopback, unspecified or interface address with a port we listen on is ours, whichever of them the listener
    /// is bound to: what else could answer there is not worth a loop.
    #[must_use]
    pub fn is_at(&self, address: SocketAddr) -> bool {
        let address = canonical(address);
        let ip = address.ip();
        self.ports.load().contains(&address.port())
            && (ip.is_loopback() || ip.is_unspecified() || self.addresses.load().contains(&ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_seen_through_every_spelling() {
        let own = Own::default();
        own.set_ports(vec![15001]);
        own.addresses.store(Arc::new(vec!["192.0.2.7".parse().unwrap()]));
        for spelling in [
            "127.0.0.1:15001",
            "127.8.8.8:15001",
            "0.0.0.0:15001",
            "[::]:15001",
            "[::1]:15001",
            "[::ffff:127.0.0.1]:15001",
            "192.0.2.7:15001",
        ] {
            assert!(own.is_at(spelling.parse().unwrap()), "{spelling}");
        }
        for elsewhere in ["127.0.0.1:15002", "192.0.2.1:15001", "[2001:db8::1]:15001"] {
            assert!(!own.is_at(elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }

    /// What a redirect catches on its way through this machine is not ours to carry on.
    #[test]
    fn only_addresses_by_which_others_reach_this_machine_are_ours() {
        let own = Own::default();
        own.addresses.store(Arc::new(vec!["192.0.2.7".parse().unwrap()]));
        assert!(own.is_address("192.0.2.7".parse().unwrap()));
        assert!(own.is_address("::ffff:192.0.2.7".parse().unwrap()));
        for elsewhere in ["127.0.0.1", "127.0.0.9", "::1", "0.0.0.0", "::", "198.51.100.1", "2001:db8::1"] {
            assert!(!own.is_address(elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }
}
