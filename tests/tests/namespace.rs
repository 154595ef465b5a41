//! Real redirects between real addresses: what a sidecar in a pod sees, and what nobody outside may reach.
//!
//! `pod` holds the proxy, its application and iptables rules; `outside` is another host on the same wire. The proxy
//! runs as a user of its own, so that the rules can leave its own connections alone, as in a pod.

use std::net::{IpAddr, SocketAddr};

use plimsoll_tests::client::{Client, Response};
use plimsoll_tests::eventually;
use plimsoll_tests::names::NameServer;
use plimsoll_tests::namespace::{Namespace, as_root};
use plimsoll_tests::proxy::{Proxy, Setup};
use plimsoll_tests::tcp;
use plimsoll_tests::upstream::{self, Gate, Script, Upstream};

const PROXY_USER: u32 = 1337;
const POD: &str = "10.77.0.1";
const POD6: &str = "fd77::1";
const OUTSIDE: &str = "10.77.0.2";
const OUTSIDE6: &str = "fd77::2";

fn joined() -> (Namespace, Namespace) {
    let (pod, outside) = (Namespace::new(), Namespace::new());
    pod.join(POD, POD6, &outside, OUTSIDE, OUTSIDE6);
    (pod, outside)
}

/// Both families of iptables, one rule.
fn rule(namespace: &Namespace, rule: &str) {
    namespace.sh(&format!("iptables {rule}"));
    namespace.sh(&format!("ip6tables {rule}"));
}

fn redirect_outbound(pod: &Namespace) {
    rule(pod, &format!("-t nat -A OUTPUT -p tcp -m owner --uid-owner {PROXY_USER} -j RETURN"));
    rule(pod, "-t nat -A OUTPUT -p tcp -o lo -j RETURN");
    rule(pod, "-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001");
}

/// Everything, the proxy's own ports too: the worst case for the proxy.
fn redirect_inbound(pod: &Namespace) {
    rule(pod, "-t nat -A PREROUTING -p tcp -i eth0 -j REDIRECT --to-ports 15006");
}

fn at(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse::<IpAddr>().expect("an address"), port)
}

fn server(
    namespace: &Namespace,
    address: SocketAddr,
    handler: impl Fn(&upstream::Request) -> Script + Send + Sync + 'static,
) -> Upstream {
    namespace.run(|| Upstream::bind(address, true, handler))
}

fn start(pod: &Namespace, setup: Setup) -> Proxy {
    pod.run(|| setup.default_listeners().as_user(PROXY_USER).start())
}

fn get(from: &Namespace, to: SocketAddr, host: &str) -> Response {
    from.run(|| Client::connect(to).call("GET", "/", &[("Host", host)], b""))
}

const FRAUD: &str = "apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {name: fraud-api, namespace: shop}
spec:
  target: {hosts: [fraud.internal]}
  bulkhead: {maxConcurrentCalls: 1}
";

