//! The harness itself: what it says of a server without any proxy between must be true, or nothing else here is.

use std::time::Duration;

use plimsoll_tests::client::{Client, Failure};
use plimsoll_tests::eventually;
use plimsoll_tests::load::{self, Ask};
use plimsoll_tests::upstream::{self, Gate, Step, Upstream};

#[test]
fn without_a_proxy_all_callers_are_in_flight_together() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start(move |_| upstream::behind(&held, upstream::ok("ok")));
    let address = server.address;
    let callers = std::thread::spawn(move || load::at_once(address, 200, &Ask::get()));
    eventually("all are in flight", || server.in_flight() == 200);
    gate.open();
    assert!(callers.join().unwrap().into_iter().all(|answer| answer.unwrap().status == 200));
    assert_eq!(server.most_in_flight(), 200);
    assert_eq!(server.in_flight(), 0);
}

#[test]
fn cut_answers_are_seen_as_cut() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/length" => vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), Step::Close],
        "/chunked" => {
            vec![upstream::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"), Step::Close]
        }
        "/reset" => {
            vec![upstream::raw("HTTP/1.1 200 OK\r\n\r\nhalf"), Step::Wait(Duration::from_millis(20)), Step::Reset]
        }
        "/head" => vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-"), Step::Close],
        _ => vec![Step::Close],
    });
    for target in ["/length", "/chunked", "/reset", "/head"] {
        let answer = Client::connect(server.address).try_call("GET", target, &[], b"");
        assert!(matches!(answer, Err(Failure::Cut { .. })), "{target}: {answer:?}");
    }
    let answer = Client::connect(server.address).try_call("GET", "/none", &[], b"");
    assert!(matches!(answer, Err(Failure::NoAnswer(_))), "{answer:?}");
}

#[test]
fn framings_are_read() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/chunked" => vec![upstream::raw(
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n",
        )],
        "/echo" => upstream::ok(&String::from_utf8_lossy(&request.body)),
        _ => vec![upstream::raw("HTTP/1.0 200 OK\r\n\r\nto the end"), Step::Close],
    });
    let mut client = Client::connect(server.address);
    let answer = client.get("/chunked");
    assert_eq!((answer.text().as_str(), answer.interim.as_slice()), ("abcde", &[103][..]));
    assert_eq!(answer.trailers, [("X-Sum".to_owned(), "5".to_owned())]);
    assert_eq!(client.post("/echo", b"there and back").text(), "there and back");
    let chunked = b"5\r\nthere\r\n0\r\n\r\n";
    assert_eq!(client.call("POST", "/echo", &[("Transfer-Encoding", "chunked")], chunked).text(), "there");
    assert_eq!(client.get("/end").text(), "to the end");
    client.expect_closed();
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_caller_that_leaves_is_noticed() {
    let server = Upstream::start(|_| vec![Step::Hang]);
    let mut client = Client::connect(server.address);
    client.write("GET / HTTP/1.1\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    drop(client);
    eventually("the server notices", || server.abandoned() == 1);
}
