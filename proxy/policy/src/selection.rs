//! Which policies of a set one proxy takes. Every file of a folder, and every document of a push, may be for others;
//! what is left out is said, because a proxy that was given policy and protects nothing must not be silent about it.

use std::collections::HashMap;
use std::fmt;

use crate::model::{DependencyPolicy, PolicyId, PolicySet};

/// So many names of a list are for a person to read; the others are counted.
const MAX_NAMES: usize = 10;

/// One destination of two policies that the proxy would both take, and neither the more exact one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{destination}` is claimed by {first} and by {second}; say with --namespace and --workload which of them this \
     proxy takes"
)]
pub struct Ambiguous {
    /// As it is written.
    pub destination: String,
    /// The policy that is written first.
    pub first: PolicyId,
    /// The other.
    pub second: PolicyId,
}

impl PolicySet {
    /// Checks that no two policies which this proxy takes are for one destination. Within a namespace [`parse`] has
    /// seen to it; a proxy that was told no namespace (or no workload) takes those of several.
    ///
    /// # Errors
    /// The first such destination.
    ///
    /// [`parse`]: crate::parse
    pub fn check_for(&self, namespace: Option<&str>, workload: Option<&str>) -> Result<(), Ambiguous> {
        let mut claims: HashMap<String, &PolicyId> = HashMap::new();
        for policy in self.dependencies.iter().filter(|policy| policy.is_for(namespace, workload)) {
            for destination in destinations(policy) {
                if let Some(first) = claims.insert(destination.clone(), &policy.id) {
                    let (first, second) = (first.clone(), policy.id.clone());
                    return Err(Ambiguous { destination, first, second });
                }
            }
        }
        Ok(())
    }

    /// What is not for this proxy, in sentences; empty when it takes everything.
    #[must_use]
    pub fn left_out(&self, namespace: Option<&str>, workload: Option<&str>) -> Vec<String> {
        let dependencies = self.dependencies.iter().filter(|policy| !policy.is_for(namespace, workload));
        let workloads = self.workloads.iter().filter(|policy| !policy.is_for(namespace, workload));
        let dependencies = dependencies.map(|policy| format!("DependencyPolicy {}", policy.id));
        let others: Vec<_> =
            dependencies.chain(workloads.map(|policy| format!("WorkloadPolicy {}", policy.id))).collect();
        let mut said = Vec::new();
        if !others.is_empty() {
            said.push(format!(
                "not for this proxy (namespace {}, workload {}), so left out: {}",
                namespace.unwrap_or("any"),
                workload.unwrap_or("any"),
                Names(&others)
            ));
        }
        let mut own = self.workloads.iter().filter(|policy| policy.is_for(namespace, workload));
        if let Some(taken) = own.next() {
            let others: Vec<_> = own.map(|policy| format!("WorkloadPolicy {}", policy.id)).collect();
            if !others.is_empty() {
                said.push(format!(
                    "a proxy stands beside one workload, and {} is in force, so left out: {}; say which with --workload",
                    taken.id,
                    Names(&others)
                ));
            }
        }
        said
    }
}

fn destinations(policy: &DependencyPolicy) -> impl Iterator<Item = String> {
    let target = &policy.target;
    // Port 0 asks for a port of its own.
    let listen = target.listen.filter(|listen| listen.port() != 0);
    let hosts = target.hosts.iter().map(ToString::to_string);
    hosts.chain(target.addresses.iter().map(ToString::to_string)).chain(listen.map(|listen| format!("listen {listen}")))
}

/// How many, and which.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.len().min(MAX_NAMES);
        write!(f, "{}", self.0[..shown].join(", "))?;
        match self.0.len() - shown {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
