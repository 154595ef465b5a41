//! Messages as they pass: framing, bodies in both directions, upgrades, and answers that are cut.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_tests::client::{Client, Failure};
use plimsoll_tests::eventually;
use plimsoll_tests::proxy::{Listened, Proxy, Setup, listened};
use plimsoll_tests::upstream::{self, Gate, Script, Step, Upstream};

fn start(server: SocketAddr, spec: &str) -> (Listened, Proxy) {
    let dependency = listened("fraud-api", server, spec);
    let proxy = Setup::new().policy(&dependency.policy).start();
    (dependency, proxy)
}

/// A server whose answer depends on the target alone.
fn answers(table: &'static [(&'static str, &'static str)]) -> Upstream {
    Upstream::start(move |request| {
        let (_, text) = table.iter().find(|(target, _)| *target == request.target).expect("a target of the table");
        let mut script = vec![upstream::raw(text)];
        if !text.contains("Content-Length") && !text.contains("chunked") && text.contains(" 200 ") {
            script.push(Step::Close);
        }
        script
    })
}

#[test]
fn every_framing_of_an_answer_passes() {
    let server = answers(&[
        ("/length", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"),
        ("/empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("/chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;ext=1\r\ndy\r\n0\r\n\r\n"),
        (
            "/trailers",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 4\r\n\r\n",
        ),
        ("/close", "HTTP/1.1 200 OK\r\n\r\nbody"),
        ("/old", "HTTP/1.0 200 OK\r\n\r\nbody"),
        ("/204", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("/304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\nETag: \"a\"\r\n\r\n"),
        ("/103", "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"),
    ]);
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    for target in ["/length", "/chunked", "/trailers", "/close", "/old", "/103"] {
        let answer = client.get(target);
        assert_eq!((answer.status, answer.text().as_str()), (200, "body"), "{target}: {answer}");
        assert!(answer.keeps_alive(), "{target}: {answer}");
    }
    assert_eq!(client.get("/empty").text(), "");
    assert_eq!(client.get("/204").status, 204);
    assert_eq!(client.get("/304").status, 304);
    assert!(client.get("/close").chunked, "a close-delimited answer goes to an HTTP/1.1 caller chunked");
    assert_eq!(client.get("/trailers").trailers, [("X-Sum".to_owned(), "4".to_owned())]);
    assert_eq!(client.get("/103").interim, [103]);
    assert_eq!(client.get("/length").text(), "body");
}

#[test]
fn head_has_the_fields_and_no_body() {
    let server = Upstream::start(|request| match request.method.as_str() {
        "HEAD" => vec![upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n")],
        _ => upstream::ok("body"),
    });
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    let answer = client.call("HEAD", "/", &[], b"");
    assert_eq!((answer.status, answer.field("content-length")), (200, Some("4000")), "{answer}");
    assert_eq!(client.get("/").text(), "body", "the connection is in step");
}

#[test]
fn bodies_of_requests_pass_whole() {
    let server = Upstream::start(|request| upstream::ok(&format!("{}", request.body.len())));
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    for size in [0, 1, 16 * 1024, 1_000_000, 20_000_000] {
        assert_eq!(client.post("/", &vec![b'x'; size]).text(), size.to_string());
    }
    let mut chunked = Vec::new();
    for _ in 0..1_000 {
        chunked.extend_from_slice(b"400\r\n");
        chunked.extend_from_slice(&[b'x'; 0x400]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let answer = client.call("POST", "/", &[("Transfer-Encoding", "chunked")], &chunked);
    assert_eq!(answer.text(), (0x400 * 1_000).to_string());
    assert_eq!(client.call("POST", "/", &[("Transfer-Encoding", "chunked")], b"0\r\n\r\n").text(), "0");
}

#[test]
fn requests_written_byte_by_byte_and_in_one_go_are_answered_in_order() {
    let server = Upstream::start(|request| upstream::ok(&format!("{} {}", request.target, request.body.len())));
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    for byte in b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" {
        client.write([*byte]).unwrap();
    }
    assert_eq!(client.read_answer(false).unwrap().text(), "/slow 3");
    let one = "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let two = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let three = "POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    client.write(format!("{one}{two}{three}{two}")).unwrap();
    for expected in ["/1 3", "/2 0", "/3 2", "/2 0"] {
        assert_eq!(client.read_answer(false).unwrap().text(), expected);
    }
}

fn resident_kib(proxy: &Proxy) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.process.id())).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a figure");
    resident.trim().trim_end_matches(" kB").parse().expect("KiB")
}

#[test]
fn long_uploads_wait_for_the_server() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start_early(move |_| {
        vec![
            Step::Ignore(held.clone()),
            upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"),
            Step::Close,
        ]
    });
    let (dependency, proxy) = start(server.address, "  timeouts: {request: 60s}");
    let mut client = Client::connect(dependency.listen);
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n").unwrap();
    client.stream().set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let block = vec![b'x'; 1 << 20];
    let mut taken = 0;
    // Once every buffer on the way is full, writing stops.
    while client.write(&block).is_ok() {
        taken += block.len();
        assert!(taken < 500_000_000, "the proxy takes whatever comes");
    }
    let kib = resident_kib(&proxy);
    assert!(kib < 64 * 1024, "{kib} KiB are resident");
    gate.open();
}

#[test]
fn long_bodies_stream_with_back_pressure() {
    const SIZE: usize = 256 * 1024 * 1024;
    let server = Upstream::start(|_| {
        vec![upstream::raw(&format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n")), Step::Fill(SIZE)]
    });
    let (dependency, proxy) = start(server.address, "  timeouts: {request: 60s}");
    let mut client = Client::connect(dependency.listen);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    client.read_head().unwrap();
    // Nobody reads: were there no back-pressure, the proxy would take all of it into memory.
    std::thread::sleep(Duration::from_millis(500));
    let kib = resident_kib(&proxy);
    assert!(kib < 64 * 1024, "{kib} KiB are resident");
    let mut rest = SIZE - client.raw().len();
    let mut buffer = vec![0; 1 << 20];
    while rest > 0 {
        let count = std::io::Read::read(&mut client.stream(), &mut buffer).unwrap();
        assert!(count > 0, "{rest} bytes are missing");
        rest -= count;
    }
}

#[test]
fn an_answer_that_is_cut_never_looks_whole() {
    let server = Upstream::start(|request| -> Script {
        let head = match request.target.as_str() {
            "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
            _ => "HTTP/1.1 200 OK\r\n\r\nhalf",
        };
        let end = if request.field("x-end") == Some("close") { Step::Close } else { Step::Reset };
        vec![upstream::raw(head), Step::Wait(Duration::from_millis(30)), end]
    });
    let (dependency, _proxy) = start(server.address, "");
    for (target, end) in
        [("/chunked", "close"), ("/chunked", "reset"), ("/length", "close"), ("/length", "reset"), ("/close", "reset")]
    {
        let answer = Client::connect(dependency.listen).try_call("GET", target, &[("X-End", end)], b"");
        let Err(Failure::Cut { status: 200, body }) = answer else { panic!("{target} {end}: {answer:?}") };
        assert_eq!(body, b"half", "{target} {end}");
    }
}

#[test]
fn an_http_1_0_caller_gets_no_chunks_and_sees_a_cut() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/whole" => vec![upstream::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")],
        _ => vec![
            upstream::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
            Step::Wait(Duration::from_millis(30)),
            Step::Close,
        ],
    });
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    client.write("GET /whole HTTP/1.0\r\n\r\n").unwrap();
    let answer = client.read_answer(false).unwrap();
    assert_eq!((answer.chunked, answer.text().as_str()), (false, "body"), "{answer}");
    let mut client = Client::connect(dependency.listen);
    client.write("GET /cut HTTP/1.0\r\n\r\n").unwrap();
    let answer = client.read_answer(false);
    assert!(matches!(answer, Err(Failure::Cut { .. })), "a FIN would look like the end: {answer:?}");
}

