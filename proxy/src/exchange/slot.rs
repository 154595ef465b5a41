//! Where a call lives while it runs: memory that is used for one call after the other.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use plimsoll_resilience::time::Timestamp;

use super::{After, Caller, Exchange};
use crate::forward::request::Request;
use crate::route::Routed;
use crate::runtime::worker::Worker;
use crate::serve::Downstream;
use crate::snapshot::Snapshot;

/// What a call begins with.
pub struct Begin {
    /// Whose it is.
    pub caller: Caller,
    /// The generation that holds for it.
    pub snapshot: Arc<Snapshot>,
    /// Where it belongs.
    pub routed: Routed,
    /// The request, as far as it is here.
    pub request: Request,
    /// When its head was complete.
    pub arrived: Timestamp,
}

/// Memory for one call, used for one call after the other.
#[derive(Default)]
pub struct Slot(Box<Memory>);

/// Two places instead of a state: what a call begins with is moved as the little that it is.
#[derive(Default)]
struct Memory {
    begin: Option<(Rc<Worker>, Begin)>,
    call: Option<Exchange>,
}

impl Slot {
    /// Puts a call in.
    pub fn load(&mut self, worker: &Rc<Worker>, begin: Begin) {
        self.0.begin = Some((Rc::clone(worker), begin));
    }

    /// Runs the call that was put in, and gives back the connection that it had for itself.
    pub async fn run(&mut self) -> (Option<Box<Downstream>>, After) {
        let after = poll_fn(|cx| self.poll(cx)).await;
        let down = self.0.call.as_mut().and_then(Exchange::finish);
        self.0.call = None;
        (down, after)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<After> {
        if let Some((worker, begin)) = self.0.begin.take() {
            self.0.call = Some(Exchange::start(worker, begin, cx.waker()));
        }
        self.0.call.as_mut().expect("a call is put in before it is run").poll(cx)
    }
}
