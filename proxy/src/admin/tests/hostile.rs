//! Peers that are broken, slow, greedy or many.

use std::io::{BufRead as _, BufReader};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::answer::Answer;
use super::super::connection::{self, MAX_BODY, Pages, Reply, Request, Times};
use super::*;

#[test]
fn malformed_requests_are_refused_and_the_connection_ends() {
    let proxy = served();
    let cases: [(&[u8], u16); 12] = [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /status\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\nHost: localhost\n\n", 400),
        (b"GET /status HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"PUT /policy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"PUT /policy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 2\r\n\r\n", 400),
        (b"PUT /policy HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"GET http://localhost/status HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 400),
    ];
    for (bytes, want) in cases {
        for address in [proxy.admin, proxy.health] {
            // `exchange` returns only when the connection has ended.
            let answer = exchange(address, bytes);
            assert_eq!(split(&answer).0, want, "{}", String::from_utf8_lossy(bytes));
            assert!(answer.contains("\r\nConnection: close\r\n"));
        }
    }
    assert_eq!(ask(proxy.admin, "GET /live", &[], "").0, 200);
}

#[test]
fn heads_and_targets_have_limits() {
    let proxy = served();
    let long = "x".repeat(20_000);
    let target = format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(split(&exchange(proxy.admin, target.as_bytes())).0, 414);
    let field = format!("GET /status HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    assert_eq!(split(&exchange(proxy.admin, field.as_bytes())).0, 431);
    let many = format!("GET /status HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(100));
    assert_eq!(split(&exchange(proxy.admin, many.as_bytes())).0, 431);
}

#[test]
fn a_body_beyond_the_limit_is_refused_before_and_while_it_is_read() {
    let proxy = served();
    let token = bearer();
    let body = "x".repeat(MAX_BODY + 1);
    // The whole body is sent whatever is answered, as curl does; the answer must survive that.
    let (status, answer) = ask(proxy.admin, "PUT /policy", &[&token], &body);
    assert_eq!(status, 413, "{answer}");
    let chunked = format!(
        "PUT /policy HTTP/1.1\r\nHost: localhost\r\n{token}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    assert_eq!(split(&exchange(proxy.admin, chunked.as_bytes())).0, 413);
    assert!(proxy.control.put.lock().unwrap().is_empty());
    let (status, _) = ask(proxy.admin, "PUT /policy", &[&token], &body[..MAX_BODY]);
    assert_eq!((status, proxy.control.put.lock().unwrap().len()), (200, 1));
}

#[test]
fn a_body_without_the_token_is_not_even_waited_for() {
    let proxy = served();
    let request = b"PUT /policy HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 500\r\n\r\n";
    let mut stream = connect(proxy.admin);
    stream.write_all(request).unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 401 Unauthorized\r\n");
}

#[test]
fn a_broken_chunk_is_refused_and_nothing_is_applied() {
    let proxy = served();
    let token = bearer();
    let request =
        format!("PUT /policy HTTP/1.1\r\nHost: localhost\r\n{token}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!(split(&exchange(proxy.admin, request.as_bytes())).0, 400);
    let cut = format!("PUT /policy HTTP/1.1\r\nHost: localhost\r\n{token}\r\nContent-Length: 10\r\n\r\nkind");
    let mut stream = connect(proxy.admin);
    stream.write_all(cut.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "", "half a policy is no policy");
    assert!(proxy.control.put.lock().unwrap().is_empty());
}

#[test]
fn a_flood_of_silent_connections_locks_nobody_out() {
    let proxy = served();
    for address in [proxy.admin, proxy.health] {
        let silent: Vec<_> = (0..200).map(|_| connect(address)).collect();
        assert_eq!(ask(address, "GET /live", &[], "").0, 200);
        drop(silent);
    }
}

#[test]
fn a_panic_while_a_policy_is_applied_is_answered_and_survived() {
    struct Broken(FakeControl);
    impl Control for Broken {
        fn ready(&self) -> bool {
            true
        }
        fn facts(&self) -> Facts {
            self.0.facts()
        }
        fn policy(&self) -> String {
            String::new()
        }
        fn config_dump(&self) -> serde_json::Value {
            serde_json::Value::Null
        }
        async fn put_policy(&self, _: String, _: String) -> PutAnswer {
            panic!("a fault of ours, made by a test")
        }
        fn force(&self, _: &ForceOrder) -> Result<(), ForceRefused> {
            Ok(())
        }
        fn drain(&self) {}
        fn published(&self, _: &Published) {}
    }
    let (report, collector) = Report::new(None).unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let listeners = Listeners::bind(loopback, loopback).unwrap();
    let admin = listeners.admin_address().unwrap();
    let control = Arc::new(Broken(FakeControl::default()));
    let _thread = listeners.start(control, report, collector, Token::known(TOKEN)).unwrap();
    assert_eq!(ask(admin, "PUT /policy", &[&bearer()], "x").0, 500);
    assert_eq!(ask(admin, "GET /live", &[], "").0, 200);
}

/// Answers everything with its body.
struct Echo;

impl Pages for Echo {
    fn admit(&self, _: &Request) -> Result<(), Answer> {
        Ok(())
    }

    async fn serve(&self, request: Request) -> Reply {
        Reply::Answer(Answer::text(200, "text/plain", request.body))
    }
}

/// What a peer sees that sends `bytes` and then nothing, with limits so short that only patience is tested.
fn patience(bytes: &'static [u8], times: Times) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        peer.write_all(bytes).await.unwrap();
        let mut seen = String::new();
        let (read, ()) = tokio::join!(peer.read_to_string(&mut seen), connection::serve(stream, &Echo, &times));
        read.unwrap();
        seen
    })
}

const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_head_that_trickles_is_given_up() {
    let times = Times { head: SHORT, linger: SHORT, ..Times::DEFAULT };
    assert_eq!(split(&patience(b"GET /status HTTP/1.1\r\nHost: localhost\r\n", times)).0, 408);
}

#[test]
fn a_body_that_does_not_come_is_given_up() {
    let times = Times { body: SHORT, linger: SHORT, ..Times::DEFAULT };
    let bytes = b"PUT /policy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nki";
    assert_eq!(split(&patience(bytes, times)).0, 408);
}

#[test]
fn a_silent_connection_is_closed_without_a_word() {
    let times = Times { idle: SHORT, ..Times::DEFAULT };
    assert_eq!(patience(b"", times), "");
    let answered = patience(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", times);
    assert_eq!(split(&answered), (200, String::new()));
}

#[test]
fn a_reader_of_events_that_fell_behind_is_told_how_many_it_missed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let text = runtime.block_on(async {
        let (sender, subscription) = tokio::sync::broadcast::channel(4);
        for n in 0..10 {
            sender.send(Arc::new(crate::report::Message { kind: "circuit", data: n.to_string() })).unwrap();
        }
        drop(sender);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        super::super::events::stream(&mut stream, subscription).await.unwrap();
        let mut seen = String::new();
        peer.read_to_string(&mut seen).await.unwrap();
        seen
    });
    let (_, events) = split(&text);
    let body = events.split_once(": connected\n\n").unwrap().1;
    assert!(body.starts_with("event: missed\ndata: {\"missed\":6}\n\nevent: circuit\ndata: 6\n\n"), "{body}");
    assert!(body.ends_with("data: 9\n\n"), "{body}");
}
