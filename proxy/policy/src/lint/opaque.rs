//! Blocks that cannot act on a connection that nobody looks into.

use crate::report::{Problem, Reader};
use crate::spec::DependencySpec;
use crate::value::Protocol;

pub(super) fn is_opaque(spec: &DependencySpec) -> bool {
    spec.target.written().is_some_and(|target| target.value.protocol.value() == Protocol::Tcp)
}

pub(super) fn check(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let timeouts = spec.timeouts.value().unwrap_or_default();
    let idle = [
        ("retry", spec.retry.written().map(|written| written.node)),
        ("routes", spec.routes.written().map(|written| written.node)),
        ("deadline", spec.deadline.written().map(|written| written.node)),
        ("timeouts.request", timeouts.request.written().map(|written| written.node)),
        ("timeouts.attempt", timeouts.attempt.written().map(|written| written.node)),
    ];
    for (name, node) in idle {
        let Some(node) = node else { continue };
        let problem = Problem::new(format!("`{name}` cannot act on TCP: nobody sees where a call begins or ends"));
        reader.warn(node, problem.expected("a `protocol` that has calls, or no such line"));
    }
}
