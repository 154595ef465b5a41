//! The names that policies give for their endpoints: asked for again and again, for as long as the policy is in force.
//!
//! - The next look-up comes after `refresh`, or when the TTL of the answer is over.
//! - The addresses as last heard stay while no name server answers, however long that lasts: a name server that is down
//!   must not take dependencies along.
//! - When a name server says that there is no such name, they stay for a minute more: one that has just been started
//!   may say so of anything.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::answer::ResolveError;
use super::services::{Service, Services, Weighted, in_order};
use super::system::Source;
use crate::pick::Endpoint;
use crate::snapshot::{LookUp, Resolved};

/// How soon a name that could not be resolved is asked for again, for a dependency that depends on it.
const AGAIN: Duration = Duration::from_secs(1);
/// For how long name servers must have said that there is no such name before they are believed.
const DOUBTED: Duration = Duration::from_secs(60);
/// Look-ups at a time. With as many names hanging, others are only asked for more rarely.
const MOST: usize = 32;

/// See the module documentation.
#[derive(Clone)]
pub struct Watches {
    source: Arc<dyn Source>,
    places: Arc<Semaphore>,
}

/// What a name of a policy stands for.
struct Standing {
    endpoints: Vec<SocketAddr>,
    holds: Duration,
}

impl Watches {
    /// No name is followed yet.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source, places: Arc::new(Semaphore::new(MOST)) }
    }

    /// Ends when nobody else holds what is watched.
    pub async fn follow(self, watched: Weak<Resolved>) {
        let mut fails = false;
        // Since when every answer has been that there is no such name.
        let mut denied_since = None;
        // Not held during a look-up: a policy with the same name that comes meanwhile would find it and watch it too.
        while let Some((name, port)) = watched.upgrade().map(|resolved| (resolved.name.as_str().into(), resolved.port))
        {
            let found = self.look_up(name, port).await;
            let Some(resolved) = watched.upgrade() else { return };
            let failed = found.is_err();
            let pause = match found {
                Ok(standing) => {
                    denied_since = None;
                    resolved.store(standing.endpoints.into_iter().map(Endpoint::new).collect());
                    resolved.looked_up(LookUp::Answered(standing.holds));
                    resolved.refresh.unwrap_or(standing.holds)
                }
                Err(error) => {
                    denied_since = error.is_definite().then(|| denied_since.unwrap_or_else(Instant::now));
                    let doubted = denied_since.is_none_or(|since: Instant| since.elapsed() < DOUBTED);
                    tell(&resolved, &error, fails, doubted);
                    if !doubted {
                        resolved.store(Vec::new());
                    }
                    resolved.looked_up(LookUp::Failed(error.to_string().into()));
                    resolved.refresh.map_or(AGAIN, |refresh| refresh.min(AGAIN))
                }
            };
            fails = failed;
            drop(resolved);
            sleep(pause).await;
        }
    }

    async fn look_up(&self, name: Arc<str>, port: Option<u16>) -> Result<Standing, ResolveError> {
        let _place = self.places.acquire().await.expect("never closed");
        let source = Arc::clone(&self.source);
        // A task of its own: the name is followed whatever becomes of one look-up.
        let look_up = tokio::spawn(async move {
            match port {
                Some(port) => {
                    let answer = source.addresses(name).await?;
                    Ok(Standing { endpoints: answer.with_port(port), holds: answer.holds })
                }
                None => served(&source, source.services(name).await?).await,
            }
        });
        look_up.await.unwrap_or_else(|_| Err(ResolveError::panicked()))
    }
}

fn tell(resolved: &Resolved, error: &ResolveError, again: bool, doubted: bool) {
    let (name, known) = (&resolved.name, !resolved.load().is_empty());
    match (known, doubted) {
        (true, true) if !again => tracing::warn!(name, %error, "name not resolved; the last addresses stay in use"),
        (true, false) => tracing::warn!(name, %error, "name not resolved for a minute; its addresses are given up"),
        (false, _) if !again => tracing::warn!(name, %error, "name not resolved; there is no endpoint until it is"),
        _ => tracing::debug!(name, %error, "name still not resolved"),
    }
}

/// The endpoints of the first group of targets that has any.
async fn served(source: &Arc<dyn Source>, services: Services) -> Result<Standing, ResolveError> {
    let mut failure = ResolveError::NoAddress;
    for group in services.groups {
        let (targets, holds, failed) = addresses_of(source, group).await;
        if !targets.is_empty() {
            // A target that could not be asked for is asked for again soon.
            let holds = holds.min(services.holds).min(if failed.is_some() { AGAIN } else { Duration::MAX });
            return Ok(Standing { endpoints: in_order(&targets), holds });
        }
        // The next group takes over where this one is known to be empty, and not where nothing is known of it.
        if let Some(error) = failed {
            failure = error;
            break;
        }
    }
    Err(failure)
}

/// The addresses of each target in order, for how long they hold, and why one of them could not be asked for.
async fn addresses_of(
    source: &Arc<dyn Source>,
    group: Vec<Service>,
) -> (Vec<Weighted>, Duration, Option<ResolveError>) {
    const AT_A_TIME: usize = 16;
    let (mut asking, mut queue) = (JoinSet::new(), group.into_iter().enumerate());
    let (mut found, mut holds, mut failed) = (Vec::new(), Duration::MAX, None);
    loop {
        while asking.len() < AT_A_TIME
            && let Some((at, service)) = queue.next()
        {
            let addresses = source.addresses(Arc::clone(&service.target));
            asking.spawn(async move { (at, service, addresses.await) });
        }
        let Some(asked) = asking.join_next().await else { break };
        match asked {
            Ok((at, service, Ok(answer))) => {
                holds = holds.min(answer.holds);
                found.push((at, Weighted { weight: service.weight, addresses: answer.with_port(service.port) }));
            }
            Ok((_, _, Err(error))) if error.is_definite() => {}
            Ok((_, _, Err(error))) => failed = Some(error),
            Err(_) => failed = Some(ResolveError::panicked()),
        }
    }
    found.sort_by_key(|(at, _)| *at);
    (found.into_iter().map(|(_, target)| target).collect(), holds, failed)
}
