//! Policy as it is written: every block and field, declared once. `compile` makes the model of it.

mod dependency;
mod limits;
mod retry;
mod target;
mod timing;
mod workload;

pub(crate) use dependency::{DependencyDocument, DependencySpec, Match, Metadata, PathSpec, RouteSpec};
pub(crate) use limits::{Bulkhead, CircuitBreaker, InboundBulkhead, RouteBulkhead};
pub(crate) use retry::{Backoff, Budget, Retry};
pub(crate) use target::{Dns, Endpoints, LoadBalancing, Target, Tls};
pub(crate) use timing::{Deadline, InboundDeadline, InboundTimeouts, Timeouts};
pub(crate) use workload::{WorkloadDocument, WorkloadSpec};
