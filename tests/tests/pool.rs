//! Connections to a dependency: kept, shared, given up in time, and what a lost one means for the call on it.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_tests::client::{Client, Failure};
use plimsoll_tests::eventually;
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Step, Upstream};

fn start(server: SocketAddr, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("fraud-api", server, spec);
    let proxy = Setup::new().workers(1).policy(&dependency.policy).start();
    (dependency, proxy)
}

#[test]
fn one_connection_serves_many_callers_in_turn() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, _proxy) = start(server.address, "");
    for _ in 0..20 {
        let mut client = Client::connect(dependency.listen);
        assert_eq!(client.get("/").status, 200);
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_post_that_was_read_and_reset_is_seen_once() {
    let server =
        Upstream::start(|request| if request.method == "POST" { vec![Step::Reset] } else { upstream::ok("ok") });
    for spec in ["", "  retry: {maxAttempts: 3}"] {
        let (dependency, _proxy) = start(server.address, spec);
        let before = server.requests();
        let mut client = Client::connect(dependency.listen);
        assert_eq!(client.get("/").status, 200);
        let answer = client.post("/", b"{\"amount\":10}");
        assert_eq!((answer.status, answer.reason()), (503, Some("UpstreamReset")), "{answer}");
        let posts: Vec<_> = server.seen().into_iter().skip(before).filter(|request| request.method == "POST").collect();
        assert_eq!(posts.len(), 1, "with {spec:?}");
        assert_eq!(posts[0].nth, 1, "it went out on the connection that was in use just before");
        assert_eq!(client.get("/").status, 200, "the caller's own connection lives on");
    }
}

#[test]
fn a_connection_closed_while_idle_costs_no_call() {
    // Each answer is followed by a FIN that no field announced.
    let server = Upstream::start(|_| {
        let mut script = upstream::ok("ok");
        script.push(Step::Close);
        script
    });
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    for round in 1..=40 {
        let method = if round % 2 == 0 { "GET" } else { "POST" };
        assert_eq!(client.call(method, "/", &[], b"").status, 200, "{method} {round}");
        eventually("the server has closed", || server.open_connections() == 0);
    }
    assert_eq!(server.requests(), 40, "nothing was sent twice");
}

#[test]
fn a_connection_closed_with_the_next_call_on_its_way_costs_idempotent_calls_nothing() {
    // The server closes idle connections after a moment, so some calls meet the FIN on their way.
    let server = Upstream::start(|_| upstream::ok("ok"));
    server.close_idle_after(Duration::from_millis(10));
    let (dependency, _proxy) = start(server.address, "  retry: {maxAttempts: 3, backoff: {base: 1ms, max: 5ms}}");
    let mut client = Client::connect(dependency.listen);
    for round in 0..100 {
        assert_eq!(client.get("/").status, 200);
        std::thread::sleep(Duration::from_millis(4 + round % 16));
    }
    assert!(server.connections() > 1, "some were closed");
}

#[test]
fn an_old_idle_connection_is_not_trusted_with_a_post() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    assert_eq!(client.post("/1", b"{}").status, 200);
    assert_eq!(client.post("/2", b"{}").status, 200);
    assert_eq!(server.connections(), 1, "in use within the last second");
    std::thread::sleep(Duration::from_millis(1_300));
    assert_eq!(client.post("/3", b"{}").status, 200);
    let seen = server.seen();
    assert_ne!(seen[2].connection, seen[0].connection, "a POST takes a fresh one");
}

#[test]
fn the_servers_keep_alive_is_given_up_a_second_early() {
    let server = Upstream::start(|_| upstream::answer(200, &[("Keep-Alive", "timeout=2")], "ok"));
    let (dependency, _proxy) = start(server.address, "");
    assert_eq!(Client::connect(dependency.listen).get("/").status, 200);
    assert_eq!(server.open_connections(), 1);
    // The server itself never closes it.
    eventually("the proxy has closed it or will not use it", || {
        let connections = server.connections();
        assert_eq!(Client::connect(dependency.listen).get("/").status, 200);
        std::thread::sleep(Duration::from_millis(1_200));
        server.connections() > connections || server.open_connections() == 0
    });
}

#[test]
fn connection_close_is_obeyed_both_ways() {
    let server = Upstream::start(|_| upstream::answer(200, &[("Connection", "close")], "ok"));
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/").status, 200, "the caller's connection is another matter");
    assert_eq!(server.connections(), 2);
    let answer = client.call("GET", "/", &[("Connection", "close")], b"");
    assert_eq!(answer.field("connection").map(str::to_lowercase), Some("close".to_owned()), "{answer}");
    client.expect_closed();
}

