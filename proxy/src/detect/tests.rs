use proptest::prelude::*;

use super::*;

/// A ClientHello with these extensions, as one handshake message.
fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let extensions: Vec<u8> =
        extensions.iter().flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &vector16(content)].concat()).collect();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[32],
        &[9; 32],
        // GREASE among the cipher suites.
        &vector16(&[0x1a, 0x1a, 0x13, 0x01]),
        &[1, 0],
        &vector16(&extensions),
    ]
    .concat();
    [&[1][..], &u32::try_from(body.len()).unwrap().to_be_bytes()[1..], &body].concat()
}

fn vector16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn server_name(name: &[u8]) -> (u16, Vec<u8>) {
    (0, vector16(&[&[0][..], &vector16(name)].concat()))
}

fn alpn(names: &[&str]) -> (u16, Vec<u8>) {
    let names: Vec<u8> = names.iter().flat_map(|name| [&[name.len() as u8], name.as_bytes()].concat()).collect();
    (16, vector16(&names))
}

fn grease() -> (u16, Vec<u8>) {
    (0x5a5a, vec![0])
}

/// In records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vector16(part)].concat()).collect()
}

fn tls(name: &str) -> Peek {
    named(Some(name))
}

fn named(name: Option<&str>) -> Peek {
    Peek::Is(Verdict::Tls(Hello { server_name: name.map(Into::into), alpn: Vec::new() }))
}

#[test]
fn first_bytes_say_what_a_connection_carries() {
    let long = "a".repeat(20_000);
    let http: &[&str] = &[
        "GET / HTTP/1.1\r\n",
        "GET /",
        "DELETE /a b",
        "VERSION-CONTROL /x",
        "GET http://a/ HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.0\n",
        "CONNECT a:443 HTTP/1.1\r\n",
        "\r\n\r\nGET /",
        "FROB / HTTP/1.1\r\nHost: a\r\n",
        "get / http/1.1\r\n",
        "GE:T / HTTP/1.1\r\n",
        "GET\t/\tHTTP/1.1\r\n",
        "GET  / HTTP/1.1 \r\n",
        "GET HTTP/1.1\r\n",
        "GET / HTTP/3.7\r\n",
        "PRI * HTTP/2.0\r\n\r\nXM\r\n\r\n",
        &format!("GET {long}"),
    ];
    for bytes in http {
        assert_eq!(peek(bytes.as_bytes()), Peek::Is(Verdict::Http1), "{bytes:?}");
    }
    let opaque: &[&[u8]] = &[
        // PostgreSQL: SSLRequest, StartupMessage.
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
        b"\x00\x00\x00\x29\x00\x03\x00\x00user\0postgres\0",
        // Redis: RESP, and inline as in health checks.
        b"*1\r\n$4\r\nPING\r\n",
        b"PING\r\n",
        b"GET key\r\n",
        b"SET key value\r\n",
        // memcached, text and binary.
        b"get /views/a\r\n",
        b"\x80\x00\x00\x01",
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"EHLO mail.example.com\r\n",
        b"\x3a\x00\x00\x00\x01\x00\x00\x00",
        b"\x16\x02\x00",
        b"\x16\x03\x05",
        // An alert, and a handshake message that is not the first of a client.
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x03\x00\x04\x02\x00\x00\x00",
        b" / HTTP/1.1\r\n",
        b"GET x\x01",
        &[b'a'; 100],
        &[b"a ".as_slice(), long.as_bytes()].concat(),
    ];
    for bytes in opaque {
        assert_eq!(peek(bytes), Peek::Is(Verdict::Opaque), "{:?}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(peek(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0"), Peek::Is(Verdict::Http2));
}