#[test]
fn hop_by_hop_fields_stay_on_their_hop() {
    let server = Upstream::start(|_| {
        let fields = [("Connection", "x-hop"), ("X-Hop", "1"), ("Keep-Alive", "timeout=100"), ("X-End", "2")];
        upstream::answer(200, &fields, "ok")
    });
    let (dependency, _proxy) = start(server.address, "");
    let fields = [
        ("Connection", "keep-alive, X-Private"),
        ("X-Private", "secret"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Connection", "keep-alive"),
        ("X-Kept", "yes"),
    ];
    let answer = Client::connect(dependency.listen).call("GET", "/", &fields, b"");
    assert_eq!((answer.field("x-hop"), answer.field("keep-alive"), answer.field("x-end")), (None, None, Some("2")));
    let seen = &server.seen()[0];
    for name in ["x-private", "keep-alive", "proxy-connection"] {
        assert_eq!(seen.field(name), None, "{name}");
    }
    assert_eq!(seen.field("x-kept"), Some("yes"));
    assert_eq!(seen.field("host"), Some("test.internal"), "Host passes unchanged");
}

#[test]
fn connection_may_not_name_an_end_to_end_field() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, _proxy) = start(server.address, "");
    let named =
        ["Host", "Content-Length", "Authorization", "Cookie", "Idempotency-Key", "traceparent", "x-criticality"];
    for name in named {
        let mut client = Client::connect(dependency.listen);
        let answer = client.call("GET", "/", &[("Connection", name)], b"");
        assert_eq!((answer.status, answer.reason()), (400, Some("MalformedRequest")), "{name}: {answer}");
    }
    assert_eq!(server.requests(), 0);
}

