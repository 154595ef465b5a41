//! A child process that ends with the demo, however the demo ends.
//!
//! Dropped: killed. Demo killed with SIGKILL: the kernel tells the child (`PR_SET_PDEATHSIG`). Its own process group,
//! so that Ctrl-C reaches the demo alone, which then ends its children in order.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

use crate::Failure;

/// From the start of a process to its `ready` line. Long, for a machine that is busy with other things.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A running process.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: tokio::process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts `program`, waits for its `{"event":"ready",..}` line and returns that line with it. What it writes to
    /// standard error goes to a file in `dir`.
    ///
    /// # Errors
    /// When it cannot be started, or ends or stays silent instead of getting ready: with the end of its log.
    pub async fn start(name: &str, program: &Path, args: Vec<OsString>, dir: &Path) -> Result<(Child, Value), Failure> {
        let log = dir.join(format!("{name}.log"));
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?)
            .process_group(0)
            .kill_on_drop(true);
        end_with(&mut command, getpid());
        let mut process = command.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        let stdout = process.stdout.take().expect("it was asked for just above");
        let mut child = Child { name: name.to_owned(), process, log };
        let mut lines = BufReader::new(stdout).lines();
        let ready = match tokio::time::timeout(READY_WITHIN, ready_line(&mut lines)).await {
            Ok(Some(ready)) => ready,
            Ok(None) => return Err(child.last_words("ended instead of getting ready").await),
            Err(_) => return Err(child.last_words("did not get ready").await),
        };
        // A child that writes on must not find its pipe full or closed.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok((child, ready))
    }

    /// # Errors
    /// When it has ended although nobody asked it to.
    pub async fn check(&mut self) -> Result<(), Failure> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.last_words(&format!("ended early ({status})")).await),
        }
    }

    /// Ends it now.
    ///
    /// # Errors
    /// When the system does not let us.
    pub async fn end(mut self) -> std::io::Result<()> {
        self.process.kill().await
    }

    async fn last_words(&mut self, what: &str) -> Failure {
        // Already over, or useless: either way its log is complete after this.
        let _ = self.process.kill().await;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(12)..].join("\n  ");
        format!("{} {what}; the end of its log:\n  {end}", self.name).into()
    }
}

async fn ready_line(lines: &mut Lines<BufReader<ChildStdout>>) -> Option<Value> {
    while let Ok(Some(line)) = lines.next_line().await {
        let json: Value = serde_json::from_str(&line).unwrap_or_default();
        if json["event"] == "ready" {
            return Some(json);
        }
    }
    None
}

/// Has the kernel kill the child when `parent`'s thread that starts it ends. The demo starts children from its main
/// thread only, which lives as long as the process.
fn end_with(command: &mut Command, parent: Pid) {
    let tie = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died between fork and the line above; then nobody will send the signal.
        if getppid() == parent { Ok(()) } else { Err(nix::Error::ESRCH.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; prctl and getppid are plain system
    // calls, and neither path allocates.
    unsafe {
        command.pre_exec(tie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Vec<OsString> {
        vec!["-c".into(), script.into()]
    }

    #[tokio::test]
    async fn the_ready_line_is_found_among_others() {
        let dir = tempfile::tempdir().unwrap();
        let script = r#"echo hello; echo '{"event":"ready","listen":"127.0.0.1:1"}'; exec sleep 60"#;
        let (mut child, ready) = Child::start("a", Path::new("/bin/sh"), sh(script), dir.path()).await.unwrap();
        assert_eq!(ready["listen"], "127.0.0.1:1");
        child.check().await.unwrap();
        let pid = Pid::from_raw(child.process.id().unwrap().try_into().unwrap());
        child.end().await.unwrap();
        nix::sys::signal::kill(pid, None).expect_err("it is gone and reaped");
    }

    #[tokio::test]
    async fn who_ends_early_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo 'port 9001 is taken' >&2; exit 3";
        let failed = Child::start("rail", Path::new("/bin/sh"), sh(script), dir.path()).await;
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("rail ended instead") && message.contains("port 9001 is taken"), "{message}");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let failed = Child::start("x", Path::new("/no/such"), Vec::new(), dir.path()).await;
        assert!(failed.unwrap_err().to_string().contains("cannot start /no/such"));
    }
}
