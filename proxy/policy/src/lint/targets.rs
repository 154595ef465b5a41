//! Targets that no traffic reaches, and endpoints that nobody answers for.

use std::net::IpAddr;

use crate::report::{Problem, Reader};
use crate::spec::{Endpoints, Target};
use crate::value::{HostName, HostPattern, Protocol};

use super::opaque::originates;

const HTTP: u16 = 80;

pub(super) fn check(reader: &mut Reader<'_>, target: &Target) {
    let endpoints = target.endpoints.written().map(|endpoints| &endpoints.value);
    nameless_connections(reader, target);
    certificate_of_whom(reader, target, endpoints);
    tls_to_the_port_of_http(reader, target, endpoints);
    if let Some(endpoints) = endpoints {
        srv_of_a_host(reader, endpoints);
    }
}

/// Who connects by address shows no name; the proxy knows the addresses of hosts with a port alone.
fn nameless_connections(reader: &mut Reader<'_>, target: &Target) {
    let reached = target.addresses.is_written() || target.listen.is_written();
    if target.protocol.value() != Protocol::Tcp || reached {
        return;
    }
    for host in target.hosts.list().iter().filter(|host| host.value.port.is_none()) {
        let HostName::Exact(name) = &host.value.name else { continue };
        let problem =
            Problem::new("a connection shows no name but in TLS or CONNECT, so most are not known to go here");
        reader.warn(host.node, problem.expected(format!("a port, as in {name}:5432: such hosts are resolved")));
    }
}

/// An address that callers dial is seldom in a certificate.
fn certificate_of_whom(reader: &mut Reader<'_>, target: &Target, endpoints: Option<&Endpoints>) {
    let Some(tls) = target.tls.written().filter(|tls| originates(&tls.value)) else {
        return;
    };
    let is_name = |host: &HostPattern| match &host.name {
        HostName::Exact(name) => name.parse::<IpAddr>().is_err(),
        HostName::Wildcard(_) => true,
    };
    let named = tls.value.server_name.is_written()
        || endpoints.is_some_and(|endpoints| endpoints.dns.is_written())
        || target.hosts.list().iter().any(|host| is_name(&host.value));
    if !named {
        let problem = Problem::new("nothing says which name the certificate of the server must be for");
        reader.warn(tls.node, problem.expected("`serverName`"));
    }
}

fn tls_to_the_port_of_http(reader: &mut Reader<'_>, target: &Target, endpoints: Option<&Endpoints>) {
    let originated = target.tls.written().is_some_and(|tls| originates(&tls.value));
    if !originated || endpoints.is_some() {
        return;
    }
    for host in target.hosts.list().iter().filter(|host| host.value.port == Some(HTTP)) {
        let problem =
            Problem::new("the proxy speaks TLS to where the caller was going, and this is the port of plain HTTP");
        reader.warn(
            host.node,
            problem.expected("`endpoints` with the port of https, or callers that say http://...:443"),
        );
    }
}

/// Consul and others answer for such names too.
fn srv_of_a_host(reader: &mut Reader<'_>, endpoints: &Endpoints) {
    let Some(dns) = endpoints.dns.written().filter(|dns| !dns.value.port.is_written()) else {
        return;
    };
    let Some(name) = dns.value.name.written().filter(|name| !name.value.is_for_srv()) else {
        return;
    };
    let problem = Problem::new(
        "without a `port` the SRV records of this name are asked for, and it does not look as if it had any",
    );
    reader.warn(name.node, problem.expected(format!("`port`, or a name such as _http._tcp.{}", name.value.0)));
}
