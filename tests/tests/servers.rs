//! Servers that people use, behind the proxy.

use std::net::SocketAddr;
use std::process::Command;

use plimsoll_tests::client::Client;
use plimsoll_tests::load::{Ask, Load};
use plimsoll_tests::process::{Process, require_program};
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::{address, eventually, tools};

/// Every path that the services have in common, in a mixed order, then under load.
fn exercise(server: SocketAddr, echoes: bool) {
    let spec = "  timeouts: {request: 10s}\n  bulkhead: {maxConcurrentCalls: 100}\n  circuitBreaker: {}\n  retry: {}";
    let dependency = listened("service", server, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let mut client = Client::connect(dependency.listen);
    for _ in 0..3 {
        assert_eq!(client.get("/hello").text().trim_end(), "hello");
        let head = client.call("HEAD", "/hello", &[], b"");
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(client.get("/big").body.len(), 1_000_000);
        assert_eq!(client.get("/nowhere").status, 404);
        if echoes {
            assert_eq!(client.get("/chunked").text(), "0123456789".repeat(100));
            let body = vec![b'x'; 2_000_000];
            assert_eq!(client.post("/echo", &body).body, body);
        }
    }
    let ask = Ask { target: "/hello".to_owned(), ..Ask::get() };
    let load = Load::start(dependency.listen, 8, &ask);
    load.wait_for_more(1_000);
    let tally = load.finish();
    assert!(tally.failures.is_empty() && tally.ok() == tally.answers(), "{tally:?}");
    assert!(tally.reasons.is_empty(), "{tally:?}");
    assert_eq!(proxy.admin.circuit("service"), "Closed");
}

#[test]
fn nginx() {
    let listen = address::reserve();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::write(root.join("hello"), "hello").unwrap();
    std::fs::write(root.join("big"), "x".repeat(1_000_000)).unwrap();
    // Workers of nginx drop root's rights; they must reach the files.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = root.display();
    let config = format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr crit;
events {{ worker_connections 500; }}
http {{
  access_log off; keepalive_requests 50;
  client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
  server {{ listen {listen}; root {path}; }}
}}
"
    );
    std::fs::write(root.join("nginx.conf"), config).unwrap();
    let mut command = Command::new(require_program("nginx"));
    command.arg("-p").arg(root).arg("-c").arg(root.join("nginx.conf"));
    let _server = Process::start(&mut command);
    eventually("nginx listens", || Client::try_connect(listen).is_ok());
    // It ends each connection after 50 requests: those closes must cost nothing.
    exercise(listen, false);
}

#[test]
fn python_aiohttp() {
    let server = tools::serve("server_aiohttp.py");
    exercise(server.address, true);
}

#[test]
fn python_standard_library() {
    let server = tools::serve("server_stdlib.py");
    exercise(server.address, true);
}

#[test]
fn node() {
    let server = tools::serve("server_node.mjs");
    exercise(server.address, true);
}
