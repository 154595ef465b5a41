//! Real clients and servers that are not ours: programs of the machine, and scripts in `tests/peers`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Process, require_program};

/// How long a client may take for all it does.
const LONG: Duration = Duration::from_secs(90);

/// A script of `tests/peers`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// A command that runs a script of `tests/peers` by what its name ends with.
///
/// # Panics
/// When its interpreter is missing; `make setup` installs it.
#[track_caller]
pub fn script_command(name: &str) -> Command {
    let (interpreter, packages) = match Path::new(name).extension().and_then(|extension| extension.to_str()) {
        Some("py") => (python(), None),
        // A source file alone is compiled and run.
        Some("java") => (require_program("java"), None),
        _ => (require_program("node"), Some(target().join("node/node_modules"))),
    };
    let mut command = Command::new(interpreter);
    if name.ends_with(".java") {
        // What runs for a second need not be compiled well.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    }
    command.arg(script(name));
    if let Some(packages) = packages {
        command.env("NODE_PATH", packages);
    }
    command
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

/// The Python of the environment that `tests/setup` makes.
#[track_caller]
fn python() -> PathBuf {
    let venv = std::env::var_os("PLIMSOLL_TEST_VENV").map_or_else(|| target().join("venv"), PathBuf::from);
    let python = venv.join("bin/python");
    assert!(python.is_file(), "{} is missing: run `make setup`", python.display());
    python
}

/// Runs a client to its end: its exit code and what it said.
#[track_caller]
pub fn run(command: &mut Command) -> (Option<i32>, String) {
    let mut process = Process::start(command);
    let code = process.wait(LONG).code();
    // The threads that read its output may be a moment behind its end.
    process.stdout_line(Duration::from_secs(5), |_| false);
    process.stderr_line(Duration::from_secs(5), |_| false);
    (code, process.output())
}

/// Runs a client and expects it to succeed; what it said.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let (code, said) = run(command);
    assert_eq!(code, Some(0), "{command:?}:\n{said}");
    said
}

/// A server of `tests/peers` that has printed its port.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    _process: Process,
}

/// Starts a server of `tests/peers`.
#[track_caller]
pub fn serve(name: &str) -> Server {
    let process = Process::start(&mut script_command(name));
    let line = process.stdout_line(crate::PATIENCE, |line| line.starts_with("port "));
    let port = line.as_deref().and_then(|line| line.strip_prefix("port ")).and_then(|port| port.trim().parse().ok());
    let port: u16 = port.unwrap_or_else(|| panic!("{name} printed no port:\n{}", process.output()));
    Server { address: SocketAddr::from(([127, 0, 0, 1], port)), _process: process }
}
