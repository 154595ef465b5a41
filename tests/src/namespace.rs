//! Network namespaces of a test's own: other addresses than loopback, real redirects, and nothing left behind.
//!
//! A namespace belongs to threads here, not to names below /run: it ends with the last thread, socket or process in it,
//! however the test ends.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

use crate::process::require_program;

/// A network namespace with its loopback interface up.
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Panics
    /// Without root; see [`as_root`].
    pub fn new() -> Namespace {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("root can make a network namespace");
            File::open("/proc/thread-self/ns/net").expect("a thread has a network namespace")
        };
        let namespace = Namespace { handle: std::thread::spawn(make).join().expect("the namespace was made") };
        namespace.sh("ip link set lo up");
        namespace
    }

    /// Runs `body` on a thread inside; sockets it makes and processes it starts stay inside.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.handle, CloneFlags::CLONE_NEWNET).expect("root can enter its own namespace");
                body()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs one command inside, its words separated by spaces.
    ///
    /// # Panics
    /// When it fails, with what it said.
    pub fn sh(&self, line: &str) {
        let mut words = line.split_whitespace();
        let program = require_program(words.next().expect("a program"));
        let words: Vec<&str> = words.collect();
        let output = self.run(|| Command::new(program).args(words).output().expect("it can be started"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Joins two namespaces by a pair of interfaces, each with an IPv4 and an IPv6 address.
    pub fn join(&self, own: &str, own6: &str, other: &Namespace, others: &str, others6: &str) {
        let target = format!("/proc/{}/fd/{}", std::process::id(), other.handle.as_raw_fd());
        self.sh(&format!("ip link add eth0 type veth peer name eth1 netns {target}"));
        for (side, interface, v4, v6) in [(self, "eth0", own, own6), (other, "eth1", others, others6)] {
            side.sh(&format!("ip addr add {v4}/24 dev {interface}"));
            side.sh(&format!("ip -6 addr add {v6}/64 dev {interface} nodad"));
            side.sh(&format!("ip link set {interface} up"));
        }
        // The first IPv6 packets on a new interface are lost while neighbours are found: as long as a connect timeout.
        for address in [others, others6] {
            let listen = || TcpListener::bind((address, 0)).expect("the other side has its address");
            let there = other.run(listen);
            let port = there.local_addr().expect("a bound listener has an address").port();
            self.run(|| TcpStream::connect((address, port)).expect("the two sides are joined"));
        }
    }
}

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace::new()
    }
}

/// Runs `body` when this process is root, else the whole test again under sudo.
///
/// # Panics
/// When neither works: a test that cannot run must not pass.
pub fn as_root(body: impl FnOnce()) {
    if nix::unistd::geteuid().is_root() {
        return body();
    }
    let me = std::env::current_exe().expect("a process knows its own path");
    let name = std::thread::current().name().expect("a test's thread has its name").to_owned();
    let status = Command::new("sudo").args(["-n", "-E"]).arg(me).args(["--exact", &name, "--nocapture"]).status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "namespaces need root, or sudo without a password: {status:?}"
    );
}
