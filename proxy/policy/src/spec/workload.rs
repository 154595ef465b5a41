//! The document of this workload.

use std::time::Duration;

use plimsoll_resilience::Mode;

use super::dependency::Metadata;
use super::{InboundBulkhead, InboundDeadline, InboundTimeouts};
use crate::field::{At, block};
use crate::value::{ApiVersion, Name, Port, Protocol, WorkloadKind};

block! {
    /// The workload itself, and what its callers may cost it.
    pub(crate) struct WorkloadDocument {
        /// The version of the format.
        "apiVersion" api_version: Required<ApiVersion> = "required",
        /// What the document is about.
        "kind" kind: Required<WorkloadKind> = "required",
        /// Its name.
        "metadata" metadata: Required<Metadata> = "required",
        /// The policy.
        "spec" spec: Required<WorkloadSpec> = "required",
    }
}

block! {
    /// What callers may cost this workload.
    pub(crate) struct WorkloadSpec {
        /// Whose sidecar.
        "workload" workload: Required<Name> = "required",
        /// Whether its blocks act, only count, or rest; each block may differ.
        "mode" mode: Defaulted<Mode> = "Enforce",
        /// What is spoken at which port.
        "ports" ports: Optional<Vec<At<PortSpec>>> = "Auto at every port",
        /// The clocks of a call.
        "timeouts" timeouts: Optional<InboundTimeouts> = "as its fields",
        /// How much of this workload its callers may tie up.
        "bulkhead" bulkhead: Optional<InboundBulkhead> = "none",
        /// The deadline that callers send.
        "deadline" deadline: Optional<InboundDeadline> = "as its fields",
        /// How the proxy leaves.
        "drain" drain: Optional<Drain> = "as its fields",
    }
    later { "trust", "concurrencyLimit", "queue", "priorities", "rateLimit", "fallbacks" }
}

block! {
    /// A port of this workload.
    pub(crate) struct PortSpec {
        /// The port.
        "port" port: Required<Port> = "required",
        /// What callers speak there.
        "protocol" protocol: Defaulted<Protocol> = "Auto",
    }
}

block! {
    /// How the proxy leaves.
    pub(crate) struct Drain {
        /// Still serving, already not ready.
        "delay" delay: Defaulted<Duration> = "0s",
        /// How long calls in flight may take to end.
        "grace" grace: Defaulted<Duration> = "25s",
    }
}
