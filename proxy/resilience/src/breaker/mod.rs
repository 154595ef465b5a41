//! Stops calling what fails or has turned slow, and asks again with a few probes.
//!
//! ```text
//!                 a rate reached its threshold (with enough calls),
//!                 or too many failures in a row
//!      Closed ------------------------------------------> Open
//!        ^                                               |    ^
//!        | all probes succeeded in time        wait over |    | a probe failed, was slow or overdue:
//!        |                                               v    | the wait doubles, with jitter
//!        +--------------------------------------------- HalfOpen
//!
//!      ForcedOpen, ForcedClosed: an operator's word, until its time is over
//! ```
//!
//! It protects the caller from waiting for a dependency that will not answer, and that dependency from calls that it
//! cannot serve.
//!
//! *Rule*: over the window, `failed` or `slow` at or above its percentage of at least `minimumNumberOfCalls` calls. A
//! running call is slow, and counted, the moment it is older than the threshold ([`Breaker::mark_slow`]): a dependency
//! that hangs opens the breaker without a single answer. When such a call ends, the same entry may gain *failed*. What
//! is nobody's failure (see [`Outcome::counts`]) is not counted at all.
//!
//! *Cold start*: closed, with an empty window. *Recovery*: after the wait, a fixed number of probes, which must all
//! succeed; a probe that was refused locally or cancelled gives its place back; retries are never probes. Half-open
//! waits for probes as long as nobody calls, so that a quiet dependency recovers at the pace of its calls. A ticket of
//! an older epoch, that is from before the last change of state, changes nothing.
//!
//! *Not done*: it owns no timer (the limit of a probe is kept by the call that is the probe), does not know how long
//! "slow" is (routes differ), and never lets a trickle through while open.
//!
//! Source: Nygard, "Release It!"; Resilience4j for the words of the policy; gobreaker for epochs.

mod config;
mod state;

pub use config::{Config, Scope, Settings, SlowTurn, Window as WindowKind};
pub use state::{Cause, Forced, State, Transition};

use std::collections::VecDeque;
use std::time::Duration;

use crate::outcome::Outcome;
use crate::random::Random;
use crate::reason::Reason;
use crate::rejection::{self, Rejected};
use crate::time::Timestamp;
use crate::window::{Counts, Place, Window};

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Asker {
    /// A first attempt: may be a probe.
    First,
    /// A retry: passes only a closed breaker.
    Retry,
}

/// The right to call, and the duty to say what it came to.
#[must_use]
#[derive(Debug)]
pub struct Ticket {
    epoch: u32,
    progress: Progress,
}

impl Ticket {
    /// True if the call is in the window already.
    pub const fn is_counted(&self) -> bool {
        !matches!(self.progress, Progress::Running)
    }
}

/// What the breaker knows of a running call.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// Nothing yet.
    Running,
    /// It is in the window, at this place.
    Counted(Place),
    /// A probe of a stream whose answer has begun: good so far.
    GoodProbe,
}

/// The automatic state, below an operator's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Closed,
    Open { until: Timestamp },
    HalfOpen { running: u32, good: u32 },
}

/// An operator's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Override {
    open: bool,
    until: Timestamp,
}

/// Why it is not closed, for whoever is refused.
#[derive(Clone, Copy, Debug)]
struct Why {
    cause: Cause,
    /// In the unit of the cause; 0 of 0 where it has none.
    observed: u32,
    limit: u32,
}

impl Why {
    const fn unmeasured(cause: Cause) -> Self {
        Self { cause, observed: 0, limit: 0 }
    }
}

/// One breaker.
#[derive(Debug)]
pub struct Breaker {
    config: Config,
    random: Random,
    window: Window,
    phase: Phase,
    forced: Option<Override>,
    /// Changes with every change of state, so that what began before it has no say after it.
    epoch: u32,
    failures_in_row: u32,
    /// Failed half-opens since it was last closed: the exponent of the wait.
    reopened: u32,
    /// Of the last time it opened.
    why: Why,
    /// Tickets that have not come back, of whatever epoch.
    out: u32,
    transitions: VecDeque<Transition>,
}

