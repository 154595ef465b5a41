//! A dependency and its routes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_resilience::rules::{RetryRules, Streaming};
use plimsoll_resilience::{Mode, Moded, ProtectionConfig, RouteProtection, Rules, bulkhead, token_bucket};

use super::breaker::{breaker, code_set, grpc_code_set, slow_threshold};
use super::matching::matcher;
use super::opaque::{fields_about_calls, refuse_limits_on_calls};
use super::retry::{budget, retry};
use super::target::target;
use super::{Limits, as_in_force, checked, identity, mode_of, refuse_empty_bulkhead, timing};
use crate::field::{At, Optional};
use crate::model::{ConnectionLimit, DependencyPolicy, Route};
use crate::report::{Problem, Reader};
use crate::spec::{
    Bulkhead, CircuitBreaker, Deadline, DependencyDocument, DependencySpec, RouteBulkhead, RouteSpec, Timeouts,
};
use crate::value::{Algorithm, Rate};

pub(crate) fn dependency(reader: &mut Reader<'_>, document: &DependencyDocument) -> Option<DependencyPolicy> {
    let spec = &document.spec.written()?.value;
    let mode = spec.mode.value();
    // Everything is checked before anything is missed.
    let target = spec.target.written().and_then(|written| target(reader, written));
    refuse_limits_on_calls(reader, spec);
    let limits = bulkhead(reader, &spec.bulkhead, mode);
    let breaker = breaker(reader, &spec.circuit_breaker, mode);
    let budget = budget(reader, &spec.retry);
    let base = Base { spec, mode, retry: retry(reader, spec.retry.written(), mode) };
    let (timeouts, deadline) = (spec.timeouts.value().unwrap_or_default(), spec.deadline.value().unwrap_or_default());
    let (rules, tunnel_idle) = base.rules(&timeouts, &deadline, base.retry, Streaming::Auto);
    let routes = base.routes(reader);
    let (id, origin) = identity(reader.tree, &document.metadata.written()?.value)?;
    let (routes, protected) = routes.into_iter().unzip();
    let load_balancing = spec.load_balancing.value().unwrap_or_default().algorithm.value();
    Some(DependencyPolicy {
        id,
        origin,
        mode,
        workloads: spec.workloads.list().iter().map(|name| name.value.0.clone()).collect(),
        target: target?,
        load_balancing,
        rules: Arc::new(rules),
        tunnel_idle,
        routes,
        protection: ProtectionConfig {
            bulkhead: limits.calls,
            connection_rate: limits.connection_rate,
            breaker,
            budget: budget?,
            least_request: load_balancing == Algorithm::LeastRequest,
            routes: protected,
        },
        connections: limits.connections,
        about_calls: fields_about_calls(spec).into_iter().map(|(_, field)| field).collect(),
        yaml: as_in_force(&with_whole_routes(document)),
    })
}

/// What routes inherit from.
struct Base<'a> {
    spec: &'a DependencySpec,
    mode: Mode,
    retry: Option<Moded<RetryRules>>,
}

