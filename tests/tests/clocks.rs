//! Timeouts and deadlines: each clock runs from where it says, and what is left of a deadline goes out.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plimsoll_tests::client::{Client, Failure};
use plimsoll_tests::eventually;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Request, Script, Step, Upstream};

const DEADLINE: &str = "x-envoy-expected-rq-timeout-ms";

fn start(server: SocketAddr, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("fraud-api", server, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

fn sent_deadline(request: &Request) -> u64 {
    let value = request.field(DEADLINE).expect("a deadline goes out");
    value.parse().expect("milliseconds")
}

/// One byte every 2 s, so that a clock which starts again with every byte never runs out.
fn trickle() -> Script {
    let mut script = vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")];
    for _ in 0..1_000 {
        script.push(upstream::raw("x"));
        script.push(Step::Wait(Duration::from_secs(2)));
    }
    script
}

/// The worked number: one byte every 2 s, read timeout 3 s, request timeout 2 s.
#[test]
fn a_trickled_body_ends_at_the_request_timeout() {
    let server = Upstream::start(|_| trickle());
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 2s, idle: 3s}");
    let begun = Instant::now();
    let answer = Client::connect(dependency.listen).try_call("GET", "/", &[], b"");
    let Err(Failure::Cut { status: 200, body }) = answer else { panic!("{answer:?}") };
    assert!(!body.is_empty(), "bytes passed before");
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert!(begun.elapsed() < Duration::from_secs(15), "not when the server was done: {:?}", begun.elapsed());
    eventually("the server is told to stop", || server.abandoned() == 1);
}

#[test]
fn a_hung_answer_ends_at_the_request_timeout_and_says_so() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 300ms}");
    let mut client = Client::connect(dependency.listen);
    let answer = client.get("/");
    assert_eq!((answer.status, answer.reason()), (504, Some("RequestTimeout")), "{answer}");
    assert_eq!(answer.detail("block"), Some("timeouts"), "{answer}");
    assert_eq!(answer.detail("limit"), Some("300"), "{answer}");
    eventually("the server is told to stop", || server.abandoned() == 1);
    assert!(answer.keeps_alive(), "its caller keeps its connection: {answer}");
    assert_eq!(client.get("/").status, 504);
}

#[test]
fn silence_ends_at_the_idle_timeout() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/silent" => vec![Step::Hang],
        _ => vec![upstream::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), Step::Hang],
    });
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 15s, idle: 300ms}");
    let begun = Instant::now();
    let answer = Client::connect(dependency.listen).get("/silent");
    assert_eq!((answer.status, answer.reason()), (504, Some("IdleTimeout")), "{answer}");
    let answer = Client::connect(dependency.listen).try_call("GET", "/half", &[], b"");
    assert!(matches!(&answer, Err(Failure::Cut { status: 200, body }) if body == b"half"), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn the_shorter_deadline_of_the_caller_wins() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 15s}");
    let begun = Instant::now();
    let answer = Client::connect(dependency.listen).call("GET", "/", &[(DEADLINE, "400")], b"");
    assert_eq!((answer.status, answer.reason()), (504, Some("DeadlineExpired")), "{answer}");
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let left = sent_deadline(&server.seen()[0]);
    assert!((1..=400).contains(&left), "what is left goes out: {left}");
}

#[test]
fn the_shorter_request_timeout_wins_over_the_caller() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 1s}");
    Client::connect(dependency.listen).call("GET", "/", &[(DEADLINE, "9000")], b"");
    let left = sent_deadline(&server.seen()[0]);
    assert!((1..=1000).contains(&left), "{left}");
}

#[test]
fn a_reserve_is_kept_back() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, _proxy) =
        start(server.address, "  deadline: {propagate: true, reserve: 500ms}\n  timeouts: {request: 10s}");
    Client::connect(dependency.listen).call("GET", "/", &[(DEADLINE, "2000")], b"");
    let left = sent_deadline(&server.seen()[0]);
    assert!((1..=1500).contains(&left), "{left}");
}

#[test]
fn a_deadline_is_not_restarted_by_a_retry() {
    let server = Upstream::start(|request| match request.before {
        0 | 1 => upstream::after(Duration::from_millis(150), upstream::answer(503, &[], "down")),
        _ => upstream::ok("up"),
    });
    let spec = "  timeouts: {request: 10s}\n  retry: {backoff: {base: 1ms, max: 5ms}}";
    let (dependency, _proxy) = start(server.address, spec);
    let answer = Client::connect(dependency.listen).call("GET", "/", &[(DEADLINE, "5000")], b"");
    assert_eq!(answer.text(), "up");
    let left: Vec<u64> = server.seen().iter().map(sent_deadline).collect();
    assert!(left[1] + 150 <= left[0] && left[2] + 150 <= left[1], "{left:?}");
}

