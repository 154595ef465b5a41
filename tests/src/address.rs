//! Local addresses that no other test and no kernel-chosen port can collide with.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

static NEXT_PORT: AtomicU16 = AtomicU16::new(9101);

/// The loopback address that belongs to this process alone: Linux answers on all of 127.0.0.0/8, so the process id
/// can pick one. For addresses that must be known before anyone listens, such as a policy's `listen`.
pub fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + (high & 63), middle, low)
}

/// A fresh address on [`own_loopback`]. Its port is below the range from which the kernel hands out ports, so no
/// server that bound port 0 has the same one.
pub fn reserve() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(own_loopback()), NEXT_PORT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_addresses_differ_and_can_be_bound() {
        let (one, two) = (reserve(), reserve());
        assert_ne!(one, two);
        std::net::TcpListener::bind(one).unwrap();
        std::net::TcpListener::bind(two).unwrap();
    }
}
