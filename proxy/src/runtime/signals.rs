//! Signals, and the way out. See [`super::drain`] for the phases.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, raise, signal};
use tokio::signal::unix::{SignalKind, signal as on_signal};

use super::controller::Controller;
use super::drain::Phase;
use super::process::Process;
use super::worker::Message;

/// How often the way out looks whether anybody is left.
const LOOK: Duration = Duration::from_millis(10);

/// Waits for the order to drain, and drains. SIGHUP re-reads policy meanwhile.
pub fn until_drained(process: &Arc<Process>, controller: &Controller) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = on_signal(SignalKind::terminate())?;
        let mut interrupt = on_signal(SignalKind::interrupt())?;
        let mut hangup = on_signal(SignalKind::hangup())?;
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = process.drain.asked() => break,
                _ = hangup.recv() => reload(process, controller),
            }
        }
        let again = tokio::select! {
            () = drain(process, controller) => None,
            _ = terminate.recv() => Some(Signal::SIGTERM),
            _ = interrupt.recv() => Some(Signal::SIGINT),
        };
        if let Some(again) = again {
            end_by(again);
        }
        Ok(())
    })
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
        while process.open_connections() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(leave.grace, empty).await {
        Ok(()) => tracing::info!("drained"),
        Err(_) => {
            tracing::warn!(connections = process.open_connections(), grace = ?leave.grace, "drain.grace is over: what is left is reset")
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
fn end_by(again: Signal) {
    tracing::warn!(signal = again.as_str(), "a second signal: ending now");
    // SAFETY: the default handler runs no code of ours.
    let restored = unsafe { signal(again, SigHandler::SigDfl) };
    let _ = restored.and_then(|_| raise(again));
    std::process::exit(i32::from(crate::cli::EXIT_INTERNAL));
}
