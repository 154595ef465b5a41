//! The document of one dependency.

use plimsoll_resilience::Mode;
use plimsoll_resilience::rules::Streaming;

use super::{Bulkhead, CircuitBreaker, Deadline, LoadBalancing, Retry, RouteBulkhead, Target, Timeouts};
use crate::field::{At, Several, block};
use crate::value::{
    ApiVersion, DependencyKind, GrpcMethod, GrpcService, HeaderName, HostPattern, Labels, Method, Name, PathText, Text,
};

block! {
    /// A service that this workload calls.
    pub(crate) struct DependencyDocument {
        /// The version of the format.
        "apiVersion" api_version: Required<ApiVersion> = "required",
        /// What the document is about.
        "kind" kind: Required<DependencyKind> = "required",
        /// Its name.
        "metadata" metadata: Required<Metadata> = "required",
        /// The policy.
        "spec" spec: Required<DependencySpec> = "required",
    }
}

block! {
    /// What a document is called.
    pub(crate) struct Metadata {
        /// Unique for its kind and namespace.
        "name" name: Required<Name> = "required",
        /// Whose sidecars may use it.
        "namespace" namespace: Defaulted<Name> = "default",
        /// Carried along, not read.
        "labels" labels: Optional<Labels> = "none",
        /// Carried along, not read.
        "annotations" annotations: Optional<Labels> = "none",
    }
}

block! {
    /// What a dependency may cost this workload.
    pub(crate) struct DependencySpec {
        /// Whose sidecars.
        "workloads" workloads: Optional<Several<Name>> = "all in the namespace",
        /// Whether its blocks act, only count, or rest; each block may differ.
        "mode" mode: Defaulted<Mode> = "Enforce",
        /// Which traffic is this dependency's, and where it goes.
        "target" target: Required<Target> = "required",
        /// Which endpoint takes the next call.
        "loadBalancing" load_balancing: Optional<LoadBalancing> = "as its fields",
        /// The clocks of a call.
        "timeouts" timeouts: Optional<Timeouts> = "as its fields",
        /// The deadline that callers send.
        "deadline" deadline: Optional<Deadline> = "as its fields",
        /// How much of this workload the dependency may tie up.
        "bulkhead" bulkhead: Optional<Bulkhead> = "none",
        /// When to stop calling, and when to ask again.
        "circuitBreaker" circuit_breaker: Optional<CircuitBreaker> = "none",
        /// Which failures are tried again.
        "retry" retry: Optional<Retry> = "none",
        /// Narrower rules, the first that matches; fields that are not written are as above.
        "routes" routes: Optional<Vec<At<RouteSpec>>> = "none",
    }
    later {
        "rateLimit", "concurrencyLimit", "outlierEjection", "healthCheck", "hedge", "fallbacks",
    }
}

block! {
    /// Narrower rules for some of the calls.
    pub(crate) struct RouteSpec {
        /// Unique in this policy.
        "name" name: Required<Name> = "required",
        /// Which calls.
        "match" matching: Required<Match> = "required",
        /// Replaces the clocks that it names.
        "timeouts" timeouts: Optional<Timeouts> = "the policy's",
        /// Replaces the fields that it names.
        "deadline" deadline: Optional<Deadline> = "the policy's",
        /// Replaces the fields that it names.
        "retry" retry: Optional<Retry> = "the policy's",
        /// A further limit inside the dependency's.
        "bulkhead" bulkhead: Optional<RouteBulkhead> = "none",
        /// Whether answers are streams.
        "streaming" streaming: Defaulted<Streaming> = "Auto",
    }
    later { "rateLimit", "concurrencyLimit", "hedge", "fallbacks" }
    elsewhere {
        "circuitBreaker" => "`spec.circuitBreaker` with `scope: Route`, which gives each route its own",
        "mode" => "`mode` in the blocks of the route",
    }
}

block! {
    /// All of what is written must hold.
    pub(crate) struct Match {
        /// One of these methods.
        "methods" methods: Optional<Several<Method>> = "any",
        /// The path, without query.
        "path" path: Optional<PathSpec> = "any",
        /// Every one of these header fields.
        "headers" headers: Optional<Several<HeaderSpec>> = "none",
        /// The host that was addressed.
        "host" host: Optional<HostPattern> = "any",
        /// The gRPC service that is called.
        "grpc" grpc: Optional<GrpcSpec> = "any",
    }
}

block! {
    /// A gRPC service, or one method of it: the path of the call says which.
    pub(crate) struct GrpcSpec {
        /// Its full name.
        "service" service: Required<GrpcService> = "required",
        /// This method and no other.
        "method" method: Optional<GrpcMethod> = "any",
    }
}

block! {
    /// One path, or all below one.
    pub(crate) struct PathSpec {
        /// This path and no other.
        "exact" exact: Optional<PathText> = "none",
        /// This path and all below it, by whole segments.
        "prefix" prefix: Optional<PathText> = "none",
    }
}

block! {
    /// A header field that must be there.
    pub(crate) struct HeaderSpec {
        /// The name of the field.
        "name" name: Required<HeaderName> = "required",
        /// Its value.
        "exact" exact: Optional<Text> = "any",
    }
}
