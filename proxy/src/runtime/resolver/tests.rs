use std::collections::HashMap;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::sync::mpsc as threads;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;

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

type Reply = threads::Sender<io::Result<Vec<SocketAddr>>>;

/// A name server that says each name that it is asked for and waits for what to answer.
struct Scripted {
    asked: threads::Receiver<(String, Reply)>,
}

impl Scripted {
    fn start() -> (Resolver, Self) {
        let (ask, asked) = threads::channel();
        let resolver = Resolver::start_with(move |name| {
            let (reply, answer) = threads::channel();
            let _ = ask.send((name.to_owned(), reply));
            answer.recv().unwrap_or_else(|_| Err(io::Error::other("the test is over")))
        });
        (resolver.unwrap(), Self { asked })
    }

    fn next(&self, expected: &str) -> Reply {
        let (name, reply) = self.asked.recv().unwrap();
        assert_eq!(name, expected);
        reply
    }

    /// What has room when nothing is known of any name; threads ask in any order.
    fn next_24(&self) -> HashMap<String, Reply> {
        (0..24).map(|_| self.asked.recv().unwrap()).collect()
    }
}

#[test]
fn everyone_who_asks_for_a_name_waits_for_the_same_look_up() {
    let (resolver, server) = Scripted::start();
    let mut first = Box::pin(resolver.resolve("api.example", 80));
    let mut second = Box::pin(resolver.resolve("API.example", 443));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert_eq!(resolver.known("api.example", 80), None);
    server.next("api.example").send(Ok(vec![address(1, 0), address(1, 0), address(2, 0)])).unwrap();
    assert_eq!(run(first).unwrap(), [address(1, 80), address(2, 80)]);
    assert_eq!(run(second).unwrap(), [address(1, 443), address(2, 443)]);
    assert_eq!(resolver.known("api.example", 8080), Some(vec![address(1, 8080), address(2, 8080)]));
    assert!(server.asked.try_recv().is_err(), "one look-up");
}

#[test]
fn names_that_hang_for_callers_do_not_hold_up_a_watched_one() {
    let (resolver, server) = Scripted::start();
    let names: Vec<String> = (0..100).map(|number| format!("gone-{number}.example")).collect();
    let mut askers: Vec<_> = names.iter().map(|name| Box::pin(resolver.resolve(name, 80))).collect();
    assert!(askers.iter_mut().all(|asker| poll(asker).is_pending()));
    let hang = server.next_24();
    let resolved = Resolved::new("policy.example".to_owned(), 9000, Duration::from_millis(1));
    resolver.watch(&resolved);
    for _ in 0..3 {
        server.next("policy.example").send(Ok(vec![address(7, 0)])).unwrap();
    }
    assert_eq!(hang.len(), 24, "as many as there is room for");
}

#[test]
fn a_look_up_that_ends_makes_way_for_the_next() {
    let (resolver, server) = Scripted::start();
    let names: Vec<String> = (0..25).map(|number| format!("slow-{number}.example")).collect();
    let mut askers: Vec<_> = names.iter().map(|name| Box::pin(resolver.resolve(name, 80))).collect();
    assert!(askers.iter_mut().all(|asker| poll(asker).is_pending()));
    let hang = server.next_24();
    hang[&names[0]].send(Err(io::Error::other("no such name"))).unwrap();
    server.next(&names[24]).send(Ok(vec![address(3, 0)])).unwrap();
    assert_eq!(run(askers.pop().unwrap()).unwrap(), [address(3, 80)]);
    assert_eq!(run(askers.swap_remove(0)).unwrap_err().to_string(), "no such name");
}

#[test]
fn no_answer_is_an_error_that_says_why() {
    let (resolver, server) = Scripted::start();
    let mut asker = Box::pin(resolver.resolve("empty.example", 80));
    assert!(poll(&mut asker).is_pending());
    server.next("empty.example").send(Ok(Vec::new())).unwrap();
    assert_eq!(run(asker).unwrap_err().to_string(), "the name has no address");
    assert_eq!(resolver.known("empty.example", 80), None, "a failure is not an answer to connect to");
    let again = run(resolver.resolve("empty.example", 80)).unwrap_err();
    assert!(matches!(again, ResolveError::NoAddress), "held: the server was not asked");

    let panics = Resolver::start_with(|_| panic!("a test")).unwrap();
    assert_eq!(run(panics.resolve("a.example", 80)).unwrap_err().to_string(), "the resolver panicked");
}

#[test]
fn a_watched_name_keeps_its_addresses_through_failures() {
    let (resolver, server) = Scripted::start();
    let resolved = Resolved::new("policy.example".to_owned(), 9000, Duration::from_millis(1));
    let now = || resolved.load().iter().map(|endpoint| endpoint.address).collect::<Vec<_>>();
    resolver.watch(&resolved);
    server.next("policy.example").send(Ok(vec![address(1, 0)])).unwrap();
    // That the next look-up is begun says that the answer before has been taken.
    let second = server.next("policy.example");
    assert_eq!(now(), [address(1, 9000)]);
    second.send(Err(io::Error::other("server failure"))).unwrap();
    let third = server.next("policy.example");
    assert_eq!(now(), [address(1, 9000)]);
    third.send(Ok(Vec::new())).unwrap();
    let fourth = server.next("policy.example");
    assert_eq!(now(), [address(1, 9000)]);
    fourth.send(Ok(vec![address(2, 0), address(3, 0)])).unwrap();
    let _fifth = server.next("policy.example");
    assert_eq!(now(), [address(2, 9000), address(3, 9000)]);
}

#[test]
fn a_name_is_watched_for_as_long_as_anyone_holds_it() {
    let (resolver, server) = Scripted::start();
    let resolved = Resolved::new("policy.example".to_owned(), 9000, Duration::from_secs(3600));
    let watches = Watches::new(Arc::clone(&resolver.desk));
    let mut follows = Box::pin(watches.follow(Arc::downgrade(&resolved)));
    run(async {
        let mut follows = pin!(&mut follows);
        std::future::poll_fn(|context| {
            assert!(follows.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        let reply = server.next("policy.example");
        assert_eq!(Arc::strong_count(&resolved), 1, "a look-up keeps nothing alive");
        drop(resolved);
        reply.send(Ok(vec![address(1, 0)])).unwrap();
        follows.await;
    });
}

#[test]
fn the_systems_resolver_knows_localhost() {
    let resolver = Resolver::start().unwrap();
    let addresses = run(resolver.resolve("localhost", 80)).unwrap();
    assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 80), "{addresses:?}");
    assert_eq!(resolver.known("LOCALHOST", 80), Some(addresses));
}