const BY_ADDRESS: &str = "---
apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {name: ledger, namespace: shop}
spec:
  target: {addresses: [\"10.77.0.2/32:9090\", \"[fd77::2/128]:9090\"]}
  bulkhead: {maxConcurrentCalls: 7}
";

#[test]
fn redirected_calls_go_where_they_were_going_under_the_policy_of_their_host() {
    as_root(|| {
        let (pod, outside) = joined();
        redirect_outbound(&pod);
        let proxy = start(&pod, Setup::new().policy(&format!("{FRAUD}{BY_ADDRESS}")));
        for host in [OUTSIDE, OUTSIDE6] {
            let gate = Gate::default();
            let held = gate.clone();
            let fraud = server(&outside, at(host, 8080), move |request| {
                if request.target == "/held" {
                    upstream::behind(&held, upstream::ok("held"))
                } else {
                    upstream::ok("fraud")
                }
            });
            assert_eq!(get(&pod, at(host, 8080), "fraud.internal").text(), "fraud", "{host}");
            let mut holder = pod.run(|| Client::connect(at(host, 8080)));
            holder.write("GET /held HTTP/1.1\r\nHost: fraud.internal\r\n\r\n").unwrap();
            fraud.wait_for_requests(2);
            let refusal = get(&pod, at(host, 8080), "fraud.internal");
            assert_eq!(refusal.reason(), Some("BulkheadFull"), "{host}: {refusal}");
            assert_eq!(refusal.detail("policy"), Some("shop/fraud-api"), "{host}: {refusal}");
            // Another host on the same connection's address has no policy.
            assert_eq!(get(&pod, at(host, 8080), "other.internal").text(), "fraud", "{host}");
            gate.open();
            assert_eq!(holder.read_answer(false).unwrap().text(), "held");

            let _ledger = server(&outside, at(host, 9090), |_| upstream::ok("ledger"));
            assert_eq!(get(&pod, at(host, 9090), "whatever").text(), "ledger", "{host}");
        }
        let (fraud, ledger) = pod.run(|| (proxy.admin.dependency("fraud-api"), proxy.admin.dependency("ledger")));
        assert_eq!(fraud["requests_total"], 6, "{fraud:#}");
        assert_eq!(ledger["requests_total"], 2, "{ledger:#}");
    });
}

const BY_NAME: &str = "apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {name: db, namespace: shop}
spec:
  target: {hosts: [\"db.internal:5432\"]}
";

#[test]
fn an_address_belongs_to_the_name_that_stands_for_it_and_stays_so_when_the_name_moves() {
    as_root(|| {
        let (pod, outside) = joined();
        redirect_outbound(&pod);
        let names = pod.run(NameServer::start);
        names.set_addresses("db.internal", 0, &[OUTSIDE]);
        let setup = Setup::new().arg("--dns-server").arg(names.address.to_string()).policy(BY_NAME);
        let proxy = start(&pod, setup);
        let _databases = [OUTSIDE, OUTSIDE6].map(|host| server(&outside, at(host, 5432), |_| upstream::ok("db")));
        // As many clients do, without a name for whom they have connected to.
        let call = |host: &str| get(&pod, at(host, 5432), if host == OUTSIDE { OUTSIDE } else { "[fd77::2]" }).text();
        let counted = || pod.run(|| proxy.admin.dependency("db"))["requests_total"].as_u64().expect("a number");
        let counts = |host: &str| {
            let before = counted();
            assert_eq!(call(host), "db", "{host}");
            counted() > before
        };
        eventually("the address is known", || counts(OUTSIDE));
        assert!(!counts(OUTSIDE6));
        names.set_addresses("db.internal", 0, &[OUTSIDE6]);
        eventually("the name has moved", || counts(OUTSIDE6));
        assert!(counts(OUTSIDE), "who is connected to the old address has asked earlier");
        let before = counted();
        assert_eq!(get(&pod, at(OUTSIDE, 5432), "other.internal").text(), "db");
        assert_eq!(counted(), before, "who says another name is not taken for this one");
    });
}

#[test]
fn a_database_that_speaks_first_belongs_to_the_name_that_stands_for_its_address() {
    as_root(|| {
        let (pod, outside) = joined();
        redirect_outbound(&pod);
        let names = pod.run(NameServer::start);
        names.set_addresses("db.internal", 300, &[OUTSIDE]);
        let setup = Setup::new().arg("--dns-server").arg(names.address.to_string()).policy(BY_NAME);
        let proxy = start(&pod, setup);
        let _database = outside.run(|| tcp::Server::bind(at(OUTSIDE, 5432), |mut peer, _| peer.write("5.5.5-MariaDB")));
        let counted = || pod.run(|| proxy.admin.dependency("db"))["requests_total"] != 0;
        eventually("the address is known", || {
            let mut client = pod.run(|| tcp::Peer::connect(at(OUTSIDE, 5432)));
            client.expect("5.5.5-MariaDB");
            client.finish();
            client.expect_end(tcp::End::Fin);
            counted()
        });
    });
}

#[test]
fn redirected_callers_reach_the_application_at_its_own_address() {
    as_root(|| {
        let (pod, outside) = joined();
        redirect_inbound(&pod);
        let proxy = start(&pod, Setup::new());
        for (host, caller) in [(POD, OUTSIDE), (POD6, OUTSIDE6)] {
            let app = server(&pod, at(host, 8080), |_| upstream::ok("app"));
            let answer = get(&outside, at(host, 8080), "payments.shop");
            assert_eq!((answer.status, answer.text().as_str()), (200, "app"), "{host}: {answer}");
            let seen = &app.seen()[0];
            let forwarded = seen.field("x-forwarded-for").unwrap_or_default();
            assert!(forwarded.contains(caller), "{host}: {forwarded}");
            let nobody = get(&outside, at(host, 8081), "payments.shop");
            assert_eq!((nobody.status, nobody.reason()), (503, Some("ConnectFailure")), "{host}: {nobody}");
            assert_eq!(nobody.detail("policy"), None, "strangers learn the reason alone: {nobody}");
        }
        assert_eq!(pod.run(|| proxy.admin.status())["inbound"]["requests_total"], 4);
    });
}

/// Ports of the proxy itself.
const OWN_PORTS: [u16; 4] = [15000, 15001, 15006, 15021];

#[test]
fn nothing_from_outside_reaches_the_proxys_listeners_or_loopback() {
    as_root(|| {
        let (pod, outside) = joined();
        redirect_inbound(&pod);
        let proxy = start(&pod, Setup::new().policy(&format!(
            "{FRAUD}---\napiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: local, namespace: shop}}\n\
             spec: {{target: {{listen: \"127.0.0.1:9101\", endpoints: {{static: [\"127.0.0.1:9999\"]}}}}}}\n"
        )));
        // The application has bound a port for itself alone, on both families, and serves another to all.
        let secret = server(&pod, at("127.0.0.1", 9999), |_| upstream::ok("secret"));
        let secret6 = server(&pod, at("::1", 9999), |_| upstream::ok("secret"));
        let app = server(&pod, at(POD, 8080), |_| upstream::ok("app"));
        let app6 = server(&pod, at(POD6, 8080), |_| upstream::ok("app"));

        for host in [POD, POD6] {
            // By redirect: the original destination is one of the proxy's own, or one that only loopback has.
            for port in OWN_PORTS {
                let answer = get(&outside, at(host, port), "a");
                assert_eq!((answer.status, answer.reason()), (502, Some("Loop")), "{host} {port}: {answer}");
            }
            for port in [9999, 9101] {
                let answer = get(&outside, at(host, port), "a");
                assert_ne!(answer.status, 200, "{host} {port}: {answer}");
            }
            // By Host, absolute-form and CONNECT, on a connection that may go to the application.
            for port in OWN_PORTS.into_iter().chain([9999, 9101]) {
                for named in ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", POD] {
                    let authority = format!("{named}:{port}");
                    let answer = get(&outside, at(host, 8080), &authority);
                    assert_eq!(answer.text(), "app", "Host {authority}: {answer}");
                    let answer = outside.run(|| {
                        Client::connect(at(host, 8080)).call(
                            "GET",
                            &format!("http://{authority}/status"),
                            &[("Host", "a")],
                            b"",
                        )
                    });
                    assert_eq!(answer.text(), "app", "absolute {authority}: {answer}");
                    let answer = outside.run(|| {
                        let mut client = Client::connect(at(host, 8080));
                        client.write(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).unwrap();
                        client.read_answer(false).expect("an answer")
                    });
                    assert!(answer.status >= 400, "CONNECT {authority}: {answer}");
                }
            }
        }
        assert_eq!(secret.connections() + secret6.connections(), 0);
        assert!(app.requests() > 0 && app6.requests() > 0);
        assert_eq!(pod.run(|| proxy.admin.metric("plimsoll_bugs_total", &[])), 0.0);
    });
}

#[test]
fn an_outbound_listener_open_to_others_is_no_forward_proxy_for_them() {
    as_root(|| {
        let (pod, outside) = joined();
        let proxy = pod.run(|| Setup::new().arg("--outbound").arg(format!("{POD}:15001")).start());
        let secret = server(&pod, at("127.0.0.1", 9999), |_| upstream::ok("secret"));
        let third = server(&outside, at(OUTSIDE, 8080), |_| upstream::ok("third party"));
        for authority in ["127.0.0.1:9999".to_owned(), format!("{OUTSIDE}:8080"), proxy.admin.address.to_string()] {
            let answer = outside.run(|| {
                Client::connect(proxy.outbound).call(
                    "GET",
                    &format!("http://{authority}/"),
                    &[("Host", &authority)],
                    b"",
                )
            });
            assert_eq!((answer.status, answer.reason()), (403, Some("Forbidden")), "{authority}: {answer}");
            let answer = outside.run(|| {
                let mut client = Client::connect(proxy.outbound);
                client.write(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).unwrap();
                client.read_answer(false).expect("an answer")
            });
            assert!(answer.status >= 400, "CONNECT {authority}: {answer}");
        }
        assert_eq!(secret.connections() + third.connections(), 0);
    });
}
