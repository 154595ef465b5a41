//! A `plimsoll-proxy` under test.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::process::{self, Process};
use crate::{PATIENCE, address};

/// How to start a proxy; [`Setup::start`] starts it and waits until it is ready.
pub struct Setup {
    args: Vec<String>,
    policy: Option<String>,
    workers: usize,
    core: Option<usize>,
    open_files: Option<u64>,
    user: Option<u32>,
    default_listeners: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            args: Vec::new(),
            policy: None,
            workers: 2,
            core: None,
            open_files: None,
            user: None,
            default_listeners: false,
        }
    }
}

impl Setup {
    /// Two workers, no policy, every listener on a free port of 127.0.0.1.
    pub fn new() -> Setup {
        Setup::default()
    }

    /// Policy documents, given to the proxy as one file.
    pub fn policy(mut self, text: &str) -> Setup {
        self.policy = Some(text.to_owned());
        self
    }

    /// Number of workers.
    pub fn workers(mut self, workers: usize) -> Setup {
        self.workers = workers;
        self
    }

    /// One more command-line argument. A listener address given here replaces the default one.
    pub fn arg(mut self, arg: impl Into<String>) -> Setup {
        self.args.push(arg.into());
        self
    }

    /// Binds the proxy to one core.
    pub fn on_core(mut self, core: usize) -> Setup {
        self.core = Some(core);
        self
    }

    /// Raises or lowers the limit on open descriptors.
    pub fn open_files(mut self, limit: u64) -> Setup {
        self.open_files = Some(limit);
        self
    }

    /// Runs the proxy as another user, from a folder that user can read.
    pub fn as_user(mut self, user: u32) -> Setup {
        self.user = Some(user);
        self
    }

    /// Leaves the listeners where they are by default; only sensible in a network namespace.
    pub fn default_listeners(mut self) -> Setup {
        self.default_listeners = true;
        self
    }

    /// Starts the proxy and waits for its ready line.
    ///
    /// # Panics
    /// When it does not become ready.
    #[track_caller]
    pub fn start(self) -> Proxy {
        let (mut process, folder, policy_file) = self.spawn();
        let Some(line) = process.stdout_line(PATIENCE, |line| line.contains("\"ready\"")) else {
            let status = process.poll_exit();
            panic!("the proxy did not become ready ({status:?}):\n{}", process.output());
        };
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let address = |key: &str| listener(&ready, key);
        Proxy {
            reachable: !self.default_listeners,
            inbound: address("inbound"),
            outbound: address("outbound"),
            health: address("health"),
            admin: Admin::new(address("admin"), folder.path().join("state")),
            ready,
            process,
            policy_file,
            _folder: folder,
        }
    }

    /// Starts a proxy that is expected to end by itself, and hands over its exit code and all it said.
    #[track_caller]
    pub fn run_to_end(self) -> (Option<i32>, String) {
        let (mut process, _folder, _file) = self.spawn();
        let code = process.wait(PATIENCE).code();
        (code, process.output())
    }

    fn spawn(&self) -> (Process, TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let policy_file = folder.path().join("policy.yaml");
        let mut command = Command::new(self.program(folder.path()));
        // What the machine's user has set must not reach a test.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PLIMSOLL_")) {
            command.env_remove(name);
        }
        command.args(["--workers", &self.workers.to_string()]);
        command.arg("--state-dir").arg(folder.path().join("state"));
        for listener in ["--inbound", "--outbound", "--admin", "--health"] {
            if !self.default_listeners && !self.args.iter().any(|arg| arg == listener) {
                command.args([listener, "127.0.0.1:0"]);
            }
        }
        if let Some(policy) = &self.policy {
            std::fs::write(&policy_file, policy).expect("the temporary folder can be written");
            command.arg("--policy").arg(&policy_file);
        }
        command.args(&self.args);
        if let Some(core) = self.core {
            process::on_core(&mut command, core);
        }
        if let Some(limit) = self.open_files {
            limit_open_files(&mut command, limit);
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        (Process::start(&mut command), folder, policy_file)
    }

