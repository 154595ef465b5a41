//! gRPC calls are POST: that decides what a route can match, and what may be repeated.

use plimsoll_resilience::rules::Methods;

use crate::field::At;
use crate::report::{Problem, Reader};
use crate::spec::{DependencySpec, Match, Retry, RouteSpec};
use crate::value::Protocol;

use super::{is_on, protocol};

pub(super) fn check(reader: &mut Reader<'_>, spec: &DependencySpec) {
    let routes = spec.routes.value().unwrap_or_default();
    for route in &routes {
        if let Some(matching) = route.value.matching.written() {
            without_post(reader, &matching.value);
        }
    }
    let only_grpc = protocol(spec) == Protocol::Grpc;
    let own = spec.retry.written().filter(|_| only_grpc);
    let of_routes = routes.iter().filter(|route| only_grpc || is_for_grpc(&route.value));
    for retry in own.into_iter().chain(of_routes.filter_map(|route| route.value.retry.written())) {
        codes_of_nothing(reader, spec, &retry.value);
    }
    match spec.retry.written() {
        // Routes inherit it, and those whose calls may be repeated say so.
        Some(retry) if only_grpc && !routes.iter().any(|route| chooses_methods(&route.value)) => {
            never_repeated(reader, spec, retry);
        }
        Some(_) => {}
        None => {
            let grpc = |route: &&At<RouteSpec>| only_grpc || is_for_grpc(&route.value);
            for route in routes.iter().filter(grpc).filter_map(|route| route.value.retry.written()) {
                never_repeated(reader, spec, route);
            }
        }
    }
}

fn is_for_grpc(route: &RouteSpec) -> bool {
    route.matching.written().is_some_and(|matching| matching.value.grpc.is_written())
}

fn chooses_methods(route: &RouteSpec) -> bool {
    route.retry.written().is_some_and(|retry| retry.value.methods.written().is_some())
}

fn without_post(reader: &mut Reader<'_>, matching: &Match) {
    let (true, Some(methods)) = (matching.grpc.is_written(), matching.methods.written()) else {
        return;
    };
    if methods.value.0.iter().all(|method| method.value.0 != "POST") {
        let problem = Problem::new("no call reaches this route: gRPC calls are POST");
        reader.warn(methods.node, problem.expected("`grpc` alone"));
    }
}

/// Who writes codes wants them to act.
fn codes_of_nothing(reader: &mut Reader<'_>, spec: &DependencySpec, retry: &Retry) {
    let (Some(methods), Some(codes)) = (retry.methods.written(), retry.grpc_codes.written()) else { return };
    if !is_on(&retry.mode, spec) || methods.value == Methods::Any || retry.grpc_codes.value().is_empty() {
        return;
    }
    let problem = Problem::new(
        "gRPC calls are POST, which these `methods` leave out: of calls that were sent, none is repeated for its code but \
         with an `Idempotency-Key`",
    );
    reader.warn(codes.node, problem.expected("`methods: Any` where a call may run twice"));
}

/// Only for who did not choose: `methods: Idempotent` may be meant.
fn never_repeated(reader: &mut Reader<'_>, spec: &DependencySpec, written: &At<Retry>) {
    let retry = &written.value;
    if !is_on(&retry.mode, spec) || retry.methods.written().is_some() || retry.grpc_codes.value().is_empty() {
        return;
    }
    let problem = Problem::new("gRPC calls are POST, so none that was sent is repeated: nobody said that it may be");
    reader.warn(written.node, problem.expected("`methods: Any` where a call may run twice, or `grpcCodes: []`"));
}
