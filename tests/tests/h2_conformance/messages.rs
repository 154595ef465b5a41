//! Messages (RFC 9113 8): pseudo fields, fields of a connection, content-length, trailers; and compression (RFC 7541).

use plimsoll_tests::h2::frame::{self, code::*, frame, setting};
use plimsoll_tests::h2::{hpack, request};

use crate::case::{Case, alive, answered, block_with, case, connection, malformed, post, send};

pub fn cases() -> Vec<Case> {
    let mut cases = exchanges();
    cases.extend(fields());
    cases.extend(pseudo_fields());
    cases.extend(lengths());
    cases.extend(decoding());
    cases.extend(representations());
    cases
}

fn exchanges() -> Vec<Case> {
    let method = |method| frame::headers(1, true, hpack::block(&request(method, "/")));
    let trailers = |ends, fields: &[(&str, &str)]| frame::headers(1, ends, hpack::block(fields));
    vec![
        case("8.1", "GET", [send(method("GET"))], answered(1)),
        case("8.1", "HEAD", [send(method("HEAD"))], answered(1)),
        case("8.1", "POST", [send(post(1)), send(frame::data(1, true, b"a"))], answered(1)),
        case(
            "8.1",
            "POST that ends with an empty DATA",
            [send(post(1)), send(frame::data(1, false, b"a")), send(frame::data(1, true, b""))],
            answered(1),
        ),
        case(
            "8.1",
            "POST with trailers",
            [send(post(1)), send(frame::data(1, false, b"a")), send(trailers(true, &[("x-sum", "1")]))],
            answered(1),
        ),
        case(
            "8.1",
            "trailers without END_STREAM",
            [send(post(1)), send(frame::data(1, false, b"a")), send(trailers(false, &[("x-sum", "1")]))],
            malformed(1),
        ),
        case("8.1", "a second head without END_STREAM", [send(post(1)), send(post(1))], malformed(1)),
        case(
            "8.3",
            "a pseudo field in trailers",
            [send(post(1)), send(frame::data(1, false, b"a")), send(trailers(true, &[(":method", "GET")]))],
            malformed(1),
        ),
        case(
            "8.2.1",
            "an upper-case name in trailers",
            [send(post(1)), send(frame::data(1, false, b"a")), send(trailers(true, &[("X-Sum", "1")]))],
            malformed(1),
        ),
        case(
            "8.2.3",
            "cookies in crumbs",
            [send(frame::headers(1, true, block_with(&[("cookie", "a=b"), ("cookie", "c=d")])))],
            answered(1),
        ),
    ]
}

fn with(fields: &[(&str, &str)]) -> Vec<u8> {
    frame::headers(1, true, block_with(fields))
}

fn fields() -> Vec<Case> {
    vec![
        case("8.2", "a name in upper case", [send(with(&[("X-Test", "ok")]))], malformed(1)),
        case("8.2.1", "a name with a space", [send(with(&[("x test", "ok")]))], malformed(1)),
        case("8.2.1", "a name with a colon", [send(with(&[("x:test", "ok")]))], malformed(1)),
        case("8.2.1", "an empty name", [send(with(&[("", "ok")]))], malformed(1)),
        case("8.2.1", "a NUL in a value", [send(with(&[("x-test", "o\0k")]))], malformed(1)),
        case("8.2.1", "CR LF in a value", [send(with(&[("x-test", "o\r\nk: 1")]))], malformed(1)),
        case("8.2.1", "LF in a value", [send(with(&[("x-test", "o\nk: 1")]))], malformed(1)),
        case("8.2.2", "connection", [send(with(&[("connection", "keep-alive")]))], malformed(1)),
        case("8.2.2", "keep-alive", [send(with(&[("keep-alive", "timeout=5")]))], malformed(1)),
        case("8.2.2", "proxy-connection", [send(with(&[("proxy-connection", "keep-alive")]))], malformed(1)),
        case("8.2.2", "transfer-encoding", [send(with(&[("transfer-encoding", "chunked")]))], malformed(1)),
        case("8.2.2", "upgrade", [send(with(&[("upgrade", "h2c")]))], malformed(1)),
        case("8.2.2", "te other than trailers", [send(with(&[("te", "trailers, deflate;q=0.5")]))], malformed(1)),
        case("8.2.2", "te of trailers", [send(with(&[("te", "trailers")]))], answered(1)),
    ]
}

/// A head of these fields alone.
fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    frame::headers(1, true, hpack::block(fields))
}

