//! `maxConnections`: how many sockets are open to a dependency, or from the callers of the workload, over all workers.
//!
//! The lock is taken where a socket is opened or closed, which is rare: calls go over sockets that are open already.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A count of sockets with a limit, and those who wait for one, first come, first served.
#[derive(Debug, Default)]
pub struct Sockets {
    state: Mutex<State>,
    /// Somebody waits: whoever has an idle socket says so. Written under the lock.
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    limit: Option<usize>,
    waiting: Vec<(u64, Waker)>,
    next: u64,
}

impl State {
    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.open < limit)
    }
}

impl Sockets {
    /// Sockets open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.lock().open
    }

    /// The limit in force, if there is one.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        self.lock().limit
    }

    /// Sets the limit; `None` is none. Sockets above a lower limit are paid back as they close.
    pub fn set_limit(&self, limit: Option<usize>) {
        let mut state = self.lock();
        state.limit = limit;
        self.settle(state);
    }

    /// Whether somebody waits for a socket.
    #[must_use]
    pub fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// One more socket, unless the limit is reached or somebody waits for the same.
    #[must_use]
    pub fn try_open(self: &Arc<Self>) -> Option<OpenSocket> {
        let mut state = self.lock();
        (state.has_room() && state.waiting.is_empty()).then(|| {
            state.open += 1;
            OpenSocket(Arc::clone(self))
        })
    }

    /// One more socket, as soon as there is one.
    pub async fn opened(self: Arc<Self>) -> OpenSocket {
        let mut place = Place { sockets: self, id: None };
        poll_fn(|cx| place.poll(cx)).await
    }

    /// An idle socket has become free: the first in line may be able to use it as it is.
    pub fn nudge(&self) {
        let first = self.lock().waiting.first().map(|(_, waker)| waker.clone());
        if let Some(first) = first {
            first.wake();
        }
    }

    /// A connection has been made that takes many calls: whoever is in line may be able to use it.
    pub fn nudge_all(&self) {
        if self.wanted() {
            let wakers: Vec<Waker> = self.lock().waiting.iter().map(|(_, waker)| waker.clone()).collect();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Numbers and wakers: whole at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a change: the first in line is told, if it can go on.
    fn settle(&self, state: MutexGuard<'_, State>) {
        self.wanted.store(!state.waiting.is_empty(), Ordering::Release);
        let first = state.waiting.first().filter(|_| state.has_room()).map(|(_, waker)| waker.clone());
        drop(state);
        if let Some(first) = first {
            first.wake();
        }
    }
}

/// A place in the line; dropped, it is given up, and whoever is behind is told.
struct Place {
    sockets: Arc<Sockets>,
    id: Option<u64>,
}

impl Place {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<OpenSocket> {
        let mut state = self.sockets.lock();
        let is_first = state.waiting.first().is_none_or(|(first, _)| Some(*first) == self.id);
        if is_first && state.has_room() {
            state.open += 1;
            drop(state);
            self.leave();
            return Poll::Ready(OpenSocket(Arc::clone(&self.sockets)));
        }
        match self.id.and_then(|id| state.waiting.iter_mut().find(|(known, _)| *known == id)) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => {
                let id = state.next;
                state.next += 1;
                state.waiting.push((id, cx.waker().clone()));
                self.id = Some(id);
            }
        }
        self.sockets.wanted.store(true, Ordering::Release);
        Poll::Pending
    }

    fn leave(&mut self) {
        if let Some(id) = self.id.take() {
            let mut state = self.sockets.lock();
            state.waiting.retain(|(known, _)| *known != id);
            self.sockets.settle(state);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// One open socket, counted until it is dropped.
#[derive(Debug)]
pub struct OpenSocket(Arc<Sockets>);

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open -= 1;
        self.0.settle(state);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn limited(limit: usize) -> Arc<Sockets> {
        let sockets = Arc::<Sockets>::default();
        sockets.set_limit(Some(limit));
        sockets
    }

    #[test]
    fn who_waits_is_served_in_turn_and_a_newcomer_waits_behind() {
        let sockets = limited(1);
        let held = sockets.try_open().unwrap();
        let (first_woken, second_woken) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let mut first = pin!(Arc::clone(&sockets).opened());
        let mut second = pin!(Arc::clone(&sockets).opened());
        let waker = Waker::from(Arc::clone(&first_woken));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let other = Waker::from(Arc::clone(&second_woken));
        assert!(second.as_mut().poll(&mut Context::from_waker(&other)).is_pending());
        assert!(sockets.wanted());
        drop(held);
        assert_eq!((first_woken.0.load(Ordering::Relaxed), second_woken.0.load(Ordering::Relaxed)), (1, 0));
        assert!(sockets.try_open().is_none(), "there is a line");
        assert!(second.as_mut().poll(&mut Context::from_waker(&other)).is_pending());
        let Poll::Ready(socket) = first.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("there is room")
        };
        drop(socket);
        assert!(second.as_mut().poll(&mut Context::from_waker(&other)).is_ready());
        assert!(!sockets.wanted());
    }

    #[test]
    fn a_place_that_is_given_up_passes_its_turn_on() {
        let sockets = limited(1);
        let held = sockets.try_open().unwrap();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut gives_up = Box::pin(Arc::clone(&sockets).opened());
        assert!(gives_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut next = pin!(Arc::clone(&sockets).opened());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(held);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        drop(gives_up);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        assert_eq!(sockets.open(), 0, "what was opened is dropped with the future's result");
    }

    #[test]
    fn a_higher_limit_lets_waiters_in_and_a_lower_one_is_paid_back() {
        let sockets = limited(1);
        let first = sockets.try_open().unwrap();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut waits = pin!(Arc::clone(&sockets).opened());
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        sockets.set_limit(Some(2));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(second) = waits.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("there is room")
        };
        sockets.set_limit(Some(1));
        drop(first);
        assert!(sockets.try_open().is_none());
        drop(second);
        assert!(sockets.try_open().is_some());
    }
}
