//! The names that policies give for their endpoints: asked for again and again, for as long as the policy is in force.
//!
//! Each look-up has a thread of its own, so that a name that hangs holds up nobody else's. The addresses as last heard
//! stay through failures: a resolver that is down must not take its dependencies along.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::names::Found;
use super::{Desk, ResolveError, system, with_port};
use crate::pick::Endpoint;
use crate::snapshot::Resolved;

/// How soon a name that could not be resolved is asked for again, for a dependency that depends on it.
const AGAIN: Duration = Duration::from_secs(1);
/// Look-ups at a time. With as many names hanging, others are only asked for more rarely.
const MOST: usize = 32;

/// See the module documentation.
#[derive(Clone)]
pub struct Watches {
    desk: Arc<Desk>,
    threads: Arc<Semaphore>,
}

impl Watches {
    /// No name is followed yet.
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk, threads: Arc::new(Semaphore::new(MOST)) }
    }

    /// Ends when nobody else holds what is watched.
    pub async fn follow(self, watched: Weak<Resolved>) {
        let mut fails = false;
        // Not held during a look-up: a policy with the same name that comes meanwhile would find it and watch it too.
        while let Some(name) = watched.upgrade().map(|resolved| resolved.name.clone()) {
            let found = self.look_up(name).await;
            let Some(resolved) = watched.upgrade() else { return };
            let failed = found.is_err();
            match found {
                Ok(addresses) => {
                    let addresses = with_port(&addresses, resolved.port);
                    resolved.store(addresses.into_iter().map(Endpoint::new).collect());
                }
                Err(error) if !fails => {
                    tracing::warn!(name = resolved.name, %error, "name not resolved; the last addresses stay in use");
                }
                Err(error) => tracing::debug!(name = resolved.name, %error, "name still not resolved"),
            }
            fails = failed;
            let pause = if failed { AGAIN.min(resolved.refresh) } else { resolved.refresh };
            drop(resolved);
            tokio::time::sleep(pause).await;
        }
    }

    async fn look_up(&self, name: String) -> Found {
        let _place = self.threads.acquire().await.expect("never closed");
        let (reply, answer) = oneshot::channel();
        let desk = Arc::clone(&self.desk);
        // Nobody is there for the answer when the process ends.
        let ask = move || drop(reply.send(desk.look_up(&name)));
        thread::Builder::new().name("dns-watch".to_owned()).spawn(ask).map_err(system)?;
        answer.await.unwrap_or(Err(ResolveError::Ended))
    }
}
