//! Routes that no call reaches, and clocks that no call of a route has.

use plimsoll_resilience::rules::Streaming;

use crate::field::At;
use crate::report::{Problem, Reader};
use crate::spec::{DependencySpec, Match, RouteSpec};

use super::is_on;

pub(super) fn check(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let routes = spec.routes.value().unwrap_or_default();
    unreached(reader, &routes);
    for route in &routes {
        request_of_streams(reader, spec, &route.value);
    }
}

fn unreached(reader: &mut Reader<'_>, routes: &[At<RouteSpec>]) {
    let everything = routes.iter().position(|route| takes_everything(&route.value));
    let Some(first) = everything.filter(|first| first + 1 < routes.len()) else {
        return;
    };
    for At { node, value } in &routes[first + 1..] {
        let at = value.name.written().map_or(*node, |name| name.node);
        let line = reader.tree.place(routes[first].node).line;
        let problem = Problem::new(format!("no call reaches this route: the one of line {line} takes every call"));
        reader.warn(at, problem.expected("the route for everything last"));
    }
}

fn request_of_streams(reader: &mut Reader<'_>, spec: &DependencySpec, route: &RouteSpec) {
    let timeouts = route.timeouts.value().filter(|timeouts| is_on(&timeouts.mode, spec));
    let Some(request) = timeouts.and_then(|timeouts| timeouts.request.node()) else {
        return;
    };
    if route.streaming.value() == Streaming::Always {
        let problem = Problem::new("this never runs out: the calls of this route are streams");
        reader.warn(request, problem.expected("`idle` and `streamMaxDuration`"));
    }
}

fn takes_everything(route: &RouteSpec) -> bool {
    route.matching.written().is_some_and(|matching| {
        let Match { methods, path, headers, host, grpc } = &matching.value;
        let all_paths = path.value().is_none_or(|path| path.prefix.value().is_some_and(|prefix| prefix.0 == "/"));
        let narrowed = [methods.is_written(), headers.is_written(), host.is_written(), grpc.is_written()];
        all_paths && narrowed == [false; 4]
    })
}
