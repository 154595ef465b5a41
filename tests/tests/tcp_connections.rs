//! Connections whose bytes the proxy does not look into: what it keeps of them, and what of a policy acts on them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use plimsoll_tests::client::Client;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::{PATIENCE, address, eventually};

/// A server that does the same with each connection, and counts them.
struct Server {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

fn serve(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("a bound listener has an address");
    let (accepted, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
    let count = accepted.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let serve = serve.clone();
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
                serve(stream);
            });
        }
    });
    Server { address, accepted }
}

/// A server that hands its connections to the test.
fn handed() -> (Server, Receiver<TcpStream>) {
    let (sender, receiver): (Sender<TcpStream>, _) = channel();
    (serve(move |stream| drop(sender.send(stream))), receiver)
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn opaque(server: SocketAddr, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("ledger", server, &format!("    protocol: TCP\n{spec}"));
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    stream
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket takes it");
    drop(stream);
}

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an orderly end");
    all
}

/// One message there and back: the connection is through.
fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"ping")?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

#[track_caller]
fn expect_reset(stream: &mut TcpStream) {
    let ended = stream.read(&mut [0; 16]);
    assert!(matches!(&ended, Err(error) if error.kind() == ErrorKind::ConnectionReset), "{ended:?}");
}

fn rejections(proxy: &Proxy, reason: &str) -> f64 {
    proxy.admin.metric("plimsoll_rejections_total", &[("dependency", "shop/ledger"), ("reason", reason)])
}

#[test]
fn each_side_may_end_alone() {
    let (server, connections) = handed();
    let (dependency, _proxy) = opaque(server.address, "");
    // The caller has said all it has to say, and waits.
    let mut caller = connect(dependency.listen);
    caller.write_all(b"question").unwrap();
    caller.shutdown(Shutdown::Write).unwrap();
    let mut endpoint = connections.recv_timeout(PATIENCE).unwrap();
    assert_eq!(read_all(&mut endpoint), b"question");
    endpoint.write_all(b"answer").unwrap();
    drop(endpoint);
    assert_eq!(read_all(&mut caller), b"answer");
    // The other way.
    let mut caller = connect(dependency.listen);
    let mut endpoint = connections.recv_timeout(PATIENCE).unwrap();
    endpoint.write_all(b"greeting").unwrap();
    endpoint.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut caller), b"greeting");
    caller.write_all(b"and goodbye").unwrap();
    drop(caller);
    assert_eq!(read_all(&mut endpoint), b"and goodbye");
}

#[test]
fn a_reset_stays_a_reset() {
    let (server, connections) = handed();
    let (dependency, _proxy) = opaque(server.address, "");
    let mut caller = connect(dependency.listen);
    caller.write_all(b"x").unwrap();
    let mut endpoint = connections.recv_timeout(PATIENCE).unwrap();
    endpoint.read_exact(&mut [0]).unwrap();
    reset(caller);
    expect_reset(&mut endpoint);

    let mut caller = connect(dependency.listen);
    caller.write_all(b"x").unwrap();
    let mut endpoint = connections.recv_timeout(PATIENCE).unwrap();
    endpoint.read_exact(&mut [0]).unwrap();
    endpoint.write_all(b"y").unwrap();
    caller.read_exact(&mut [0]).unwrap();
    reset(endpoint);
    expect_reset(&mut caller);
}

/// Numbered bytes, so that one that is lost, repeated or out of place is seen.
fn numbered(length: usize) -> Vec<u8> {
    (0..length / 8).flat_map(usize::to_be_bytes).collect()
}

#[test]
fn every_byte_arrives_once_and_is_counted() {
    const LENGTH: usize = 48 << 20;
    let server = serve(echo);
    let (dependency, proxy) = opaque(server.address, "");
    let sent = numbered(LENGTH);
    let mut caller = connect(dependency.listen);
    let mut writer = caller.try_clone().unwrap();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        read_all(&mut caller)
    });
    assert!(received == sent, "{} bytes of {LENGTH} came back, or others", received.len());
    drop(caller);
    for name in ["plimsoll_tcp_received_bytes_total", "plimsoll_tcp_sent_bytes_total"] {
        eventually("its bytes are counted", || {
            proxy.admin.metric(name, &[("dependency", "shop/ledger")]) == LENGTH as f64
        });
    }
}

#[test]
fn no_more_connections_than_the_policy_allows() {
    let server = serve(echo);
    let (dependency, proxy) = opaque(server.address, "  bulkhead: {maxConnections: 3}");
    let mut held: Vec<TcpStream> = (0..3).map(|_| connect(dependency.listen)).collect();
    for stream in &mut held {
        exchange(stream).unwrap();
    }
    let mut refused = connect(dependency.listen);
    assert!(exchange(&mut refused).is_err());
    assert_eq!(rejections(&proxy, "BulkheadFull"), 1.0);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 3, "nothing was sent for the one that was refused");
    held.pop();
    eventually("its place is given back", || exchange(&mut connect(dependency.listen)).is_ok());
    assert!(held.iter_mut().all(|stream| exchange(stream).is_ok()), "the others never noticed");
}

