//! The end of a proxy: nobody who was let in loses a call.

use std::time::{Duration, Instant};

use plimsoll_tests::client::Client;
use plimsoll_tests::eventually;
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Step, Upstream};

fn start(server: &Upstream, drain: &str) -> (Listened, Proxy) {
    let dependency = listened("fraud-api", server.address, "  timeouts: {request: 60s}");
    let workload = format!(
        "---\napiVersion: plimsoll.dev/v1alpha1\nkind: WorkloadPolicy\nmetadata: {{name: payments, namespace: shop}}\n\
         spec: {{workload: payments, drain: {drain}}}\n"
    );
    let setup = Setup::new().workers(2).policy(&(dependency.policy.clone() + &workload));
    let proxy = setup.arg("--workload").arg("payments").start();
    (dependency, proxy)
}

#[test]
fn sigterm_under_load_loses_no_call() {
    for drain in ["{delay: 1s, grace: 20s}", "{delay: 0s, grace: 20s}"] {
        let server = Upstream::start(|_| upstream::after(Duration::from_millis(3), upstream::ok("ok")));
        let (dependency, mut proxy) = start(&server, drain);
        let load = Load::start(dependency.listen, 32, &Ask::post());
        load.wait_for_more(1_000);
        proxy.terminate();
        let status = proxy.process.wait(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{}", proxy.process.output());
        eventually("callers find nobody", || load.ended());
        let tally = load.finish();
        assert!(tally.failures.is_empty(), "{drain}: {:?}", &tally.failures[..tally.failures.len().min(5)]);
        assert_eq!(tally.ok(), tally.answers(), "{drain}: {tally:?}");
        assert_eq!(tally.refused, 32, "each caller stopped because nobody listened");
        assert_eq!(server.requests(), tally.ok(), "no call was made twice");
    }
}

#[test]
fn who_connects_while_the_door_closes_is_served_or_finds_nobody() {
    for round in 0..4 {
        let server = Upstream::start(|_| upstream::ok("ok"));
        let (dependency, mut proxy) = start(&server, "{delay: 0s, grace: 20s}");
        // A new connection for each call: many are being made at the moment of closing.
        let load = Load::start(dependency.listen, 16, &Ask::get().field("Connection", "close"));
        load.wait_for_more(300);
        proxy.terminate();
        assert_eq!(proxy.process.wait(Duration::from_secs(30)).code(), Some(0), "{}", proxy.process.output());
        let tally = load.finish();
        assert!(tally.failures.is_empty(), "round {round}: {:?}", &tally.failures[..tally.failures.len().min(5)]);
        assert_eq!(tally.ok(), tally.answers(), "round {round}: {tally:?}");
    }
}

#[test]
fn notice_is_given_before_the_door_closes() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, mut proxy) = start(&server, "{delay: 3s, grace: 10s}");
    let mut client = Client::connect(dependency.listen);
    assert!(client.get("/").keeps_alive());
    let ready = |proxy: &Proxy| Client::try_connect(proxy.health).ok().map(|mut client| client.get("/ready").status);
    assert_eq!(ready(&proxy), Some(200));
    proxy.terminate();
    eventually("it is not ready", || ready(&proxy) == Some(503));
    assert_eq!(proxy.admin.status()["state"], "Draining");
    assert_eq!(proxy.admin.request("GET", "/live", "").status, 200);
    let answer = client.get("/");
    assert_eq!((answer.status, answer.keeps_alive()), (200, false), "still serving, and saying so: {answer}");
    client.expect_closed();
    let answer = Client::connect(dependency.listen).get("/");
    assert_eq!((answer.status, answer.keeps_alive()), (200, false), "new callers too: {answer}");
    assert_eq!(proxy.process.wait(Duration::from_secs(20)).code(), Some(0));
}

#[test]
fn a_long_call_is_waited_for() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start(move |_| upstream::behind(&held, upstream::ok("late")));
    let (dependency, mut proxy) = start(&server, "{delay: 0s, grace: 30s}");
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    proxy.terminate();
    eventually("the door is closed", || Client::try_connect(dependency.listen).is_err());
    assert!(proxy.process.poll_exit().is_none(), "a call is in flight");
    gate.open();
    assert_eq!(client.read_answer(false).unwrap().text(), "late");
    assert_eq!(proxy.process.wait(Duration::from_secs(10)).code(), Some(0));
}

#[test]
fn the_grace_ends_what_does_not_end_itself() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let (dependency, mut proxy) = start(&server, "{delay: 0s, grace: 1s}");
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    let begun = Instant::now();
    proxy.terminate();
    let status = proxy.process.wait(Duration::from_secs(15));
    assert!(status.code().is_some(), "it ended by itself: {status}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "not before its grace");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let (dependency, mut proxy) = start(&server, "{delay: 0s, grace: 60s}");
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    proxy.terminate();
    eventually("the door is closed", || Client::try_connect(dependency.listen).is_err());
    proxy.terminate();
    proxy.process.wait(Duration::from_secs(10));
}

#[test]
fn idle_callers_do_not_hold_it_up() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, mut proxy) = start(&server, "{delay: 0s, grace: 60s}");
    let mut idle: Vec<Client> = (0..50).map(|_| Client::connect(dependency.listen)).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").status, 200);
    }
    proxy.terminate();
    assert_eq!(proxy.process.wait(Duration::from_secs(20)).code(), Some(0));
}

#[test]
fn drain_can_be_asked_for_by_its_operator() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (_dependency, mut proxy) = start(&server, "{delay: 0s, grace: 10s}");
    assert_eq!(proxy.admin.request("POST", "/drain", "").status, 202);
    assert_eq!(proxy.process.wait(Duration::from_secs(20)).code(), Some(0));
}
