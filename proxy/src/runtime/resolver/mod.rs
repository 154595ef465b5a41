//! Names to addresses, by DNS and by what the machine knows itself.
//!
//! ```text
//!   workers: resolve ----> names (for dependencies, for others) ---+
//!   policies: watch -----> watched: endpoints ---------------------+--> system: one look-up --> hosts, name servers,
//!             follow ----> book: addresses that belong to names ---+                            the system's resolver
//! ```
//!
//! All look-ups run on one thread, `dns`, and its runtime. Workers meet it at a lock that is never held over a look-up.
//!
//! - [`names`] says which name is looked up next, and what keeps a slow name from sinking the others.
//! - [`watched`] follows the names that policies give for endpoints; whatever callers ask for does not hold it up.
//! - [`book`] does the same for the names in `hosts` that have a port, and knows whose an address is.
//! - [`system`] makes one look-up, with what [`conf`] reads; [`services`] says what SRV records mean.

mod answer;
mod book;
mod conf;
mod names;
mod services;
mod system;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod watched;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use self::answer::Found;
pub use self::answer::ResolveError;
pub use self::book::{AddressBook, Followed};
use self::conf::Files;
use self::names::{Asked, Names};
use self::system::{Source, System};
use self::watched::Watches;
use crate::snapshot::Resolved;

/// How long a new answer is waited for where the one before is better than none: well within the time to connect.
const WITH_ANOTHER: Duration = Duration::from_millis(500);

/// On whose behalf a name is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A dependency that a policy lists.
    Dependency,
    /// Anything else that a caller may come up with.
    Unlisted,
}

/// Resolves names for everyone in the process.
#[derive(Clone)]
pub struct Resolver {
    desk: Arc<Desk>,
    errands: mpsc::UnboundedSender<Errand>,
}

/// What the `dns` thread is asked to do.
enum Errand {
    /// To look up this name, and then whatever is due next.
    LookUp(Asker, Arc<str>),
    Watch(Weak<Resolved>),
    Follow(Weak<Followed>),
}

