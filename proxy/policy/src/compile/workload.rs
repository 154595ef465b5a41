//! The workload itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_resilience::{Mode, Moded, ProtectionConfig, Rules, bulkhead};

use super::timing::{inbound_deadline, inbound_timeouts};
use super::{Limits, as_in_force, checked, identity, mode_of, refuse_empty_bulkhead};
use crate::field::{At, Optional};
use crate::model::{ConnectionLimit, Drain, PortPolicy, WorkloadPolicy};
use crate::report::{Problem, Reader};
use crate::spec::{InboundBulkhead, WorkloadDocument, WorkloadSpec};

pub(crate) fn workload(reader: &mut Reader<'_>, document: &WorkloadDocument) -> Option<WorkloadPolicy> {
    let spec = &document.spec.written()?.value;
    let mode = spec.mode.value();
    let ports = ports(reader, spec);
    let limits = bulkhead(reader, &spec.bulkhead, mode);
    let (timeouts, tunnel_idle) = inbound_timeouts(&spec.timeouts.value().unwrap_or_default(), mode);
    let deadline = inbound_deadline(&spec.deadline.value().unwrap_or_default(), mode);
    let drain = spec.drain.value().unwrap_or_default();
    let (id, origin) = identity(reader.tree, &document.metadata.written()?.value)?;
    Some(WorkloadPolicy {
        id,
        origin,
        mode,
        workload: spec.workload.written()?.value.0.clone(),
        ports: ports?,
        rules: Arc::new(Rules { timeouts, deadline, ..Rules::default() }),
        tunnel_idle,
        protection: ProtectionConfig { bulkhead: limits.calls, ..ProtectionConfig::default() },
        connections: limits.connections,
        drain: Drain { delay: drain.delay.value(), grace: drain.grace.value() },
        yaml: as_in_force(document),
    })
}

fn ports(reader: &mut Reader<'_>, spec: &WorkloadSpec) -> Option<Vec<PortPolicy>> {
    let mut ports = Vec::new();
    let mut seen = HashSet::new();
    for At { value: spec, .. } in spec.ports.value().unwrap_or_default() {
        let port = spec.port.written()?;
        if !seen.insert(port.value.0) {
            let problem = Problem::new(format!("port {} is written twice", port.value.0));
            reader.error(port.node, problem.expected("each port once"));
        }
        ports.push(PortPolicy { port: port.value.0, protocol: spec.protocol.value() });
    }
    Some(ports)
}

fn bulkhead(reader: &mut Reader<'_>, written: &Optional<InboundBulkhead>, policy: Mode) -> Limits {
    let Some(At { node, value: spec }) = written.written() else {
        return Limits::default();
    };
    let mode = mode_of(&spec.mode, policy);
    if spec.max_concurrent_calls.written().is_none() && spec.max_connections.written().is_none() {
        refuse_empty_bulkhead(reader, *node, mode, "`maxConcurrentCalls`, or `maxConnections`");
    }
    let calls = spec.max_concurrent_calls.value().and_then(|calls| {
        // Nobody waits: a queue for callers is a block of its own.
        checked(reader, *node, bulkhead::Config::new(calls.0, 0, Duration::ZERO))
    });
    let connections = spec.max_connections.value();
    let connections = connections.map(|max| ConnectionLimit { max: max.0, max_wait: Duration::ZERO });
    Limits {
        calls: calls.map(|config| Moded { mode, config }),
        connections: connections.map(|config| Moded { mode, config }),
        connection_rate: None,
    }
}