#[test]
fn no_faster_than_the_policy_allows() {
    let server = serve(echo);
    let (dependency, proxy) = opaque(server.address, "  bulkhead: {connectionRate: 5/h}");
    // At once pass as many as one second brings, and at least one.
    let through = (0..20).filter(|_| exchange(&mut connect(dependency.listen)).is_ok()).count();
    assert_eq!(through, 1);
    assert_eq!(rejections(&proxy, "RateLimited"), 19.0);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_silent_connection_ends_when_its_idle_time_is_over() {
    let (server, connections) = handed();
    let (dependency, proxy) = opaque(server.address, "  timeouts: {idle: 300ms}");
    let mut caller = connect(dependency.listen);
    let mut endpoint = connections.recv_timeout(PATIENCE).unwrap();
    endpoint.write_all(b"hello").unwrap();
    caller.read_exact(&mut [0; 5]).unwrap();
    // Both sides are told, neither as if it had ended in order.
    expect_reset(&mut caller);
    expect_reset(&mut endpoint);
    eventually("it is counted", || rejections(&proxy, "IdleTimeout") == 1.0);
}

const BREAKER: &str = "  circuitBreaker: {consecutiveFailures: 3, minimumNumberOfCalls: 1000}";

#[test]
fn a_breaker_opens_when_nobody_is_there() {
    let nobody = address::reserve();
    let (dependency, proxy) = opaque(nobody, BREAKER);
    for _ in 0..3 {
        assert!(exchange(&mut connect(dependency.listen)).is_err());
    }
    assert_eq!(rejections(&proxy, "ConnectFailure"), 3.0);
    assert_eq!(proxy.admin.circuit("ledger"), "Open");
    assert!(exchange(&mut connect(dependency.listen)).is_err());
    assert_eq!(rejections(&proxy, "CircuitOpen"), 1.0);
}

#[test]
fn a_breaker_counts_resets_before_the_first_byte_and_none_after_it() {
    let early = serve(|mut stream| {
        let _ = stream.read(&mut [0; 16]);
        reset(stream);
    });
    let (dependency, proxy) = opaque(early.address, BREAKER);
    for _ in 0..3 {
        assert!(exchange(&mut connect(dependency.listen)).is_err());
    }
    eventually("the breaker has opened", || proxy.admin.circuit("ledger") == "Open");

    let late = serve(|mut stream| {
        let _ = stream.write_all(b"x");
        let _ = stream.read(&mut [0; 16]);
        reset(stream);
    });
    let (dependency, proxy) = opaque(late.address, BREAKER);
    for _ in 0..5 {
        let mut caller = connect(dependency.listen);
        caller.read_exact(&mut [0]).unwrap();
        caller.write_all(b"x").unwrap();
        expect_reset(&mut caller);
    }
    assert_eq!(proxy.admin.circuit("ledger"), "Closed");
}

/// The verdict of one connection must not spoil the next one's.
#[test]
fn a_port_where_several_protocols_are_spoken() {
    let server = serve(|mut stream| {
        let mut first = [0; 1];
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket takes a timeout");
        match stream.read(&mut first) {
            // An HTTP request; its head is short.
            Ok(1) if first[0] == b'G' => {
                let mut head = first.to_vec();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut more = [0; 1];
                    if stream.read(&mut more).is_ok_and(|count| count == 1) {
                        head.push(more[0]);
                    }
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhttp");
            }
            Ok(1) => {
                stream.write_all(&first).expect("the caller reads");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
                echo(stream);
            }
            Ok(_) => {}
            Err(_) => {
                let _ = stream.write_all(b"greeting");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
                echo(stream);
            }
        }
    });
    let dependency = listened("ledger", server.address, "  circuitBreaker: {}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    for round in 0..3 {
        let answer = Client::connect(dependency.listen).get("/");
        assert_eq!((answer.status, answer.text().as_str()), (200, "http"), "round {round}: {answer}");
        let mut binary = connect(dependency.listen);
        exchange(&mut binary).unwrap();
        exchange(&mut binary).unwrap();
        let mut silent = connect(dependency.listen);
        silent.read_exact(&mut [0; 8]).unwrap();
        exchange(&mut silent).unwrap();
    }
    assert_eq!(proxy.admin.circuit("ledger"), "Closed");
}

/// A policy for HTTP holds for a caller that takes its time.
#[test]
fn a_caller_that_is_slow_to_speak_is_still_understood() {
    let (server, connections) = handed();
    let dependency = listened("ledger", server.address, "  bulkhead: {maxConcurrentCalls: 1}");
    let proxy = Setup::new().policy(&dependency.policy).start();
    let mut client = Client::connect(dependency.listen);
    // Nobody speaks, so the server is dialled to hear whether it does.
    let mut endpoint = connections.recv_timeout(PATIENCE).unwrap();
    client.write("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut head = [0; 9];
    endpoint.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"GET /late");
    let refused = Client::connect(dependency.listen).get("/");
    assert_eq!(refused.reason(), Some("BulkheadFull"), "{refused}");
    endpoint.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert_eq!(client.read_answer(false).unwrap().text(), "ok");
    assert_eq!(rejections(&proxy, "BulkheadFull"), 1.0);
}
