//! What is worth telling: a machine notes it, the shell counts and logs it.

use crate::breaker::Transition;
use crate::protection::BreakerScope;
use crate::rejection::{Rejection, RouteId};

/// Something that happened in the protection of one dependency.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A breaker changed its state.
    Breaker {
        /// Which breaker.
        scope: BreakerScope,
        /// From where to where, and why.
        transition: Transition,
    },
    /// A block in `Observe` would have refused or cut a call.
    WouldReject(Rejection),
    /// A turn on an opaque connection has become slow, and would count with `slowTurn: Enforce`.
    WouldCountSlow(RouteId),
    /// A retry block in `Observe` would have made another attempt.
    WouldRetry(RouteId),
}