impl Resolver {
    /// Starts the thread. With `servers` these are asked in place of those in `resolv.conf`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(servers: Vec<SocketAddr>) -> io::Result<Self> {
        Self::start_with(System::new(Files::of_system(servers)))
    }

    /// The same with somebody else to ask.
    fn start_with(source: Arc<dyn Source>) -> io::Result<Self> {
        let (listed, unlisted) = (Mutex::default(), Mutex::default());
        let desk = Arc::new(Desk { listed, unlisted, book: AddressBook::default(), source });
        let (errands, received) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let known = Arc::clone(&desk);
        thread::Builder::new().name("dns".to_owned()).spawn(move || {
            runtime.block_on(serve(received, known));
            // Not waited for: a thread that asks the system's resolver.
            runtime.shutdown_background();
        })?;
        Ok(Self { desk, errands })
    }

    /// The addresses of `name`, each with `port`. Who stops waiting leaves nothing behind: a look-up that nobody waits
    /// for is not begun.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn resolve(&self, name: &str, port: u16, asker: Asker) -> Result<Vec<SocketAddr>, ResolveError> {
        let found = match self.ask(name, asker) {
            Asked::Answered(found) => found,
            Asked::Waits { told, before: None } => answered(told).await,
            Asked::Waits { told, before: Some(before) } => {
                tokio::time::timeout(WITH_ANOTHER, answered(told)).await.unwrap_or(Ok(before))
            }
        };
        found.map(|answer| answer.with_port(port))
    }

    /// The addresses of `name` as last heard, for who may have a connection to one of them already. When their time is
    /// over they are asked for anew, so that a connection is used on and a name that moves is followed all the same.
    #[must_use]
    pub fn known(&self, name: &str, port: u16) -> Option<Vec<SocketAddr>> {
        let recall = |asker| {
            let recalled = self.desk.names(asker).recall(name, Instant::now())?;
            if !recalled.fresh {
                // Not waited for; it is begun all the same, if there is room.
                drop(self.ask(name, asker));
            }
            Some(recalled.answer)
        };
        let answer = recall(Asker::Dependency).or_else(|| recall(Asker::Unlisted))?;
        Some(answer.with_port(port))
    }

    /// Keeps the addresses of a dependency up to date for as long as anyone holds `resolved`.
    pub fn watch(&self, resolved: &Arc<Resolved>) {
        // Without the thread the process is ending.
        let _ = self.errands.send(Errand::Watch(Arc::downgrade(resolved)));
    }

    /// Keeps the addresses of `name` in the book for as long as anyone holds what this returns, on behalf of `policy`.
    pub fn follow(&self, name: &str, port: u16, policy: &Arc<str>) -> Arc<Followed> {
        let (followed, fresh) = self.desk.book.open(name, port, policy);
        if fresh {
            // Without the thread the process is ending.
            let _ = self.errands.send(Errand::Follow(Arc::downgrade(&followed)));
        }
        followed
    }

    /// Whose addresses are.
    #[must_use]
    pub fn book(&self) -> &AddressBook {
        &self.desk.book
    }

    fn ask(&self, name: &str, asker: Asker) -> Asked {
        let now = Instant::now();
        let mut names = self.desk.names(asker);
        let asked = names.ask(name, now);
        // The first to ask takes the turn, if it has one now; else it comes when a look-up ends.
        if let Some(next) = names.poll_next(now)
            && self.errands.send(Errand::LookUp(asker, Arc::clone(&next))).is_err()
        {
            names.on_answer(&next, Err(ResolveError::Ended), now);
        }
        asked
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

async fn answered(mut told: watch::Receiver<Option<Found>>) -> Found {
    match told.wait_for(Option::is_some).await {
        Ok(told) => told.clone().expect("waited for"),
        Err(_) => Err(ResolveError::Ended),
    }
}

/// What all threads share.
struct Desk {
    listed: Mutex<Names>,
    unlisted: Mutex<Names>,
    book: AddressBook,
    source: Arc<dyn Source>,
}

impl Desk {
    fn names(&self, asker: Asker) -> MutexGuard<'_, Names> {
        let names = match asker {
            Asker::Dependency => &self.listed,
            Asker::Unlisted => &self.unlisted,
        };
        names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everyone, and says what to look up next.
    fn finish(&self, asker: Asker, name: &str, found: Found) -> Option<Arc<str>> {
        let now = Instant::now();
        let mut names = self.names(asker);
        names.on_answer(name, found, now);
        names.poll_next(now)
    }
}

async fn serve(mut errands: mpsc::UnboundedReceiver<Errand>, desk: Arc<Desk>) {
    let watches = Watches::new(Arc::clone(&desk.source));
    while let Some(errand) = errands.recv().await {
        match errand {
            Errand::LookUp(asker, name) => drop(tokio::spawn(look_up_all(Arc::clone(&desk), asker, name))),
            Errand::Watch(watched) => drop(tokio::spawn(watches.clone().follow(watched))),
            Errand::Follow(followed) => drop(tokio::spawn(follow(Arc::clone(&desk), followed))),
        }
    }
}

async fn follow(desk: Arc<Desk>, followed: Weak<Followed>) {
    desk.book.follow(Arc::clone(&desk.source), followed).await;
}

async fn look_up_all(desk: Arc<Desk>, asker: Asker, first: Arc<str>) {
    let mut next = Some(first);
    while let Some(name) = next {
        // A task of its own: whatever becomes of it, callers wait for an answer.
        let asking = desk.source.addresses(Arc::clone(&name));
        let found = tokio::spawn(asking).await.unwrap_or_else(|_| Err(ResolveError::panicked()));
        next = desk.finish(asker, &name, found);
    }
}
