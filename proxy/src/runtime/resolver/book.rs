//! Whose an address is, where a connection brings no name: a database behind an address that moves.
//!
//! ```text
//!   policy: hosts: ["db.internal:5432"]
//!   application: connect 10.0.3.7:5432 ---> redirected here: whose is 10.0.3.7:5432? ---> db.internal
//! ```
//!
//! - Each name in `hosts` that has a port is looked up for as long as a snapshot with it lives, whenever the TTL of the
//!   answer is over. The application has asked for itself, at another time and maybe of another server, and keeps its
//!   connections: so every answer is remembered for its TTL plus an hour. That hour does not run while no name server
//!   answers.
//! - One address may be told of several names. Then the name that has been followed for longest has it, as long as it is
//!   in a policy. Between two policies this is a guess, which is told once. Where a connection says whom it wants, by SNI
//!   or Host, it is not made: that is asked for first.
//! - What is found is a name, not a place in one snapshot, so that the book needs no generations: who asks looks the name
//!   up in the snapshot of the call.
//!
//! Readers take no lock. Writers have one, on the `dns` thread, and make a new index when an address comes or goes.
//!
//! Not done: names below a wildcard cannot be looked up. An address that was used before the proxy ever heard of it
//! belongs to nobody.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::answer::{Answer, ResolveError};
use super::system::Source;

/// How long an answer is remembered beyond its TTL: connections outlive answers.
const OUTLIVES: Duration = Duration::from_secs(3600);
/// Addresses remembered for one name. A large pool that is told piece by piece is as good as known with these.
const MOST_ADDRESSES: usize = 1024;
/// How soon a name that could not be resolved is asked for again, at first and at most. The names in `hosts` need not
/// exist: callers of a forward proxy only say them.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Look-ups at a time.
const MOST_LOOK_UPS: usize = 16;

/// A name whose addresses are kept in the book for as long as anyone holds this.
#[derive(Debug)]
pub struct Followed {
    name: Arc<str>,
    /// Lower for what has been followed for longer.
    page: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub struct AddressBook {
    index: ArcSwap<Index>,
    pages: Mutex<Pages>,
    places: Semaphore,
}

impl Default for AddressBook {
    fn default() -> Self {
        Self { index: ArcSwap::default(), pages: Mutex::default(), places: Semaphore::new(MOST_LOOK_UPS) }
    }
}

#[derive(Debug, Default)]
struct Index {
    /// Names in the order in which they have an address.
    names: HashMap<SocketAddr, Vec<Arc<str>>>,
    contested: usize,
}

impl AddressBook {
    /// Whose `address` is: what `owner` makes of the names that have it, the first one that it knows. Takes no lock.
    pub fn find<T>(&self, address: SocketAddr, owner: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let index = self.index.load();
        let names = index.names.get(&canonical(address))?;
        names.iter().map(|name| &**name).find_map(owner)
    }

    /// Addresses that names of several policies stand for at the moment.
    #[must_use]
    pub fn contested(&self) -> usize {
        self.index.load().contested
    }

    /// Has `name` in the book, on behalf of `policy`; and whether it is to be followed from now on.
    pub(super) fn open(&self, name: &str, port: u16, policy: &Arc<str>) -> (Arc<Followed>, bool) {
        self.pages().open(name, port, policy)
    }

    /// Ends when nobody else holds what is followed.
    pub(super) async fn follow(&self, source: Arc<dyn Source>, followed: Weak<Followed>) {
        let mut again = AGAIN.0;
        while let Some((page, name)) = followed.upgrade().map(|followed| (followed.page, Arc::clone(&followed.name))) {
            let found = self.look_up(&source, Arc::clone(&name)).await;
            let pause = match &found {
                Ok(answer) => {
                    again = AGAIN.0;
                    answer.holds
                }
                Err(error) => {
                    tracing::debug!(name = &*name, %error, "name not resolved; what is known of its addresses stays");
                    let pause = again;
                    again = (again * 2).min(AGAIN.1);
                    pause
                }
            };
            self.change(|pages| pages.on_answer(page, &found, tokio::time::Instant::now().into_std()));
            tokio::time::sleep(pause).await;
        }
        self.change(Pages::forget_abandoned);
    }

    async fn look_up(&self, source: &Arc<dyn Source>, name: Arc<str>) -> Result<Answer, ResolveError> {
        let _place = self.places.acquire().await.expect("never closed");
        let found = tokio::spawn(source.addresses(name)).await;
        found.unwrap_or_else(|_| Err(ResolveError::panicked()))
    }

