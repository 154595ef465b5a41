//! Two first-in-first-out lists in one table: joining, leaving from the middle and granting are all O(1).

use super::{Turn, WaiterId};
use crate::time::Timestamp;

/// A row of the table.
pub(super) type Index = u32;

const NONE: Index = Index::MAX;

/// What a row has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Waiting,
    Granted,
    Expired,
}

#[derive(Debug)]
struct Row {
    waiter: WaiterId,
    turn: Turn,
    until: Timestamp,
    standing: Standing,
    /// Neighbours in its list while it waits; `next` is the next free row once it is gone.
    previous: Index,
    next: Index,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: Index,
    last: Index,
}

/// The rows outlive their turn: each stays until its owner takes it away.
#[derive(Debug)]
pub(super) struct Queue {
    rows: Vec<Row>,
    free: Index,
    lists: [List; 2],
    waiting: u32,
    granted: u32,
    /// No row that waits ends before this: spares a look at all of them.
    soonest: Timestamp,
}

impl Default for Queue {
    fn default() -> Self {
        let empty = List { first: NONE, last: NONE };
        Self { rows: Vec::new(), free: NONE, lists: [empty; 2], waiting: 0, granted: 0, soonest: Timestamp::MAX }
    }
}

impl Queue {
    /// How many wait.
    pub(super) const fn len(&self) -> u32 {
        self.waiting
    }

    /// How many were granted and have not been taken away.
    pub(super) const fn granted(&self) -> u32 {
        self.granted
    }

    pub(super) fn push(&mut self, waiter: WaiterId, turn: Turn, until: Timestamp) -> Index {
        let last = self.lists[turn as usize].last;
        let row = Row { waiter, turn, until, standing: Standing::Waiting, previous: last, next: NONE };
        let index = self.store(row);
        match last {
            NONE => self.lists[turn as usize].first = index,
            last => self.row(last).next = index,
        }
        self.lists[turn as usize].last = index;
        self.waiting += 1;
        self.soonest = self.soonest.min(until);
        index
    }

    /// Grants to the one whose turn it is, passing over those whose time is up.
    pub(super) fn grant_next(&mut self, now: Timestamp) -> Option<WaiterId> {
        for turn in [Turn::First, Turn::Retry] {
            while let Some(index) = present(self.lists[turn as usize].first) {
                self.unlink(index);
                let row = self.row(index);
                if row.until <= now {
                    row.standing = Standing::Expired;
                    continue;
                }
                row.standing = Standing::Granted;
                let waiter = row.waiter;
                self.granted += 1;
                return Some(waiter);
            }
        }
        None
    }

    /// Takes those out of the lists whose time is up.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if now < self.soonest {
            return;
        }
        self.soonest = Timestamp::MAX;
        for turn in [Turn::First, Turn::Retry] {
            let mut at = self.lists[turn as usize].first;
            while let Some(index) = present(at) {
                let row = &self.rows[index as usize];
                at = row.next;
                if row.until <= now {
                    self.unlink(index);
                    self.row(index).standing = Standing::Expired;
                } else {
                    self.soonest = self.soonest.min(row.until);
                }
            }
        }
    }

    pub(super) fn standing(&self, index: Index, now: Timestamp) -> Standing {
        let row = &self.rows[index as usize];
        match row.standing {
            Standing::Waiting if row.until <= now => Standing::Expired,
            standing => standing,
        }
    }

    pub(super) fn until(&self, index: Index) -> Timestamp {
        self.rows[index as usize].until
    }

    /// The owner of a row takes it away.
    pub(super) fn remove(&mut self, index: Index) {
        match self.rows[index as usize].standing {
            Standing::Waiting => self.unlink(index),
            Standing::Granted => self.granted -= 1,
            Standing::Expired => {}
        }
        let free = self.free;
        let row = self.row(index);
        row.standing = Standing::Expired;
        row.next = free;
        self.free = index;
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = WaiterId> + '_ {
        let ends = self.lists.map(|list| list.first);
        ends.into_iter().flat_map(move |first| self.list(first)).map(|row| row.waiter)
    }

    /// Panics if the lists and the counts differ.
    pub(super) fn check_invariants(&self) {
        for (turn, list) in [Turn::First, Turn::Retry].into_iter().zip(self.lists) {
            let mut previous = NONE;
            for row in self.list(list.first) {
                assert!(row.turn == turn && row.standing == Standing::Waiting && row.previous == previous);
                assert!(self.soonest <= row.until);
                previous = if previous == NONE { list.first } else { self.rows[previous as usize].next };
            }
            assert_eq!(previous, list.last);
        }
        assert_eq!(self.waiting().count(), self.waiting as usize);
        let granted = self.rows.iter().filter(|row| row.standing == Standing::Granted).count();
        assert_eq!(granted, self.granted as usize);
    }

    fn list(&self, first: Index) -> impl Iterator<Item = &Row> {
        let row = |index: Index| self.rows.get(index as usize);
        std::iter::successors(row(first), move |current| row(current.next))
    }

    fn store(&mut self, row: Row) -> Index {
        if self.free == NONE {
            let index = Index::try_from(self.rows.len()).expect("a queue holds a million at most");
            self.rows.push(row);
            return index;
        }
        let index = self.free;
        self.free = self.row(index).next;
        *self.row(index) = row;
        index
    }

    fn unlink(&mut self, index: Index) {
        let &Row { turn, previous, next, .. } = &self.rows[index as usize];
        match previous {
            NONE => self.lists[turn as usize].first = next,
            previous => self.row(previous).next = next,
        }
        match next {
            NONE => self.lists[turn as usize].last = previous,
            next => self.row(next).previous = previous,
        }
        self.waiting -= 1;
    }

    fn row(&mut self, index: Index) -> &mut Row {
        &mut self.rows[index as usize]
    }
}

fn present(index: Index) -> Option<Index> {
    (index != NONE).then_some(index)
}
