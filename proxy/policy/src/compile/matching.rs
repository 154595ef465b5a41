//! Which calls a route is for.

use crate::field::At;
use crate::matcher::{GrpcMatch, HeaderMatch, Matcher, PathMatch};
use crate::report::{Problem, Reader};
use crate::spec::{Match, PathSpec};

pub(super) fn matcher(reader: &mut Reader<'_>, written: &At<Match>) -> Option<Matcher> {
    let spec = &written.value;
    let path = match spec.path.written() {
        Some(path) => Some(path_match(reader, path)?),
        None => None,
    };
    let mut headers = Vec::new();
    for header in spec.headers.list() {
        let name = header.value.name.written()?.value.0.clone();
        headers.push(HeaderMatch { name, exact: header.value.exact.value().map(|text| text.0) });
    }
    Some(Matcher {
        methods: spec.methods.list().iter().map(|method| method.value.0.clone()).collect(),
        path,
        headers,
        host: spec.host.value(),
        grpc: grpc_match(reader, spec)?,
    })
}

fn path_match(reader: &mut Reader<'_>, written: &At<PathSpec>) -> Option<PathMatch> {
    match (written.value.exact.value(), written.value.prefix.value()) {
        (Some(exact), None) => Some(PathMatch::Exact(exact.0)),
        (None, Some(prefix)) => Some(PathMatch::Prefix(prefix.0)),
        (Some(_), Some(_)) => {
            let problem = Problem::new("a path is exact or a prefix");
            reader.error(written.node, problem.expected("`exact` or `prefix`, not both"));
            None
        }
        (None, None) => {
            let problem = Problem::new("no path is given");
            reader.consequence(written.node, written.node, problem.expected("`exact` or `prefix`"));
            None
        }
    }
}

/// `None`: something is wrong with it; `Some(None)`: any call is meant.
fn grpc_match(reader: &mut Reader<'_>, spec: &Match) -> Option<Option<GrpcMatch>> {
    let Some(At { node, value: grpc }) = spec.grpc.written() else {
        return Some(None);
    };
    if spec.path.written().is_some() {
        let problem = Problem::new("the path of a gRPC call is its service and method");
        reader.error(*node, problem.expected("`grpc` or `path`, not both"));
        return None;
    }
    let service = grpc.service.written()?.value.0.clone();
    Some(Some(GrpcMatch { service, method: grpc.method.value().map(|method| method.0) }))
}
