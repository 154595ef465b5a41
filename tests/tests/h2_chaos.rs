//! Everything goes wrong at once, on connections that calls share: servers that reset, refuse, leave, trickle and lie,
//! callers that give up streams or leave altogether, policy that changes meanwhile. Afterwards the proxy owes nobody
//! anything. `SEED=n` starts from another seed.

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_tests::eventually;
use plimsoll_tests::h2::frame::{self, code};
use plimsoll_tests::h2::{Server, Session, Stream, hpack, request};
use plimsoll_tests::proxy::{Proxy, Setup, listened};
use plimsoll_tests::random::Random;

const CALLERS: u64 = 16;
const ROUNDS: usize = 80;
/// What fits every window that there is.
const LONGEST: usize = 60_000;

fn head(stream: u32, ends: bool, fields: &[(&str, &str)]) -> Vec<u8> {
    frame::headers(stream, ends, hpack::block(fields))
}

fn body(stream: u32, ends: bool, length: usize) -> Vec<u8> {
    let block = vec![b'y'; length];
    let mut frames: Vec<u8> = block.chunks(16_384).flat_map(|part| frame::data(stream, false, part)).collect();
    if ends {
        frames.extend(frame::data(stream, true, b""));
    }
    frames
}

/// One of the ways in which a server can deal with a call; whether the connection goes on.
fn misbehave(session: &mut Session, stream: u32, random: &mut Random) -> bool {
    let length = random.length().min(LONGEST);
    let said = length.to_string();
    let whole =
        [head(stream, false, &[(":status", "200"), ("content-length", &said)]), body(stream, true, length)].concat();
    let frames = match random.below(40) {
        0 => frame::reset(stream, u32::try_from(random.below(15)).unwrap()),
        1 => frame::reset(stream, code::REFUSED_STREAM),
        2 => {
            let last = random.pick(&[0, stream, 0x7fff_ffff]);
            session.send(frame::goaway(last, random.pick(&[code::NO_ERROR, code::INTERNAL_ERROR])));
            return false;
        }
        3 => Vec::new(),
        4 => head(stream, false, &[(":status", "200")]),
        5 => [
            head(stream, false, &[(":status", "200")]),
            body(stream, false, length),
            frame::reset(stream, code::CANCEL),
        ]
        .concat(),
        6 => [head(stream, false, &[(":status", "200"), ("content-length", "7")]), body(stream, true, length)].concat(),
        7 => [
            head(stream, false, &[(":status", "200")]),
            body(stream, false, length),
            head(stream, true, &[("x-sum", "1")]),
        ]
        .concat(),
        8 => [head(stream, false, &[(":status", "103")]), whole].concat(),
        9 => head(stream, true, &[(":status", "503"), ("retry-after", "0")]),
        10 if random.one_in(4) => return false,
        11 if random.one_in(4) => b"\xff\xff\xff nonsense that is no frame at all".to_vec(),
        12 => {
            // Everyone on this connection waits.
            session.wait_for(Duration::from_millis(random.number() % 30), |_| false);
            whole
        }
        _ => whole,
    };
    session.send(frames)
}

fn serve(dice: &Mutex<Random>, session: &mut Session) {
    let mut random = Random::new(dice.lock().unwrap().number());
    let mut answered = 0;
    let next = |session: &Session, answered: u32| {
        session.streams.iter().find(|(id, stream)| **id > answered && !stream.blocks.is_empty()).map(|(id, _)| *id)
    };
    while session.wait(|session| next(session, answered).is_some()) {
        let Some(stream) = next(session, answered) else { return };
        answered = stream;
        if random.one_in(2) {
            // It may never end: then it is answered early.
            session.wait_for(Duration::from_millis(5), |session| session.stream(stream).is_over());
        }
        if !misbehave(session, stream, &mut random) {
            return;
        }
    }
}

/// Nothing that ended well may be other than what its server meant.
fn is_true(stream: &Stream) -> bool {
    let Some(answer) = stream.answer().filter(|answer| answer.ended && answer.status == 200) else { return true };
    let length = answer.field("content-length").map_or(answer.body.len(), |length| length.parse().unwrap());
    answer.body.len() == length && answer.body.iter().all(|byte| *byte == b'y')
}

