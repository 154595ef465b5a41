//! Which policies of a set a proxy takes, and that it says what it does not take.
#![allow(clippy::unwrap_used)]

use plimsoll_policy::{PolicySet, Source, parse};

fn dependency(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\n\
         metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{spec}}}\n---\n"
    )
}

fn workload(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: plimsoll.dev/v1alpha1\nkind: WorkloadPolicy\n\
         metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{workload: {name}}}\n---\n"
    )
}

fn set(documents: &[String]) -> PolicySet {
    parse(&[Source::new("all.yaml", documents.concat())]).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn a_proxy_that_was_told_nothing_takes_everything_and_says_nothing() {
    let set = set(&[dependency("shop", "fraud", "target: {hosts: [fraud]}"), workload("shop", "payments")]);
    assert_eq!(set.left_out(None, None), [] as [&str; 0]);
    assert_eq!(set.left_out(Some("shop"), Some("payments")), [] as [&str; 0]);
}

#[test]
fn what_is_for_others_is_named() {
    let set = set(&[
        dependency("shop", "fraud", "target: {hosts: [fraud]}"),
        dependency("risk", "scores", "target: {hosts: [scores]}, workloads: [rating]"),
        workload("shop", "payments"),
    ]);
    assert_eq!(
        set.left_out(Some("default"), None),
        ["not for this proxy (namespace default, workload any), so left out: DependencyPolicy shop/fraud, \
          DependencyPolicy risk/scores, WorkloadPolicy shop/payments"]
    );
    assert_eq!(
        set.left_out(None, Some("payments")),
        ["not for this proxy (namespace any, workload payments), so left out: DependencyPolicy risk/scores"]
    );
}

#[test]
fn a_long_list_is_counted() {
    let documents: Vec<_> =
        (0..13).map(|n| dependency("shop", &format!("d{n}"), &format!("target: {{hosts: [h{n}]}}"))).collect();
    let said = set(&documents).left_out(Some("default"), None);
    assert!(said[0].contains("shop/d9") && !said[0].contains("d10") && said[0].ends_with(" and 3 more"), "{said:?}");
}

#[test]
fn a_second_workload_is_named_too() {
    let set = set(&[workload("shop", "payments"), workload("shop", "orders")]);
    let said = set.left_out(None, None);
    assert_eq!(
        said,
        ["a proxy stands beside one workload, and shop/payments is in force, so left out: WorkloadPolicy \
          shop/orders; say which with --workload"]
    );
}

#[test]
fn one_destination_of_two_policies_that_are_both_taken_is_ambiguous() {
    let set = set(&[
        dependency("shop", "fraud", "target: {hosts: [\"fraud:80\"]}, workloads: [a]"),
        dependency("shop", "other", "target: {hosts: [\"fraud:80\"]}, workloads: [b]"),
        dependency("risk", "third", "target: {hosts: [\"*.internal\"]}"),
    ]);
    let error = set.check_for(Some("shop"), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`fraud:80` is claimed by shop/fraud and by shop/other; say with --namespace and --workload which of them \
         this proxy takes"
    );
    assert_eq!(set.check_for(Some("shop"), Some("a")), Ok(()));
    assert_eq!(set.check_for(Some("risk"), None), Ok(()));
}
