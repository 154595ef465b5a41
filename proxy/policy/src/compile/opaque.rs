//! What is wrong where bytes are passed on unread. What merely has no effect there is a warning (`lint`).

use crate::report::{Problem, Reader};
use crate::spec::DependencySpec;
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
