//! Which traffic is a dependency's, and where it goes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::field::At;
use crate::model::{Endpoints, Target};
use crate::report::{Problem, Reader};
use crate::spec;
use crate::tree::NodeId;
use crate::value::{HostName, HostPattern};

/// How often the one host of a `listen`ed dependency is resolved again.
const BUILT_IN_REFRESH: Duration = Duration::from_secs(30);

pub(super) fn target(reader: &mut Reader<'_>, written: &At<spec::Target>) -> Option<Target> {
    let At { node, value: spec } = written;
    let hosts = values(spec.hosts.list());
    let addresses = values(spec.addresses.list());
    let listen = spec.listen.value().map(|listen| listen.0);
    if hosts.is_empty() && addresses.is_empty() && listen.is_none() {
        let problem = Problem::new("no traffic is this dependency's");
        reader.consequence(*node, *node, problem.expected("at least one of `hosts`, `addresses` and `listen`"));
        return None;
    }
    let endpoints = match spec.endpoints.written() {
        Some(endpoints) => endpoints_written(reader, endpoints)?,
        None => endpoints_left_out(reader, *node, spec, &hosts)?,
    };
    Some(Target { hosts, addresses, listen, protocol: spec.protocol.value(), endpoints })
}

fn values<T: Clone>(list: &[At<T>]) -> Vec<T> {
    list.iter().map(|item| item.value.clone()).collect()
}

fn endpoints_written(reader: &mut Reader<'_>, written: &At<spec::Endpoints>) -> Option<Endpoints> {
    let At { node, value: spec } = written;
    match (spec.fixed.written(), spec.dns.value()) {
        (Some(_), None) => Some(Endpoints::Static(spec.fixed.list().iter().map(|endpoint| endpoint.value.0).collect())),
        (None, Some(dns)) => Some(Endpoints::Dns {
            name: dns.name.written()?.value.0.clone(),
            port: dns.port.written()?.value.0,
            refresh: dns.refresh.value().0,
        }),
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
            Err(_) => Endpoints::Dns { name: name.clone(), port: *port, refresh: BUILT_IN_REFRESH },
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
