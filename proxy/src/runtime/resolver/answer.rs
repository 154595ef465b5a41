//! What a look-up comes to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::names;

/// For how long an answer is used at least. A TTL of 0 must not turn every connection into a question.
pub const SHORTEST: Duration = Duration::from_secs(1);
/// For how long an answer is used at most: whoever wrote down a day, and then has to move, is not waited for.
pub const LONGEST: Duration = Duration::from_secs(300);
/// For how long an answer without a TTL is used: from a file, or from the system's resolver.
pub const WITHOUT_TTL: Duration = Duration::from_secs(5);

/// Addresses of one answer. What a message of DNS can hold beyond this is of no use to anyone.
const MOST_ADDRESSES: usize = 256;

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Never none; their ports are of no account.
    pub addresses: Arc<[SocketAddr]>,
    /// How long they may be used without asking again.
    pub holds: Duration,
}

/// What a look-up comes to.
pub type Found = Result<Answer, ResolveError>;

impl Answer {
    /// These addresses, each once, for `ttl` within bounds.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>, ttl: Duration) -> Found {
        Self::with_scopes(addresses.into_iter().map(|address| SocketAddr::new(address, 0)), ttl)
    }

    /// The same where an address may say which link it is on.
    pub fn with_scopes(addresses: impl IntoIterator<Item = SocketAddr>, ttl: Duration) -> Found {
        let mut each_once: Vec<SocketAddr> = Vec::new();
        for mut address in addresses {
            address.set_port(0);
            if each_once.len() < MOST_ADDRESSES && !each_once.contains(&address) {
                each_once.push(address);
            }
        }
        if each_once.is_empty() {
            return Err(ResolveError::NoAddress);
        }
        Ok(Self { addresses: each_once.into(), holds: ttl.clamp(SHORTEST, LONGEST) })
    }

    /// The addresses, each with `port`.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Vec<SocketAddr> {
        let with_port = |mut address: SocketAddr| {
            address.set_port(port);
            address
        };
        self.addresses.iter().copied().map(with_port).collect()
    }
}

/// Why there are no addresses.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ResolveError {
    /// A name server says so.
    #[error("there is no such name")]
    NoName,
    /// The name exists, and stands for nothing.
    #[error("the name has no address")]
    NoAddress,
    /// It is none that DNS can hold.
    #[error("this is no host name")]
    Malformed,
    /// Nothing that can be relied on has come back.
    #[error("no name server could answer: {0}")]
    NoAnswer(Arc<str>),
    /// What the system's resolver says.
    #[error("{0}")]
    System(Arc<io::Error>),
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

impl ResolveError {
    /// Of a look-up that came to nothing through a fault of ours.
    #[must_use]
    pub fn panicked() -> Self {
        Self::NoAnswer("the look-up has panicked".into())
    }

    /// Whether this is something to know about the name. Everything else says something about those who were asked,
    /// and what was known before holds on.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        matches!(self, Self::NoName | Self::NoAddress | Self::Malformed | Self::TooLong)
    }
}
