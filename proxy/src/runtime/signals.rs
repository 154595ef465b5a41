//! Signals, and the way out. See [`super::drain`] for the phases.

use std::io;
use std::time::Duration;

use nix::sys::signal::{SIGINT, SIGTERM, SigHandler, raise, signal};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal as on_signal};

use super::controller::Controller;
use super::drain::Phase;
use super::process::Process;
use super::worker::Message;

/// How often the way out looks whether anybody is left.
const LOOK: Duration = Duration::from_millis(10);

/// The signals of the process, handled from the moment this is made.
pub struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes the signals over. Done before anyone is told that the proxy is ready, so that none finds it unprepared.
    ///
    /// # Errors
    /// What the system says.
    pub fn install() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let (terminate, interrupt) = (on_signal(SignalKind::terminate())?, on_signal(SignalKind::interrupt())?);
        let hangup = on_signal(SignalKind::hangup())?;
        drop(inside);
        Ok(Self { runtime, terminate, interrupt, hangup })
    }

    /// Waits for the order to drain, and drains. SIGHUP re-reads policy meanwhile.
    pub fn until_drained(self, process: &Process, controller: &Controller) {
        let Self { runtime, mut terminate, mut interrupt, mut hangup } = self;
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    () = process.drain.asked() => break,
                    _ = hangup.recv() => reload(process, controller),
                }
            }
            tokio::select! {
                () = drain(process, controller) => {}
                _ = terminate.recv() => end_by(SIGTERM),
                _ = interrupt.recv() => end_by(SIGINT),
            }
        });
    }
}

fn reload(process: &Process, controller: &Controller) {
    process.report.reopen_access_log();
    if process.options.policy.is_empty() {
        tracing::info!("SIGHUP: there are no policy files to read again");
        return;
    }
    if let Err(error) = controller.load_files() {
        tracing::error!("SIGHUP: policy not changed: {error}");
    }
}

async fn drain(process: &Process, controller: &Controller) {
    let leave = process.snapshot.load().drain;
    enter(process, Phase::Notice);
    tokio::time::sleep(leave.delay).await;
    enter(process, Phase::Closing);
    controller.close_listeners();
    process.tell_all(|| Message::Drain);
    let empty = async {
        while process.is_in_use() {
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(leave.grace, empty).await {
        Ok(()) => tracing::info!("drained"),
        Err(_) => {
            tracing::warn!(connections = process.open_connections(), grace = ?leave.grace, "drain.grace is over: what is left is reset");
        }
    }
}

fn enter(process: &Process, phase: Phase) {
    process.drain.advance(phase, process.clock.now());
    process.report.events().drain(process.clock.wall(process.clock.now()), phase_name(phase));
}

fn phase_name(phase: Phase) -> &'static str {
    if phase == Phase::Notice { "notice" } else { "close" }
}

/// Ends as whoever sent the second signal expects: by that signal.
fn end_by(again: nix::sys::signal::Signal) {
    tracing::warn!(signal = again.as_str(), "a second signal: ending now");
    // SAFETY: the default handler runs no code of ours.
    let restored = unsafe { signal(again, SigHandler::SigDfl) };
    let _ = restored.and_then(|_| raise(again));
    std::process::exit(i32::from(crate::cli::EXIT_INTERNAL));
}
