//! Names become addresses: endpoints by DNS, names of callers, and name servers that are no help.

use std::net::SocketAddr;
use std::thread;

use plimsoll_tests::address::{self, own_loopback};
use plimsoll_tests::client::{Client, Response};
use plimsoll_tests::eventually;
use plimsoll_tests::names::{NameServer, Record};
use plimsoll_tests::proxy::{Proxy, Setup};
use plimsoll_tests::upstream::{self, Upstream};

fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "apiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  target: {target}\n{spec}\n---\n"
    )
}

fn named(name: &'static str) -> Upstream {
    Upstream::start(move |_| upstream::ok(name))
}

fn start(server: &NameServer, policy: &str) -> Proxy {
    // One worker takes all endpoints in turn.
    Setup::new().workers(1).arg("--dns-server").arg(server.address.to_string()).policy(policy).start()
}

/// As to a forward proxy: the whole URL in the request line.
fn absolute(proxy: SocketAddr, url: &str) -> Response {
    let authority = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("a URL");
    Client::connect(proxy).call("GET", url, &[("Host", authority)], b"")
}

fn endpoints(proxy: &Proxy, name: &str) -> Vec<String> {
    let dependency = proxy.admin.dependency(name);
    let endpoints = dependency["endpoints"].as_array().expect("a list").iter();
    endpoints.map(|endpoint| endpoint["address"].as_str().expect("an address").to_owned()).collect()
}

fn service(priority: u16, weight: u16, target: &str, server: &Upstream) -> Record {
    Record::Service { priority, weight, target: target.to_owned(), port: server.address.port() }
}

#[test]
fn endpoints_follow_their_name() {
    let names = NameServer::start();
    let old = named("old");
    let new = Upstream::bind((own_loopback(), old.address.port()).into(), true, |_| upstream::ok("new"));
    names.set_addresses("fraud.example", 0, &["127.0.0.1"]);
    let listen = address::reserve();
    let port = old.address.port();
    let target = format!("{{listen: \"{listen}\", endpoints: {{dns: {{name: fraud.example, port: {port}}}}}}}");
    let proxy = start(&names, &policy("fraud", &target, ""));
    let call = || Client::connect(listen).call("GET", "/", &[], b"").text();
    eventually("the name is known", || call() == "old");
    names.set_addresses("fraud.example", 0, &[&own_loopback().to_string()]);
    eventually("the name has moved", || call() == "new");
    assert_eq!(endpoints(&proxy, "fraud"), [new.address.to_string()]);
    names.say_nothing_of("fraud.example");
    let asked = names.asked("fraud.example");
    eventually("the name server was asked in vain", || names.asked("fraud.example") > asked);
    assert_eq!(call(), "new");
    let source = || proxy.admin.dependency("fraud")["endpoint_source"].clone();
    eventually("status says so", || source()["last_error"].is_string());
    assert_eq!((&source()["name"], &source()["records"]), (&"fraud.example".into(), &"A/AAAA".into()));
    proxy.admin.assert_no_bugs();
}

#[test]
fn services_share_calls_by_weight_and_leave_none_to_a_later_priority() {
    let names = NameServer::start();
    let (big, small, spare) = (named("big"), named("small"), named("spare"));
    let services = [
        service(1, 30, "big.example", &big),
        service(1, 10, "small.example", &small),
        service(2, 100, "spare.example", &spare),
    ];
    names.set("_http._tcp.fraud.example", 300, services);
    for target in ["big.example", "small.example", "spare.example"] {
        names.set_addresses(target, 300, &["127.0.0.1"]);
    }
    let listen = address::reserve();
    let target = format!("{{listen: \"{listen}\", endpoints: {{dns: {{name: _http._tcp.fraud.example}}}}}}");
    let proxy = start(&names, &policy("fraud", &target, ""));
    eventually("the services are known", || !endpoints(&proxy, "fraud").is_empty());
    let mut client = Client::connect(listen);
    for _ in 0..40 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!((big.requests(), small.requests(), spare.requests()), (30, 10, 0));
    let told = proxy.admin.dependency("fraud");
    let shares: Vec<_> = told["endpoints"].as_array().unwrap().iter().map(|one| one["places"].as_u64()).collect();
    assert_eq!(shares, [Some(3), Some(1)], "each is told once, with its share: {told}");
    let source = &told["endpoint_source"];
    assert_eq!((&source["records"], &source["ttl_ms"]), (&"SRV".into(), &300_000.into()), "{told}");
    assert_eq!(names.asked("spare.example"), 0);
}

#[test]
fn an_address_that_refuses_costs_no_call() {
    let names = NameServer::start();
    let server = named("here");
    // Nothing listens at the first of each family.
    names.set_addresses("both.example", 300, &["::1", "127.0.0.1"]);
    let proxy = start(&names, "");
    let answer = absolute(proxy.outbound, &format!("http://both.example:{}/", server.address.port()));
    assert_eq!((answer.status, answer.text().as_str()), (200, "here"), "{answer}");
}

#[test]
fn a_name_that_does_not_exist_is_said_to_be_the_reason() {
    let names = NameServer::start();
    let proxy = start(&names, "");
    let answer = absolute(proxy.outbound, "http://gone.example/");
    assert_eq!((answer.status, answer.reason()), (503, Some("DnsFailure")), "{answer}");
    names.set_addresses("empty.example", 300, &[]);
    let answer = absolute(proxy.outbound, "http://empty.example/");
    assert_eq!((answer.status, answer.reason()), (503, Some("DnsFailure")), "{answer}");
}

#[test]
fn names_of_nobody_that_hang_keep_no_policy_from_its_own() {
    let names = NameServer::start();
    let server = named("fraud");
    names.set_addresses("fraud.example", 300, &["127.0.0.1"]);
    let host = format!("fraud.example:{}", server.address.port());
    // What the address book looks up for itself is another matter: this name has no port there.
    let proxy = start(&names, &policy("fraud", "{hosts: [fraud.example]}", ""));
    let hang: Vec<String> = (0..40).map(|number| format!("gone-{number}.example")).collect();
    hang.iter().for_each(|name| names.say_nothing_of(name));
    thread::scope(|scope| {
        for name in &hang {
            let outbound = proxy.outbound;
            scope.spawn(move || absolute(outbound, &format!("http://{name}/")));
        }
        let being_asked = || hang.iter().filter(|name| names.asked(name) > 0).count();
        eventually("the names that hang have every place", || being_asked() >= 24);
        assert_eq!(names.asked("fraud.example"), 0);
        assert_eq!(absolute(proxy.outbound, &format!("http://{host}/")).text(), "fraud");
    });
}
