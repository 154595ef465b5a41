//! Redirected connections that nothing looks into: whose they are, by name or by address.

use std::time::Duration;

use plimsoll_tests::eventually;
use plimsoll_tests::namespace::as_root;
use plimsoll_tests::peers::Stage;
use plimsoll_tests::proxy::{Proxy, Setup};
use plimsoll_tests::tcp::{End, OPAQUE, Peer, Server};

/// A ClientHello that names `host`, in records of at most `size` bytes.
fn client_hello(host: &str, size: usize) -> Vec<u8> {
    let vector = |content: &[u8]| [&(content.len() as u16).to_be_bytes()[..], content].concat();
    let name = vector(&[&[0][..], &vector(host.as_bytes())].concat());
    // GREASE around the name (RFC 8701).
    let extensions = [&[0x5a, 0x5a, 0, 1, 0][..], &[0, 0], &vector(&name), &[0x6a, 0x6a, 0, 0]].concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &vector(&[0x13, 1]), &[1, 0], &vector(&extensions)].concat();
    let message = [&[1, 0][..], &vector(&body)].concat();
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vector(part)].concat()).collect()
}

fn requests(stage: &Stage, proxy: &Proxy, dependency: &str) -> f64 {
    let labels = [("dependency", dependency), ("code_class", "none")];
    stage.among_clients(|| proxy.admin.metric("plimsoll_requests_total", &labels))
}

/// Says `pieces` one by one to an echo; what came back is what was said.
fn echoed(stage: &Stage, address: std::net::SocketAddr, pieces: &[&[u8]]) {
    stage.among_clients(|| {
        let mut client = Peer::connect(address);
        for piece in pieces {
            client.write(piece);
            // A segment for each: the next must not be sent along.
            std::thread::sleep(Duration::from_millis(30));
        }
        client.expect(pieces.concat());
        client.finish();
        client.expect_end(End::Fin);
    });
}

fn policy(name: &str, target: &str) -> String {
    format!(
        "---\napiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  target: {{{target}}}\n"
    )
}

#[test]
fn a_connection_belongs_to_the_name_in_its_hello_else_to_its_address() {
    as_root(|| {
        let stage = Stage::redirected();
        let (first, other) = (stage.reserve(), stage.reserve());
        let echo = |address| stage.among_servers(|| Server::bind(address, |peer, _| peer.echo()));
        let (server, elsewhere) = (echo(first), echo(other));
        let policies = [
            policy("fraud", "hosts: [fraud.internal]"),
            policy("moved", &format!("hosts: [moved.internal], endpoints: {{static: [\"{other}\"]}}")),
            policy("ledger", &format!("addresses: [\"{}/32:{}\"]", first.ip(), first.port())),
        ];
        let proxy = stage.proxy(Setup::new().policy(&policies.concat())).expect("it is not left out");
        let counted = |dependency: &str| requests(&stage, &proxy, dependency);

        for size in [1 << 14, 40, 1] {
            let hello = client_hello("Fraud.Internal.", size);
            let (head, tail) = hello.split_at(hello.len() / 2);
            let (start, middle) = head.split_at(4);
            echoed(&stage, first, &[start, middle, tail]);
        }
        eventually("all are fraud's", || counted("shop/fraud") == 3.0);
        assert_eq!((server.connections(), elsewhere.connections()), (3, 0));

        // It is dialled ahead at its address, and then goes where its name leads.
        let hello = client_hello("moved.internal", 1 << 14);
        stage.among_clients(|| {
            let mut client = Peer::connect(first);
            std::thread::sleep(Duration::from_millis(100));
            client.write(&hello);
            client.expect(&hello);
        });
        assert_eq!(elsewhere.connections(), 1);
        eventually("it is counted", || counted("shop/moved") == 1.0);

        echoed(&stage, first, &[OPAQUE]);
        echoed(&stage, first, &[&client_hello("stranger.internal", 1 << 14)]);
        eventually("the rest is its address's", || counted("shop/ledger") == 2.0);
        echoed(&stage, other, &[OPAQUE]);
        eventually("the rest is nobody's", || counted("unlisted") == 1.0);
        let detected = |result| {
            stage.among_clients(|| proxy.admin.metric("plimsoll_protocol_detections_total", &[("result", result)]))
        };
        assert_eq!((detected("TLS"), detected("TCP"), detected("HTTP1")), (5.0, 2.0, 0.0));
        let status = stage.among_clients(|| proxy.admin.status());
        assert_eq!(status["unlisted"]["top"][0]["destination"], other.to_string(), "{status:#}");
    });
}

#[test]
fn an_address_that_does_not_answer_is_reset_and_named() {
    as_root(|| {
        let stage = Stage::redirected();
        let nobody = stage.reserve();
        let proxy = stage.proxy(Setup::new()).expect("it is not left out");
        stage.among_clients(|| {
            let mut client = Peer::connect(nobody);
            client.write(OPAQUE);
            client.expect_end(End::Reset);
            let status = proxy.admin.status();
            assert_eq!(status["unlisted"]["top"][0]["destination"], nobody.to_string(), "{status:#}");
        });
    });
}
