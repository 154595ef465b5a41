//! What is not HTTP/1.1, or only looks like it, gets 400, a closed connection, and never reaches a dependency.

use std::time::{Duration, Instant};

use plimsoll_tests::client::Client;
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::upstream::{self, Upstream};

/// Name, bytes, expected status.
fn cases() -> Vec<(&'static str, Vec<u8>, u16)> {
    let text: &[(&str, &str)] = &[
        ("no version", "GET /\r\nHost: a\r\n\r\n"),
        ("lower case version", "GET / http/1.1\r\nHost: a\r\n\r\n"),
        ("two spaces", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("space in target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("no target", "GET HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("control in target", "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("method with a colon", "GE:T / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("no host", "GET / HTTP/1.1\r\nAccept: a\r\n\r\n"),
        ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        ("host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        ("host with user", "GET / HTTP/1.1\r\nHost: me@a\r\n\r\n"),
        ("space before colon", "GET / HTTP/1.1\r\nHost: a\r\nX-A : 1\r\n\r\n"),
        ("space before name", "GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
        ("no colon", "GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n"),
        ("empty name", "GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n"),
        ("name with a bracket", "GET / HTTP/1.1\r\nHost: a\r\nX[a]: 1\r\n\r\n"),
        ("NUL in value", "GET / HTTP/1.1\r\nHost: a\r\nX-A: a\0b\r\n\r\n"),
        ("bare CR in value", "GET / HTTP/1.1\r\nHost: a\r\nX-A: a\rb\r\n\r\n"),
        ("folded field", "GET / HTTP/1.1\r\nHost: a\r\nX-A: a\r\n b\r\n\r\n"),
        (
            "length and chunked",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"),
        ("length list", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nabcdef"),
        ("negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
        ("signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nabcde"),
        ("hex length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nabcde"),
        ("huge length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        ("empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n"),
        ("chunked not last", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
        ("chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
        ("hidden chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ("identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na"),
        ("chunked in 1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("space before chunked colon", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        (
            "underscored length twin",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5 5\r\n\r\nabcde",
        ),
    ];
    let mut cases: Vec<_> = text.iter().map(|(name, text)| (*name, text.as_bytes().to_vec(), 400)).collect();
    // Well-formed, of a protocol that is not spoken here (RFC 9110 15.6.6).
    cases.push(("unknown version", b"GET / HTTP/3.7\r\nHost: a\r\n\r\n".to_vec(), 505));
    cases.push(("broken preface", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec(), 505));
    let long = |count: usize| "a".repeat(count);
    cases.push(("long target", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", long(17_000)).into(), 414));
    cases.push(("long field", format!("GET / HTTP/1.1\r\nHost: a\r\nX-A: {}\r\n\r\n", long(70_000)).into(), 431));
    let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    cases.push(("many fields", format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n").into(), 431));
    cases.push(("endless head", format!("GET / HTTP/1.1\r\nHost: a\r\nX-A: {}", long(300_000)).into(), 431));
    cases
}

#[test]
fn malformed_heads_get_an_answer_a_close_and_nothing_else() {
    let server = Upstream::start(|_| upstream::ok("reached"));
    let dependency = listened("fraud-api", server.address, "");
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let mut wrong = Vec::new();
    for (name, bytes, status) in cases() {
        let mut client = Client::connect(dependency.listen);
        // A proxy that has seen enough may close before all is written.
        let _ = client.write(&bytes);
        match client.read_answer(false) {
            Ok(answer) if answer.status == status && !answer.keeps_alive() => {
                client.expect_closed();
            }
            Ok(answer) => wrong.push(format!(
                "{name}: {} instead of {status}, keeps alive: {}",
                answer.status,
                answer.keeps_alive()
            )),
            Err(failure) => wrong.push(format!("{name}: {failure:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(server.requests(), 0, "{:?}", server.seen());
    assert_eq!(Client::connect(dependency.listen).get("/").text(), "reached", "and others are served");
}

#[test]
fn malformed_chunks_end_the_call_on_both_sides() {
    let server = Upstream::start(|_| upstream::ok("whole"));
    let dependency = listened("fraud-api", server.address, "");
    let _proxy = Setup::new().policy(&dependency.policy).start();
    let bodies = [
        "zz\r\nab\r\n0\r\n\r\n",
        "-1\r\na\r\n0\r\n\r\n",
        "0x2\r\nab\r\n0\r\n\r\n",
        "2\r\nabXX0\r\n\r\n",
        "2 \nab\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nab\r\n0\r\n\r\n",
        "2\r\nab\r\n0\r\nbad trailer\r\n\r\n",
        "\r\n\r\n",
    ];
    for body in bodies {
        let mut client = Client::connect(dependency.listen);
        client.write(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")).unwrap();
        let answer = client.read_answer(false).unwrap_or_else(|failure| panic!("{body:?}: {failure:?}"));
        assert_eq!((answer.status, answer.reason()), (400, Some("MalformedRequest")), "{body:?}: {answer}");
        client.expect_closed();
    }
    assert_eq!(server.requests(), 0, "a body that never became whole was never answered");
}

#[test]
fn good_input_that_looks_odd_is_served() {
    let server = Upstream::start(|request| upstream::ok(&request.body.len().to_string()));
    let dependency = listened("fraud-api", server.address, "");
    let _proxy = Setup::new().policy(&dependency.policy).start();
    for (text, expected) in [
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "0"),
        ("GET / HTTP/1.1\r\nHost:\ta \t\r\n\r\n", "0"),
        ("GET /?q=%00%zz{}|^ HTTP/1.1\r\nHost: a\r\n\r\n", "0"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX-Latin: caf\u{e9}\r\n\r\n", "0"),
        ("M-SEARCH / HTTP/1.1\r\nHost: a\r\n\r\n", "0"),
        ("GET / HTTP/1.0\r\n\r\n", "0"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "0"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", "2"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", "2"),
        ("POST / HTTP/1.1\r\nhOST: a\r\ntransfer-ENCODING: Chunked\r\n\r\n02;a=\"b\"\r\nab\r\n000\r\n\r\n", "2"),
    ] {
        let mut client = Client::connect(dependency.listen);
        client.write(text).unwrap();
        let answer = client.read_answer(false).unwrap_or_else(|failure| panic!("{text:?}: {failure:?}"));
        // Two equal lengths may be taken as one or refused (RFC 9112 6.3); both are safe.
        if text.matches("Content-Length").count() == 2 && answer.status == 400 {
            continue;
        }
        assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{text:?}: {answer}");
    }
}

#[test]
fn slow_heads_are_timed_out_and_harm_nobody() {
    let server = Upstream::start(|_| upstream::ok("ok"));
    let dependency = listened("fraud-api", server.address, "");
    let _proxy = Setup::new().workers(1).policy(&dependency.policy).start();
    let mut slow: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::connect(dependency.listen);
            client.write("GET / HTTP/1.1\r\nHost: a\r\nX-Slow").unwrap();
            client
        })
        .collect();
    let begun = Instant::now();
    let load = Load::start(dependency.listen, 8, &Ask::get());
    // A byte now and then does not buy time: the clock of the head runs from its first byte.
    for _ in 0..4 {
        std::thread::sleep(Duration::from_secs(2));
        for client in &mut slow {
            let _ = client.write("w");
        }
    }
    for client in &mut slow {
        let answer = client.read_answer(false).expect("an answer");
        assert_eq!((answer.status, answer.reason()), (408, Some("RequestHeadTimeout")), "{answer}");
        client.expect_closed();
    }
    assert!(begun.elapsed() >= Duration::from_secs(9), "not before its 10 s: {:?}", begun.elapsed());
    let tally = load.finish();
    assert!(tally.failures.is_empty() && tally.ok() == tally.answers() && tally.ok() > 100, "{tally:?}");
}
