//! One queue of deadlines for each worker.
//!
//! Almost every deadline of a proxy is moved on before it is reached: each call pushes its connection's timeout further
//! away. So an alarm that moves *later* only notes the new time; when the old one comes up the queue looks again and
//! re-arms. Moving an alarm costs a store, and the queue is touched about once a second for each busy connection.
//!
//! Granularity is one millisecond (tokio's), rounded up: an alarm never rings early.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use plimsoll_resilience::time::Timestamp;
use slab::Slab;
use tokio_util::time::{DelayQueue, delay_queue::Key};

use super::clock::Clock;

/// The deadlines of one worker. See the module documentation.
#[derive(Debug)]
pub struct Timers {
    clock: Clock,
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    alarms: Slab<Entry>,
    queue: DelayQueue<usize>,
    /// The task that polls the queue, to be told when the first alarm of an empty queue is set.
    driver: Option<Waker>,
}

#[derive(Debug)]
struct Entry {
    /// When the owner wants to be woken; `Timestamp::MAX` = not at all.
    wanted: Timestamp,
    /// Where the entry stands in the queue, never later than `wanted` while an alarm is set.
    queued: Option<(Timestamp, Key)>,
    waker: Option<Waker>,
}

impl Timers {
    /// An empty set of timers on `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Rc<Self> {
        Rc::new(Self { clock, inner: RefCell::default() })
    }

    /// An alarm that is not set yet.
    #[must_use]
    pub fn alarm(self: &Rc<Self>) -> Alarm {
        let id = self.inner.borrow_mut().alarms.insert(Entry { wanted: Timestamp::MAX, queued: None, waker: None });
        Alarm { timers: Rc::clone(self), id }
    }

    /// Wakes every owner of a set alarm, so that it looks at the world again.
    pub fn ring_all(&self) {
        let wakers: Vec<Waker> =
            self.inner.borrow().alarms.iter().filter_map(|(_, entry)| entry.waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Rings alarms as they come due; spawned once on each worker and never ends.
    pub async fn drive(self: Rc<Self>) {
        poll_fn(|cx| self.poll_drive(cx)).await;
    }

    fn poll_drive(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.borrow_mut();
        while let Poll::Ready(Some(expired)) = inner.queue.poll_expired(cx) {
            let id = expired.into_inner();
            let now = self.clock.now();
            let entry = &mut inner.alarms[id];
            entry.queued = None;
            if entry.wanted == Timestamp::MAX {
                continue;
            }
            if entry.wanted <= now {
                entry.wanted = Timestamp::MAX;
                if let Some(waker) = entry.waker.take() {
                    waker.wake();
                }
            } else {
                let wanted = entry.wanted;
                let key = inner.queue.insert_at(id, self.clock.instant(wanted).into());
                inner.alarms[id].queued = Some((wanted, key));
            }
        }
        // An empty queue keeps no waker of ours.
        inner.driver = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// One deadline that its owner moves as it likes; dropped, it is gone.
#[derive(Debug)]
pub struct Alarm {
    timers: Rc<Timers>,
    id: usize,
}

impl Alarm {
    /// Wakes `waker` at `at` or just after, in place of whatever was set before. `None` sets nothing.
    pub fn set(&self, at: Option<Timestamp>, waker: &Waker) {
        let inner = &mut *self.timers.inner.borrow_mut();
        let entry = &mut inner.alarms[self.id];
        let Some(at) = at.filter(|at| *at != Timestamp::MAX) else {
            entry.wanted = Timestamp::MAX;
            return;
        };
        entry.wanted = at;
        if !entry.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            entry.waker = Some(waker.clone());
        }
        let at_instant = || self.timers.clock.instant(at).into();
        match &mut entry.queued {
            Some((queued, _)) if *queued <= at => {}
            Some((queued, key)) => {
                *queued = at;
                inner.queue.reset_at(key, at_instant());
            }
            None => {
                let key = inner.queue.insert_at(self.id, at_instant());
                entry.queued = Some((at, key));
                if let Some(driver) = inner.driver.take() {
                    driver.wake();
                }
            }
        }
    }

    /// Waits until `at`.
    pub async fn until(&self, at: Timestamp) {
        poll_fn(|cx| {
            if self.timers.clock.now() >= at {
                return Poll::Ready(());
            }
            self.set(Some(at), cx.waker());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let inner = &mut *self.timers.inner.borrow_mut();
        if let Some((_, key)) = inner.alarms.remove(self.id).queued {
            inner.queue.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn local<F: Future<Output = ()>>(test: impl FnOnce(Clock, Rc<Timers>) -> F) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build_local(Default::default()).unwrap();
        let clock = Clock::start();
        let timers = Timers::new(clock);
        runtime.block_on(async {
            tokio::task::spawn_local(Rc::clone(&timers).drive());
            test(clock, timers).await;
        });
    }

    #[test]
    fn an_alarm_never_rings_early_whichever_way_it_was_moved() {
        local(|clock, timers| async move {
            let alarm = timers.alarm();
            let start = clock.now();
            alarm.set(Some(start + Duration::from_millis(5)), Waker::noop());
            alarm.until(start + Duration::from_millis(15)).await;
            assert!(clock.now() >= start + Duration::from_millis(15));
            alarm.set(Some(clock.now() + Duration::from_secs(3600)), Waker::noop());
            let soon = clock.now() + Duration::from_millis(3);
            alarm.until(soon).await;
            assert!(clock.now() >= soon);
        });
    }

    #[test]
    fn a_dropped_alarm_leaves_nothing_behind() {
        local(|clock, timers| async move {
            for _ in 0..100 {
                let alarm = timers.alarm();
                alarm.set(Some(clock.now() + Duration::from_secs(60)), Waker::noop());
            }
            let inner = timers.inner.borrow();
            assert!(inner.alarms.is_empty());
            assert!(inner.queue.is_empty());
        });
    }
}
