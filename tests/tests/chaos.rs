//! Everything goes wrong at once: servers that hang, reset, trickle and lie, callers that leave at any moment, policy
//! that changes meanwhile. Afterwards the proxy owes nobody anything. `SEED=n` starts from another seed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_tests::client::{Client, Failure};
use plimsoll_tests::eventually;
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::random::Random;
use plimsoll_tests::upstream::{self, Script, Step, Upstream};

const CALLERS: u64 = 24;
const CALLS: usize = 120;

/// One of the ways in which a server can behave.
fn misbehave(random: &mut Random) -> Script {
    let pause = Duration::from_millis(random.number() % 60);
    match random.below(14) {
        0 => vec![Step::Reset],
        1 => vec![Step::Close],
        2 => vec![Step::Hang],
        3 => vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), Step::Wait(pause), Step::Reset],
        4 => vec![upstream::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), Step::Close],
        5 => vec![upstream::raw("HTTP/1.1 200 OK\r\n\r\nto the end"), Step::Close],
        6 => vec![upstream::raw("nonsense\r\n\r\n")],
        7 => upstream::answer(503, &[("Retry-After", "0")], "busy"),
        8 => upstream::answer(500, &[], &"x".repeat(random.length())),
        9 => upstream::after(pause, upstream::ok("late")),
        10 => {
            let mut script = upstream::ok("and gone");
            script.push(Step::Close);
            script
        }
        11 => {
            vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), Step::Wait(pause), upstream::raw("ok")]
        }
        _ => upstream::ok(&"y".repeat(random.length())),
    }
}

/// One call of a caller that may leave at any point; true when it got a whole answer.
fn call(client: &mut Option<Client>, listen: std::net::SocketAddr, random: &mut Random) -> bool {
    let mut open = client.take().unwrap_or_else(|| Client::connect(listen));
    let body = random.length();
    let body = random.text(body);
    let head = match random.below(4) {
        0 => format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()),
        1 => format!("PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nIdempotency-Key: k\r\n\r\n", body.len()),
        2 => "GET /g HTTP/1.1\r\nHost: a\r\nx-envoy-expected-rq-timeout-ms: 40\r\n\r\n".to_owned(),
        _ => "GET /g HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    };
    let has_body = head.contains("Content-Length");
    if random.one_in(12) {
        let _ = open.write(&head.as_bytes()[..random.below(head.len())]);
        return false;
    }
    let mut sent = open.write(&head);
    if has_body {
        let whole = !random.one_in(10);
        let part = if whole { body.len() } else { body.len() / 2 };
        sent = sent.and_then(|()| open.write(&body[..part]));
        if !whole {
            return false;
        }
    }
    if sent.is_ok() && random.one_in(8) {
        return false; // leaves without its answer
    }
    match open.read_answer(false) {
        Ok(answer) => {
            // After an early answer to a body that did not arrive whole the proxy closes, and says so.
            if answer.keeps_alive() && sent.is_ok() {
                *client = Some(open);
            }
            true
        }
        Err(Failure::Stalled { status }) => panic!("no answer and no end: {status}"),
        Err(Failure::Nonsense(what)) => panic!("not HTTP: {what}"),
        Err(Failure::Cut { .. } | Failure::NoAnswer(_)) => true,
    }
}

#[test]
fn after_chaos_nothing_is_owed() {
    let seed: u64 = std::env::var("SEED").ok().map_or(1, |seed| seed.parse().expect("SEED is a number"));
    let dice = Mutex::new(Random::new(seed));
    let server = Upstream::start(move |_| misbehave(&mut dice.lock().expect("no panic under this lock")));
    let spec = "  timeouts: {connect: 500ms, request: 400ms, attempt: 250ms, idle: 300ms}
  bulkhead: {maxConcurrentCalls: 12, maxQueued: 10, maxWaitDuration: 100ms}
  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 30, minimumNumberOfCalls: 20, failureRateThreshold: 80,
    slowCallDurationThreshold: 150ms, waitDurationInOpenState: 50ms, maxWaitDurationInOpenState: 200ms,
    maxWaitDurationInHalfOpenState: 200ms}
  retry: {maxAttempts: 3, backoff: {base: 1ms, max: 20ms}, budget: {percent: 50, interval: 10s, minPerSecond: 10}}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let listen = dependency.listen;
    let over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let answered = answered.clone();
            std::thread::spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(1_000) + caller);
                let mut client = None;
                for _ in 0..CALLS {
                    if call(&mut client, listen, &mut random) {
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    let swapping = {
        let (over, admin, policy) = (over.clone(), proxy.admin.clone(), dependency.policy.clone());
        std::thread::spawn(move || {
            let mut round = 0;
            while !over.load(Ordering::SeqCst) {
                round += 1;
                let queued = format!("maxQueued: {}", 5 + round % 9);
                let (status, said) = admin.put_policy(&policy.replace("maxQueued: 10", &queued));
                assert_eq!(status, 200, "{said}");
                std::thread::park_timeout(Duration::from_millis(30));
            }
        })
    };
    for caller in callers {
        caller.join().expect("callers see answers or ends, never silence");
    }
    over.store(true, Ordering::SeqCst);
    swapping.join().expect("every policy was taken");

    assert!(answered.load(Ordering::SeqCst) > 1_000, "the run was not all departures");
    let state = || proxy.admin.dependency("fraud-api");
    eventually("every permit and place is back", || {
        let state = state();
        let bulkhead = &state["bulkheads"][0];
        (bulkhead["in_flight"] == 0) && (bulkhead["queued"] == 0) && (state["in_flight"] == 0)
    });
    eventually("callers' connections are closed", || proxy.admin.status()["connections"]["outbound"] == 0);
    eventually("hung servers were told", || server.in_flight() == 0);
    // The breaker is not stuck: with a server that behaves, calls come through again.
    let good = Upstream::start(|_| upstream::ok("good"));
    let healed = dependency.policy.replace(&server.address.to_string(), &good.address.to_string());
    assert_eq!(proxy.admin.put_policy(&healed).0, 200);
    eventually("calls come through", || Client::connect(listen).get("/").status == 200);
    eventually("the breaker closes", || {
        Client::connect(listen).get("/");
        proxy.admin.circuit("fraud-api") == "Closed"
    });
}