impl Base<'_> {
    fn rules(
        &self,
        timeouts: &Timeouts,
        deadline: &Deadline,
        retry: Option<Moded<RetryRules>>,
        streaming: Streaming,
    ) -> (Rules, Duration) {
        let built_in = CircuitBreaker::default();
        let breaker = self.spec.circuit_breaker.written().map(|written| &written.value);
        let acting = breaker.filter(|breaker| mode_of(&breaker.mode, self.mode).is_on());
        let codes = breaker.unwrap_or(&built_in);
        let (clocks, tunnel_idle) = timing::timeouts(timeouts, self.mode);
        let rules = Rules {
            timeouts: clocks,
            deadline: timing::deadline(deadline, self.mode),
            retry,
            failure_codes: code_set(&codes.failure_codes.value()),
            failure_grpc_codes: grpc_code_set(&codes.failure_grpc_codes.value()),
            slow_call_threshold: acting.map(|breaker| slow_threshold(breaker, timeouts)),
            streaming,
        };
        (rules, tunnel_idle)
    }

    fn routes(&self, reader: &mut Reader<'_>) -> Vec<(Route, RouteProtection)> {
        let mut names = HashMap::new();
        let mut routes = Vec::new();
        for At { value: spec, .. } in self.spec.routes.value().unwrap_or_default() {
            if let Some(name) = spec.name.written()
                && let Some(first) = names.insert(name.value.0.clone(), name.node)
            {
                let line = reader.tree.place(first).line;
                let problem = Problem::new(format!("two routes are called `{}`", name.value.0));
                reader.error(name.node, problem.expected(format!("a name other than that of line {line}")));
            }
            routes.extend(self.route(reader, &spec));
        }
        routes
    }

    fn route(&self, reader: &mut Reader<'_>, spec: &RouteSpec) -> Option<(Route, RouteProtection)> {
        if let Some(budget) = spec.retry.written().and_then(|retry| retry.value.budget.written()) {
            let problem = Problem::new("a route has no retry budget of its own");
            reader.error(budget.node, problem.expected("`spec.retry.budget`: one for the dependency"));
        }
        let whole = with_inherited(spec, self.spec);
        let retry = match spec.retry.written() {
            Some(_) => retry(reader, whole.retry.written(), self.mode),
            None => self.retry,
        };
        let bulkhead = spec.bulkhead.written().and_then(|bulkhead| self.route_bulkhead(reader, bulkhead));
        let matcher = matcher(reader, spec.matching.written()?);
        let (timeouts, deadline) =
            (whole.timeouts.value().unwrap_or_default(), whole.deadline.value().unwrap_or_default());
        let (rules, tunnel_idle) = self.rules(&timeouts, &deadline, retry, spec.streaming.value());
        let name = spec.name.written()?.value.0.clone();
        let route = Route { name: name.clone(), matcher: matcher?, rules: Arc::new(rules), tunnel_idle };
        Some((route, RouteProtection { name, bulkhead }))
    }

    fn route_bulkhead(&self, reader: &mut Reader<'_>, written: &At<RouteBulkhead>) -> Option<Moded<bulkhead::Config>> {
        let At { node, value: spec } = written;
        let limit = spec.max_concurrent_calls.written()?;
        let config = bulkhead::Config::new(limit.value.0, spec.max_queued.value().0, spec.max_wait.value());
        Some(Moded { mode: mode_of(&spec.mode, self.mode), config: checked(reader, *node, config)? })
    }
}

/// A route with what it inherits: the fields of `timeouts`, `deadline` and `retry` that it does not write.
pub(crate) fn with_inherited(route: &RouteSpec, dependency: &DependencySpec) -> RouteSpec {
    let mut whole = route.clone();
    whole.timeouts.inherit(&dependency.timeouts);
    whole.deadline.inherit(&dependency.deadline);
    whole.retry.inherit(&dependency.retry);
    whole
}

/// As it is in force: routes with what they inherit, but for the budget, which is the dependency's alone.
fn with_whole_routes(document: &DependencyDocument) -> DependencyDocument {
    let mut whole = document.clone();
    let Some(spec) = whole.spec.written_mut() else {
        return whole;
    };
    let dependency = spec.clone();
    for route in spec.routes.written_mut().into_iter().flatten() {
        route.value = with_inherited(&route.value, &dependency);
        if let Some(retry) = route.value.retry.written_mut() {
            retry.budget = Optional::unset("");
        }
    }
    whole
}

fn bulkhead(reader: &mut Reader<'_>, written: &Optional<Bulkhead>, policy: Mode) -> Limits {
    let Some(At { node, value: spec }) = written.written() else {
        return Limits::default();
    };
    let mode = mode_of(&spec.mode, policy);
    let max_wait = spec.max_wait.value();
    let calls = spec.max_concurrent_calls.written();
    let connections = spec.max_connections.value().map(|max| ConnectionLimit { max: max.0, max_wait });
    let connection_rate = spec.connection_rate.value();
    if calls.is_none() && connections.is_none() && connection_rate.is_none() {
        refuse_empty_bulkhead(reader, *node, mode, "`maxConcurrentCalls`, `maxConnections`, or `connectionRate`");
    }
    let connection_rate = connection_rate
        .and_then(|Rate { count, interval }| checked(reader, *node, token_bucket::Config::smooth(count, interval)));
    let calls = calls.and_then(|calls| {
        let config = bulkhead::Config::new(calls.value.0, spec.max_queued.value().0, max_wait);
        checked(reader, *node, config)
    });
    Limits {
        calls: calls.map(|config| Moded { mode, config }),
        connections: connections.map(|config| Moded { mode, config }),
        connection_rate: connection_rate.map(|config| Moded { mode, config }),
    }
}