/// A handful of calls at once, some of which are given up; whether the connection is to be kept.
fn call(session: &mut Session, random: &mut Random, served: &AtomicUsize) -> bool {
    let mut open = Vec::new();
    for _ in 0..=random.below(4) {
        let method = random.pick(&["GET", "POST", "PUT"]);
        let length = if method == "GET" { 0 } else { random.length().min(LONGEST) };
        let stream = session.begin(&request(method, "/"), length == 0);
        let whole = length == 0 || !random.one_in(10);
        if length > 0 {
            session.send(body(stream, whole, if whole { length } else { length / 2 }));
        }
        if !whole || random.one_in(8) {
            session.send(frame::reset(stream, code::CANCEL));
        } else {
            open.push(stream);
        }
    }
    if random.one_in(12) {
        return false;
    }
    let over = session.wait(|session| {
        let over = |stream: &u32| session.streams.get(stream).is_some_and(Stream::is_over);
        !session.goaways.is_empty() || open.iter().all(over)
    });
    assert!(over, "no answer and no end: {}", session.describe());
    assert_eq!(session.goaways, [], "the proxy has no reason to end this connection");
    assert!(session.streams.values().all(is_true), "{}", session.describe());
    let is_served = |stream: &Stream| stream.answer().is_some_and(|answer| answer.ended && answer.status == 200);
    served.fetch_add(session.streams.values().filter(|stream| is_served(stream)).count(), Ordering::SeqCst);
    session.streams.clear();
    true
}

fn call_for_a_while(listen: SocketAddr, mut random: Random, served: &AtomicUsize) {
    let mut session = Session::connect(listen);
    for _ in 0..ROUNDS {
        if !call(&mut session, &mut random, served) {
            session = Session::connect(listen);
        }
    }
}

fn swap_until(over: &AtomicBool, proxy: &Proxy, policy: &str) {
    let mut round = 0;
    while !over.load(Ordering::SeqCst) {
        round += 1;
        let queued = format!("maxQueued: {}", 5 + round % 9);
        let (status, said) = proxy.admin.put_policy(&policy.replace("maxQueued: 10", &queued));
        assert_eq!(status, 200, "{said}");
        std::thread::park_timeout(Duration::from_millis(30));
    }
}

#[test]
fn after_chaos_nothing_is_owed() {
    let seed: u64 = std::env::var("SEED").ok().map_or(1, |seed| seed.parse().expect("SEED is a number"));
    let dice = Mutex::new(Random::new(seed));
    let server = Server::start(&[], move |session, _| serve(&dice, session));
    let spec = "  timeouts: {connect: 500ms, request: 400ms, attempt: 250ms, idle: 300ms}
  bulkhead: {maxConcurrentCalls: 24, maxQueued: 10, maxWaitDuration: 100ms}
  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 30, minimumNumberOfCalls: 20, failureRateThreshold: 80,
    slowCallDurationThreshold: 150ms, waitDurationInOpenState: 50ms, maxWaitDurationInOpenState: 200ms,
    maxWaitDurationInHalfOpenState: 200ms}
  retry: {maxAttempts: 3, backoff: {base: 1ms, max: 20ms}, budget: {percent: 50, interval: 10s, minPerSecond: 10}}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let calling = |caller| {
            let random = Random::new(seed.wrapping_mul(1_000) + caller);
            let served = &served;
            scope.spawn(move || call_for_a_while(dependency.listen, random, served))
        };
        let callers: Vec<_> = (0..CALLERS).map(calling).collect();
        let swapping = scope.spawn(|| swap_until(&over, &proxy, &dependency.policy));
        let ended: Vec<_> = callers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        swapping.join().expect("every policy was taken");
        assert!(ended.iter().all(Result::is_ok), "callers see answers or ends, never silence");
    });

    let served = served.load(Ordering::SeqCst);
    println!("{served} calls were served");
    assert!(served > 50, "{served}: the run was not all departures");
    let state = || proxy.admin.dependency("fraud-api");
    eventually("every permit and place is back", || {
        let state = state();
        let bulkhead = &state["bulkheads"][0];
        (bulkhead["in_flight"] == 0) && (bulkhead["queued"] == 0) && (state["in_flight"] == 0)
    });
    eventually("callers' connections are closed", || proxy.admin.status()["connections"]["outbound"] == 0);
    // The breaker is not stuck: with a server that behaves, calls come through again.
    let good = Server::answering("good");
    let healed = dependency.policy.replace(&server.address.to_string(), &good.address.to_string());
    assert_eq!(proxy.admin.put_policy(&healed).0, 200);
    eventually("calls come through", || Session::connect(dependency.listen).get("/").status == 200);
    eventually("the breaker closes", || {
        Session::connect(dependency.listen).get("/");
        proxy.admin.circuit("fraud-api") == "Closed"
    });
}
