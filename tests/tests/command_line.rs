//! `plimsoll` against a running proxy, and against every example.

use std::path::Path;
use std::process::Command;

use plimsoll_tests::client::Client;
use plimsoll_tests::proxy::{self, Proxy, Setup, listened};
use plimsoll_tests::tools::{run, succeed};
use plimsoll_tests::upstream::{self, Upstream};

fn plimsoll(words: &[&str]) -> Command {
    let mut command = Command::new(proxy::command_line());
    command.args(words).env("NO_COLOR", "1");
    command
}

/// The same, asking this proxy.
fn ask(proxy: &Proxy, words: &[&str]) -> Command {
    let state = proxy.policy_file().parent().expect("a folder").join("state");
    let mut command = plimsoll(words);
    command.arg("--proxy").arg(proxy.admin.address.to_string()).env("PLIMSOLL_STATE_DIR", state);
    command
}

#[test]
fn every_example_is_without_error() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let files: Vec<_> = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    assert!(files.len() >= 3);
    for file in files {
        succeed(plimsoll(&["lint"]).arg(&file));
        // And a proxy starts with it, where its ports are free.
        let text = std::fs::read_to_string(&file)
            .unwrap()
            .replace("127.0.0.1:91", &format!("{}:91", plimsoll_tests::address::own_loopback()));
        let proxy = Setup::new().policy(&text).arg("--workload").arg("payments").start();
        assert_eq!(proxy.admin.status()["policy"]["source"], "File", "{}", file.display());
    }
}

#[test]
fn lint_points_at_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.yaml");
    let nobody = plimsoll_tests::address::reserve();
    std::fs::write(&file, listened("fraud-api", nobody, "  bulkhead: {maxConcurrentCall: 20}").policy).unwrap();
    let (code, said) = run(plimsoll(&["lint"]).arg(&file));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("bad.yaml:8:"), "{said}");
    assert!(said.contains("maxConcurrentCalls"), "the nearest name: {said}");
}

#[test]
fn push_hands_policy_over_and_says_who_refused() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 20}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.yaml");
    std::fs::write(&file, dependency.policy.replace("20", "21")).unwrap();
    succeed(ask(&proxy, &["push"]).arg(&file));
    assert_eq!(proxy.admin.dependency("fraud-api")["bulkheads"][0]["limit"], 21);
    std::fs::write(&file, dependency.policy.replace("20", "0")).unwrap();
    let (code, said) = run(ask(&proxy, &["push"]).arg(&file));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("new.yaml:8"), "{said}");
    assert_eq!(proxy.admin.dependency("fraud-api")["bulkheads"][0]["limit"], 21);
}

#[test]
fn what_is_spoken_and_every_endpoint_are_shown() {
    let (good, bad) = (Upstream::start(|_| upstream::ok("ok")), Upstream::start(|_| upstream::answer(500, &[], "no")));
    let spec = "  loadBalancing: {algorithm: LeastRequest}\n  circuitBreaker: {scope: Endpoint, consecutiveFailures: 1, \
                waitDurationInOpenState: 60s}\n  bulkhead: {maxConcurrentCalls: 9, maxConnections: 7}";
    let dependency = listened("fraud-api", good.address, spec);
    let (one, both) = (format!("\"{}\"", good.address), format!("\"{}\", \"{}\"", good.address, bad.address));
    let policy = dependency.policy.replace(&one, &both).replace("target:", "target:\n    protocol: HTTP1");
    let proxy = Setup::new().workers(1).policy(&policy).start();
    let answers = (0..20).map(|_| Client::connect(dependency.listen).get("/").status);
    assert_eq!(answers.filter(|status| *status == 500).count(), 1, "one call is enough to open a breaker");
    let said = succeed(&mut ask(&proxy, &["status"]));
    for part in ["HTTP1", " of at most 7 connections open", &format!("endpoint {} is CircuitOpen", bad.address)] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = succeed(&mut ask(&proxy, &["endpoints"]));
    let line = |address: &str| said.lines().find(|line| line.contains(address)).unwrap_or_default().to_owned();
    let (good, bad) = (line(&good.address.to_string()), line(&bad.address.to_string()));
    assert!(good.contains("Healthy") && good.contains("LeastRequest"), "{said}");
    assert!(bad.contains("CircuitOpen"), "{said}");
    let json = succeed(&mut ask(&proxy, &["endpoints", "-o", "json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["dependency"], &json[0]["load"]["in_flight"]), (&"shop/fraud-api".into(), &0.into()));
    assert_eq!((&json[1]["state"], &json[1]["source"]["kind"]), (&"CircuitOpen".into(), &"Static".into()));
}

#[test]
fn status_circuits_and_explain_tell_what_is_going_on() {
    let server = Upstream::start(|_| upstream::answer(500, &[], "no"));
    let breaker = "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 5, \
                   waitDurationInOpenState: 60s}";
    let dependency = listened("fraud-api", server.address, breaker);
    let proxy = Setup::new().policy(&dependency.policy).start();
    for _ in 0..6 {
        Client::connect(dependency.listen).get("/");
    }
    for verb in ["status", "circuits"] {
        let said = succeed(&mut ask(&proxy, &[verb]));
        assert!(said.contains("fraud-api") && said.contains("Open"), "{verb}: {said}");
        let json = succeed(&mut ask(&proxy, &[verb, "-o", "json"]));
        serde_json::from_str::<serde_json::Value>(json.trim())
            .unwrap_or_else(|error| panic!("{verb}: {error}: {json}"));
    }
    let said = succeed(&mut ask(&proxy, &["explain"]));
    assert!(said.contains("CircuitOpen") && said.contains("shop/fraud-api"), "{said}");
    drop(proxy);
    let (code, said) = run(&mut plimsoll(&["status", "--proxy", "127.0.0.1:1"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("127.0.0.1:1"), "it says what it could not reach: {said}");
}
