//! Where a dependency is, and how callers reach it.

use crate::field::{Several, block};
use crate::value::{
    AddressPattern, Algorithm, DnsName, Endpoint, HostPattern, Listen, Port, Positive, Protocol, SecretFile,
    ServerName, TlsMode, UpstreamProtocol,
};

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
        /// What is spoken to the endpoints.
        "upstreamProtocol" upstream_protocol: Defaulted<UpstreamProtocol> = "Same",
        /// Where the calls go.
        "endpoints" endpoints: Optional<Endpoints> = "where the caller was going",
        /// TLS to the endpoints, for callers that speak without.
        "tls" tls: Optional<Tls> = "none",
    }
    later { "service" }
}

block! {
    /// Where the calls go: a list, or a name.
    pub(crate) struct Endpoints {
        /// These addresses.
        "static" fixed: Optional<Several<Endpoint>> = "none",
        /// The addresses, or the SRV records, of this name.
        "dns" dns: Optional<Dns> = "none",
    }
}

block! {
    /// A name whose records are the endpoints.
    pub(crate) struct Dns {
        /// The name.
        "name" name: Required<DnsName> = "required",
        /// The port at each address of its A and AAAA records.
        "port" port: Optional<Port> = "from the SRV records of the name",
        /// How often the name is asked for again.
        "refresh" refresh: Optional<Positive> = "as the TTLs of the records say",
    }
}

block! {
    /// TLS to the endpoints. Names of files are below --secrets-dir; a file named on the command line may also say
    /// where they are.
    pub(crate) struct Tls {
        /// Whether the proxy speaks TLS for its callers.
        "mode" mode: Required<TlsMode> = "required",
        /// The name that is asked for, and that the certificate must be for.
        "serverName" server_name: Optional<ServerName> = "the host that was addressed",
        /// Certificates that are trusted, and no others.
        "caFile" ca_file: Optional<SecretFile> = "those that the system trusts",
        /// Our own certificate, with its chain, for servers that ask for one.
        "certFile" cert_file: Optional<SecretFile> = "none",
        /// The key of `certFile`.
        "keyFile" key_file: Optional<SecretFile> = "none",
    }
}

block! {
    /// Which endpoint takes the next call.
    pub(crate) struct LoadBalancing {
        /// How it is chosen.
        "algorithm" algorithm: Defaulted<Algorithm> = "RoundRobin",
    }
    later { "hashOn", "slowStart" unless "0s" }
}
