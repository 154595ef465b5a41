//! A child process that never outlives its test, and whose last words are shown when the test fails.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Lines of output kept for the report of a failure, each stream.
const KEPT_LINES: usize = 400;

#[derive(Default)]
struct Output {
    lines: VecDeque<String>,
    ended: bool,
}

/// Lines of one output stream, collected by a thread as they come.
#[derive(Clone, Default)]
struct Lines(Arc<(Mutex<Output>, Condvar)>);

impl Lines {
    fn collect(self, stream: impl std::io::Read + Send + 'static) {
        std::thread::spawn(move || {
            let (output, changed) = &*self.0;
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { break };
                let mut output = output.lock().expect("no panic under this lock");
                if output.lines.len() == KEPT_LINES {
                    output.lines.pop_front();
                }
                output.lines.push_back(String::from_utf8_lossy(&line).into_owned());
                changed.notify_all();
            }
            output.lock().expect("no panic under this lock").ended = true;
            changed.notify_all();
        });
    }

    fn find(&self, patience: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let (output, changed) = &*self.0;
        let end = Instant::now() + patience;
        let mut output = output.lock().expect("no panic under this lock");
        loop {
            if let Some(line) = output.lines.iter().find(|line| wanted(line)) {
                return Some(line.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if output.ended || left.is_zero() {
                return None;
            }
            output = changed.wait_timeout(output, left).expect("no panic under this lock").0;
        }
    }

    fn all(&self) -> Vec<String> {
        self.0.0.lock().expect("no panic under this lock").lines.iter().cloned().collect()
    }
}

/// A running child. Dropped, it is killed by its own process id and reaped.
pub struct Process {
    child: Child,
    name: String,
    stdout: Lines,
    stderr: Lines,
    exited: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with both outputs captured.
    ///
    /// # Panics
    /// When the program cannot be started: a test that needs it must not pass without it.
    #[track_caller]
    pub fn start(command: &mut Command) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let (stdout, stderr) = (Lines::default(), Lines::default());
        stdout.clone().collect(child.stdout.take().expect("stdout is piped"));
        stderr.clone().collect(child.stderr.take().expect("stderr is piped"));
        Process { child, name, stdout, stderr, exited: None }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's standard input, if the command piped it and nobody took it yet.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits for a line of standard output that `wanted` accepts; none when the stream ends or patience does.
    pub fn stdout_line(&self, patience: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        self.stdout.find(patience, wanted)
    }

    /// Waits for a line of standard error that `wanted` accepts; none when the stream ends or patience does.
    pub fn stderr_line(&self, patience: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        self.stderr.find(patience, wanted)
    }

    /// Everything kept of both outputs, for a message.
    pub fn output(&self) -> String {
        format!("{}\n{}", self.stdout.all().join("\n"), self.stderr.all().join("\n"))
    }

    /// Sends `signal` to the child and to nobody else.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("process ids fit"));
        kill(pid, signal).unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
    }

    /// The exit status, if it has ended.
    pub fn poll_exit(&mut self) -> Option<ExitStatus> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().expect("our own child can be waited for");
        }
        self.exited
    }

    /// Waits for the end of the child.
    ///
    /// # Panics
    /// When it does not end within `patience`.
    #[track_caller]
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.poll_exit() {
                return status;
            }
            assert!(Instant::now() < end, "{} did not end within {patience:?}\n{}", self.name, self.output());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.poll_exit().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- {} (pid {}) said:\n{}\n---", self.name, self.child.id(), self.output());
        }
    }
}

/// Has the child run on `core` alone, where the machine allows it.
pub fn on_core(command: &mut Command, core: usize) -> &mut Command {
    let bind = move || {
        let mut set = nix::sched::CpuSet::new();
        // A machine that forbids it gives less even numbers, not wrong ones.
        let _ = set.set(core).and_then(|()| nix::sched::sched_setaffinity(Pid::from_raw(0), &set));
        Ok(())
    };
    // SAFETY: between fork and exec only one system call is made, on memory of the closure's own.
    unsafe { command.pre_exec(bind) }
}

/// The path of `program`, if this machine has it.
pub fn find_program(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The path of `program`.
///
/// # Panics
/// When the machine lacks it; `make setup` installs what the tests need.
#[track_caller]
pub fn require_program(program: &str) -> std::path::PathBuf {
    find_program(program).unwrap_or_else(|| panic!("{program} is not installed: run `make setup`"))
}
