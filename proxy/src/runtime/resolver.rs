//! Names to addresses: on a thread of its own, because the system's resolver blocks.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::pick::Endpoint;
use crate::snapshot::Resolved;

/// The system's resolver does not say how long an answer holds. This is short enough for a failover by DNS, and long
/// enough that a busy forward proxy does not ask for every connection.
const HOLDS: Duration = Duration::from_secs(5);
/// Answers kept: callers choose the names.
const MAX_NAMES: usize = 1024;
/// How soon a name that could not be resolved is asked for again, for a dependency that depends on it.
const AGAIN: Duration = Duration::from_secs(1);

/// Answers, and when they came.
type Held = HashMap<(String, u16), (Instant, Vec<SocketAddr>)>;

type Answer = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// Asks the system's resolver, so that `/etc/hosts`, search domains and nsswitch mean what they mean everywhere.
#[derive(Clone, Debug)]
pub struct Resolver {
    asks: mpsc::UnboundedSender<Ask>,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug)]
enum Ask {
    Once { name: String, port: u16, reply: oneshot::Sender<Answer> },
    Watch(Weak<Resolved>),
}

impl Resolver {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start() -> io::Result<Self> {
        let (asks, asked) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(4).build()?;
        let again = asks.downgrade();
        thread::Builder::new().name("dns".to_owned()).spawn(move || runtime.block_on(serve(asked, again)))?;
        Ok(Self { asks, held: Arc::default() })
    }

    /// The addresses of `name`, each with `port`.
    ///
    /// # Errors
    /// What the resolver says.
    pub async fn resolve(&self, name: &str, port: u16) -> Answer {
        let key = (name.to_owned(), port);
        if let Some((at, addresses)) = self.held().get(&key)
            && at.elapsed() < HOLDS
        {
            return Ok(addresses.clone());
        }
        let (reply, answer) = oneshot::channel();
        let gone = || Arc::new(io::Error::other("the resolver has ended"));
        self.asks.send(Ask::Once { name: key.0.clone(), port, reply }).map_err(|_| gone())?;
        let addresses = answer.await.map_err(|_| gone())??;
        let mut held = self.held();
        if held.len() >= MAX_NAMES {
            held.retain(|_, (at, _)| at.elapsed() < HOLDS);
        }
        if held.len() < MAX_NAMES {
            held.insert(key, (Instant::now(), addresses.clone()));
        }
        Ok(addresses)
    }

    /// Keeps the addresses of a dependency up to date for as long as anyone holds `resolved`.
    pub fn watch(&self, resolved: &Arc<Resolved>) {
        // Without the thread the process is ending.
        let _ = self.asks.send(Ask::Watch(Arc::downgrade(resolved)));
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(mut asked: mpsc::UnboundedReceiver<Ask>, again: mpsc::WeakUnboundedSender<Ask>) {
    while let Some(ask) = asked.recv().await {
        match ask {
            Ask::Once { name, port, reply } => drop(tokio::spawn(async move {
                // Whoever asked may have given up.
                let _ = reply.send(look_up(name, port).await);
            })),
            Ask::Watch(watched) => drop(tokio::spawn(watch(watched, again.clone()))),
        }
    }
}

async fn watch(watched: Weak<Resolved>, again: mpsc::WeakUnboundedSender<Ask>) {
    let Some(resolved) = watched.upgrade() else { return };
    let answer = look_up(resolved.name.clone(), resolved.port).await;
    let pause = match answer {
        Ok(addresses) => {
            resolved.store(addresses.into_iter().map(Endpoint::new).collect());
            resolved.refresh
        }
        Err(error) => {
            // The addresses as last heard stay: a resolver that is down must not take its dependencies along.
            tracing::warn!(name = resolved.name, %error, "name not resolved; the last addresses stay in use");
            AGAIN.min(resolved.refresh)
        }
    };
    drop(resolved);
    tokio::time::sleep(pause).await;
    if let Some(asks) = again.upgrade() {
        let _ = asks.send(Ask::Watch(watched));
    }
}

async fn look_up(name: String, port: u16) -> Answer {
    let found = tokio::task::spawn_blocking(move || (name.as_str(), port).to_socket_addrs().map(Vec::from_iter)).await;
    match found {
        Ok(Ok(mut addresses)) => {
            addresses.dedup();
            Ok(addresses)
        }
        Ok(Err(error)) => Err(Arc::new(error)),
        Err(panicked) => Err(Arc::new(io::Error::other(panicked))),
    }
}
