//! Blocks that need calls, where the proxy sees none: bytes that are passed on unread, and `https://` that the
//! application speaks itself.

use crate::compile::fields_about_calls;
use crate::report::{Problem, Reader};
use crate::spec::{DependencySpec, Target};
use crate::tree::NodeId;
use crate::value::{Protocol, TlsMode};

use super::is_on;

const HTTPS: u16 = 443;

pub(super) fn check(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let Some(target) = spec.target.written().map(|target| &target.value) else {
        return;
    };
    let idle = fields_about_calls(spec);
    if target.protocol.value() == Protocol::Tcp {
        for (node, field) in idle {
            let problem = Problem::new(format!("`{field}` cannot act with protocol TCP: there are no calls"));
            reader.warn(node, problem.expected("no such line, or a `protocol` that has calls"));
        }
        return;
    }
    if !idle.is_empty() {
        https_unopened(reader, target, &idle);
    }
    rate_of_shared_connections(reader, spec, target);
}

/// The rate holds connections that are carried unread; those that calls are made on are the proxy's own.
fn rate_of_shared_connections(reader: &mut Reader<'_>, spec: &DependencySpec, target: &Target) {
    let Some(bulkhead) = spec.bulkhead.written().map(|bulkhead| &bulkhead.value) else { return };
    let Some(rate) = bulkhead.connection_rate.node() else { return };
    let protocol = target.protocol.value();
    if protocol == Protocol::Auto || !is_on(&bulkhead.mode, spec) {
        return;
    }
    let problem = Problem::new(format!(
        "`connectionRate` cannot act with protocol {}: it holds connections that are passed on unread, and calls share \
         those of the proxy",
        protocol.as_str()
    ));
    reader.warn(rate, problem.expected("`maxConnections` for those, `maxConcurrentCalls` for the calls"));
}

/// Whose connections are not opened is told once, with all that does not act on them.
fn https_unopened(reader: &mut Reader<'_>, target: &Target, idle: &[(NodeId, &'static str)]) {
    let originated = target.tls.written().is_some_and(|tls| originates(&tls.value));
    let host = target.hosts.list().iter().find(|host| host.value.port == Some(HTTPS));
    let Some(host) = host.filter(|_| !originated) else {
        return;
    };
    let fields: Vec<_> = idle.iter().map(|(_, field)| format!("`{field}`")).collect();
    let message = format!(
        "where the application speaks https:// itself the proxy sees connections and not the calls in them, and on \
         those that are redirected here these cannot act: {} (CONNECT, of HTTPS_PROXY, is one call for each tunnel)",
        fields.join(", ")
    );
    let expected = "callers that say http:// (to this port, or to a `listen`), and `tls: {mode: Originate}`";
    reader.warn(host.node, Problem::new(message).expected(expected));
}

pub(super) fn originates(tls: &crate::spec::Tls) -> bool {
    tls.mode.written().is_some_and(|mode| mode.value == TlsMode::Originate)
}
