//! Why the proxy answered in the dependency's stead: one word, the same in header, log, metric, event and CLI.

use std::fmt;
use std::str::FromStr;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The reason of a rejection, or of a call that ended without an answer.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Reason {
            $($(#[$doc])* $name),*
        }

        impl Reason {
            /// Every reason, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word, as in header, log, metric, event and CLI.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

reasons! {
    /// A rate limit's tokens are spent.
    RateLimited,
    /// No permit, and no room to wait for one.
    BulkheadFull,
    /// No permit within the time a call may wait for one.
    BulkheadWaitTimeout,
    /// The adaptive limit is reached.
    ConcurrencyLimited,
    /// Refused to keep room for more important calls.
    Shed,
    /// This proxy is short of memory or descriptors.
    Overloaded,
    /// The breaker is open.
    CircuitOpen,
    /// No endpoint that may be called.
    NoHealthyEndpoint,
    /// No connection could be made.
    ConnectFailure,
    /// The name could not be resolved.
    DnsFailure,
    /// The TLS handshake failed.
    TlsFailure,
    /// The connection was reset or ended before the answer was whole.
    UpstreamReset,
    /// The answer was not valid.
    UpstreamProtocolError,
    /// `timeouts.request` (or `streamMaxDuration`) ran out.
    RequestTimeout,
    /// `timeouts.attempt` ran out.
    AttemptTimeout,
    /// The caller's deadline, before or after sending.
    DeadlineExpired,
    /// No byte moved for `timeouts.idle`.
    IdleTimeout,
    /// Every attempt failed and no answer is there to pass on.
    RetriesExhausted,
    /// The budget allowed no retry and no answer is there to pass on.
    RetryBudgetExhausted,
    /// A fault was injected on purpose.
    FaultInjected,
    /// The proxy is shutting down.
    Draining,
    /// Nothing is known about this destination.
    NoRoute,
    /// The request was not valid.
    MalformedRequest,
    /// The head or target of the request was too large.
    HeadersTooLarge,
    /// The body of the request was too large.
    BodyTooLarge,
    /// The head of the request did not come in time.
    RequestHeadTimeout,
    /// The caller may not do this.
    Forbidden,
    /// The destination is this proxy itself.
    Loop,
    /// The shared store of a rate limit cannot be asked.
    LimitStoreUnavailable,
    /// The proxy has no policy yet.
    NotReady,
    /// The caller went away (log only).
    ClientGone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The word is no [`Reason`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownReason;

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a reason")
    }
}

impl std::error::Error for UnknownReason {}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(word: &str) -> Result<Self, UnknownReason> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word).ok_or(UnknownReason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_leads_back_to_its_reason() {
        assert_eq!(Reason::ALL.len(), 31);
        for &reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert_eq!("circuitOpen".parse::<Reason>(), Err(UnknownReason));
    }
}
