//! Where a dependency is, and how callers reach it.

use crate::field::{Several, block};
use crate::value::{AddressPattern, DnsName, Endpoint, HostPattern, Listen, Port, Positive, Protocol};

block! {
    /// Which traffic is this dependency's.
    pub(crate) struct Target {
        /// What callers address: authority, SNI or DNS name, port optional.
        "hosts" hosts: Optional<Several<HostPattern>> = "none",
        /// Destinations without a name.
        "addresses" addresses: Optional<Several<AddressPattern>> = "none",
        /// Also reachable on this local port.
        "listen" listen: Optional<Listen> = "none",
        /// What callers speak.
        "protocol" protocol: Defaulted<Protocol> = "Auto",
        /// Where the calls go.
        "endpoints" endpoints: Optional<Endpoints> = "where the caller was going",
    }
    later { "service", "upstreamProtocol" unless "Same", "tls" }
}

block! {
    /// Where the calls go: a list, or a name.
    pub(crate) struct Endpoints {
        /// These addresses.
        "static" fixed: Optional<Several<Endpoint>> = "none",
        /// The addresses of this name.
        "dns" dns: Optional<Dns> = "none",
    }
}

block! {
    /// A name whose A and AAAA records are the endpoints.
    pub(crate) struct Dns {
        /// The name.
        "name" name: Required<DnsName> = "required",
        /// The port at each address.
        "port" port: Required<Port> = "required",
        /// How often the name is asked for again.
        "refresh" refresh: Defaulted<Positive> = "30s",
    }
}
