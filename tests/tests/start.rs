//! The command line of the proxy: what it says when it is ready, and when it cannot be.

use plimsoll_tests::address;
use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::upstream::{self, Upstream};

#[test]
fn ready_is_one_line_of_json_with_the_bound_addresses() {
    let proxy = Setup::new().start();
    assert_eq!(proxy.ready["event"], "ready", "{}", proxy.ready);
    for address in [proxy.inbound, proxy.outbound, proxy.health, proxy.admin.address] {
        assert_ne!(address.port(), 0);
        Client::connect(address);
    }
}

#[test]
fn a_bad_policy_at_start_ends_with_2_and_the_line() {
    let dependency = listened("fraud-api", address::reserve(), "  bulkhead: {maxConcurrentCalls: 0}");
    let (code, said) = Setup::new().policy(&dependency.policy).run_to_end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("policy.yaml:8"), "file and line: {said}");
    assert!(said.contains("maxConcurrentCalls"), "the field: {said}");
}

#[test]
fn bad_usage_ends_with_2() {
    let (code, said) = Setup::new().arg("--no-such-flag").run_to_end();
    assert_eq!(code, Some(2), "{said}");
    let (code, said) = Setup::new().arg("--outbound").arg("nowhere").run_to_end();
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn an_address_that_is_taken_says_which() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = Setup::new().arg("--admin").arg(&address).run_to_end();
    assert!(code.is_some_and(|code| code != 0), "{said}");
    assert!(said.contains(&address), "{said}");
}

#[test]
fn a_folder_of_policies_is_read_in_name_order() {
    let (one, two) = (Upstream::start(|_| upstream::ok("one")), Upstream::start(|_| upstream::ok("two")));
    let (first, second) = (listened("one", one.address, ""), listened("two", two.address, ""));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("10-one.yaml"), &first.policy).unwrap();
    std::fs::write(folder.path().join("20-two.yaml"), &second.policy).unwrap();
    std::fs::write(folder.path().join("README.txt"), "not policy").unwrap();
    let proxy = Setup::new().arg("--policy").arg(folder.path().to_str().unwrap()).start();
    assert_eq!(Client::connect(first.listen).get("/").text(), "one");
    assert_eq!(Client::connect(second.listen).get("/").text(), "two");
    assert_eq!(proxy.admin.status()["dependencies"].as_array().unwrap().len(), 2);
}

#[test]
fn flags_can_come_from_the_environment() {
    // Only what it reads at its start can be shown here: help names the variable.
    let output = std::process::Command::new(plimsoll_tests::proxy::binary()).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for flag in ["--policy", "--outbound", "--inbound", "--admin", "--health", "--app", "--workers", "--access-log"] {
        assert!(help.contains(flag), "{flag}");
    }
    assert!(help.contains("PLIMSOLL_OUTBOUND"), "{help}");
}

#[test]
fn policy_for_another_namespace_is_left_out_and_said() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, "");
    let proxy = Setup::new().policy(&dependency.policy).arg("--namespace").arg("default").start();
    let status = proxy.admin.status();
    assert_eq!(status["namespace"], "default");
    assert_eq!(status["dependencies"], serde_json::json!([]));
    let said = "not for this proxy (namespace default, workload any), so left out: DependencyPolicy shop/fraud-api";
    assert_eq!(status["policy"]["warnings"], serde_json::json!([said]));
    eventually("the log says it", || proxy.process.output().contains(said));
    // And so does a push.
    let (code, answer) = proxy.admin.put_policy(&dependency.policy);
    assert_eq!((code, &answer["warnings"][0]["message"]), (200, &serde_json::json!(said)), "{answer}");
}

#[test]
fn without_a_namespace_policy_of_every_namespace_is_taken() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, "");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let status = proxy.admin.status();
    assert_eq!(
        (&status["namespace"], &status["policy"]["warnings"]),
        (&serde_json::Value::Null, &serde_json::json!([]))
    );
    assert_eq!(Client::connect(dependency.listen).get("/").status, 200);
    // One destination of two namespaces cannot be told apart then.
    let twice =
        format!("{}---\n{}", dependency.policy, dependency.policy.replace("namespace: shop", "namespace: risk"));
    let (code, answer) = proxy.admin.put_policy(&twice);
    assert_eq!(code, 422, "{answer}");
    assert!(answer.to_string().contains("is claimed by shop/fraud-api and by risk/fraud-api"), "{answer}");
}
