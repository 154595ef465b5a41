//! TLS three ways: unopened and known by the name it asks for, begun by the proxy for an application that speaks
//! plain HTTP, and in a tunnel that the application asked for (`HTTPS_PROXY`).

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use plimsoll_tests::certificates::Authority;
use plimsoll_tests::namespace::as_root;
use plimsoll_tests::peers::{Server, Stage, direct};
use plimsoll_tests::process::require_program;
use plimsoll_tests::proxy::{Proxy, Setup};
use plimsoll_tests::tools::{run, script_command};
use plimsoll_tests::{PATIENCE, address, eventually};

/// All that a server here may be called.
fn names() -> String {
    format!("DNS:secure.internal,DNS:plain.internal,IP:{},IP:10.77.0.2", address::own_loopback())
}

fn authority() -> Authority {
    let authority = Authority::new("the test's own");
    authority.issue("server", "secure.internal", &names(), 30);
    authority
}

/// nginx with TLS. `/facts` tells what it knows of the connection.
fn nginx(stage: &Stage, folder: &Path, certificates: &Authority, listen: &str, further: &str) -> Server {
    let address = stage.reserve();
    let (path, keys) = (folder.display(), certificates.folder().display());
    std::fs::write(folder.join("big"), "x".repeat(1_000_000)).expect("the folder can be written");
    let file = folder.join(format!("{}.conf", address.port()));
    let config = format!(
        "daemon off; master_process off; pid {path}/{port}.pid; error_log stderr crit; user root;
events {{ worker_connections 500; }}
http {{
  access_log off;
  client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
  server {{
    listen {address} {listen};
    ssl_certificate {keys}/server.pem; ssl_certificate_key {keys}/server.key; ssl_session_cache shared:s:1m;
    {further}
    location = / {{ return 200 root; }}
    location = /hello {{ return 200 hello; }}
    location = /facts {{ return 200 \"$server_protocol|$ssl_server_name|$ssl_client_s_dn|$ssl_session_reused\"; }}
    location = /big {{ root {path}; }}
  }}
}}
",
        port = address.port()
    );
    std::fs::write(&file, config).expect("the folder can be written");
    let mut command = Command::new(require_program("nginx"));
    stage.serve_at(address, command.arg("-p").arg(folder).arg("-c").arg(&file))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn curl(args: &[&str]) -> Command {
    let mut command = Command::new(require_program("curl"));
    command.args(["-sS", "--max-time", "20"]).args(args);
    command
}

fn policy(name: &str, target: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  target: {{{target}}}\n{spec}\n"
    )
}

fn force(proxy: &Proxy, name: &str, state: &str) {
    let body = format!("{{\"state\":\"{state}\",\"ttl\":\"1m\"}}");
    let answer = proxy.admin.request("POST", &format!("/dependencies/{name}/circuit"), &body);
    assert_eq!(answer.status, 200, "{answer}");
}

#[test]
fn unopened_tls_belongs_to_the_dependency_that_it_names() {
    as_root(|| {
        let (stage, folder, authority) = (Stage::redirected(), folder(), authority());
        let server = nginx(&stage, folder.path(), &authority, "ssl http2", "");
        let (address, port) = (server.address, server.address.port());
        let proxy =
            stage.proxy(Setup::new().policy(&policy("secure", "hosts: [secure.internal]", "  circuitBreaker: {}")));
        let ca = authority.file("ca.pem").display().to_string();
        let ask = |name: &str, path: &str, args: &[&str]| {
            let place = format!("{name}:{port}:{}", address.ip());
            let mut command = curl(&["--cacert", &ca, "--resolve", &place]);
            command.args(args).arg(format!("https://{name}:{port}{path}"));
            stage.among_clients(|| run(&mut command))
        };
        let said = |(code, said): (Option<i32>, String)| {
            assert_eq!(code, Some(0), "{said}");
            said.trim().to_owned()
        };
        assert_eq!(said(ask("secure.internal", "/facts", &["--http1.1"])), "HTTP/1.1|secure.internal||.");
        assert_eq!(said(ask("secure.internal", "/facts", &["--http2"])), "HTTP/2.0|secure.internal||.");
        assert_eq!(said(ask("plain.internal", "/facts", &["--http1.1"])), "HTTP/1.1|plain.internal||.");
        assert_eq!(said(ask("secure.internal", "/big", &["-o", "/dev/null", "-w", "%{size_download}"])), "1000000");
        let mut openssl = Command::new(require_program("openssl"));
        openssl.args(["s_client", "-brief", "-verify_return_error", "-servername", "secure.internal", "-CAfile", &ca]);
        let openssl = openssl.arg("-connect").arg(address.to_string()).stdin(std::process::Stdio::null());
        assert!(stage.succeed(openssl).contains("Verification: OK"));
        // A ClientHello that comes in pieces is one all the same.
        for size in ["1", "5", "100"] {
            let mut split = script_command("tls_split.py");
            split.args([&address.ip().to_string(), &port.to_string(), "secure.internal", &ca, size]);
            stage.succeed(&mut split);
        }
        let Some(proxy) = proxy else { return };
        stage.among_clients(|| {
            let secure = proxy.admin.dependency("secure");
            // Three by curl, one by openssl, three in pieces; those to another name are not its own.
            assert_eq!(secure["requests_total"], 7, "{secure:#}");
            force(&proxy, "secure", "ForcedOpen");
        });
        let (code, refusal) = ask("secure.internal", "/hello", &[]);
        assert_ne!(code, Some(0), "{refusal}");
        assert_eq!(said(ask("plain.internal", "/hello", &[])), "hello");
        let mut split = script_command("tls_split.py");
        split.args([&address.ip().to_string(), &port.to_string(), "secure.internal", &ca, "1"]);
        assert_ne!(stage.among_clients(|| run(&mut split)).0, Some(0), "the name was found in the pieces");
        stage.among_clients(|| proxy.admin.assert_no_bugs());
    });
}

/// Callers from elsewhere, to an application that speaks TLS itself.
#[test]
fn inbound_tls_reaches_the_application() {
    let (stage, folder, authority) = (Stage::loopback(), folder(), authority());
    let server = nginx(&stage, folder.path(), &authority, "ssl http2", "");
    let Some(proxy) = stage.proxy(Setup::new().arg("--app").arg(server.address.to_string())) else { return };
    let ca = authority.file("ca.pem").display().to_string();
    let through = format!("::{}", proxy.inbound);
    for (version, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let mut command = curl(&["--noproxy", "*", version, "--cacert", &ca, "--connect-to", &through]);
        let said = stage.succeed(command.arg("https://secure.internal/facts"));
        assert_eq!(said.trim(), format!("{protocol}|secure.internal||."));
    }
}

/// A dependency that listens on loopback and begins TLS to `server`.
fn originate(stage: &Stage, name: &str, server: SocketAddr, tls: &str, further: &str) -> (String, String) {
    let listen = stage.reserve();
    let target = format!(
        "listen: \"{listen}\", endpoints: {{static: [\"{server}\"]}}, tls: {{mode: Originate, {tls}}}{further}"
    );
    (policy(name, &target, "  circuitBreaker: {}"), format!("http://{listen}"))
}

#[test]
fn the_application_speaks_http_and_the_proxy_begins_tls() {
    if direct() {
        return;
    }
    let (stage, folder, authority) = (Stage::loopback(), folder(), authority());
    let strangers = Authority::new("a stranger");
    std::fs::copy(strangers.file("ca.pem"), authority.file("stranger.pem")).unwrap();
    let both = nginx(&stage, folder.path(), &authority, "ssl http2", "");
    let old = nginx(&stage, folder.path(), &authority, "ssl", "keepalive_requests 1;");
    let plain = nginx(&stage, folder.path(), &authority, "", "");
    let expired = Authority::new("expired");
    expired.issue("server", "secure.internal", &names(), -1);
    let late = nginx(&stage, folder.path(), &expired, "ssl", "");
    std::fs::copy(expired.file("ca.pem"), authority.file("expired.pem")).unwrap();

    let trusted = "serverName: secure.internal, caFile: ca.pem";
    let dependencies = [
        originate(&stage, "same", both.address, trusted, ""),
        originate(&stage, "two", both.address, trusted, ", upstreamProtocol: HTTP2"),
        originate(&stage, "chosen", old.address, trusted, ", upstreamProtocol: HTTP2"),
        originate(&stage, "one", both.address, trusted, ", upstreamProtocol: HTTP1"),
        originate(&stage, "stranger", both.address, "serverName: secure.internal, caFile: stranger.pem", ""),
        originate(&stage, "name", both.address, "serverName: other.internal, caFile: ca.pem", ""),
        originate(&stage, "late", late.address, "serverName: secure.internal, caFile: expired.pem", ""),
        originate(&stage, "plain", plain.address, trusted, ""),
        originate(&stage, "nobody", stage.reserve(), trusted, ""),
    ];
    let text: String = dependencies.iter().map(|(policy, _)| policy.as_str()).collect();
    let secrets = authority.folder().display().to_string();
    let proxy = Setup::new().policy(&text).arg("--secrets-dir").arg(secrets).start();
    let [same, two, chosen, one, stranger, name, late, plain, nobody] =
        dependencies.each_ref().map(|(_, url)| url.as_str());
    let facts = |url: &str, version: &str| {
        stage.succeed(curl(&["--noproxy", "*", version]).arg(format!("{url}/facts"))).trim().to_owned()
    };
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for (url, protocol) in [(two, "HTTP/2.0"), (one, "HTTP/1.1"), (chosen, "HTTP/1.1")] {
            let said = facts(url, version);
            assert!(said.starts_with(&format!("{protocol}|secure.internal||")), "{version} {said}");
        }
    }
    assert!(facts(same, "--http1.1").starts_with("HTTP/1.1|"));
    assert!(facts(same, "--http2-prior-knowledge").starts_with("HTTP/2.0|"));
    eventually("a session is taken up again", || facts(chosen, "--http1.1").ends_with("|r"));
    let big =
        stage.succeed(curl(&["--noproxy", "*", "-o", "/dev/null", "-w", "%{size_download}"]).arg(format!("{two}/big")));
    assert_eq!(big.trim(), "1000000");
    let mut h2load = Command::new(require_program("h2load"));
    let said = stage.succeed(h2load.args(["-n2000", "-c4", "-m8"]).arg(format!("{two}/hello")));
    assert!(said.contains("2000 succeeded, 0 failed, 0 errored"), "{said}");

    // What went wrong is said in words.
    for (url, reason, words) in [
        (stranger, "TlsFailure", "not trusted"),
        (name, "TlsFailure", "other.internal"),
        (late, "TlsFailure", "expired"),
        (plain, "TlsFailure", "tls"),
        (nobody, "ConnectFailure", ""),
    ] {
        let said = stage.succeed(curl(&["--noproxy", "*", "-i"]).arg(format!("{url}/hello")));
        println!("{said}");
        assert!(said.starts_with("HTTP/1.1 503") && said.contains(&format!("reason={reason}")), "{said}");
        assert!(said.to_lowercase().contains(words), "{said}");
    }
    assert_eq!(proxy.admin.circuit("two"), "Closed");
}

#[test]
fn client_certificates_are_shown_and_read_again_when_they_change() {
    if direct() {
        return;
    }
    let (stage, folder, authority) = (Stage::loopback(), folder(), authority());
    let verify = format!("ssl_verify_client on; ssl_client_certificate {};", authority.file("ca.pem").display());
    let server = nginx(&stage, folder.path(), &authority, "ssl", &verify);
    authority.issue("client", "first", "DNS:first", 30);
    let tls = "serverName: secure.internal, caFile: ca.pem, certFile: client.pem, keyFile: client.key";
    let (with, url) = originate(&stage, "with", server.address, tls, "");
    let (without, nameless) =
        originate(&stage, "without", server.address, "serverName: secure.internal, caFile: ca.pem", "");
    let proxy = Setup::new()
        .policy(&format!("{with}{without}"))
        .arg("--secrets-dir")
        .arg(authority.folder().display().to_string())
        .start();
    let facts = |url: &str| stage.succeed(curl(&["--noproxy", "*"]).arg(format!("{url}/facts")));
    assert!(facts(&url).contains("|CN=first|"), "{}", facts(&url));
    assert!(facts(&nameless).contains("No required SSL certificate was sent"), "{}", facts(&nameless));
    // Renewed, without a word to the proxy.
    authority.issue("client", "second", "DNS:second", 30);
    eventually("the new certificate is shown", || facts(&url).contains("|CN=second|"));
    // Spoilt: the one before stays, and the log says so.
    std::fs::write(authority.file("client.pem"), "no certificate").unwrap();
    assert!(
        proxy.process.stderr_line(PATIENCE, |line| line.contains("client.pem")).is_some(),
        "{}",
        proxy.process.output()
    );
    assert!(facts(&url).contains("|CN=second|"), "{}", facts(&url));
}

#[test]
fn https_proxy_works_for_curl_requests_and_undici() {
    let (stage, folder, authority) = (Stage::loopback(), folder(), authority());
    let server = nginx(&stage, folder.path(), &authority, "ssl http2", "");
    let target = format!("hosts: [\"secure.internal:8443\"], endpoints: {{static: [\"{}\"]}}", server.address);
    let Some(proxy) = stage.proxy(Setup::new().policy(&policy("secure", &target, "  circuitBreaker: {}"))) else {
        return;
    };
    let ca = authority.file("ca.pem").display().to_string();
    let through = format!("http://{}", proxy.outbound);
    let with_proxy = |mut command: Command| {
        for name in ["HTTPS_PROXY", "https_proxy"] {
            command.env(name, &through);
        }
        for name in ["NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command.env("NODE_EXTRA_CA_CERTS", &ca);
        command
    };
    // An address without a policy, which is as certified; and a name that only the policy knows.
    for base in [format!("https://{}", server.address), "https://secure.internal:8443".to_owned()] {
        let mut command = with_proxy(curl(&["--cacert", &ca, "-w", " %{http_version}"]));
        assert_eq!(stage.succeed(command.arg(format!("{base}/hello"))).trim(), "hello 2");
        let mut command = with_proxy(script_command("client_https.py"));
        stage.succeed(command.arg(&base).arg(&ca));
        stage.succeed(with_proxy(script_command("client_https.mjs")).arg(&base));
    }
    let secure = proxy.admin.dependency("secure");
    assert!(secure["requests_total"].as_u64() > Some(2), "{secure:#}");
    force(&proxy, "secure", "ForcedOpen");
    let mut command = with_proxy(curl(&["--cacert", &ca]));
    let (code, said) = run(command.arg("https://secure.internal:8443/hello"));
    assert!(code != Some(0) && said.contains("503"), "{code:?} {said}");
}