#[test]
fn an_early_refusal_of_a_body_is_delivered_even_when_the_server_resets() {
    let server = Upstream::start_early(|_| {
        let mut script = upstream::answer(413, &[("Connection", "close")], "too much");
        script.push(Step::Reset);
        script
    });
    let (dependency, _proxy) = start(server.address, "");
    for size in [1, 100_000, 4_000_000] {
        let mut client = Client::connect(dependency.listen);
        let answer = client.call("POST", "/", &[], &vec![b'x'; size]);
        assert_eq!((answer.status, answer.text().as_str()), (413, "too much"), "{size} bytes: {answer}");
    }
}

#[test]
fn after_an_early_answer_neither_connection_is_confused() {
    let server = Upstream::start_early(|request| {
        if request.method == "POST" { upstream::answer(401, &[], "who are you") } else { upstream::ok("ok") }
    });
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234").unwrap();
    assert_eq!(client.read_answer(false).unwrap().status, 401);
    // The rest of the body is read away or the connection closed; it is never taken for a request.
    let _ = client.write("56789");
    match client.try_call("GET", "/next", &[], b"") {
        Ok(answer) => assert_eq!(answer.text(), "ok"),
        Err(Failure::NoAnswer(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(Client::connect(dependency.listen).get("/again").text(), "ok");
    for request in server.seen().iter().filter(|request| request.method == "GET") {
        assert_ne!(request.connection, server.seen()[0].connection, "the early answer's connection is not used again");
    }
}

#[test]
fn a_caller_that_leaves_cancels_its_call() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let (dependency, proxy) = start(server.address, "  bulkhead: {maxConcurrentCalls: 1}");
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    drop(client);
    eventually("the server is told", || server.abandoned() == 1);
    eventually("the permit is back", || proxy.admin.dependency("fraud-api")["bulkheads"][0]["in_flight"] == 0);
}

#[test]
fn a_fin_from_the_caller_means_that_it_has_gone() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    client.finish();
    eventually("the server is told", || server.abandoned() == 1);
}

#[test]
fn connections_are_limited_over_all_workers() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start(move |_| upstream::behind(&held, upstream::ok("ok")));
    let spec = "  bulkhead: {maxConcurrentCalls: 50, maxQueued: 50, maxWaitDuration: 15s, maxConnections: 3}";
    let dependency = listened("fraud-api", server.address, spec);
    let _proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut callers: Vec<Client> = (0..12).map(|_| Client::connect(dependency.listen)).collect();
    for caller in &mut callers {
        caller.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    server.wait_for_requests(3);
    // The others have had time to connect, if they would.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((server.connections(), server.requests()), (3, 3));
    gate.open();
    for caller in &mut callers {
        let answer = caller.read_answer(false).expect("an answer");
        assert_eq!(answer.status, 200, "who waited is served: {answer}");
    }
}

#[test]
fn a_caller_that_leaves_in_the_middle_of_an_answer_cancels_it() {
    let server = Upstream::start(|_| {
        vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"), Step::Fill(1_000_000_000)]
    });
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    client.read_head().unwrap();
    drop(client);
    eventually("the server is told", || server.abandoned() == 1);
}

#[test]
fn ten_thousand_idle_connections_do_not_harm_others() {
    const IDLE: usize = 10_000;
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let needed = IDLE as u64 + 1_000;
    let limit = most.max(needed);
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, limit, limit)
        .unwrap_or_else(|error| panic!("this test needs {needed} open files, the limit is {most}: {error}"));
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, "  bulkhead: {maxConcurrentCalls: 50}");
    let proxy = Setup::new().workers(2).policy(&dependency.policy).open_files(limit).start();
    let mut idle: Vec<Client> = (0..IDLE)
        .map(|_| {
            let mut client = Client::connect(dependency.listen);
            assert_eq!(client.get("/").status, 200);
            client
        })
        .collect();
    let load = Load::start(dependency.listen, 16, &Ask::get());
    load.wait_for_more(2_000);
    let tally = load.finish();
    assert!(tally.failures.is_empty() && tally.ok() == tally.answers(), "{tally:?}");
    for client in idle.iter_mut().step_by(97) {
        assert_eq!(client.get("/").status, 200, "idle connections are still open");
    }
    assert!(proxy.admin.status()["connections"]["outbound"].as_u64().is_some_and(|open| open >= IDLE as u64));
}

/// A server that accepts and closes (a balancer without a backend) is not attacked for it.
#[test]
fn a_call_over_http_2_makes_one_connection_to_a_server_that_closes_at_once() {
    let server = plimsoll_tests::tcp::Server::start(|_, _| {});
    let dependency = listened("fraud-api", server.address, "");
    let policy = dependency.policy.replace("target:", "target:\n    upstreamProtocol: HTTP2");
    let _proxy = Setup::new().workers(1).policy(&policy).start();
    let mut client = Client::connect(dependency.listen);
    for call in 1..=20 {
        assert_eq!(client.get("/").status, 503);
        // Once more where it was said that nothing was begun.
        assert!(server.connections() <= 2 * call, "{} connections for {call} calls", server.connections());
    }
}
