//! What no single document can get wrong: two policies of one name, or for one destination.

use std::collections::HashMap;
use std::collections::HashSet;
use std::hash::Hash;

use crate::document::Documents;
use crate::report::{Problem, Reader};
use crate::spec::{DependencySpec, Metadata};
use crate::tree::NodeId;

pub(crate) fn check(reader: &mut Reader<'_>, documents: &Documents) {
    let dependencies = documents
        .dependencies
        .iter()
        .map(|one| one.metadata.written());
    names(
        reader,
        "DependencyPolicy",
        dependencies.flatten().map(|metadata| &metadata.value),
    );
    let workloads = documents.workloads.iter().map(|one| one.metadata.written());
    names(
        reader,
        "WorkloadPolicy",
        workloads.flatten().map(|metadata| &metadata.value),
    );
    destinations(reader, documents);
    served(reader, documents);
}

fn names<'a>(reader: &mut Reader<'_>, kind: &str, metadata: impl Iterator<Item = &'a Metadata>) {
    let mut seen = HashMap::new();
    for metadata in metadata {
        let Some(name) = metadata.name.written() else {
            continue;
        };
        let namespace = metadata.namespace.value().0;
        let message = format!("a second {kind} is called `{namespace}/{}`", name.value.0);
        first_only(
            reader,
            &mut seen,
            (namespace, name.value.0.clone()),
            name.node,
            message,
        );
    }
}

/// Two WorkloadPolicies for one workload.
fn served(reader: &mut Reader<'_>, documents: &Documents) {
    let mut seen = HashMap::new();
    for document in &documents.workloads {
        let (Some(metadata), Some(spec)) = (document.metadata.written(), document.spec.written())
        else {
            continue;
        };
        let Some(workload) = spec.value.workload.written() else {
            continue;
        };
        let key = (metadata.value.namespace.value().0, workload.value.0.clone());
        let message = format!("a second WorkloadPolicy is for `{}`", workload.value.0);
        first_only(reader, &mut seen, key, workload.node, message);
    }
}

fn first_only<K: Eq + Hash>(
    reader: &mut Reader<'_>,
    seen: &mut HashMap<K, NodeId>,
    key: K,
    node: NodeId,
    message: String,
) {
    match seen.get(&key) {
        Some(first) => {
            let first = where_it_is(reader, *first);
            reader.error(
                node,
                Problem::new(message).expected(format!("only one; the first is at {first}")),
            );
        }
        None => {
            seen.insert(key, node);
        }
    }
}

fn where_it_is(reader: &Reader<'_>, node: NodeId) -> String {
    let place = reader.tree.place(node);
    format!("{}:{}", reader.tree.file(place.source), place.line)
}

/// Who claims a destination, and for whose sidecars.
struct Claim {
    node: NodeId,
    document: usize,
    workloads: HashSet<String>,
}

/// One destination of two policies that some sidecar would both have. Which of two different patterns wins is
/// defined (the more exact one); of two equal ones it is not.
fn destinations(reader: &mut Reader<'_>, documents: &Documents) {
    let mut claims: HashMap<(String, String), Vec<Claim>> = HashMap::new();
    for (index, document) in documents.dependencies.iter().enumerate() {
        let (Some(metadata), Some(spec)) = (document.metadata.written(), document.spec.written())
        else {
            continue;
        };
        let namespace = metadata.value.namespace.value().0;
        let workloads = spec.value.workloads.list().iter();
        let workloads: HashSet<_> = workloads.map(|name| name.value.0.clone()).collect();
        for (destination, node) in destinations_of(&spec.value) {
            let others = claims
                .entry((namespace.clone(), destination.clone()))
                .or_default();
            let claim = Claim {
                node,
                document: index,
                workloads: workloads.clone(),
            };
            if let Some(other) = others
                .iter()
                .find(|other| overlap(&other.workloads, &claim.workloads))
            {
                let whose = if other.document == index {
                    "written twice"
                } else {
                    "claimed by another policy"
                };
                let expected = format!(
                    "only one; the first is at {}",
                    where_it_is(reader, other.node)
                );
                reader.error(
                    node,
                    Problem::new(format!("`{destination}` is {whose}")).expected(expected),
                );
            }
            others.push(claim);
        }
    }
}

fn overlap(one: &HashSet<String>, other: &HashSet<String>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}

fn destinations_of(spec: &DependencySpec) -> Vec<(String, NodeId)> {
    let Some(target) = spec.target.written() else {
        return Vec::new();
    };
    let target = &target.value;
    let (hosts, addresses) = (target.hosts.list().iter(), target.addresses.list().iter());
    // Port 0 asks for a port of its own.
    let listen = target
        .listen
        .written()
        .filter(|listen| listen.value.0.port() != 0);
    hosts
        .map(|host| (host.value.to_string(), host.node))
        .chain(addresses.map(|address| (address.value.to_string(), address.node)))
        .chain(listen.map(|listen| (format!("listen {}", listen.value.0), listen.node)))
        .collect()
}
