//! Which traffic is a dependency's, and where it goes.

use std::net::{IpAddr, SocketAddr};

use super::tls::tls;
use crate::field::At;
use crate::model::{Endpoints, Target};
use crate::report::{Problem, Reader};
use crate::spec;
use crate::tree::NodeId;
use crate::value::{HostName, HostPattern, Protocol, UpstreamProtocol};

pub(super) fn target(reader: &mut Reader<'_>, written: &At<spec::Target>) -> Option<Target> {
    let At { node, value: spec } = written;
    let hosts = values(spec.hosts.list());
    let addresses = values(spec.addresses.list());
    let listen = spec.listen.value().map(|listen| listen.0);
    let upstream_protocol = upstream_protocol(reader, *node, spec);
    let tls = tls(reader, &spec.tls);
    if hosts.is_empty() && addresses.is_empty() && listen.is_none() {
        let problem = Problem::new("no traffic is this dependency's");
        reader.consequence(*node, *node, problem.expected("at least one of `hosts`, `addresses` and `listen`"));
        return None;
    }
    let endpoints = match spec.endpoints.written() {
        Some(endpoints) => endpoints_written(reader, endpoints)?,
        None => endpoints_left_out(reader, *node, spec, &hosts)?,
    };
    let protocol = spec.protocol.value();
    Some(Target { hosts, addresses, listen, protocol, upstream_protocol: upstream_protocol?, endpoints, tls: tls? })
}

fn values<T: Clone>(list: &[At<T>]) -> Vec<T> {
    list.iter().map(|item| item.value.clone()).collect()
}

fn upstream_protocol(reader: &mut Reader<'_>, target: NodeId, spec: &spec::Target) -> Option<UpstreamProtocol> {
    let upstream = spec.upstream_protocol.value();
    let Some(written) = spec.upstream_protocol.written() else {
        return Some(upstream);
    };
    let problem = match (spec.protocol.value(), upstream) {
        (Protocol::Tcp, UpstreamProtocol::Http1 | UpstreamProtocol::Http2) => {
            Problem::new("bytes that nobody reads cannot be sent in another protocol")
                .expected("`Same`, or a `protocol` other than TCP")
        }
        (Protocol::Grpc, UpstreamProtocol::Http1) => {
            Problem::new("gRPC needs HTTP/2 all the way").expected("`Same` or `HTTP2`")
        }
        _ => return Some(upstream),
    };
    reader.consequence(target, written.node, problem);
    None
}

fn endpoints_written(reader: &mut Reader<'_>, written: &At<spec::Endpoints>) -> Option<Endpoints> {
    let At { node, value: spec } = written;
    match (spec.fixed.written(), spec.dns.written()) {
        (Some(_), None) => Some(Endpoints::Static(spec.fixed.list().iter().map(|endpoint| endpoint.value.0).collect())),
        (None, Some(dns)) => dns_endpoints(reader, dns),
        (Some(_), Some(_)) => {
            reader.error(
                *node,
                Problem::new("endpoints come from a list or from DNS").expected("`static` or `dns`, not both"),
            );
            None
        }
        (None, None) => {
            let problem = Problem::new("no endpoints are given");
            reader.consequence(*node, *node, problem.expected("`static` or `dns`"));
            None
        }
    }
}

fn dns_endpoints(reader: &mut Reader<'_>, written: &At<spec::Dns>) -> Option<Endpoints> {
    let spec = &written.value;
    let name = &spec.name.written()?.value;
    if let Some(port) = spec.port.written().filter(|_| name.is_for_srv()) {
        let problem = Problem::new("the SRV records of this name have ports of their own");
        reader.error(port.node, problem.expected("no such line, or a name that has addresses"));
        return None;
    }
    let (port, refresh) = (spec.port.value().map(|port| port.0), spec.refresh.value().map(|refresh| refresh.0));
    Some(Endpoints::Dns { name: name.0.clone(), port, refresh })
}

/// Calls go where the caller was going. Who connects to the local port was going nowhere else, so there the one host
/// that is named is meant.
fn endpoints_left_out(
    reader: &mut Reader<'_>,
    target: NodeId,
    spec: &spec::Target,
    hosts: &[HostPattern],
) -> Option<Endpoints> {
    let Some(listen) = spec.listen.written() else {
        return Some(Endpoints::AsAddressed);
    };
    if let [HostPattern { name: HostName::Exact(name), port: Some(port) }] = hosts {
        return Some(match name.parse::<IpAddr>() {
            Ok(address) => Endpoints::Static(vec![SocketAddr::new(address, *port)]),
            Err(_) => Endpoints::Dns { name: name.clone(), port: Some(*port), refresh: None },
        });
    }
    let problem = Problem::new("nothing says where the calls that come in at this port go");
    reader.consequence(
        target,
        listen.node,
        problem.expected("`endpoints`, or one entry in `hosts` with a name and a port"),
    );
    None
}