#[test]
fn waiting_for_a_permit_is_part_of_the_call() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let spec = "  timeouts: {request: 400ms}
  bulkhead: {maxConcurrentCalls: 1, maxQueued: 5, maxWaitDuration: 15s}";
    let (dependency, _proxy) = start(server.address, spec);
    let mut first = Client::connect(dependency.listen);
    first.write("GET /first HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    let begun = Instant::now();
    let second = Client::connect(dependency.listen).get("/second");
    assert_eq!(second.status, 504, "the wait ends with the call, not after 15 s: {second}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(first.read_answer(false).unwrap().reason(), Some("RequestTimeout"));
}

#[test]
fn a_connection_that_is_not_made_ends_at_the_connect_timeout() {
    // A listener whose queue is full answers no SYN.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let mut fillers = Vec::new();
    while let Ok(filler) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        fillers.push(filler);
    }
    let (dependency, _proxy) = start(address, "  timeouts: {connect: 300ms, request: 15s}");
    let begun = Instant::now();
    let answer = Client::connect(dependency.listen).get("/");
    assert_eq!((answer.status, answer.reason()), (503, Some("ConnectFailure")), "{answer}");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn the_slow_clock_stands_still_while_the_caller_is_the_slow_one() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/slow" => upstream::after(Duration::from_millis(600), upstream::ok("ok")),
        _ => upstream::ok("ok"),
    });
    let spec = "  timeouts: {request: 15s}
  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 10, minimumNumberOfCalls: 1, slowCallRateThreshold: 50,
    slowCallDurationThreshold: 400ms, waitDurationInOpenState: 60s}";
    let (dependency, proxy) = start(server.address, spec);
    let mut client = Client::connect(dependency.listen);
    client.write("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf").unwrap();
    std::thread::sleep(Duration::from_millis(800));
    client.write("done").unwrap();
    assert_eq!(client.read_answer(false).unwrap().status, 200);
    assert_eq!(proxy.admin.circuit("fraud-api"), "Closed", "the caller was slow, not the dependency");
    assert_eq!(client.get("/slow").status, 200);
    assert_eq!(proxy.admin.circuit("fraud-api"), "Open", "and now it was the dependency");
}

/// Six events in 1.5 s.
fn events(kind: &str) -> Script {
    let mut script =
        vec![upstream::raw(&format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"))];
    for _ in 0..6 {
        script.extend([upstream::raw("9\r\ndata: 1\n\n\r\n"), Step::Wait(Duration::from_millis(250))]);
    }
    script.push(upstream::raw("0\r\n\r\n"));
    script
}

#[test]
fn a_stream_has_no_request_timeout() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/events" => events("text/event-stream; charset=utf-8"),
        _ => events("text/plain"),
    });
    let spec = "  timeouts: {request: 700ms}
  routes: [{name: export, match: {path: {prefix: /export}}, streaming: Always}]";
    let (dependency, _proxy) = start(server.address, spec);
    let whole = "data: 1\n\n".repeat(6);
    assert_eq!(Client::connect(dependency.listen).get("/events").text(), whole, "by its content type");
    assert_eq!(Client::connect(dependency.listen).get("/export").text(), whole, "by its route");
    let answer = Client::connect(dependency.listen).try_call("GET", "/other", &[], b"");
    assert!(matches!(answer, Err(Failure::Cut { .. })), "{answer:?}");
}

#[test]
fn a_stream_has_limits_of_its_own() {
    let server = Upstream::start(|_| events("text/event-stream"));
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 10s, streamMaxDuration: 600ms}");
    let begun = Instant::now();
    let answer = Client::connect(dependency.listen).try_call("GET", "/", &[], b"");
    assert!(matches!(answer, Err(Failure::Cut { .. })), "{answer:?}");
    assert!(begun.elapsed() >= Duration::from_millis(600));
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 10s, idle: 100ms}");
    let answer = Client::connect(dependency.listen).try_call("GET", "/", &[], b"");
    assert!(matches!(answer, Err(Failure::Cut { .. })), "events are 250 ms apart: {answer:?}");
}

#[test]
fn observe_cuts_nothing() {
    let server = Upstream::start(|_| upstream::after(Duration::from_millis(500), upstream::ok("late")));
    let (dependency, proxy) = start(server.address, "  timeouts: {mode: Observe, request: 100ms}");
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "late");
    let status = proxy.admin.dependency("fraud-api");
    assert_eq!(status["would_reject"]["RequestTimeout"], 1, "{status:#}");
}
