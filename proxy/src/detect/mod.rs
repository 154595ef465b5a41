//! Room 2: which protocol is this?
//!
//! ```text
//!   first bytes ── peek ──▶ Http1 | Http2 | Tls(name) | Opaque     nothing said ──▶ whoever speaks first, see `serve`
//! ```
//! The decoder is pure: it is given what has arrived and says what it is, or what it will be taken for if nothing more
//! comes. *Rule*: what a lenient server might take for HTTP/1 is HTTP/1 here too, so that it is checked and not passed
//! through unseen; what no server could take for it is opaque and forwarded as it is. A ClientHello is read for its
//! name alone (RFC 8446 4.1.2, RFC 6066 3), over as many segments and records as it was cut into; one that cannot be
//! read is TLS without a name. *Not done*: nothing is decrypted, and with Encrypted ClientHello the outer name is the
//! one that counts.

mod habits;
mod http;
mod tls;

pub use self::habits::{Habit, Habits};
pub use self::tls::Hello;

/// What a connection carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// HTTP/1, well-formed or not.
    Http1,
    /// HTTP/2 with prior knowledge (RFC 9113 3.3).
    Http2,
    /// TLS that we do not open.
    Tls(Hello),
    /// Anything else.
    Opaque,
}

impl Verdict {
    /// The word under which it is counted.
    #[must_use]
    pub const fn detected(&self) -> Detected {
        match self {
            Self::Http1 => Detected::Http1,
            Self::Http2 => Detected::Http2,
            Self::Tls(_) => Detected::Tls,
            Self::Opaque => Detected::Tcp,
        }
    }
}

/// What is counted of detection (`protocol_detections_total`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// HTTP/1.
    Http1,
    /// HTTP/2.
    Http2,
    /// TLS that we do not open.
    Tls,
    /// Something else, by what the caller says.
    Tcp,
    /// Something else: the server has spoken, or ended, before the caller did.
    ServerFirst,
}

impl Detected {
    /// All, in their order.
    pub const ALL: [Self; 5] = [Self::Http1, Self::Http2, Self::Tls, Self::Tcp, Self::ServerFirst];

    /// The label, in the words of policy where it has one.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP1",
            Self::Http2 => "HTTP2",
            Self::Tls => "TLS",
            Self::Tcp => "TCP",
            Self::ServerFirst => "ServerFirst",
        }
    }
}

/// What the first bytes of a connection say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// This, whatever follows.
    Is(Verdict),
    /// Not certain before more has come.
    Maybe {
        /// What it is taken for if nothing more comes.
        verdict: Verdict,
        /// No shorter input can tell more.
        at_least: usize,
    },
}

impl Peek {
    fn maybe(verdict: Verdict, at_least: usize) -> Self {
        Self::Maybe { verdict, at_least }
    }
}

/// Whether `bytes`, too few to tell, may be the beginning of a ClientHello.
#[must_use]
pub fn may_be_tls(bytes: &[u8]) -> bool {
    bytes.first() == Some(&tls::HANDSHAKE)
}

/// Says what a connection that begins with `bytes` carries.
#[must_use]
pub fn peek(bytes: &[u8]) -> Peek {
    match bytes.first() {
        None => Peek::maybe(Verdict::Opaque, 1),
        Some(&tls::HANDSHAKE) => tls::peek(bytes),
        Some(_) => http::peek(bytes),
    }
}

#[cfg(test)]
mod tests;