fn pseudo_fields() -> Vec<Case> {
    let all = request("GET", "/");
    let without = |name: &str| head(&all.into_iter().filter(|(other, _)| *other != name).collect::<Vec<_>>());
    let twice = |name: &str| {
        let mut fields = all.to_vec();
        fields.extend(all.iter().filter(|(other, _)| *other == name));
        head(&fields)
    };
    let changed = |name: &'static str, value: &'static str| {
        head(&all.map(|(other, old)| (other, if other == name { value } else { old })))
    };
    vec![
        case("8.3", "an unknown pseudo field", [send(with(&[(":test", "ok")]))], malformed(1)),
        case("8.3", "a pseudo field of answers", [send(with(&[(":status", "200")]))], malformed(1)),
        case(
            "8.3",
            "a pseudo field after a field",
            [send(head(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                ("x-test", "ok"),
                (":authority", "test.internal"),
            ]))],
            malformed(1),
        ),
        case("8.3.1", "an empty :path", [send(changed(":path", ""))], malformed(1)),
        case("8.3.1", "a :path that does not begin with a slash", [send(changed(":path", "index.html"))], malformed(1)),
        case("8.3.1", "without :method", [send(without(":method"))], malformed(1)),
        case("8.3.1", "without :scheme", [send(without(":scheme"))], malformed(1)),
        case("8.3.1", "without :path", [send(without(":path"))], malformed(1)),
        case("8.3.1", ":method twice", [send(twice(":method"))], malformed(1)),
        case("8.3.1", ":scheme twice", [send(twice(":scheme"))], malformed(1)),
        case("8.3.1", ":path twice", [send(twice(":path"))], malformed(1)),
        case("8.3.1", ":authority twice", [send(twice(":authority"))], malformed(1)),
        case(
            "8.3.1",
            "host in place of :authority",
            [send(head(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "test.internal")]))],
            answered(1),
        ),
        case("8.5", "CONNECT with :path", [send(changed(":method", "CONNECT"))], malformed(1)),
    ]
}

fn lengths() -> Vec<Case> {
    let sized = |length: &str, ends| {
        let mut fields = request("POST", "/").to_vec();
        fields.push(("content-length", length));
        frame::headers(1, ends, hpack::block(&fields))
    };
    vec![
        case(
            "8.1.1",
            "a content-length that DATA meets",
            [send(sized("2", false)), send(frame::data(1, false, b"a")), send(frame::data(1, true, b"b"))],
            answered(1),
        ),
        case(
            "8.1.1",
            "a content-length of 1 for one DATA of 4",
            [send(sized("1", false)), send(frame::data(1, true, b"test"))],
            malformed(1),
        ),
        case(
            "8.1.1",
            "a content-length of 1 for two DATA of 4",
            [send(sized("1", false)), send(frame::data(1, false, b"test")), send(frame::data(1, true, b"test"))],
            malformed(1),
        ),
        case(
            "8.1.1",
            "a content-length of 9 for 4 bytes",
            [send(sized("9", false)), send(frame::data(1, true, b"test"))],
            malformed(1),
        ),
        case("8.1.1", "a content-length of 9 without DATA", [send(sized("9", true))], malformed(1)),
        case(
            "8.1.1",
            "a content-length that trailers cut short",
            [
                send(sized("9", false)),
                send(frame::data(1, false, b"test")),
                send(frame::headers(1, true, hpack::block(&[("x-sum", "1")]))),
            ],
            malformed(1),
        ),
        case(
            "8.1.1",
            "a content-length that is no number",
            [send(sized("+4", false)), send(frame::data(1, true, b"test"))],
            malformed(1),
        ),
    ]
}

fn raw(block: impl AsRef<[u8]>) -> Vec<u8> {
    frame::headers(1, true, block)
}

/// A good head, then these bytes of block.
fn then(bytes: &[u8]) -> Vec<u8> {
    raw([block_with(&[]), bytes.to_vec()].concat())
}

