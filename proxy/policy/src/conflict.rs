//! What no single document can get wrong: two policies of one name, or for one destination.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::document::Documents;
use crate::field::At;
use crate::report::{Problem, Reader};
use crate::spec::{Metadata, Target};
use crate::tree::NodeId;

pub(crate) fn check(reader: &mut Reader<'_>, documents: &Documents) {
    let dependencies = documents.dependencies.iter().map(|one| one.metadata.written());
    names(reader, "DependencyPolicy", dependencies.flatten());
    let workloads = documents.workloads.iter().map(|one| one.metadata.written());
    names(reader, "WorkloadPolicy", workloads.flatten());
    destinations(reader, documents);
    served(reader, documents);
}

/// What is compared here must have been read whole: a name or a namespace that could not be read is reported already,
/// and is not the one that stands in its place.
fn names<'a>(reader: &mut Reader<'_>, kind: &str, metadata: impl Iterator<Item = &'a At<Metadata>>) {
    let mut seen = HashMap::new();
    for At { node, value: metadata } in metadata {
        if reader.is_wrong(*node) {
            continue;
        }
        let Some(name) = metadata.name.written() else {
            continue;
        };
        let namespace = metadata.namespace.value().0;
        let message = format!("a second {kind} is called `{namespace}/{}`", name.value.0);
        first_only(reader, &mut seen, (namespace, name.value.0.clone()), name.node, message);
    }
}

/// Two WorkloadPolicies for one workload.
fn served(reader: &mut Reader<'_>, documents: &Documents) {
    let mut seen = HashMap::new();
    for document in &documents.workloads {
        let (Some(metadata), Some(spec)) = (document.metadata.written(), document.spec.written()) else {
            continue;
        };
        let Some(workload) = spec.value.workload.written().filter(|_| !reader.is_wrong(metadata.node)) else {
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
            reader.error(node, Problem::new(message).expected(format!("only one; the first is at {first}")));
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
    workloads: Rc<HashSet<String>>,
}

/// One destination of two policies that some sidecar would both have. Which of two different patterns wins is
/// defined (the more exact one); of two equal ones it is not. And calls to an endpoint that is a local port of the
/// same proxy would go round for ever.
fn destinations(reader: &mut Reader<'_>, documents: &Documents) {
    let mut claims = Claims::new();
    let mut endpoints = Vec::new();
    for document in &documents.dependencies {
        let (Some(metadata), Some(spec)) = (document.metadata.written(), document.spec.written()) else { continue };
        let Some(target) = spec.value.target.written() else { continue };
        let unread = reader.tree.entry(spec.node, "workloads").is_some_and(|workloads| reader.is_wrong(workloads));
        if unread || reader.is_wrong(metadata.node) {
            continue;
        }
        let namespace = metadata.value.namespace.value().0;
        let workloads = spec.value.workloads.list().iter();
        let workloads: Rc<HashSet<_>> = Rc::new(workloads.map(|name| name.value.0.clone()).collect());
        for (destination, node) in destinations_of(&target.value) {
            let claim = Claim { node, workloads: Rc::clone(&workloads) };
            claim_once(reader, &mut claims, (namespace.clone(), destination), claim);
        }
        let fixed = target.value.endpoints.written().map_or(&[][..], |written| written.value.fixed.list());
        for endpoint in fixed {
            let claim = Claim { node: endpoint.node, workloads: Rc::clone(&workloads) };
            endpoints.push(((namespace.clone(), listen_key(endpoint.value.0)), claim));
        }
    }
    for (key, claim) in endpoints {
        if let Some(listen) = claims.get(&key).and_then(|listens| overlapping(listens, &claim)) {
            let at = where_it_is(reader, listen.node);
            let problem = Problem::new("this endpoint is a local port of the proxy itself");
            reader.error(claim.node, problem.expected(format!("an address other than the `listen` of {at}")));
        }
    }
}

/// By namespace and destination.
type Claims = HashMap<(String, String), Vec<Claim>>;

fn claim_once(reader: &mut Reader<'_>, claims: &mut Claims, key: (String, String), claim: Claim) {
    let destination = key.1.clone();
    let others = claims.entry(key).or_default();
    if let Some(other) = overlapping(others, &claim) {
        let expected = format!("only one; the first is at {}", where_it_is(reader, other.node));
        let problem = Problem::new(format!("`{destination}` is claimed by another policy"));
        reader.error(claim.node, problem.expected(expected));
    }
    others.push(claim);
}

fn overlapping<'a>(claims: &'a [Claim], claim: &Claim) -> Option<&'a Claim> {
    claims.iter().find(|other| overlap(&other.workloads, &claim.workloads))
}

fn overlap(one: &HashSet<String>, other: &HashSet<String>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}

fn destinations_of(target: &Target) -> Vec<(String, NodeId)> {
    let (hosts, addresses) = (target.hosts.list().iter(), target.addresses.list().iter());
    // Port 0 asks for a port of its own.
    let listen = target.listen.written().filter(|listen| listen.value.0.port() != 0);
    hosts
        .map(|host| (host.value.to_string(), host.node))
        .chain(addresses.map(|address| (address.value.to_string(), address.node)))
        .chain(listen.map(|listen| (listen_key(listen.value.0), listen.node)))
        .collect()
}

fn listen_key(address: SocketAddr) -> String {
    format!("listen {address}")
}
