//! Names to addresses, by the system's resolver: `/etc/hosts`, search domains and nsswitch mean what they mean
//! everywhere. It blocks for as long as it pleases, so it is asked on threads that do nothing else:
//!
//! - for callers, on at most as many as [`names`] gives room to; it also says what else keeps a slow name from sinking
//!   the others;
//! - for the dependencies of policies, on others ([`watched`]), so that whatever callers ask for does not keep a policy
//!   from following its name.
//!
//! A thread lasts while there is something to look up. One more, `dns`, starts them and waits between the look-ups of a
//! policy.

mod names;
#[cfg(test)]
mod tests;
mod watched;

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use tokio::sync::mpsc;

use self::names::{Asked, Found, Names};
use self::watched::Watches;
use crate::snapshot::Resolved;

/// Why there are no addresses.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ResolveError {
    /// What the system says.
    #[error("{0}")]
    System(Arc<io::Error>),
    /// The name exists, and stands for nothing.
    #[error("the name has no address")]
    NoAddress,
    /// Nothing was asked.
    #[error("a name has at most {} bytes", names::LONGEST)]
    TooLong,
    /// Nothing was asked.
    #[error(
        "{} names are being resolved already: the name server is slow, or too many names are asked for",
        names::MOST
    )]
    Busy,
    /// The process is ending.
    #[error("the resolver has ended")]
    Ended,
}

/// Resolves names for everyone in the process.
#[derive(Clone)]
pub struct Resolver {
    desk: Arc<Desk>,
    errands: mpsc::UnboundedSender<Errand>,
}

/// What the `dns` thread is asked to do.
enum Errand {
    /// To start a thread that begins with this name.
    LookUp(Arc<str>),
    Watch(Weak<Resolved>),
}

impl Resolver {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start() -> io::Result<Self> {
        Self::start_with(|name| (name, 0).to_socket_addrs().map(Vec::from_iter))
    }

    /// The same with something else to ask than the system's resolver. The ports of its answers are of no account.
    fn start_with(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> io::Result<Self> {
        let desk = Arc::new(Desk { names: Mutex::default(), look_up: Box::new(look_up) });
        let (errands, received) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let known = Arc::clone(&desk);
        thread::Builder::new().name("dns".to_owned()).spawn(move || runtime.block_on(serve(received, known)))?;
        Ok(Self { desk, errands })
    }

    /// The addresses of `name`, each with `port`. Who stops waiting leaves nothing behind: a look-up that nobody waits
    /// for is not begun.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn resolve(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
        let found = match self.ask(name) {
            Asked::Answered(found) => found,
            Asked::Waits(mut told) => match told.wait_for(Option::is_some).await {
                Ok(told) => told.clone().expect("waited for"),
                Err(_) => Err(ResolveError::Ended),
            },
        };
        found.map(|addresses| with_port(&addresses, port))
    }

    /// What [`Self::resolve`] would give at once, if it would.
    #[must_use]
    pub fn known(&self, name: &str, port: u16) -> Option<Vec<SocketAddr>> {
        let held = self.desk.names().held(name, Instant::now());
        held?.ok().map(|addresses| with_port(&addresses, port))
    }

    /// Keeps the addresses of a dependency up to date for as long as anyone holds `resolved`.
    pub fn watch(&self, resolved: &Arc<Resolved>) {
        // Without the thread the process is ending.
        let _ = self.errands.send(Errand::Watch(Arc::downgrade(resolved)));
    }

    fn ask(&self, name: &str) -> Asked {
        let now = Instant::now();
        let mut names = self.desk.names();
        let asked = names.ask(name, now);
        // The first to ask takes the turn, if it has one now; else it comes when a look-up ends.
        if let Some(next) = names.poll_next(now)
            && self.errands.send(Errand::LookUp(Arc::clone(&next))).is_err()
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

/// What all threads share.
struct Desk {
    names: Mutex<Names>,
    look_up: Box<LookUp>,
}

type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

impl Desk {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks. Always comes back with an answer, because callers wait for one.
    fn look_up(&self, name: &str) -> Found {
        let found = catch_unwind(AssertUnwindSafe(|| (self.look_up)(name)))
            .unwrap_or_else(|_| Err(io::Error::other("the resolver panicked")));
        let mut addresses = found.map_err(system)?;
        addresses.dedup();
        if addresses.is_empty() { Err(ResolveError::NoAddress) } else { Ok(addresses.into()) }
    }

    /// Tells everyone, and says what to look up next.
    fn finish(&self, name: &str, found: Found) -> Option<Arc<str>> {
        let now = Instant::now();
        let mut names = self.names();
        names.on_answer(name, found, now);
        names.poll_next(now)
    }
}

async fn serve(mut errands: mpsc::UnboundedReceiver<Errand>, desk: Arc<Desk>) {
    let watches = Watches::new(Arc::clone(&desk));
    while let Some(errand) = errands.recv().await {
        match errand {
            Errand::LookUp(name) => start_look_ups(&desk, name),
            Errand::Watch(watched) => drop(tokio::spawn(watches.clone().follow(watched))),
        }
    }
}

fn start_look_ups(desk: &Arc<Desk>, first: Arc<str>) {
    let mut next = Some(first);
    while let Some(name) = next {
        let (of_thread, begins) = (Arc::clone(desk), Arc::clone(&name));
        match thread::Builder::new().name("dns-call".to_owned()).spawn(move || look_up_all(&of_thread, begins)) {
            Ok(_) => return,
            Err(error) => next = desk.finish(&name, Err(system(error))),
        }
    }
}

fn look_up_all(desk: &Desk, first: Arc<str>) {
    let mut next = Some(first);
    while let Some(name) = next {
        next = desk.finish(&name, desk.look_up(&name));
    }
}

fn system(error: io::Error) -> ResolveError {
    ResolveError::System(Arc::new(error))
}

fn with_port(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    let with_port = |mut address: SocketAddr| {
        address.set_port(port);
        address
    };
    addresses.iter().copied().map(with_port).collect()
}
