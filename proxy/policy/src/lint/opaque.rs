//! Blocks that need calls, where the proxy sees none: bytes that are passed on unread, and `https://` that the
//! application speaks itself.

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

/// What is written, is not switched off, and needs to know where a call begins and ends.
fn fields_about_calls(spec: &DependencySpec) -> Vec<(NodeId, &'static str)> {
    let mut fields = Vec::new();
    let mut add = |node: Option<NodeId>, field| fields.extend(node.map(|node| (node, field)));
    if let Some(timeouts) = spec.timeouts.written().map(|block| &block.value).filter(|block| is_on(&block.mode, spec)) {
        add(timeouts.request.node(), "timeouts.request");
        add(timeouts.attempt.node(), "timeouts.attempt");
        add(timeouts.stream_max.node(), "timeouts.streamMaxDuration");
    }
    add(spec.deadline.written().filter(|block| is_on(&block.value.mode, spec)).map(|block| block.node), "deadline");
    if let Some(bulkhead) = spec.bulkhead.written().map(|block| &block.value).filter(|block| is_on(&block.mode, spec)) {
        add(bulkhead.max_concurrent_calls.node(), "bulkhead.maxConcurrentCalls");
        add(bulkhead.max_queued.node(), "bulkhead.maxQueued");
    }
    if let Some(breaker) = super::breaker(spec) {
        add(breaker.failure_codes.node(), "circuitBreaker.failureCodes");
        add(breaker.failure_grpc_codes.node(), "circuitBreaker.failureGrpcCodes");
    }
    add(spec.retry.written().filter(|block| is_on(&block.value.mode, spec)).map(|block| block.node), "retry");
    add(spec.routes.written().filter(|routes| !routes.value.is_empty()).map(|routes| routes.node), "routes");
    fields
}
