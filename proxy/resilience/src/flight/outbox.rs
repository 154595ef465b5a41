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
pub(super) struct Outbox {
    items: [Option<Out>; SIZE],
    /// The next to go out.
    first: u8,
    count: u8,
}

const SIZE: usize = 4;

impl Outbox {
    #[inline]
    pub(super) fn push(&mut self, out: Out) {
        assert!(usize::from(self.count) < SIZE, "the shell drains the outbox after each input");
        self.items[usize::from(self.first + self.count) % SIZE] = Some(out);
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Out> {
        self.count = self.count.checked_sub(1)?;
        let first = usize::from(self.first);
        self.first = (self.first + 1) % SIZE as u8;
        self.items[first]
    }

    /// What was to be done next is not to be done any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