#[test]
fn a_websocket_upgrade_passes_and_bytes_flow_raw() {
    let server = Upstream::start(|request| {
        assert_eq!(request.field("upgrade"), Some("websocket"));
        assert_eq!(request.field("sec-websocket-key"), Some("AQIDBAUGBwgJCgsMDQ4PEC=="));
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        vec![upstream::raw(head), upstream::raw("hello"), Step::Echo]
    });
    let (dependency, _proxy) = start(server.address, "  timeouts: {request: 500ms}");
    let mut client = Client::connect(dependency.listen);
    let fields = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "AQIDBAUGBwgJCgsMDQ4PEC=="),
        ("Sec-WebSocket-Version", "13"),
    ];
    client.write(plimsoll_tests::client::request("GET", "/chat", &fields, b"")).unwrap();
    let (status, head) = client.read_head().unwrap();
    assert_eq!(status, 101, "{head:?}");
    while client.raw() != b"hello" {
        assert!(client.fill().unwrap() > 0);
    }
    // An upgrade has no request timeout.
    std::thread::sleep(Duration::from_millis(700));
    client.write(b"\x00\xffGET / HTTP/1.1\r\n\r\n").unwrap();
    while client.raw() != b"hello\x00\xffGET / HTTP/1.1\r\n\r\n" {
        assert!(client.fill().unwrap() > 0, "{:?}", client.raw());
    }
    drop(client);
    eventually("both sides are closed", || server.open_connections() == 0);
}

#[test]
fn an_upgrade_that_the_server_declines_is_an_ordinary_answer() {
    let server = Upstream::start(|_| upstream::answer(426, &[], "no"));
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    let answer = client.call("GET", "/", &[("Connection", "Upgrade"), ("Upgrade", "websocket")], b"");
    assert_eq!(answer.status, 426);
    assert_eq!(client.get("/").status, 426, "and HTTP goes on");
}

#[test]
fn every_other_upgrade_token_is_dropped() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let (dependency, _proxy) = start(server.address, "");
    for token in ["h2c", "TLS/1.0", "foo", "h2c, websocket2"] {
        let fields = [
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", token),
            ("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
        ];
        assert_eq!(Client::connect(dependency.listen).call("GET", "/", &fields, b"").status, 200, "{token}");
    }
    for request in server.seen() {
        for name in ["upgrade", "http2-settings"] {
            assert_eq!(request.field(name), None, "{name}");
        }
    }
}

#[test]
fn expect_100_continue_is_answered_by_the_server() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Upstream::start_early(move |request| {
        assert_eq!(request.field("expect"), Some("100-continue"));
        if request.target == "/no" {
            return upstream::answer(417, &[("Connection", "close")], "no");
        }
        vec![
            Step::Gate(held.clone()),
            upstream::raw("HTTP/1.1 100 Continue\r\n\r\n"),
            upstream::raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"),
        ]
    });
    let (dependency, _proxy) = start(server.address, "");
    let mut client = Client::connect(dependency.listen);
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").unwrap();
    server.wait_for_requests(1);
    gate.open();
    let (status, _) = client.read_head().unwrap();
    assert_eq!(status, 100);
    client.write("body").unwrap();
    assert_eq!(client.read_answer(false).unwrap().status, 200);
    let mut client = Client::connect(dependency.listen);
    client.write("POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").unwrap();
    assert_eq!(client.read_answer(false).unwrap().status, 417);
}

#[test]
fn nonsense_from_the_server_is_502_and_never_passed_on() {
    let nonsense: &'static [(&str, &str)] = &[
        ("/garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        ("/both", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("/two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody!"),
        ("/bad-length", "HTTP/1.1 200 OK\r\nContent-Length: four\r\n\r\nbody"),
        ("/bad-field", "HTTP/1.1 200 OK\r\nBad Field: 1\r\nContent-Length: 0\r\n\r\n"),
    ];
    let server = answers(nonsense);
    let (dependency, _proxy) = start(server.address, "");
    for (target, _) in nonsense {
        let answer = Client::connect(dependency.listen).get(target);
        assert_eq!((answer.status, answer.reason()), (502, Some("UpstreamProtocolError")), "{target}: {answer}");
        assert!(answer.text().contains("not a valid answer: "), "what is wrong is said: {answer}");
    }
    assert_eq!(server.connections(), nonsense.len(), "such a connection is not used again");
}

#[test]
fn bytes_after_an_answer_never_reach_another_caller() {
    let server = Upstream::start(|request| match request.target.as_str() {
        "/more" => vec![upstream::raw(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        )],
        _ => upstream::ok("clean"),
    });
    let (dependency, _proxy) = start(server.address, "");
    for _ in 0..10 {
        assert_eq!(Client::connect(dependency.listen).get("/more").text(), "ok");
        assert_eq!(Client::connect(dependency.listen).get("/other").text(), "clean");
    }
}
