//! Listening sockets: one for each worker and address, bound together or not at all.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel may hold for us until they are accepted; it caps this at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The sockets of one address, one for each worker.
#[derive(Debug)]
pub struct Bound {
    /// The address as bound: with the port that was given where port 0 was asked for.
    pub address: SocketAddr,
    /// One socket for each worker.
    pub sockets: Vec<TcpListener>,
}

/// Binds `address` once for each of `workers`.
///
/// # Errors
/// What the kernel says; `AddrInUse` also when the port is held by another process of ours, which `SO_REUSEPORT` alone
/// would let us share in silence.
pub fn bind(address: SocketAddr, workers: usize) -> io::Result<Bound> {
    if address.port() != 0 {
        drop(open(address, false)?);
    }
    let mut sockets = vec![open(address, true)?];
    let address = sockets[0].local_addr()?;
    while sockets.len() < workers {
        sockets.push(open(address, true)?);
    }
    Ok(Bound { address, sockets })
}

/// The same port on the other family's counterpart of a loopback or unspecified address: redirected IPv6 traffic
/// arrives at `[::1]`. `None` for an address that has no counterpart.
#[must_use]
pub fn counterpart(address: SocketAddr) -> Option<SocketAddr> {
    use std::net::{Ipv4Addr, Ipv6Addr};
    let other: IpAddr = match address.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    Some(SocketAddr::new(other, address.port()))
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    if shared {
        socket.listen(BACKLOG)?;
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_a_plimsoll_holds_already_is_in_use() {
        let first = bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        assert_eq!(first.sockets.len(), 2);
        let second = bind(first.address, 1);
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
