//! The first words of a caller, waited for.

use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_resilience::time::Timestamp;

use super::{DRAIN_QUIET, Downstream, IDLE_TIMEOUT};
use crate::detect::{Habit, Peek, Verdict, may_be_tls, peek};
use crate::forward::io::poll_read;
use crate::runtime::drain::Phase;
use crate::runtime::worker::Worker;

/// How long a beginning that looks like a protocol is waited for to go on, before it is taken for what it looks like.
/// HTTP has a clock of its own for slow heads, which then begins; a ClientHello without its end has lost its name.
const PATIENCE_HTTP: Duration = Duration::from_secs(1);
const PATIENCE_TLS: Duration = Duration::from_secs(10);
/// The same for text that may yet become a request of an unknown method, or is all that is said before an answer.
const PATIENCE_TEXT: Duration = Duration::from_millis(200);

/// Waits for the first words of a caller.
#[derive(Debug)]
pub struct Listening {
    habit: Option<Habit>,
    /// Shorter input was looked at already.
    at_least: usize,
    /// What it is taken for when nothing more has come by then.
    leans: Option<(Verdict, Timestamp)>,
}

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// What the connection carries. The words are in the caller's buffer.
    Said(Verdict),
    /// The caller has ended without a word.
    Ended,
    /// The caller has gone.
    Reset,
}

impl Listening {
    /// For a destination of which this is known.
    #[must_use]
    pub fn new(habit: Option<Habit>) -> Self {
        Self { habit, at_least: 1, leans: None }
    }

    /// When it wants to be polled again at the latest.
    #[must_use]
    pub fn until(&self) -> Option<Timestamp> {
        self.leans.as_ref().map(|(_, until)| *until)
    }

    /// Listens. Whoever polls sets the alarm.
    pub fn poll(&mut self, worker: &Worker, down: &mut Downstream, cx: &mut Context<'_>) -> Poll<Heard> {
        loop {
            if down.buf.len() >= self.at_least
                && let Some(verdict) = self.look(worker, &down.buf)
            {
                return Poll::Ready(Heard::Said(verdict));
            }
            match poll_words(worker, down, cx) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(ended) => {
                    // A word is a word, also with an end behind it.
                    let heard = if ended.is_ok() { Heard::Ended } else { Heard::Reset };
                    return Poll::Ready(self.leans.take().map_or(heard, |(verdict, _)| Heard::Said(verdict)));
                }
                Poll::Pending => break,
            }
        }
        if self.until().is_some_and(|until| until <= worker.now())
            && let Some((verdict, _)) = self.leans.take()
        {
            return Poll::Ready(Heard::Said(verdict));
        }
        Poll::Pending
    }

    fn look(&mut self, worker: &Worker, bytes: &[u8]) -> Option<Verdict> {
        match peek(bytes) {
            Peek::Is(verdict) => Some(verdict),
            Peek::Maybe { verdict, at_least } => {
                self.at_least = at_least;
                if self.leans.as_ref().is_none_or(|(leans, _)| *leans != verdict) {
                    let until = worker.now() + self.patience(&verdict, bytes);
                    self.leans = Some((verdict, until));
                }
                None
            }
        }
    }

    fn patience(&self, verdict: &Verdict, bytes: &[u8]) -> Duration {
        match verdict {
            Verdict::Http1 | Verdict::Http2 => PATIENCE_HTTP,
            Verdict::Tls(_) => PATIENCE_TLS,
            // What may become a ClientHello may name whose the connection is: TLS is what is spoken where nothing else is
            // known, too.
            Verdict::Opaque if may_be_tls(bytes) => PATIENCE_TEXT,
            Verdict::Opaque if self.habit == Some(Habit::Opaque) => Duration::ZERO,
            Verdict::Opaque => PATIENCE_TEXT,
        }
    }
}

/// Reads more, or waits for the first byte with no buffer.
fn poll_words(worker: &Worker, down: &mut Downstream, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
    std::task::ready!(down.stream.poll_read_ready(cx))?;
    if down.buf.capacity() == 0 {
        down.buf = worker.buffers.lend();
    } else if down.buf.len() == down.buf.capacity() {
        down.buf.reserve(crate::runtime::buffers::INITIAL);
    }
    let polled = poll_read(&mut down.stream, &mut down.buf, cx);
    if polled.is_pending() && down.buf.is_empty() {
        // Readiness was stale, as it always is for a connection that has just been accepted.
        worker.buffers.give_back(std::mem::take(&mut down.buf));
    }
    polled
}

/// Until when a connection with nothing to say is kept.
pub fn idle_until(worker: &Worker, down: &mut Downstream, now: Timestamp) -> Timestamp {
    let since = *down.idle_since.get_or_insert(now);
    match worker.phase() {
        // Drained is who has had half a second to be told.
        Phase::Closing => worker.process.drain.closing_since().max(since) + DRAIN_QUIET,
        _ => since + IDLE_TIMEOUT,
    }
}
