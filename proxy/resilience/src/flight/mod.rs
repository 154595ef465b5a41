//! The life of one call.
mod call;

use std::sync::Arc;
use std::time::Duration;

pub use call::{Action, Attempt, AttemptKind, Call, Failure, Head, RetryDenied, Safety, Summary};

use crate::bulkhead::WaiterId;
use crate::protection::Protection;
use crate::rejection::EndpointKey;
use crate::rules::Rules;
use crate::time::Timestamp;

/// One call.
#[derive(Debug)]
pub struct Flight {
    rules: Arc<Rules>,
    pending: [Option<Action>; 3],
}

impl Flight {
    /// The head of a request has arrived and belongs to a dependency.
    pub fn start(
        rules: Arc<Rules>,
        _call: Call,
        _protection: &mut Protection,
        _now: Timestamp,
    ) -> Self {
        let attempt = Attempt {
            number: 1,
            kind: AttemptKind::First,
            fresh_connection: false,
            avoid: None,
        };
        Self {
            rules,
            pending: [Some(Action::Attempt(attempt)), None, None],
        }
    }

    /// Our waiter came out of [`Protection::poll_woken`]. A spurious call does no harm.
    pub fn handle_woken(&mut self, _protection: &mut Protection, _now: Timestamp) {}

    /// After [`Action::Attempt`]: this endpoint was picked, and a connection is looked for.
    pub fn handle_picked(
        &mut self,
        _endpoint: EndpointKey,
        _protection: &mut Protection,
        _now: Timestamp,
    ) {
    }

    /// After [`Action::Attempt`]: there is no endpoint; `all_open`: because every breaker refused.
    pub fn handle_no_endpoint(
        &mut self,
        _all_open: bool,
        _protection: &mut Protection,
        _now: Timestamp,
    ) {
    }

    /// A connection, new or pooled, is ours: the clock of the attempt starts.
    pub fn handle_connected(&mut self, _now: Timestamp) {}

    /// The first byte of the request was written: the latency clock starts.
    pub fn handle_sent(&mut self, _now: Timestamp) {}

    /// We wait for our caller: for bytes of its request, or for room to write to it. The latency clock stands still.
    pub fn handle_caller_wait(&mut self, _now: Timestamp) {}

    /// We wait for our caller no longer.
    pub fn handle_caller_ready(&mut self, _now: Timestamp) {}

    /// Bytes moved, either way: the idle clock starts again.
    pub fn handle_progress(&mut self, _now: Timestamp) {}

    /// The body outgrew what is kept of it: the call cannot be sent again.
    pub fn handle_unrepeatable(&mut self) {}

    /// The head of the final answer; never a 1xx.
    pub fn handle_head(&mut self, _head: Head, _protection: &mut Protection, _now: Timestamp) {
        self.pending[0] = Some(Action::Deliver);
    }

    /// The last byte of the answer was received.
    pub fn handle_ended(&mut self, _protection: &mut Protection, _now: Timestamp) {
        self.pending[0] = Some(Action::Done);
    }

    /// The attempt failed.
    pub fn handle_failed(
        &mut self,
        _failure: Failure,
        _protection: &mut Protection,
        _now: Timestamp,
    ) {
        self.pending[0] = Some(Action::Done);
    }

    /// The caller went away, or the shell is dropping the call. Harmless after the end.
    pub fn handle_caller_gone(&mut self, _protection: &mut Protection, _now: Timestamp) {
        self.pending[0] = Some(Action::Done);
    }

    /// A clock ran out. Harmless when none has.
    pub fn handle_timeout(&mut self, _protection: &mut Protection, _now: Timestamp) {}

    /// When [`Flight::handle_timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        None
    }

    /// What the shell does next.
    pub fn poll_action(&mut self) -> Option<Action> {
        let next = self.pending[0].take();
        self.pending.rotate_left(1);
        next
    }

    /// The name under which the call waits for a permit, while it does.
    pub fn waiter(&self) -> Option<WaiterId> {
        None
    }

    /// What goes out as the deadline: the time left, less the reserve. `None`: none is sent.
    pub fn remaining(&self, _now: Timestamp) -> Option<Duration> {
        None
    }

    /// Whether the call could be sent again, so that its body is worth keeping.
    pub fn may_be_retried(&self) -> bool {
        self.rules.retry.is_some()
    }

    /// What the call has come to so far; final after [`Action::Done`].
    pub fn summary(&self) -> Summary {
        Summary::default()
    }
}