    /// The binary: for another user a copy in `folder`, which becomes that user's.
    fn program(&self, folder: &Path) -> PathBuf {
        let Some(user) = self.user else {
            return binary();
        };
        let copy = folder.join("plimsoll-proxy");
        std::fs::copy(binary(), &copy).expect("the binary can be copied");
        std::os::unix::fs::chown(folder, Some(user), Some(user)).expect("root can give a folder away");
        copy
    }
}

fn limit_open_files(command: &mut Command, limit: u64) {
    let set = move || {
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, limit, limit)?;
        Ok(())
    };
    // SAFETY: between fork and exec only one system call is made.
    unsafe { command.pre_exec(set) };
}

/// An address of the ready line. A family that is bound twice (v4 and v6) is a list, of which the first counts.
fn listener(ready: &Value, key: &str) -> SocketAddr {
    let value = ready[key].as_str().or_else(|| ready[key][0].as_str());
    let text = value.unwrap_or_else(|| panic!("the ready line names no {key}: {ready}"));
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The binary under test: `PLIMSOLL_TEST_PROXY`, else beside the running test.
pub fn binary() -> PathBuf {
    program("plimsoll-proxy", "PLIMSOLL_TEST_PROXY")
}

/// The command line tool: `PLIMSOLL_TEST_CLI`, else beside the running test.
pub fn command_line() -> PathBuf {
    program("plimsoll", "PLIMSOLL_TEST_CLI")
}

fn program(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return PathBuf::from(path);
    }
    let me = std::env::current_exe().expect("a process knows its own path");
    // Tests run from target/PROFILE/deps, other binaries from target/PROFILE.
    let found = me.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not built: `make test` does, or set {variable} to a binary"))
}

/// A running proxy. Dropped, it is asked whether it met a bug of its own, and killed.
pub struct Proxy {
    /// Where redirected or direct inbound connections go.
    pub inbound: SocketAddr,
    /// Where applications connect as to a forward proxy, or are redirected to.
    pub outbound: SocketAddr,
    /// Readiness and liveness.
    pub health: SocketAddr,
    /// The admin address, with its token.
    pub admin: Admin,
    /// The ready line, whole.
    pub ready: Value,
    /// The process itself.
    pub process: Process,
    policy_file: PathBuf,
    /// Whether a thread outside any namespace reaches its admin address.
    reachable: bool,
    _folder: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if self.reachable && !std::thread::panicking() && self.process.poll_exit().is_none() {
            self.admin.assert_no_bugs();
        }
    }
}

impl Proxy {
    /// Writes new policy where the proxy was told to read it; it takes effect at the next [`Proxy::hang_up`].
    pub fn write_policy(&self, text: &str) {
        std::fs::write(&self.policy_file, text).expect("the temporary folder can be written");
    }

    /// Asks it to read its policy files again.
    pub fn hang_up(&self) {
        self.process.signal(Signal::SIGHUP);
    }

    /// Asks it to drain and end.
    pub fn terminate(&self) {
        self.process.signal(Signal::SIGTERM);
    }

    /// The policy file it was started with.
    pub fn policy_file(&self) -> &Path {
        &self.policy_file
    }
}

/// One dependency that is `listen`ed on, as most tests want it.
pub struct Listened {
    /// Where callers reach it through the proxy.
    pub listen: SocketAddr,
    /// The policy document.
    pub policy: String,
}

/// A dependency `name` at `endpoint`, with further lines of its `spec`, each indented by two spaces.
pub fn listened(name: &str, endpoint: SocketAddr, spec: &str) -> Listened {
    let listen = address::reserve();
    let policy = format!(
        "apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {{name: {name}, namespace: shop}}
spec:
  target:
    listen: {listen}
    endpoints: {{static: [\"{endpoint}\"]}}
{}
",
        spec.trim_matches('\n')
    );
    Listened { listen, policy }
}
