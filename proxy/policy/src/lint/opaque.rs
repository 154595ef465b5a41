//! Blocks that need calls, where the proxy sees none: bytes that are passed on unread, and `https://` that the
//! application speaks itself.

use crate::compile::fields_about_calls;
use crate::report::{Problem, Reader};
use crate::spec::{DependencySpec, Target};
use crate::tree::NodeId;
use crate::value::{Protocol, TlsMode};

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
    } else if !idle.is_empty() {
        https_unopened(reader, target, &idle);
    }
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
        "where the application speaks https:// itself the proxy sees connections and no calls, and these cannot act: {}",
        fields.join(", ")
    );
    let expected = "callers that say http:// (to this port, or to a `listen`), and `tls: {mode: Originate}`";
    reader.warn(host.node, Problem::new(message).expected(expected));
}

pub(super) fn originates(tls: &crate::spec::Tls) -> bool {
    tls.mode.written().is_some_and(|mode| mode.value == TlsMode::Originate)
}
