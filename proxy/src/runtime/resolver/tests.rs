use std::collections::HashMap;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::sync::mpsc as threads;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;

use super::answer::Answer;
use super::services::Services;
use super::system::Asking;
use super::*;

const TTL: Duration = Duration::from_secs(30);

fn address(last: u8, port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, last), port).into()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

type Reply = oneshot::Sender<Found>;

/// Says each name that it is asked for, and waits for what to answer.
struct Scripted {
    asked: threads::Receiver<(Arc<str>, Reply)>,
}

struct Script {
    ask: threads::Sender<(Arc<str>, Reply)>,
}

impl Source for Script {
    fn addresses(&self, name: Arc<str>) -> Asking<Answer> {
        let (reply, answer) = oneshot::channel();
        // The test may be over.
        let _ = self.ask.send((name, reply));
        Box::pin(async move { answer.await.unwrap_or(Err(ResolveError::Ended)) })
    }

    fn services(&self, _: Arc<str>) -> Asking<Services> {
        Box::pin(async { Err(ResolveError::NoName) })
    }
}

impl Scripted {
    fn new() -> (Arc<Script>, Self) {
        let (ask, asked) = threads::channel();
        (Arc::new(Script { ask }), Self { asked })
    }

    fn start() -> (Resolver, Self) {
        let (script, scripted) = Self::new();
        (Resolver::start_with(script).unwrap(), scripted)
    }

    fn next(&self, expected: &str) -> Reply {
        let (name, reply) = self.asked.recv().unwrap();
        assert_eq!(&*name, expected);
        reply
    }

    /// What has room when nothing is known of any name; they are asked for in any order.
    fn next_24(&self) -> HashMap<Arc<str>, Reply> {
        (0..24).map(|_| self.asked.recv().unwrap()).collect()
    }
}

fn answer(addresses: impl IntoIterator<Item = u8>) -> Found {
    Answer::with_scopes(addresses.into_iter().map(|last| address(last, 0)), TTL)
}

fn watched(refresh: Duration) -> Arc<Resolved> {
    Resolved::new("policy.example".to_owned(), Some(9000), Some(refresh))
}

#[test]
fn everyone_who_asks_for_a_name_waits_for_the_same_look_up() {
    let (resolver, server) = Scripted::start();
    let mut first = Box::pin(resolver.resolve("api.example", 80, Asker::Unlisted));
    let mut second = Box::pin(resolver.resolve("API.example", 443, Asker::Unlisted));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert_eq!(resolver.known("api.example", 80), None);
    server.next("api.example").send(answer([1, 1, 2])).unwrap();
    assert_eq!(run(first).unwrap(), [address(1, 80), address(2, 80)]);
    assert_eq!(run(second).unwrap(), [address(1, 443), address(2, 443)]);
    assert_eq!(resolver.known("api.example", 8080), Some(vec![address(1, 8080), address(2, 8080)]));
    assert!(server.asked.try_recv().is_err(), "one look-up");
}

#[test]
fn who_has_a_connection_uses_it_on_and_has_the_name_followed() {
    let (resolver, server) = Scripted::start();
    let mut asker = Box::pin(resolver.resolve("api.example", 80, Asker::Dependency));
    assert!(poll(&mut asker).is_pending());
    server.next("api.example").send(answer([1])).unwrap();
    assert_eq!(run(asker).unwrap(), [address(1, 80)]);
    assert_eq!(resolver.known("api.example", 80), Some(vec![address(1, 80)]));
    assert!(server.asked.try_recv().is_err(), "it holds still");
    // Its time is over.
    let over = Instant::now().checked_sub(2 * TTL).unwrap();
    let mut names = resolver.desk.names(Asker::Dependency);
    let _told = names.ask("old.example", over);
    let name = names.poll_next(over).unwrap();
    names.on_answer(&name, answer([2]), over);
    drop(names);
    assert_eq!(resolver.known("old.example", 80), Some(vec![address(2, 80)]));
    server.next("old.example").send(answer([3])).unwrap();
    let mut fresh = Box::pin(resolver.resolve("old.example", 80, Asker::Dependency));
    assert_eq!(run(&mut fresh).unwrap(), [address(3, 80)]);
}

