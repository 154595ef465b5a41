//! Actions that wait for the shell: one input causes four at most.

/// An action without its details, which the flight knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Out {
    Await,
    Attempt,
    Abandon,
    Keep,
    Deliver,
    DeliverKept,
    Reject,
    Cut,
    Done,
}

/// First in, first out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outbox([Option<Out>; 4]);

impl Outbox {
    #[inline]
    pub(super) fn push(&mut self, out: Out) {
        let free = self.0.iter_mut().find(|slot| slot.is_none());
        *free.expect("the shell drains the outbox after each input") = Some(out);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Out> {
        let first = self.0[0].take()?;
        self.0.rotate_left(1);
        Some(first)
    }

    /// What was to be done next is not to be done any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
