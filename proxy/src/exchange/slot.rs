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
pub struct Slot(Box<Stage>);

#[derive(Default)]
#[expect(clippy::large_enum_variant, reason = "it is the memory of the largest that is kept")]
enum Stage {
    #[default]
    Empty,
    Begin(Rc<Worker>, Begin),
    Running(Exchange),
}

impl Slot {
    /// Puts a call in.
    pub fn load(&mut self, worker: &Rc<Worker>, begin: Begin) {
        *self.0 = Stage::Begin(Rc::clone(worker), begin);
    }

    /// Runs the call that was put in, and gives back the connection that it had for itself.
    pub async fn run(&mut self) -> (Option<Box<Downstream>>, After) {
        let after = poll_fn(|cx| self.poll(cx)).await;
        let Stage::Running(exchange) = &mut *self.0 else {
            unreachable!("what was polled to its end has been running")
        };
        let down = exchange.finish();
        *self.0 = Stage::Empty;
        (down, after)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<After> {
        if let Stage::Begin(..) = *self.0
            && let Stage::Begin(worker, begin) = std::mem::take(&mut *self.0)
        {
            *self.0 = Stage::Running(Exchange::start(worker, begin, cx.waker()));
        }
        match &mut *self.0 {
            Stage::Running(exchange) => exchange.poll(cx),
            Stage::Empty | Stage::Begin(..) => unreachable!("a call is put in before it is run"),
        }
    }
}
