//! Clients and servers that are not ours, and the ways by which a test has them meet.
//!
//! The same conversation is held at a `listen` address of the proxy, and redirected to it by the rules of a pod in
//! which neither side knows that there is one. `PLIMSOLL_TEST_DIRECT=1` takes the proxy away, for the question whether
//! the peers get on without it; what a test says of the proxy itself is then not asked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::namespace::Namespace;
use crate::process::Process;
use crate::proxy::{Proxy, Setup};
use crate::{PATIENCE, address, tools};

/// The user that the rules of a pod leave alone.
const PROXY_USER: u32 = 1337;
/// Nobody: what must not run as root runs as this one.
const NOBODY: u32 = 65534;
const POD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const POD6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

/// A pod with the rules of a sidecar, and the host on the same wire where the servers are; or just this machine.
pub struct Stage {
    wire: Option<(Namespace, Namespace)>,
}

impl Stage {
    /// Everything on loopback; callers go to a `listen` address or use a forward proxy.
    pub fn loopback() -> Stage {
        Stage { wire: None }
    }

    /// Callers in a pod whose outbound connections are redirected. Needs root.
    pub fn redirected() -> Stage {
        let (pod, outside) = (Namespace::new(), Namespace::new());
        pod.join(&POD.to_string(), &POD6.to_string(), &outside, &OUTSIDE.to_string(), &OUTSIDE6.to_string());
        if !direct() {
            for iptables in ["iptables", "ip6tables"] {
                pod.sh(&format!("{iptables} -t nat -A OUTPUT -p tcp -m owner --uid-owner {PROXY_USER} -j RETURN"));
                pod.sh(&format!("{iptables} -t nat -A OUTPUT -p tcp -o lo -j RETURN"));
                pod.sh(&format!("{iptables} -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001"));
            }
        }
        Stage { wire: Some((pod, outside)) }
    }

    /// What a server binds, so that it is reached over both families where there are two.
    pub fn host(&self) -> &'static str {
        if self.wire.is_some() { "::" } else { "127.0.0.1" }
    }

    /// Where a server with this port is.
    pub fn at(&self, port: u16) -> SocketAddr {
        let host = if self.wire.is_some() { OUTSIDE } else { Ipv4Addr::LOCALHOST };
        SocketAddr::new(IpAddr::V4(host), port)
    }

    /// The same by IPv6; only where there is a wire.
    pub fn at6(&self, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(OUTSIDE6), port)
    }

    /// Runs `body` where the servers are.
    pub fn among_servers<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        match &self.wire {
            Some((_, outside)) => outside.run(body),
            None => body(),
        }
    }

    /// Runs `body` where the application and its proxy are.
    pub fn among_clients<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        match &self.wire {
            Some((pod, _)) => pod.run(body),
            None => body(),
        }
    }

    /// Starts a script of `tests/peers` that binds the host it is told and prints its port.
    #[track_caller]
    pub fn serve(&self, name: &str, args: &[&str]) -> Server {
        self.serve_with(name, args, &[])
    }

    /// The same, with this in its environment.
    #[track_caller]
    pub fn serve_with(&self, name: &str, args: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = tools::script_command(name);
        command.arg(self.host()).args(args).envs(environment.iter().copied());
        let process = self.among_servers(|| Process::start(&mut command));
        let line = process.stdout_line(PATIENCE, |line| line.starts_with("port "));
        let port = line.as_deref().and_then(|line| line["port ".len()..].trim().parse().ok());
        let port = port.unwrap_or_else(|| panic!("{name} printed no port:\n{}", process.output()));
        Server { address: self.at(port), process }
    }

    /// An address for a server that cannot choose one itself.
    pub fn reserve(&self) -> SocketAddr {
        let free = address::reserve();
        if self.wire.is_some() { self.at(free.port()) } else { free }
    }

    /// Starts a program that listens on `address` once it is up.
    #[track_caller]
    pub fn serve_at(&self, address: SocketAddr, command: &mut Command) -> Server {
        let mut process = self.among_servers(|| Process::start(command));
        let up = || self.among_servers(|| std::net::TcpStream::connect(address).is_ok());
        crate::eventually(&format!("{command:?} listens on {address}"), || {
            assert!(process.poll_exit().is_none(), "{command:?} ended:\n{}", process.output());
            up()
        });
        Server { address, process }
    }

    /// Starts a proxy between the two, without policy or with some.
    #[track_caller]
    pub fn proxy(&self, setup: Setup) -> Option<Proxy> {
        let redirected = self.wire.is_some();
        let start = || if redirected { setup.default_listeners().as_user(PROXY_USER).start() } else { setup.start() };
        (!direct()).then(|| self.among_clients(start))
    }

    /// Starts a proxy with one dependency, `name`, at `server`, and further lines of its `spec`, the first of which may
    /// still be part of `target` (four spaces).
    #[track_caller]
    pub fn protect(&self, name: &str, server: SocketAddr, spec: &str) -> Passage {
        let passage = self.dependency(name, server, spec);
        let proxy = self.proxy(Setup::new().policy(&passage.0));
        Passage { address: if proxy.is_some() { passage.1 } else { server }, proxy }
    }

    /// The policy of one dependency, and where its callers go.
    pub fn dependency(&self, name: &str, server: SocketAddr, spec: &str) -> (String, SocketAddr) {
        let (target, address) = if self.wire.is_some() {
            (format!("addresses: [\"{}/32:{}\"]", server.ip(), server.port()), server)
        } else {
            let listen = address::reserve();
            (format!("listen: {listen}\n    endpoints: {{static: [\"{server}\"]}}"), listen)
        };
        let policy = format!(
            "---\napiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec:\n  target:\n    {target}\n{}\n",
            spec.trim_matches('\n')
        );
        (policy, address)
    }

    /// Runs a client to its end and expects it to succeed; what it said.
    #[track_caller]
    pub fn succeed(&self, command: &mut Command) -> String {
        self.among_clients(|| tools::succeed(command))
    }
}

/// Whether the proxy is left out.
pub fn direct() -> bool {
    std::env::var_os("PLIMSOLL_TEST_DIRECT").is_some()
}

/// A server that is up. Dropped, it is killed.
pub struct Server {
    /// Where it is.
    pub address: SocketAddr,
    /// The process.
    pub process: Process,
}

/// A proxy, unless it is left out, and where its callers go.
pub struct Passage {
    /// Where callers go.
    pub address: SocketAddr,
    /// The proxy.
    pub proxy: Option<Proxy>,
}

/// Has `command` run as nobody when this is root, in a `folder` that becomes nobody's: databases refuse root.
pub fn unprivileged<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    if !nix::unistd::geteuid().is_root() {
        return command;
    }
    std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).expect("root can give a folder away");
    command.uid(NOBODY).gid(NOBODY)
}
