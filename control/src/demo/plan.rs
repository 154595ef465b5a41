//! What the demo runs: the rails of `examples/payments.yaml`, on ports that are free, and the policy with and
//! without its protection.

use std::net::{SocketAddr, TcpListener};

use serde::Deserialize;
use serde_yaml::{Mapping, Value};

use crate::Failure;

/// The policy that the demo is about; the file itself, so that what is shown is what is shipped.
const PAYMENTS: &str = include_str!("../../../examples/payments.yaml");

/// One rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rail {
    /// The policy's name.
    pub name: String,
    /// As the proxy names the dependency: `namespace/name`.
    pub policy: String,
    /// Where the payment service calls it: a port of the sidecar.
    pub listen: SocketAddr,
    /// Where it is.
    pub endpoint: SocketAddr,
}

/// Everything that is derived from the policy file.
#[derive(Debug)]
pub struct Plan {
    /// In the order of the file.
    pub rails: Vec<Rail>,
    /// The workload whose sidecar it is for.
    pub workload: String,
    /// Its namespace.
    pub namespace: String,
    /// The policy.
    pub policy: String,
    /// The same file without anything but `target`: where the rails are, and not a word on what to do when one is slow.
    pub targets_only: String,
    /// Ports that were taken: (in the file, used instead).
    pub moved: Vec<(SocketAddr, SocketAddr)>,
}

impl Plan {
    /// The shipped example, on free ports.
    ///
    /// # Errors
    /// When no port is free.
    pub fn new() -> Result<Plan, Failure> {
        Plan::of(PAYMENTS, is_free)
    }

    fn of(yaml: &str, is_free: impl Fn(SocketAddr) -> bool) -> Result<Plan, Failure> {
        let mut policy = yaml.to_owned();
        let mut moved = Vec::new();
        // Held until all are chosen, lest two rails get the same one.
        let mut held = Vec::new();
        for rail in rails(&documents(yaml)?)? {
            for wanted in [rail.listen, rail.endpoint] {
                if is_free(wanted) {
                    continue;
                }
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let instead = listener.local_addr()?;
                held.push(listener);
                policy = policy.replace(&wanted.to_string(), &instead.to_string());
                moved.push((wanted, instead));
            }
        }
        let documents = documents(&policy)?;
        let (namespace, workload) = workload(&documents);
        Ok(Plan {
            rails: rails(&documents)?,
            workload,
            namespace,
            targets_only: targets_only(&documents)?,
            policy,
            moved,
        })
    }
}

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

fn documents(yaml: &str) -> Result<Vec<Value>, Failure> {
    let all = serde_yaml::Deserializer::from_str(yaml).map(Value::deserialize);
    let mut documents = Vec::new();
    for document in all {
        let document = document?;
        if !document.is_null() {
            documents.push(document);
        }
    }
    Ok(documents)
}

fn dependencies(documents: &[Value]) -> impl Iterator<Item = &Value> {
    documents.iter().filter(|d| d["kind"].as_str() == Some("DependencyPolicy"))
}

fn rails(documents: &[Value]) -> Result<Vec<Rail>, Failure> {
    let address = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    let rail = |document: &Value| {
        let target = &document["spec"]["target"];
        let name = document["metadata"]["name"].as_str()?.to_owned();
        Some(Rail {
            policy: format!("{}/{name}", namespace(document)),
            name,
            listen: address(&target["listen"])?,
            endpoint: address(&target["endpoints"]["static"][0])?,
        })
    };
    dependencies(documents)
        .map(|d| rail(d).ok_or_else(|| "a rail of the demo needs a name, `listen` and one static endpoint".into()))
        .collect()
}

fn namespace(document: &Value) -> &str {
    document["metadata"]["namespace"].as_str().unwrap_or("default")
}

fn workload(documents: &[Value]) -> (String, String) {
    let first = dependencies(documents).next();
    let named = first.and_then(|d| d["spec"]["workloads"][0].as_str());
    let namespace = first.map_or("default", namespace);
    (namespace.to_owned(), named.unwrap_or("payments").to_owned())
}

fn targets_only(documents: &[Value]) -> Result<String, Failure> {
    let part = |from: &Value, keys: &[&str]| {
        let kept = keys.iter().filter_map(|&key| Some((key.into(), from.get(key)?.clone())));
        Value::Mapping(kept.collect::<Mapping>())
    };
    let mut texts = Vec::new();
    for document in dependencies(documents) {
        let mut bare = part(document, &["apiVersion", "kind", "metadata"]);
        bare["spec"] = part(&document["spec"], &["workloads", "target"]);
        texts.push(serde_yaml::to_string(&bare)?);
    }
    Ok(texts.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_example_has_three_rails_of_one_workload() {
        let plan = Plan::of(PAYMENTS, |_| true).unwrap();
        assert_eq!(plan.rails.len(), 3);
        assert_eq!(plan.policy, PAYMENTS, "free ports leave the file as it is");
        assert_eq!(plan.moved, []);
    }

    #[test]
    fn without_policy_only_the_way_to_the_rails_is_left() {
        let plan = Plan::of(PAYMENTS, |_| true).unwrap();
        let bare = documents(&plan.targets_only).unwrap();
        assert_eq!(rails(&bare).unwrap(), plan.rails);
        for document in &bare {
            let keys: Vec<_> = document["spec"].as_mapping().unwrap().keys().collect();
            let allowed = |key: &&Value| matches!(key.as_str(), Some("target" | "workloads"));
            assert!(keys.iter().all(allowed), "{keys:?}");
        }
    }

    #[test]
    fn a_taken_port_is_replaced_everywhere() {
        let taken = Plan::of(PAYMENTS, |_| true).unwrap().rails[1].listen;
        let plan = Plan::of(PAYMENTS, |address| address != taken).unwrap();
        let [(from, to)] = plan.moved[..] else {
            panic!("one port moves: {:?}", plan.moved);
        };
        assert_eq!((from, plan.rails[1].listen), (taken, to));
        for text in [&plan.policy, &plan.targets_only] {
            assert!(!text.contains(&taken.to_string()) && text.contains(&to.to_string()));
        }
    }
}
