//! TLS that we originate, so that policy can act on calls to a dependency that speaks nothing else.
//!
//! ```text
//!   Settings --read--> files below --secrets-dir --parse--> Loaded (one ClientConfig for each Offer) --handshake--> Transport
//!                         ^                                    |
//!                         +-- looked at every few seconds -----+   off the data path
//! ```
//!
//! The library is rustls with ring; certificates are always verified, by `caFile` alone where it is given, else by the
//! roots of this system. A session that was made is resumed where the server gives tickets.
//!
//! What a file says takes effect for connections made from then on, and [`Origination::id`] changes with it, so that no
//! new call goes out under an old certificate. A file that cannot be used changes nothing: the last good ones stay, and
//! the log says so once.
//!
//! Deliberately absent: a switch that turns verification off, early data (it can be replayed), and revocation lists.

mod config;
mod error;
mod files;
mod origination;
mod session;
#[cfg(test)]
mod tests;
mod watch;

pub use config::{Settings, TlsConfigError};
pub use error::TlsError;
pub use files::FileError;
pub use origination::{Origination, Refreshed};
pub use session::{Refusal, Session};

/// What ALPN offers (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offer {
    /// `http/1.1`
    Http1,
    /// `h2`
    Http2,
    /// `h2` before `http/1.1`
    Http2OrHttp1,
    /// No protocol: opaque traffic.
    Nothing,
}

impl Offer {
    const ALL: [Self; 4] = [Self::Http1, Self::Http2, Self::Http2OrHttp1, Self::Nothing];

    /// The names that are sent, the preferred one first.
    #[must_use]
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Http1 => &["http/1.1"],
            Self::Http2 => &["h2"],
            Self::Http2OrHttp1 => &["h2", "http/1.1"],
            Self::Nothing => &[],
        }
    }
}

/// What ALPN has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiated {
    /// `http/1.1`, or nothing by a server that knows no ALPN
    Http1,
    /// `h2`
    Http2,
    /// Nothing was offered.
    Nothing,
}