    fn change(&self, change: impl FnOnce(&mut Pages) -> bool) {
        let mut pages = self.pages();
        if change(&mut pages) {
            self.index.store(Arc::new(pages.index()));
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known, by name. Is told the time.
#[derive(Debug, Default)]
struct Pages {
    /// By how long they have been here, the oldest first.
    pages: BTreeMap<u64, Page>,
    next: u64,
    /// Policies that were told to have an address in common.
    told: BTreeSet<(Arc<str>, Arc<str>)>,
}

#[derive(Debug)]
struct Page {
    name: Arc<str>,
    port: u16,
    policy: Arc<str>,
    followed: Weak<Followed>,
    /// Until when each is remembered.
    known: HashMap<SocketAddr, Instant>,
}

impl Pages {
    fn open(&mut self, name: &str, port: u16, policy: &Arc<str>) -> (Arc<Followed>, bool) {
        // Put back while it is still in the book, a name is where it was.
        let known = self.pages.iter().find(|(_, page)| *page.name == *name && page.port == port);
        let number = known.map_or(self.next, |(number, _)| *number);
        self.next += u64::from(known.is_none());
        let page = self.pages.entry(number).or_insert_with(|| Page::new(name, port, policy));
        page.policy = Arc::clone(policy);
        if let Some(followed) = page.followed.upgrade() {
            return (followed, false);
        }
        let followed = Arc::new(Followed { name: Arc::clone(&page.name), page: number });
        page.followed = Arc::downgrade(&followed);
        (followed, true)
    }

    /// Whether an address came or went.
    fn on_answer(&mut self, number: u64, found: &Result<Answer, ResolveError>, now: Instant) -> bool {
        let Some(page) = self.pages.get_mut(&number) else { return false };
        match found {
            Ok(answer) => page.remember(answer, now),
            Err(error) if error.is_definite() => page.forget_old(now),
            Err(_) => false,
        }
    }

    /// Whether there was anything to forget.
    fn forget_abandoned(&mut self) -> bool {
        let before = self.pages.len();
        self.pages.retain(|_, page| page.followed.strong_count() > 0);
        let stays = |policy: &Arc<str>| self.pages.values().any(|page| page.policy == *policy);
        self.told.retain(|(first, other)| stays(first) && stays(other));
        self.pages.len() < before
    }

    fn index(&mut self) -> Index {
        let mut index = Index::default();
        let mut policies: HashMap<SocketAddr, Vec<&Arc<str>>> = HashMap::new();
        for page in self.pages.values() {
            for address in page.known.keys() {
                let names = index.names.entry(*address).or_default();
                // The same name and port is one page.
                names.push(Arc::clone(&page.name));
                policies.entry(*address).or_default().push(&page.policy);
            }
        }
        for (address, policies) in policies {
            let first = policies[0];
            let others: BTreeSet<_> = policies.iter().filter(|policy| **policy != first).collect();
            index.contested += usize::from(!others.is_empty());
            for other in others {
                if self.told.insert((Arc::clone(first), Arc::clone(other))) {
                    tracing::warn!(
                        %address, policy = &**first, other = &***other,
                        "two policies name hosts with this address; connections that say neither SNI nor Host are counted for the first"
                    );
                }
            }
        }
        index
    }
}

impl Page {
    fn new(name: &str, port: u16, policy: &Arc<str>) -> Self {
        let (policy, followed) = (Arc::clone(policy), Weak::new());
        Self { name: name.into(), port, policy, followed, known: HashMap::new() }
    }

    fn remember(&mut self, answer: &Answer, now: Instant) -> bool {
        let until = now + answer.holds + OUTLIVES;
        let mut changed = self.forget_old(now);
        for address in answer.with_port(self.port) {
            changed |= self.known.insert(canonical(address), until).is_none();
        }
        while self.known.len() > MOST_ADDRESSES
            && let Some(oldest) = self.known.iter().min_by_key(|(_, until)| **until).map(|(address, _)| *address)
        {
            self.known.remove(&oldest);
        }
        changed
    }

    fn forget_old(&mut self, now: Instant) -> bool {
        let before = self.known.len();
        self.known.retain(|_, until| now < *until);
        self.known.len() < before
    }
}

/// An address as it is told from others: an IPv4 one may come in the form of IPv6, a link goes without saying.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