#[test]
fn a_beginning_is_taken_for_what_it_most_likely_is() {
    for (bytes, verdict, at_least) in [
        (&b""[..], Verdict::Opaque, 1),
        (b"\r\n", Verdict::Opaque, 3),
        (b"G", Verdict::Http1, 2),
        (b"GET", Verdict::Http1, 4),
        (b"GET key", Verdict::Http1, 8),
        (b"PR", Verdict::Http1, 3),
        (b"PRI", Verdict::Http2, 24),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", Verdict::Http2, 24),
        (b"hello", Verdict::Opaque, 6),
        (b"hello you", Verdict::Opaque, 10),
        (b"\x16", Verdict::Opaque, 5),
        (b"\x16\x03\x01", Verdict::Tls(Hello::default()), 5),
        (b"\x16\x03\x01\x02\x00\x01", Verdict::Tls(Hello::default()), 517),
    ] {
        assert_eq!(peek(bytes), Peek::Maybe { verdict, at_least }, "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn the_name_in_a_hello_is_found_however_it_is_cut() {
    let message = hello(&[grease(), (43, vec![2, 3, 4]), server_name(b"fraud.example.com"), grease()]);
    for size in [1, 2, 3, 5, 40, 100, 1 << 14] {
        let bytes = records(&message, size);
        assert_eq!(peek(&bytes), tls("fraud.example.com"), "records of {size}");
        for cut in 3..bytes.len() {
            let Peek::Maybe { verdict: Verdict::Tls(_), at_least } = peek(&bytes[..cut]) else {
                panic!("{cut} bytes of records of {size}: {:?}", peek(&bytes[..cut]));
            };
            assert!((cut + 1..=bytes.len()).contains(&at_least), "{cut} -> {at_least} of {}", bytes.len());
        }
    }
}

#[test]
fn a_hello_of_a_real_client_is_read() {
    let roots = rustls::RootCertStore::empty();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut client = rustls::ClientConnection::new(config.into(), "Fraud.Example.com".try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    let expected = Hello {
        server_name: Some("fraud.example.com".into()),
        alpn: vec![b"h2".as_slice().into(), b"http/1.1".as_slice().into()],
    };
    assert_eq!(peek(&bytes), Peek::Is(Verdict::Tls(expected)));
}

#[test]
fn names_are_taken_as_far_as_they_are_names() {
    let with = |extension| peek(&records(&hello(&[extension]), 1 << 14));
    assert_eq!(with(server_name(b"FRAUD.example.com.")), tls("fraud.example.com"));
    assert_eq!(with(server_name(b"under_score.internal")), tls("under_score.internal"));
    assert_eq!(with(server_name(b"10.0.0.1")), tls("10.0.0.1"));
    for none in [&b""[..], b".", b"a..b", b".a", b"a b", b"a\0b", b"caf\xc3\xa9", &[b'a'; 254]] {
        assert_eq!(with(server_name(none)), named(None), "{:?}", String::from_utf8_lossy(none));
    }
    assert_eq!(with(grease()), named(None), "no name at all");
    let unknown_kind = (0, vector16(&[&[7][..], &vector16(b"a"), &[0], &vector16(b"b.c")].concat()));
    assert_eq!(with(unknown_kind), tls("b.c"));
    // With Encrypted ClientHello the outer name is all there is.
    assert_eq!(
        peek(&records(&hello(&[(0xfe0d, vec![0; 300]), server_name(b"outer.example")]), 1 << 14)),
        tls("outer.example")
    );
    let offered = peek(&records(&hello(&[alpn(&["h2"]), server_name(b"a.b")]), 1 << 14));
    let expected = Hello { server_name: Some("a.b".into()), alpn: vec![b"h2".as_slice().into()] };
    assert_eq!(offered, Peek::Is(Verdict::Tls(expected)));
}

#[test]
fn a_hello_that_cannot_be_read_is_tls_without_a_name() {
    let whole = hello(&[server_name(b"a.example")]);
    // Each length inside it made longer than what is there.
    for at in [4 + 34, 4 + 34 + 33, whole.len() - 18, whole.len() - 16, whole.len() - 14, whole.len() - 11] {
        let mut broken = whole.clone();
        broken[at] = 0xff;
        let broken = records(&broken, 1 << 14);
        assert_eq!(peek(&broken), named(None), "length at {at}");
    }
    let mut interrupted = records(&whole, 20);
    interrupted[25] = 23;
    assert_eq!(peek(&interrupted), named(None), "another record in between");
    let huge = [&[1, 2, 0, 0][..], &vec![0; 70_000]].concat();
    assert_eq!(peek(&records(&huge, 1 << 14)), named(None));
    assert_eq!(peek(&records(&huge, 1 << 14)[..9]), named(None), "its length alone is enough");
    let crumbs = [&[1, 0, 8, 0][..], &vec![0; 2048]].concat();
    assert_eq!(peek(&records(&crumbs, 1)), named(None), "too many records");
}

proptest! {
    #[test]
    fn nothing_makes_it_panic_or_stand_still(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        progresses(&bytes);
    }

    #[test]
    fn nothing_near_a_hello_makes_it_panic(
        size in 1usize..300,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let message = hello(&[grease(), server_name(b"fraud.example.com"), alpn(&["h2", "http/1.1"])]);
        let mut bytes = records(&message, size);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        progresses(&bytes[..cut.index(bytes.len())]);
        progresses(&bytes);
    }

    /// What is certain of a beginning is certain of the whole, however the bytes were cut.
    #[test]
    fn a_verdict_never_changes(text in "[A-Z \r\n/*HTP1.0-9a-c]{0,40}", tail in prop::collection::vec(any::<u8>(), 0..20)) {
        let bytes = [text.as_bytes(), &tail].concat();
        for cut in 0..bytes.len() {
            if let Peek::Is(verdict) = peek(&bytes[..cut]) {
                prop_assert_eq!(peek(&bytes), Peek::Is(verdict), "{} of {:?}", cut, String::from_utf8_lossy(&bytes));
                break;
            }
        }
    }
}

fn progresses(bytes: &[u8]) {
    if let Peek::Maybe { at_least, .. } = peek(bytes) {
        assert!(at_least > bytes.len(), "{at_least} of {}", bytes.len());
    }
}