#[test]
fn names_that_hang_for_callers_hold_up_none_of_a_policy() {
    let (resolver, server) = Scripted::start();
    let names: Vec<String> = (0..300).map(|number| format!("gone-{number}.example")).collect();
    let mut askers: Vec<_> = names.iter().map(|name| Box::pin(resolver.resolve(name, 80, Asker::Unlisted))).collect();
    let waiting = askers.iter_mut().map(|asker| poll(asker).is_pending()).filter(|waits| *waits).count();
    assert_eq!(waiting, names::MOST, "the rest is refused");
    let hang = server.next_24();
    assert_eq!(hang.len(), 24, "as many as there is room for");

    let mut of_policy = Box::pin(resolver.resolve("fraud.example", 80, Asker::Dependency));
    assert!(poll(&mut of_policy).is_pending());
    server.next("fraud.example").send(answer([8])).unwrap();
    assert_eq!(run(of_policy).unwrap(), [address(8, 80)]);

    let resolved = watched(Duration::from_millis(1));
    resolver.watch(&resolved);
    for _ in 0..3 {
        server.next("policy.example").send(answer([7])).unwrap();
    }
}

#[test]
fn a_look_up_that_ends_makes_way_for_the_next() {
    let (resolver, server) = Scripted::start();
    let names: Vec<String> = (0..25).map(|number| format!("slow-{number}.example")).collect();
    let mut askers: Vec<_> = names.iter().map(|name| Box::pin(resolver.resolve(name, 80, Asker::Unlisted))).collect();
    assert!(askers.iter_mut().all(|asker| poll(asker).is_pending()));
    let mut hang = server.next_24();
    hang.remove(&*names[0]).unwrap().send(Err(ResolveError::NoName)).unwrap();
    server.next(&names[24]).send(answer([3])).unwrap();
    assert_eq!(run(askers.pop().unwrap()).unwrap(), [address(3, 80)]);
    assert_eq!(run(askers.swap_remove(0)).unwrap_err().to_string(), "there is no such name");
}

#[test]
fn no_answer_is_an_error_that_says_why() {
    let (resolver, server) = Scripted::start();
    let mut asker = Box::pin(resolver.resolve("empty.example", 80, Asker::Unlisted));
    assert!(poll(&mut asker).is_pending());
    server.next("empty.example").send(answer([])).unwrap();
    assert_eq!(run(asker).unwrap_err().to_string(), "the name has no address");
    assert_eq!(resolver.known("empty.example", 80), None, "a failure is not an answer to connect to");
    let again = run(resolver.resolve("empty.example", 80, Asker::Unlisted)).unwrap_err();
    assert!(matches!(again, ResolveError::NoAddress), "held: the server was not asked");
}

#[test]
fn a_look_up_that_panics_is_an_answer() {
    struct Panics;
    impl Source for Panics {
        fn addresses(&self, _: Arc<str>) -> Asking<Answer> {
            Box::pin(async { panic!("a test") })
        }

        fn services(&self, _: Arc<str>) -> Asking<Services> {
            Box::pin(async { panic!("a test") })
        }
    }
    let resolver = Resolver::start_with(Arc::new(Panics)).unwrap();
    for name in ["a.example", "b.example"] {
        let error = run(resolver.resolve(name, 80, Asker::Unlisted)).unwrap_err();
        assert_eq!(error.to_string(), "no name server could answer: the look-up has panicked");
    }
}

#[test]
fn a_name_is_watched_for_as_long_as_anyone_holds_it() {
    let (script, server) = Scripted::new();
    let resolved = watched(Duration::from_secs(3600));
    let mut follows = Box::pin(Watches::new(script).follow(Arc::downgrade(&resolved)));
    run(async {
        let mut follows = pin!(&mut follows);
        std::future::poll_fn(|context| {
            assert!(follows.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        tokio::task::yield_now().await;
        let reply = server.next("policy.example");
        assert_eq!(Arc::strong_count(&resolved), 1, "a look-up keeps nothing alive");
        drop(resolved);
        reply.send(answer([1])).unwrap();
        follows.await;
    });
}

#[test]
fn the_machine_knows_localhost() {
    let resolver = Resolver::start(Vec::new()).unwrap();
    let addresses = run(resolver.resolve("localhost", 80, Asker::Unlisted)).unwrap();
    assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 80), "{addresses:?}");
    assert_eq!(resolver.known("LOCALHOST", 80), Some(addresses));
}
