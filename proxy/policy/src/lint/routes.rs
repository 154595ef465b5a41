//! Routes that no call reaches.

use crate::field::At;
use crate::report::{Problem, Reader};
use crate::spec::{DependencySpec, Match, RouteSpec};

pub(super) fn check(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let routes = spec.routes.value().unwrap_or_default();
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

fn takes_everything(route: &RouteSpec) -> bool {
    route.matching.written().is_some_and(|matching| {
        let Match { methods, path, headers, host } = &matching.value;
        let all_paths = path.value().is_none_or(|path| path.prefix.value().is_some_and(|prefix| prefix.0 == "/"));
        all_paths && [methods.written().is_some(), headers.written().is_some(), host.written().is_some()] == [false; 3]
    })
}
