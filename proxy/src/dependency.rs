//! What all workers share about one dependency: its limits, its sockets, and who waits for them.
//!
//! A `Dependency` outlives the generations of policy that describe it. Its machines stand behind one lock that is held
//! for nanoseconds and never across an await; wakers are called after it is released.

use std::collections::HashMap;
use std::iter::from_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use plimsoll_resilience::bulkhead::WaiterId;
use plimsoll_resilience::event::Event;
use plimsoll_resilience::protection::{Protection, ProtectionConfig};
use plimsoll_resilience::time::Timestamp;

use crate::sockets::Sockets;

/// A dependency's number in this process: stable over generations, never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DependencyId(pub u32);

/// What the destinations that no policy lists are called. Names of policies have a slash.
pub const UNLISTED: &str = "unlisted";

/// The state of one dependency. See the module documentation.
#[derive(Debug)]
pub struct Dependency {
    /// Its number.
    pub id: DependencyId,
    /// What metrics and people call it: `namespace/name`, `unlisted` or `inbound`.
    pub name: Arc<str>,
    shared: Mutex<Shared>,
    sockets: Arc<Sockets>,
    /// Traffic was seen that nothing looks into.
    opaque: AtomicBool,
    events: Arc<dyn EventSink>,
}

/// Where the state changes of a dependency are told.
pub trait EventSink: Send + Sync + std::fmt::Debug {
    /// Called after the dependency's lock is released, by whichever thread changed it.
    fn on_event(&self, dependency: &str, event: &Event);
}

/// What stands behind the lock.
#[derive(Debug)]
pub struct Shared {
    /// The machines.
    pub protection: Protection,
    waiting: HashMap<WaiterId, Waker>,
}

impl Shared {
    /// Has `waker` called when `waiter` is granted its permit or refused because a breaker opened.
    pub fn wait(&mut self, waiter: WaiterId, waker: &Waker) {
        self.waiting.entry(waiter).or_insert_with(|| waker.clone()).clone_from(waker);
    }

    /// Forgets the waker of `waiter`.
    pub fn stop_waiting(&mut self, waiter: WaiterId) {
        self.waiting.remove(&waiter);
    }
}

impl Dependency {
    /// A dependency with fresh state.
    #[must_use]
    pub fn new(
        id: DependencyId,
        name: Arc<str>,
        config: &ProtectionConfig,
        seed: u64,
        events: Arc<dyn EventSink>,
        now: Timestamp,
    ) -> Arc<Self> {
        let shared = Shared { protection: Protection::new(config, seed, now), waiting: HashMap::new() };
        Arc::new(Self {
            id,
            name,
            shared: Mutex::new(shared),
            sockets: Arc::default(),
            opaque: AtomicBool::new(false),
            events,
        })
    }

    /// Whether a policy is about it.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        &*self.name != UNLISTED
    }

    /// Runs `touch` on the machines, then wakes and tells whoever is concerned.
    pub fn with<T>(&self, touch: impl FnOnce(&mut Shared) -> T) -> T {
        self.with_call(touch, |_| {})
    }

    /// The same on behalf of one call, which is told what an observed block would have done to it.
    pub fn with_call<T>(&self, touch: impl FnOnce(&mut Shared) -> T, mut would: impl FnMut(&Event)) -> T {
        let mut shared = self.lock();
        let result = touch(&mut shared);
        // Nearly always there is nothing to tell and nobody to wake.
        let (event, woken) = (shared.protection.poll_event(), shared.protection.poll_woken());
        if event.is_none() && woken.is_none() {
            return result;
        }
        let events: Vec<Event> = event.into_iter().chain(from_fn(|| shared.protection.poll_event())).collect();
        let mut woken: Vec<WaiterId> = woken.into_iter().collect();
        woken.extend(from_fn(|| shared.protection.poll_woken()));
        let wakers: Vec<Waker> = woken.iter().filter_map(|waiter| shared.waiting.remove(waiter)).collect();
        drop(shared);
        wakers.into_iter().for_each(Waker::wake);
        for event in &events {
            match event {
                Event::Breaker { .. } => self.events.on_event(&self.name, event),
                Event::WouldReject(_) | Event::WouldRetry(_) | Event::WouldCountSlow(_) => would(event),
            }
        }
        result
    }

    /// Opaque traffic has gone to this dependency: blocks that act on calls do nothing for it.
    pub fn note_opaque(&self) {
        self.opaque.store(true, Ordering::Relaxed);
    }

    /// Whether opaque traffic has gone to this dependency.
    #[must_use]
    pub fn has_opaque(&self) -> bool {
        self.opaque.load(Ordering::Relaxed)
    }

    /// The sockets that are open to this dependency.
    #[must_use]
    pub fn sockets(&self) -> &Arc<Sockets> {
        &self.sockets
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic under the lock is counted where it is caught; the machines check their own invariants.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
