//! How the process ends without losing a call.
//!
//! ```text
//!   Serving --SIGTERM, POST /drain--> Notice --drain.delay--> Closing --nothing left, or drain.grace--> exit
//! ```
//! *Notice*: unready, still serving, every answer says `Connection: close`. *Closing*: listeners are closed after their
//! accept queues are emptied, what is in flight ends, connections that stay idle are closed.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use plimsoll_resilience::time::Timestamp;
use tokio::sync::Notify;

/// How far the drain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Not ready yet.
    Starting,
    /// In normal service.
    Serving,
    /// Serving, but everyone is told to leave.
    Notice,
    /// No new connections.
    Closing,
}

impl Phase {
    /// As `/status` spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "Starting",
            Self::Serving => "Serving",
            Self::Notice | Self::Closing => "Draining",
        }
    }
}

/// The phase of this process, read by every worker on every call.
#[derive(Debug)]
pub struct Drain {
    phase: AtomicU8,
    /// When the last phase began, in nanoseconds of the process's clock.
    closing_since: AtomicU64,
    asked: Notify,
}

impl Default for Drain {
    fn default() -> Self {
        Self { phase: AtomicU8::new(Phase::Starting as u8), closing_since: AtomicU64::new(0), asked: Notify::new() }
    }
}

impl Drain {
    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            2 => Phase::Notice,
            _ => Phase::Closing,
        }
    }

    /// When [`Phase::Closing`] began.
    #[must_use]
    pub fn closing_since(&self) -> Timestamp {
        Timestamp::from_nanos(self.closing_since.load(Ordering::Relaxed))
    }

    /// Goes on to `phase`; never back.
    pub fn advance(&self, phase: Phase, now: Timestamp) {
        if phase == Phase::Closing {
            self.closing_since.store(now.as_nanos(), Ordering::Relaxed);
        }
        self.phase.fetch_max(phase as u8, Ordering::Release);
    }

    /// Asks for the drain to begin.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Waits until somebody asks for the drain to begin.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }
}
