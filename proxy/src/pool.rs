//! Room 8: a connection that will take the request: for itself ([`Pool`]), or beside others ([`streams`]).
//!
//! Each worker has its own pool; what is shared is only the count of open sockets. The pool's one promise is the *not
//! sent* rule (RFC 9110 9.2.2): a request that may not be repeated is never put on a connection that might already be
//! dead. A pooled connection is checked before use, given up one second before the server's own keep-alive timeout, and
//! for such a request only taken when it was in use within the last second.

pub mod streams;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use plimsoll_resilience::time::Timestamp;

use crate::dependency::DependencyId;
use crate::sockets::OpenSocket;
use crate::transport::Transport;

/// How long a connection may have been idle to be trusted with a request that cannot be sent twice.
const FRESH: Duration = Duration::from_secs(1);
/// How long before the server's announced `Keep-Alive: timeout` we stop using a connection.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);
/// Idle connections kept for one endpoint by one worker: more than that were needed only once.
const KEPT_FOR_ENDPOINT: usize = 1024;

/// A connection to an endpoint, in use or idle.
#[derive(Debug)]
pub struct Upstream {
    /// The connection.
    pub stream: Transport,
    /// Where it leads.
    pub address: SocketAddr,
    dependency: DependencyId,
    security: u64,
    _socket: OpenSocket,
}

impl Upstream {
    /// A fresh connection. `security`: the settings of TLS it was made under, 0 for none.
    #[must_use]
    pub fn new(
        stream: Transport,
        address: SocketAddr,
        dependency: DependencyId,
        security: u64,
        socket: OpenSocket,
    ) -> Self {
        Self { stream, address, dependency, security, _socket: socket }
    }
}

/// The idle connections of one worker.
#[derive(Debug, Default)]
pub struct Pool {
    idle: HashMap<Key, Vec<Idle>, BuildHasherDefault<KeyHasher>>,
}

/// Whose connections, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    dependency: DependencyId,
    address: SocketAddr,
    security: u64,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ip = match self.address.ip() {
            IpAddr::V4(v4) => u64::from(u32::from(v4)),
            IpAddr::V6(v6) => u128::from(v6)
                .to_ne_bytes()
                .as_chunks::<8>()
                .0
                .iter()
                .fold(0, |all, half| all ^ u64::from_ne_bytes(*half)),
        };
        state.write_u64(ip ^ self.security ^ u64::from(self.address.port()) << 32 ^ u64::from(self.dependency.0) << 48);
    }
}

/// One multiplication. The keys are addresses from policy or of connections that were made: nobody chooses them to collide.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct Idle {
    upstream: Upstream,
    since: Timestamp,
    until: Timestamp,
}

impl Pool {
    /// The connection to `address` that was used last, if one will do for a request that may (not) be sent again.
    pub fn take(
        &mut self,
        dependency: DependencyId,
        address: SocketAddr,
        security: u64,
        repeatable: bool,
        now: Timestamp,
    ) -> Option<Upstream> {
        let idle = self.idle.get_mut(&Key { dependency, address, security })?;
        while let Some(mut candidate) = idle.pop() {
            if candidate.until <= now || !candidate.upstream.stream.is_idle_and_open() {
                continue;
            }
            if repeatable {
                return Some(candidate.upstream);
            }
            if now.saturating_since(candidate.since) > FRESH {
                // The rest have been idle for longer; they stay for requests that can be repeated.
                idle.push(candidate);
                return None;
            }
            if candidate.upstream.stream.is_silent() {
                return Some(candidate.upstream);
            }
        }
        None
    }

    /// Takes a connection back whose last answer is complete. `keep_alive` is what the server said of its patience.
    pub fn put(&mut self, upstream: Upstream, keep_alive: Option<Duration>, idle_timeout: Duration, now: Timestamp) {
        let patience =
            keep_alive.map_or(idle_timeout, |announced| announced.saturating_sub(KEEP_ALIVE_MARGIN).min(idle_timeout));
        if patience.is_zero() {
            return;
        }
        let Upstream { dependency, address, security, .. } = upstream;
        let idle = self.idle.entry(Key { dependency, address, security }).or_default();
        if idle.len() < KEPT_FOR_ENDPOINT {
            idle.push(Idle { upstream, since: now, until: now + patience });
        }
    }

    /// Closes what the server closed or what has been idle for too long, and everything that `keep` refuses.
    pub fn sweep(&mut self, now: Timestamp, keep: impl Fn(DependencyId, SocketAddr) -> bool) {
        self.idle.retain(|key, idle| {
            if keep(key.dependency, key.address) {
                idle.retain_mut(|each| each.until > now && each.upstream.stream.is_idle_and_open());
            } else {
                idle.clear();
            }
            !idle.is_empty()
        });
    }

    /// Closes the longest idle connection of `dependency`; false when there is none.
    pub fn close_one(&mut self, dependency: DependencyId) -> bool {
        let oldest = self
            .idle
            .iter()
            .filter(|(key, idle)| key.dependency == dependency && !idle.is_empty())
            .min_by_key(|(_, idle)| idle[0].since)
            .map(|(key, _)| *key);
        let Some(idle) = oldest.and_then(|key| self.idle.get_mut(&key)) else { return false };
        idle.remove(0);
        true
    }

    /// Connections idle now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.idle.values().map(Vec::len).sum()
    }

    /// Whether no connection is idle.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
