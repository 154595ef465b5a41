//! Queues and limits that cannot act.

use std::time::Duration;

use crate::field::{At, Defaulted};
use crate::report::{Problem, Reader};
use crate::spec::DependencySpec;
use crate::value::{Count, Number, duration_text};

use super::{is_on, request};

pub(super) fn check(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let bulkhead = spec.bulkhead.value().unwrap_or_default();
    let timeouts = spec.timeouts.value().unwrap_or_default();
    let own = timeouts.request.value();
    let on = is_on(&bulkhead.mode, spec);
    if on {
        // `maxWaitDuration` is also how long a call waits for a connection.
        let waits_for_connection = bulkhead.max_connections.written().is_some();
        queue(reader, &bulkhead.max_queued, &bulkhead.max_wait, waits_for_connection);
        wait(reader, &bulkhead.max_wait, request(spec, own));
    }
    let outer = bulkhead.max_concurrent_calls.value().filter(|_| on);
    for route in spec.routes.value().unwrap_or_default() {
        let Some(inner) = route.value.bulkhead.value().filter(|inner| is_on(&inner.mode, spec)) else {
            continue;
        };
        let timeouts = route.value.timeouts.value().unwrap_or_default();
        queue(reader, &inner.max_queued, &inner.max_wait, false);
        wait(reader, &inner.max_wait, request(spec, timeouts.request.value().or(own)));
        nested(reader, inner.max_concurrent_calls.written(), outer);
    }
}

fn queue(reader: &mut Reader<'_>, queued: &Defaulted<Number>, wait: &Defaulted<Duration>, other_use: bool) {
    match (queued.value().0, wait.value()) {
        (0, wait_for) if !wait_for.is_zero() && !other_use => {
            let Some(written) = wait.written() else {
                return;
            };
            let problem = Problem::new("nobody waits: the queue has no places");
            reader.warn(written.node, problem.expected("`maxQueued` above 0"));
        }
        (places, Duration::ZERO) if places > 0 => {
            let Some(written) = queued.written() else {
                return;
            };
            let problem = Problem::new("nobody waits: `maxWaitDuration` is 0s");
            reader.warn(written.node, problem.expected("`maxWaitDuration` above 0s"));
        }
        _ => {}
    }
}

fn wait(reader: &mut Reader<'_>, wait: &Defaulted<Duration>, request: Option<Duration>) {
    let Some((written, request)) = wait.written().zip(request).filter(|(wait, request)| wait.value >= *request) else {
        return;
    };
    let message = format!(
        "a call that waits {} has no time left: `timeouts.request` is {}",
        duration_text(written.value),
        duration_text(request)
    );
    reader.warn(written.node, Problem::new(message).expected("a wait well below `timeouts.request`"));
}

fn nested(reader: &mut Reader<'_>, inner: Option<&At<Count>>, outer: Option<Count>) {
    let (Some(inner), Some(outer)) = (inner, outer) else {
        return;
    };
    if inner.value.0 >= outer.0 {
        let message = format!("this limit is never reached: the dependency's is {}", outer.0);
        reader.warn(inner.node, Problem::new(message).expected(format!("less than {}", outer.0)));
    }
}
