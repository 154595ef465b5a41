//! Listening sockets: one for each worker and address, bound together or not at all.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

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

/// Has the kernel drop every segment that would begin a connection, as if it had been lost on the way. Those that have
/// begun go on, so that a listener can be emptied and closed without resetting anybody.
///
/// # Errors
/// What the kernel says.
pub fn take_no_more(listener: &tokio::net::TcpListener) -> io::Result<()> {
    // A socket filter (classic BPF, see the kernel's networking/filter.rst) sees a segment from its TCP header on, and
    // says how many of its bytes are kept. The flags are byte 13; a SYN without anything else begins a connection.
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const AND: u16 = 0x54;
    const RETURN: u16 = 0x06;
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    SockRef::from(listener).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        // ECN sets two flags of its own in a SYN (RFC 3168 6.1.1).
        SockFilter::new(AND, 0, 0, !0xc0),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
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

    /// Who has begun to connect gets through, whoever begins now is not answered.
    #[test]
    fn a_listener_that_takes_no_more_still_has_those_it_has_taken() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let before = std::net::TcpStream::connect(address).unwrap();
            take_no_more(&listener).unwrap();
            let begins_now = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
            let begun = begins_now.connect(&address.into());
            assert_eq!(begun.unwrap_err().raw_os_error(), Some(libc::EINPROGRESS));
            let (_, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, before.local_addr().unwrap());
            let nobody = tokio::time::timeout(std::time::Duration::from_millis(20), listener.accept()).await;
            assert!(nobody.is_err(), "a connection that began later was taken");
        });
    }

    #[test]
    fn a_port_that_a_plimsoll_holds_already_is_in_use() {
        let first = bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        assert_eq!(first.sockets.len(), 2);
        let second = bind(first.address, 1);
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