fn decoding() -> Vec<Case> {
    let compression = || connection(&[COMPRESSION_ERROR]);
    // Names of one letter `a`, values of Huffman codes: `a` is 00011.
    let coded = |value: &[u8]| [&[0x00, 1, b'a', 0x80 | u8::try_from(value.len()).unwrap()], value].concat();
    vec![
        case("hpack 2.3.3", "an indexed field past the tables", [send(then(&[0xff, 0x00]))], compression()),
        case(
            "hpack 2.3.3",
            "a literal whose name is past the tables",
            [send(then(&[0x7f, 0x81, 0x01, 1, b'a']))],
            compression(),
        ),
        case("hpack 6.1", "index 0", [send(then(&[0x80]))], compression()),
        case("hpack 4.2", "a size update at the end of a block", [send(then(&[0x21]))], compression()),
        case(
            "hpack 6.3",
            "a size update above the setting",
            [send(raw([&[0x3f, 0xe2, 0x1f], &block_with(&[])[..]].concat()))],
            compression(),
        ),
        case(
            "hpack 5.2",
            "Huffman codes padded by more than 7 bits",
            [send(then(&coded(&[0x1f, 0xff])))],
            compression(),
        ),
        case("hpack 5.2", "Huffman codes padded by zeros", [send(then(&coded(&[0x18])))], compression()),
        case("hpack 5.2", "Huffman codes with EOS", [send(then(&coded(&[0xff, 0xff, 0xff, 0xff])))], compression()),
        case("hpack 5.2", "a string longer than its block", [send(then(&[0x00, 0x7f, 0x20, b'a']))], compression()),
        case(
            "hpack 5.1",
            "an integer that overflows",
            [send(then(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]))],
            compression(),
        ),
        case("4.3", "a block that ends within a field", [send(then(&[0x40]))], compression()),
    ]
}

/// Every representation that a client may choose, all of which mean the same.
fn representations() -> Vec<Case> {
    let indexed = [0x82, 0x86, 0x84];
    let authority = |first: u8| {
        let mut bytes = vec![first];
        hpack::integer(&mut bytes, 0, 7, "test.internal".len());
        bytes.extend(b"test.internal");
        bytes
    };
    let huffman = [0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
    let block = |rest: &[u8]| raw([&indexed[..], rest].concat());
    let insert = hpack::literal(0x40, b"x-test", b"ok");
    vec![
        case("hpack 6.1", "indexed fields", [send(block(&authority(0x41)))], answered(1)),
        case("hpack 6.2.1", "a literal with indexing, indexed name", [send(block(&authority(0x41)))], answered(1)),
        case("hpack 6.2.1", "a literal with indexing, new name", [send(then(&insert))], answered(1)),
        case(
            "hpack 6.2.1",
            "what was indexed is used",
            [send(
                [
                    frame::headers(1, true, [block_with(&[]), insert.clone()].concat()),
                    frame::headers(3, true, [block_with(&[]), vec![0xbe]].concat()),
                ]
                .concat(),
            )],
            answered(3),
        ),
        case("hpack 6.2.2", "a literal without indexing, indexed name", [send(block(&authority(0x01)))], answered(1)),
        case("hpack 6.2.3", "a literal never indexed", [send(block(&authority(0x11)))], answered(1)),
        case("hpack 5.2", "Huffman codes", [send(block(&huffman))], answered(1)),
        case(
            "hpack 6.3",
            "a size update of 0 at the beginning",
            [send(raw([&[0x20], &block_with(&[])[..]].concat()))],
            answered(1),
        ),
        case(
            "hpack 4.2",
            "two size updates at the beginning",
            [send(raw([&[0x20, 0x3f, 0xe1, 0x1f], &block_with(&[])[..]].concat()))],
            answered(1),
        ),
        case(
            "hpack 4.4",
            "an entry larger than the table",
            [send(then(&hpack::literal(0x40, b"x-large", &[b'a'; 5_000])))],
            answered(1),
        ),
        case(
            "6.5.2",
            "SETTINGS_HEADER_TABLE_SIZE of 0 and a full exchange",
            [send(block(&authority(0x41)))],
            answered(1),
        )
        .settings(&[(setting::HEADER_TABLE_SIZE, 0)]),
        case(
            "6.2",
            "a HEADERS frame with an empty block, continued",
            [
                send(frame(frame::HEADERS, frame::END_STREAM, 1, [])),
                send(frame(frame::CONTINUATION, frame::END_HEADERS, 1, block_with(&[]))),
            ],
            answered(1),
        ),
        case(
            "4.3",
            "blocks decode in order over streams that are refused",
            [send(
                [
                    frame::headers(1, true, [block_with(&[("X-Bad", "1")]), insert].concat()),
                    frame::headers(3, true, [block_with(&[]), vec![0xbe]].concat()),
                ]
                .concat(),
            )],
            answered(3).or_connection(&[PROTOCOL_ERROR]),
        ),
        case(
            "5.1",
            "a stream that is reset at once leaves the rest alone",
            [send([post(1), frame::reset(1, CANCEL), post(3), frame::reset(3, CANCEL)].concat())],
            alive(),
        ),
    ]
}
