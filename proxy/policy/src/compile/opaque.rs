//! What policy cannot do where bytes are passed on unread.

use plimsoll_resilience::Mode;

use super::mode_of;
use crate::field::{At, Optional, Value};
use crate::report::{Problem, Reader};
use crate::spec::DependencySpec;
use crate::tree::NodeId;
use crate::value::Protocol;

/// A limit that is written and holds nothing back would be believed in, so it is refused: there are no calls to count.
pub(super) fn refuse_limits_on_calls(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let protocol = spec.target.written().map(|target| target.value.protocol.value());
    if protocol != Some(Protocol::Tcp) {
        return;
    }
    let own = spec.bulkhead.written().and_then(|bulkhead| bulkhead.value.max_concurrent_calls.written());
    let routes = spec.routes.written().into_iter().flat_map(|routes| &routes.value);
    let limits = routes.filter_map(|route| route.value.bulkhead.written()?.value.max_concurrent_calls.written());
    for limit in own.into_iter().chain(limits) {
        let problem = Problem::new("there are no calls to count with protocol TCP");
        reader.error(limit.node, problem.expected("`maxConnections`, or a `protocol` that has calls"));
    }
}

/// What was asked for, is not switched off, and needs to know where a call begins and ends.
pub(crate) fn fields_about_calls(spec: &DependencySpec) -> Vec<(NodeId, &'static str)> {
    let policy = spec.mode.value();
    let timeouts = acting(&spec.timeouts, policy, |block| &block.mode);
    let bulkhead = acting(&spec.bulkhead, policy, |block| &block.mode);
    let breaker = acting(&spec.circuit_breaker, policy, |block| &block.mode);
    let fields = [
        (timeouts.and_then(|block| block.value.request.node()), "timeouts.request"),
        (timeouts.and_then(|block| block.value.attempt.node()), "timeouts.attempt"),
        (timeouts.and_then(|block| block.value.stream_max.chosen()), "timeouts.streamMaxDuration"),
        (acting(&spec.deadline, policy, |block| &block.mode).map(|block| block.node), "deadline"),
        (bulkhead.and_then(|block| block.value.max_concurrent_calls.node()), "bulkhead.maxConcurrentCalls"),
        (bulkhead.and_then(|block| block.value.max_queued.chosen()), "bulkhead.maxQueued"),
        (breaker.and_then(|block| block.value.failure_codes.chosen()), "circuitBreaker.failureCodes"),
        (breaker.and_then(|block| block.value.failure_grpc_codes.chosen()), "circuitBreaker.failureGrpcCodes"),
        (acting(&spec.retry, policy, |block| &block.mode).map(|block| block.node), "retry"),
        (spec.routes.written().filter(|routes| !routes.value.is_empty()).map(|routes| routes.node), "routes"),
    ];
    fields.into_iter().filter_map(|(node, field)| Some((node?, field))).collect()
}

fn acting<T: Value>(block: &Optional<T>, policy: Mode, mode: impl Fn(&T) -> &Optional<Mode>) -> Option<&At<T>> {
    block.written().filter(|block| mode_of(mode(&block.value), policy).is_on())
}