impl Breaker {
    /// Closed, with nothing counted; `seed` is for the jitter of the wait.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            random: Random::new(seed),
            window: window_of(&config),
            phase: Phase::Closed,
            forced: None,
            epoch: 0,
            failures_in_row: 0,
            reopened: 0,
            why: Why::unmeasured(Cause::ProbesSucceeded),
            out: 0,
            transitions: VecDeque::new(),
        }
    }

    /// Whether a call could pass now, without letting it.
    ///
    /// # Errors
    /// [`Reason::CircuitOpen`], as [`Breaker::refusal`] has it.
    #[inline]
    pub fn check(&mut self, asker: Asker, now: Timestamp) -> Result<(), Rejected> {
        if self.phase == Phase::Closed && self.forced.is_none() {
            return Ok(());
        }
        self.wake_up(now);
        if let Phase::HalfOpen { running, good } = self.phase
            && asker == Asker::First
            && running + good < self.config.settings().probes
        {
            return Ok(());
        }
        self.refusal().map_or(Ok(()), Err)
    }

    /// What it says to a call that it does not let pass: what opened it and the time of the next probes or, in
    /// half-open, how many places for probes are taken. `None`: it lets every call pass.
    pub fn refusal(&self) -> Option<Rejected> {
        let (retry_at, why) = match (self.forced, self.phase) {
            (Some(Override { open: true, until }), _) => (Some(until), Why::unmeasured(Cause::Forced)),
            (Some(_), _) | (None, Phase::Closed) => return None,
            (None, Phase::Open { until }) => (Some(until), self.why),
            (None, Phase::HalfOpen { running, good }) => {
                let limit = self.config.settings().probes;
                (None, Why { cause: Cause::WaitOver, observed: running + good, limit })
            }
        };
        let Why { cause, observed, limit } = why;
        let cause = Some(rejection::Cause::Breaker(cause));
        Some(Rejected { cause, retry_at, ..Rejected::new(Reason::CircuitOpen, observed.into(), limit.into()) })
    }

    /// A ticket, if the call may pass.
    ///
    /// # Errors
    /// As [`Breaker::check`].
    #[inline]
    pub fn try_acquire(&mut self, asker: Asker, now: Timestamp) -> Result<Ticket, Rejected> {
        self.check(asker, now)?;
        if let Phase::HalfOpen { running, .. } = &mut self.phase {
            *running += 1;
        }
        self.out += 1;
        Ok(Ticket { epoch: self.epoch, progress: Progress::Running })
    }

    /// True if nothing has changed the state since the ticket was issued.
    pub const fn is_current(&self, ticket: &Ticket) -> bool {
        ticket.epoch == self.epoch
    }

    /// True if the ticket is a probe's that still runs: its call then holds it to the limit of a probe.
    pub fn is_probe(&self, ticket: &Ticket) -> bool {
        let half_open = matches!(self.phase, Phase::HalfOpen { .. });
        half_open && ticket.epoch == self.epoch && matches!(ticket.progress, Progress::Running)
    }

    /// The call is older than the slow threshold and still runs: it counts at once.
    pub fn mark_slow(&mut self, ticket: &mut Ticket, now: Timestamp) {
        if ticket.epoch != self.epoch || !matches!(ticket.progress, Progress::Running) {
            return;
        }
        match self.phase {
            Phase::Closed => {
                ticket.progress = Progress::Counted(self.window.record(false, true, now));
                self.judge(now);
            }
            Phase::HalfOpen { .. } => self.reopen(Cause::ProbeSlow, now),
            Phase::Open { .. } => {}
        }
        self.debug_check();
    }

    /// The answer of a stream has begun: for the breaker that is its success, which a later failure takes back.
    pub fn mark_begun(&mut self, ticket: &mut Ticket, now: Timestamp) {
        if ticket.epoch != self.epoch || !matches!(ticket.progress, Progress::Running) {
            return;
        }
        match self.phase {
            Phase::Closed => {
                ticket.progress = Progress::Counted(self.window.record(false, false, now));
                self.failures_in_row = 0;
                self.judge(now);
            }
            Phase::HalfOpen { .. } => {
                ticket.progress = Progress::GoodProbe;
                self.probe_succeeded(now);
            }
            Phase::Open { .. } => {}
        }
        self.debug_check();
    }

    /// A turn on a connection that was let through earlier was answered, or has become slow. It needs no ticket: only
    /// a closed breaker counts it, since turns are no probes. Whether a further connection can be made it does not tell,
    /// so failures in a row stay in a row.
    pub fn record_turn(&mut self, slow: bool, now: Timestamp) {
        if self.phase == Phase::Closed {
            self.window.record(false, slow, now);
            self.judge(now);
        }
        self.debug_check();
    }

    /// A probe has reached its limit: that is a failure, whatever becomes of the call.
    pub fn mark_overdue(&mut self, ticket: &mut Ticket, now: Timestamp) {
        if self.is_probe(ticket) {
            self.reopen(Cause::ProbeOverdue, now);
        }
        self.debug_check();
    }

    /// What the call came to.
    #[inline]
    pub fn record(&mut self, ticket: Ticket, outcome: Outcome, now: Timestamp) {
        let Ticket { epoch, progress } = ticket;
        self.out -= 1;
        if epoch != self.epoch {
            return;
        }
        match self.phase {
            Phase::Closed => self.record_closed(progress, outcome.counts(), now),
            Phase::HalfOpen { .. } => self.record_probe(progress, outcome.counts(), now),
            Phase::Open { .. } => {}
        }
        self.debug_check();
    }

    /// What one operator says, until `until`; `Auto` ends it. Forced open ends in half-open, since nobody has seen the
    /// dependency meanwhile; forced closed ends in closed, with what was counted.
    pub fn force(&mut self, forced: Forced, until: Timestamp, now: Timestamp) {
        self.wake_up(now);
        let from = self.stored_state();
        match forced {
            Forced::Auto => self.end_force(now),
            Forced::Open => {
                self.forced = Some(Override { open: true, until });
                self.enter(Phase::Open { until });
                self.tell(from, Cause::Forced, now);
            }
            Forced::Closed => {
                self.forced = Some(Override { open: false, until });
                self.close();
                self.tell(from, Cause::Forced, now);
            }
        }
        self.debug_check();
    }

    /// Other numbers. Another window starts counting afresh; an open breaker stays open for its time.
    pub fn reconfigure(&mut self, config: Config, now: Timestamp) {
        let same_window = config.settings().window == self.config.settings().window;
        self.config = config;
        if !same_window {
            self.window = window_of(&config);
            self.failures_in_row = 0;
            if self.phase == Phase::Closed {
                // The places of running calls belong to the old window.
                self.epoch = self.epoch.wrapping_add(1);
            }
        }
        // Fewer probes may be needed than have succeeded already.
        self.close_if_enough(now);
        self.debug_check();
    }

    /// The next change of state that nobody has heard of.
    pub fn poll_event(&mut self) -> Option<Transition> {
        self.transitions.pop_front()
    }

    /// Where it stands at `now`; open turns half-open by itself when its wait is over.
    pub fn state(&self, now: Timestamp) -> State {
        match (self.forced, self.phase) {
            (Some(force), _) if now < force.until => self.stored_state(),
            (Some(Override { open: true, .. }), _) => State::HalfOpen,
            (_, Phase::Open { until }) if now >= until => State::HalfOpen,
            (_, Phase::Closed) => State::Closed,
            (_, Phase::Open { .. }) => State::Open,
            (_, Phase::HalfOpen { .. }) => State::HalfOpen,
        }
    }

    /// What the window holds.
    pub fn counts(&self, now: Timestamp) -> Counts {
        self.window.counts(now)
    }

    /// While open: when probes are let through.
    pub const fn retry_at(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Open { until } => Some(until),
            _ => None,
        }
    }

    /// While an operator's word holds: until when.
    pub fn forced_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.forced.map(|force| force.until).filter(|&until| now < until)
    }

    /// True while an operator's word holds, as far as anyone has looked.
    pub const fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// The configuration in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Tickets that have not come back.
    pub const fn tickets_out(&self) -> u32 {
        self.out
    }

    /// Panics if a number does not add up.
    pub fn check_invariants(&self) {
        self.window.check_invariants();
        if let Phase::HalfOpen { running, good } = self.phase {
            assert!(running <= self.out, "more probes than tickets");
            assert!(good < self.config.settings().probes, "enough good probes, and not closed");
        }
        if self.forced.is_some_and(|force| force.open) {
            assert!(matches!(self.phase, Phase::Open { .. }), "forced open lies over open");
        }
    }

    fn record_closed(&mut self, progress: Progress, counts: Option<bool>, now: Timestamp) {
        let Some(failed) = counts else { return };
        match progress {
            Progress::Counted(place) if failed => {
                self.window.fail(place, now);
            }
            Progress::Counted(_) => {}
            Progress::Running | Progress::GoodProbe => {
                self.window.record(failed, false, now);
            }
        }
        self.failures_in_row = if failed { self.failures_in_row.saturating_add(1) } else { 0 };
        self.judge(now);
    }

    fn record_probe(&mut self, progress: Progress, counts: Option<bool>, now: Timestamp) {
        match (progress, counts) {
            (_, Some(true)) => self.reopen(Cause::ProbeFailed, now),
            (Progress::Running, Some(false)) => self.probe_succeeded(now),
            (Progress::Running, None) => {
                if let Phase::HalfOpen { running, .. } = &mut self.phase {
                    *running -= 1;
                }
            }
            (Progress::Counted(_) | Progress::GoodProbe, _) => {}
        }
    }

    fn probe_succeeded(&mut self, now: Timestamp) {
        if let Phase::HalfOpen { running, good } = &mut self.phase {
            *running -= 1;
            *good += 1;
        }
        self.close_if_enough(now);
    }

    fn close_if_enough(&mut self, now: Timestamp) {
        let Phase::HalfOpen { good, .. } = self.phase else {
            return;
        };
        if good >= self.config.settings().probes {
            self.close();
            self.tell(State::HalfOpen, Cause::ProbesSucceeded, now);
        }
    }

    /// Opens if what is counted says so.
    #[inline]
    fn judge(&mut self, now: Timestamp) {
        let settings = self.config.settings();
        let counts = self.window.counts(now);
        let reached = |part: u32, percent: u32| u64::from(part) * 100 >= u64::from(percent) * u64::from(counts.calls);
        let enough = counts.calls >= settings.minimum_calls;
        let in_row = settings.consecutive_failures;
        let (cause, observed, limit) = if enough && reached(counts.failed, settings.failure_rate) {
            (Cause::FailureRate, counts.failure_percent(), settings.failure_rate)
        } else if enough && reached(counts.slow, settings.slow_call_rate) {
            (Cause::SlowCallRate, counts.slow_percent(), settings.slow_call_rate)
        } else if in_row > 0 && self.failures_in_row >= in_row {
            (Cause::ConsecutiveFailures, self.failures_in_row, in_row)
        } else {
            return;
        };
        if self.forced.is_some() {
            return;
        }
        let until = now.saturating_add(settings.wait);
        self.why = Why { cause, observed, limit };
        self.enter(Phase::Open { until });
        self.tell(State::Closed, cause, now);
    }

    fn reopen(&mut self, cause: Cause, now: Timestamp) {
        self.reopened = self.reopened.saturating_add(1);
        self.why = Why::unmeasured(cause);
        let until = now.saturating_add(self.grown_wait());
        self.enter(Phase::Open { until });
        self.tell(State::HalfOpen, cause, now);
    }

    /// Between half and all of the doubled wait, and never under the first one: sidecars that opened together do not
    /// probe together.
    fn grown_wait(&mut self) -> Duration {
        let settings = self.config.settings();
        let factor = 2u32.saturating_pow(self.reopened);
        let ceiling = settings.wait.saturating_mul(factor).min(settings.max_wait);
        let least = (ceiling / 2).max(settings.wait);
        least + self.random.up_to(ceiling.saturating_sub(least))
    }

    /// Does what time alone has brought about.
    fn wake_up(&mut self, now: Timestamp) {
        if self.forced.is_some_and(|force| now >= force.until) {
            self.end_force(now);
        }
        let Phase::Open { until } = self.phase else {
            return;
        };
        if self.forced.is_none() && now >= until {
            self.enter(Phase::HalfOpen { running: 0, good: 0 });
            self.tell(State::Open, Cause::WaitOver, now);
        }
    }

    fn end_force(&mut self, now: Timestamp) {
        let from = self.stored_state();
        let Some(force) = self.forced.take() else {
            return;
        };
        if force.open {
            self.enter(Phase::HalfOpen { running: 0, good: 0 });
        }
        self.tell(from, Cause::ForceEnded, now);
    }

    fn close(&mut self) {
        self.enter(Phase::Closed);
        self.window.clear();
        self.failures_in_row = 0;
        self.reopened = 0;
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn tell(&mut self, from: State, cause: Cause, at: Timestamp) {
        let to = self.stored_state();
        let retry_at = self.retry_at();
        self.transitions.push_back(Transition { from, to, cause, counts: self.window.counts(at), retry_at, at });
    }

    /// The state as it was left by the last touch.
    const fn stored_state(&self) -> State {
        match (self.forced, self.phase) {
            (Some(Override { open: true, .. }), _) => State::ForcedOpen,
            (Some(Override { open: false, .. }), _) => State::ForcedClosed,
            (None, Phase::Closed) => State::Closed,
            (None, Phase::Open { .. }) => State::Open,
            (None, Phase::HalfOpen { .. }) => State::HalfOpen,
        }
    }

    fn debug_check(&self) {
        #[cfg(debug_assertions)]
        self.check_invariants();
    }
}

fn window_of(config: &Config) -> Window {
    match config.settings().window {
        WindowKind::Count(calls) => Window::count(calls),
        WindowKind::Time(length) => Window::time(length),
    }
}

#[cfg(test)]
mod tests;
